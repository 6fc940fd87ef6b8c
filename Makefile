# Everything a user types. `make` alone prints this list.
.DEFAULT_GOAL := help
.PHONY: help install data estimate simulate report paper test test-lowest lint bench clean
SHELL := /bin/bash

PYTHON ?= python3
WORKSPACE ?= data
SEED ?= 0
ENGINE ?= polars
LOG ?=
SPARK_MASTER ?=
EXTRAS ?= $(filter spark,$(ENGINE))
RUNS ?=
HORIZON ?=

# Paths reach the shell through the environment, so that blanks and quotes in them do no harm.
export LOG
export PBM_WORKSPACE = $(WORKSPACE)

BIN := .venv/bin
PBM := $(BIN)/pbm
comma := ,
INSTALLED := .venv/.installed$(EXTRAS:%=-%)
CLUSTER = $(if $(SPARK_MASTER),--spark-master '$(SPARK_MASTER)')

help: ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo
	@echo "  Variables: LOG=FILE (your log instead of a synthetic one), WORKSPACE=$(WORKSPACE), SEED=$(SEED), ENGINE=$(ENGINE) (or duckdb, spark), SPARK_MASTER=, RUNS=, HORIZON="

install: $(INSTALLED) ## make .venv with everything in it (every target does this when needed); EXTRAS=spark for that engine

$(INSTALLED): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "pbm needs Python 3.11 or newer; name one with PYTHON=" >&2; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[dev$(EXTRAS:%=$(comma)%)]'
	@touch $@

data: install ## a synthetic log, or LOG=, counted: counts.parquet
ifeq ($(strip $(LOG)),)
	$(PBM) synthesize --seed $(SEED)
	$(PBM) count "$$PBM_WORKSPACE/raw/training.txt" --engine $(ENGINE) $(CLUSTER)
else
	$(PBM) count "$$LOG" --engine $(ENGINE) $(CLUSTER)
endif

estimate: install ## CTR matrices with rank diagnostics, then the models: models.parquet
	$(PBM) matrices --seed $(SEED)
	$(PBM) fit

simulate: install ## the paper's real-data experiment on the fitted models: simulations/kdd.parquet
	$(PBM) simulate --seed $(SEED) $(if $(RUNS),--runs $(RUNS)) $(if $(HORIZON),--horizon $(HORIZON)) \
		$(if $(filter spark,$(ENGINE)),--engine spark $(CLUSTER))

report: install ## tables and figures of what the workspace has, on one page: report/index.html
	$(PBM) report

# A workspace of its own, so that the files of `make simulate` stay; it starts with the data and the models of this one.
PAPERS_SIZE = --resume --workspace "$$PBM_WORKSPACE/paper" --seed $(SEED) --horizon $(or $(HORIZON),100000) $(if $(RUNS),--runs $(RUNS))

paper: install ## every experiment at the paper's size (20 minutes; stopped, it goes on from there), and the report: paper/
	@test -f "$$PBM_WORKSPACE/models.parquet" || $(MAKE) data estimate
	@mkdir -p "$$PBM_WORKSPACE/paper"
	@for file in {counts,rejects,matrices,diagnostics,models}.parquet; do \
		cmp -s "$$PBM_WORKSPACE/"{,paper/}"$$file" || cp -p "$$PBM_WORKSPACE/"{,paper/}"$$file" || exit 1; done
	$(PBM) simulate --experiment synthetic $(PAPERS_SIZE)
	$(PBM) simulate --experiment high-theta $(PAPERS_SIZE)
	$(PBM) simulate --experiment kdd $(PAPERS_SIZE)
	$(PBM) report --workspace "$$PBM_WORKSPACE/paper"

test: ## the tests, those of the Spark engine included
	@$(MAKE) --no-print-directory install EXTRAS=spark
	$(BIN)/pytest -n 2 --dist loadfile

test-lowest: ## the tests, but for the long ones, on the oldest versions that pyproject.toml allows
	$(PYTHON) -m venv --clear .venv-lowest
	$(PYTHON) tests/lowest.py > .venv-lowest/lowest.txt
	.venv-lowest/bin/pip install --quiet --disable-pip-version-check --constraint .venv-lowest/lowest.txt --editable '.[dev,spark]'
	NUMBA_CACHE_DIR=$(CURDIR)/.venv-lowest/kernels .venv-lowest/bin/pytest -n 2 --dist loadfile -m 'not long'  # another numba's kernels, out of the way of ours

lint: ## ruff and mypy --strict
	@$(MAKE) --no-print-directory install EXTRAS=spark
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: ## the speed and memory claims of the README, each as a ratio
	@$(MAKE) --no-print-directory install EXTRAS=spark
	$(BIN)/python -m benchmarks.counting
	$(BIN)/python -m benchmarks.cluster
	$(BIN)/python -m benchmarks.parsing
	$(BIN)/python -m benchmarks.starting
	$(BIN)/python -m benchmarks.fitting
	$(BIN)/python -m benchmarks.playing

clean: ## remove what was made in the workspace, and the caches; keeps .venv
	rm -rf "$$PBM_WORKSPACE"/{raw,simulations,regret,displays,bounds,report,paper} "$$PBM_WORKSPACE"/*.parquet benchmarks/scratch .pytest_cache .mypy_cache .ruff_cache
	find . -name __pycache__ -not -path './.venv*' -prune -exec rm -rf {} +
