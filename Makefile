# Two commands do everything on a machine with Python 3.11 or newer: `make serve` and `make test`.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

LABML := .venv-labml
CLIENTS := .venv-clients
OPTIMUM := .venv-optimum
RAY := .venv-ray

# How the English pair is trained, on a core each.
ENGLISH := --words-from minilm --steps 2400 --eval-every 400 --checkpoint-every 100
ENGLISH_EMBED := --seconds 2200 --batch-tokens 1024 --batch-sentences 192 --sentences 60000
ENGLISH_SETTLE := --seconds 1260 --batch-tokens 3072 --batch-sentences 128 --sentences 60000 \
	--embed-weight 2 --muon-lr 0.005 --lr 0.0015
CARD := $(wildcard docs/english.md)

.PHONY: serve test test-clients test-schema check models bench bench-models bench-quick bench-train bench-train-short chaos soak check-deploy check-deploy-quick dev lock clean help

help:
	@echo "make serve [MODEL=name-or-directory]   start the service on http://127.0.0.1:8000"
	@echo "make test                              run the tests"
	@echo "make test COVERAGE=1                   the same, and which lines they run; slower"
	@echo "make test-clients                      the clients of others against the service (needs Node.js); apart"
	@echo "make test-schema                       the OpenAPI document against the service, at length"
	@echo "make dev                               install what training, exporting and tests need"
	@echo "make models [-j2]                      an English pair, one of each mixer; hours of a core each"
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
	$(if $(COVERAGE),$(BIN)/coverage erase; $(BIN)/coverage run -m,$(BIN)/python -m) pytest -n auto --dist loadfile $(PYTEST)
	@$(if $(COVERAGE),$(BIN)/coverage combine --quiet; $(BIN)/coverage report)

test-schema: dev
	$(BIN)/python -m tests.schema

# The clients of others come with much of their own, so they have an environment of their own. Of what
# bertviz requires, showing weights takes torch and ipython alone.
test-clients: $(CLIENTS)/.clients $(OPTIMUM)/.optimum tests/clients/transformers_js/node_modules
	$(CLIENTS)/bin/pytest -c tests/clients/pytest.ini tests/clients $(PYTEST)

$(CLIENTS)/.clients: requirements/clients.txt pyproject.toml
	$(PYTHON) -m venv $(CLIENTS)
	$(CLIENTS)/bin/pip install --quiet --requirement requirements/clients.txt
	$(CLIENTS)/bin/pip install --quiet --no-deps bertviz==1.4.1
	$(CLIENTS)/bin/pip install --quiet --no-deps --editable .
	@touch $@

# optimum wants an older transformers than the rest.
$(OPTIMUM)/.optimum: requirements/optimum.txt
	$(PYTHON) -m venv $(OPTIMUM)
	$(OPTIMUM)/bin/pip install --quiet --requirement requirements/optimum.txt
	@touch $@

# Scripts of packages would fetch CUDA libraries and the like.
tests/clients/transformers_js/node_modules: tests/clients/transformers_js/package-lock.json
	npm ci --prefix $(@D) --ignore-scripts --no-audit --no-fund --silent
	@touch $@

check: dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

# What was stopped goes on, and what is done is kept. docs/training.md says what it costs.
models: runs/english-mhsa.exported runs/english-mlp-mixer.exported

runs/english-mhsa.trained: MIXER := mhsa
runs/english-mlp-mixer.trained: MIXER := mlp_mixer

runs/%.exported: runs/%.settled $(CARD)
	$(BIN)/maskwright-export runs/$*-settle models/$* --force --weights fp16 --blend runs/$* 0.42 $(addprefix --notes ,$(CARD))
	$(BIN)/maskwright-export --add int8 models/$*
	$(BIN)/maskwright-export --add fp16 models/$*
	@touch $@

# The vectors cost words: a third of the way back to the first stage most of both is kept, and a
# while there mends the rest.
runs/%.settled: runs/%.embedded
	$(call trained,runs/$*-settle,--stage embed --from runs/$*-embed --blend runs/$* 0.3 --teacher minilm $(ENGLISH_SETTLE))
	@touch $@

runs/%.embedded: runs/%.trained
	$(call trained,runs/$*-embed,--stage embed --from runs/$* --teacher minilm $(ENGLISH_EMBED))
	@touch $@

runs/%.trained: | runs/demo-corpus.built
	$(call trained,runs/$*,--preset demo --mixer $(MIXER) --corpus demo $(ENGLISH))
	@touch $@

runs/demo-corpus.built: | dev
	$(BIN)/maskwright-corpus build demo
	@mkdir -p runs
	@touch $@

define trained
	if [ -e $(1)/checkpoint.safetensors ]; then $(BIN)/maskwright-train --resume $(1) --threads 1; \
	else $(BIN)/maskwright-train $(2) --out $(1) --threads 1; fi
endef

.PRECIOUS: runs/%.settled runs/%.embedded runs/%.trained

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
