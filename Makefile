# The two that matter: `make play` and `make test`. `make` alone lists them all.

# Some containers turn Python's cache of compiled modules off. Tests start thousands of processes, which would compile
# the same modules again and again, and `make bench` measures what users have.
unexport PYTHONDONTWRITEBYTECODE

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check
SEEDS ?= 10000
INPUTS ?= 1000000
PYTEST := $(BIN)/pytest
# One more than cores: tests on real parts wait more than they work.
PROCESSES ?= $(shell expr $$(nproc) + 1)
SIMULATOR := PYTHONPATH=tests $(BIN)/python -m kit.simulator
MINUTES ?= 5
RUNS ?= 200
# Where images and the chart are published, where the files of a release will be, and where its sources are.
REGISTRY ?= $(shell sed -n 's/^PUBLISHED = "\(.*\)"$$/\1/p' operator/quorate_operator/resources/facts.py)
DOWNLOADS ?=
REPOSITORY ?=
HELM ?= $(or $(shell command -v helm),$(lastword $(wildcard $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/quorate/kubernetes-*/bin/helm)),helm)
MATURIN := $(BIN)/maturin build --quiet --release --locked --manifest-path native/Cargo.toml --out dist/native
NATIVE_TARGETS := $(foreach processor,x86_64 aarch64,$(processor)-unknown-linux-gnu:manylinux_2_17 $(processor)-unknown-linux-musl:musllinux_1_2)
WORK := PYTHONPATH=tests $(BIN)/python -m kit.work
HOSTILE := PYTHONPATH=tests $(BIN)/python -m kit.hostile
MISTAKES := PYTHONPATH=tests $(BIN)/python -m kit.planted_mistakes
SOAK := PYTHONPATH=tests $(BIN)/python -m kit.soak
POWER_CUT := PYTHONPATH=tests $(BIN)/python -m kit.power_cut
SIDE_BY_SIDE := --dist loadgroup --no-loadscope-reorder $(if $(CI),--reruns 1)

.DEFAULT_GOAL := help
.PHONY: help play install native native-wheels test test-codec test-rungs nightly test-all check bench mistakes simulate work soak hostile power-cut lake-faults fuzz control-plane node-image kind kind-down dist images registry-login publish-images publish-chart publish-files clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

play: $(VENV)/.core ## three controllers and a Kafka broker on this machine, until Ctrl-C
	@$(BIN)/quorate play -f examples/quickstart.yaml

install: $(VENV)/.all ## .venv with everything that development needs

native: $(VENV)/.native ## the codec, compiled, into .venv: faster, needs Rust; QUORATE_NATIVE=off runs the one in Python

native-wheels: $(BIN)/python ## its wheels for x86-64 and arm64, glibc and musl, in dist/native; needs rustup
	@$(PIP) install -c constraints.txt maturin ziglang
	rm -rf dist/native
	for target in $(NATIVE_TARGETS); do \
		rustup target add $${target%:*} && PATH="$(CURDIR)/$(BIN):$$PATH" $(MATURIN) --zig --target $${target%:*} --compatibility $${target#*:} || exit 1; \
	done

# tests/kit/tiers.py says which test belongs to which target. Tests that share a real part run in one process; workers
# have ports of their own. Continuous integration tries a failed test on real parts once more and prints it as FLAKY.
test: $(VENV)/.all .jars ## the fast tests and a smoke test for each subsystem: some minutes, needs Java
	$(PYTEST) -m quick --numprocesses $(PROCESSES) $(SIDE_BY_SIDE)

test-codec: $(VENV)/.all ## what tests the codec: golden bytes, protocol, properties; with QUORATE_NATIVE=off the one in Python
	$(PYTEST) tests/golden tests/unit/protocol tests/property tests/pipeline/source/test_damage.py tests/pipeline/source/test_payloads.py --numprocesses $(PROCESSES) $(SIDE_BY_SIDE)

test-rungs: $(VENV)/.all .jars ## all other tests on real parts but the nightly ones; QUORATE_REQUIRE=kafka,... fails where one is missing
	$(PYTEST) -m 'not quick and not nightly' --numprocesses $(PROCESSES) $(SIDE_BY_SIDE)

nightly: $(VENV)/.all .jars ## what takes longest: kind, operators killed after each step, the ledger on Java, 1,000 seeds, a soak
	$(PYTEST) -m nightly --ignore tests/kubernetes/kind
	QUORATE_NEW_EXAMPLES=1 $(PYTEST) tests/property --numprocesses auto
	QUORATE_NEW_EXAMPLES=1 $(PYTEST) tests/integration/parity/test_random_requests.py
	QUORATE_LEDGER=java $(PYTEST) tests/pipeline/ledger
	$(MISTAKES)
	$(SIMULATOR) --seeds 1000
	$(SIMULATOR) --seeds 1000 --shape membership
	QUORATE_REQUIRE=$${QUORATE_REQUIRE:-kind} $(PYTEST) tests/kubernetes/kind
	$(SOAK) --minutes 5

test-all: test test-rungs nightly ## every test

# The jars and their AOT caches first, so that no test waits for Maven or for them.
.PHONY: .jars
.jars: $(VENV)/.all
	@for release in $$($(BIN)/python -c 'from quorate_protocol.kafka.releases import RELEASES; print(*RELEASES)'); do \
		$(BIN)/python tools/kafka_jars.py --version $$release >/dev/null || true; \
	done

check: $(VENV)/.all ## formatting, lint, types, import contracts, generated files
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/python tools/check_test_attributes.py
	$(BIN)/lint-imports
	$(BIN)/pytest -q tests/unit/test_repository_rules.py
	$(BIN)/python tools/check_generated.py
	@if command -v cargo-clippy >/dev/null && command -v cargo-fmt >/dev/null; then \
		cargo fmt --check --manifest-path native/Cargo.toml && \
		cargo clippy --quiet --release --locked --manifest-path native/Cargo.toml -- --deny warnings; \
	else \
		echo 'cargo, clippy or rustfmt is missing: native/ is not checked'; \
	fi

bench: $(VENV)/.all ## our controllers and tools beside those of Kafka; ONLY=scale: with up to 1,000,000 partitions; ONLY=authorization: with 10,000 ACLs; ONLY=size: with the largest requests; ONLY=lake, operator, entities
	@$(BIN)/python -m benchmarks $(if $(ONLY),--only $(ONLY))

mistakes: $(VENV)/.all ## plant mistakes in a copy of the sources, and print which test finds each; ONLY=text for some; SIMULATE=n seeds, too
	$(MISTAKES) --only '$(ONLY)' $(if $(SIMULATE),--simulate $(SIMULATE))

simulate: $(VENV)/.all ## SEEDS=n runs of the simulation, or SEED=n again, as a failure tells; SHAPE=membership: of its operator
	$(SIMULATOR) $(if $(SEED),--seed $(SEED),--seeds $(SEEDS)) $(if $(SHAPE),--shape $(SHAPE))

work: $(VENV)/.all ## the longest step of each API and record on a large image, in lines of Python; TIME=1: in microseconds
	$(WORK) $(if $(TIME),--time)

transcript: $(VENV)/.all .jars ## run the tools of KIP-919 while no broker runs, and write what they print into docs/tools.md
	PYTHONPATH=tests $(BIN)/python -m kit.without_brokers --write

soak: $(VENV)/.all .jars ## MINUTES=n of a mixed quorum of real processes while everything breaks, or SEED=s again; root
	$(SOAK) --minutes $(MINUTES) $(if $(SEED),--seed $(SEED)) $(if $(MISTAKE),--mistake $(MISTAKE))

hostile: $(VENV)/.all ## hostile clients against the listeners of real controllers: SECONDS=n of each attack; ATTACK=name, PROTOCOL=SSL: one; JAVA=1: stock Kafka, too
	$(HOSTILE) $(if $(SECONDS),--seconds $(SECONDS)) $(if $(ATTACK),--attack $(ATTACK)) $(if $(PROTOCOL),--protocol $(PROTOCOL)) $(if $(JAVA),--java) $(if $(WRITE),--write)

lake-faults: $(VENV)/.all ## RUNS=n of jobs of a lake that are killed, lack files or have company, or SEED=n again
	PYTHONPATH=tests $(BIN)/python -m kit.lake.faults --runs $(RUNS) $(if $(SEED),--seed $(SEED))

power-cut: $(VENV)/.all .jars ## a table of what tools, doctor, play and operator say after a power cut, beside what is true; FULL=1: all of it
	$(POWER_CUT) $(if $(FULL),--full)

fuzz: $(VENV)/.all ## INPUTS=n hostile inputs for each reader, found by coverage; TARGET=name for one
	@$(PIP) install -c constraints.txt -e '.[fuzz]'
	PYTHONPATH=tests $(BIN)/python -m kit.fuzz --inputs $(INPUTS) $(if $(TARGET),--target $(TARGET))

control-plane: $(VENV)/.all ## build etcd, kube-apiserver, kubectl, helm and actionlint for the tests, once
	@PYTHONPATH=tests $(BIN)/python -m kit.local_kubernetes control-plane

node-image: $(VENV)/.all ## make the node image of kind without a registry, once
	@PYTHONPATH=tests $(BIN)/python -m kit.local_kubernetes node-image

kind: $(VENV)/.all ## kind up with images, chart and examples/production.yaml; QUORATE_DOCKER=own where no registry can be reached
	@PYTHONPATH=tests $(BIN)/python -m kit.operators.trial up

kind-down: $(VENV)/.all ## remove what `make kind` made
	@PYTHONPATH=tests $(BIN)/python -m kit.operators.trial down

dist: $(VENV)/.all ## wheel, sdist, chart, definitions, kubectl's plugin in dist/release; REGISTRY=... of the chart's images; needs Helm
	@$(BIN)/python tools/dist.py --helm '$(HELM)' --registry '$(REGISTRY)' $(if $(DOWNLOADS),--downloads '$(DOWNLOADS)') $(if $(REPOSITORY),--repository '$(REPOSITORY)')

images: $(VENV)/.all $(if $(shell command -v cargo 2>/dev/null),dist/native/.built) ## build all images with docker; ONLY=quorate: one of them; REGISTRY=... for other names
	@$(BIN)/python tools/publish.py build --registry '$(REGISTRY)' $(if $(ONLY),--only '$(ONLY)')

# What a release does, by .github/workflows/release.yaml: docs/releasing.md.
registry-login: $(VENV)/.all
	@$(BIN)/python tools/publish.py login --registry '$(REGISTRY)' --user '$(REGISTRY_USER)'

publish-images: $(VENV)/.all
	@$(BIN)/python tools/publish.py images --registry '$(REGISTRY)' $(if $(ONLY),--only '$(ONLY)')

publish-chart: $(VENV)/.all
	@$(BIN)/python tools/publish.py chart --registry '$(REGISTRY)'

publish-files: $(VENV)/.all
	@$(BIN)/python tools/changelog.py "$$($(BIN)/quorate version)" >dist/notes.md
	@$(BIN)/python tools/publish.py files --notes dist/notes.md

clean: ## remove what the targets made, but no played cluster
	rm -rf $(VENV) native/target test-reports .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A stamp for each set of packages: pip runs again when what it installs has changed.
$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.11 ...")'
	@$(PYTHON) -m venv $(VENV) || { echo 'venv is missing; on Debian: apt-get install python3-venv' >&2; exit 1; }

$(VENV)/.core: pyproject.toml constraints.txt | $(BIN)/python
	@echo 'installing the packages of the core into $(VENV)'
	@$(PIP) install -c constraints.txt -e '.[java]'
	@touch $@

$(VENV)/.all: pyproject.toml constraints.txt | $(BIN)/python
	@echo 'installing all packages into $(VENV)'
	@$(PIP) install -c constraints.txt -e '.[dev]'
	@touch $@ $(VENV)/.core

$(VENV)/.native: dist/native/.built | $(VENV)/.core
	@echo 'installing the compiled codec into $(VENV)'
	@$(PIP) install --no-index --no-deps --force-reinstall dist/native/quorate_native-*.whl
	@QUORATE_NATIVE=on $(BIN)/python -c 'from quorate_protocol.wire.codec.native import *; assert CODEC == "native", CODEC_REASON'
	@touch $@

# The wheel for this machine, which images built here get, too.
dist/native/.built: native/Cargo.toml native/Cargo.lock native/pyproject.toml $(wildcard native/src/*.rs) constraints.txt | $(BIN)/python
	@command -v cargo >/dev/null || { echo 'cargo is missing: install Rust 1.88 or newer, or go on with the codec in Python' >&2; exit 1; }
	@echo 'building the codec'
	@$(PIP) install -c constraints.txt maturin
	@rm -rf dist/native
	@$(MATURIN) --interpreter $(BIN)/python
	@touch $@
