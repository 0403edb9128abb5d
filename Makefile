# Leasehold: what a person does with it. Each target installs what it needs, or says what to install.
SHELL := bash
.DEFAULT_GOAL := help
RUN := cargo run --quiet --release --package leasehold-cli --
# Parts that do not link the wasm engine are tested with debug assertions, the rest without. Both in `release`, so that what
# both need of other crates is compiled once.
PURE := --package leasehold-abi --package leasehold-reclaim --package leasehold-kernel --package leasehold-reserve --package leasehold-pager --package leasehold-pager-linux --package leasehold-lease --package leasehold-crossing --package leasehold-door --package leasehold-exchange --package leasehold-io-thread --package leasehold-front --package leasehold-outgoing --package leasehold-confine --package leasehold-lockscope --package leasehold-locksite --package leasehold-keyvalue
CHECKED := $(foreach crate,$(filter-out --package,$(PURE)),$(foreach key,debug-assertions=true overflow-checks=true opt-level=1,--config profile.release.package.$(crate).$(key)))
# The tracer of LockScope: needs clang and libelf to build, root to run.
TRACER := --package leasehold-lockscope --features tracer
ENGINE := --package leasehold --package leasehold-slots --package leasehold-wasm --package leasehold-preempt --package leasehold-cell --package leasehold-node --package leasehold-attack --package leasehold-study --package leasehold-cli

.PHONY: page package bare docs help check-docs check-structure check clippy built-program built-tests built-engine lab test-lab setup guests demo test test-pure test-tracer test-engine loom miri asan bench study attack lint fuzz table5 applications interference separations pairs causes overhead clean

help: ## what can be made
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+):[^#]*## /  make \1\t/' | expand -t 22

setup:
	@scripts/setup

guests: setup ## build the guest programs, real and hostile
	@guests/build --only default

demo: guests ## kill guests here and in stock wasmtime: what it took, and what a neighbour felt
	@cargo build --release --package leasehold-cli
	@$(RUN) demo

test: test-pure test-tracer test-engine ## every test

test-pure: setup
	@echo cargo test --release $(PURE)
	@cargo test --release $(CHECKED) $(PURE)

test-tracer: setup ## LockScope's tracer on the running kernel (as root)
	@scripts/setup bpf
	@[ "$$(id -u)" = 0 ] || { echo "the tracer is tested as root only: sudo make test-tracer" >&2; exit 0; }; \
	  echo cargo test --release $(TRACER); cargo test --release $(CHECKED) $(TRACER)

# The program, with what its tests need of other crates: so that nothing is compiled twice.
built-program: guests
	cargo test --release $(ENGINE) --no-run --test help

# What `test-engine` runs.
built-tests:
	@scripts/setup browser || echo "the page of a node is not tested: a browser cannot be had"
	cargo test --release $(ENGINE) --no-run

built-engine: guests built-tests

test-engine: built-engine
	@scripts/test-engine --release $(ENGINE)

loom: setup ## model-check the places where two threads meet
	RUSTFLAGS="--cfg loom" cargo test --release --package leasehold-crossing --lib --target-dir target/loom

miri: setup ## run the unsafe code of the arena under Miri (needs a nightly toolchain)
	@scripts/setup nightly miri
	MIRIFLAGS="-Zmiri-strict-provenance" cargo +nightly miri test --package leasehold-reclaim --target-dir target/miri

# A program that a signal kills says so by its exit code there: the sanitizer has handlers of its own.
asan: setup ## run the other unsafe code under AddressSanitizer (needs a nightly toolchain)
	@scripts/setup nightly
	RUSTFLAGS="-Zsanitizer=address" cargo +nightly test --lib --tests --target x86_64-unknown-linux-gnu \
	  --package leasehold-reclaim --package leasehold-kernel --package leasehold-crossing \
	  --package leasehold-pager-linux --target-dir target/asan -- \
	  --skip an_access_that_is_denied_and_a_signal_that_is_not_ours_end_as_they_should

bench: setup ## costs of the data structures: create, free, end, decide, page
	cargo bench --package leasehold-reclaim --package leasehold-kernel --package leasehold-reserve --package leasehold-pager --package leasehold-pager-linux

package: guests ## packages below target/packages, and tests of them
	@scripts/package all
	@scripts/test-package

bare: ## build the pure crates for machines without an operating system, and those without the engine and without C for ARM
	@scripts/bare

study: guests ## every figure and table, in full; writes target/study/index.html
	@cargo build --release --package leasehold-cli
	@$(RUN) study all

attack: export ATTACK_FOR = $(FOR)
attack: guests ## search for programs that break a promise: make attack FOR=3600s (a minute unless told)
	@cargo build --release --package leasehold-cli
	@$(RUN) attack --for "$${ATTACK_FOR:-60s}"

check-docs: ## what the documents name exists: links, files, tests, commands, packages, studies
	@scripts/check-docs --self-test
	@scripts/check-docs

check-structure: ## no larger circles of files, and no more files with `unsafe`, than the script allows
	@scripts/check-structure --self-test
	@scripts/check-structure

page: ## build the page of a node from its sources (needs npm)
	@scripts/page

# In the profile in which all is tested, so that nothing is compiled for its documentation alone.
docs: export RUSTDOCFLAGS = -D warnings
docs: setup ## the documentation of the crates, with every link resolved
	@scripts/setup bpf clang
	cargo doc --no-deps --release $(TRACER)
	cargo doc --no-deps --release $(PURE)
	cargo doc --no-deps --release $(ENGINE)

lint: check clippy ## the documents, the structure, formatting and clippy, warnings denied

check: setup check-docs check-structure ## the part of `make lint` that compiles nothing
	cargo fmt --all --check
	cargo fmt --manifest-path fuzz/Cargo.toml --check
	@scripts/page --check
	@scripts/setup bpf clang
	scripts/bpf --check

clippy: setup ## the part of `make lint` that does
	@echo cargo clippy --release $(PURE)
	@cargo clippy --release $(CHECKED) $(PURE) --all-targets -- -D warnings
	@scripts/setup bpf
	@echo cargo clippy --release $(TRACER)
	@cargo clippy --release $(CHECKED) $(TRACER) --all-targets -- -D warnings
	cargo clippy --release $(ENGINE) --all-targets -- -D warnings
	cargo clippy --manifest-path fuzz/Cargo.toml --target-dir target --release --features engine -- -D warnings

fuzz: setup guests ## fuzz lease files, system calls, paging, the scheduler, traces and programs for a minute each (needs a nightly toolchain)
	@scripts/setup nightly fuzz
	mkdir -p fuzz/corpus/lease fuzz/corpus/program
	cd fuzz && cargo +nightly fuzz run lease corpus/lease seeds/lease -- -max_total_time=60
	cd fuzz && cargo +nightly fuzz run syscalls -- -max_total_time=60
	cd fuzz && cargo +nightly fuzz run paging -- -max_total_time=60
	cd fuzz && cargo +nightly fuzz run schedule -- -max_total_time=60
	cd fuzz && cargo +nightly fuzz run trace -- -max_total_time=60
	cd fuzz && cargo +nightly fuzz run --features engine program corpus/program ../target/guests -- -max_total_time=60

test-lab: setup ## check that the lab does what it says, LockScope's applications, and its full mode there (as root)
	@lab/test
	@lab/test-applications
	@scripts/setup bpf
	@lab/test-tracer

lab: export LAB_CMD = $(CMD)
lab: ## run a command under a stock kernel in emulation: make lab CMD='uname -r'
	@lab/run -- sh -c "$${LAB_CMD:?say what to run: make lab CMD=...}"

LOCKSCOPE_LAB := scripts/setup bpf && guests/build --only workload && \
	cargo build --release $(TRACER) --bins --examples && cargo build --release --package leasehold-cli

table5: setup ## LockScope's table 5, figures 2 and 3 in the lab (as root): processes, containers, sandboxes, cells
	@$(LOCKSCOPE_LAB)
	@lab/table5

applications: setup ## the same of applications, such as image processing and memcached
	@$(LOCKSCOPE_LAB)
	@lab/table5 --applications

interference: setup ## LockScope's figures 4 and 5 in the lab (as root): a worker beside thrashers
	@$(LOCKSCOPE_LAB)
	@lab/interference

separations: setup ## whether what LockScope advises comes true, in the lab (as root): cgroups and file systems of their own
	@$(LOCKSCOPE_LAB)
	@lab/separations

pairs: setup ## whether LockScope's score comes true (as root): what pairs of workloads lose to each other, here
	@scripts/setup bpf && guests/build --only workload && cargo build --release $(TRACER) --bins --examples
	@lab/pairs

causes: setup ## causal isolation in the lab (as root): what a microsecond of a lock's hold costs the neighbour
	@scripts/setup bpf && cargo build --release $(TRACER) --bins --examples
	@lab/causes

overhead: setup ## what LockScope's tracer costs beside klockstat and perf, in the lab and here (as root)
	@$(LOCKSCOPE_LAB)
	@lab/overhead

clean:
	cargo clean
