# Two commands do everything on a fresh Debian or Ubuntu: `make run` and `make test`.
# Each installs what it needs first (scripts/setup says what, and skips what is there).

SHELL := /bin/bash
# As scripts/path.sh.
home = $(or $(HOME),$(shell getent passwd "$$(id -u)" | cut -d: -f6))
export PATH := $(or $(CARGO_HOME),$(home)/.cargo)/bin:$(PATH)

PREFIX ?= /usr/local
DESTDIR ?=
CARGO ?= cargo
TARGET := $(or $(CARGO_TARGET_DIR),target)
# How `make build` compiles; `test` takes what the tests have compiled.
PROFILE ?= release
# What `make build` gives cargo to build.
SELECTION ?= --package mangrove-db-cli --package mangrove-capi --package mangrove-app --package mangrove-leveldb
BUILT = $(TARGET)/$(if $(filter dev test,$(PROFILE)),debug,$(PROFILE))
MANGROVE = $(TARGET)/release/mangrove
# The state that `make redis` serves, and where. What it fetches and builds lies in data/valkey.
REDIS_DIR ?= data/redis
REDIS_PORT ?= 6379

# Cargo's configuration may name another directory, where nothing here would look.
run redis redis-update build bench install clean: export CARGO_TARGET_DIR := $(TARGET)

.PHONY: help run redis redis-update test build bench install uninstall clean

help:
	@echo 'make run      build, then kill a loader, transactions and an SQLite database, and show that nothing is lost'
	@echo 'make redis    fetch and build Valkey, then serve Redis clients on port $(REDIS_PORT) from $(REDIS_DIR)'
	@echo 'make redis-update  build the newest Valkey, and bring the state in $(REDIS_DIR) to it'
	@echo 'make test     every test, and a slice of each proof (crash simulator, SIGKILL, fuzzing)'
	@echo 'make build    build the mangrove command and the C libraries'
	@echo 'make bench    measure; figures and tables go to bench-out'
	@echo 'make install  install the command, the C libraries and their headers in PREFIX=$(PREFIX)'
	@echo 'make uninstall  remove from PREFIX what make install put there, but for builds that a state may need'
	@echo 'make clean    remove what can be built or measured again, and tell what stays'

run:
	@scripts/setup run
	$(CARGO) build --release --package mangrove-db-cli --package mangrove-app
	@# Without a C compiler or SQLite's headers the tour leaves a chapter out, and says so.
	@examples/sqlite/build "$(TARGET)/release" "$(TARGET)/release/mangrove-sqlite" || true
	"$(MANGROVE)" demo --dir data

# By the environment, as for `install`.
redis redis-update: export REDIS_DIR := $(REDIS_DIR)

redis:
	@scripts/setup redis
	$(CARGO) build --release --package mangrove-db-cli --package mangrove-redis
	@CARGO='$(CARGO)' crates/redis/scripts/ready data/valkey
	exec "$(MANGROVE)" redis --dir "$${REDIS_DIR/#~\//$$HOME/}" --port $(REDIS_PORT)

redis-update:
	@scripts/setup redis
	$(CARGO) build --release --package mangrove-db-cli --package mangrove-redis
	@CARGO='$(CARGO)' crates/redis/scripts/ready data/valkey --newest
	"$(MANGROVE)" redis update --dir "$${REDIS_DIR/#~\//$$HOME/}"

# Everything is compiled once, with the features and assertions that the tests need, for one run: not incrementally, and
# without tables of lines. (A panic names its line without them.) Four units a crate take an eighth less processor time
# than sixteen, and a sixth less if they are not optimised together. Whatever else the steps build takes what is there.
test: export CARGO_INCREMENTAL = 0
test: export CARGO_PROFILE_TEST_CODEGEN_UNITS = 4
test: export CARGO_PROFILE_TEST_LTO = off
test: export CARGO_PROFILE_DEV_DEBUG = 0
test: export CARGO_PROFILE_TEST_DEBUG = 0
test: export MANGROVE_TEST_WHOLE = 1
test:
	@scripts/setup test
	$(CARGO) build --profile test --lib --bins --tests
	"$(TARGET)/debug/xtask" ci

build:
	@scripts/setup build
	$(CARGO) build --profile $(PROFILE) $(SELECTION)

bench:
	@scripts/setup bench
	$(CARGO) build --release --package mangrove-db-cli
	$(CARGO) build --release --package mangrove-bench-cli --features peers
	$(CARGO) build --release --package mangrove-capi --package mangrove-app --package mangrove-leveldb
	@python/run bench
	@CARGO='$(CARGO)' crates/redis/scripts/ready data/valkey
	@crates/redis/scripts/stock data/valkey
	"$(MANGROVE)" bench map --all
	"$(MANGROVE)" bench durable
	"$(MANGROVE)" bench leveldb
	"$(MANGROVE)" bench python --python "$(TARGET)/python/bench/bin/python"
	"$(MANGROVE)" bench redis
	"$(MANGROVE)" bench txn

# By the environment: in the text of a recipe, the shell would split a directory with a space, and replace a ~ only at
# the beginning of a word.
install uninstall: export PREFIX := $(PREFIX)
install uninstall: export DESTDIR := $(DESTDIR)
install: export BUILT := $(BUILT)

install: build
	scripts/install-command.sh "$$PREFIX" "$$BUILT"
	CARGO='$(CARGO)' scripts/install.sh "$$PREFIX" "$$BUILT"

uninstall:
	scripts/uninstall.sh "$$PREFIX"

clean:
	$(CARGO) clean
	rm -rf bench-out bench-pools
	@# A demo's pools have its mark (crates/cli/src/demo/pools.rs).
	@for pool in data/demo.pool data/demo.heap data/demo.sqlite; do \
	    if [ -f $$pool/made-by-mangrove-demo ]; then rm -rf $$pool; fi; \
	done
	@if [ -d data ] && ! rmdir data 2>/dev/null; then \
	    echo "in data stay:" $$(ls -A data); \
	    echo "(they may be states, and builds without which a state, wherever it lies, cannot be opened)"; \
	    echo "to remove them for ever: rm -rf '$(CURDIR)/data'"; \
	fi
