# Short names for what the project does. Each target installs what it needs.
.PHONY: all build demo demo-mnist test test-nic soak bench bench-peers lint fuzz property sim model differential kills mutants docs install uninstall deb deb-test wheel test-pip arm64 release-check clean help

all: build

build: ## Compile everything into build/
	@scripts/setup.sh build test
	@scripts/configure.sh build --buildtype=release
	@ninja -C build

demo: ## Train on real data through a server on a port of its own: DATA=file for your own data, STORE=hdfs|s3 for checkpoints in such a store, NODES=n for a cluster, LOSE=1 to lose one of its nodes for good, REPLICATION=2 with copies then, TIMELINE=file for a timeline of it, RECORD=file.mrp for a report of it
	@STORE=$(STORE) NODES=$(NODES) LOSE=$(LOSE) REPLICATION=$(REPLICATION) TIMELINE="$(TIMELINE)" RECORD="$(RECORD)" scripts/demo.sh $(if $(DATA),"$(DATA)")

demo-mnist: ## Train torch's MNIST network on a server through remote calls: TRAINERS=n (default 2); KILL=1: killed in the middle
	@KILL=$(KILL) scripts/demo-mnist.sh $(TRAINERS)

test: ## The tests, also under the sanitizers: what CI runs; QUICK=1: for release only; STRESS=n: tests that have changed, n times on busy CPUs
	@scripts/test.sh $(if $(QUICK),--quick) $(if $(STRESS),--stress $(STRESS))

test-nic: ## A node on emulated PCI NICs in a guest: ONLY="e1000e igb"; needs root; a part of make soak
	@scripts/nic.sh $(ONLY)

soak: ## Every test for release and under the sanitizers, with long simulations, mutants and kills; before a release, two hours
	@scripts/soak.sh

bench: ## Benchmarks as ratios against raw limits: ONLY="parts or rows" ROUNDS=n NOISE=1; writes build/bench/results.json and .md
	@scripts/bench.sh $(patsubst %,--only '%',$(ONLY)) $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(NOISE),--noise)

bench-peers: ## Beside PyTorch RPC, gRPC and Redis; writes build/bench/peers.json, .md and .svg; TORCH2=1: PyTorch 2 from PyPI, too
	@scripts/bench-peers.sh $(if $(TORCH2),--torch2)

lint: ## clang-format, shellcheck, duplicate names, cppcheck, clang-tidy
	@scripts/lint.sh

fuzz: ## Run every fuzzer under libFuzzer for SECONDS_EACH (default 60)
	@scripts/fuzz.sh $(or $(SECONDS_EACH),60)

sim: build ## Simulate SEEDS seeds of the transport, and of references, under faults (default 10000), a tenth as many of checkpoints, and ten times as many of clusters
	@build/tests/sim/sim --seeds $(or $(SEEDS),10000)
	@build/tests/sim_references/sim_references --seeds $(or $(SEEDS),10000)
	@build/tests/sim/cluster/cluster --seeds $$((10 * $(or $(SEEDS),10000)))
	@build/tests/sim/cuts/cuts --seeds $$((($(or $(SEEDS),10000) + 9) / 10))

model: ## Check what threads do without a lock with GenMC, under weak memory models: ONLY="ring waiter"; needs genmc in PATH or in GENMC
	@scripts/model.sh $(ONLY)

property: build ## Random calls on tables beside a plain model: OPERATIONS (default 10000000)
	@build/tests/property/table_property --operations $(or $(OPERATIONS),10000000)

differential: build ## A real node under random faults beside a plain model, for SECONDS (default 1800)
	@build/tests/differential/differential --seconds $(or $(SECONDS),1800) build/ps/millraced

kills: build ## Kill the server KILLS times (default 200) under training, to the same bits, and with the demo's load; full saves, deltas, a log
	@MILLRACE_KILLS=$(or $(KILLS),200) meson test -C build --no-rebuild --timeout-multiplier 20 --verbose integration/kills_full integration/kills_deltas integration/log

mutants: ## Break the code on purpose in many ways; tests must notice each. SAMPLE=n SEED=s: at n places drawn at random
	@scripts/setup.sh $(if $(SAMPLE),test,build)
	@scripts/mutants.sh $(if $(SAMPLE),--sample $(SAMPLE) $(if $(SEED),--seed $(SEED)))

docs: ## Check that the documentation's links and names are right
	@scripts/docs.sh

install: ## Install server, tools, library, headers, Python package, man pages and systemd unit below PREFIX (default /usr/local)
	@PREFIX="$(PREFIX)" DESTDIR="$(DESTDIR)" scripts/install.sh

uninstall: ## Remove what the last make install put there
	@PREFIX="$(PREFIX)" DESTDIR="$(DESTDIR)" scripts/install.sh --uninstall

deb: ## Build Debian packages of server, tools, library, Python package and documentation into build/deb
	@scripts/deb.sh

deb-test: deb ## Install the packages in a fresh Debian root, use them there, and remove them without a trace; needs root and the network
	@scripts/deb-test.sh

wheel: ## Build the Python package for pip into build/wheel: source distribution, and a manylinux wheel that carries library, server and tools
	@scripts/wheel.sh

test-pip: wheel ## Install the wheel as pip's users do, with numpy only and with torch 2 and TorchRec, in each Python from 3.9 on that is installed; TORCH=venv TORCHREC=venv: with those in there
	@scripts/test-pip.sh $(if $(TORCH),--torch "$(TORCH)") $(if $(TORCHREC),--torchrec "$(TORCHREC)")

release-check: ## What a release needs and CI does not: Debian 13 and sid, packages, wheel, arm64, soak; ONLY="parts"; needs root and the network
	@scripts/release-check.sh $(patsubst %,--only %,$(ONLY))

arm64: ## Build for arm64 with Debian's cross compilers, and run tests and demo in emulation: RELEASE="12 13"; needs root
	@scripts/arm64.sh $(RELEASE)

clean: ## Remove what was built
	@rm -rf build

help: ## This list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1\t\2/p' Makefile | expand -t 12
