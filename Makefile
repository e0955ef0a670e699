# Two commands do all on a fresh clone: `make demo` and `make test`. The rest is for contributors.
PYTHON := .venv/bin/python
READY  := .venv/ready
export PIP_CONSTRAINT := $(CURDIR)/constraints.txt
export OMP_NUM_THREADS ?= 1

.PHONY: demo test test-slow lint bench docs dist clean

demo: $(READY)  ## certify, attack, compare, draw, report: about a minute
	$(PYTHON) -m berncert demo

test: $(READY) lint  ## lint, types, tests
	$(PYTHON) -m pytest -n 2

test-slow: $(READY)  ## the long-running tests too
	$(PYTHON) -m pytest -n 2 -m "slow or not slow"

lint: $(READY)
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m mypy

bench: $(READY)  ## side-by-side measurements, written to benchmarks/: half an hour, and MNIST
	$(PYTHON) -m benchmarks.exact
	$(PYTHON) -m benchmarks.layers
	$(PYTHON) -m benchmarks.training
	$(PYTHON) -m benchmarks.distances
	$(PYTHON) -m benchmarks.startup
	$(PYTHON) -m benchmarks.certifiers
	$(PYTHON) -m benchmarks.tables
	$(PYTHON) -m benchmarks.sums
	$(PYTHON) -m benchmarks.engines

docs: $(READY)  ## the documentation site, into out/site
	$(PYTHON) -m docs.site out/site

dist: $(READY)  ## an sdist and a wheel, into dist/
	rm -rf dist
	$(PYTHON) -m build --outdir dist

$(READY): pyproject.toml constraints.txt
	@python3 -c 'import sys; sys.exit("berncert needs Python 3.11 or newer, this is " + sys.version) if sys.version_info < (3, 11) else 0'
	@echo "setting up .venv with PyTorch and the rest: a few minutes"
	python3 -m venv .venv
	$(PYTHON) -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@echo "compiling the proof search, once: ten to twenty seconds"
	$(PYTHON) -c "import berncert, torch; berncert.certify(berncert.SmoothedHead(torch.eye(2)), [[0.2]])"
	touch $@

clean:
	rm -rf .venv out dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
