/* The tables on the server that an instance has met. Rows of a table are floats: the number of the row's
 * states, which is 0 in rows that nobody has set, and then the states, all of the same length. One thread. */
#ifndef TDE_TABLES_H
#define TDE_TABLES_H

#include "millrace.h"
#include "trainer_client/torchrec/configuration.h"

#define TDE_STATES_MAX 256u /* a number that rows of any type hold exactly */

struct tde_table {
    char name[MR_NAME_BYTES];
    uint32_t id, dim;
    uint64_t start; /* of the server that has it under this number; 0: not known */
    bool was_there; /* at some time */
};

struct tde_tables {
    struct tde_table *all;
    uint32_t count, room;
};

void tde_tables_free(struct tde_tables *tables);
/* `*out`, valid until the next call, is the table as this start of the server has it; NULL: it has none of
 * that name. On failure `error` is one line; MR_FEATURE_MISMATCH: there is one, and it is not of the
 * plug-in's. */
enum mr_status tde_table_find(struct tde_tables *tables, struct mr_client *client, const char *name,
                              uint32_t deadline_ms, struct tde_table **out, char *error, size_t error_bytes);
/* The same, but makes it where there is none, with rows of `dim` floats. MR_FEATURE_MISMATCH also if it has
 * others. */
enum mr_status tde_table_make(struct tde_tables *tables, struct mr_client *client, const char *name,
                              uint32_t dim, const struct tde_configuration *configuration,
                              uint32_t deadline_ms, struct tde_table **out, char *error, size_t error_bytes);
/* It will be asked for again. */
void tde_table_forget(struct tde_table *table);
/* It is still the same start of the server. */
bool tde_table_is_current(const struct tde_table *table, const struct mr_client *client);

#endif
