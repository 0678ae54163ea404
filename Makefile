# The two that matter: `make play` and `make test`. `make` alone lists them all.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check
SEEDS ?= 10000
TRIED_AGAIN := $(if $(CI),--reruns 1 -rR)

.DEFAULT_GOAL := help
.PHONY: help play install test check bench simulate clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

play: $(VENV)/.core ## three controllers and a Kafka broker on this machine, until Ctrl-C
	@$(BIN)/quorate play -f examples/quickstart.yaml

install: $(VENV)/.all ## .venv with everything that development needs

# The jars first, so that no test waits for Maven. Tests with real processes share cores and disks: one at a time, but
# for those that wait for Kubernetes and Spark more than they work, two files at a time. A continuous integration tries
# a test with real processes once more, and says so, as Kafka's own does; what is told in chapters, from the beginning.
test: $(VENV)/.all ## all that can be tested here; QUORATE_REQUIRE=kafka,kubernetes,kind,browser,spark makes a missing one a failure
	@$(BIN)/python tools/kafka_jars.py >/dev/null || true
	$(BIN)/pytest $(addprefix tests/,unit property golden simulation) --numprocesses auto
	$(BIN)/pytest tests/integration tests/browser $(TRIED_AGAIN)
	$(BIN)/pytest tests/pipeline tests/kubernetes --ignore tests/kubernetes/kind --numprocesses 2 --dist loadfile $(TRIED_AGAIN)
	$(BIN)/pytest tests/kubernetes/kind $(if $(CI),|| $(BIN)/pytest tests/kubernetes/kind)

check: $(VENV)/.all ## formatting, lint, types, import contracts, generated files
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest -q tests/unit/test_repository_rules.py
	$(BIN)/python tools/check_generated.py

# As on a user's machine: with Python's cache of compiled modules, which some containers turn off.
bench: $(VENV)/.all ## our controllers and tools beside those of Kafka
	@jars=$$($(BIN)/python tools/kafka_jars.py) && env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m benchmarks --jars "$$jars"

simulate: $(VENV)/.all ## SEEDS=n runs of the simulation, or SEED=n again, as a failure tells; MEMBERSHIP=1: of its operator
	PYTHONPATH=tests/simulation $(BIN)/python -m simulator $(if $(SEED),--seed $(SEED),--seeds $(SEEDS)) $(if $(MEMBERSHIP),--membership)

clean: ## remove what the targets made, but no played cluster
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A stamp for each set of packages: pip runs again when what it installs has changed.
$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.11 ...")'
	@$(PYTHON) -m venv $(VENV) || { echo 'venv is missing; on Debian: apt-get install python3-venv' >&2; exit 1; }

$(VENV)/.core: pyproject.toml constraints.txt | $(BIN)/python
	@echo 'installing the packages of the core into $(VENV)'
	@$(PIP) install -c constraints.txt -e .
	@touch $@

$(VENV)/.all: pyproject.toml constraints.txt | $(BIN)/python
	@echo 'installing all packages into $(VENV)'
	@$(PIP) install -c constraints.txt -e '.[dev]'
	@touch $@ $(VENV)/.core
