/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Structures described field by field, so that writing them as JSON and reading
 * them again come from one description. A field is one line:
 *
 *     static const struct field commit_fields[] = {
 *             FIELD(struct commit_stat, charged_pages),
 *             FIELD_ARRAY(struct commit_stat, past_cnt, batch_name),
 *             FIELD_END,
 *     };
 *
 * Its JSON key is the member's name, its kind follows from the member's type.
 * Elements of an array are an object by their names, or by their numbers, and
 * are left out where they are all zero.
 */
#ifndef ALLOCTRACE_CLI_FIELDS_H
#define ALLOCTRACE_CLI_FIELDS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum field_kind {
	FIELD_KIND_NONE,
	FIELD_KIND_U64,
	FIELD_KIND_I64,
	FIELD_KIND_U32,
	FIELD_KIND_INT,
	FIELD_KIND_BOOL,
	FIELD_KIND_DOUBLE,
	FIELD_KIND_TEXT,    /* char[] */
	FIELD_KIND_STRING,  /* char *, owned; NULL is absent */
	FIELD_KIND_STRINGS, /* char **, NULL-terminated, owned; NULL is absent */
	FIELD_KIND_FLAGS,   /* uint32_t of bits, by their names */
	FIELD_KIND_ENUM,    /* uint16_t or uint32_t, by its name */
	FIELD_KIND_OBJECT,  /* a structure with fields of its own */
	FIELD_KIND_OWNED,   /* an owned pointer to one; NULL is absent */
	FIELD_KIND_LIST,    /* an owned array, and the member (size_t) that has its length */
};

struct field {
	const char *key;
	enum field_kind kind;
	size_t offset, bytes;           /* bytes: of one element */
	size_t cnt;                     /* elements of an array, or bits; 0: not an array */
	const char *(*name)(int index); /* of an element or a bit; NULL as a result: there is none; NULL: its number */
	const struct field *fields;     /* of an object; NULL in a list: uint32_t */
	size_t cnt_offset;              /* of a list: where its length is */
};

#define FIELD_KIND_OF(pointer) \
	_Generic(pointer, uint64_t *         \
		 : FIELD_KIND_U64, unsigned long long * \
		 : FIELD_KIND_U64, int64_t * \
		 : FIELD_KIND_I64, unsigned *\
		 : FIELD_KIND_U32, int *     \
		 : FIELD_KIND_INT, bool *    \
		 : FIELD_KIND_BOOL, double * \
		 : FIELD_KIND_DOUBLE, char **\
		 : FIELD_KIND_STRING, char ***: FIELD_KIND_STRINGS)
#define FIELD_MEMBER(type, member) (((type *)0)->member)
#define FIELD_PLACE(type, member) .key = #member, .offset = offsetof(type, member)

/* A number, a truth value, an owned string or list of strings. */
#define FIELD(type, member)                                                                    \
	{                                                                                      \
		FIELD_PLACE(type, member), .kind = FIELD_KIND_OF(&FIELD_MEMBER(type, member)), \
					   .bytes = sizeof(FIELD_MEMBER(type, member)),        \
	}
#define FIELD_ARRAY(type, member, names)                                                                   \
	{                                                                                                  \
		FIELD_PLACE(type, member),                                                                 \
			.kind = FIELD_KIND_OF(&FIELD_MEMBER(type, member)[0]),                             \
			.bytes = sizeof(FIELD_MEMBER(type, member)[0]),                                    \
			.cnt = sizeof(FIELD_MEMBER(type, member)) / sizeof(FIELD_MEMBER(type, member)[0]), \
			.name = (names),                                                                   \
	}
#define FIELD_TEXT(type, member)                                                                                 \
	{                                                                                                        \
		FIELD_PLACE(type, member), .kind = FIELD_KIND_TEXT, .bytes = sizeof(FIELD_MEMBER(type, member)), \
	}
#define FIELD_FLAGS(type, member, bit_cnt, names)                                                                 \
	{                                                                                                         \
		FIELD_PLACE(type, member), .kind = FIELD_KIND_FLAGS, .bytes = sizeof(uint32_t), .cnt = (bit_cnt), \
					   .name = (names),                                                       \
	}
#define FIELD_OBJECT(type, member, its_fields)                                                                     \
	{                                                                                                          \
		FIELD_PLACE(type, member), .kind = FIELD_KIND_OBJECT, .bytes = sizeof(FIELD_MEMBER(type, member)), \
					   .fields = (its_fields),                                                 \
	}
#define FIELD_OBJECTS(type, member, names, its_fields)                                                     \
	{                                                                                                  \
		FIELD_PLACE(type, member),                                                                 \
			.kind = FIELD_KIND_OBJECT, .bytes = sizeof(FIELD_MEMBER(type, member)[0]),         \
			.cnt = sizeof(FIELD_MEMBER(type, member)) / sizeof(FIELD_MEMBER(type, member)[0]), \
			.name = (names), .fields = (its_fields),                                           \
	}
#define FIELD_ENUM(type, member, value_cnt, names)                                                               \
	{                                                                                                        \
		FIELD_PLACE(type, member), .kind = FIELD_KIND_ENUM, .bytes = sizeof(FIELD_MEMBER(type, member)), \
					   .cnt = (value_cnt), .name = (names),                                  \
	}
#define FIELD_OWNED(type, member, its_fields)                                                                      \
	{                                                                                                          \
		FIELD_PLACE(type, member), .kind = FIELD_KIND_OWNED, .bytes = sizeof(*FIELD_MEMBER(type, member)), \
					   .fields = (its_fields),                                                 \
	}
#define FIELD_LIST(type, member, cnt_member, its_fields)                                                          \
	{                                                                                                         \
		FIELD_PLACE(type, member), .kind = FIELD_KIND_LIST, .bytes = sizeof(*FIELD_MEMBER(type, member)), \
					   .fields = (its_fields), .cnt_offset = offsetof(type, cnt_member),      \
	}
#define FIELD_END \
	{         \
		0 \
	}

/* No figure that is measured is larger; the sums of a few cannot overflow a signed number. */
#define FIELDS_SIGNED_MAX ((int64_t)1 << 60)

/* What a reading found. */
struct fields_reading {
	char where[128];   /* the path of the value that is wrong */
	const char *why;   /* what is wrong with it; static text; NULL: nothing is */
	char unknown[128]; /* the path of the first key that is not known */
	unsigned long unknown_cnt;
};

/* A new object; NULL when out of memory. */
json_t *fields__write(const struct field *fields, const void *data);
/*
 * Fills data, which has its defaults: what is absent stays as it is. 0, -EINVAL
 * with `why` and `where`, or -ENOMEM. `where` says where the object is, "" for
 * the outermost. Keys that are not known are counted. Strings that were
 * read are data's own in any case.
 */
int fields__read(const struct field *fields, const json_t *object, void *data, struct fields_reading *reading);

/* Gives every number the value 1, every truth value true, and sets every flag; texts stay. */
void fields__set_all(const struct field *fields, void *data);

#endif
