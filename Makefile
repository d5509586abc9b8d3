# `make test` and `make demo` do all the set-up a fresh machine needs: python3 with venv, and for the tests apt-get.
PYTHON ?= python3
TORCH  ?= 2.13.0
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.stoker-installed
CODE   := $(wildcard src benchmarks tests examples docs/*.py)

.DEFAULT_GOAL := help
.PHONY: help setup check format docs browser compiler network test package soak demo pictures bench clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  %-8s %s\n", $$1, $$2}' Makefile

setup: $(STAMP)  ## create .venv and install the package with its tools (a second run installs nothing)

# The stamp is written last, so an interrupted installation is taken up again. TORCH replaces the pin of torch, and the pin of
# sympy goes: torch 2.6 requires one older version exactly.
$(STAMP): pyproject.toml constraints.txt tests/frameworks/apart.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	sed -e 's/^torch==.*/torch==$(TORCH)/' $(if $(filter 2.13.0,$(TORCH)),,-e '/^sympy==/d') constraints.txt >$(VENV)/constraints.txt
	$(BIN)/python -m pip install --quiet -c $(VENV)/constraints.txt 'torch==$(TORCH)'
	$(BIN)/python -m pip install --quiet -c $(VENV)/constraints.txt -e '.[dev,frameworks]'
	$(if $(filter 2.13.0,$(TORCH)),$(BIN)/python -m pip install --quiet --no-deps --upgrade --target $(VENV)/apart -r tests/frameworks/apart.txt)
	touch $@

check: setup  ## ruff, mypy strict, import-linter
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/mypy $(CODE)
	$(BIN)/lint-imports --no-logo

format: setup  ## let ruff rewrite what it can
	$(BIN)/ruff check --fix $(CODE)
	$(BIN)/ruff format $(CODE)

docs: setup  ## the documentation as a site (site/), warnings are errors; checks' pages and the table of arguments are written first
	$(BIN)/python docs/check_pages.py
	$(BIN)/python docs/argument_table.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

browser:  ## install Chromium for the tests of the report, where it is missing
	@.ci/browser

compiler:  ## install g++ for the fake accelerator of the tests, where it is missing
	@.ci/compiler

network:  ## install iproute2 for the tests of Ray, whose hosts are network namespaces, where it is missing
	@.ci/network

test: setup browser compiler network  ## all tests; in CI each that failed runs twice more, alone, and has to pass both times
	$(BIN)/python -m tests.suite $(if $(CI),--again)

package: setup  ## the wheel, installed with its dependencies into an empty environment and used there; types as users see them
	$(BIN)/python -m tests.package

soak: setup compiler network  ## minutes of faults of every kind (HOURS=2: a night), every batch and receipt checked
	$(BIN)/python -m tests.soak $(if $(HOURS),--hours $(HOURS),--minutes $(or $(MINUTES),5))

demo: setup  ## what a loader costs on this machine, and what stoker changes: a summary, and stoker-report.html
	$(BIN)/stoker demo

pictures: setup  ## measure for two minutes, which want a quiet machine, and draw the pictures of README and docs anew
	$(BIN)/python docs/pictures.py --measure

bench: setup  ## the whole duel, as text and JSON: warm loaders, then whole epochs
	$(BIN)/python -m benchmarks
	$(BIN)/python -m benchmarks.epochs

clean:  ## remove the virtual environment and all caches
	rm -rf $(VENV) site .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
