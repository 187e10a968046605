"""python -m ringfence."""

from ringfence.cli import main

if __name__ == "__main__":
    main()
