# Two commands do everything on a fresh machine: make demo, make test. Both set up .venv themselves.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Threads that wait should sleep: on a busy machine OpenMP's spinning took five times the CPU time of
# the work itself (examples/quickstart.py: 13.6 s against 2.5 s). Waking up costs microseconds.
export OMP_WAIT_POLICY ?= passive
# Tests start many processes: where Python may keep no compiled modules, each compiles 400 of them.
unexport PYTHONDONTWRITEBYTECODE
# The files that take longest come first (tests/conftest.py): else the last one decides.
PYTEST := $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

.PHONY: demo kernels test test-slow test-lowest fuzz fuzz-guided torture torture-serve soak coverage check docs generated stub tables api notebooks cookbooks pictures bench release clean

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "untilt needs Python 3.11 or newer; '$(PYTHON)' is older. Try: make PYTHON=python3.12 ..."; exit 1; }
	@echo "setting up $(VENV) (once; a few minutes)"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install --quiet --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

demo: $(STAMP)
	$(BIN)/untilt demo

# Compiled once for both workers of the tests; in a fresh clone half a minute, later five seconds.
kernels: $(STAMP)
	$(BIN)/python -m tests.kernels

test: kernels
	$(PYTEST) $(PYTEST_ARGS)

test-slow: $(STAMP)
	$(PYTEST) -m slow

# The tests with the oldest versions that pyproject.toml allows, in an environment of their own.
LOWEST := build/lowest
test-lowest:
	@rm -rf $(LOWEST) && $(PYTHON) -m venv $(LOWEST)
	@$(LOWEST)/bin/pip install --quiet --quiet --disable-pip-version-check uv
	@$(LOWEST)/bin/uv pip install --quiet --python $(LOWEST)/bin/python --resolution lowest-direct --editable '.[dev]'
	$(LOWEST)/bin/python -m pytest -n 2 --dist loadfile

# Damaged inputs at every door: readers, saved models, curves, figures, folders of runs, options.
# What fails is kept in build/fuzz with the line that shows it again.
N ?= 10000
SEED ?= 0
fuzz: $(STAMP)
	$(BIN)/python -m tests.fuzz --n $(N) --seed $(SEED)

# The same by coverage, where atheris is installed (pip install atheris): requests, records, curves.
fuzz-guided: $(STAMP)
	$(BIN)/python -m tests.fuzz.guided --seconds $(or $(SECONDS),60)

# SIGKILL at random moments, full disks, read-only folders, two commands at once, and power cuts on a
# disk that forgets what was not synced: nothing lost, touched or left behind.
KILLS ?= 100
torture: $(STAMP)
	$(BIN)/python -m tests.torture --kills $(KILLS) --seed $(SEED)

# SIGKILL of a server under load, on loopback, with a good, a slow and a failing disk: what was sent,
# acknowledged and found.
torture-serve: $(STAMP)
	$(BIN)/python -m tests.serving.killing --kills $(or $(KILLS_SERVE),20) --seed $(SEED)

# Ten minutes of full load on loopback: does the memory of a server stay where it is?
soak: $(STAMP)
	$(BIN)/python benchmarks/bench_serve.py --soak $(or $(SECONDS),600)

# Share of lines and branches that the tests run. Compiled kernels count as not run: their slow
# twins in the tests check them, line by line coverage cannot see inside.
coverage: $(STAMP)
	$(PYTEST) --cov=untilt --cov-branch --cov-report=term:skip-covered --cov-report=html:build/coverage

check: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/budget.py

# The site, in build/site; a link that leads nowhere fails it.
docs: $(STAMP)
	$(BIN)/sphinx-build -W --keep-going -q -E -c docs/site -d build/doctrees . build/site
	@echo "open build/site/index.html"

# The stub of the public names, the tables and the command line in the documentation, the list of
# the public API, and the notebooks; a test says when one is out of date. `make stub`: one alone.
generated: stub tables api notebooks
stub tables api notebooks: $(STAMP)
	$(BIN)/python tools/generate.py $@

# Runs the cookbooks and docs/start.md, writes what they print into them, and the notebooks.
cookbooks: $(STAMP)
	$(BIN)/python tools/notebooks.py
	$(BIN)/python tools/generate.py notebooks

# Draws the pictures of the documentation anew, each with its fixed seed.
pictures: $(STAMP)
	$(BIN)/python docs/pictures

bench: $(STAMP)
	@for script in benchmarks/bench_*.py; do echo "== $$script"; $(BIN)/python $$script || exit 1; done

# sdist and wheel in dist/, and the wheel tried in an environment that has never seen the source:
# the tests run from a folder without src, and the demo goes from a log to its report. Then the wheel
# alone, without extras: how large that is (docs/install.md), and the demo again.
RELEASE := build/release
MOST_MIB := 600
release: $(STAMP)
	@rm -rf dist $(RELEASE) && $(BIN)/pip install --quiet --quiet --disable-pip-version-check build
	$(BIN)/python -m build --outdir dist .
	@$(PYTHON) -m venv $(RELEASE)/env && mkdir -p $(RELEASE)/work
	@$(RELEASE)/env/bin/pip install --quiet --quiet --disable-pip-version-check "$$(ls $(CURDIR)/dist/untilt-*.whl)[dev]"
	@cp -r tests tools docs examples benchmarks README.md CONTRIBUTING.md CHANGELOG.md SECURITY.md Makefile pyproject.toml $(RELEASE)/work
	cd $(RELEASE)/work && ../env/bin/python -m pytest -n 2 --dist loadfile tests/test_import.py tests/test_public_names.py tests/cli tests/workflow tests/report
	cd $(RELEASE)/work && ../env/bin/untilt demo
	@$(PYTHON) -m venv $(RELEASE)/plain
	@$(RELEASE)/plain/bin/pip install --quiet --quiet --disable-pip-version-check $(CURDIR)/dist/untilt-*.whl
	$(PYTHON) tools/install_size.py $(RELEASE)/plain --most $(MOST_MIB)
	cd $(RELEASE)/work && ../plain/bin/untilt demo --quick --out untilt-demo-plain
	@ls -l dist

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis build dist docs/reference
	find src tests benchmarks examples -name __pycache__ -type d -prune -exec rm -rf {} +
