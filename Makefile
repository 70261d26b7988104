# One command each: demo, test, check, bench. Everything runs in .venv, which the first of them creates.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test check
$(VENV)/ready: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q -e '.[dev]'
	mkdir -p $(VENV)/src/tailrace
	for d in proxy plugins worker config; do ln -sfn ../../../$$d $(VENV)/src/tailrace/$$d; done
	touch $@

demo: $(VENV)/ready
	$(BIN)/tailrace demo

test: $(VENV)/ready
	$(BIN)/pytest

check: $(VENV)/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	MYPYPATH=$(VENV)/src $(BIN)/mypy -p tailrace.proxy -p tailrace.plugins -p tailrace.worker
	$(BIN)/lint-imports --config setup.cfg
