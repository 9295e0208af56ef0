# make TARGET PG_CONFIG=/path/to/pg_config chooses the PostgreSQL: the scripts read PG_CONFIG.
SHELL := /bin/bash

.PHONY: all help setup build install uninstall installcheck package test-package reproduce pgxn-zip \
    demo record psql clean-demo test matrix upgrades faults fuzz valgrind audit bench clean

all: build

help: ## list what there is
	@sed -nE 's/^([a-z-]+):[^#]*## /\1\t/p' Makefile | expand -t 14

setup: ## get what is missing to build and test
	scripts/setup

build: setup ## build the release; its files are then in target/package
	scripts/build

install: ## copy what was built to the PostgreSQL of PG_CONFIG, under DESTDIR, with sudo where that is needed
	scripts/install

uninstall: ## delete there what install copies
	scripts/install remove

installcheck: ## run SQL tests on a server that runs: PGHOST=... PGPORT=... PGUSER=...
	scripts/installcheck

package: setup ## make a Debian package and a tarball for this PostgreSQL, in target/dist
	scripts/package

test-package: setup ## install, use, upgrade, remove and purge the package in a clean Debian
	scripts/test-package

reproduce: setup ## build the packages a second time, in another folder, and compare the bytes
	scripts/reproduce

pgxn-zip: ## make the archive of the source for PGXN, in target/dist
	. scripts/common.sh && mkdir -p target/dist && \
	git archive --prefix="idgen-$$VERSION/" -o "target/dist/idgen-$$VERSION.zip" HEAD

demo: ## start a throw-away server and show idgen at work on it
	@scripts/demo

record: ## run the demo and keep what it prints: docs/demo.txt, and a picture of it
	scripts/record

psql: ## open psql on the demo server; ARGS="-c '...'" for more
	@scripts/demo psql $(ARGS)

clean-demo: ## stop the demo server and delete it
	scripts/demo clean

test: setup ## run every test
	scripts/test

matrix: setup ## run every test on each PostgreSQL from 15 to 18; VERSIONS="17 18" for some
	scripts/matrix $(VERSIONS)

upgrades: setup ## pg_upgrade from this PostgreSQL to 17 and 18, fetched for it; VERSIONS=18 for one
	scripts/test-upgrades $(VERSIONS)

faults: setup ## draw crashes, clock steps and failovers at random: ROUNDS=50 SEED=...
	ROUNDS=$(ROUNDS) SEED=$(SEED) scripts/faults

fuzz: setup ## give every input random values: CALLS=1000000 SEED=...
	CALLS=$(CALLS) SEED=$(SEED) scripts/fuzz

valgrind: build ## run SQL tests on a server under valgrind; ARGS="times forms" for others
	scripts/valgrind $(ARGS)

audit: ## check the crates it is made of: vulnerabilities, licences, sources
	scripts/audit $(ARGS)

bench: build ## measure it against what else makes keys: docs/performance.md; QUICK=1 for a look
	QUICK=$(QUICK) scripts/bench

clean: clean-demo ## delete everything that was built
	. scripts/common.sh && if [ -e target/servers ]; then as_root rm -rf --one-file-system target/servers; fi
	. scripts/common.sh && rm -rf target "$$HOUSE"
