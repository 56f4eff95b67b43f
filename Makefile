# Every target works on a machine that has only Python 3.11, git and apt.
PYTHON ?= python3.11
BIN := .venv/bin
# bf16 matrix products die on machines that advertise AMX but cannot run it.
export ONEDNN_MAX_CPU_ISA := AVX512_CORE_BF16
export TF_CPP_MIN_LOG_LEVEL := 3

.PHONY: setup demo demo-serve test fast coverage check bench proof mutants docs images clean
setup: .venv/ready

.venv/ready: pyproject.toml setup.py constraints.txt $(wildcard src/model_checkpoint/*/*.c)
	$(PYTHON) -m venv .venv
	$(BIN)/pip install -q --upgrade pip -c constraints.txt
	$(BIN)/pip install -q -c constraints.txt torch==2.13.0
	$(BIN)/pip install -q -c constraints.txt -e '.[dev]'
	touch $@

demo: setup
	$(BIN)/python -m demo

# The dashboard on what the demo made; makes it first if there is none.
demo-serve: setup
	[ -d demo-run ] || $(BIN)/python -m demo
	$(BIN)/mckpt serve demo-run

test: setup
	tests/install_servers.sh
	$(BIN)/python -m tests.suite

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

# Kills trainings, then mounts small file systems of its own and cuts their power, so it needs root.
proof: setup
	tests/install_servers.sh
	$(BIN)/pip install -q -c constraints.txt -e '.[bench]'
	$(BIN)/python -m proof.resuming
	$(BIN)/python -m proof

# A sample of small wrongs, each against the tests of its room: MUTANTS=n MINUTES=m ROOMS="format plan" SEED=s, and ALSO others.
# 60 in all, or 20 of each room that is named; "beside" are the modules that lie beside the rooms. A room's tests are
# recorded once (minutes) and what each runs is kept in build/mutants; after that only changed modules of tests are.
# AT="src/model_checkpoint/plan/report.py:48 ..." tries all mutants of these lines: whether one that lived is told by now.
MINUTES ?= 20
SEED ?= 0
mutants: setup
	$(BIN)/python -m mutants $(ROOMS) $(if $(MUTANTS),--count $(MUTANTS)) --minutes $(MINUTES) --seed $(SEED) $(if $(ALSO),--also $(ALSO)) $(if $(AT),--at $(AT))

docs: setup
	$(BIN)/mkdocs build --strict

# The pictures of the documentation, as the browser tests see the pages.
images: setup
	tests/install_servers.sh
	$(BIN)/pytest -m "" -q tests/web/test_every_page.py
	cp build/screenshots/runs-1280-light.png docs/images/dashboard-runs.png
	cp build/screenshots/run-1280-light.png docs/images/dashboard-run.png

clean:
	rm -rf .venv .bench-peers .mypy_cache .ruff_cache .pytest_cache site build dist src/*.egg-info
