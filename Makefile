# Every target makes what it needs: on a bare machine only Python 3.11+, pip and make must be there.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# The torch that the array tests run with, on the CPU. Empty (make test TORCH=) leaves them out.
TORCH ?= torch==2.13.0
TORCH_READY := $(VENV)/.torch

.PHONY: run reproduce test test-browser test-statistical bench clean

$(READY): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[test]'
	touch $@

$(TORCH_READY): $(READY)
	test -z '$(TORCH)' || $(BIN)/python -m pip install --quiet --disable-pip-version-check '$(TORCH)' \
	  || echo '$(TORCH) cannot be installed here: the tests that need it are skipped'
	touch $@

run: $(READY)  ## fit the embedded data set and compare
	$(BIN)/python examples/soil_carbon.py --out out/soil_carbon.png

test: $(READY) $(TORCH_READY)  ## everything CI checks, in minutes
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -n 2

test-statistical: $(READY)  ## slow simulation checks
	$(BIN)/python -m pytest -n 2 -m statistical

bench: $(READY)  ## us and the peers side by side, in minutes on an idle machine
	$(BIN)/python benchmarks/compare.py
	$(BIN)/python benchmarks/report.py

test-browser: $(READY)  ## the report in a real browser (installs Debian's Chromium if there is none)
	command -v chromium > /dev/null || { apt-get update -qq && apt-get install -y -qq chromium > /dev/null; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check 'playwright>=1.45'
	$(BIN)/python -m pytest -m browser tests/browser

reproduce: $(READY)  ## the paper's figures, and those it lacks
	$(BIN)/olsen reproduce --scale paper --out out/figures

clean:
	rm -rf $(VENV) out build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
