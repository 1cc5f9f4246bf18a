# make train   train a small GPT on the source text of the Python standard library
# make test    run the tests
# make lint    run ruff, basedpyright and import-linter
#
# Each makes the virtual environment .venv by itself; needed are Python 3.11 or newer, and make.
# PYTHON=... chooses the interpreter, ARGS="..." goes to the program: make train ARGS="--resume"

PYTHON ?= python3
ARGS ?=
WORKERS ?= $(shell nproc 2>/dev/null || echo 2)

BIN := .venv/bin
INSTALLED := .venv/.installed

.PHONY: help train test lint format clean

help:
	@sed -n 's/^# \{0,1\}//p' Makefile | sed '/^$$/q'

train: $(INSTALLED)
	@$(BIN)/python examples/train_gpt.py $(ARGS)

test: $(INSTALLED)
	$(BIN)/python -m pytest -n $(WORKERS) $(ARGS)

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/basedpyright --pythonpath $(BIN)/python
	$(BIN)/lint-imports --no-logo

format: $(INSTALLED)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf .venv

# The stamp is written last, so an interrupted installation starts again.
$(INSTALLED): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "tfw needs Python 3.11 or newer; '$(PYTHON)' is not ($$($(PYTHON) --version 2>&1))." >&2; \
	  echo "Name a newer one:  make $(or $(MAKECMDGOALS),train) PYTHON=python3.12" >&2; exit 1; }
	@echo "Installing tfw and its tools into .venv (once; some minutes) ..."
	@$(PYTHON) -m venv --clear .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@
