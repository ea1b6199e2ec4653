# Everything a newcomer needs. `make demo` and `make test` work on a fresh clone with nothing but python3 >= 3.11.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
MODEL ?= smollm2-135m
PROCESSES ?= 2
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Bytecode is kept, whatever the caller's environment says: the tests start hundreds of interpreters.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help demo serve test test-slow test-all check lint types layers format docs clean kernels

help:  ## Show this list
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "evenflow needs Python 3.11 or newer; set PYTHON=python3.x"; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.run: pyproject.toml setup.py constraints.txt | $(BIN)/python
	@echo "installing torch and the rest into $(VENV): about 1 GB, a minute or two"
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[torch]'
	@touch $@

$(VENV)/.dev: pyproject.toml setup.py constraints.txt | $(BIN)/python
	@echo "installing torch and the rest into $(VENV): about 1 GB, a minute or two"
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[torch,dev]'
	@touch $@ $(VENV)/.run

demo: $(VENV)/.run  ## Serve a real model, send it 40 requests of mixed lengths, watch them share iterations
	$(BIN)/evenflow demo --model $(MODEL)

serve: $(VENV)/.run  ## Serve the demo model on http://127.0.0.1:8000
	$(BIN)/evenflow serve --model $(MODEL)

test: $(VENV)/.dev  ## The fast tests (under 3 minutes)
	$(BIN)/python -m pytest -q -n $(PROCESSES) --dist loadfile

test-slow: $(VENV)/.dev  ## The slow tests: seeded bugs, the long property runs
	$(BIN)/python -m pytest -q -n $(PROCESSES) --dist loadfile -m slow

test-all: test test-slow  ## Both

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev
	$(BIN)/mypy

layers: $(VENV)/.dev
	$(BIN)/lint-imports

check: lint types layers test  ## Lint, types, layers and the fast tests

format: $(VENV)/.dev  ## Rewrite the code in the house format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(VENV)/.dev  ## Regenerate docs/reference, the Grafana dashboard too
	$(BIN)/python -m evenflow.observe.reference docs/reference

kernels: $(VENV)/.run  ## Rebuild the native kernels
	$(BIN)/python -m evenflow.kernels.build

clean:  ## Remove the environment and everything built
	rm -rf $(VENV) build dist src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find src -name '*.so' -delete
