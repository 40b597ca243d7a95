# The two commands that matter: `make lab` opens the book, `make test` proves it.
# Each sets up everything it needs in .venv; with another Python: make PYTHON=python3.12 lab

PYTHON ?= python3
VENV   := .venv
PY     := $(VENV)/bin/python
CH     ?=

.DEFAULT_GOAL := help
.PHONY: help lab test test-slow dearest test-newest test-oldest test-lock site pdf epub site-instructor rehearsal exercises run sft-runs runs critic-runs kl-runs distillation speedrun field silent-failures lunar-lander pipeline gpu-runs chapters format lint lock bench clean FORCE

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

# ---------------------------------------------------------------- the environment
# A stamp is written last, so an interrupted install is taken up again. It holds the folder's path:
# a folder that was moved is set up anew, since an environment does not survive a move.

READY     := $(VENV)/ready
READY_DEV := $(VENV)/ready-dev
# JupyterLab would ask the reader about news, and ask its makers for updates. `publishing.reading`
# brings the book's looks, saves by itself, and leaves no trace of what was only run.
NEWS      := @jupyterlab/apputils-extension:announcements
# nbgrader is here for a test and for `make exercises`; its menus are not for readers.
NBGRADER  := @jupyter/nbgrader

ifneq ("$(shell cat $(READY) 2>/dev/null)","$(CURDIR)")
$(READY): FORCE
FORCE:
endif

$(READY): requirements.txt pyproject.toml Makefile
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "This book needs Python 3.11 or newer, and '$(PYTHON)' is not one, or does not run. Name one:" \
	       "make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "'$(PYTHON)' cannot make virtual environments." \
	       "On Debian and Ubuntu: apt install python3-venv"; exit 1; }
	@echo "Setting up $(VENV): some GB and minutes, the first time only."
	@test "$$(cat $(VENV)/folder 2>/dev/null)" = "$(CURDIR)" && $(PY) -m pip --version >/dev/null 2>&1 \
	  || { $(PYTHON) -m venv --clear $(VENV) && printf '%s' "$(CURDIR)" > $(VENV)/folder; }
	@echo "  installing requirements.txt"
	@$(PY) -m pip install --quiet --disable-pip-version-check --requirement requirements.txt
	@echo "  installing nbcourse"
	@$(PY) -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	@$(PY) -m jupyter labextension disable $(NEWS) >/dev/null 2>&1
	@$(PY) -m nbcourse.publishing.reading >/dev/null
	@printf '%s' "$(CURDIR)" > $@

$(READY_DEV): requirements-dev.txt $(READY)
	@echo "  installing requirements-dev.txt"
	@$(PY) -m pip install --quiet --disable-pip-version-check --requirement requirements-dev.txt
	@$(PY) -m jupyter labextension disable $(NBGRADER) >/dev/null 2>&1
	@touch $@

# ---------------------------------------------------------------- read

LAB_OPTIONS := --log-level=WARN --KernelManager.transport_encryption=auto \
  --LabApp.default_url=/lab/tree/book/00-start-here.ipynb
ifeq ($(shell id -u),0)
LAB_OPTIONS += --allow-root
endif

# Trusting our own notebooks lets their explorers move before anything is run.
lab: $(READY)  ## set everything up and open the book in JupyterLab
	@$(PY) -m jupyter trust book/*.ipynb >/dev/null
	$(PY) -m jupyterlab $(LAB_OPTIONS)

site: $(READY)  ## build the web pages in _build/html
	@$(PY) -m nbcourse site

pdf: site  ## print the book and each chapter into _build/pdf: minutes; needs Chromium or Chrome
	@$(PY) -m nbcourse pdf

epub: site  ## bind the book for e-readers: _build/book.epub
	@$(PY) -m nbcourse epub

site-instructor: $(READY)  ## the same with solutions, in _instructor/_build/html: not for students
	@$(PY) -m nbcourse site --solutions

run: $(READY)  ## run a chapter without a browser: make run CH=1
	@$(PY) -m nbcourse run "$(CH)"

# The models that chapters 8 to 10 start from. They are kept in the repository, half a megabyte each.
sft-runs: $(READY)  ## make anew the models that chapters 8 to 10 start from: a minute
	OMP_NUM_THREADS=1 $(PY) -m nbcourse train arithmetic-sft --out book/runs/arithmetic-sft-seed0
	OMP_NUM_THREADS=1 $(PY) -m nbcourse train arithmetic-sft --set warm_start.steps=400 \
	  --set warm_start.careless_steps=100 --out book/runs/arithmetic-sft-careless-seed0

# The recorded runs that chapter 10 draws, with the warm start that the recipes had when they were
# recorded. A run that was interrupted is taken up again.
FAMILY := reinforce rloo ppo grpo dr-grpo dapo
runs: $(READY)  ## train the recorded comparison of chapter 10 again: ten minutes
	@for seed in 0 1 2; do for name in $(FAMILY); do \
	  OMP_NUM_THREADS=1 $(PY) -m nbcourse train arithmetic-$$name --set seed=$$seed \
	    --set evaluation.every=2 --set warm_start.steps=500 --out book/runs/arithmetic-family/$$name-seed$$seed --resume || exit 1; done; done

# The recorded study of chapter 8: what decides how much a critic explains.
critic-runs: $(READY)  ## train the recorded study of chapter 8 again: a quarter of an hour
	OMP_NUM_THREADS=1 $(PY) -m book.studies.critic_study arithmetic-critic \
	  book/runs/critic-study/arithmetic --seeds 3

# The ablations of chapter 12: every form of the KL where the optimum is known, as recorded, and on
# arithmetic the freezing crossed with the clip. A run that was interrupted is taken up again.
FORMS := frozen recomputed frozen-unclipped recomputed-unclipped
kl-runs: $(READY)  ## train the ablations of chapter 12 again: half an hour
	OMP_NUM_THREADS=1 $(PY) -m book.studies.kl_sequences book/runs/kl-sequences
	@for seed in 0 1 2; do for name in $(FORMS); do \
	  OMP_NUM_THREADS=1 $(PY) -m nbcourse train kl-$$name --set seed=$$seed \
	    --out book/runs/kl-arithmetic/$$name-seed$$seed --resume || exit 1; done; done

# A student of arithmetic by GRPO, and by a teacher's log-probs with discount zero and one.
distillation: $(READY)  ## train the distillation of chapter 12 again: twenty minutes
	OMP_NUM_THREADS=1 $(PY) -m book.studies.distillation book/runs/distillation

# From the start of the process to a model that is better on the whole test of GSM8K, and the number
# that says so: the rules are in book/runs/speedrun/README.md.
SEED := 0
speedrun: $(READY)  ## +5 points on GSM8K by the clock, on one GPU: three seeds are an entry
	$(PY) -m book.studies.speedrun gsm8k-qwen2.5-coder-0.5b-grpo --set seed=$(SEED) \
	  --out book/runs/speedrun/qwen2.5-coder-0.5b-seed$(SEED)

# What `nbcourse examine` says of the losses of TRL, torchrl and polgrad, as far as they are installed
# (the extra `peers`), in the versions that are.
field: $(READY_DEV)  ## examine the losses of other libraries anew: minutes
	OMP_NUM_THREADS=1 $(PY) -m book.studies.field book/runs/field

# Forty-two faults with three seeds each and thirty healthy runs, as logs in an order that says
# nothing, and how many of them `nbcourse diagnose` names. What is in the folder already has a score:
# other seeds make another benchmark.
BENCHMARK := book/runs/silent-failures-fresh
FIRST     := 2000
silent-failures: $(READY)  ## record the benchmark of silent failures anew and score it: ten minutes
	OMP_NUM_THREADS=1 $(PY) -m book.studies.silent_failures record $(BENCHMARK) --seed $(FIRST)
	$(PY) -m book.studies.silent_failures score $(BENCHMARK)

# A base model from nothing, four algorithms that go on from it, and what they are worth: SIZE is
# tiny (chapter 14, an hour or two of CPU), small or large (a GPU). Whatever was interrupted is taken
# up again. For a try in seconds, BASE, RL and ASK change the recipes and the evaluation.
SIZE  := tiny
SEEDS := 0 1 2
ALGORITHMS := reinforce rloo ppo grpo
BASE  :=
RL    :=
ASK   := --problems 1000 --samples 4
RUNS  := runs
PIPELINE = word-problems-$(SIZE)
pipeline: $(READY)  ## chapters 14 and 15: base model, four algorithms, evaluation; make pipeline SIZE=tiny
	$(PY) -m nbcourse train $(PIPELINE)-base $(BASE) --resume \
	  --out $(RUNS)/$(PIPELINE)-base-seed0
	@for seed in $(SEEDS); do for name in $(ALGORITHMS); do \
	  run=$(RUNS)/$(PIPELINE)-$$name-seed$$seed; \
	  $(PY) -m nbcourse train $(PIPELINE)-$$name $(RL) --set seed=$$seed \
	    --set model.source=$(RUNS)/$(PIPELINE)-base-seed0/model --out $$run --resume || exit 1; \
	  test -f $$run/evaluation-word-problems-validation.json \
	    || $(PY) -m nbcourse evaluate $$run $(ASK) || exit 1; done; done

# The checkpoint is fetched from the hub, and so is GSM8K where NBCOURSE_GSM8K names no folder.
QWEN       := gsm8k-qwen2.5-0.5b
CHECKPOINT := Qwen/Qwen2.5-0.5B-Instruct
gpu-runs: $(READY)  ## chapter 15: the large pipeline, and GSM8K from a checkpoint, on one GPU
	@$(MAKE) pipeline SIZE=large
	@for name in $(ALGORITHMS); do run=$(RUNS)/$(QWEN)-$$name-seed0; \
	  $(PY) -m nbcourse train $(QWEN)-$$name $(RL) --set model.source=$(CHECKPOINT) \
	    --out $$run --resume || exit 1; \
	  test -f $$run/evaluation-gsm8k-test.json \
	    || $(PY) -m nbcourse evaluate $$run --final || exit 1; done

lunar-lander: $(READY)  ## train the recorded LunarLander runs of chapter 6 again: ten minutes
	@for seed in 0 1 2; do OMP_NUM_THREADS=1 $(PY) -m book.studies.lunar_lander \
	  book/runs/lunar-lander/seed$$seed --seed $$seed || exit 1; done

# ---------------------------------------------------------------- write and check

chapters: $(READY)  ## book/text → notebooks, run and stored; only one: make chapters CH=1
	@$(PY) -m nbcourse twins --to-notebook $(CH)
	@for chapter in $(or $(CH),$(patsubst book/text/%.md,%,$(wildcard book/text/*.md))); do \
	  $(PY) -m nbcourse run --write $$chapter || exit 1; done

# One thread per process: two workers with two threads each only get in each other's way. A worker for
# each core, up to four; each takes a file at a time, in the order of tests/conftest.py: what takes long
# comes first.
PYTEST := OMP_NUM_THREADS=1 $(PY) -m pytest --numprocesses auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder
test: $(READY_DEV)  ## set everything up and run all tests, every cell of the book included
	$(PYTEST)

test-slow: $(READY_DEV)  ## all cases of the sweeps that `make test` samples: faults, mutations, examples
	$(PYTEST) -m "sweep or hypothesis" --hypothesis-profile thorough

dearest: $(READY_DEV)  ## run all tests, and print which take longest: the table of CONTRIBUTING.md
	$(PYTEST) --quiet --junitxml=_build/tests.xml
	@$(PY) -m tests.dearest _build/tests.xml

# Twenty invented students, some of them hostile, and then a Canvas class and a Moodle class of
# thirty, by the commands of appendix D: what each hands in is in tests/classroom.
REHEARSAL := _build/rehearsal
rehearsal: $(READY)  ## release a sheet to invented classes, and grade what comes back: minutes
	@$(PY) -m tests.classroom.rehearsal $(REHEARSAL)
	@$(PY) -m nbcourse grade $(REHEARSAL)/submissions --assignment 2 --personal --seconds 10 \
	  --class-list $(REHEARSAL)/class.csv --out $(REHEARSAL)/graded
	@$(PY) -m tests.classroom.two_classes $(REHEARSAL)/classes

exercises: $(READY_DEV)  ## solutions/text → masters and students' notebooks
	@$(PY) -m nbcourse exercises

format: $(READY_DEV)  ## format the code, and repair what the linter can
	@$(PY) -m ruff format .
	@$(PY) -m ruff check --fix .

lint: $(READY_DEV)  ## check format, style and types without changing anything
	@$(PY) -m ruff format --check .
	@$(PY) -m ruff check .
	@$(PY) -m mypy nbcourse book/studies

# Both ends of the ranges of pyproject.toml: an environment of its own, made by uv, and the tests that
# need the core, lm and agents. torch is the locked one, since a build for a GPU takes gigabytes; for
# the oldest, where a build for the CPU is to be had: make test-oldest TORCH=2.6.0+cpu
# torch comes first and by itself: of 2.13.0 and 2.13.0+cpu, the lowest is the one for a GPU. uv reads
# its own variables, and where pip finds wheels is said once.
LINKS  = $(if $(PIP_FIND_LINKS),UV_FIND_LINKS=$(PIP_FIND_LINKS))
TORCH  = $(shell sed -n 's/^torch==//p' requirements.txt)
ROOMS := tests/functional tests/toys tests/lm tests/training book/07-language-model.ipynb
TOOLS := hypothesis ipykernel ipython matplotlib nbval pip pytest pytest-xdist
define TEST_RANGES
	$(UV) venv --quiet --clear --python $(PYTHON) _build/$@
	$(LINKS) $(UV) pip install --quiet --python _build/$@ torch==$(TORCH)
	$(UV) pip freeze --quiet --python _build/$@ | grep '^torch==' > _build/$@/torch.txt
	$(LINKS) $(UV) pip install --quiet --python _build/$@ --resolution $(1) --constraints _build/$@/torch.txt --editable '.[lm,agents]'
	$(UV) pip freeze --quiet --python _build/$@ --exclude-editable > _build/$@/resolved.txt
	$(UV) pip install --quiet --python _build/$@ --constraints _build/$@/resolved.txt $(TOOLS)
	OMP_NUM_THREADS=1 _build/$@/bin/python -m pytest --numprocesses auto --maxprocesses 4 --dist loadfile $(ROOMS)
endef
test-newest:  ## the tests of five rooms with the newest versions that pyproject.toml admits: minutes
	$(call TEST_RANGES,highest)

test-oldest:  ## the same with the oldest
	$(call TEST_RANGES,lowest-direct)

# The header of each file is written by hand and kept. So are its versions, as far as the ranges of
# pyproject.toml allow: for a newer one, make lock UPGRADE="--upgrade-package torch".
UV      ?= uv
UPGRADE :=
LOCK     = grep '^\#' $(1) > $(1).new && \
  $(UV) pip compile pyproject.toml --universal --python-version 3.11 --no-python-downloads --quiet \
    --no-header --no-annotate $(UPGRADE) $(2) --output-file $(1) && cat $(1) >> $(1).new && mv $(1).new $(1)
lock:  ## pyproject.toml → requirements.txt and requirements-dev.txt, by uv
	@$(call LOCK,requirements-dev.txt,--extra agents --extra dev)
	@$(call LOCK,requirements.txt,--constraints requirements-dev.txt \
	  --extra lm --extra agents --extra lunar-lander --extra book --extra classroom)

# The oldest macOS for which torch has wheels is 14.
PYTHONS   := 3.11 3.12 3.13 3.14
PLATFORMS := x86_64-manylinux_2_28 aarch64-manylinux_2_28 aarch64-apple-darwin x86_64-pc-windows-msvc
test-lock:  ## is there a wheel of every locked package for each Python and platform? minutes
	@for lock in requirements.txt requirements-dev.txt; do for python in $(PYTHONS); do \
	  for platform in $(PLATFORMS); do echo "$$lock, Python $$python, $$platform"; \
	    MACOSX_DEPLOYMENT_TARGET=14.0 $(UV) pip compile $$lock --quiet --no-deps --only-binary :all: \
	      --no-python-downloads --python-version $$python --python-platform $$platform > /dev/null \
	      || exit 1; done; done; done

bench: $(READY_DEV)  ## compare with other libraries, printed as ratios
	@for script in benchmarks/[a-z]*.py; do $(PY) $$script || exit 1; done

clean:  ## remove everything that these commands made, .venv included
	rm -rf $(VENV) _build _instructor nbcourse.egg-info .pytest_cache .ruff_cache .mypy_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
