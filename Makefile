# make demo and make test set everything up by themselves, in .venv (another folder: make VENV=... demo).
VENV ?= .venv
PYTHON ?= python3.11
BIN := $(VENV)/bin
export PYTHON

.PHONY: help setup demo test test-fast test-ui pictures docs mutants lint locks ui clean

help: ## Show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

setup: $(VENV)/.ready ## Make the virtual environment from the CPU lock

$(VENV)/.ready: locks/cpu.lock locks/install.sh pyproject.toml
	locks/install.sh $(VENV) cpu

demo: setup ## Two rounds of Agent-R on TextCraft with a control arm; writes runs/demo/report.html
	$(BIN)/agentr run configs/demo.yaml

test: setup ## The whole test suite, in two processes
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder --durations 15

test-fast: setup ## The tests that start neither Ray nor vLLM nor DeepSpeed
	$(BIN)/python -m pytest -m "not cluster and not chaos"

test-ui: setup ## The pages of agentr ui in a real Chromium (on PATH, or named by CHROMIUM)
	$(BIN)/python -m pip install --quiet --no-deps -r locks/ui.lock
	AGENTR_TEST_UI=1 $(BIN)/python -m pytest tests/ui/test_browser.py

pictures: setup ## The pictures of docs/pages.md, taken in Chromium of what is in runs (the demo; an online run and a comparison, if there are)
	$(BIN)/python -m pip install --quiet --no-deps -r locks/ui.lock
	$(BIN)/python -m tests.docs.pictures runs

docs: setup ## The documentation as a site, build/docs/index.html; warnings and broken links are errors
	$(BIN)/python -m pip install --quiet --no-deps -r locks/docs.lock
	nice -n 15 $(BIN)/sphinx-build -q -W --keep-going -c docs/site -d build/doctrees -b html . build/docs
	$(BIN)/python docs/site/links.py build/docs

# Of the packages in [tool.mutmut], or of what OF names: make mutants OF='agentr.evaluate.*'
mutants: setup ## Change the code in small ways, and say which changes no fast test notices (an hour and more; by hand)
	$(BIN)/python -m pip install --quiet mutmut==3.8.1
	nice -n 15 $(BIN)/mutmut run --max-children 1 $(if $(OF),'$(OF)')
	$(BIN)/mutmut results

lint: setup ## Format check, linter, types, import contracts
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright
	$(BIN)/lint-imports

locks: ## Resolve the locks anew (needs uv); that of the documentation holds what the CPU lock does not
	uv pip compile pyproject.toml --extra cpu --extra envs --extra dev --override locks/overrides-cpu.txt --torch-backend cpu \
	  --python-version 3.11 --no-header -o locks/cpu.lock
	uv pip compile pyproject.toml --extra gpu --extra envs --extra dev --python-version 3.11 \
	  --python-platform x86_64-unknown-linux-gnu --no-header -o locks/gpu.lock
	uv pip compile pyproject.toml --extra cpu --extra envs --extra dev --extra docs --override locks/overrides-cpu.txt \
	  -c locks/cpu.lock --torch-backend cpu --python-version 3.11 --no-header --no-annotate | grep -vxF -f locks/cpu.lock > locks/docs.lock

ui: ## Build the pages of agentr ui into agentr/ui/static (needs Node 20 and npm)
	cd agentr/ui/web && npm ci --no-audit --no-fund && npm run --silent check && npm test --silent && npm run --silent build

clean: ## Remove the virtual environment and the mutants (runs/ is kept)
	rm -rf $(VENV) mutants
