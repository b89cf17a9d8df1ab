/* Rows of .npy files as a table stores them. Belongs to one thread. */
#ifndef TOOL_CKPT_IMPORT_ROWS_H
#define TOOL_CKPT_IMPORT_ROWS_H

#include <stdbool.h>
#include <stdint.h>
#include "tools/ckpt/ckpt_row.h"
#include "tools/arrays/npy.h"

struct ckpt_import_rows {
    struct tool_npy_file keys, values;
    struct ckpt_row_maker maker; /* set once the table is known */
    uint64_t count;
    uint32_t dim;
};

/* Opens both files and checks that they belong together: keys [n] of u64 or i64, values [n, dim] of f32, f16,
 * or u16 (the bits of bf16). False with one line in `text` (TOOL_NPY_TEXT_BYTES) that names the file and what
 * to do. */
bool ckpt_import_open(struct ckpt_import_rows *r, const char *keys, const char *values, char *text);
void ckpt_import_close(struct ckpt_import_rows *r);
/* Whether values of that type can become the table's: u16 only bf16. */
bool ckpt_import_check_type(const struct ckpt_import_rows *r, enum mr_dtype table_dtype, char *text);
/* Reads all keys, in passes of memory_bytes each: none may come twice, none of i64 may be below 0. */
bool ckpt_import_check_keys(const struct ckpt_import_rows *r, uint64_t memory_bytes, char *text);

#define CKPT_IMPORT_ROWS 1024u /* read at a time */
/* Rows [first, first + count), count <= CKPT_IMPORT_ROWS: keys, and stored rows of maker.layout.bytes each.
 * Values that are no finite numbers of the table's type are refused. */
bool ckpt_import_read(const struct ckpt_import_rows *r, uint64_t first, uint32_t count, uint64_t *keys,
                      uint8_t *rows, char *text);

#endif
