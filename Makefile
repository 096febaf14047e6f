# All commands of the project, one word each. `make help` lists them.
# It needs Python 3.11 or newer; the first run of any target installs the rest.

.DEFAULT_GOAL := help
.PHONY: help setup ready run test test-unit check docs bench bench-peers bench-growth differential \
  expression-differential fuzz soak clean up down test-all test-docker test-kubernetes

PYTHON_HERE := .venv/bin/python

# Some images set it. Each process would then compile all modules again, which takes about a second.
unexport PYTHONDONTWRITEBYTECODE

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-17s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ready ## prepare this machine: Python packages, Java, jars
	@echo "The commands are in .venv/bin; next: make run, or make test."

# Prerequisite of the other targets; prints nothing if there is nothing to do.
ready:
	@PYTHON="$(PYTHON)" deploy/local/setup.sh

run: ready ## run the demo until Ctrl-C; SECONDS=60 ends and checks it by itself; DEMO=table, ENGINE=real_time
	@$(PYTHON_HERE) -m deploy.demo $(if $(DEMO),--demo $(DEMO)) $(if $(SECONDS),--seconds $(SECONDS)) $(if $(ENGINE),--engine $(ENGINE))

# A worker takes a whole file: its tests share one Spark session, broker or browser.
PYTEST := .venv/bin/pytest --numprocesses $(or $(WORKERS),logical) --maxprocesses 4 --dist loadfile \
	--no-loadscope-reorder --durations 20

# Without a selection, groups of tests whose inputs have not changed are left out (tests/groups.py).
GROUPS := -p tests.group_runs --groups $(if $(FULL),all,changed)

test: ready ## run the tests this machine can run, except unchanged groups; T=PATH and K=EXPRESSION select tests
	@$(PYTEST) $(or $(T)$(if $(K), -k '$(K)'),$(GROUPS))

test-all: ready ## run every test this machine can run, also those of images; records the groups that pass
	@$(MAKE) --no-print-directory test FULL=1
	@FULL=1 tests/docker/run.sh

test-unit: ready ## run the unit tests that need no browser and no other process; K=EXPRESSION
	@$(PYTEST) tests/unit -m 'not processes' $(if $(K),-k '$(K)')

check: ready ## style, types, links of the documentation
	@.venv/bin/ruff check
	@.venv/bin/ruff format --check
	@.venv/bin/mypy
	@.venv/bin/mkdocs build --quiet --strict

docs: ready ## build the documentation into site/
	@.venv/bin/mkdocs build --quiet --strict

bench: ready ## measure throughput and latency
	@$(PYTHON_HERE) -m bench

bench-growth: ready ## measure and draw the join as its state grows to 10,000,000 rows
	@$(PYTHON_HERE) -m bench.growth

bench-peers: ready ## measure the same join in Kafka Streams and Flink; needs a JDK
	@$(PYTHON_HERE) -m bench --program streamjoin --program kafka-streams \
		--program flink-rocksdb --program flink-hashmap

differential: ready ## compare N random joins with the plain-Python model
	@$(PYTHON_HERE) -m tests.semantics.differential $(N)

fuzz: ready ## plan N specs that are mutated at random; SEED=… repeats them
	@$(PYTHON_HERE) -m tests.unit.spec.spec_fuzzer $(or $(N),20000) $(SEED)

expression-differential: ready ## compare the values of random SQL in a simulation and in Spark; N texts
	@$(PYTHON_HERE) -m tests.semantics.expression_differential $(N)

soak: ready ## break a join at random and check it; MINUTES=20, ENGINE=real_time, TABLE=latest|final, SEED=… repeats a schedule
	@$(PYTHON_HERE) -m tests.faults.soak $(if $(MINUTES),--minutes $(MINUTES)) $(if $(SEED),--seed $(SEED)) $(if $(ENGINE),--engine $(ENGINE)) $(if $(TABLE),--table $(TABLE))

clean: ## remove what setup made; data/ stays, it may hold checkpoints
	rm -rf .venv .tools .jars .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

up: ## start the join in containers, with Kafka, Prometheus and Grafana; values in .env
	@[ -f .env ] || cp deploy/docker/example.env .env
	@deploy/docker/secrets.sh data/secrets
	@REVISION=$$(git rev-parse HEAD 2>/dev/null) docker compose up --detach --build --wait

down: ## stop these containers; topics, checkpoint and figures stay in their volumes
	@docker compose --profile '*' down

test-docker: ready ## test images and docker-compose.yml; makes an engine and base images if need be
	@tests/docker/run.sh

# Not in CI: the build of the API server takes longer than all other steps.
test-kubernetes: ready ## apply deploy/k8s and deploy/helm to a real API server; needs Go and helm, the first build takes long
	@.venv/bin/pytest tests/kubernetes
