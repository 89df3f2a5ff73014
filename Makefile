# Each target makes the environment that it needs. Only Python and make have to be installed first.
VENV := .venv
BIN := $(VENV)/bin

# The first interpreter that runs, has a supported version and can make environments. A shim that does not run is skipped.
PYTHON ?= $(shell for python in python3.12 python3.13 python3.11 python3 python; do \
	"$$python" -c 'import ensurepip, sys, venv; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' 2>/dev/null \
	&& { echo "$$python"; break; }; done)

.PHONY: demo docs quick test lint fuzz faults bench installs test-tensorflow cpu-build clean

demo: $(BIN)/.placer
	$(BIN)/placer demo --out demo

# Some tests of each room, in one process: about a minute.
QUICK := tests/common tests/cost_models/test_auto.py tests/cost_models/test_costs.py tests/cost_models/test_machines.py \
	tests/graph/test_op_graph.py tests/problem tests/solvers/exact tests/solvers/heuristics \
	tests/plan/test_notes.py tests/plan/test_placement.py tests/views/test_text.py \
	tests/tf/rewrite/test_rewriting.py tests/tf/run/test_observing.py tests/placed tests/verbs/test_simulate.py \
	tests/research/arena/test_scores.py tests/research/pairwise/test_problem.py tests/research/splits/test_max_load.py \
	tests/command tests/test_import.py

quick: $(BIN)/.dev
	$(BIN)/python -m pytest -q $(QUICK)

# Two processes, each of which imports TensorFlow. With more, solvers would reach less within the time limits that tests give them.
# Files in the order of their names: in pytest-xdist's own order, files with few tests are last, and some of these take minutes.
test: $(BIN)/.dev
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

lint: $(BIN)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# The site of docs/, in site/index.html. Warnings are errors.
docs: $(BIN)/.dev
	$(BIN)/python -m pip install --quiet --group docs
	$(BIN)/python -m sphinx -q -W --keep-going docs site

# 2,000 random programs, with another seed each day. A process runs 200 of them, since TensorFlow never frees a function.
FUZZ_SEED ?= $(shell date +%Y%m%d)

fuzz: $(BIN)/.dev
	for part in 0 1 2 3 4 5 6 7 8 9; do \
		$(BIN)/python -m pytest -q tests/semantics/test_random_programs.py \
			--hypothesis-profile=fuzz --hypothesis-seed=$(FUZZ_SEED)$$part || exit 1; \
	done

# Damaged files, wrong plans, hostile names, interrupts, full disks: writes the table of docs/faults.md.
faults: $(BIN)/.dev
	$(BIN)/python -m tests.benchmarks.faults --seed $(FUZZ_SEED)

bench: $(BIN)/.dev
	$(BIN)/python -m tests.benchmarks.bench_planning
	$(BIN)/python -m tests.benchmarks.bench_call_overhead
	$(BIN)/python -m tests.benchmarks.bench_step_time $(if $(wildcard /dev/nvidia0),,--devices two-cpu)

# The wheel in new environments: Python 3.11 and 3.13, the oldest and the newest dependencies. Both versions of Python must be on the path.
installs: $(BIN)/.uv
	$(BIN)/python -m tests.benchmarks.installs

# The tests of `make quick` and of placed functions with a release of TensorFlow: make test-tensorflow TF=2.20
TF ?= 2.20

test-tensorflow: $(BIN)/.uv
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(VENV)-$(TF)
	$(BIN)/uv pip install --quiet --python $(VENV)-$(TF)/bin/python --editable '.[viz]' --group dev 'tensorflow==$(TF).*' 'tf_keras==$(TF).*'
	$(VENV)-$(TF)/bin/python -m pytest -q $(QUICK) tests/semantics

# Plans for GPUs by the package tensorflow-cpu, which has no GPU kernels, against those by the package tensorflow of the same version.
cpu-build: $(BIN)/.uv
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(VENV)-cpu
	echo 'tensorflow; python_version < "3"' > $(VENV)-cpu/overrides.txt
	$(BIN)/uv pip install --quiet --python $(VENV)-cpu/bin/python --editable . --overrides $(VENV)-cpu/overrides.txt \
		tensorflow-cpu==$$($(BIN)/python -c 'from importlib.metadata import version; print(version("tensorflow"))')
	$(BIN)/python -m tests.benchmarks.cpu_build $(VENV)-cpu/bin/python

clean:
	rm -rf $(VENV) $(VENV)-* demo site

$(BIN)/.placer: pyproject.toml
	$(if $(PYTHON),,$(error no Python 3.11, 3.12 or 3.13 found: install one, or give its path: make PYTHON=...))
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --editable '.[viz]'
	touch $@

$(BIN)/.uv: $(BIN)/.dev
	$(BIN)/python -m pip install --quiet --group installs
	touch $@

$(BIN)/.dev: $(BIN)/.placer
	$(BIN)/python -m pip install --quiet --group dev
	touch $@
