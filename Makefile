# Everything a newcomer needs: make test, make reproduce. Both set up .venv by themselves.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
OUT ?= out

.PHONY: setup test lint format reproduce benchmark breakages audit clean

setup: $(VENV)/installed

$(VENV)/installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 11), "ringfence needs Python 3.11 or later"'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $@

test: setup
	$(BIN)/python -m pytest --numprocesses auto

lint: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: setup
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

reproduce: setup
	$(BIN)/ringfence reproduce --out $(OUT)

benchmark: setup
	$(BIN)/python -m benchmarks.mechanisms
	$(BIN)/python -m benchmarks.accounting
	$(BIN)/python -m benchmarks.examples
	$(BIN)/python -m benchmarks.outer_sum
	$(BIN)/python -m benchmarks.peers
	$(BIN)/python -m benchmarks.grid
	$(BIN)/python -m benchmarks.linear_information
	$(BIN)/python -m benchmarks.secure

# Breaks the code in known ways and counts the tests that notice (docs/design.md).
breakages: setup
	$(BIN)/python -m tests.breakages

# Thousands of attacks that must fail; some minutes.
audit: setup
	$(BIN)/ringfence audit --settings 5000 --tight 50 --probes 30 --runs 500

clean:
	rm -rf $(VENV) $(OUT) .mypy_cache .pytest_cache .ruff_cache .hypothesis
