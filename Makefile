# make demo | test | check | bench: each sets up .venv first, from the package registry alone.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: setup demo test test-fast check bench docs clean

setup: .venv/.dev

# What hapvr needs to run. torch is asked for by its exact version first: see constraints.txt.
.venv/.runtime: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(PIP) torch==2.13.0
	$(PIP) -e .
	touch $@

# What its tests and checks need on top.
.venv/.dev: .venv/.runtime
	$(PIP) -e '.[dev]'
	touch $@

demo: .venv/.runtime
	$(BIN)/hapvr demo

test: .venv/.dev
	$(BIN)/python -m pytest

# Before a commit: what is quick, one file of tests a core; under two minutes on two cores.
test-fast: .venv/.dev
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "not slow" -n auto --dist loadfile

check: .venv/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest

bench: .venv/.dev
	$(BIN)/python benchmarks/head.py
	$(BIN)/python benchmarks/pairwise.py
	$(BIN)/python benchmarks/metrics.py

# docs/api.md and docs/cli.md are written from the docstrings and the commands' own help.
docs: .venv/.dev
	$(BIN)/python docs/generate.py

clean:
	rm -rf .venv build dist
