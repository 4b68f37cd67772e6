/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Pairs of threads with a short queue between them: one allocates messages of
 * 16 to 600 bytes and writes them, the other reads and frees them.
 */
#include "scenarios/scenario.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

#define QUEUE_CNT 512

/* Written by one thread each, on lines of their own. */
struct queue {
	_Alignas(64) _Atomic uint64_t put_cnt;
	_Alignas(64) _Atomic uint64_t taken_cnt;
	_Alignas(64) char *messages[QUEUE_CNT];
};

static uint64_t pairs = 2, messages = 8000000;
static struct queue *queues;

static void produce(struct queue *queue, uint64_t random)
{
	for (uint64_t i = 0; i < messages; i++) {
		size_t bytes = 16 + scenario__random(&random) % 585;
		char *message = scenario__malloc(bytes);

		message[0] = message[bytes - 1] = 1;
		while (i - atomic_load_explicit(&queue->taken_cnt, memory_order_acquire) == QUEUE_CNT)
			sched_yield();
		queue->messages[i % QUEUE_CNT] = message;
		atomic_store_explicit(&queue->put_cnt, i + 1, memory_order_release);
	}
}

static void consume(struct queue *queue)
{
	for (uint64_t i = 0; i < messages; i++) {
		while (atomic_load_explicit(&queue->put_cnt, memory_order_acquire) == i)
			sched_yield();
		free(queue->messages[i % QUEUE_CNT]);
		atomic_store_explicit(&queue->taken_cnt, i + 1, memory_order_release);
	}
}

static void work(unsigned worker)
{
	if (worker % 2)
		consume(&queues[worker / 2]);
	else
		produce(&queues[worker / 2], worker + 1);
}

int main(int argc, char **argv)
{
	const struct scenario_option options[] = {
		{SCENARIO_COUNT, "--pairs", &pairs, 1, 2048},
		{SCENARIO_COUNT, "--messages", &messages, 1, UINT32_MAX}, /* a pair */
		{SCENARIO_END, NULL, NULL, 0, 0},
	};
	const struct scenario_work job = {.measured = work};

	scenario__parse(argc, argv, options);
	queues = aligned_alloc(_Alignof(struct queue), pairs * sizeof(*queues));
	if (!queues)
		return 1;
	for (uint64_t i = 0; i < pairs; i++)
		queues[i].put_cnt = queues[i].taken_cnt = 0;
	scenario__run_workers((unsigned)pairs * 2, &job);
	free(queues);
	return 0;
}
