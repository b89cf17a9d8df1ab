/* What one line of the log looks like, in each format. Pure. */
#ifndef MR_LOG_LINE_H
#define MR_LOG_LINE_H

#include <stddef.h>
#include <stdint.h>
#include <time.h>
#include "dataplane/wire/base/log.h"

#define MR_LOG_MESSAGE_BYTES 1024u /* longer ones are cut */
#define MR_LOG_TEXTS_BYTES   1024u /* of all fields of a line together */
#define MR_LOG_NODE_BYTES    128u
#define MR_LOG_LINE_BYTES    16384u /* of any line, whatever is in it */

struct mr_log_record {
    const struct mr_log_site *site;
    struct timespec time; /* since 1970 */
    size_t field_count;
    struct mr_log_field fields[MR_LOG_FIELDS_MAX];
    char message[MR_LOG_MESSAGE_BYTES];
    char texts[MR_LOG_TEXTS_BYTES]; /* of the fields */
};

/* Who logs. */
struct mr_log_identity {
    const char *program;
    char node[MR_LOG_NODE_BYTES];
};

const char *mr_log_level_name(enum mr_log_level level);
/* Copies the fields, and their texts as far as there is room. */
void mr_log_record_fields(struct mr_log_record *record, const struct mr_log_field *fields, size_t count);
/* The folder that a line comes from: "control" for ps/control/control.c. Returns its length; *start is in
 * `file`. */
size_t mr_log_component(const char *file, const char **start);
/* The line, ended by a newline; returns its length. Bytes that are no UTF-8 become U+FFFD in logfmt and JSON;
 * in text, control characters become spaces. */
size_t mr_log_line(const struct mr_log_record *record, enum mr_log_format format,
                   const struct mr_log_identity *who, char out[MR_LOG_LINE_BYTES]);

#endif
