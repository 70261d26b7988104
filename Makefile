# One command each. Everything runs in .venv, which the first of them creates. What is needed beforehand, on Debian 12:
# python3.11-venv and make; gcc too for `bench`.

# Debian's own build is optimised more than those of version managers, which come first on PATH.
PYTHON ?= $(firstword $(wildcard /usr/bin/python3.11) python3.11)
VENV := .venv
BIN := $(VENV)/bin
LINKS := $(VENV)/src/tailrace
COMPILED := $(VENV)/compiled
TAILRACE_VLLM_DIR ?= /var/tmp/tailrace-vllm
ARGS ?=

.PHONY: rescue-cuts demo test test-compiled check bench bench-full test-vllm fuzz fuzz-short kills kills-short \
    limits scenarios scenarios-exact scenarios-short scenarios-peers simulate engine-seeds lock schema

## Run it

demo: $(VENV)/ready
	$(BIN)/tailrace demo $(ARGS)

## Check it

# A file's tests stay together, since they may share a server.
IN_TWO := -n 2 --dist loadfile
test: $(VENV)/ready-dev
	$(BIN)/pytest $(IN_TWO) --ignore=tests/real_vllm --ignore=tests/fuzz --ignore=tests/kills $(ARGS)

# The same against the compiled modules, as a wheel has them.
test-compiled: $(VENV)/ready-dev $(COMPILED)/ready
	$(COMPILED)/bin/python -m pytest $(IN_TWO) -m 'not interpreted' tests/proxy tests/cases tests/plugins tests/worker $(ARGS)

check: $(VENV)/ready-dev $(LINKS)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	MYPYPATH=$(VENV)/src $(BIN)/mypy -p tailrace.proxy -p tailrace.plugins -p tailrace.worker
	$(BIN)/lint-imports setup.cfg
	$(BIN)/tailrace schema | diff -u config/schema.json - || { echo "config/schema.json is out of step: make schema"; exit 1; }

# Both SDKs and every failure against a real vLLM on the CPU. The first run installs it, 2 GB, into TAILRACE_VLLM_DIR.
test-vllm: $(VENV)/ready-dev
	tests/real_vllm/install.sh $(TAILRACE_VLLM_DIR)
	TAILRACE_TEST_VLLM=$(TAILRACE_VLLM_DIR)/V/bin/vllm TAILRACE_TEST_MODEL=$(TAILRACE_VLLM_DIR)/tiny \
	    $(BIN)/pytest tests/real_vllm -v --durations=10 $(ARGS)

# Streams of 50 prompts through a real vLLM, each cut at every token: some eight minutes.
rescue-cuts: $(VENV)/ready-dev
	tests/real_vllm/install.sh $(TAILRACE_VLLM_DIR)
	TAILRACE_TEST_VLLM=$(TAILRACE_VLLM_DIR)/V/bin/vllm TAILRACE_TEST_MODEL=$(TAILRACE_VLLM_DIR)/tiny \
	    TAILRACE_TEST_CUT_PROMPTS=50 $(BIN)/pytest tests/real_vllm/test_rescue.py -k every_token -s $(ARGS)

# Malformed requests and answers; the long form runs for ten minutes.
fuzz: $(VENV)/ready-dev
	TAILRACE_FUZZ_SECONDS=600 $(BIN)/pytest tests/fuzz $(ARGS)
fuzz-short: $(VENV)/ready-dev
	$(BIN)/pytest tests/fuzz $(ARGS)

# Processes of a serving gateway killed under load, one a second; the long form for ten minutes.
kills: $(VENV)/ready-dev
	TAILRACE_KILLS=600 $(BIN)/pytest tests/kills $(ARGS)
kills-short: $(VENV)/ready-dev
	$(BIN)/pytest tests/kills $(ARGS)

# A limit of 1,000 and 5,000 calls on two gateways and a Valkey, each of which is killed, frozen or emptied.
limits: $(VENV)/ready-dev
	$(BIN)/python loadtests/limits/proof.py $(ARGS)

# Failures under load, each with bars; a run on a machine that is busy with other things is void. Root, and iproute2.
SCENARIOS := steady kill partition partition-idle slow gray burst batch scale-out drain restart
PLAY := $(BIN)/python loadtests/run_scenario.py --tailrace compiled
scenarios: $(COMPILED)/ready
	$(PLAY) $(SCENARIOS) --json loadtests/results --tries 2 $(ARGS)
scenarios-short: $(COMPILED)/ready
	$(PLAY) brief restart --short --tries 2 $(ARGS)
# Right answers alone, on a machine that may be as busy as it likes: what is void is so for its times.
scenarios-exact: $(COMPILED)/ready
	$(PLAY) exact $(ARGS) || [ $$? -eq 3 ]
# The same kill beside LiteLLM, the router of the vLLM production stack and vllm-router, those that are in PEERS_DIR.
scenarios-peers: $(COMPILED)/ready
	$(PLAY) peers --gateway tailrace litellm production-stack vllm-router --json loadtests/results $(ARGS)

## Measure it

# The attempt engine in 10,000 worlds, each drawn by its seed, on a virtual clock; `make test` plays some hundred.
engine-seeds: $(VENV)/ready-dev
	TAILRACE_SEEDS=10000 $(BIN)/pytest tests/seeds $(ARGS)

# The policies of `route` against simulated engines, on a virtual clock.
simulate: $(VENV)/ready-dev
	$(BIN)/python loadtests/simulate_routing.py $(ARGS)

# Of the compiled gateway, as a wheel brings it; `interpreted` among the proxies is the same uncompiled.
bench: $(COMPILED)/ready
	$(BIN)/python loadtests/bench/compare.py --quick $(ARGS)
bench-full: $(COMPILED)/ready
	$(BIN)/python loadtests/bench/compare.py $(ARGS)

## Keep it

lock: $(VENV)/ready-dev
	$(PYTHON) -m venv $(VENV)/lock
	$(VENV)/lock/bin/pip install -q pip-tools
	$(VENV)/lock/bin/pip-compile -q --extra dev --generate-hashes --strip-extras --allow-unsafe --no-header \
	    --no-emit-index-url --no-emit-trusted-host --no-emit-find-links -o requirements.lock pyproject.toml
schema: $(VENV)/ready
	$(BIN)/tailrace schema --out config/schema.json

## The environment

$(VENV)/ready: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q --disable-pip-version-check -e .
	touch $@

$(VENV)/ready-dev: pyproject.toml $(VENV)/ready
	$(BIN)/pip install -q --disable-pip-version-check -e '.[dev]'
	touch $@

# A wheel of the present files in an environment of its own, which borrows what it needs from the first: a .pth file's
# folder lends its packages, but not the link to this tree, which is a .pth file itself.
$(COMPILED)/ready: $(VENV)/ready-dev setup.py $(wildcard proxy/*.py proxy/*/*.py plugins/*.py plugins/*/*.py worker/*.py worker/*/*.py)
	rm -rf $(COMPILED) build
	$(PYTHON) -m venv --without-pip $(COMPILED)
	p='import sysconfig; print(sysconfig.get_path("purelib"))'; \
	    $(BIN)/python -c "$$p" >"$$($(COMPILED)/bin/python -c "$$p")/lent.pth"
	TAILRACE_COMPILE=1 $(BIN)/pip wheel -q --no-deps --no-build-isolation -w $(COMPILED)/wheel .
	$(BIN)/pip --python $(COMPILED)/bin/python install -q --no-deps $(COMPILED)/wheel/tailrace-*.whl
	touch $@

# mypy wants to see the packages under their installed names.
$(LINKS):
	mkdir -p $@
	for d in proxy plugins worker config; do ln -sfn ../../../$$d $@/$$d; done
