# SPDX-License-Identifier: BSD-2-Clause
# Build, test and install alloctrace. `make help` lists the targets. Everything
# that is built lands in .output/; V=1 shows the commands.

VERSION := 0.1.0
O := .output
PREFIX ?= /usr/local
DESTDIR ?=
V ?= 0
ifeq ($(V),0)
Q := @
MAKEFLAGS += --no-print-directory
say = @printf '  %-8s %s\n' '$1' '$2'
endif

ifeq ($(origin CC),default)
CC := gcc
endif
ifeq ($(origin CXX),default)
CXX := g++
endif
CLANG ?= clang
# bpftool lives where an ordinary user's PATH does not reach (Debian), or is a
# wrapper that refuses to work for a kernel of another flavour (Ubuntu).
BPFTOOL ?= $(shell .ci/find-bpftool)

CFLAGS ?= -O2 -g
WARN := -Wall -Wextra -Werror -Wshadow -Wpointer-arith
WARN_C := $(WARN) -Wstrict-prototypes -Wmissing-prototypes
DEFINES := -I. -I$(O) -D_GNU_SOURCE -DAT_VERSION='"$(VERSION)"' -DAT_BUILD='"$(O)"'
BPF_CFLAGS := -O2 -g -target bpf -mcpu=v3 -Wall -Werror -D__TARGET_ARCH_x86 -I.

# SANITIZE=address,undefined: every part with it, into an O of its own (below).
ifdef SANITIZE
SAN_CFLAGS := -fsanitize=$(SANITIZE) -fno-sanitize-recover=all -fno-omit-frame-pointer
# The preloaded library must not need a runtime that its host does not load.
SAN_SO := -static-libubsan
endif
AT_CFLAGS := -std=gnu11 $(WARN_C) $(DEFINES) $(CFLAGS) $(SAN_CFLAGS)
AT_CXXFLAGS := -std=gnu++17 $(WARN) $(DEFINES) $(CFLAGS) $(SAN_CFLAGS)

# STATIC=1: libbpf, libdw, libelf, lzma, zlib and jansson from their archives; the C library
# stays shared. libelf.a wants zstd where its distribution built it so.
ifdef STATIC
CLI_LIBS := -Wl,-Bstatic -lbpf -ldw -lelf -llzma -lbz2 -liberty -lz -ljansson $(if $(wildcard /usr/lib/*/libzstd.a),-lzstd) -Wl,-Bdynamic -pthread -lm
else
CLI_LIBS := -lbpf -ldw -lelf -llzma -liberty -lz -ljansson -pthread -lm
endif

CLI_OBJS := $(patsubst %.c,$(O)/%.o,$(wildcard cli/*.c)) $(O)/alloc/settings.o
ALLOC_OBJS := $(patsubst %.c,$(O)/%.pic.o,$(wildcard alloc/*.c))
# One program a file; what they share is scenario.c.
SCENARIOS := $(patsubst scenarios/%.c,$(O)/scenarios/%,$(filter-out scenarios/scenario.c,$(wildcard scenarios/*.c))) \
	$(patsubst %,$(O)/%,$(wildcard scenarios/*.tsv))

# Tests, by place and name; docs/contributing.md has the conventions.
UNIT_TESTS := $(patsubst %.c,$(O)/%,$(wildcard tests/unit/*_test.c tests/trace/*_test.c))
ALLOC_TESTS := $(patsubst %.c,$(O)/%,$(wildcard tests/alloc/*_test.c))
TEST_C := $(filter-out %_test.c,$(wildcard tests/alloc/*.c tests/cli/*.c tests/trace/*.c))
TEST_CC := $(wildcard tests/alloc/*.cc tests/cli/*.cc tests/trace/*.cc)
TEST_PROGRAMS := $(patsubst %.c,$(O)/%,$(TEST_C)) $(patsubst %.cc,$(O)/%,$(TEST_CC))
BENCHES := $(patsubst %.c,$(O)/%,$(wildcard tests/bench/*_cost.c))
MALLOC_BENCHES := $(patsubst %.c,$(O)/%,$(wildcard tests/bench/malloc_*.c)) $(O)/tests/bench/run_once

comma := ,

# For the targets that do everything: as many jobs as CPUs, unless -j was given.
PARALLEL = $(if $(findstring jobserver,$(MAKEFLAGS)),,-j$(shell nproc))

.DELETE_ON_ERROR:
.SECONDARY:
.SUFFIXES:

.PHONY: all
all: $(O)/alloctrace $(O)/libatmalloc.so $(SCENARIOS) ## build everything (default)

# The flags that objects were built with: a change rebuilds them.
$(O)/.flags: FORCE
	@mkdir -p $(@D)
	@echo '$(CC) $(CXX) $(CLANG) $(AT_CFLAGS) $(BPF_CFLAGS) $(CLI_LIBS) $(LDFLAGS)' > $@.new
	@if cmp -s $@.new $@; then rm $@.new; else mv $@.new $@; fi
.PHONY: FORCE
FORCE:

$(O)/%.bpf.o: %.bpf.c $(O)/.flags
	$(call say,CLANG,$@)
	@mkdir -p $(@D)
	$(Q)$(CLANG) $(BPF_CFLAGS) -MMD -MP -MF $(@:.o=.d) -c $< -o $@

$(O)/%.skel.h: $(O)/%.bpf.o
	$(call say,SKEL,$@)
	$(Q)$(BPFTOOL) gen skeleton $< name $(*F)_bpf > $@

SKEL_USERS := $(basename $(wildcard cli/tracer*.c)) cli/feature
$(SKEL_USERS:%=$(O)/%.o): $(O)/bpf/alloctrace.skel.h

# The page of compare --html: Chart.js, of the system's package, goes into it.
CHART_JS ?= $(firstword $(wildcard /usr/share/javascript/chart.js/chart.min.js /usr/share/nodejs/chart.js/dist/chart.min.js))
PAGE_PARTS := $(O)/cli/page.head $(O)/cli/page.tail
$(O)/cli/page.o: $(PAGE_PARTS)
$(PAGE_PARTS): cli/page/assemble $(wildcard cli/page/page.*) $(CHART_JS) $(O)/.flags
	@mkdir -p $(@D)
	$(Q)cli/page/assemble $(@F) '$(CHART_JS)' > $@

$(O)/%.o: %.c $(O)/.flags
	$(call say,CC,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(AT_CFLAGS) -MMD -MP -c $< -o $@

$(O)/alloc/%.pic.o: alloc/%.c $(O)/.flags
	$(call say,CC,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(AT_CFLAGS) -fPIC -fvisibility=hidden -ftls-model=initial-exec -fno-builtin-malloc -MMD -MP -c $< -o $@

$(O)/alloctrace: $(CLI_OBJS)
	$(call say,LD,$@)
	$(Q)$(CC) $(AT_CFLAGS) $(filter %.o,$^) $(LDFLAGS) $(CLI_LIBS) -o $@

$(O)/libatmalloc.so: $(ALLOC_OBJS)
	$(call say,LD,$@)
	$(Q)$(CC) $(AT_CFLAGS) -shared $(filter %.o,$^) $(LDFLAGS) $(SAN_SO) -Wl,-z,nodelete -Wl,-z,now -pthread -ldl -o $@

$(O)/scenarios/%: $(O)/scenarios/%.o $(O)/scenarios/scenario.o
	$(call say,LD,$@)
	$(Q)$(CC) $(AT_CFLAGS) $(filter %.o,$^) $(LDFLAGS) -pthread -o $@

$(O)/scenarios/%.tsv: scenarios/%.tsv
	@mkdir -p $(@D)
	$(Q)cp $< $@

## Tests

$(UNIT_TESTS): $(O)/%: $(O)/%.o $(filter-out $(O)/cli/main.o,$(CLI_OBJS))
	$(call say,LD,$@)
	$(Q)$(CC) $(AT_CFLAGS) $(filter %.o,$^) $(LDFLAGS) $(CLI_LIBS) -lcmocka -pthread -o $@

# Not with -O2's knowledge of malloc: a test's useless allocation must happen.
$(ALLOC_TESTS): $(O)/%: %.c $(O)/.flags
	$(call say,CC,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(AT_CFLAGS) -fno-builtin -MMD -MP -MF $@.d $< $(LDFLAGS) -lcmocka -pthread -ldl -o $@

$(BENCHES) $(O)/tests/bench/floor: $(O)/%: %.c $(O)/tests/bench/cost.o $(filter-out $(O)/cli/main.o,$(CLI_OBJS)) $(O)/.flags
	$(call say,CC,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(AT_CFLAGS) -fno-builtin -MMD -MP -MF $@.d $< $(filter %.o,$^) $(LDFLAGS) $(CLI_LIBS) -pthread -o $@

# Programs of their own, which the tracer's are compared with.
COST_SKEL_USERS := $(addprefix tests/bench/,callchain_cost floor slots_cost)
$(COST_SKEL_USERS:%=$(O)/%) $(COST_SKEL_USERS:%=$(O)/tidy/%.ok): $(O)/tests/bench/cost.skel.h
# For the kernel's own way to callchains.
$(O)/tests/bench/callchain_cost: private AT_CFLAGS += -fno-omit-frame-pointer

$(MALLOC_BENCHES) $(O)/tests/bench/calls: $(O)/%: %.c $(O)/scenarios/scenario.o $(O)/.flags
	$(call say,CC,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(AT_CFLAGS) -fno-builtin -MMD -MP -MF $@.d $< $(filter %.o,$^) $(LDFLAGS) -pthread -o $@

# A program whose kind cannot be built here leaves NAME.skip with the reason.
test_program = \
	mkdir -p $(@D); rm -f $@.skip; \
	case $(@F) in static_*) kind=-static;; m32_*) kind=-m32;; *) kind=;; esac; \
	if [ -n "$$kind" ] && ! echo 'int main(void) { return 0; }' | $(CC) $$kind -xc - -o $@.probe 2>/dev/null; then \
		echo "$(CC) $$kind cannot link a program here" > $@.skip; exit 0; fi; rm -f $@.probe; \
	$1 $$kind -fno-builtin -MMD -MP -MF $@.d $< $(LDFLAGS) -pthread -ldl -o $@

$(patsubst %.c,$(O)/%,$(TEST_C)): $(O)/%: %.c $(O)/.flags
	$(call say,CC,$@)
	$(Q)$(call test_program,$(CC) $(AT_CFLAGS))

$(patsubst %.cc,$(O)/%,$(TEST_CC)): $(O)/%: %.cc $(O)/.flags
	$(call say,CXX,$@)
	$(Q)$(call test_program,$(CXX) $(AT_CXXFLAGS))

# The fuzz target: clang's, with the allocator instrumented and linked in, and
# its memory syscalls wrapped so that they can be made to fail. What it compares
# is hidden from libFuzzer, which would copy the mark of a freed block from there
# into the input, and so into a block in use.
FUZZ := $(O)/tests/fuzz/malloc_ops_fuzz
FUZZ_CFLAGS := -std=gnu11 $(DEFINES) -O1 -g -fno-omit-frame-pointer -fno-builtin -fsanitize=fuzzer,undefined -fno-sanitize-coverage=trace-cmp \
	-fno-sanitize-recover=all
FUZZ_WRAPS := $(patsubst %,-Wl$(comma)--wrap=atm_os_%,map reserve unmap commit release remap)
$(FUZZ): tests/fuzz/malloc_ops_fuzz.c $(wildcard alloc/*.[ch]) $(O)/.flags
	$(call say,CC,$@)
	@mkdir -p $(@D)
	$(Q)rm -f $@.skip; echo 'int LLVMFuzzerTestOneInput(void); int LLVMFuzzerTestOneInput(void) { return 0; }' | \
		$(CLANG) $(FUZZ_CFLAGS) -xc - -o $@.probe 2>/dev/null || { echo "$(CLANG) has no libFuzzer here (Debian: libclang-rt-14-dev)" > $@.skip; exit 0; }; \
		rm -f $@.probe; $(CLANG) $(FUZZ_CFLAGS) $(filter %.c,$^) $(FUZZ_WRAPS) -pthread -ldl -o $@

# The fuzz target of what reads saved files and expectations: all of cli/ built
# by clang with AddressSanitizer and UBSan, into an O of its own.
SAVED_FUZZ := $(O)/tests/fuzz/saved_fuzz
FUZZ_PROBE := int LLVMFuzzerTestOneInput(void); int LLVMFuzzerTestOneInput(void) { return 0; }
$(SAVED_FUZZ): FORCE $(O)/bpf/alloctrace.skel.h
	@mkdir -p $(@D)
	$(Q)rm -f $@.skip; if echo '$(FUZZ_PROBE)' | $(CLANG) -fsanitize=fuzzer,address -xc - -o $@.probe 2>/dev/null; then \
		rm -f $@.probe; $(MAKE) O=$(O)/fuzz CC=$(CLANG) SANITIZE=fuzzer-no-link,address,undefined $(O)/fuzz/saved_fuzz && \
		ln -sf ../../fuzz/saved_fuzz $@; \
	else echo "$(CLANG) has no libFuzzer here (Debian: libclang-rt-14-dev)" > $@.skip; fi
$(O)/saved_fuzz: $(O)/tests/fuzz/saved_fuzz.o $(filter-out $(O)/cli/main.o,$(CLI_OBJS))
	$(call say,LD,$@)
	$(Q)$(CC) $(AT_CFLAGS) -fsanitize=fuzzer $(filter %.o,$^) $(LDFLAGS) $(CLI_LIBS) -o $@

# That of the parsers of foreign ELF files.
UNWIND_FUZZ := $(O)/tests/fuzz/unwind_table_fuzz
UNWIND_FUZZ_CFLAGS := -std=gnu11 $(DEFINES) -O1 -g -fno-omit-frame-pointer -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all
$(UNWIND_FUZZ): tests/fuzz/unwind_table_fuzz.c cli/elf_image.c cli/lzma_text.c cli/unwind_table.c cli/eh_frame.c cli/eh_cursor.c cli/code_rows.c cli/insn.c cli/gopclntab.c cli/symbol_table.c \
		$(wildcard cli/*.h bpf/callchain.h) $(O)/.flags
	$(call say,CC,$@)
	@mkdir -p $(@D)
	$(Q)rm -f $@.skip; echo '$(FUZZ_PROBE)' | \
		$(CLANG) $(UNWIND_FUZZ_CFLAGS) -xc - -o $@.probe 2>/dev/null || { echo "$(CLANG) has no libFuzzer here (Debian: libclang-rt-14-dev)" > $@.skip; exit 0; }; \
		rm -f $@.probe; $(CLANG) $(UNWIND_FUZZ_CFLAGS) $(filter %.c,$^) -llzma -o $@

.PHONY: fuzz
fuzz: $(FUZZ) $(SAVED_FUZZ) $(UNWIND_FUZZ) ## build the fuzz targets of the allocator and of the CLI (clang, libFuzzer)

.PHONY: tests
tests: all $(UNIT_TESTS) $(ALLOC_TESTS) $(TEST_PROGRAMS) $(MALLOC_BENCHES) $(FUZZ) $(SAVED_FUZZ) $(UNWIND_FUZZ) sanitized ## build everything and all tests

# The allocator under UBSan; the CLI and its unit tests under ASan and UBSan.
.PHONY: sanitized ubsan asan
sanitized: ubsan asan
ubsan:
	$(Q)$(MAKE) O=$(O)/ubsan SANITIZE=undefined $(O)/ubsan/libatmalloc.so
asan: all
	$(Q)$(MAKE) O=$(O)/asan SANITIZE=address,undefined asan-parts
	$(Q)ln -sfn ../libatmalloc.so $(O)/asan/libatmalloc.so
	$(Q)ln -sfn ../scenarios $(O)/asan/scenarios
.PHONY: asan-parts
asan-parts: $(O)/alloctrace $(filter $(O)/tests/unit/%,$(UNIT_TESTS))

.PHONY: demo
demo: ## install what is missing, build, run trim_loop with policy trim off and on, and compare all policies
	$(Q).ci/deps build
	$(Q)$(MAKE) $(PARALLEL) all
	$(O)/alloctrace run --policy -trim trim_loop --touch
	$(O)/alloctrace run trim_loop --touch
	$(O)/alloctrace compare trim_loop

.PHONY: check
check: ## install what is missing, build, run all tests
	$(Q).ci/deps check
	$(Q)$(MAKE) $(PARALLEL) tests
	$(Q)tests/run $(if $(filter 0,$(V)),,-v) $(T)

.PHONY: test
test: tests ## build and run all tests, or T='NAME...' of them, installing nothing
	$(Q)tests/run $(if $(filter 0,$(V)),,-v) $(T)

.PHONY: check-vm
check-vm: tests ## of the tests, those on other kernels, under qemu
	$(Q)tests/run -v vm/

.PHONY: bench
bench: bench-malloc bench-tracer ## what tracing costs, and the allocator against others
	$(Q)$(MAKE) $(BENCHES)
	$(Q)for bench in $(BENCHES); do echo "$$bench:"; O=$(O) $$bench || exit; done
.PHONY: bench-tracer
bench-tracer: all $(O)/tests/bench/calls $(O)/tests/bench/floor ## what tracing adds to a call, here and with other tools; B='-r 9 TOOL...' are options
	$(Q)O=$(O) tests/bench/tracer_bench.py $(B)
.PHONY: bench-malloc
bench-malloc: all $(MALLOC_BENCHES) ## the allocator against others; B='-r 9 NAME...' are options
	$(Q)O=$(O) tests/bench/malloc_bench.py $(B)

.PHONY: deps
deps: ## install (apt) what building and testing need and is missing
	$(Q).ci/deps check

## Style

C_FILES := $(wildcard alloc/*.[ch] bpf/*.[ch] cli/*.[ch] scenarios/*.[ch] tests/*.h tests/*/*.[ch] tests/*/*.cc)
CLANG_FORMAT ?= clang-format-14
CLANG_TIDY ?= clang-tidy-14

.PHONY: format check-format
format: ## reformat the sources (clang-format 14)
	$(Q)$(CLANG_FORMAT) -i $(C_FILES)
check-format: ## list the lines that `make format` would change
	$(Q)$(CLANG_FORMAT) --dry-run -Werror $(C_FILES)

# A stamp a file, so that only what changed is analysed again. What is found in
# the generated skeleton, on a path through it, is not ours to mend.
TIDY_FILES := $(filter-out %.bpf.c,$(wildcard alloc/*.c cli/*.c scenarios/*.c tests/*/*.c))
TIDY_STAMPS := $(patsubst %.c,$(O)/tidy/%.ok,$(TIDY_FILES))
.PHONY: tidy tidy-files
tidy: $(TIDY_STAMPS) ## analyse the sources (clang-tidy 14)
$(SKEL_USERS:%=$(O)/tidy/%.ok): $(O)/bpf/alloctrace.skel.h
$(O)/tidy/%.ok: %.c .clang-tidy tests/.clang-tidy $(O)/.flags
	$(call say,TIDY,$<)
	@mkdir -p $(@D)
	$(Q)$(CLANG_TIDY) --quiet $< -- $(AT_CFLAGS) $(if $(findstring /m32_,$<),-m32) 2>$@.err >$@.out \
		|| { grep -q '^$(O)/.* error:' $@.out && ! grep ' error:' $@.out | grep -qv '^$(O)/'; } \
		|| { cat $@.out; grep -v 'warnings generated' $@.err; exit 1; }
	$(Q)$(CC) $(AT_CFLAGS) -MM -MP -MT $@ -MF $(@:.ok=.d) $<
	@touch $@
tidy-files:
	@echo $(TIDY_FILES)

## Installing

BIN := $(DESTDIR)$(PREFIX)/bin
LIB := $(DESTDIR)$(PREFIX)/lib/alloctrace
PC := $(DESTDIR)$(PREFIX)/lib/pkgconfig
INC := $(DESTDIR)$(PREFIX)/include
MAN := $(DESTDIR)$(PREFIX)/share/man/man1
DOC := $(DESTDIR)$(PREFIX)/share/doc/alloctrace

.PHONY: install
install: all ## install below PREFIX (/usr/local), staged in DESTDIR
	$(Q)install -d '$(BIN)' '$(LIB)/scenarios' '$(PC)' '$(INC)' '$(MAN)' '$(DOC)'
	$(Q)install -m 755 $(O)/alloctrace '$(BIN)'
	$(Q)install -m 755 $(O)/libatmalloc.so '$(LIB)'
	$(Q)install -m 755 $(filter-out %.tsv,$(SCENARIOS)) '$(LIB)/scenarios'
	$(Q)for tsv in $(filter %.tsv,$(SCENARIOS)); do install -m 644 $$tsv '$(LIB)/scenarios'; done
	$(Q)install -m 644 alloc/atmalloc.h '$(INC)'
	$(Q)sed -e 's|@PREFIX@|$(PREFIX)|g' -e 's|@VERSION@|$(VERSION)|g' alloc/atmalloc.pc.in > '$(PC)/atmalloc.pc'
	$(Q)chmod 644 '$(PC)/atmalloc.pc'
	$(Q)install -m 644 docs/alloctrace.1 '$(MAN)'
	$(Q)install -m 644 README.md LICENSE $(wildcard docs/*.md) '$(DOC)'

.PHONY: uninstall
uninstall: ## remove what `install` put there
	$(Q)rm -rf '$(LIB)' '$(DOC)'
	$(Q)rm -f '$(BIN)/alloctrace' '$(PC)/atmalloc.pc' '$(INC)/atmalloc.h' '$(MAN)/alloctrace.1'

.PHONY: clean
clean: ## remove what was built
	$(Q)rm -rf $(O)

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))
	@echo
	@echo '  V=1 shows commands; STATIC=1 links all libraries but the C library in; O=DIR builds elsewhere.'

-include $(shell find $(O) -name '*.d' -not -path '$(O)/*san/*' -not -path '$(O)/static/*' -not -path '$(O)/fuzz/*' 2>/dev/null)
