# Every command of the project; CI calls only these. `make help` lists them.

VENV    := .venv
PYTHON  ?= python3
BIN     := $(VENV)/bin
PY      := $(BIN)/python
TORCH   ?= torch==2.13.0
LIBTPU  ?= 1
CSRC    := $(shell find csrc -name '*.cpp' -o -name '*.h' 2>/dev/null)
# The JAX platform that tests and benchmarks run on.
export TORCHTPU_PLATFORM ?= cpu

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-all test-op lint fix bench where docs golden clean

help:  ## list these commands
	@grep -hE '^[a-z-]+:.*  ## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*  ## /\1\t/' | expand -t 12

$(VENV)/.installed: pyproject.toml
	test -x $(PY) || $(PYTHON) -m venv $(VENV)
	$(PY) -m pip install --quiet "$(TORCH)"
	$(PY) -m pip install --quiet "setuptools>=77" wheel ninja
	SKIP_CORE=1 $(PY) -m pip install --no-build-isolation --quiet --editable ".[dev]"
	touch $@

# --no-build-isolation everywhere: an isolated build would download a second torch.
$(VENV)/.built: $(CSRC) setup.py | $(VENV)/.installed
	$(PY) setup.py --quiet build_ext --inplace
	touch $@

$(VENV)/.libtpu: $(VENV)/.installed
	$(PY) -m pip install --quiet "jax[tpu]"
	touch $@

setup: $(VENV)/.installed $(VENV)/.built  ## make .venv, build the C++ core, install everything

demo: setup $(if $(filter 0,$(LIBTPU)),,$(VENV)/.libtpu)  ## train on real data and show the table (LIBTPU=0: without libtpu)
	$(PY) -m benchmarks.demo --json demo.json

test: setup  ## every test but the slow ones (T=path: only these)
	$(PY) -m pytest -m "not slow" $(T)

test-all: setup  ## every test
	$(PY) -m pytest $(T)

test-op: setup  ## all samples, dtypes and gradients of one operator: OP=aten::addmm
	@test -n "$(OP)" || { echo "say which operator: make test-op OP=aten::addmm" >&2; exit 2; }
	$(PY) -m pytest tests/ops --op "$(OP)"

lint: setup  ## ruff, pyright, clang-format and the house rules in lint/
	@status=0; set -x; \
	$(BIN)/ruff check --output-format concise . || status=1; \
	$(BIN)/pyright || status=1; \
	$(BIN)/clang-format --dry-run --Werror $(CSRC) || status=1; \
	$(PY) -m lint || status=1; \
	exit $$status

fix: setup  ## what ruff and clang-format can repair
	$(BIN)/ruff check --fix .
	$(BIN)/clang-format -i $(CSRC)

bench: setup  ## write benchmarks/results/ (B=record: only that one)
	$(PY) -m benchmarks.run_all $(B)

where: setup  ## the rule, decomposition or fallback of one operator: OP=aten::addmm
	@test -n "$(OP)" || { echo "say which operator: make where OP=aten::addmm" >&2; exit 2; }
	@$(PY) -m torchtpu.inspect.where $(OP)

docs: setup  ## rewrite the generated pages of docs/
	$(PY) docs/generate_errors.py

golden: setup  ## rewrite the golden files and show the difference
	REWRITE_GOLDENS=1 $(PY) -m pytest -q -m golden
	git --no-pager diff -- tests/golden

clean:  ## remove what was built; keeps .venv's packages
	rm -rf build *.egg-info torchtpu/*.so $(VENV)/.built $(VENV)/.installed
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +
