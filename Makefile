# `make demo`, `make check`, `make test` and `make docs` set up what they need themselves.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
VLLM := .venv-vllm
ADAPTERS := .venv-adapters
DIST := .venv-dist
DOCS := .venv-docs
SITE := docs/_build
JOBS ?= 2
SECONDS ?= 3600

CHROMIUM := command -v chromium || command -v chromium-browser || command -v google-chrome
APT := [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null

# NumPy's last release for Python 3.10 has other type stubs than later ones.
NEW_STUBS := 'import sys; sys.exit(sys.version_info < (3, 11))'

.PHONY: setup browser demo docs gallery notebooks lint words check test fuzz test-adapters test-vllm \
  tested dist clean

setup: $(VENV)/.ready

# The package and what it needs to run: all that the demo takes. Python compiles what it imports.
$(VENV)/.product: pyproject.toml constraints.txt
	@echo "Installing ropelime into $(VENV), once ..."
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install -qq --upgrade pip
	@$(BIN)/python -m pip install -qq --no-compile --constraint constraints.txt --editable .
	@touch $@

$(VENV)/.ready: $(VENV)/.product
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

# The page is tested in Chromium. Only root on a system with apt-get can install it here; elsewhere
# those tests are skipped.
browser:
	@if $(CHROMIUM); then :; \
	elif $(APT); then \
	  echo "No Chromium was found: installing the system package 'chromium' with apt-get."; \
	  apt-get update --quiet=2 && apt-get install --quiet=2 --yes chromium \
	    || echo "apt-get could not install Chromium: the tests that need a browser will be skipped."; \
	else \
	  echo "No Chromium was found: the tests that need a browser will be skipped." \
	    "To run them, install it (apt-get install chromium)."; \
	fi

demo: $(VENV)/.product
	@$(BIN)/ropelime demo --json demo.json --html demo.html

# The site needs the package for its docstrings and help texts, but neither torch nor a model.
$(DOCS)/.ready: pyproject.toml
	$(PYTHON) -m venv $(DOCS)
	$(DOCS)/bin/python -m pip install --quiet --upgrade pip
	$(DOCS)/bin/python tools/build_docs.py --install
	touch $@

docs: $(DOCS)/.ready
	$(DOCS)/bin/python tools/build_docs.py $(SITE)

gallery: setup browser
	$(BIN)/python docs/gallery.py

# Run the tutorials and keep their outputs.
notebooks: setup
	$(BIN)/python tools/notebooks.py docs/tutorials/*.ipynb

lint: setup words
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	if $(BIN)/python -c $(NEW_STUBS); then $(BIN)/mypy; else echo "No types: they need Python 3.11."; fi

words:
	$(PYTHON) tools/words.py

# For daily work: no browser, no Ray, no embedded model, nothing that takes long.
check: lint
	$(BIN)/python -m pytest --numprocesses $(JOBS) \
	  -m "not (slow or browser or ray or real_model)"

test: lint browser
	$(BIN)/ropelime models fetch smollm2
	$(BIN)/python -m pytest --numprocesses $(JOBS) --dist loadfile -m "not ray"
	$(BIN)/python -m pytest -m ray

# Each fuzzer for SECONDS, with another seed each time; then a batch that is killed fifty times.
fuzz: setup
	PYTHONPATH=tests:. $(BIN)/python -m fuzz --seconds $(SECONDS)
	PYTHONPATH=tests:. $(BIN)/python -m fuzz.kills --kills 50
	PYTHONPATH=tests:. $(BIN)/python -m fuzz.kills --kills 20 --engine ray

# LangChain, Anthropic's SDK and others themselves; `make test` has stand-ins for them. Some of them want
# older releases of libraries that we use, so they have an environment on top of ours. Some leave sockets
# and event loops open.
test-adapters: $(ADAPTERS)/.ready
	$(BIN)/ropelime models fetch smollm2
	$(ADAPTERS)/bin/python -m pytest -W ignore::pytest.PytestUnraisableExceptionWarning tests/integrations

$(ADAPTERS)/.ready: $(VENV)/.ready
	$(BIN)/python -m venv $(ADAPTERS)
	$(BIN)/python -c 'import sysconfig as s; print(s.get_path("purelib"))' \
	  > $$($(ADAPTERS)/bin/python -c 'import sysconfig as s; print(s.get_path("purelib"))')/below.pth
	$(ADAPTERS)/bin/python -m pip install --quiet --constraint constraints.txt --editable '.[adapters]'
	touch $@

# A surrogate behind a real vLLM server, which has an environment of its own; Linux x86_64 only.
test-vllm: setup
	$(BIN)/ropelime models fetch smollm2
	test -f $(VLLM)/.ready || $(BIN)/python tests/vllm_env.py $(VLLM)
	ROPELIME_VLLM=$(VLLM)/bin/python $(BIN)/python -m pytest -m vllm tests/surrogate

# What the tests ran with: every package of the environment, with its version and its licence.
tested: setup
	$(BIN)/python tools/tested.py > requirements-tested.txt

# Wheel and sdist as they would be uploaded. The wheel goes into an environment of its own, where the
# demo runs and mypy must see the types.
dist:
	rm -rf dist $(DIST)
	$(PYTHON) -m venv $(DIST)/build
	$(PYTHON) -m venv $(DIST)/wheel
	$(DIST)/build/bin/python -m pip install --quiet build twine mypy cyclonedx-bom
	$(DIST)/build/bin/python -m build
	$(DIST)/build/bin/twine check --strict dist/*
	$(PYTHON) tools/wheel.py dist/*.whl
	$(DIST)/wheel/bin/python -m pip install --quiet --constraint constraints.txt dist/*.whl
	$(DIST)/build/bin/cyclonedx-py environment --output-file sbom.cdx.json $(DIST)/wheel/bin/python
	cd $(DIST) && wheel/bin/ropelime demo
	cd $(DIST) && echo 'import ropelime; reveal_type(ropelime.explain(prompt="A. B.", output="C."))' > reveal.py
	cd $(DIST) && build/bin/mypy --strict --python-executable wheel/bin/python reveal.py \
	  | grep 'Revealed type is "ropelime.explain.Explanation"'

clean:
	rm -rf $(VENV) $(VLLM) $(ADAPTERS) $(DIST) $(DOCS) $(SITE) dist sbom.cdx.json demo.json demo.html .mypy_cache .pytest_cache .ruff_cache
