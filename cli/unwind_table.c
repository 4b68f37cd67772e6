/* SPDX-License-Identifier: BSD-2-Clause */
/* Rows of all kinds put in order; see unwind_table.h. */
#include "cli/unwind_table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cli/code_rows.h"
#include "cli/eh_frame.h"
#include "cli/gopclntab.h"

enum { ROW_MAX = AT_SHARD_ROWS * (AT_CHUNK_CNT - 1), DRAFT_MAX = ROW_MAX * 4 };

void unwind_draft__add(struct unwind_draft *draft, uint64_t pc, uint32_t rule, bool is_end)
{
	struct unwind_draft_row *rows;
	size_t max;

	if (draft->err || pc > UINT32_MAX)
		return;
	if (draft->cnt == draft->max) {
		max = draft->max ? 2 * draft->max : 4096;
		rows = max > DRAFT_MAX ? NULL : reallocarray(draft->rows, max, sizeof(*rows));
		if (!rows) {
			draft->err = max > DRAFT_MAX ? -E2BIG : -ENOMEM;
			return;
		}
		draft->rows = rows;
		draft->max = max;
	}
	draft->rows[draft->cnt] = (struct unwind_draft_row){
		.pc = (uint32_t)pc, .rule = rule, .rank = is_end ? 0 : (uint32_t)draft->cnt + 1};
	draft->cnt++;
}

static int compare_rows(const void *a, const void *b)
{
	const struct unwind_draft_row *x = a, *y = b;

	if (x->pc != y->pc)
		return x->pc < y->pc ? -1 : 1;
	return x->rank < y->rank ? -1 : x->rank > y->rank;
}

/* Sorted, one row a pc, none that repeats the rule before it. */
static int finish(struct unwind_draft *draft, struct unwind_table *table)
{
	uint32_t cnt = 0;

	if (!draft->cnt)
		return -ENODATA;
	qsort(draft->rows, draft->cnt, sizeof(*draft->rows), compare_rows);
	table->rows = reallocarray(NULL, draft->cnt, sizeof(*table->rows));
	if (!table->rows)
		return -ENOMEM;
	for (size_t i = 0; i < draft->cnt; i++) {
		const struct unwind_draft_row *row = &draft->rows[i];

		if (i + 1 < draft->cnt && draft->rows[i + 1].pc == row->pc)
			continue;
		if (cnt ? table->rows[cnt - 1].rule == row->rule : row->rule == AT_RULE_NONE)
			continue;
		table->rows[cnt++] = (struct at_unwind_row){.pc = row->pc, .rule = row->rule};
	}
	table->row_cnt = cnt;
	return cnt > ROW_MAX ? -E2BIG : cnt ? 0 : -ENODATA;
}

/* For the functions that are not in the table so far. */
static int add_code_rows(struct unwind_table *table, const struct elf_image *image, struct unwind_draft *draft)
{
	size_t cnt = draft->cnt;
	int err = code_rows__read(image, table->rows, table->row_cnt, draft);

	if (err)
		return err;
	if (draft->cnt == cnt)
		return table->row_cnt ? 0 : -ENODATA;
	unwind_table__free(table);
	return finish(draft, table);
}

int unwind_table__build(struct unwind_table *table, const struct elf_image *image)
{
	struct unwind_draft draft = {0};
	int err, go_err;

	*table = (struct unwind_table){0};
	go_err = gopclntab__read(image, &draft, &table->go);
	table->is_go = !go_err;
	err = go_err && go_err != -ENODATA ? go_err : eh_frame__read(image, &draft);
	if (!err || err == -ENODATA)
		err = finish(&draft, table);
	if (!table->is_go && (!err || err == -ENODATA))
		err = add_code_rows(table, image, &draft);
	free(draft.rows);
	if (err)
		unwind_table__free(table);
	return err;
}

void unwind_table__free(struct unwind_table *table)
{
	free(table->rows);
	table->rows = NULL;
	table->row_cnt = 0;
}

uint32_t unwind_table__rule(const struct at_unwind_row *rows, uint32_t row_cnt, uint32_t pc)
{
	uint32_t lo = 0, hi = row_cnt;

	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;

		if (rows[mid].pc <= pc)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo ? rows[lo - 1].rule : AT_RULE_NONE;
}
