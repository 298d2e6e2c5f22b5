# Works on a bare machine with Python 3.11+, git and make.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

# benchmarks/ and policies/ are packages that lie beside ptxsearch/, so an editable install goes by an
# import hook, at which setuptools warns of folders with the package's name: there is just one.
EDITABLE := PYTHONWARNINGS="ignore:Editable installation"

.PHONY: demo test check slow gpu bench installs clean

$(STAMP): setup.cfg
	test -x "$(BIN)/python" || "$(PYTHON)" -m venv "$(VENV)"
	"$(BIN)/python" -m pip install --quiet --upgrade pip
	$(EDITABLE) "$(BIN)/python" -m pip install --quiet --editable ".[test]"
	touch "$(STAMP)"

demo: $(STAMP)
	"$(BIN)/ptxsearch" optimize level1/transpose --device emulated --trials 40 --store runs/demo.store --out runs/demo

test: $(STAMP)
	"$(BIN)/python" -m pytest -q

check: $(STAMP)
	"$(BIN)/ruff" format --check ptxsearch tests benchmarks
	"$(BIN)/ruff" check ptxsearch tests benchmarks
	"$(BIN)/mypy"
	"$(BIN)/lint-imports"

slow: $(STAMP)
	"$(BIN)/python" -m pytest -q -m slow

gpu: $(STAMP)
	"$(BIN)/python" -m pytest -q -m gpu

bench: $(STAMP)
	"$(BIN)/python" benchmarks/loop.py
	"$(BIN)/python" benchmarks/toolchain_speed.py
	"$(BIN)/python" benchmarks/emulator_speed.py

installs: $(STAMP)
	"$(BIN)/python" -m pytest -q -m slow tests/test_installs.py

clean:
	rm -rf build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache
