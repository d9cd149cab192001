# Two commands from a fresh clone: `make demo` and `make test`. Each builds .venv once and reuses it until
# pyproject.toml changes. Needs Python >= 3.11 with pip, and make; nothing else.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
WORKERS ?= 2

.PHONY: demo test lint types layers docs unit bench notebooks clean help

help:
	@echo "make demo    see the private core at work on simulated patients"
	@echo "make test    lint, types, layers, documentation, all tests"
	@echo "make docs    the documentation, into build/docs; open index.html there"
	@echo "make notebooks  the examples as notebooks, into build/notebooks"
	@echo "make bench   the committed benchmarks, half an hour"

demo: $(VENV)/.run-ready
	@$(BIN)/python examples/demo.py

test: lint types layers docs unit

lint: $(VENV)/.dev-ready
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(VENV)/.dev-ready
	$(BIN)/mypy

layers: $(VENV)/.dev-ready
	$(BIN)/lint-imports --no-cache

docs: $(VENV)/.dev-ready
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

notebooks: $(VENV)/.dev-ready
	@mkdir -p build/notebooks
	for file in examples/*.py; do $(BIN)/jupytext --quiet --to ipynb --output build/notebooks/$$(basename $$file .py).ipynb $$file; done

unit: $(VENV)/.dev-ready
	$(BIN)/python -m pytest -n $(WORKERS) $(PYTEST_OPTIONS)

bench: $(VENV)/.dev-ready
	$(BIN)/python benchmarks/ledger.py
	$(BIN)/python benchmarks/counts.py
	$(BIN)/python benchmarks/inference.py
	$(BIN)/python benchmarks/effects.py
	$(BIN)/python benchmarks/release.py
	$(BIN)/python benchmarks/wide.py --quick

$(VENV)/.made:
	@$(PYTHON) -c 'import sys; sys.exit("escudo needs Python 3.11 or newer; this is " + sys.version.split()[0] + ". Try: make PYTHON=python3.12 " if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	@touch $@

$(VENV)/.run-ready: pyproject.toml | $(VENV)/.made
	$(BIN)/python -m pip install --quiet --editable .
	@touch $@

$(VENV)/.dev-ready: pyproject.toml | $(VENV)/.made
	$(BIN)/python -m pip install --quiet --editable . --group dev
	@touch $(VENV)/.run-ready $@

clean:
	rm -rf $(VENV) demo .pytest_cache .mypy_cache .ruff_cache .hypothesis
