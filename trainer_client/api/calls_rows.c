/* Rows by key: lookups and gradient pushes, of single keys and of bags, of one table or several
 * (rows_call.h). Rows that are set or read as they are stored are a push and a lookup, too, of f32. */
#include <stdlib.h>
#include "dataplane/wire/format/capability.h"
#include "trainer_client/api/rows_call.h"
#include "trainer_client/call/node.h"

#define TABLES_MAX UINT16_MAX

/* ---- one table ---- */

/* flags: mrc_rows_call.flags. */
static enum mr_status run_table(struct mr_client *client, const struct mr_options *options, enum mr_op op,
                                const struct mrc_rows_request *of, uint32_t flags, struct mr_reply **reply)
{
    struct mrc_rows_request request = *of;
    struct mrc_rows_call c = {.retry = mrc_rows_retry(client, options, op), .table_count = 1, .flags = flags};
    return mrc_rows_run(&c, &request, reply);
}

static enum mr_status check_keys(const char *call, const struct mr_client *client, const uint64_t *keys,
                                 uint32_t key_count)
{
    if (client == NULL)
        return mrc_bad_argument(call, "client is NULL");
    if (keys == NULL && key_count > 0)
        return mrc_bad_argument(call, "keys is NULL");
    return MR_OK;
}

static enum mr_status check_bags(const char *call, const struct mr_client *client, const uint64_t *keys,
                                 const float *weights, const uint32_t *offsets, uint32_t bag_count)
{
    enum mr_status status = mrc_check_offsets(call, offsets, bag_count);
    if (status == MR_OK)
        status = check_keys(call, client, keys, offsets[bag_count]);
    return status != MR_OK ? status : mrc_check_weights(call, weights, offsets[bag_count]);
}

static enum mr_status check_gradients(const char *call, uint32_t dim, const float *gradients)
{
    if (gradients == NULL)
        return mrc_bad_argument(call, "gradients is NULL");
    if (dim == 0 || dim > MR_DIM_MAX)
        return mrc_error(MR_INVALID_ARGUMENT, "%s: dim is %u; it goes from 1 to %u", call, dim, MR_DIM_MAX);
    return MR_OK;
}

enum mr_status mr_lookup_bags(struct mr_client *client, const struct mr_options *options, uint32_t table,
                              const uint64_t *keys, const float *weights, const uint32_t *offsets,
                              uint32_t bag_count, struct mr_reply **reply)
{
    enum mr_status status = check_bags("mr_lookup_bags", client, keys, weights, offsets, bag_count);
    if (status != MR_OK)
        return status;
    const struct mrc_rows_request request = {.table = table,
                                             .keys = keys,
                                             .key_count = offsets[bag_count],
                                             .offsets = offsets,
                                             .bag_count = bag_count,
                                             .weights = weights};
    return run_table(client, options, MR_OP_LOOKUP, &request, 0, reply);
}

enum mr_status mr_push_gradients_bags(struct mr_client *client, const struct mr_options *options,
                                      uint32_t table, const uint64_t *keys, const float *weights,
                                      const uint32_t *offsets, uint32_t bag_count, uint32_t dim,
                                      const float *gradients)
{
    enum mr_status status = check_bags("mr_push_gradients_bags", client, keys, weights, offsets, bag_count);
    if (status == MR_OK)
        status = check_gradients("mr_push_gradients_bags", dim, gradients);
    if (status != MR_OK)
        return status;
    const struct mrc_rows_request request = {.table = table,
                                             .keys = keys,
                                             .key_count = offsets[bag_count],
                                             .offsets = offsets,
                                             .bag_count = bag_count,
                                             .weights = weights,
                                             .dim = dim,
                                             .gradients = mrc_rows_f32(gradients)};
    return run_table(client, options, MR_OP_PUSH_GRAD, &request, 0, NULL);
}

enum mr_status mr_lookup(struct mr_client *client, const struct mr_options *options, uint32_t table,
                         const uint64_t *keys, uint32_t key_count, struct mr_reply **reply)
{
    enum mr_status status = check_keys("mr_lookup", client, keys, key_count);
    const struct mrc_rows_request request = {.table = table, .keys = keys, .key_count = key_count};
    return status != MR_OK ? status : run_table(client, options, MR_OP_LOOKUP, &request, 0, reply);
}

enum mr_status mr_push_gradients(struct mr_client *client, const struct mr_options *options, uint32_t table,
                                 const uint64_t *keys, uint32_t key_count, uint32_t dim,
                                 const float *gradients)
{
    enum mr_status status = check_keys("mr_push_gradients", client, keys, key_count);
    if (status == MR_OK)
        status = check_gradients("mr_push_gradients", dim, gradients);

    const struct mrc_rows_request request = {.table = table,
                                             .keys = keys,
                                             .key_count = key_count,
                                             .dim = dim,
                                             .gradients = mrc_rows_f32(gradients)};
    return status != MR_OK ? status : run_table(client, options, MR_OP_PUSH_GRAD, &request, 0, NULL);
}

/* Rows as they are stored are f32, and an optimizer makes no step. */
static enum mr_status check_plain(const char *call, const struct mr_options *options)
{
    if (options == NULL)
        return MR_OK;
    if (options->wire_dtype != MR_DTYPE_NONE && options->wire_dtype != MR_F32)
        return mrc_bad_argument(call, "wire_dtype is set; these rows are always f32");
    if (options->has_learning_rate || options->learning_rate != 0)
        return mrc_bad_argument(call, "learning_rate is set; rows that are set have none");
    return MR_OK;
}

enum mr_status mr_set_rows(struct mr_client *client, const struct mr_options *options, uint32_t table,
                           const uint64_t *keys, uint32_t key_count, uint32_t row_floats, bool has_state,
                           const float *rows)
{
    const char *call = "mr_set_rows";
    enum mr_status status = check_keys(call, client, keys, key_count);
    if (status == MR_OK)
        status = check_plain(call, options);
    if (status == MR_OK && rows == NULL)
        status = mrc_bad_argument(call, "rows is NULL");
    if (status == MR_OK && (row_floats == 0 || row_floats > MR_STORED_ROW_FLOATS_MAX))
        status = mrc_error(MR_INVALID_ARGUMENT, "%s: row_floats is %u; it goes from 1 to %u", call,
                           row_floats, MR_STORED_ROW_FLOATS_MAX);
    if (status == MR_OK)
        status = mrc_nodes_check(client, call, MR_CAN(SET_ROWS));
    if (status != MR_OK)
        return status;
    const struct mrc_rows_request request = {.table = table,
                                             .keys = keys,
                                             .key_count = key_count,
                                             .dim = row_floats,
                                             .gradients = mrc_rows_f32(rows)};
    return run_table(client, options, MR_OP_PUSH_GRAD, &request,
                     MR_PUSH_SET | (has_state ? MR_PUSH_STATE : 0), NULL);
}

enum mr_status mr_get_rows(struct mr_client *client, const struct mr_options *options, uint32_t table,
                           const uint64_t *keys, uint32_t key_count, bool with_state, struct mr_reply **reply)
{
    const char *call = "mr_get_rows";
    enum mr_status status = check_keys(call, client, keys, key_count);
    if (status == MR_OK)
        status = check_plain(call, options);
    if (status == MR_OK)
        status = mrc_nodes_check(client, call, MR_CAN(SET_ROWS));
    if (status != MR_OK)
        return status;
    const struct mrc_rows_request request = {.table = table, .keys = keys, .key_count = key_count};
    return run_table(client, options, MR_OP_LOOKUP, &request,
                     MR_FEED_READ_ONLY | MR_LOOKUP_STORED | (with_state ? MR_LOOKUP_STATE : 0), reply);
}

/* ---- several tables ---- */

static enum mr_status check_table(const char *call, const struct mr_table_keys *k, uint32_t i)
{
    if (k->offsets == NULL && k->weights != NULL)
        return mrc_error(MR_INVALID_ARGUMENT, "%s: tables[%u] has weights without offsets; they are of bags",
                         call, i);
    enum mr_status status = k->offsets == NULL ? MR_OK : mrc_check_offsets(call, k->offsets, k->bag_count);
    const uint32_t key_count =
        status != MR_OK || k->offsets == NULL ? k->key_count : k->offsets[k->bag_count];

    if (status == MR_OK && k->keys == NULL && key_count > 0)
        return mrc_error(MR_INVALID_ARGUMENT, "%s: tables[%u].keys is NULL", call, i);
    return status != MR_OK ? status : mrc_check_weights(call, k->weights, key_count);
}

static enum mr_status check_count(const char *call, const struct mr_client *client, const void *tables,
                                  uint32_t table_count)
{
    if (client == NULL || tables == NULL)
        return mrc_bad_argument(call, client == NULL ? "client is NULL" : "tables is NULL");
    if (table_count == 0 || table_count > TABLES_MAX)
        return mrc_error(MR_INVALID_ARGUMENT, "%s: table_count is %u; it goes from 1 to %u", call,
                         table_count, TABLES_MAX);
    return MR_OK;
}

static struct mrc_rows_request request_of(const struct mr_table_keys *k)
{
    return (struct mrc_rows_request){.table = k->table,
                                     .keys = k->keys,
                                     .key_count =
                                         k->offsets == NULL ? k->key_count : k->offsets[k->bag_count],
                                     .offsets = k->offsets,
                                     .bag_count = k->offsets == NULL ? 0 : k->bag_count,
                                     .weights = k->weights};
}

static enum mr_status run_tables(struct mr_client *client, const struct mr_options *options, enum mr_op op,
                                 struct mrc_rows_request *requests, uint32_t table_count,
                                 struct mr_reply **reply)
{
    struct mrc_rows_call c = {.retry = mrc_rows_retry(client, options, op), .table_count = table_count};
    const enum mr_status status = mrc_rows_run(&c, requests, reply);
    free(requests);
    return status;
}

enum mr_status mr_lookup_tables(struct mr_client *client, const struct mr_options *options,
                                const struct mr_table_keys *tables, uint32_t table_count,
                                struct mr_reply **reply)
{
    const char *call = "mr_lookup_tables";
    enum mr_status status = check_count(call, client, tables, table_count);
    for (uint32_t i = 0; i < table_count && status == MR_OK; i++)
        status = check_table(call, &tables[i], i);
    if (status != MR_OK)
        return status;
    struct mrc_rows_request *requests = malloc(table_count * sizeof(*requests));
    if (requests == NULL)
        return mrc_error(MR_NO_MEMORY, "%s: no memory for %u tables", call, table_count);
    for (uint32_t i = 0; i < table_count; i++)
        requests[i] = request_of(&tables[i]);
    return run_tables(client, options, MR_OP_LOOKUP_TABLES, requests, table_count, reply);
}

/* A push runs the optimizer once for a table. */
static enum mr_status check_named_once(const char *call, const struct mr_table_gradients *tables, uint32_t i)
{
    for (uint32_t before = 0; before < i; before++)
        if (tables[before].of.table == tables[i].of.table)
            return mrc_error(
                MR_INVALID_ARGUMENT,
                "%s: tables[%u] and tables[%u] are the same one, number %u: a push has each once", call,
                before, i, tables[i].of.table);
    return MR_OK;
}

static enum mr_status check_table_gradients(const char *call, const struct mr_table_gradients *tables,
                                            uint32_t i)
{
    const struct mr_table_gradients *t = &tables[i];
    enum mr_status status = check_table(call, &t->of, i);
    if (status != MR_OK)
        return status;
    if (t->gradients == NULL)
        return mrc_error(MR_INVALID_ARGUMENT, "%s: tables[%u].gradients is NULL", call, i);
    if (t->dim == 0 || t->dim > MR_DIM_MAX)
        return mrc_error(MR_INVALID_ARGUMENT, "%s: tables[%u].dim is %u; it goes from 1 to %u", call, i,
                         t->dim, MR_DIM_MAX);
    return check_named_once(call, tables, i);
}

enum mr_status mr_push_gradients_tables(struct mr_client *client, const struct mr_options *options,
                                        const struct mr_table_gradients *tables, uint32_t table_count)
{
    const char *call = "mr_push_gradients_tables";
    enum mr_status status = check_count(call, client, tables, table_count);
    for (uint32_t i = 0; i < table_count && status == MR_OK; i++)
        status = check_table_gradients(call, tables, i);
    if (status != MR_OK)
        return status;
    struct mrc_rows_request *requests = malloc(table_count * sizeof(*requests));
    if (requests == NULL)
        return mrc_error(MR_NO_MEMORY, "%s: no memory for %u tables", call, table_count);
    for (uint32_t i = 0; i < table_count; i++) {
        requests[i] = request_of(&tables[i].of);
        requests[i].dim = tables[i].dim;
        requests[i].gradients = mrc_rows_f32(tables[i].gradients);
    }
    return run_tables(client, options, MR_OP_PUSH_GRAD, requests, table_count, NULL);
}
