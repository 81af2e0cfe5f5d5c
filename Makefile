# Every command that README, docs and CI name. `make run` and `make test` set up all they need.
SHELL := /bin/bash
VENV ?= .venv
PYTHON ?= python3
BIN := $(VENV)/bin
NOTEBOOKS ?= notebooks

# Pytest's processes for the unit tests; a file is run by one of them. On two cores more of them take longer.
WORKERS ?= 3
PYTEST := $(BIN)/python -m pytest -q
PARALLEL := --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder

.PHONY: help run demo test check lint types unit units alone e2e cluster programs drills thorough cases journeys fuzz mutants clients matrix gpu gpu-app wheel-test bench docs site screenshots outputs clean

.DEFAULT_GOAL := help

help: ## this list
	@grep -hE '^[a-z0-9-]+:.*##' Makefile | sed -E 's/^([a-z0-9-]+):[^#]*## ?/\1\t/' | while IFS=$$'\t' read -r name text; do printf '  %-14s %s\n' "$$name" "$$text"; done

run: $(VENV)/.run ## the app and MLflow, on the notebooks that ship
	$(BIN)/scalebook ui $(NOTEBOOKS)

demo: $(VENV)/.run ## the notebook "First steps", headless
	$(BIN)/scalebook notebook run notebooks/first-steps.md

test: lint $(VENV)/.docs programs ## everything; what CI runs. The journeys, then types, then the site run next to the unit tests
	$(MAKE) --jobs=2 --keep-going --output-sync=target units e2e types site
	$(MAKE) alone

check: lint types ## format, lint, types, and the arrows between the folders
	$(PYTEST) tests/test_architecture.py

lint: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(VENV)/.dev
	$(BIN)/python -m tests.check_types

unit: units alone ## the tests without a browser

# Compiled once, not by each of the processes that tests start.
unexport PYTHONDONTWRITEBYTECODE

# Threads of torch that wait for each other sleep instead of spinning on a core that another test needs.
units alone e2e: export OMP_WAIT_POLICY := passive
# Small matrices of a Gaussian process: threads of OpenBLAS would spin.
units alone: export OPENBLAS_NUM_THREADS := 1

units: programs
	$(PYTEST) -m "not e2e and not alone and not drill and not thorough" $(PARALLEL)

alone: $(VENV)/.dev # what needs a quiet machine
	$(PYTEST) -m "alone and not e2e and not drill and not thorough" $$(grep -rl --include='*.py' 'mark[.]alone' tests)

e2e: programs ## three journeys in a real browser
	$(PYTEST) -m "e2e and not cluster and not drill and not thorough" tests/e2e

cluster: $(VENV)/.cluster programs ## with Ray's daemons, two raylets of one cluster on this machine; `make test` has no Ray, and skips it
	$(PYTEST) -m cluster tests/training/cluster
	$(PYTEST) -m cluster tests/e2e/test_cluster.py
	$(BIN)/python -m benchmarks.cluster_deaths

programs: $(VENV)/.dev
	$(SHELL) tests/debian.sh chromium
	$(SHELL) tests/debian.sh postgresql

drills: programs ## all kill drills, half an hour: of these `make test` runs a part
	$(PYTEST) -m "drill and not thorough" $$(grep -rl --include='*.py' 'mark[.]drill' tests)
	$(BIN)/python -m benchmarks.engine_drills
	$(BIN)/python -m benchmarks.cluster_drills
	$(BIN)/python -m benchmarks.search_drills
	$(BIN)/python -m benchmarks.kill_drills
	$(BIN)/python -m benchmarks.disk_drills

thorough: programs ## the second lane, before a release, some hours: what `make test` leaves out, with all journeys, all drills and Ray
	$(MAKE) --keep-going cases journeys drills cluster docs

cases: programs ## cases alike, of each kind of which `make test` runs a few, and what is shown whole there by its parts
	$(PYTEST) -m "thorough and not e2e" $(PARALLEL)
	$(PYTEST) -m hypothesis --hypothesis-profile thorough tests/training

journeys: programs ## all of them: one goes on where another has ended
	$(PYTEST) -m "e2e and not cluster" tests/e2e

fuzz: $(VENV)/.dev ## 3,000 broken notebooks, configs, searches, points and addresses; SEED=2 for others
	$(BIN)/python -m tests.fuzz --mutants 3000 --seed $(or $(SEED),1)

mutants: $(VENV)/.dev ## mistakes made on purpose, each of which some test must find
	$(BIN)/python -m tests.mutants

clients: $(VENV)/.dev ## ordinary programs of people's libraries, an hour and more; they are installed in ~/.cache/scalebook/clients
	$(BIN)/python -m tests.clients

matrix: $(VENV)/.dev ## `make demo` and `make test` with each supported Python (noxfile.py); TORCH_INDEX=URL for another build of torch
	$(BIN)/nox

gpu: ## what only a GPU can show, in 6 minutes or so, by .venv or, without one, by PYTHON; needs torch and Lightning alone
	$(if $(wildcard $(BIN)/python),$(BIN)/python,$(PYTHON)) -m tests.gpu

gpu-app: programs ## a job on a GPU, the pages that show it, the notebook First steps in a browser; 3 minutes on a machine with a GPU
	$(BIN)/python -m tests.e2e.gpu_app

wheel-test: ## the wheel in an empty environment, with what it needs from the package index; some minutes
	$(PYTHON) -m tests.package.wheel

docs: site programs ## the documentation as a site in site/, and in a browser what its search finds and whether its tables fit
	SITE=site $(PYTEST) tests/docs/test_site.py

site: $(VENV)/.docs # a link or an anchor that leads nowhere ends it
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

screenshots: programs ## the pictures in README and docs, about twenty minutes on an idle machine; ONLY=pages, plan, search or forms
	$(BIN)/python -m docs.generate.screenshots $(if $(ONLY),--only $(ONLY))

outputs: $(VENV)/.dev ## what the commands of the tutorial print, written into its pages; five minutes on an idle machine
	$(BIN)/python -m docs.generate.outputs docs/tutorial/*.md

bench: $(VENV)/.dev ## every figure in the documentation, in turn
	$(BIN)/python -m benchmarks.engine --all
	$(BIN)/python -m benchmarks.engine_drills
	$(BIN)/python -m benchmarks.cluster_drills
	$(BIN)/python -m benchmarks.wire
	$(BIN)/python -m benchmarks.memory
	$(BIN)/python -m benchmarks.virtual
	$(BIN)/python -m benchmarks.virtual_truth
	$(BIN)/python -m benchmarks.calibration
	$(BIN)/python -m tests.training.notebook.claims.coverage
	$(BIN)/python -m tests.published
	$(BIN)/python -m benchmarks.plans ddp
	$(BIN)/python -m benchmarks.plans users
	$(BIN)/python -m benchmarks.cluster_rates
	$(BIN)/python -m benchmarks.jobs
	$(BIN)/python -m benchmarks.pages
	$(BIN)/python -m benchmarks.search_drills
	$(BIN)/python -m benchmarks.kill_drills
	$(BIN)/python -m benchmarks.disk_drills

$(VENV)/.run: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Scalebook needs Python 3.11 or newer; set PYTHON=...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[examples]'
	touch $@

$(VENV)/.dev: $(VENV)/.run
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	mkdir -p $(VENV)/editor/scalebook
	ln -sfn $(addprefix $(CURDIR)/,app pages training $(wildcard scalebook/*.py)) $(VENV)/editor/scalebook # see tool.pyright
	touch $@

$(VENV)/.docs: $(VENV)/.run
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	touch $@

$(VENV)/.cluster: $(VENV)/.dev
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[cluster]'
	touch $@

clean: ## the environment and caches; notebooks and their runs stay
	rm -rf $(VENV) .nox site .mypy_cache .ruff_cache .pytest_cache .hypothesis
