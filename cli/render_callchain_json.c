/* SPDX-License-Identifier: BSD-2-Clause */
/* Callchains as JSON: frames once, paths by their numbers. docs/output.md has the keys. */
#include "cli/callchain.h"
#include "cli/json_part.h"
#include "cli/json_text.h"
#include "cli/render_callchain.h"

static json_t *frame_object(const struct callchain_frame *frame)
{
	json_t *object = json_object();

	if (frame->function)
		json_text__set(object, "function", frame->function);
	if (frame->module)
		json_text__set(object, "module", frame->module);
	if (frame->is_deleted)
		json_object_set_new(object, "is_deleted", json_true());
	if (frame->file) {
		json_text__set(object, "file", frame->file);
		json_object_set_new(object, "line", json_integer(frame->line));
	}
	json_part__set_number(object, "address", frame->address);
	return object;
}

static json_t *path_object(const struct callchains *chains, const struct callchain_path *path)
{
	const struct callchain_chain *chain = &chains->chains[path->chain];
	json_t *object = json_object(), *frames = json_array();

	json_object_set_new(object, "class", json_string(profile__class_name(path->class)));
	json_object_set_new(object, "phase", json_string(profile__phase_name(path->phase)));
	json_object_set_new(object, "pid", json_integer(path->tgid));
	if (path->tid)
		json_object_set_new(object, "tid", json_integer(path->tid));
	json_part__set_number(object, "calls", path->call_cnt);
	json_part__set_number(object, "kernel_ns", path->sum_ns);
	json_part__set_number(object, "bytes", path->bytes);
	json_object_set_new(object, "origin", json_string(callchain__origin_name(chain->origin)));
	json_object_set_new(object, "end", json_string(callchain__end_name(chain->end)));
	if (chain->guess_from < chain->cnt)
		json_object_set_new(object, "guess_from", json_integer(chain->guess_from));
	for (uint32_t i = 0; i < chain->cnt; i++)
		json_array_append_new(frames, json_integer(chains->frame_of[chain->first + i]));
	json_object_set_new(object, "frames", frames);
	return object;
}

json_t *render_callchain__json(const struct profile *profile)
{
	const struct callchains *chains = profile->callchains;
	json_t *object = json_object(), *frames = json_array(), *paths = json_array(), *losses = json_object();

	json_part__set_number(losses, "no_room", chains->lost_cnt);
	json_part__set_number(losses, "cut", chains->cut_lost_cnt);
	json_part__set_number(losses, "notes", chains->note_lost_cnt);
	json_part__set_number(losses, "tables", chains->table_lost_cnt);
	json_object_set_new(object, "losses", losses);
	for (size_t i = 0; i < chains->frame_cnt; i++)
		json_array_append_new(frames, frame_object(&chains->frames[i]));
	json_object_set_new(object, "frames", frames);
	for (size_t i = 0; i < chains->path_cnt; i++)
		json_array_append_new(paths, path_object(chains, &chains->paths[i]));
	json_object_set_new(object, "paths", paths);
	return object;
}
