# make demo | test | check | bench: each sets up .venv first, from the package registry alone.
PYTHON ?= python3
BIN := .venv/bin
# One file of tests a core, each with one thread: twice as fast on two cores as one after the other with two threads.
# The order is that of tests/conftest.py, long files first; xdist's own would put files of few tests last.
TESTS := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist loadfile --no-loadscope-reorder
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: setup demo test test-fast check bench docs lock sbom audit clean

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
	$(TESTS)

# Before a commit: what is quick; under two minutes on two cores.
test-fast: .venv/.dev
	$(TESTS) -m "not slow"

check: .venv/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(TESTS)

bench: .venv/.dev
	$(BIN)/python benchmarks/head.py
	$(BIN)/python benchmarks/pairwise.py
	$(BIN)/python benchmarks/metrics.py

# docs/api.md and docs/cli.md are written from the docstrings and the commands' own help.
docs: .venv/.dev
	$(BIN)/python docs/generate.py

# requirements.lock: what hapvr needs to run, with hashes, for the Python and the system that this runs on.
lock: .venv/.dev
	$(BIN)/python scripts/list_dependencies.py lock requirements.lock

# dist/sbom.json: a bill of materials (CycloneDX) of what is installed to run hapvr; its tool has an environment of its own.
sbom: .venv/.dev .venv/tools/.sbom
	$(BIN)/python scripts/list_dependencies.py sbom .venv/tools/bin/cyclonedx-py dist/sbom.json

# Known weaknesses of what the lock file lists. Needs the database of the package index or of osv.dev.
audit: .venv/tools/.audit
	.venv/tools/bin/pip-audit --requirement requirements.lock --disable-pip --require-hashes --strict

.venv/tools/.sbom .venv/tools/.audit: .venv/.runtime
	test -x .venv/tools/bin/python || $(PYTHON) -m venv .venv/tools
	.venv/tools/bin/python -m pip install --quiet --disable-pip-version-check \
	  $(if $(findstring sbom,$@),cyclonedx-bom==7.5.0,pip-audit==2.10.1)
	touch $@

clean:
	rm -rf .venv build dist
