# Two commands do everything on a machine with Python 3.11 or newer: `make serve` and `make test`.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

LABML := .venv-labml
CLIENTS := .venv-clients
RAY := .venv-ray

.PHONY: serve test test-clients test-schema check bench bench-models bench-quick bench-train bench-train-short chaos soak check-deploy check-deploy-quick dev lock clean help

help:
	@echo "make serve [MODEL=name-or-directory]   start the service on http://127.0.0.1:8000"
	@echo "make test                              run the tests"
	@echo "make test-clients                      the clients of others against the service; installs them apart"
	@echo "make test-schema                       the OpenAPI document against the service, at length"
	@echo "make dev                               install what training, exporting and tests need"
	@echo "make bench-train                       the trainer against labml's experiment; about an hour"
	@echo "make bench-train-short                 its promises of stopping, killing, splitting; two minutes"
	@echo "make bench-models                      the encoders that make bench measures; minutes each"
	@echo "make bench, bench-quick                our server against a plain one, at length or in a minute"
	@echo "make chaos [CHAOS=--short]             load, failures and abuse; the short form takes a minute"
	@echo "make soak                              100,000 requests: memory and latency stay"
	@echo "make check                             formatting, lint and types"
	@echo "make check-deploy[-quick]              the image, Compose, rules, dashboards and chart, for real"
	@echo "make lock                              resolve the locked requirements anew"

serve: $(VENV)/.serve
	@$(if $(MODEL),MASKWRIGHT_MODEL=$(MODEL) )$(BIN)/maskwright-serve

test: dev
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest -n auto --dist loadfile $(PYTEST)
	@$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

test-schema: dev
	$(BIN)/python -m tests.schema

# The clients of others come with much of their own, so they have an environment of their own. Of what
# bertviz requires, showing weights takes torch and ipython alone.
test-clients: $(CLIENTS)/.clients
	$(CLIENTS)/bin/pytest -c tests/clients/pytest.ini tests/clients $(PYTEST)

$(CLIENTS)/.clients: requirements/clients.txt pyproject.toml
	$(PYTHON) -m venv $(CLIENTS)
	$(CLIENTS)/bin/pip install --quiet --requirement requirements/clients.txt
	$(CLIENTS)/bin/pip install --quiet --no-deps bertviz==1.4.1
	$(CLIENTS)/bin/pip install --quiet --no-deps --editable .
	@touch $@

check: dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

# labml runs in an environment of its own; what its distributions require beyond this is not used.
bench-train: dev $(LABML)/.labml
	$(BIN)/python -m tests.bench.train $(or $(CHECKS),all)

bench-train-short: dev
	$(BIN)/python -m tests.bench.train short

$(LABML)/.labml:
	$(PYTHON) -m venv $(LABML)
	$(LABML)/bin/pip install --quiet torch==2.13.0 numpy einops pyyaml gitpython requests
	$(LABML)/bin/pip install --quiet --no-deps labml-nn==0.5.1 'labml<0.5' labml-helpers
	@touch $@

bench-models: dev
	$(BIN)/python -m tests.bench.models $(MODELS)

bench: bench-models
	$(BIN)/python -m tests.bench.serve $(BENCH)

bench-quick: dev
	$(BIN)/python -m tests.bench.serve --short

# Root installs what they run beside the service: a balancer, a sandbox, a tracer, slow clients.
chaos: dev
	.ci/debian nginx=nginx-light bwrap=bubblewrap strace=strace slowhttptest=slowhttptest
	$(BIN)/python -m tests.chaos $(CHAOS)

soak: dev
	$(BIN)/python -m tests.chaos soak

# What it runs for real, it installs when root; see deploy/checks/tools.sh.
check-deploy: dev $(RAY)/.ray
	deploy/checks/tools.sh
	PYTHONPATH=. $(BIN)/pytest -p no:cacheprovider deploy/checks $(PYTEST)

# Ray brings much of its own, so it has an environment of its own.
$(RAY)/.ray: deploy/ray/requirements.txt requirements/serve.txt pyproject.toml
	$(PYTHON) -m venv $(RAY)
	$(RAY)/bin/pip install --quiet --requirement requirements/serve.txt
	$(RAY)/bin/pip install --quiet --requirement deploy/ray/requirements.txt
	$(RAY)/bin/pip install --quiet --no-deps --editable .
	@touch $@

check-deploy-quick: dev
	deploy/checks/tools.sh
	PYTHONPATH=. $(BIN)/pytest -p no:cacheprovider -m "not slow" deploy/checks $(PYTEST)

dev: $(VENV)/.dev

lock: dev
	PATH=$(CURDIR)/$(BIN):$$PATH requirements/lock.sh

clean:
	rm -rf $(VENV) build dist *.egg-info

$(VENV)/.venv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Python 3.11 or newer is needed; make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.serve: $(VENV)/.venv requirements/serve.txt pyproject.toml
	$(BIN)/pip install --quiet --require-hashes --requirement requirements/serve.txt
	$(BIN)/pip install --quiet --no-deps --editable .
	@touch $@

$(VENV)/.dev: $(VENV)/.venv requirements/dev.txt pyproject.toml
	$(BIN)/pip install --quiet --requirement requirements/dev.txt
	$(BIN)/pip install --quiet --no-deps --editable .
	@touch $@
