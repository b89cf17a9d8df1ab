#include "trainer_client/torchrec/tables.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "millrace_admin.h"
#include "trainer_client/torchrec/report.h"

void tde_tables_free(struct tde_tables *tables)
{
    free(tables->all);
    *tables = (struct tde_tables){0};
}

void tde_table_forget(struct tde_table *table)
{
    table->start = 0;
}

bool tde_table_is_current(const struct tde_table *table, const struct mr_client *client)
{
    return table->start == mr_client_start_id(client);
}

static enum mr_status refuse(enum mr_status status, const char *why, char *error, size_t error_bytes)
{
    (void)snprintf(error, error_bytes, "%s", why);
    return status;
}

static enum mr_status refuse_call(enum mr_status status, char *error, size_t error_bytes)
{
    return refuse(status, mr_last_error(), error, error_bytes);
}

/* NULL: no memory. */
static struct tde_table *entry_of(struct tde_tables *tables, const char *name)
{
    for (uint32_t i = 0; i < tables->count; i++)
        if (strcmp(tables->all[i].name, name) == 0)
            return &tables->all[i];
    if (tables->count == tables->room) {
        uint32_t room = tables->room == 0 ? 4 : 2 * tables->room;
        struct tde_table *all = realloc(tables->all, room * sizeof(*all));
        if (all == NULL)
            return NULL;
        tables->all = all;
        tables->room = room;
    }
    struct tde_table *entry = &tables->all[tables->count++];
    *entry = (struct tde_table){0};
    (void)snprintf(entry->name, sizeof(entry->name), "%s", name);
    return entry;
}

/* Whether the plug-in could have made it, by whatever configuration. */
static bool is_own(const struct mr_feature *f)
{
    return f->kind == MR_TABLE && f->optimizer == MR_OPT_ASSIGN && f->initializer == MR_INIT_CONSTANT &&
           !(f->init_a > 0 || f->init_a < 0);
}

static enum mr_status look_up(struct tde_table *entry, struct mr_client *client, uint32_t deadline_ms,
                              char *error, size_t error_bytes)
{
    const struct mr_options options = {.deadline_ms = deadline_ms};
    struct mr_feature_info *infos;
    uint32_t count;
    uint64_t start = mr_client_start_id(client);
    enum mr_status status = mr_list(client, &options, &infos, &count);
    if (status != MR_OK)
        return refuse_call(status, error, error_bytes);
    entry->start = 0;
    for (uint32_t i = 0; i < count && status == MR_OK; i++) {
        const struct mr_feature *f = &infos[i].feature;
        if (strcmp(f->name, entry->name) != 0)
            continue;
        if (!is_own(f))
            status =
                refuse(MR_FEATURE_MISMATCH,
                       "the server has one of that name that was not made by this plug-in: choose another "
                       "prefix",
                       error, error_bytes);
        entry->id = infos[i].id;
        entry->dim = f->dims[0];
        entry->start = start;
    }
    free(infos);
    return status;
}

enum mr_status tde_table_find(struct tde_tables *tables, struct mr_client *client, const char *name,
                              uint32_t deadline_ms, struct tde_table **out, char *error, size_t error_bytes)
{
    struct tde_table *entry = entry_of(tables, name);
    if (entry == NULL)
        return refuse(MR_NO_MEMORY, "no memory", error, error_bytes);
    if (entry->start == 0 || !tde_table_is_current(entry, client)) {
        enum mr_status status = look_up(entry, client, deadline_ms, error, error_bytes);
        if (status != MR_OK)
            return status;
        if (entry->was_there && entry->start == 0)
            tde_line("the server has lost table %s: it restarted, from a checkpoint without it or from none",
                     name);
        entry->was_there = entry->start != 0;
    }
    *out = entry->start == 0 ? NULL : entry;
    return MR_OK;
}

/* A table that is in no checkpoint would be gone with the server, and what replay keeps for it of no use. */
static void tables_save(struct mr_client *client, const char *name, uint32_t deadline_ms)
{
    const struct mr_options options = {.deadline_ms = deadline_ms};
    const struct mr_save_options what = {.bytes = sizeof(what), .queue = true};
    uint64_t number;
    if (mr_save(client, &options, &what, NULL, &number) != MR_OK)
        tde_line("made table %s, and could not have it saved: %s", name, mr_last_error());
}

static enum mr_status tables_create(struct tde_table *entry, struct mr_client *client, uint32_t dim,
                                    const struct tde_configuration *configuration, uint32_t deadline_ms,
                                    char *error, size_t error_bytes)
{
    const struct mr_options options = {.deadline_ms = deadline_ms};
    struct mr_feature f = mr_feature_table(entry->name, dim);
    uint64_t start = mr_client_start_id(client);
    mr_feature_set_optimizer(&f, MR_OPT_ASSIGN);
    f.dtype = (uint32_t)configuration->dtype;
    enum mr_status status = mr_create(client, &options, &f, 1, &entry->id);
    if (status != MR_OK)
        return refuse_call(status, error, error_bytes);
    entry->dim = dim;
    entry->start = start;
    entry->was_there = true;
    if (configuration->replay)
        tables_save(client, entry->name, deadline_ms);
    return MR_OK;
}

enum mr_status tde_table_make(struct tde_tables *tables, struct mr_client *client, const char *name,
                              uint32_t dim, const struct tde_configuration *configuration,
                              uint32_t deadline_ms, struct tde_table **out, char *error, size_t error_bytes)
{
    struct tde_table *entry;
    enum mr_status status = tde_table_find(tables, client, name, deadline_ms, &entry, error, error_bytes);
    if (status == MR_OK && entry == NULL) {
        entry = entry_of(tables, name); /* it has been made by now */
        status = tables_create(entry, client, dim, configuration, deadline_ms, error, error_bytes);
    }
    if (status == MR_OK && entry->dim != dim) {
        (void)snprintf(error, error_bytes,
                       "its rows have %u floats, and what is pushed makes rows of %u: another dimension or "
                       "optimizer needs another prefix",
                       entry->dim, dim);
        status = MR_FEATURE_MISMATCH;
    }
    if (status == MR_OK)
        *out = entry;
    return status;
}
