# Two commands do everything, set-up included: `make demo` and `make test`. Each keeps its environment in .venv.
SHELL := bash
MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help
.PHONY: help demo demo-airflow ui ui-airflow test test-extended test-all test-unit test-clouds test-airflow bench-airflow stress histories interop bench lint docs .venv java

PY := .venv/bin/python
# PYTHON=python3.14, for example, makes the environments with another Python than the first that is found.
INSTALLED := .venv/.installed
AIRFLOW ?= 3.3
PY_AIRFLOW := .venv-airflow-$(AIRFLOW)/bin/python
AIRFLOW_INSTALLED := .venv-airflow-$(AIRFLOW)/.installed
# Never somebody's own instance: the runs of the demo stay in the clone.
export DAGSTER_HOME := $(CURDIR)/.dagster
export AIRFLOW_HOME := $(CURDIR)/.airflow
export LAKE_ROOT ?= $(CURDIR)/.lake
export DAGSTER_DISABLE_TELEMETRY := 1
# MinIO's last releases are source alone, without semantic versions: the time and the commit name one.
MINIO_MODULE := github.com/minio/minio@v0.0.0-20260212201848-7aac2a2c5b7c
# Tests wait for the disk much of their time, so short ones use a file system in memory where there is one of 4 GB. Long ones use the disk.
IN_MEMORY := $(shell test "$$(df --output=avail /dev/shm 2>/dev/null | tail -n 1)" -gt 4000000 2>/dev/null && echo /dev/shm)
# Tests start hundreds of processes, each of which would compile the packages again.
unexport PYTHONDONTWRITEBYTECODE

help: ## show this list
	@awk -F ' ?:[^#]*## ' '/^[.a-z-]+:[^#]*## / { printf "  make %-13s %s\n", $$1, $$2 }' Makefile

demo: java ## run the flights pipeline, kill a step half-way, show that nothing doubled: some minutes
	@$(MAKE) .venv
	@exec $(PY) -m example_pipelines.flights.demo

ui: java ## serve the same pipeline, with the demo's runs, at http://localhost:3000 (PORT=... for another)
	@$(MAKE) .venv
	@.venv/bin/lake init --exist-ok "$(LAKE_ROOT)" >/dev/null
	@exec $(PY) -m dagster dev -w workspace.yaml -h 127.0.0.1 -p $(or $(PORT),3000)

demo-airflow: $(AIRFLOW_INSTALLED) ## run the same pipeline as DAGs of Airflow, on the same lake, without a scheduler
	@exec $(PY_AIRFLOW) -m example_pipelines.airflow_flights.demo

ui-airflow: $(AIRFLOW_INSTALLED) ## serve these DAGs, with the demo's runs, at http://127.0.0.1:8080 (PORT=... for another)
	@exec $(PY_AIRFLOW) -m example_pipelines.airflow_flights.ui --port $(or $(PORT),8080)

test: java ## run the tests that hold the product: a quarter of an hour on two cores
	@$(MAKE) .venv
	@PYTEST_DEBUG_TEMPROOT=$(IN_MEMORY) exec $(PY) -m pytest -n 3 --dist loadgroup -m "not extended and not exhaustive and not stress and not interop and not clouds" $(ARGS)

test-extended: java ## run the slow scenarios, which have a job of their own in CI
	@$(MAKE) .venv
	@PYTEST_DEBUG_TEMPROOT=$(IN_MEMORY) exec $(PY) -m pytest -n 3 --dist loadgroup -m "extended and not exhaustive and not stress and not interop and not clouds" $(ARGS)

test-all: java ## run these, and every matrix, sweep and random history
	@$(MAKE) .venv
	@exec $(PY) -m pytest -n 3 --dist loadgroup -m "not stress and not interop and not clouds" $(ARGS)

test-unit: .venv ## run the tests that need neither Java nor a browser, on several cores
	@exec $(PY) -m pytest -n auto --maxprocesses 8 --dist worksteal -m "not spark and not browser and not extended and not exhaustive and not stress and not interop and not clouds" $(ARGS)

stress: java ## run the long versions of races and sweeps
	@$(MAKE) .venv
	@exec $(PY) -m pytest -m "stress and not histories" $(ARGS)

histories: .venv ## run thousands of random histories on all cores: hours; ARGS="--seeds 6000:7000" runs new ones
	@exec $(PY) -m pytest -n auto --dist worksteal -m histories $(ARGS)

interop: java ## run delta-spark, icechunk 2 (where Python 3.12 is), zq (where Go is) and this on the same data; fetches them, and jars from Maven Central, into .venv-interop and .venv-icechunk2
	@$(MAKE) .venv
	@test -x .venv-interop/bin/python || $(PY) -m venv .venv-interop
	@.venv-interop/bin/python -m pip install --quiet --disable-pip-version-check delta-spark==4.4.0 pyspark==4.2.0
	@python=$$(for p in $(PYTHON) python3.14 python3.13 python3.12 "$$HOME"/.pyenv/versions/3.1[2-9]*/bin/python python3; do \
	    $$p -c 'import sys; sys.exit(sys.version_info < (3, 12))' 2>/dev/null && echo $$p && break; done); \
	if test -n "$$python"; then test -x .venv-icechunk2/bin/python || $$python -m venv .venv-icechunk2; \
	    .venv-icechunk2/bin/python -m pip install --quiet --disable-pip-version-check icechunk==2.3.0 zarr==3.4.2; \
	    else echo "Python 3.12 or newer is missing: the tests against icechunk 2 are skipped." >&2; fi
	@if command -v go >/dev/null; then for version in 1.18.0 1.6.0; do mkdir -p .venv-interop/zed-$$version && (cd .venv-interop/zed-$$version && \
	    printf 'module zed\n\nrequire github.com/brimdata/zed v%s\n' $$version >go.mod && \
	    go build -mod=mod -o . github.com/brimdata/zed/cmd/zed github.com/brimdata/zed/cmd/zq) || exit 1; done; \
	    else echo "Go is missing: the tests against zq and zed are skipped." >&2; fi
	@built() { test -x .venv-interop/$$1 && echo $(CURDIR)/.venv-interop/$$1; }; DELTA_SPARK_PYTHON=$(CURDIR)/.venv-interop/bin/python \
	    ZQ=$$(built zed-1.18.0/zq) ZED_1_18=$$(built zed-1.18.0/zed) ZED_1_6=$$(built zed-1.6.0/zed) exec $(PY) -m pytest -m interop $(ARGS)

test-clouds: .venv ## run the stores against servers of Azure (where npm is), Google Cloud and S3 (where Go is), which it builds into .clouds
	@if command -v npm >/dev/null; then test -x .clouds/node_modules/.bin/azurite-blob || npm install --silent --prefix .clouds azurite@3; \
	    else echo "npm is missing: the tests against Azurite are skipped." >&2; fi
	@if command -v go >/dev/null; then test -x .clouds/fake-gcs-server || GOBIN=$(CURDIR)/.clouds go install github.com/fsouza/fake-gcs-server@v1.56.1; \
	    test -x .clouds/minio || { echo "Building MinIO, once: ten minutes on two cores."; GOBIN=$(CURDIR)/.clouds go install $(MINIO_MODULE); }; \
	    else echo "Go is missing: the tests against fake-gcs-server and MinIO are skipped." >&2; fi
	@built() { test -x .clouds/$$1 && echo $(CURDIR)/.clouds/$$1; }; \
	    AZURITE=$$(built node_modules/.bin/azurite-blob) FAKE_GCS_SERVER=$$(built fake-gcs-server) MINIO=$$(built minio) \
	    exec $(PY) -m pytest -m clouds $(ARGS)

test-airflow: $(AIRFLOW_INSTALLED) ## check the types and run the tests of Airflow in .venv-airflow-3.3, or in that of AIRFLOW=3.1
	@! test -x $(dir $(PY_AIRFLOW))mypy || $(PY_AIRFLOW) -m mypy --cache-dir .mypy_cache/airflow lake_orch/airflow
	@PYTEST_DEBUG_TEMPROOT=$(IN_MEMORY) exec $(PY_AIRFLOW) -m pytest -n 2 --dist loadgroup --confcutdir tests/airflow -m "airflow and not stress" tests/airflow $(ARGS)

bench-airflow: $(AIRFLOW_INSTALLED) ## measure what tasks of Airflow cost beside bare ones
	@exec $(PY_AIRFLOW) -m benchmarks.airflow_tasks $(ARGS)

bench: .venv ## measure against deltalake
	@exec $(PY) -m benchmarks $(ARGS)

docs: ## build the documentation site into build/site; a broken link fails it
	@python=$$(for p in $(PYTHON) python3.13 python3.12 python3.11 python3; do $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done); \
	    test -x .venv-docs/bin/mkdocs || $$python -m venv .venv-docs
	@.venv-docs/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -r docs/requirements.txt
	@NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build --quiet
	@echo "The site is in build/site: python -m http.server -d build/site"

lint: .venv ## check style and types
	@.venv/bin/ruff check .
	@.venv/bin/ruff format --check .
	@.venv/bin/mypy

.venv: $(INSTALLED) ## make only the environment
	@:

# The lock is complete, so pip resolves nothing. The stamp comes last: an interrupted installation is resumed, not trusted.
$(INSTALLED): requirements.lock pyproject.toml
	@python=$$(for p in $(PYTHON) python3.13 python3.12 python3.11 python3; do \
	    $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done); \
	if [ -z "$$python" ]; then echo "No Python 3.11 or newer was found on PATH: install one, for example with 'apt-get install python3 python3-venv'." >&2; exit 1; fi; \
	if ! $(PY) -m pip --version >/dev/null 2>&1; then \
	    echo "Making .venv with $$python ..."; \
	    $$python -m venv --clear .venv || { echo "$$python cannot make environments: install its venv module (Debian: python3-venv)." >&2; exit 1; }; fi
	@$(PY) -m pip install --quiet --disable-pip-version-check --no-deps -r requirements.lock
	@$(PY) -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

$(AIRFLOW_INSTALLED): tests/airflow/$(AIRFLOW).lock pyproject.toml
	@python=$$(for p in $(PYTHON) python3.13 python3.12 python3.11 python3; do $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done); \
	    test -x $(PY_AIRFLOW) || { echo "Making $(dir $@) with $$python ..."; $$python -m venv $(dir $@); }
	@$(PY_AIRFLOW) -m pip install --quiet --disable-pip-version-check --no-deps -r tests/airflow/$(AIRFLOW).lock
	@$(PY_AIRFLOW) -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

# Before the environment is built: minutes of installation are no place to learn that Java is missing.
java:
	@java="$${JAVA_HOME:+$$JAVA_HOME/bin/}java"; \
	version=$$("$$java" -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p' | head -n 1); \
	if [ -z "$$version" ]; then echo "Spark needs Java 17 or newer, and '$$java' is not a working Java: install one (Debian: apt-get install openjdk-17-jre-headless) or set JAVA_HOME." >&2; exit 1; fi; \
	if [ "$$version" -lt 17 ]; then echo "Spark needs Java 17 or newer, and '$$java' is older (its version starts with $$version): install a newer one (Debian: apt-get install openjdk-17-jre-headless) or set JAVA_HOME." >&2; exit 1; fi
