/* SPDX-License-Identifier: BSD-2-Clause */
/* Figures and texts for people; see format.h. */
#include "cli/format.h"

#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

const char *format__count(uint64_t cnt, char buf[FORMAT_BYTES])
{
	char digits[24];
	int len = snprintf(digits, sizeof(digits), "%" PRIu64, cnt), used = 0;

	for (int i = 0; i < len; i++) {
		if (i && (len - i) % 3 == 0)
			buf[used++] = ',';
		buf[used++] = digits[i];
	}
	buf[used] = 0;
	return buf;
}

const char *format__bytes(uint64_t bytes, char buf[FORMAT_BYTES])
{
	static const char *const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
	double value = bytes / 1024.0;
	size_t unit = 0;

	if (bytes < 1024) {
		snprintf(buf, FORMAT_BYTES, "%" PRIu64 " B", bytes);
		return buf;
	}
	/* 1023.95 would be printed as 1024.0 */
	for (; value >= 1023.95 && unit + 1 < sizeof(units) / sizeof(units[0]); unit++)
		value /= 1024;
	snprintf(buf, FORMAT_BYTES, "%.1f %s", value, units[unit]);
	return buf;
}

const char *format__ns(uint64_t ns, char buf[FORMAT_BYTES])
{
	if (ns < 1000)
		snprintf(buf, FORMAT_BYTES, "%" PRIu64 " ns", ns);
	else if (ns < 999995)
		snprintf(buf, FORMAT_BYTES, "%.2f us", ns / 1e3);
	else if (ns < 999995000)
		snprintf(buf, FORMAT_BYTES, "%.2f ms", ns / 1e6);
	else
		snprintf(buf, FORMAT_BYTES, "%.2f s", ns / 1e9);
	return buf;
}

/*
 * Bytes of the printable UTF-8 character at `at`; 0 when it is none: a control
 * character (C1 ones too), an overlong or broken sequence, a surrogate.
 */
static size_t printable_bytes(const unsigned char *at)
{
	static const uint32_t least[] = {0, 0, 0xa0, 0x800, 0x10000};
	size_t bytes = at[0] >= 0xf0 ? 4 : at[0] >= 0xe0 ? 3 : at[0] >= 0xc0 ? 2 : 1;
	uint32_t code;

	if (bytes == 1)
		return at[0] >= 0x20 && at[0] < 0x7f;
	if (at[0] >= 0xf8)
		return 0;
	code = at[0] & (0x7f >> bytes);
	for (size_t i = 1; i < bytes; i++) {
		if ((at[i] & 0xc0) != 0x80)
			return 0;
		code = code << 6 | (at[i] & 0x3f);
	}
	if (code < least[bytes] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000))
		return 0;
	/* marks that reorder or hide text */
	if ((code >= 0x200b && code <= 0x200f) || (code >= 0x2028 && code <= 0x202e) ||
	    (code >= 0x2060 && code <= 0x206f) || code == 0xfeff)
		return 0;
	return bytes;
}

const char *format__escape(const char *text, char *buf, size_t buf_bytes)
{
	size_t used = 0;

	for (const unsigned char *at = (const unsigned char *)text; *at;) {
		char escaped[5];
		size_t bytes = *at == '\\' ? 0 : printable_bytes(at);
		size_t add = bytes ? bytes : 4;

		if (used + add >= buf_bytes)
			break;
		if (!bytes)
			snprintf(escaped, sizeof(escaped), "\\x%02x", *at);
		memcpy(buf + used, bytes ? (const char *)at : escaped, add);
		used += add;
		at += bytes ? bytes : 1;
	}
	buf[used] = 0;
	return buf;
}

void format__line(FILE *out, const char *label, const char *fmt, ...)
{
	va_list args;

	fprintf(out, "%-*s", FORMAT_LABEL_WIDTH, label);
	va_start(args, fmt);
	vfprintf(out, fmt, args);
	va_end(args);
	fputc('\n', out);
}
