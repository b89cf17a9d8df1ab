/* Create, Alter, Freeze, Drop, List. */
#include <stdlib.h>
#include <string.h>
#include "dataplane/wire/base/printable.h"
#include "millrace_admin.h"
#include "trainer_client/api/calls.h"
#include "trainer_client/call/call_hooks.h"
#include "dataplane/wire/format/capability.h"
#include "trainer_client/call/node.h"

struct create_context {
    uint32_t *ids;
    uint32_t count;
    struct mr_feature features[];
};

static enum mr_status finish_create(struct mr_future *f, struct mr_reply **reply)
{
    struct create_context *context = f->context;
    const struct mr_tensor *ids = mrc_answer_tensor(f, 0, 0, MR_U32, 1);
    const struct mr_tensor *ranges = mrc_answer_tensor(f, 0, 1, MR_U32, 1);
    if (ids == NULL || ids->dims[0] != context->count ||
        (ranges != NULL && ranges->dims[0] != context->count))
        return mrc_answer_garbled(f, 0);
    /* One that was there is split as it was made. Nodes of earlier versions split none, and say nothing. */
    for (uint32_t i = 0; i < context->count && ranges != NULL; i++)
        context->features[i].range_values = ((const uint32_t *)ranges->data)[i];
    enum mr_status status = mrc_reply_give(f, reply);

    if (status != MR_OK)
        return status;
    pthread_mutex_lock(&f->client->lock);
    for (uint32_t i = 0; i < context->count; i++)
        mrc_call_hooks.met(f->requests[0].link->node, ((const uint32_t *)ids->data)[i], &context->features[i],
                           f->requests[0].start_id);
    pthread_mutex_unlock(&f->client->lock);
    memcpy(context->ids, ids->data, context->count * sizeof(*context->ids));
    return MR_OK;
}

enum mr_status mr_create(struct mr_client *client, const struct mr_options *options,
                         const struct mr_feature *features, uint32_t count, uint32_t *ids)
{
    struct mr_future *f;
    if (client == NULL)
        return mrc_bad_argument("mr_create", "client is NULL");
    if (features == NULL || ids == NULL)
        return mrc_bad_argument("mr_create", features == NULL ? "features is NULL" : "ids is NULL");
    if (count == 0 || count > MR_FEATURE_MAX)
        return mrc_error(MR_INVALID_ARGUMENT, "mr_create: count is %u; it goes from 1 to %u", count,
                         MR_FEATURE_MAX);
    for (uint32_t i = 0; i < count; i++) {
        const char *field = mr_feature_check(&features[i]);
        if (field != NULL) {
            char text[MR_FEATURE_TEXT_BYTES];
            mr_feature_explain(&features[i], field, text, sizeof(text));
            return mrc_error(MR_INVALID_ARGUMENT, "mr_create: features[%u] (\"%.*s\"): %s", i,
                             MR_NAME_BYTES - 1, features[i].name, text);
        }
    }
    uint64_t needs = 0;
    for (uint32_t i = 0; i < count; i++)
        needs |= mr_feature_needs(&features[i]);
    enum mr_status status = mrc_nodes_check(client, "mr_create", needs);

    if (status == MR_OK)
        status = mrc_future_new(client, options, MR_OP_CREATE, 0, 1, 1,
                                sizeof(struct create_context) + count * sizeof(*features), &f);

    if (status != MR_OK)
        return status;
    struct create_context *context = f->context;

    context->ids = ids;
    context->count = count;
    memcpy(context->features, features, count * sizeof(*features));
    for (uint32_t i = 0; i < count; i++)
        mr_feature_spread(&context->features[i]);
    mrc_request_add(f, 0, mr_tensor_2d(MR_U8, count, sizeof(*features), context->features));
    f->requests[0].is_control = true;
    f->finish = finish_create;
    return mrc_future_run(f, options, NULL);
}

enum mr_status mr_alter(struct mr_client *client, const struct mr_options *options,
                        const struct mr_feature *before, const struct mr_feature *after)
{
    if (client == NULL)
        return mrc_bad_argument("mr_alter", "client is NULL");
    if (before == NULL || after == NULL)
        return mrc_bad_argument("mr_alter", before == NULL ? "before is NULL" : "after is NULL");
    struct mr_feature both[2] = {*before, *after};
    const struct mr_tensor tensor = mr_tensor_2d(MR_U8, 2, sizeof(*both), both);
    enum mr_status status = mrc_nodes_check(client, "mr_alter", mr_feature_needs(after));

    if (status != MR_OK)
        return status;
    return mrc_run_core0(client, options, MR_OP_ALTER, &tensor, 1, NULL, NULL, 0);
}

enum mr_status mr_freeze(struct mr_client *client, const struct mr_options *options, uint32_t level)
{
    if (client == NULL)
        return mrc_bad_argument("mr_freeze", "client is NULL");
    if (level > MR_FREEZE_ALL)
        return mrc_error(MR_INVALID_ARGUMENT, "mr_freeze: level is %u; 0 is off, 1 admit, 2 all", level);
    struct mr_tensor tensor = mr_tensor_1d(MR_U32, 1, &level);

    return mrc_run_core0(client, options, MR_OP_FREEZE, &tensor, 1, NULL, NULL, 0);
}

char *mrc_copy_names(const char *call, const char *const *names, uint32_t count, enum mr_status *status)
{
    char *copy = calloc(count, MR_NAME_BYTES);
    *status = MR_OK;
    if (copy == NULL) {
        *status = mrc_error(MR_NO_MEMORY, "%s: no memory left", call);
        return NULL;
    }
    for (uint32_t i = 0; i < count; i++) {
        const size_t bytes = names[i] == NULL ? 0 : strlen(names[i]);
        if (bytes == 0 || bytes >= MR_NAME_BYTES) {
            *status = mrc_error(MR_INVALID_ARGUMENT, "%s: names[%u] must have 1 to %u bytes", call, i,
                                MR_NAME_BYTES - 1);
            free(copy);
            return NULL;
        }
        memcpy(copy + (size_t)i * MR_NAME_BYTES, names[i], bytes);
    }
    return copy;
}

enum mr_status mr_drop(struct mr_client *client, const struct mr_options *options, const char *const *names,
                       uint32_t count)
{
    if (client == NULL)
        return mrc_bad_argument("mr_drop", "client is NULL");
    if (names == NULL || count == 0 || count > MR_FEATURE_MAX)
        return mrc_bad_argument("mr_drop", "names and count do not fit together, or there are too many");
    enum mr_status status;
    char *copy = mrc_copy_names("mr_drop", names, count, &status);

    if (copy == NULL)
        return status;
    const struct mr_tensor tensor = mr_tensor_2d(MR_U8, count, MR_NAME_BYTES, copy);

    status = mrc_run_core0(client, options, MR_OP_DROP, &tensor, 1, NULL, NULL, 0);
    free(copy);
    return status;
}

struct list_context {
    struct mr_feature_info **infos;
    uint32_t *count;
};

/* Finds the tensors of a node's reply to LIST; false: it is malformed. */
static bool list_tensors(const struct mr_future *f, uint32_t request, const struct mr_tensor *t[3])
{
    t[0] = mrc_answer_tensor(f, request, 0, MR_U8, 2);
    t[1] = mrc_answer_tensor(f, request, 1, MR_U32, 1);
    t[2] = mrc_answer_body_rows(f, request, 2, MR_BODY_LIST);
    return t[0] != NULL && t[1] != NULL && t[2] != NULL && t[0]->dims[0] == t[1]->dims[0] &&
           t[2]->dims[0] == t[1]->dims[0] && t[0]->dims[1] == sizeof(struct mr_feature);
}

bool mrc_learn_features(const struct mr_future *f)
{
    struct mrc_features *known = &f->client->features;
    const struct mr_tensor *t[3];
    if (!list_tensors(f, 0, t))
        return false;
    const struct mr_feature *features = t[0]->data;
    const uint32_t *ids = t[1]->data;

    known->complete = true;
    for (uint32_t i = 0; i < t[1]->dims[0]; i++)
        known->complete &= mrc_features_add(known, ids[i], &features[i]) == MR_OK;
    return known->complete;
}

/* Adds what a further node has of the features. */
static enum mr_status add_node(const struct mr_future *f, uint32_t request, struct mr_feature_info *infos,
                               uint32_t count)
{
    const struct mr_tensor *t[3];
    if (!list_tensors(f, request, t))
        return mrc_answer_garbled(f, request);
    const uint32_t *ids = t[1]->data;

    for (uint32_t i = 0, at = 0; i < t[1]->dims[0]; i++) {
        uint64_t words[MR_LIST_WORDS];
        mr_body_read_row(MR_BODY_LIST, t[2], i, words);
        while (at < count && infos[at].id < ids[i]) /* both are in the order of the numbers */
            at++;
        if (at == count || infos[at].id != ids[i])
            continue;
        infos[at].rows += words[MR_LIST_ROWS];
        infos[at].bytes += words[MR_LIST_BYTES];
        infos[at].rows_refused += words[MR_LIST_REFUSED];
        infos[at].gradients_without_row += words[MR_LIST_WITHOUT_ROW];
        infos[at].gradients_skipped += words[MR_LIST_SKIPPED];
    }
    return MR_OK;
}

static enum mr_status finish_list(struct mr_future *f, struct mr_reply **reply)
{
    const struct list_context *context = f->context;
    const struct mr_tensor *t[3];
    if (!list_tensors(f, 0, t))
        return mrc_answer_garbled(f, 0);

    uint32_t count = t[1]->dims[0];
    const struct mr_feature *features = t[0]->data;
    const uint32_t *ids = t[1]->data;
    uint64_t words[MR_LIST_WORDS];

    pthread_mutex_lock(&f->client->lock);
    if (f->requests[0].start_id ==
        f->requests[0].link->node->start_id) /* otherwise the node was restarted after this answer */
        (void)mrc_learn_features(f);
    for (uint32_t i = 0; i < count && context->infos != NULL; i++)
        mrc_call_hooks.met(f->requests[0].link->node, ids[i], &features[i], f->requests[0].start_id);
    pthread_mutex_unlock(&f->client->lock);
    if (context->infos == NULL)
        return MR_OK;

    struct mr_feature_info *infos = calloc(count == 0 ? 1 : count, sizeof(*infos));

    if (infos == NULL)
        return mrc_error(MR_NO_MEMORY, "mr_list: no memory for %u features", count);
    for (uint32_t i = 0; i < count; i++) {
        mr_body_read_row(MR_BODY_LIST, t[2], i, words);
        infos[i] = (struct mr_feature_info){.feature = features[i],
                                            .id = ids[i],
                                            .rows = words[MR_LIST_ROWS],
                                            .bytes = words[MR_LIST_BYTES],
                                            .rows_refused = words[MR_LIST_REFUSED],
                                            .gradients_without_row = words[MR_LIST_WITHOUT_ROW],
                                            .gradients_skipped = words[MR_LIST_SKIPPED]};
        mr_make_printable(infos[i].feature.name, sizeof(infos[i].feature.name));
    }
    enum mr_status status = MR_OK;

    for (uint32_t request = 1; request < f->request_count && status == MR_OK; request++)
        status = add_node(f, request, infos, count);
    if (status != MR_OK) {
        free(infos);
        return status;
    }
    *context->infos = infos;
    *context->count = count;
    return MR_OK;
}

/* Lists the first owners of nodes that are not away; of all nodes if all are. */
static uint32_t find_listed(struct mr_client *client, const struct mrc_shard_map *map,
                            uint16_t listed[MRC_NODES_MAX])
{
    uint32_t count = 0;
    pthread_mutex_lock(&client->lock);
    for (uint32_t o = 0; o < map->count; o++)
        if (map->shards[o].core == 0 && !mrc_node_is_away(map->shards[o].node))
            listed[count++] = (uint16_t)o;
    for (uint32_t o = 0; o < map->count && count == 0; o++)
        if (map->shards[o].core == 0)
            listed[count++] = (uint16_t)o;
    pthread_mutex_unlock(&client->lock);
    return count;
}

struct list_call {
    struct mrc_retry retry;
    struct list_context context;
};

/* Asks core 0 of each node that is there. */
static enum mr_status list_make(struct mrc_retry *r, struct mr_reply **reply)
{
    struct mr_future *f;
    uint16_t listed[MRC_NODES_MAX];
    struct mrc_shard_map *map = mrc_retry_hold_map(r);
    const uint32_t nodes = find_listed(r->client, map, listed);
    mrc_shard_map_release(map);
    enum mr_status status =
        mrc_future_new(r->client, r->options, r->op, 0, nodes, 0, sizeof(struct list_context), &f);

    if (status != MR_OK)
        return status;
    mrc_retry_future(r, f);
    for (uint32_t request = 0; request < nodes; request++)
        f->requests[request].owner = listed[request];
    f->finish = finish_list;
    *(struct list_context *)f->context = MR_CONTAINER(r, struct list_call, retry)->context;
    return mrc_future_run(f, r->options, reply);
}

enum mr_status mr_list(struct mr_client *client, const struct mr_options *options,
                       struct mr_feature_info **infos, uint32_t *count)
{
    struct list_context context;
    context.infos = infos;
    context.count = count;
    struct list_call c = {.retry = {.client = client,
                                    .options = options,
                                    .op = MR_OP_LIST,
                                    .make = list_make,
                                    .is_due = mrc_retry_unexecuted},
                          .context = context};
    if (client == NULL)
        return mrc_bad_argument("mr_list", "client is NULL");
    if ((infos == NULL) != (count == NULL))
        return mrc_bad_argument("mr_list", "infos and count must be given both, or neither");
    if (infos == NULL || mrc_is_inherited(client))
        return mrc_run_core0(client, options, MR_OP_LIST, NULL, 0, finish_list, &context, sizeof(context));
    return mrc_retry_run(&c.retry, NULL);
}
