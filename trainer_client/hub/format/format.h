/* Formats of sample files: how a line of text becomes a sample. Each is made from a description, an INI file
 * (docs/data-formats.md). libsvm, criteo and flights are built in, from configs/formats/; others are read
 * when the hub starts. A format does not change once it is made; any thread may use it.
 */
#ifndef HUB_FORMAT_H
#define HUB_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include "dataplane/wire/format/mr_status.h"
#include "trainer_client/hub/format/sample.h"
#include "trainer_client/hub/format/sample_block.h"

#define HUB_FORMAT_BYTES       32u /* of a name, with its NUL */
#define HUB_FORMATS_MAX        64u
#define HUB_FORMAT_NAMES_BYTES 320u
#define HUB_FORMAT_ERROR_BYTES 640u

enum hub_parse {
    HUB_PARSED,
    HUB_NO_SAMPLE, /* a header or a blank line: no sample, and no fault */
    HUB_BROKEN,
};

struct hub_description;

struct hub_format {
    char name[HUB_FORMAT_BYTES];
    uint32_t slots, dense;
    bool has_weights; /* of keys; otherwise each has the weight 1 */
    bool is_built_in;
    bool has_no_labels; /* its samples, whose label is NaN, are scored, not trained on */
    uint64_t digest;    /* of what the description says, whatever its comments */
    struct hub_description *description;
};

/* Why samples are not for this part of an input that is read once, or, without labels, of any: "it has no
 * labels to train on: ..."; NULL: they are. */
const char *hub_format_wrong_part(bool has_labels, bool held_out);
/* The first block of an input says what all of them are like: sets the shape. NULL; or why such samples are
 * not for this part, and nothing is set. */
const char *hub_format_take_block(struct hub_format *shape, const struct hub_block_head *head, bool held_out);
/* NULL, or how a block of the input differs from the first. */
const char *hub_format_check_block(const struct hub_format *shape, const struct hub_block_head *head);

/* Reads a description; `path` is for messages. MR_INVALID_ARGUMENT: `error` (HUB_FORMAT_ERROR_BYTES) has
 * file, line, key and what is allowed. MR_IO_ERROR, MR_NO_MEMORY. Release it with hub_format_free(). */
enum mr_status hub_format_read(FILE *file, const char *path, struct hub_format **out, char *error);
void hub_format_free(struct hub_format *f); /* NULL is fine */
const char *hub_format_slot_name(const struct hub_format *f, uint32_t slot);
const char *hub_format_dense_name(const struct hub_format *f, uint32_t i);

/* Whether the first line of a file says where its columns are; hub_format_bind() reads it then. */
bool hub_format_has_names(const struct hub_format *f);
/* Makes the format of a file with this first line, for its other lines; to be freed. NULL: `reason`
 * (HUB_REASON_BYTES) says why the line is no such header. */
struct hub_format *hub_format_bind(const struct hub_format *f, const char *line, size_t bytes, char *reason);

/* Makes a sample of a line, which is not NUL-terminated and has no line end. HUB_BROKEN: `reason`
 * (HUB_REASON_BYTES) says why, and `sample` is undefined. line_number counts from 1. */
enum hub_parse hub_format_parse(const struct hub_format *f, const char *line, size_t bytes,
                                uint64_t line_number, struct hub_sample *sample, char *reason);

/* All formats that a hub knows; those that are built in come first. */
struct hub_formats {
    struct hub_format *all[HUB_FORMATS_MAX];
    uint32_t count;
};
/* Makes those that are built in. NULL: no memory. */
struct hub_formats *hub_formats_create(void);
void hub_formats_destroy(struct hub_formats *formats); /* NULL is fine */
/* Adds the format that a file describes. Errors as of hub_format_read(); also MR_INVALID_ARGUMENT: its name
 * is taken, or there are too many. */
enum mr_status hub_formats_add(struct hub_formats *formats, const char *path, char *error);
/* NULL: there is no format of that name. */
const struct hub_format *hub_formats_find(const struct hub_formats *formats, const char *name);
/* Writes "libsvm, criteo, flights" (HUB_FORMAT_NAMES_BYTES), for error messages. Returns `out`. */
const char *hub_formats_names(const struct hub_formats *formats, char *out);

#endif
