# Two commands do everything on a fresh machine: make demo, make test. Both set up .venv themselves.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Threads that wait should sleep: on a busy machine OpenMP's spinning took five times the CPU time of
# the work itself (examples/quickstart.py: 13.6 s against 2.5 s). Waking up costs microseconds.
export OMP_WAIT_POLICY ?= passive
PYTEST := $(BIN)/python -m pytest -n 2 --dist loadfile

.PHONY: demo test test-slow check docs pictures bench clean

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "untilt needs Python 3.11 or newer; '$(PYTHON)' is older. Try: make PYTHON=python3.12 ..."; exit 1; }
	@echo "setting up $(VENV) (once; a few minutes)"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install --quiet --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

demo: $(STAMP)
	$(BIN)/untilt demo

test: $(STAMP)
	$(PYTEST)

test-slow: $(STAMP)
	$(PYTEST) -m slow

check: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# The site, in build/site; a link that leads nowhere fails it.
docs: $(STAMP)
	$(BIN)/sphinx-build -W --keep-going -q -E -c docs/site -d build/doctrees . build/site
	@echo "open build/site/index.html"

# Draws the pictures of the documentation anew, each with its fixed seed.
pictures: $(STAMP)
	$(BIN)/python docs/pictures

bench: $(STAMP)
	@for script in benchmarks/bench_*.py; do echo "== $$script"; $(BIN)/python $$script || exit 1; done

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis build dist docs/reference
	find src tests benchmarks examples -name __pycache__ -type d -prune -exec rm -rf {} +
