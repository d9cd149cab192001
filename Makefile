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
	@echo "make bench   the committed benchmarks with their peers, hours; one page in benchmarks/results"

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

# Peers live in environments of their own: PEER_DPMM (dpmm 0.1.9), PEER_CAUSAL (causal-learn), PEER_OPACUS, PEER_JAX_PRIVACY are
# their Python interpreters; what is not given is left out. DATA holds the real tables.
DATA ?= ../shared/data
BENCHES = ledger counts inference effects estimation direction gaussian_discovery effect_of audit_power audit_museum audit_sniper audit_own

bench: $(VENV)/.dev-ready
	for name in $(BENCHES); do $(BIN)/python benchmarks/$$name.py || exit 1; done
	$(BIN)/python benchmarks/discovery.py --data $(DATA)
	$(BIN)/python benchmarks/release.py --data $(DATA) $(if $(PEER_DPMM),--peers $(PEER_DPMM))
	$(BIN)/python benchmarks/wide.py --data $(DATA)
	$(BIN)/python benchmarks/dpsgd.py $(if $(PEER_OPACUS),--opacus $(PEER_OPACUS)) $(if $(PEER_JAX_PRIVACY),--jax-privacy $(PEER_JAX_PRIVACY))
	$(if $(PEER_CAUSAL),$(BIN)/python benchmarks/direction.py --peer $(PEER_CAUSAL))
	$(BIN)/python benchmarks/summary.py

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
