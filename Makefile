# Two commands for a newcomer: `make demo` and `make test`. Nothing is needed but Python 3.11 or newer, and make.
PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
ONCE ?=
# Two workers fit two cores; more would only wait for each other.
WORKERS ?= 2

.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
.PHONY: help demo test quick check bench crash soak mutate lock clean

help: ## This list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  %-7s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

# A stamp for each set of packages: `make demo` needs the small one only, and either is made anew when its lock changes.
$(VENV)/run.stamp: requirements.lock requirements-build.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("This project needs Python 3.11 or newer; run make PYTHON=python3.11" if sys.version_info < (3, 11) else 0)'
	@test -x $(PY) || $(PYTHON) -m venv $(VENV)
	@echo "Installing the locked packages into $(VENV) ..."
	@$(PY) -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock -r requirements-build.lock
	@$(PY) -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/dev.stamp: $(VENV)/run.stamp requirements-dev.lock
	@echo "Installing the locked development packages into $(VENV) ..."
	@$(PY) -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.lock
	@touch $@

demo: $(VENV)/run.stamp ## The main job on a simulated GitHub; serves its pages until Ctrl-C (ONCE=1: ends by itself)
	@$(PY) -m relay demo $(if $(ONCE),--once)

test: $(VENV)/dev.stamp ## Every test
	@$(PY) -m pytest -n $(WORKERS) --dist worksteal

quick: $(VENV)/dev.stamp ## The fast tests, under a minute
	@$(PY) -m pytest -n $(WORKERS) --dist worksteal -q -m "not slow and not whole and not postgres and not npm"

check: $(VENV)/dev.stamp ## Lint, types, import contracts, and our own YAML
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/ruff format --check .
	@$(VENV)/bin/mypy
	@$(VENV)/bin/lint-imports
	@$(VENV)/bin/check-jsonschema --builtin-schema vendor.github-actions callback_action/action.yml
	@$(VENV)/bin/check-jsonschema --builtin-schema vendor.compose-spec examples/compose.yaml
	@$(VENV)/bin/zizmor --offline --quiet --min-severity low callback_action examples
	@$(VENV)/bin/jactionlint $(filter-out %/buildkite.yml,$(wildcard examples/listeners/*.yml))

bench: $(VENV)/dev.stamp ## The figures of the speed table, printed
	@$(PY) -m tests.benchmarks

crash: $(VENV)/dev.stamp ## Kill the relay beside every commit and request of a story, on both databases, minutes to half an hour
	@$(PY) -m tests.crash

soak: $(VENV)/dev.stamp ## A week of traffic in under an hour, with faults of every kind (MINUTES=1.5: a piece of it)
	@$(PY) -m tests.soak $(if $(MINUTES),--minutes $(MINUTES) --deadline 30) $(SOAK)

mutate: $(VENV)/dev.stamp ## Flip every rule, one at a time: each flip must fail a test
	@$(PY) tests/mutate/run.py

# Needs uv, which only whoever changes a dependency has to have.
lock: ## Resolve the dependencies anew
	@uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header pyproject.toml -o requirements.lock
	@uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --group pyproject.toml:build -o requirements-build.lock
	@uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header pyproject.toml --group dev -c requirements.lock -o requirements-dev.lock

clean: ## Remove everything that was made
	@rm -rf $(VENV) .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
