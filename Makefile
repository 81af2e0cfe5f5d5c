# Every command that the README and CI name. `make run` and `make test` set up all they need.
VENV ?= .venv
PYTHON ?= python3
BIN := $(VENV)/bin
NOTEBOOKS ?= notebooks

.PHONY: run demo test check unit e2e fuzz bench clean

run: $(VENV)/.run ## the app and MLflow, on the notebooks that ship
	$(BIN)/scalebook ui $(NOTEBOOKS)

demo: $(VENV)/.run ## the notebook "First steps", headless
	$(BIN)/scalebook notebook run notebooks/first-steps.md

test: check unit e2e ## everything; what CI runs

check: $(VENV)/.dev ## format, lint, types, and the arrows between the folders
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/pytest -q tests/test_architecture.py

unit: $(VENV)/.dev
	$(SHELL) tests/debian.sh postgresql
	$(BIN)/pytest -q -m "not e2e" --ignore tests/test_architecture.py

e2e: $(VENV)/.dev ## the journeys in a real browser
	$(SHELL) tests/debian.sh chromium
	$(BIN)/pytest -q -m e2e tests/e2e

fuzz: $(VENV)/.dev ## 3,000 broken notebooks, configs, searches, points and addresses; SEED=2 for others
	$(BIN)/python -m tests.fuzz --mutants 3000 --seed $(or $(SEED),1)

bench: $(VENV)/.dev ## every figure in the README, in turn
	$(BIN)/python -m benchmarks.engine --all
	$(BIN)/python -m benchmarks.engine_drills
	$(BIN)/python -m benchmarks.stragglers
	$(BIN)/python -m benchmarks.learning_rates
	$(BIN)/python -m benchmarks.search
	$(BIN)/python -m benchmarks.search_drills
	$(BIN)/python -m benchmarks.search_speed
	$(BIN)/python -m benchmarks.search_page
	$(BIN)/python -m benchmarks.scaling_rule
	$(BIN)/python -m benchmarks.large_batches
	$(BIN)/python -m benchmarks.jobs
	$(BIN)/python -m benchmarks.pages
	$(BIN)/python -m benchmarks.kill_drills
	$(BIN)/python -m benchmarks.submit_drills
	$(BIN)/python -m benchmarks.memory
	$(BIN)/python -m benchmarks.shape
	$(BIN)/python -m benchmarks.disk_drills

$(VENV)/.run: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Scalebook needs Python 3.11 or newer; set PYTHON=...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	touch $@

$(VENV)/.dev: $(VENV)/.run
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

clean: ## the environment and caches; notebooks and their runs stay
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
