# `make all` does the main job, `make test` the tests; `make help` lists the rest.
# Everything is installed into .venv, at the versions that constraints.txt names.

PYTHON ?= python3
COUNT ?= 40000
SEED ?= 0
FRESH_SEED ?= 1
WARP ?= package

VENV := .venv
BIN := $(VENV)/bin
OCR := $(BIN)/captcha-ocr
ACCURACY := accuracy$(patsubst %,-%,$(filter-out package,$(WARP)))

.PHONY: all demo generate prepare train eval accuracy pretrained test soak check clean help

all: generate prepare train eval  ## generate, prepare, train and eval; finished steps are skipped

generate: $(VENV)/installed  ## draw labelled captchas: COUNT to train on, with many 0 and O, 2,000 to validate, 5,000 to test
	$(OCR) generate --out data/images/train --count $(COUNT) --often 0O --seed $(SEED)
	$(OCR) generate --out data/images/val --count 2000 --start 10000000 --seed $(SEED) --quiet
	$(OCR) generate --out data/images/test --count 5000 --start 20000000 --seed $(SEED) --quiet

prepare: generate  ## turn data/images into shards in data/shards
	$(OCR) prepare

train: prepare  ## train on data/shards, leaving the best model in runs/default/best
	$(OCR) train --epochs 5

eval: train  ## read the sample images, then score 2,000 images drawn with another seed
	$(OCR) eval data/samples
	$(OCR) generate --renderer package --out data/fresh --count 2000 --seed $(FRESH_SEED) --quiet
	$(OCR) eval --labels data/fresh/labels.csv

DEMO := --charset digits --size 100x40 --font-sizes 28,32,36
demo: $(VENV)/installed  ## see it work in a minute: draw 2,000 small captchas of digits, train, read five new ones
	$(OCR) generate --out data/demo --count 2000 $(DEMO)
	$(OCR) prepare data/demo --out data/demo-shards --size 80x32
	$(OCR) train --data data/demo-shards --out runs/demo --epochs 16
	$(OCR) generate --out data/demo-new --count 5 --seed 1 $(DEMO) --quiet
	$(OCR) eval data/demo-new --model runs/demo

accuracy: $(VENV)/installed  ## the 15-minute recipe: draw 320,000, train, score 10,000 fresh ones; WARP=classic for the older drawing
	$(OCR) generate --out data/$(ACCURACY) --count 320000 --often 0O --seed 1000 --warp $(WARP)
	$(OCR) prepare data/$(ACCURACY) --out data/$(ACCURACY)-shards --preset accuracy --split 98/1/1
	$(OCR) train --preset accuracy --data data/$(ACCURACY)-shards --out runs/$(ACCURACY)
	$(OCR) generate --renderer package --out data/$(ACCURACY)-fresh --count 10000 --seed $(FRESH_SEED) --warp $(WARP) --quiet
	$(OCR) eval --model runs/$(ACCURACY) --labels data/$(ACCURACY)-fresh/labels.csv

pretrained: $(VENV)/installed-dev data/fonts/done  ## train the models in the package again, with npm and the fonts of docs/designs.md: a GPU, or days
	$(BIN)/python benchmarks/pretrained.py /usr/share/fonts data/fonts
	$(BIN)/python benchmarks/pretrained.py /usr/share/fonts data/fonts --model chinese

data/fonts/done: benchmarks/fonts.txt
	mkdir -p $(@D)
	cd $(@D) && xargs -n 20 npm pack --silent < $(CURDIR)/$<
	cd $(@D) && for file in *.tgz; do tar -xzf $$file --transform 's,.*/,,' --wildcards 'package/files/*-latin-[47]00-normal.woff'; done
	touch $@

test: $(VENV)/installed-dev  ## run the tests
	$(BIN)/python -m pytest --numprocesses auto --maxprocesses 4 --dist loadfile --cov --cov-report=term

soak: $(VENV)/installed-dev  ## run the tests of damage, kills, full disks and hostile files at full length: an hour
	$(BIN)/python -m pytest -q --soak tests/robustness tests/web tests/test_freezing.py

check: $(VENV)/installed-dev  ## check format, lint and types
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy

clean:  ## remove what make all and make demo made, but not .venv
	rm -rf data/images data/shards data/fresh runs/default data/demo data/demo-shards data/demo-new runs/demo

help:  ## list these targets
	@awk -F ':.*  ## ' '/^[a-z]+:.*  ## / { printf "%-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# Making a virtual environment again mends one that was interrupted, and leaves a whole one as it is.
$(VENV)/installed: pyproject.toml constraints.txt
	@echo "Installing into $(VENV), which takes some minutes"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --constraint constraints.txt --editable .
	touch $@

$(VENV)/installed-dev: $(VENV)/installed
	$(BIN)/python -m pip install --constraint constraints.txt --editable .[dev]
	touch $@
