# The two commands of the README, and what they are made of. Both work on a fresh machine with Python 3.11.
PYTHON ?= python3.11
VENV ?= .venv
# A CPU build of torch: the local version label +cpu can never resolve to a wheel that pulls CUDA packages.
TORCH ?= torch==2.13.0+cpu
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu

# Modules are compiled when they are first imported: compiling all of torch and mlflow doubles the time of installing.
PIP_INSTALL = $(VENV)/bin/python -m pip install --disable-pip-version-check --no-compile

# What pip has not compiled is compiled when it is first imported and kept, whatever the shell says: a shell that forbids
# it has every process compile mlflow and torch again, which took a third of the tests' time.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: quickstart test test-all test-avx2 compiled docs mlserver install install-test install-docs lint clean

quickstart: install
	$(VENV)/bin/workbench example loan-intent-mini
	$(VENV)/bin/workbench sweep experiments/loan-intent-mini.yaml

# Three at once on two processors: services, loads and compilers are waited for a third of the time. While one
# processor checks types, the other has pytest compile the tests once, which all three would do at the same time. What
# still runs after 60 minutes, which a machine under load does not need, is interrupted and says which tests have failed.
PYTEST = timeout --foreground --signal=INT --kill-after=60 60m $(VENV)/bin/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder
test: install-test
	$(MAKE) -j 2 lint compiled
	$(PYTEST) -m "not heavy"

# That, and what starts clusters, servers, trainings and browsers: what CI runs.
test-all: test
	$(PYTEST) -m heavy

# The class of processor that this machine is not, where it has VNNI. It takes 7 minutes or more.
test-avx2: install-test
	tests/avx2.sh

# What cannot be collected is said by the run itself.
compiled: install-test
	-@$(VENV)/bin/python -m pytest --collect-only -qq >/dev/null 2>&1

lint: install-test
	$(VENV)/bin/ruff check workbench tests benchmarks docs
	$(VENV)/bin/ruff format --check workbench tests benchmarks docs
	$(VENV)/bin/mypy

# A warning, such as a link that leads nowhere, is an error; the site loads nothing from elsewhere.
docs: install-docs
	$(VENV)/bin/python -m sphinx -b html -W --keep-going -q docs site
	$(VENV)/bin/python docs/check_site.py site

install: $(VENV)/.installed
install-test: $(VENV)/.installed-test
install-docs: $(VENV)/.installed-docs

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

# The first try finds the wheel wherever pip is configured to look; the second asks PyTorch's own index for it.
$(VENV)/.torch: | $(VENV)/bin/python
	$(PIP_INSTALL) --quiet $(TORCH) 2>/dev/null \
	  || $(PIP_INSTALL) $(TORCH) --index-url $(TORCH_INDEX)
	touch $@

$(VENV)/.installed: pyproject.toml $(VENV)/.torch
	$(PIP_INSTALL) --quiet -e ".[export]"
	touch $@

$(VENV)/.installed-test: $(VENV)/.installed
	$(PIP_INSTALL) --quiet -e ".[export,test]"
	touch $@

$(VENV)/.installed-docs: pyproject.toml | $(VENV)/bin/python
	$(PIP_INSTALL) --quiet -e ".[docs]"
	touch $@

# A server of the open inference protocol to load, in an environment of its own: MLServer demands an older FastAPI and
# protobuf. Tests that need one are skipped where it is missing.
mlserver: .venv-mlserver/.installed

.venv-mlserver/.installed:
	$(PYTHON) -m venv .venv-mlserver
	.venv-mlserver/bin/python -m pip install --disable-pip-version-check --no-compile --quiet mlserver==1.7.1 onnxruntime
	touch $@

clean:
	rm -rf $(VENV) .venv-avx2 site .workbench .mypy_cache .ruff_cache .pytest_cache
