# Two commands do everything: `make demo` and `make test`. Neither needs anything installed by hand.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

VLLM := .venv-vllm

.PHONY: setup browser demo gallery test test-adapters test-vllm lint clean

setup: $(VENV)/.ready

$(VENV)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

# The page is tested in Chromium. Where it is missing and cannot be installed, those tests are skipped.
browser:
	@command -v chromium || command -v chromium-browser || command -v google-chrome \
	  || { [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null \
	       && apt-get update --quiet=2 && apt-get install --quiet=2 --yes chromium; } \
	  || echo "No Chromium: tests in the browser will be skipped. Install it: apt-get install chromium"

demo: setup
	$(BIN)/ropelime demo --json demo.json --html demo.html

gallery: setup browser
	$(BIN)/python docs/gallery.py

test: lint browser
	$(BIN)/ropelime models fetch smollm2
	$(BIN)/python -m pytest

# LangChain and LlamaIndex themselves; `make test` has stand-ins for them.
test-adapters: setup
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev,adapters]'
	$(BIN)/python -m pytest tests/test_adapters.py

# A surrogate behind a real vLLM server, which has an environment of its own; Linux x86_64 only.
test-vllm: setup
	$(BIN)/ropelime models fetch smollm2
	test -f $(VLLM)/.ready || $(BIN)/python tests/vllm_env.py $(VLLM)
	ROPELIME_VLLM=$(VLLM)/bin/python $(BIN)/python -m pytest tests/test_vllm.py

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

clean:
	rm -rf $(VENV) $(VLLM) demo.json demo.html .mypy_cache .pytest_cache .ruff_cache
