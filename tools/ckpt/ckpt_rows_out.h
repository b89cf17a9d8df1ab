/* Rows of a table into files of numbers: which parts of them, as which types, and where to. Used by dump and
 * export. Belongs to one thread. */
#ifndef TOOL_CKPT_ROWS_OUT_H
#define TOOL_CKPT_ROWS_OUT_H

#include <stdbool.h>
#include <stdint.h>
#include "tools/ckpt/ckpt_chain.h"
#include "tools/ckpt/ckpt_output.h"

#define CKPT_FIELDS_MAX (CKPT_PARTS_MAX + 1u)

/* The key, and parts of the row. */
struct ckpt_field {
    const char *name;
    enum mr_dtype dtype;          /* as written */
    uint32_t columns;             /* 0: a single element */
    const struct ckpt_part *part; /* NULL: the key */
};

struct ckpt_fields {
    struct ckpt_field list[CKPT_FIELDS_MAX];
    uint32_t count;
};

/* What is asked for. The key comes first, then the values. */
void ckpt_fields_of(const struct ckpt_row *row, const char *key_name, bool with_state, bool as_f32,
                    struct ckpt_fields *out);

/* Rows of the table at `index` of the chain's last link. */
struct ckpt_table_source {
    const struct ckpt_chain *chain;
    uint32_t index;
    uint64_t memory_bytes;
    const char *what; /* for progress: "dump" */
};
enum mr_status ckpt_table_count(const struct ckpt_table_source *source, uint64_t *rows, char *text);
/* Writes each field of each row to its column, or all to the first column, row by row. `row_count`: what
 * ckpt_table_count() said; another number of rows is an error. Errors of the columns are reported by
 * ckpt_column_close(). */
enum mr_status ckpt_table_write(const struct ckpt_table_source *source, const struct ckpt_fields *fields,
                                struct ckpt_column *columns, bool is_interleaved, uint64_t row_count,
                                char *text);

#endif
