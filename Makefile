# Every command of the project; CI calls only these. `make help` lists them.

VENV    := .venv
PYTHON  ?= python3
BIN     := $(VENV)/bin
PY      := $(BIN)/python
# Without CUDA, a far smaller download: TORCH=torch==2.13.0+cpu, PIP_EXTRA_INDEX_URL set to PyTorch's index of CPU wheels.
TORCH   ?= torch==2.13.0
LIBTPU  ?= 1
WORKERS ?= 2
CSRC    := $(shell find csrc -name '*.cpp' -o -name '*.h' 2>/dev/null)
# The JAX platform that tests and benchmarks run on.
export TORCHTPU_PLATFORM ?= cpu

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-all test-op opinfo lint fix bench where docs coverage golden clean

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
	$(PY) -m pytest -m "not slow" -n $(WORKERS) --dist worksteal $(T)

# An interrupted run goes on where it was; one that had finished starts again.
OPINFO   = $(PY) -m tests.opinfo --resume --failures --json build/opinfo
ALL_DTYPES = float32,bfloat16,float16,int64,int32,uint8,bool,complex64,float64,complex128
# One sample of every entry and dtype, compiled for a chip that need not be here.
COMPILE  = $(PY) -m tests.opinfo --compile v5e --dtypes $(ALL_DTYPES) --resume --failures --json build/compiled_v5e.json
test-all: setup  ## every test, then PyTorch's whole operator databases (hours; can be interrupted)
	XLA_FLAGS= $(PY) -m pytest -n $(WORKERS) --dist worksteal $(T)
	@status=0; set -x; \
	$(OPINFO)/ops.json --dtypes float32,int64,bfloat16 --variants fn,inplace,out --grad --error-inputs || status=1; \
	$(OPINFO)/second_order.json --dtypes float64,complex128 --gradgrad --max-samples 3 || status=1; \
	$(OPINFO)/fused.json --dtypes $(ALL_DTYPES) --variants fn,inplace,out --grad --error-inputs --mode fused --fallback error --max-samples 3 || status=1; \
	$(OPINFO)/modules.json --suite modules --dtypes float32,bfloat16 --grad --error-inputs || status=1; \
	$(OPINFO)/optim.json --suite optim --dtypes float32,bfloat16 --error-inputs || status=1; \
	$(OPINFO)/foreach.json --suite foreach --dtypes float32,int64,bfloat16 --variants fn,inplace --grad || status=1; \
	test $(LIBTPU) = 0 || $(COMPILE) || status=1; \
	exit $$status

test-op: setup  ## all samples, dtypes and gradients of one operator: OP=aten::addmm
	@test -n "$(OP)" || { echo "say which operator: make test-op OP=aten::addmm" >&2; exit 2; }
	$(PY) -m pytest tests/ops --op "$(OP)"

opinfo: setup  ## PyTorch's operator databases, as you like: ARGS="--only conv2d --grad" (ARGS=--help lists the options)
	$(PY) -m tests.opinfo $(ARGS)

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
	$(PY) -m docs.generate_errors
	$(PY) -m docs.generate_coverage

coverage: setup  ## fold reports (build/opinfo/) into docs/coverage.json and entries.json, and rewrite docs/coverage.md (REPORTS=files)
	$(PY) -m docs.pass_rates $(REPORTS)
	$(PY) -m docs.generate_coverage

golden: setup  ## rewrite the golden files and show the difference
	REWRITE_GOLDENS=1 $(PY) -m pytest -q -m golden
	git --no-pager diff -- tests/golden

clean:  ## remove what was built; keeps .venv's packages
	rm -rf build *.egg-info torchtpu/*.so $(VENV)/.built $(VENV)/.installed
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +
