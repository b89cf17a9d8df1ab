/* What Millrace calls the table of an embedding table, or of one of its columns. Pure. */
#ifndef TDE_TABLE_NAME_H
#define TDE_TABLE_NAME_H

#include <stdbool.h>
#include <stdint.h>
#include "mr_feature.h"

/* prefix, table and, with a column, ":c" and its number. Where that is too long for a name, or has bytes that
 * none may have, its beginning, with '_' for such bytes, '.', and the 16 hexadecimal digits of XXH3-64 over
 * the whole. */
void tde_table_name(const char *prefix, const char *table, bool has_column, int64_t column,
                    char out[MR_NAME_BYTES]);

#endif
