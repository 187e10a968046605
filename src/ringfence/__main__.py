"""python -m ringfence."""

from ringfence.cli.app import main

if __name__ == "__main__":
    main()
