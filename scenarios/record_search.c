/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Worker threads look up records as a search server does: copy a random chunk
 * of a large working set into a fresh buffer, search the copy, free it.
 *
 * Policy that matters: trim. The buffer is the top of the worker's heap.
 *   trim off: one madvise.dontneed and, as the copy writes every page, 64 minor
 *             faults a record (256 KiB chunks);
 *   trim on:  none after the first records; at least 4 times the records/s with
 *             one thread, and a system time below 5 % of the run.
 * stack, realloc and commit must make no difference as long as the chunk is
 * below the size from which blocks are mappings of their own (1 MiB in the
 * bundled allocator).
 */
#include "scenarios/scenario.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t worker_cnt = 1, records = 5000, seconds, chunk_bytes = 256 << 10, chunks = 64;
static uint64_t **working_set;

/* One a worker, a cache line each. */
struct tally {
	_Alignas(64) uint64_t random, found_cnt, record_cnt;
};
static struct tally *tallies;

/* Keys are sorted and odd, so that half of all searches find theirs. */
static int has_key(const uint64_t *keys, uint64_t key_cnt, uint64_t key)
{
	uint64_t low = 0, high = key_cnt;

	while (low < high) {
		uint64_t middle = low + (high - low) / 2;

		if (keys[middle] == key)
			return 1;
		if (keys[middle] < key)
			low = middle + 1;
		else
			high = middle;
	}
	return 0;
}

static void search_one(struct tally *tally)
{
	uint64_t key_cnt = chunk_bytes / sizeof(uint64_t);
	const uint64_t *chunk = working_set[scenario__random(&tally->random) % chunks];
	uint64_t *copy = malloc(chunk_bytes);

	if (!copy)
		scenario__fail("malloc", errno);
	memcpy(copy, chunk, chunk_bytes);
	scenario__use(copy);
	tally->found_cnt += (uint64_t)has_key(copy, key_cnt, scenario__random(&tally->random) % (2 * key_cnt));
	tally->record_cnt++;
	free(copy);
}

static void warm_up(unsigned worker)
{
	search_one(&tallies[worker]);
	tallies[worker].record_cnt = tallies[worker].found_cnt = 0;
}

static void measured(unsigned worker)
{
	struct tally *tally = &tallies[worker];
	uint64_t end_ns = scenario__now_ns() + seconds * 1000000000;

	if (!seconds)
		while (tally->record_cnt < records)
			search_one(tally);
	else
		while (scenario__now_ns() < end_ns)
			search_one(tally);
}

static void prepare(void)
{
	working_set = calloc(chunks, sizeof(*working_set));
	tallies = aligned_alloc(_Alignof(struct tally), worker_cnt * sizeof(*tallies));
	if (!working_set || !tallies)
		scenario__fail("malloc", errno);
	for (uint64_t i = 0; i < chunks; i++) {
		working_set[i] = malloc(chunk_bytes);
		if (!working_set[i])
			scenario__fail("malloc", errno);
		for (uint64_t k = 0; k < chunk_bytes / sizeof(uint64_t); k++)
			working_set[i][k] = 2 * k + 1;
	}
	for (uint64_t i = 0; i < worker_cnt; i++)
		tallies[i] = (struct tally){.random = i + 1};
}

int main(int argc, char **argv)
{
	const struct scenario_option options[] = {
		{SCENARIO_COUNT, "--threads", &worker_cnt, 1, 4096},
		{SCENARIO_COUNT, "--records", &records, 1, UINT32_MAX}, /* a thread */
		{SCENARIO_COUNT, "--seconds", &seconds, 0, 86400},
		{SCENARIO_BYTES, "--chunk", &chunk_bytes, sizeof(uint64_t), 1ull << 32},
		{SCENARIO_COUNT, "--chunks", &chunks, 1, 1 << 20},
		{SCENARIO_END, NULL, NULL, 0, 0},
	};
	const struct scenario_work work = {.warm_up = warm_up, .measured = measured};
	struct scenario_requests requests = {0};
	uint64_t elapsed_ns, found_cnt = 0;

	scenario__parse(argc, argv, options);
	prepare();
	elapsed_ns = scenario__run_workers((unsigned)worker_cnt, &work);
	for (uint64_t i = 0; i < worker_cnt; i++) {
		requests.malloc_cnt += tallies[i].record_cnt;
		found_cnt += tallies[i].found_cnt;
	}
	requests.free_cnt = requests.malloc_cnt;
	printf("found=%ju\n", (uintmax_t)found_cnt);
	scenario__report(&requests, elapsed_ns, "records_per_s",
			 (double)requests.malloc_cnt * 1e9 / (double)elapsed_ns);
	for (uint64_t i = 0; i < chunks; i++)
		free(working_set[i]);
	free(working_set);
	free(tallies);
	return 0;
}
