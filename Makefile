PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PORT ?= 8420
WORKERS ?= $(shell $(PYTHON) -c "import os; print(min(4, 1 + (os.cpu_count() or 1)))")

# Tests start daemons as processes: what is compiled once is kept, whatever the environment says.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: run test check fix bench soak example screenshots clean

# Starts the daemon; installs first when needed.
run: $(VENV)/.installed
	$(BIN)/python -m gateway serve --port $(PORT)

# Installs and runs the tests, in four processes at most, one more than there are processors: many tests wait for something.
# Where a limit of time ran out, which a machine that stands still does by itself, a test is run once more, and named in the
# last lines; anything else fails at once.
test: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal --reruns 1 --only-rerun Timeout -rfER

# Everything that must hold before a commit, fast things first.
check: $(VENV)/.installed-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(BIN)/deptry .
	$(BIN)/basedpyright
	$(MAKE) test

fix: $(VENV)/.installed-dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(VENV)/.installed-dev
	$(BIN)/python -m tests.bench

# The long versions: 200 kills under load, 100 into the commits of compactions, 100 while jobs run and replies are
# delivered, a conversation of 500 turns in a small window, a thousand jobs and ten thousand resets at once, every bad
# summariser for ten generations over a whole daemon, a year with a restart at every hour, ten thousand memories imported.
soak: $(VENV)/.installed-dev
	$(BIN)/python -m tests.crash.kills --kills 200 --sessions 32
	$(BIN)/python -m tests.crash.kills --kills 100 --sessions 4 --commits
	$(BIN)/python -m tests.crash.job_kills --kills 100
	$(BIN)/python -m tests.bench.compaction_soak --turns 500
	$(BIN)/python -m tests.bench.job_load
	$(BIN)/python -m tests.bench.ending_load
	SOAK=1 $(BIN)/python -m pytest tests/journeys/test_summarisers.py tests/gateway/jobs/test_decisions.py \
		tests/crash/test_cleanup_kills.py tests/crash/test_memory_jobs.py tests/journeys/test_calendar_year.py \
		tests/journeys/test_engram_import.py

# Draws every page of the console with sample data into .screenshots.
screenshots: $(VENV)/.installed-dev
	$(BIN)/python -m tests.browser.screenshots

# Writes config.example.yaml anew from the settings.
example: $(VENV)/.installed
	$(BIN)/python -m gateway config-example > config.example.yaml

$(VENV)/bin/python:
	$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11) and \"sessiond needs Python 3.11 or newer; set PYTHON=\")"
	$(PYTHON) -c "import ensurepip" || { echo "$(PYTHON) cannot make environments; on Debian: apt-get install python3-venv" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable .
	touch $@

$(VENV)/.installed-dev: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[dev]"
	touch $@ $(VENV)/.installed

clean:
	rm -rf $(VENV) build *.egg-info .pytest_cache .ruff_cache .hypothesis .import_linter_cache
