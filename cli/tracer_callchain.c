/* SPDX-License-Identifier: BSD-2-Clause */
/* Callchains, between the skeleton and unwind.c. */
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "bpf/alloctrace.skel.h"
#include "cli/msg.h"
#include "cli/tracer_state.h"

int tracer__configure_callchains(struct tracer *tracer)
{
	struct alloctrace_bpf *skel = tracer->skel;
	bool is_on = tracer->opts.callchains != CALLCHAINS_NONE;
	struct bpf_map *maps[] = {skel->maps.walks,       skel->maps.shards,  skel->maps.pieces,
				  skel->maps.mappings,    skel->maps.objects, skel->maps.unwind_processes,
				  skel->maps.go_layouts,  skel->maps.chains,  skel->maps.paths,
				  skel->maps.path_losses, skel->maps.frames,  skel->maps.notes};
	uint64_t seed = 0;
	int err = 0;

	skel->rodata->cfg_has_callchains = is_on;
	skel->rodata->cfg_is_shown = tracer->is_translating;
	skel->rodata->cfg_is_by_thread = tracer->opts.callchains == CALLCHAINS_BY_THREAD;
	if (!is_on) {
		for (size_t i = 0; !err && i < sizeof(maps) / sizeof(maps[0]); i++)
			err = tracer__spare_map(maps[i]);
		return err;
	}
	if (getrandom(&seed, sizeof(seed), 0) != sizeof(seed))
		return -errno;
	skel->rodata->cfg_chain_seed = seed;
	bpf_program__set_autoload(skel->progs.at_exec_btf, true);
	return bpf_map__set_value_size(skel->maps.mappings, tracer->pid_cnt * (uint32_t)sizeof(struct at_mappings));
}

int tracer__open_callchains(struct tracer *tracer)
{
	struct alloctrace_bpf *skel = tracer->skel;
	struct unwind_maps maps;
	struct unwind_results results;

	if (tracer->opts.callchains == CALLCHAINS_NONE)
		return 0;
	maps = (struct unwind_maps){
		.shards = bpf_map__fd(skel->maps.shards),
		.pieces = bpf_map__fd(skel->maps.pieces),
		.processes = bpf_map__fd(skel->maps.unwind_processes),
		.objects = bpf_map__fd(skel->maps.objects),
		.go_layouts = bpf_map__fd(skel->maps.go_layouts),
		.mappings = bpf_map__fd(skel->maps.mappings),
		.pid_cnt = tracer->pid_cnt,
	};
	results = (struct unwind_results){
		.chains = bpf_map__fd(skel->maps.chains),
		.paths = bpf_map__fd(skel->maps.paths),
		.path_losses = bpf_map__fd(skel->maps.path_losses),
		.frames = bpf_map__fd(skel->maps.frames),
		.notes = bpf_map__fd(skel->maps.notes),
		.cpu_cnt = tracer->cpu_cnt,
		.is_by_thread = tracer->opts.callchains == CALLCHAINS_BY_THREAD,
		.notes_lost = (const volatile uint64_t *)&skel->bss->notes_lost,
		.cuts_lost = (const volatile uint64_t *)&skel->bss->cuts_lost,
	};
	return unwind__open(&tracer->unwind, &maps, &results);
}

/* For calibration, as if it were a target. */
int tracer__begin_own_callchains(struct tracer *tracer)
{
	return tracer->unwind ? unwind__add_process(tracer->unwind, tracer__self(tracer), getpid()) : 0;
}

/* Empties a hash. */
static void delete_all(int fd, void *key)
{
	while (!bpf_map_get_next_key(fd, NULL, key))
		if (bpf_map_delete_elem(fd, key))
			return;
}

/* Removes what calibration left; path_losses is a per-CPU array. */
int tracer__clear_callchains(struct tracer *tracer)
{
	struct alloctrace_bpf *skel = tracer->skel;
	struct at_path_key path_key;
	struct at_path *zeroes;
	uint64_t chain_key;
	int err = 0;

	if (!tracer->unwind)
		return 0;
	unwind__drop_process(tracer->unwind, tracer__self(tracer));
	delete_all(bpf_map__fd(skel->maps.paths), &path_key);
	delete_all(bpf_map__fd(skel->maps.chains), &chain_key);
	skel->bss->frame_next = skel->bss->notes_lost = skel->bss->cuts_lost = 0;
	zeroes = calloc((size_t)tracer->cpu_cnt, sizeof(*zeroes));
	if (!zeroes)
		return -ENOMEM;
	for (uint32_t key = 0; !err && key < AT_PHASE_CNT * AT_CLASS_CNT; key++)
		err = bpf_map_update_elem(bpf_map__fd(skel->maps.path_losses), &key, zeroes, BPF_ANY);
	free(zeroes);
	return err;
}

/* What the process has mapped already. One that has gone meanwhile is no error. */
int tracer__add_callchains(struct tracer *tracer, uint32_t tgid, pid_t pid)
{
	int err = tracer->unwind ? unwind__add_process(tracer->unwind, tgid, pid) : 0;

	return err == -ESRCH ? 0 : err;
}

void tracer__expect(struct tracer *tracer, const char *path)
{
	if (tracer->unwind)
		unwind__expect(tracer->unwind, path, tracer__self(tracer));
}
