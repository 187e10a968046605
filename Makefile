# Everything a newcomer needs: make test, make reproduce. Both set up .venv by themselves.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
OUT ?= out
export NO_MKDOCS_2_WARNING := 1  # an announcement of the theme, not about these pages

.PHONY: setup test lint format reproduce benchmark engines breakages oracle coverage mutants audit fuzz faults package docs newcomer extras release clean

setup: $(VENV)/installed

$(VENV)/installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 11), "ringfence needs Python 3.11 or later"'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $@

# What is compiled is kept: otherwise every worker compiles all tests again. Threads that wait leave the core to
# the other worker.
test: export PYTHONDONTWRITEBYTECODE :=
test: export OMP_WAIT_POLICY := passive
test: setup
	$(BIN)/python -m pytest --numprocesses auto --dist loadfile --no-loadscope-reorder  # fixtures are made once

lint: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/mkdocs build --strict --quiet

# The site, from docs/, the README, examples/ and the docstrings: out/site/index.html, which needs no server and no network.
docs: setup
	$(BIN)/mkdocs build --strict --quiet

# Formats the code.
format: setup
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

reproduce: setup
	$(BIN)/python -m experiments reproduce --out $(OUT)

benchmark: setup
	$(BIN)/python -m benchmarks.mechanisms
	$(BIN)/python -m benchmarks.accounting
	$(BIN)/python -m benchmarks.examples
	$(BIN)/python -m benchmarks.outer_sum
	$(BIN)/python -m benchmarks.product_sum
	$(BIN)/python -m benchmarks.peers
	$(BIN)/python -m benchmarks.grid
	$(BIN)/python -m benchmarks.linear_information
	$(BIN)/python -m benchmarks.winners
	$(BIN)/python -m benchmarks.pate
	$(BIN)/python -m benchmarks.peers_decisions
	$(BIN)/python -m benchmarks.sign_anywhere
	$(BIN)/python -m benchmarks.secure
	$(BIN)/python -m benchmarks.noise
	$(BIN)/python -m benchmarks.tables

# The tests of tables on Spark (local mode, which needs Java 17) and PostgreSQL (Debian's, as root), and of sweeps on Ray.
engines: setup
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt pyspark
	ls /usr/lib/postgresql/*/bin/initdb > /dev/null 2>&1 || { apt-get update -qq && apt-get install -y -qq postgresql; }
	java -version 2>&1 | head -1; ls -d /usr/lib/postgresql/*
	$(BIN)/python -c 'import duckdb, ibis, pyspark; print("ibis", ibis.__version__, "duckdb", duckdb.__version__, "pyspark", pyspark.__version__)'
	SPARK_LOCAL_IP=127.0.0.1 $(BIN)/python -W ignore examples/release_spark.py
	RINGFENCE_ENGINES=1 SPARK_LOCAL_IP=127.0.0.1 $(BIN)/python -W ignore -m pytest tests/releases/test_engines.py tests/experiments/sweep/test_runner.py -W ignore

# Breaks the code in known ways and counts the tests that notice (docs/design.md).
breakages: setup
	$(BIN)/python -m tests.breakages

# Computes again all that the contract of the laws compares with (tests/mechanisms/recorded.json).
oracle: setup
	$(BIN)/python -m tests.mechanisms.recorded

# Lines and branches that tests run, and which test runs which line.
coverage: setup
	mkdir -p out && rm -f out/durations.jsonl
	COVERAGE_FILE=$(CURDIR)/out/coverage $(BIN)/python -m pytest --numprocesses auto -p tests.mutants.selection \
		--cov --cov-context=test --cov-report=term:skip-covered --cov-fail-under=95

# Small wrong changes that a test must notice: a sample, half an hour on two cores (docs/mutants.md).
mutants: setup out/coverage
	$(BIN)/python -m tests.mutants --sample 800

out/coverage:
	$(MAKE) coverage

# Thousands of attacks that must fail; some minutes.
audit: setup
	$(BIN)/python -m tests.audit

# Kills training, sweeps and extraction at random moments and looks at what is left; some minutes.
faults: setup
	$(BIN)/python -m tests.faults.kills --kills 100

# Bad input, very much of it: some tens of minutes (docs/security.md).
fuzz: setup
	$(BIN)/python -m tests.fuzz --cases 100000

# What would be uploaded, built, checked, and used once by a newcomer who borrows the dependencies that are here.
package: setup
	rm -rf dist
	$(BIN)/python -m build --no-isolation
	$(BIN)/twine check --strict dist/*
	$(BIN)/python -m pytest tests/test_package.py
	$(BIN)/python scripts/newcomer.py dist --borrow

# Follows the README to the letter in an empty environment, with a watch; downloads the dependencies.
newcomer: package
	PIP_CONSTRAINT=$(CURDIR)/constraints.txt $(BIN)/python scripts/newcomer.py dist

# An empty environment for each extra, which is then used once; downloads a lot.
extras: package
	PIP_CONSTRAINT=$(CURDIR)/constraints.txt $(BIN)/python scripts/newcomer.py dist --extras

# Version, commit and tag by one command: make release VERSION=0.7.0, after CHANGELOG.md has its section.
release: setup
	$(BIN)/python scripts/release.py $(VERSION)

clean:
	rm -rf $(VENV) $(OUT) dist .import_linter_cache .mypy_cache .pytest_cache .ruff_cache .hypothesis
