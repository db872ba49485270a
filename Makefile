# Python 3.11+ (with venv) and Java 17+ are all that a machine must bring. `make PYTHON=python3.12 demo` chooses another Python.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
# How many processes run tests, 0: pytest's own. On two cores three are fastest (221 s; four 259 s): tests wait for disks,
# sockets and processes that they start, and each process collects all of them. Those of the Spark session share one
# process (tests/conftest.py).
TEST_PROCESSES ?= 3
# Each of these has a real Kafka.
INTEROP_PROCESSES ?= 2
# What to test and how: make test TEST=tests/log ARGS=-x
TEST ?= tests
ARGS ?=
INTEROP ?= interop
# What takes seconds at most, and what takes minutes and shows the whole at work.
UNITS := not slow and not interop and not end_to_end and not bucket
END_TO_END := end_to_end and not slow and not interop and not bucket
BUCKET := bucket and not slow and not interop
PYTEST := $(RUN) -m pytest -n $(TEST_PROCESSES)
export PYTHONUNBUFFERED := 1
# Also where the environment says otherwise: a run starts some 200 Python processes (test workers, brokers, Spark's workers),
# and without compiled modules each of them compiles all of ours again, 1 to 10 s of processor time.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help
help: ## print this
	@awk -F ':.*## ' '/^##@ /{printf "\n%s\n", substr($$0, 5)} /^[a-z-]+:.*## /{printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

##@ Begin

.PHONY: setup
setup: $(VENV)/installed $(VENV)/warmed ## make .venv with everything and compile the kernels; nothing to do when up to date

$(RUN):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
	  { echo "Python 3.11 or newer is needed, $(PYTHON) is $$($(PYTHON) --version 2>&1); name another: make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || \
	  { echo "$(PYTHON) has no venv module; install it (Debian, Ubuntu: apt-get install python3-venv)" >&2; exit 1; }
	@echo "making $(VENV) ..."
	@$(PYTHON) -m venv $(VENV)

# What the demo needs, 1.1 GB; everything is 2.2 GB.
$(VENV)/demo: pyproject.toml | $(RUN)
	@[ $(VENV)/installed -nt pyproject.toml ] || { echo "installing Spark, the broker and a Kafka client into $(VENV) ..."; \
	  $(RUN) -m pip install --quiet --disable-pip-version-check --editable '.[spark,broker,producer]'; }
	@touch $@

$(VENV)/installed: pyproject.toml | $(RUN)
	@echo "installing packages into $(VENV) ..."
	@$(RUN) -m pip install --quiet --disable-pip-version-check --editable '.[spark,broker,test,dev]'
	@touch $@

$(VENV)/warmed: $(VENV)/installed $(wildcard kafkalog_spark/kernels/*.py kafkalog_spark/typed/*/*.py broker/kafkalog_broker/*/*_kernel.py broker/kafkalog_broker/*/*/*_kernel.py)
	@echo "compiling the kernels, once ..."
	@$(RUN) -m kafkalog_spark.warm
	@touch $@

# Spark takes the java of JAVA_HOME when that is set, and the one on PATH otherwise; so does this check.
.PHONY: java
java:
	@version=$$("$${JAVA_HOME:+$$JAVA_HOME/bin/}java" -version 2>&1 | sed -nE 's/.*version "([0-9]+).*/\1/p' | head -n 1 || true); \
	[ "$${version:-0}" -ge 17 ] || { echo "Java 17 or newer is needed by Spark (found: $${version:-none}); install it (Debian, Ubuntu: apt-get install openjdk-17-jre-headless; macOS: brew install openjdk@17) or set JAVA_HOME" >&2; exit 1; }

.PHONY: demo
demo: java $(VENV)/demo ## read a Kafka log directory with Spark and show what is in it
	@$(RUN) examples/demo.py

##@ Test

.PHONY: test
test: java setup ## the tests that take seconds at most (some of them: TEST=tests/log ARGS="-x -k golden")
	$(PYTEST) -m "$(UNITS)" $(TEST) $(ARGS)

.PHONY: test-end-to-end
test-end-to-end: java setup ## examples, the notebook, Spark in processes of its own, brokers and queries killed under load
	$(PYTEST) -m "$(END_TO_END)" $(TEST) $(ARGS)

.PHONY: test-broker
test-broker: setup ## the tests of the broker and of the log format, without Java
	$(PYTEST) -m "$(UNITS) and not spark" tests/broker tests/format tests/kernels tests/log tests/store $(ARGS)

.PHONY: test-bucket
test-bucket: java setup ## object storage: stores, tiers, the sink and Spark, against an S3 server
	$(PYTEST) -m "$(BUCKET)" $(TEST) $(ARGS)

.PHONY: test-on-bucket
test-on-bucket: setup ## the reader's tests once more, their directories read through an S3 server (needs Go, which builds it once)
	$(PYTEST) --on-bucket -m "not slow and not interop and not spark and not bucket" $(addprefix tests/log/,check decode read repair tables write) tests/format tests/kernels tests/source $(ARGS)

.PHONY: test-slow
test-slow: java setup ## the long ones: searches with all their examples, kills in loops, big logs
	HYPOTHESIS_PROFILE=full $(RUN) -m pytest -m "(slow or hypothesis) and not interop" $(TEST) $(ARGS)

.PHONY: test-interop
test-interop: java setup ## against a real Kafka (needs Maven, which fetches its jars once; INTEROP="interop and not slow" for fewer)
	$(RUN) -m pytest -n $(INTEROP_PROCESSES) -m "$(INTEROP)" $(ARGS)

.PHONY: test-suites
test-suites: setup ## the integration suites of Kafka clients against the broker (SUITES="kafka-python" for some of them)
	$(RUN) -m tests.broker.suites.run $(SUITES)

.PHONY: test-matrix
test-matrix: java setup ## the core on each Spark and Python (MATRIX="3.11/4.0 3.13" for some; environments in .tools/matrix)
	$(RUN) -m tests.version_matrix $(MATRIX)

.PHONY: test-all
test-all: java setup ## all of them
	$(RUN) -m pytest $(ARGS)

.PHONY: coverage
coverage: java setup ## make test and test-bucket, and which lines of the product it runs (report in .tools/coverage)
	$(PYTEST) -m "not slow and not interop and not end_to_end" --cov=kafkalog_spark --cov=kafkalog_broker --cov-report=html:.tools/coverage --cov-report=term:skip-covered $(TEST) $(ARGS)

##@ Change

.PHONY: lint
lint: setup ## ruff, mypy and the import rules
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports

# The change: what the work tree has beyond the commit BASE; by default, where the branch left main.
BASE ?=
.PHONY: check
check: lint ## lint, the changed tests and those of ARGS="tests/log", and others near the change for half a minute (BASE=HEAD~1: the change since then)
	$(PYTEST) -m "$(UNITS) and not spark" $(ARGS) $$($(RUN) -m tests.affected changed $(BASE))
	@others=$$($(RUN) -m tests.affected others $(BASE)); [ -z "$$others" ] || \
	  { echo "the tests nearest to the change, for 30 s:"; $(PYTEST) -m "$(UNITS) and not spark" --budget 30 $$others; }

.PHONY: format
format: setup ## put the sources into the form that lint wants
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

.PHONY: wheel
wheel: setup ## build two wheels into dist/: one for this platform, with compiled kernels, and a plain one
	KAFKALOG_KERNELS=read,write,json,avro,protobuf,broker $(RUN) -m build --wheel --no-isolation
	$(RUN) -m build --wheel --no-isolation

.PHONY: release-check
release-check: java setup ## build wheel and sdist, install each into an empty environment, run broker, reader and demo there
	$(RUN) -m tests.release_check

##@ Document

.PHONY: site
site: setup ## build the documentation as a site, into build/site; a link that leads nowhere fails
	@$(RUN) docs_site/build.py

.PHONY: site-serve
site-serve: setup ## serve it at http://127.0.0.1:8000
	@$(RUN) docs_site/build.py serve

##@ Measure and tidy up

.PHONY: bench
bench: java setup ## run the benchmarks and write benchmarks/results/ (BENCH="decode handover" for some of them)
	$(RUN) -m benchmarks.run $(BENCH)

.PHONY: clean
clean: ## remove .venv, caches and build products
	rm -rf $(VENV) build dist spark-warehouse metastore_db derby.log .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
