# Every target that needs Python creates the virtual environment first, if there is none.
PYTHON ?= python3
VENV ?= .venv
JOBS ?=
SCALE ?= paper
BUDGET ?=
LAUNCHER ?= local
ITEMS ?=
OVERRIDES ?=
RECORD ?=
FRESH ?=
SEEDS ?=
NAME ?=
FILE ?=

RUN = $(VENV)/bin/python
PAPERS = $(subst _,-,$(patsubst runner/papers/%/__init__.py,%,$(sort $(wildcard runner/papers/*/__init__.py))))
OPTIONS = --scale=$(SCALE) --launcher=$(LAUNCHER) $(if $(JOBS),--jobs=$(JOBS)) $(if $(ITEMS),--items='$(ITEMS)') $(if $(BUDGET),--budget='$(BUDGET)') $(PLACE) $(OVERRIDES)
PLACE = $(if $(filter 1,$(RECORD)),--record) $(if $(filter 1,$(FRESH)),--fresh) $(if $(SEEDS),--seeds=$(SEEDS))
# Three processes, because some tests wait for processes of their own. A file of tests is always in one of them, so what
# a file computes once stays computed. They go in the order of the folders, in which no long file comes last.
PYTEST = $(RUN) -m pytest -q -n 3 --dist loadfile --no-loadscope-reorder

# Linters read the files that git tracks and none of your own; without git, all.
SOURCES = $(or $(wildcard $(shell git ls-files '*.py' 2>/dev/null)),runner checks tests)
PACKAGES = $(filter runner checks runner/% checks/%,$(SOURCES))

# A misspelt variable would be ignored, and a whole paper trained.
VARIABLES := PYTHON VENV JOBS SCALE BUDGET LAUNCHER ITEMS OVERRIDES RECORD FRESH SEEDS NAME FILE DATASET METHOD
TYPED = $(foreach name,$(.VARIABLES),$(if $(filter command,$(firstword $(origin $(name)))),$(name)))
UNKNOWN := $(filter-out $(VARIABLES),$(TYPED))
$(if $(UNKNOWN),$(error There is no variable $(UNKNOWN): `make help` lists them all))

FLAGGED := $(strip $(foreach name,RECORD FRESH,$(if $(filter-out 0 1,$($(name))),$(name)=$($(name)))))
$(if $(FLAGGED),$(error $(FLAGGED): write RECORD=1, FRESH=1, or neither))

.DEFAULT_GOAL := help
.PHONY: help plan pareto study new-paper demo check test lint format aggregate current leaderboard site site-check dashboard wandb-sync verify audit mutants faults cluster benchmark gpu clean
.SUFFIXES:

help: ## Explain every target
	@echo "make TARGET [VARIABLE=value ...]"
	@echo
	@grep -hE '^[a-z%-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z%-]+):.*## /\1\t/' | while IFS="	" read -r target text; do printf '  %-28s %s\n' "$$target" "$$text"; done
	@echo
	@echo "  PAPER is one of: $(PAPERS). Variables"
	@echo "  of reproduce- and plan- (JOBS and OVERRIDES also of demo):"
	@echo "    BUDGET=30m         start no run later, or known to end later (90s, 30m, 2h, 1h30m); then tables and figures"
	@echo "    JOBS=2             2 runs at a time, one CPU thread each (default: one a core, one a GPU); on a cluster tasks"
	@echo "    ITEMS=fig-3,table-3  only these tables and figures"
	@echo "    SEEDS=1            only the first seed of each setting"
	@echo "    FRESH=1            train all again, into results/fresh; by default what is missing goes to results/yours"
	@echo "    RECORD=1           into results/, which git tracks"
	@echo "    SCALE=smoke        minutes instead of days, on bundled data: never a reproduction"
	@echo "    LAUNCHER=slurm     local (default), slurm or ray carries them out; conf/launcher/ has their options, which"
	@echo "                       OVERRIDES='launcher.sbatch.partition=gpu launcher.gpus=1' sets"
	@echo "    OVERRIDES='runtime.device=cuda tracking=online'   how and where to run"
	@echo "  PYTHON=python3.12 chooses the Python (3.11 to 3.13) that the virtual environment is made with."

demo: $(VENV)/installed ## A reproduction in small (tempered-sigmoid): bundled data, a few minutes, ends with a table and figures
	$(RUN) -m runner reproduce tempered-sigmoid --scale smoke --seeds 1 $(if $(JOBS),--jobs=$(JOBS)) --items fig-4,table-1,theorem-1 $(OVERRIDES)

check: $(VENV)/installed lint ## Linters, types and the tests that have to notice planted faults: an answer in about a minute
	$(PYTEST) -m "not slow" $$($(RUN) -m checks mutants --tests)

test: $(VENV)/installed lint ## Linters, types and all tests
	$(PYTEST)

lint: $(VENV)/installed ## Linters, types, layers and English only
	@$(VENV)/bin/ruff check $(SOURCES)
	@$(VENV)/bin/ruff format --check $(SOURCES)
	@$(VENV)/bin/mypy $(PACKAGES)
	@copy=$$(mktemp -d) && tar -c pyproject.toml $(PACKAGES) | tar -x -C "$$copy" && linter=$$(realpath $(VENV)/bin/lint-imports) && \
	  (cd "$$copy" && "$$linter" --no-cache); code=$$?; rm -rf "$$copy"; exit $$code
	@$(RUN) -m checks style

format: $(VENV)/installed ## Format the code
	$(VENV)/bin/ruff format .
	$(VENV)/bin/ruff check --fix .

reproduce-%: $(VENV)/installed ## reproduce-PAPER: run what is not recorded yet, then make its tables and figures
	$(RUN) -m runner reproduce $* $(OPTIONS)

status-%: $(VENV)/installed ## status-PAPER: what is recorded, running (epoch and ε), queued, failed with why
	@$(RUN) -m runner reproduce $* --status $(OPTIONS)

plan: $(VENV)/installed ## A row a paper: runs, done, left, core-hours from nothing and left
	@$(RUN) -m runner reproduce --plan --scale=$(SCALE) $(PLACE) $(OVERRIDES)

plan-%: $(VENV)/installed ## plan-PAPER: runs done, runs left, time left on this machine
	@$(RUN) -m runner reproduce $* --plan $(OPTIONS)

pareto: $(VENV)/installed ## DATASET=mnist METHOD=tanh: its accuracy at five sound ε, with five seeds each and one figure
	$(RUN) -m runner pareto --dataset='$(DATASET)' --method='$(METHOD)' --scale=$(SCALE) --launcher=$(LAUNCHER) $(if $(JOBS),--jobs=$(JOBS)) $(PLACE) $(OVERRIDES)

study: $(VENV)/installed ## FILE=mine.yaml: compare your arms at the same sound ε (docs/extending.md), with JOBS, SCALE, LAUNCHER
	$(RUN) -m runner study '$(FILE)' --scale=$(SCALE) --launcher=$(LAUNCHER) $(if $(JOBS),--jobs=$(JOBS)) $(PLACE) $(OVERRIDES)

new-paper: $(VENV)/installed ## NAME=my_paper: write a paper to fill in, which runs as it is (docs/extending.md)
	$(RUN) -m runner new-paper '$(NAME)'

aggregate-%: $(VENV)/installed ## aggregate-PAPER: tables and figures from the records there are; trains nothing
	$(RUN) -m runner aggregate $* --scale $(SCALE) $(if $(ITEMS),--items '$(ITEMS)')

aggregate-studies: leaderboard

folders-%: $(VENV)/installed
	@$(RUN) -m runner aggregate $* --folders

aggregate: $(PAPERS:%=folders-%) ## The same of every paper, study and the leaderboard: claims of one may have runs of another
	@$(MAKE) --no-print-directory aggregate-studies

current: aggregate ## Fail if the committed tables are not those that the committed records give
	git diff --exit-code --stat -- README.md 'results/*.md' 'results/*.csv'

leaderboard: $(VENV)/installed ## All methods of all papers at the same sound ε, from the records there are
	$(RUN) -m runner leaderboard

site: $(VENV)/installed ## README, results and docs as a website without a network: site/index.html
	NO_MKDOCS_2_WARNING=1 $(RUN) -m mkdocs build --strict $(OVERRIDES)

site-check: site ## Every page in a headless Chromium (with the extra `browser`): menu, links, filters, four widths, dark mode
	$(RUN) -m checks browser

dashboard: $(VENV)/installed ## Workspaces in W&B (needs a login): charts and runs of every paper
	$(RUN) -m runner dashboard $(OVERRIDES)

wandb-sync: $(VENV)/installed ## Send the offline runs in wandb/ to W&B, each once (`wandb sync`)
	$(RUN) -m wandb sync --yes $(OVERRIDES)

verify: $(VENV)/installed ## What every record says of its privacy, computed again from its config alone
	$(RUN) -m runner verify

benchmark: $(VENV)/installed ## Speed of the clipping engines against ordinary training, on this machine
	$(RUN) -m checks benchmark $(OVERRIDES)

gpu: $(VENV)/installed ## In 9 minutes: does this GPU compute what the CPU does, how fast, and runs (OVERRIDES=--rehearse: without a GPU)
	$(RUN) -m checks gpu $(OVERRIDES)

audit: $(VENV)/installed ## Attacks on the private code: lower bounds on ε, next to the claimed and the sound ε
	$(RUN) -m checks audit $(OVERRIDES)

mutants: $(VENV)/installed ## Small faults in a copy of the code, one at a time: does a test notice each of them?
	$(RUN) -m checks mutants $(OVERRIDES)

faults: $(VENV)/installed ## Kill, stop and starve a command with many runs at random moments: is anything lost?
	$(RUN) -m checks faults $(OVERRIDES)

cluster: $(VENV)/installed ## A paper in small on a real Slurm and a real Ray of two nodes, with faults (needs their packages)
	$(RUN) -m checks cluster $(OVERRIDES)

clean: ## Remove the virtual environment, smoke results, the site and W&B's local files; records of papers stay
	rm -rf $(VENV) results/smoke results/failed results/.locks results/.hydra results/.launch site wandb

$(VENV)/installed: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' || \
	  { echo "Python 3.11 to 3.13 is needed, and '$(PYTHON)' is not: say PYTHON=python3.12, for example." >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)
	@echo "Installing PyTorch with CUDA and the other packages, about 6 GB (docs/running.md tells how to do without CUDA) ..."
	$(VENV)/bin/pip install --progress-bar=on --disable-pip-version-check --editable '.[dashboard,parallel,search,site,test]'
	@touch $@
