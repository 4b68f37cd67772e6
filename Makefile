# SPDX-License-Identifier: BSD-2-Clause
# Build, test and install alloctrace. `make help` lists the targets. Everything
# that is built lands in .output/.

VERSION := 0.1.0
O := .output
PREFIX ?= /usr/local
DESTDIR ?=
V ?= 0
ifeq ($(V),0)
Q := @
say = @printf '  %-8s %s\n' '$1' '$2'
endif

CC ?= gcc
CLANG ?= clang
BPFTOOL ?= bpftool
PKG_CONFIG ?= pkg-config

CFLAGS ?= -O2 -g
WARN := -Wall -Wextra -Werror -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith
AT_CFLAGS := -std=gnu11 $(WARN) -I. -I$(O) -D_GNU_SOURCE -DAT_VERSION='"$(VERSION)"' $(CFLAGS)
CLI_LIBS := -lbpf -lelf -lz -ljansson
BPF_CFLAGS := -O2 -g -target bpf -mcpu=v3 -Wall -Werror -D__TARGET_ARCH_x86 -I.

CLI_OBJS := $(patsubst %.c,$(O)/%.o,$(wildcard cli/*.c)) $(O)/alloc/settings.o
ALLOC_OBJS := $(patsubst %.c,$(O)/%.pic.o,$(wildcard alloc/*.c))
# One program a file; what they share is scenario.c.
SCENARIOS := $(patsubst scenarios/%.c,$(O)/scenarios/%,$(filter-out scenarios/scenario.c,$(wildcard scenarios/*.c)))

.DELETE_ON_ERROR:
.SECONDARY:
.PHONY: all
all: $(O)/alloctrace $(O)/libatmalloc.so $(SCENARIOS) ## build everything (default)

$(O)/bpf/%.bpf.o: bpf/%.bpf.c $(wildcard bpf/*.h)
	$(call say,CLANG,$@)
	@mkdir -p $(@D)
	$(Q)$(CLANG) $(BPF_CFLAGS) -c $< -o $@

$(O)/bpf/%.skel.h: $(O)/bpf/%.bpf.o
	$(call say,SKEL,$@)
	$(Q)$(BPFTOOL) gen skeleton $< name $*_bpf > $@

$(O)/cli/tracer.o: $(O)/bpf/alloctrace.skel.h
$(O)/cli/feature.o: $(O)/bpf/alloctrace.skel.h

$(O)/%.o: %.c
	$(call say,CC,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(AT_CFLAGS) -MMD -MP -c $< -o $@

$(O)/alloc/%.pic.o: alloc/%.c
	$(call say,CC,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(AT_CFLAGS) -fPIC -fvisibility=hidden -ftls-model=initial-exec -fno-builtin-malloc -MMD -MP -c $< -o $@

$(O)/alloctrace: $(CLI_OBJS)
	$(call say,LD,$@)
	$(Q)$(CC) $(AT_CFLAGS) $^ $(LDFLAGS) $(CLI_LIBS) -o $@

$(O)/libatmalloc.so: $(ALLOC_OBJS)
	$(call say,LD,$@)
	$(Q)$(CC) $(AT_CFLAGS) -shared $^ $(LDFLAGS) -Wl,-z,nodelete -Wl,-z,now -pthread -ldl -o $@

$(O)/scenarios/%: $(O)/scenarios/%.o $(O)/scenarios/scenario.o
	$(call say,LD,$@)
	$(Q)$(CC) $(AT_CFLAGS) $^ $(LDFLAGS) -pthread -o $@

.PHONY: clean
clean: ## remove what was built
	$(Q)rm -rf $(O)

-include $(shell find $(O) -name '*.d' 2>/dev/null)
