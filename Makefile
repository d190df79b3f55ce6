# make demo: install into .venv and find a knee.   make test: everything CI runs.   make help: the rest.

PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
COMPILE := uv pip compile pyproject.toml --quiet --universal --python-version 3.11 --generate-hashes --no-annotate \
	--custom-compile-command "make lock"

.PHONY: help demo test lint unit bench lock clean

help:  ## this list
	@grep -hE '^[a-z]+:.*##' Makefile | sed -E 's/:.*## /\t/' | expand -t 10

demo: .venv/demo.stamp  ## install, then find the knee of the embedded engine (about a minute)
	@$(BIN)/tokenswarm demo

test: lint unit  ## everything CI runs

lint: .venv/dev.stamp  ## format, lint, types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

# Real engines are judged by real seconds: where a neighbour takes the CPU, a verdict can rightly be another one. What
# failed is run again, in sight, twice at most; a fault fails every time.
unit: .venv/dev.stamp  ## all tests
	$(BIN)/python -m pytest || $(BIN)/python -m pytest --last-failed || $(BIN)/python -m pytest --last-failed

bench: .venv/dev.stamp  ## how true and how fast: every benchmark, beside what people would use instead
	$(BIN)/python bench/all.py

lock:  ## renew both lock files (needs uv)
	$(COMPILE) --group build -o requirements.lock
	$(COMPILE) --group build --group dev -o requirements-dev.lock

clean:  ## remove the environment and caches; runs/ stays
	rm -rf .venv .cache .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage

.venv/bin/python:
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(0 if (3, 11) <= v[:2] <= (3, 14) else \
	f"make: Python 3.11 to 3.14 is needed, {v[0]}.{v[1]} found; name another with PYTHON=python3.x")'
	@$(PYTHON) -m venv .venv || { echo "make: cannot create .venv; on Debian: apt-get install python3-venv"; exit 1; }

.venv/demo.stamp: requirements.lock pyproject.toml | .venv/bin/python
	@echo "Installing into .venv ..."
	@$(PIP) install --require-hashes --requirement requirements.lock
	@$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@

.venv/dev.stamp: requirements-dev.lock pyproject.toml | .venv/bin/python
	@echo "Installing into .venv (with development tools) ..."
	@$(PIP) install --require-hashes --requirement requirements-dev.lock
	@$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@ .venv/demo.stamp
