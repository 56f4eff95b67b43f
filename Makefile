# Every target works on a machine that has only Python 3.11, git and apt.
PYTHON ?= python3.11
BIN := .venv/bin
# bf16 matrix products die on machines that advertise AMX but cannot run it.
export ONEDNN_MAX_CPU_ISA := AVX512_CORE_BF16
export TF_CPP_MIN_LOG_LEVEL := 3

# Real servers, kills and deadlines on a busy machine: what failed gets one more go with nothing beside it.
# Red twice is red; a first failure stays in the output.
PYTEST = $(BIN)/pytest -m ""
AGAIN = $(PYTEST) --last-failed --last-failed-no-failures=none
# These fork at every call to the medium: in processes that have loaded no framework that takes half the time.
FORKING = tests/engine/faults/test_engine_faults.py tests/storage/local/test_local_crashes.py

.PHONY: setup demo test fast coverage check bench docs clean
setup: .venv/ready

.venv/ready: pyproject.toml setup.py constraints.txt $(wildcard src/model_checkpoint/*/*.c)
	$(PYTHON) -m venv .venv
	$(BIN)/pip install -q --upgrade pip -c constraints.txt
	$(BIN)/pip install -q -c constraints.txt torch==2.13.0
	$(BIN)/pip install -q -c constraints.txt -e '.[dev]'
	touch $@

demo: setup
	$(BIN)/python -m demo

test: setup
	tests/install_servers.sh
	$(PYTEST) -n 2 --dist worksteal $(FORKING) || $(AGAIN) $(FORKING)
	$(PYTEST) -n 2 --dist worksteal $(FORKING:%=--ignore=%) || $(AGAIN) $(FORKING:%=--ignore=%)

coverage: setup
	$(BIN)/pytest -n 2 --cov --cov-report=term

fast: setup
	$(BIN)/pytest -n 2

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: setup
	$(BIN)/pip install -q -c constraints.txt -e '.[bench]'
	$(BIN)/python -m bench

docs: setup
	$(BIN)/mkdocs build --strict

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache site build dist src/*.egg-info
