/* Pieces of a line: fields between separators, and numbers of bounded length. Nothing here reads past the
 * field's end. Pure, any thread.
 */
#ifndef HUB_FIELD_H
#define HUB_FIELD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct hub_field {
    const char *text; /* not NUL-terminated */
    size_t bytes;
};

/* Takes the next field off the front of `rest`, which ends at `separator` or at the end of `rest`. False when
 * nothing is left: `rest->text` is NULL then. An empty last field counts, as in "a," split at ','. */
bool hub_field_next(struct hub_field *rest, char separator, struct hub_field *field);
/* The same for fields between runs of blanks and tabs; there are no empty ones. */
bool hub_field_next_word(struct hub_field *rest, struct hub_field *field);

/* The field without blanks and tabs at its ends. */
struct hub_field hub_field_trim(struct hub_field field);

/* The whole field as a decimal integer within i64, or as a finite decimal number. False: `*value` is
 * untouched. */
bool hub_field_integer(struct hub_field field, int64_t *value);
bool hub_field_number(struct hub_field field, double *value);

#endif
