# SPDX-License-Identifier: MIT
# PYTHON=/path/to/python chooses the interpreter, 3.10 to 3.13.
.DEFAULT_GOAL := help
.PHONY: help demo test test-go test-python test-skipped test-bare test-steady test-race test-rdma soak bench bench-fabric bench-once lint generate kernels examples gpu-bundle wheel docs dev dev-torch clean

PY := .venv/bin/python
GO := $(PY) tools/gotool.py
# The provider "ofi" is built and tested where libfabric's headers are.
TAGS := $(if $(wildcard /usr/include/rdma/fabric.h),-tags ofi)
# Separate modules: providers outside of this module.
EXAMPLE := tests/go/example
# The slowest packages, which start first.
LONG := ./tests/go/reliability ./core/provider/tcp ./shmem ./ep ./core/provider/verbs ./io
GO_DIRS := $(wildcard core io shmem ep native pybind tests tools)
# The packages with benchmarks: the others need no test program.
BENCHMARKS = $(addprefix ./,$(sort $(dir $(shell grep -rl '^func Benchmark' --include=*_test.go $(GO_DIRS)))))
# make lint runs go vet. Test programs without symbol tables and DWARF link in half the time.
GO_TEST := test -vet=off -ldflags='-s -w'
ARGS ?=

help: ## show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 12

demo: dev ## move a paged KV cache between two processes; ARGS="--path tcp" and so on
	@$(PY) -m mori demo $(ARGS)

test: dev ## all tests, Go and Python; TORCH=0 leaves out PyTorch (2.3 GB to download) and the tests with it
	@$(PY) tools/run_tests.py --torch --first "$(LONG)" $(ARGS)

test-go: dev # the Go tests; ARGS="-run TestCancel ./io" and so on
	@$(PY) tools/run_tests.py --only go -- $(ARGS)

test-python: dev-torch # the Python tests in several processes; ARGS="-n 0" and so on
	@$(PY) tools/run_tests.py --only python -- $(ARGS)

test-skipped: dev-torch # the Python tests that the last run skipped: what they missed may be here now
	@$(PY) tools/run_tests.py --skipped

test-bare: # make demo and make test in a fresh clone, on a machine that has only what README.md lists; as root
	tests/bare/run $(ARGS)

test-race: dev ## the Go tests under the race detector, in random order
	$(GO) $(GO_TEST) $(TAGS) -race -shuffle=on -count=1 $(ARGS) $(LONG) ./...

test-steady: dev ## each test many times beside busy processes, and a table of what was not green: RUNS=30 LOAD=2, WHAT="./io tests/python/io"
	@$(PY) tools/steady.py --runs $(or $(RUNS),30) --load $(or $(LOAD),2) --json build/steady/table.json $(ARGS) $(WHAT)

test-rdma: dev ## all that needs RDMA: on this host's devices, or on soft-RoCE in a VM; ARGS="--only 'write-*'" and so on
	@$(PY) tests/rdma/run $(ARGS)

soak: ## ten minutes of random transfers, cuts, loss, stops and kills, every byte checked; SOAK=1h for longer
	MORI_SOAK=$(or $(SOAK),10m) $(GO) test -count=1 -timeout 0 -v -run TestSoak ./tests/go/reliability

bench: dev ## speed of mori.io beside the raw limits of this machine; WHAT=shmem or WHAT=ep for the others
	@$(PY) -m mori bench $(or $(WHAT),io) $(ARGS)

bench-fabric: ## messages between two processes beside libfabric's fi_pingpong, where that is installed
	$(GO) test -run '^$$' -bench PingPong -benchtime=300ms ./core/provider/tcp ./core/provider/shm

bench-once: dev ## every Go benchmark for one round, to see that it still runs
	$(GO) $(GO_TEST) -run '^$$' -bench . -benchtime=1x $(BENCHMARKS)

lint: dev ## gofmt, go vet, staticcheck, ruff, mypy, Markdown, retired words
	@gofmt -d $(GO_DIRS) | tee build/log/gofmt.diff; test ! -s build/log/gofmt.diff
	@# With -trimpath, vet could read cgo's output of another tree, whose sources may be gone by now.
	$(GO) vet -trimpath=false $(TAGS) ./...
	cd $(EXAMPLE) && go vet ./...
	$(GO) tool staticcheck $(TAGS) ./...
	go test -count=1 ./tests/go -run 'Structure|Import|Know|Format'
	$(PY) -m ruff check .
	$(PY) -m mypy
	$(PY) tools/markdown.py
	$(PY) tools/words.py python tools tests

generate: ## write the files that are made from others: type stubs, version, layouts shared with kernels
	go run ./tools/stubgen
	go run ./tools/abigen

kernels: ## compile the GPU kernels of native/kernels for NVIDIA and AMD; wants clang-19 and lld-19
	@python=$$(PYTHON="$(PYTHON)" tools/find-python) && $$python tools/kernels.py

examples: ## build the C++ programs of native/examples into build/examples; their kernels for GPUs want clang-19 and lld-19
	@python=$$(PYTHON="$(PYTHON)" tools/find-python) && $$python tools/examples.py $(ARGS)

gpu-bundle: ## build what tests/gpu/run takes along to a machine with GPUs and no Go; GPU_PYTHON=python3.12 is that machine's
	@python=$$(PYTHON="$(PYTHON)" tools/find-python) && $$python tools/gpu_bundle.py $(if $(GPU_PYTHON),--python $(GPU_PYTHON))

docs: dev ## build the documentation site in build/site; a dead link fails
	@$(PY) -m pip install --quiet --disable-pip-version-check -r requirements-docs.txt
	$(PY) tools/docs_reference.py --check
	$(PY) -m mkdocs build --strict --quiet

wheel: dev ## build dist/mori-*.whl for the Python of .venv
	@rm -rf build/lib* build/bdist*
	$(PY) -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .
	@ls dist

dev: ## make .venv, in which "import mori" runs this tree
	@python=$$(PYTHON="$(PYTHON)" tools/find-python) && $$python tools/dev.py

dev-torch: # and PyTorch in it, unless TORCH=0
	@python=$$(PYTHON="$(PYTHON)" tools/find-python) && $$python tools/dev.py --torch

clean: ## remove everything that was built, .venv included
	rm -rf build dist .venv python/*.egg-info python/mori/_native/*.so
