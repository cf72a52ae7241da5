# make demo and make test set everything up by themselves, in .venv (another folder: make VENV=... demo).
VENV ?= .venv
BIN := $(VENV)/bin
# A worker that dies ends the run: xdist would wait for ever for the rest of its file.
PYTEST := $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder --max-worker-restart 0 --durations 15
# Each test is in make test or in make test-rest: what is slow is in the rest, but for a few real runs. The marks are in pyproject.toml.
REST := (slow or cluster or chaos) and not installation

.PHONY: help setup demo test test-rest test-all test-fast test-ui pictures docs mutants lint locks ui clean

help: ## Show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

setup: $(VENV)/.ready ## Make the virtual environment from the CPU lock

$(VENV)/.ready: locks/cpu.lock locks/install.sh pyproject.toml
	locks/install.sh $(VENV) cpu

demo: setup ## Two rounds of Agent-R on TextCraft with a control arm; writes runs/demo/report.html
	$(BIN)/agentr plan configs/demo.yaml
	$(BIN)/agentr run configs/demo.yaml

test: setup ## What proves an installation: the fast tests, and a run each that imitates, prefers and reinforces
	$(PYTEST) -m "not ($(REST))"

test-rest: setup ## The tests that make test leaves out
	$(PYTEST) -m "$(REST)"

test-all: setup ## Both
	$(PYTEST)

test-fast: setup ## The fast tests alone: they start neither Ray nor vLLM nor DeepSpeed
	$(PYTEST) -m "not (slow or cluster or chaos)"

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

# Another sample: make mutants OF="'agentr.evaluate.*' --draw 50 --seed 1"
mutants: setup ## Change the code in 200 small ways, and say which changes no fast test notices (an hour and more; by hand)
	$(BIN)/python -m pip install --quiet mutmut==3.8.1
	nice -n 15 $(BIN)/python tests/tools/mutants.py $(OF)

lint: setup ## Format check, linter, types, import contracts, dependencies
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright
	$(BIN)/lint-imports
	$(BIN)/deptry agentr env_servers ray_jobs --optional-dependencies-dev-groups dev,docs
	$(BIN)/deptry agentr env_servers ray_jobs tests docker docs/site

locks: ## Resolve the locks anew (needs uv)
	locks/compile.sh

ui: ## Build the pages of agentr ui into agentr/ui/static (needs Node 20 and npm)
	cd agentr/ui/web && npm ci --no-audit --no-fund && npm run --silent check && npm test --silent && npm run --silent build

clean: ## Remove the virtual environment and the mutants (runs/ is kept)
	rm -rf $(VENV) mutants
