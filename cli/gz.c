/* SPDX-License-Identifier: BSD-2-Clause */
/* gzip in memory, by zlib; see gz.h. */
#include "cli/gz.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <zlib.h>

enum { WINDOW_BITS_GZIP = 15 + 16, MEMORY_LEVEL = 8, FIRST_BYTES = 64 << 10 };

bool gz__is_packed(const char *data, size_t bytes)
{
	return bytes >= 2 && (unsigned char)data[0] == 0x1f && (unsigned char)data[1] == 0x8b;
}

int gz__pack(const char *text, size_t bytes, char **packed, size_t *packed_bytes)
{
	z_stream stream = {0};
	size_t room_bytes;
	int result;

	if (bytes > UINT_MAX ||
	    deflateInit2(&stream, Z_BEST_COMPRESSION, Z_DEFLATED, WINDOW_BITS_GZIP, MEMORY_LEVEL, Z_DEFAULT_STRATEGY))
		return -ENOMEM;
	room_bytes = deflateBound(&stream, bytes);
	*packed = malloc(room_bytes);
	stream.next_in = (Bytef *)text;
	stream.avail_in = (uInt)bytes;
	stream.next_out = (Bytef *)*packed;
	stream.avail_out = (uInt)room_bytes;
	result = *packed ? deflate(&stream, Z_FINISH) : Z_MEM_ERROR;
	*packed_bytes = stream.total_out;
	deflateEnd(&stream);
	if (result == Z_STREAM_END)
		return 0;
	free(*packed);
	*packed = NULL;
	return -ENOMEM;
}

/* Room for more of the text, one byte less than there is; -EFBIG beyond the limit. */
static int grow(z_stream *stream, char **text, size_t *room_bytes, size_t most_bytes)
{
	size_t used_bytes = stream->total_out, wanted_bytes = *room_bytes ? 2 * *room_bytes : FIRST_BYTES;
	char *grown;

	if (used_bytes > most_bytes)
		return -EFBIG;
	if (wanted_bytes > most_bytes + 2)
		wanted_bytes = most_bytes + 2; /* one that is too much, to see that there is more, and the 0 */
	grown = realloc(*text, wanted_bytes);
	if (!grown)
		return -ENOMEM;
	*text = grown;
	*room_bytes = wanted_bytes;
	stream->next_out = (Bytef *)grown + used_bytes;
	stream->avail_out = (uInt)(wanted_bytes - 1 - used_bytes);
	return 0;
}

int gz__unpack(const char *packed, size_t packed_bytes, size_t most_bytes, char **text, size_t *text_bytes)
{
	z_stream stream = {.next_in = (Bytef *)packed, .avail_in = (uInt)packed_bytes};
	size_t room_bytes = 0;
	int result = Z_OK, err = packed_bytes > UINT_MAX ? -EFBIG : 0;

	*text = NULL;
	if (err || inflateInit2(&stream, WINDOW_BITS_GZIP))
		return err ? err : -ENOMEM;
	while (!err && result == Z_OK) {
		if (!stream.avail_out)
			err = grow(&stream, text, &room_bytes, most_bytes);
		if (!err)
			result = inflate(&stream, Z_NO_FLUSH);
	}
	if (!err && (result == Z_BUF_ERROR || (result == Z_OK && !stream.avail_in)))
		err = -ENODATA;
	else if (!err && result == Z_MEM_ERROR)
		err = -ENOMEM;
	else if (!err && (result != Z_STREAM_END || stream.avail_in))
		err = -EBADMSG;
	if (!err && stream.total_out > most_bytes)
		err = -EFBIG;
	*text_bytes = stream.total_out;
	inflateEnd(&stream);
	if (!err && *text) {
		(*text)[*text_bytes] = 0;
		return 0;
	}
	free(*text);
	*text = NULL;
	return err;
}
