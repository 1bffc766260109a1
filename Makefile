# make demo | test | check | soak | lock | clean
# Each target sets up .venv by itself from a clean clone; all it needs is Python 3.11 or newer and make.
# Another interpreter: make PYTHON=python3.12 test

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
LOCKED := $(VENV)/.locked
READY  := $(VENV)/.ready
PIP    := $(BIN)/python -m pip install --disable-pip-version-check

MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help
.PHONY: help demo test check guards bench soak lock clean

help:
	@sed -n '1,3s/^# //p' Makefile

demo: $(READY)
	@$(BIN)/issuer demo

# Compiled first: where the environment forbids writing bytecode, each of the several hundred processes that the
# tests start would compile the product again, which takes longer than what it was started for.
test: $(READY)
	@$(BIN)/python -m compileall -q issuer policies audit ledger tests
	@$(BIN)/python -m pytest --no-header -n auto --dist loadfile --no-loadscope-reorder

# Cheapest first; the first finding stops the run.
check: $(READY)
	@echo "check: format";      $(BIN)/ruff format --check --quiet . || { echo "run: $(BIN)/ruff format ."; exit 1; }
	@echo "check: lint";        $(BIN)/ruff check --quiet .
	@echo "check: imports";     $(BIN)/lint-imports > $(VENV)/imports.log 2>&1 || { cat $(VENV)/imports.log; exit 1; }
	@echo "check: types";       $(BIN)/mypy --no-error-summary
	@echo "check: spec";        $(BIN)/python -m tests.support.spec_report

# Long runs; not part of test.
guards: $(READY)
	@$(BIN)/python -m tests.guards.run $(if $(THIRD),--third $(THIRD))

bench: $(READY)
	@$(BIN)/python -m tests.bench.run

soak: $(READY)
	@$(BIN)/python -m pytest --no-header -m soak

# Stamps are written last, so an interrupted set-up starts over. Only a changed lock asks the network again.
$(LOCKED): requirements.lock
	@command -v "$(PYTHON)" >/dev/null || { \
	  echo "permit-issuer needs Python 3.11 or newer, and '$(PYTHON)' was not found: make PYTHON=python3.12 ..." >&2; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "permit-issuer needs Python 3.11 or newer, and '$(PYTHON)' is $$("$(PYTHON)" -V 2>&1): make PYTHON=python3.12 ..." >&2; exit 1; }
	@"$(PYTHON)" -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "'$(PYTHON)' cannot make a virtual environment (on Debian: install python3-venv), or name another: make PYTHON=python3.12 ..." >&2; exit 1; }
	@echo "setting up $(VENV) with $$("$(PYTHON)" -V 2>&1) (about a minute, once)"
	@"$(PYTHON)" -m venv --clear $(VENV)
	@$(PIP) --only-binary :all: --require-hashes -r requirements.lock > $(VENV)/setup.log 2>&1 || { \
	  cat $(VENV)/setup.log >&2; exit 1; }
	@touch $@

$(READY): $(LOCKED) pyproject.toml
	@$(PIP) --no-deps --no-build-isolation --editable . > $(VENV)/setup.log 2>&1 || { \
	  cat $(VENV)/setup.log >&2; exit 1; }
	@touch $@

# For maintainers, with uv on the path: the newest versions that pyproject.toml allows.
lock:
	@{ sed -n '/^#/p;/^[^#]/q' requirements.lock; \
	   uv pip compile pyproject.toml --group dev --universal --python-version 3.11 --generate-hashes --no-header --upgrade --quiet; \
	 } > requirements.lock.new && mv requirements.lock.new requirements.lock || { rm -f requirements.lock.new; exit 1; }

clean:
	@rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
