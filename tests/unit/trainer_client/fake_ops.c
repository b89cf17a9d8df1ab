/* What the fake node answers about tables, variables and batches. */
#include "tests/unit/trainer_client/fake_node.h"

#include <assert.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "dataplane/rpc/world/world.h"
#include "dataplane/wire/format/capability.h"
#include "dataplane/wire/format/move.h"
#include "dataplane/wire/format/capture.h"
#include "dataplane/wire/format/mr_annotation.h"
#include "dataplane/wire/format/rows.h"
#include "millrace_observe.h"
#include "tests/unit/trainer_client/fake_cluster.h"
#include "tests/unit/trainer_client/fake_node_ops.h"
#include "dataplane/wire/format/op.h"
#include "dataplane/wire/base/clock.h"

#define KEPT_US            300000u
#define KEPT_AFTER_LIST_US 50000u

static struct fake_feature *find(struct fake_node *node, uint32_t id, uint32_t kind)
{
    if (id == 0 || id > node->feature_count || node->features[id - 1].feature.kind != kind)
        return NULL;
    return &node->features[id - 1];
}

static bool owns(const struct fake_core *core, const struct fake_feature *f, uint64_t key)
{
    return fake_owner(core->node, mr_partition_of(mr_key_hash(key, f->feature.seed))) == core->index;
}

struct fake_row *fake_row_at(struct fake_feature *f, uint64_t key)
{
    uint32_t at = (uint32_t)(key % FAKE_ROWS_MAX);
    while (f->rows[at].used && f->rows[at].key != key)
        at = (at + 1) % FAKE_ROWS_MAX;
    return &f->rows[at];
}

static struct fake_row *make_row(struct fake_feature *f, uint64_t key)
{
    struct fake_row *row = fake_row_at(f, key);
    for (uint32_t d = 0; d < f->feature.dims[0] && !row->used; d++)
        row->values[d] = fake_initial(key, d);
    row->used = true;
    row->key = key;
    return row;
}

static float *row_of(struct fake_feature *f, uint64_t key)
{
    return make_row(f, key)->values;
}

static bool has_row(struct fake_feature *f, uint64_t key)
{
    return fake_row_at(f, key)->used;
}

/* ---- which numbered pushes were applied to a row ---- */

/* A push as rows remember it. */
struct push_id {
    uint64_t client, sequence; /* sequence 0: it has no number */
};

static struct push_id id_of(const struct mr_request *r)
{
    struct push_id id = {.sequence = r->message->preamble.sequence};
    memcpy(&id.client, r->client_uuid, sizeof(id.client));
    return id;
}

static bool row_has(const struct fake_row *row, const struct push_id *id)
{
    const struct fake_pushed *p = id->sequence != 0 ? row->pushed : NULL;
    while (p != NULL && (p->client != id->client || p->sequence != id->sequence))
        p = p->before;
    return p != NULL;
}

#define CHUNK_PUSHES 65536u

struct chunk {
    struct chunk *next;
    struct fake_pushed pushes[CHUNK_PUSHES];
};

/* Rows of checkpoints have these, too: they are kept to the end. */
static void row_note(struct fake_row *row, const struct push_id *id)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static struct chunk *chunks;
    static uint32_t left;
    if (id->sequence == 0 || row_has(row, id))
        return;
    pthread_mutex_lock(&lock);
    if (left == 0) {
        struct chunk *chunk = calloc(1, sizeof(*chunk));
        if (chunk == NULL)
            abort();
        chunk->next = chunks;
        chunks = chunk;
        left = CHUNK_PUSHES;
    }
    struct fake_pushed *pushed = &chunks->pushes[--left];
    *pushed = (struct fake_pushed){id->client, id->sequence, row->pushed};
    row->pushed = pushed;
    pthread_mutex_unlock(&lock);
}

/* A call's bags, with what comes with them. */
struct bags {
    const uint64_t *keys;
    const uint32_t *offsets; /* NULL: none */
    uint32_t key_count, bag_count;
    const float *weights, *divisors; /* NULL: none */
};

/* Takes what the flags say of the bags from the tensors behind them. */
static void take_bag_tensors(struct bags *bags, uint32_t flags, const struct mr_tensor *t)
{
    if ((flags & MR_BAG_WEIGHTS) != 0)
        bags->weights = (t++)->data;
    if ((flags & MR_BAG_DIVISORS) != 0)
        bags->divisors = t->data;
}

static float weight_of(const struct bags *b, uint32_t i)
{
    return b->weights == NULL ? 1 : b->weights[i];
}

static float divisor_of(const struct fake_feature *f, const struct bags *b, uint32_t bag)
{
    float sum = 0, squares = 0;
    if (b->divisors != NULL)
        return b->divisors[bag];
    for (uint32_t i = b->offsets[bag]; i < b->offsets[bag + 1]; i++) {
        sum += weight_of(b, i);
        squares += weight_of(b, i) * weight_of(b, i);
    }
    if (f->feature.pooling == MR_POOL_MEAN)
        return sum;
    return f->feature.pooling == MR_POOL_SQRTN ? sqrtf(squares) : 1.0f;
}

/* Refuses a call by a map that is older than what the node has, or with a key of another member. */
static bool is_by_the_map(struct mr_endpoint *ep, const struct mr_request *r, const struct fake_core *core,
                          uint32_t partition)
{
    struct fake_node *node = core->node;
    if (node->cluster == NULL)
        return true;
    const uint64_t epoch = atomic_load(&node->cluster->epoch);
    if (atomic_load(&node->is_without_lease) ||
        fake_cluster_is_loading(node->cluster, node->place, partition)) {
        atomic_fetch_add(&node->waited, 1);
        mr_reply_busy(ep, r->ref);
        return false;
    }
    if (fake_cluster_owner(node->cluster, partition) == node->place &&
        mr_epoch_near(r->message->preamble.epoch, epoch) >= atomic_load(&node->since))
        return true;
    atomic_fetch_add(&node->refused, 1);
    mr_reply_status(ep, r->ref, MR_WRONG_OWNER);
    return false;
}

/* The first key that this core does not own stops the call. */
static bool own_all(struct mr_endpoint *ep, const struct mr_request *r, const struct fake_core *core,
                    const struct fake_feature *f, const uint64_t *keys, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (!is_by_the_map(ep, r, core, mr_partition_of(mr_key_hash(keys[i], f->feature.seed))))
            return false;
        if (!owns(core, f, keys[i])) {
            mr_reply_error(ep, r->ref, MR_INVALID_ARGUMENT, "key %llu does not belong to core %u",
                           (unsigned long long)keys[i], core->index);
            return false;
        }
    }
    return true;
}

static void reduce(struct fake_feature *f, const struct bags *bags, float *out)
{
    uint32_t dim = f->feature.dims[0];
    memset(out, 0, (size_t)bags->bag_count * dim * sizeof(*out));
    for (uint32_t b = 0; b < bags->bag_count; b++) {
        for (uint32_t i = bags->offsets[b]; i < bags->offsets[b + 1]; i++) {
            const float *row = row_of(f, bags->keys[i]);
            for (uint32_t d = 0; d < dim; d++)
                out[(size_t)b * dim + d] += row[d] * weight_of(bags, i) / divisor_of(f, bags, b);
        }
    }
}

/* Answers with these rows, in the type that the request asks for. Frees them. */
static void reply_rows(struct mr_endpoint *ep, const struct mr_request *r, struct mr_tensor shape,
                       float *rows)
{
    uint32_t wanted = r->message->preamble.flags >> MR_LOOKUP_DTYPE_SHIFT;
    enum mr_dtype dtype = wanted == 0 ? MR_F32 : (enum mr_dtype)wanted;
    struct mr_tensor t[MR_ROWS_TENSORS_MAX];
    uint32_t dim = shape.dims[shape.rank - 1], count = mr_rows_tensors(shape, dtype, t);
    if (!mr_reply_begin(ep, r->ref, MR_OK, t, count)) {
        mr_reply_busy(ep, r->ref);
    } else {
        mr_convert_from_f32(dtype, t[0].data, dtype == MR_I8 ? t[1].data : NULL, rows,
                            shape.bytes / sizeof(*rows) / dim, dim);
        mr_reply_end(ep, r->ref);
    }
    free(rows);
}

static float *new_rows(struct mr_tensor shape)
{
    float *rows = malloc(shape.bytes + 1);
    if (rows == NULL)
        abort();
    return rows;
}

/* The rows in these tensors, as f32, to be freed. */
static float *rows_in(const struct mr_tensor *t)
{
    uint32_t dim = t->dims[t->rank - 1];
    uint64_t elements = t->bytes / mr_dtype_bytes(t->dtype);
    float *rows = malloc(elements * sizeof(*rows) + 1);
    if (rows == NULL)
        abort();
    mr_convert_to_f32(t->dtype, rows, t->data, t->dtype == MR_I8 ? t[1].data : NULL, elements / dim, dim);
    return rows;
}

static void node_info(struct fake_core *core, struct mr_endpoint *ep, const struct mr_request *r)
{
    const uint32_t told = core->node->message_bytes_max;
    uint32_t words[MR_NODE_INFO_WORDS] = {core->node->core_count, 1, core->node->base_port,
                                          told == 0 ? MR_MESSAGE_BYTES_MAX : told};
    uint16_t owners[MR_PARTITION_COUNT] = {0};
    struct mr_tensor t[2] = {mr_body_tensor(MR_BODY_NODE_INFO, words),
                             mr_tensor_1d(MR_U16, MR_PARTITION_COUNT, owners)};
    for (uint32_t p = 0; p < MR_PARTITION_COUNT; p++)
        owners[p] = fake_owner(core->node, p);
    if (core->node->cluster != NULL) {
        struct fake_cluster_map map;
        fake_cluster_tell(core->node->cluster, core->node->place, &map);
        if (atomic_load(&core->node->tells_epoch) !=
            0) /* the client looks no further, as it knows that one */
            map.words[MR_CLUSTER_EPOCH] = atomic_load(&core->node->tells_epoch);
        struct mr_tensor
            more[2 + MR_CLUSTER_TENSORS + MR_CLUSTER_RESTORED_TENSORS + MR_CLUSTER_COPIES_TENSORS] = {
                t[0],
                t[1],
                mr_body_tensor(MR_BODY_CLUSTER, map.words),
                mr_tensor_2d(MR_U8, (uint32_t)map.words[MR_CLUSTER_NODES], sizeof(map.nodes[0]), map.nodes),
                core->node->cluster->others + core->node->cluster->count > MR_CLUSTER_FEW_NODES
                    ? mr_tensor_1d(MR_U16, MR_PARTITION_COUNT, map.owner)
                    : mr_tensor_1d(MR_U8, MR_PARTITION_COUNT, map.owner_of_few),
                mr_tensor_1d(MR_U32, MR_PARTITION_COUNT, map.restored_in),
                mr_body_rows(MR_BODY_COPIES, (uint32_t)map.words[MR_CLUSTER_NODES], map.copies)};
        const bool copies =
            atomic_load(&core->node->cluster->has_copies) && (r->capabilities & MR_CAN(COPIES)) != 0;
        const bool tells = copies || (map.any_restored && (r->capabilities & MR_CAN(TAKE_OVER)) != 0);
        fake_reply(ep, r, more,
                   2 + MR_CLUSTER_TENSORS + (tells ? MR_CLUSTER_RESTORED_TENSORS : 0) +
                       (copies ? MR_CLUSTER_COPIES_TENSORS : 0));
        return;
    }
    fake_reply(ep, r, t, 2);
}

/* The next map has the change; the nodes have not read it yet. */
static void fake_move(struct fake_core *core, struct mr_endpoint *ep, const struct mr_request *r)
{
    const uint64_t epoch = atomic_load(&core->node->cluster->epoch) + 1;
    struct mr_tensor t = mr_tensor_1d(MR_U64, 1, &epoch);
    fake_reply(ep, r, &t, 1);
}

static void create(struct fake_core *core, struct mr_endpoint *ep, const struct mr_request *r)
{
    struct fake_node *node = core->node;
    const struct mr_tensor *in = &r->message->tensors[0];
    uint32_t ids[FAKE_FEATURES_MAX] = {0}, count = in->dims[0];
    for (uint32_t i = 0; i < count; i++) {
        struct mr_feature f;
        memcpy(&f, (const uint8_t *)in->data + i * sizeof(f), sizeof(f));
        uint32_t at = 0;

        while (at < node->feature_count && strcmp(node->features[at].feature.name, f.name) != 0)
            at++;
        if (at == FAKE_FEATURES_MAX || count > FAKE_FEATURES_MAX) {
            mr_reply_status(ep, r->ref, MR_OUT_OF_MEMORY);
            return;
        }
        if (at == node->feature_count) {
            node->features[at].feature = f;
            node->feature_count++;
        } else if (mr_feature_diff(&node->features[at].feature, &f) != NULL) {
            mr_reply_error(ep, r->ref, MR_FEATURE_MISMATCH, "\"%s\" differs in %s", f.name,
                           mr_feature_diff(&node->features[at].feature, &f));
            return;
        }
        ids[i] = at + 1;
    }
    struct mr_tensor t = mr_tensor_1d(MR_U32, count, ids);

    fake_reply(ep, r, &t, 1);
}

static void alter(struct fake_core *core, struct mr_endpoint *ep, const struct mr_request *r)
{
    struct mr_feature both[2];
    memcpy(both, r->message->tensors[0].data, sizeof(both));
    struct fake_feature *f = core->node->features;
    while (f < core->node->features + core->node->feature_count && strcmp(f->feature.name, both[0].name) != 0)
        f++;
    if (f == core->node->features + core->node->feature_count) {
        mr_reply_error(ep, r->ref, MR_UNKNOWN_TABLE, "no %.63s", both[0].name);
        return;
    }
    const char *fixed = mr_feature_alter(&f->feature, &both[0], &both[1]);
    if (fixed != NULL) {
        mr_reply_error(ep, r->ref, MR_UNSUPPORTED, "%s is fixed", fixed);
        return;
    }
    struct mr_tensor now = mr_tensor_1d(MR_U8, sizeof(f->feature), &f->feature);
    fake_reply(ep, r, &now, 1);
}

static void list(struct fake_core *core, struct mr_endpoint *ep, const struct mr_request *r)
{
    struct fake_node *node = core->node;
    uint32_t count = node->feature_count;
    node->kept.until_us = mr_clock_us() + KEPT_AFTER_LIST_US;
    struct mr_feature features[FAKE_FEATURES_MAX] = {0};
    uint32_t ids[FAKE_FEATURES_MAX] = {0};
    uint64_t sizes[FAKE_FEATURES_MAX][MR_LIST_WORDS] = {{0}};
    uint32_t taken_back[MR_LIST_HISTORY_WORDS + FAKE_FEATURES_MAX] = {node->restores, node->whole};
    struct mr_tensor t[5] = {mr_tensor_2d(MR_U8, count, sizeof(features[0]), features),
                             mr_tensor_1d(MR_U32, count, ids), mr_body_rows(MR_BODY_LIST, count, sizes),
                             mr_tensor_1d(MR_U32, MR_LIST_HISTORY_WORDS + count, taken_back),
                             mr_body_rows(MR_BODY_LIST_START, node->origin.start_count, node->origin.starts)};

    for (uint32_t i = 0; i < count; i++) {
        features[i] = node->features[i].feature;
        ids[i] = i + 1;
        for (uint32_t w = 0, unit = 10; w < MR_LIST_WORDS; w++, unit *= 10)
            sizes[i][w] = unit * i;
        taken_back[MR_LIST_HISTORY_WORDS + i] =
            i == 0 && node->replaced > node->whole ? node->replaced : node->whole;
    }
    fake_reply(ep, r, t, 5);
}

static void lookup(struct fake_core *core, struct mr_endpoint *ep, const struct mr_request *r)
{
    struct fake_feature *f = find(core->node, r->message->preamble.table, MR_TABLE);
    const struct mr_tensor *t = r->message->tensors;
    bool has_bags = r->message->preamble.tensor_count >= 2;
    const bool is_stored = (r->message->preamble.flags & MR_LOOKUP_STORED) != 0;
    struct bags bags = {.keys = t[0].data, .key_count = t[0].dims[0]};
    if (f == NULL) {
        mr_reply_error(ep, r->ref, MR_UNKNOWN_TABLE, "no table %u", r->message->preamble.table);
        return;
    }
    if (!own_all(ep, r, core, f, bags.keys, bags.key_count))
        return;
    if (has_bags) {
        bags.offsets = t[1].data;
        bags.bag_count = t[1].dims[0] - 1;
        take_bag_tensors(&bags, r->message->preamble.flags, t + 2);
    }
    uint32_t dim = f->feature.dims[0], count = has_bags ? bags.bag_count : bags.key_count;
    const uint32_t floats = dim + is_stored;
    struct mr_tensor shape = mr_tensor_2d(MR_F32, count, floats, NULL);
    float *rows = new_rows(shape);

    if (has_bags)
        reduce(f, &bags, rows);
    for (uint32_t i = 0; i < count && !has_bags; i++) {
        rows[(size_t)(i + 1) * floats - 1] = has_row(f, bags.keys[i]);
        memcpy(rows + (size_t)i * floats, row_of(f, bags.keys[i]), dim * sizeof(*rows));
    }
    reply_rows(ep, r, shape, rows);
}

/* The keys of a request that begins with a head at t; *count: how many tensors it has without gradients. */
static struct bags bags_at(const struct mr_tensor *t, uint32_t flags, uint32_t *count)
{
    struct bags bags = {.keys = t[1].data, .key_count = t[1].dims[0]};
    *count = 3u + ((flags & MR_BAG_WEIGHTS) != 0) + ((flags & MR_BAG_DIVISORS) != 0);
    if (t[2].dims[0] > 0) {
        bags.offsets = t[2].data;
        bags.bag_count = t[2].dims[0] - 1;
    }
    return bags;
}

/* Rows that are looked up in one table. */
struct looked_up {
    struct mr_tensor shape;
    float *rows;
};

/* False: it has been refused. */
static bool look_up(struct fake_core *core, struct mr_endpoint *ep, const struct mr_request *r,
                    const struct mr_tensor *t, uint32_t *taken, struct looked_up *out)
{
    struct mr_table_head head;
    memcpy(&head, t->data, sizeof(head));
    struct fake_feature *f = find(core->node, head.table, MR_TABLE);
    struct bags bags = bags_at(t, head.flags, taken);
    if (f == NULL) {
        mr_reply_error(ep, r->ref, MR_UNKNOWN_TABLE, "no table %u", head.table);
        return false;
    }
    if (!own_all(ep, r, core, f, bags.keys, bags.key_count))
        return false;
    take_bag_tensors(&bags, head.flags, t + 3);
    const uint32_t dim = f->feature.dims[0], count = bags.offsets != NULL ? bags.bag_count : bags.key_count;
    out->shape = mr_tensor_2d(MR_F32, count, dim, NULL);
    out->rows = new_rows(out->shape);
    if (bags.offsets != NULL)
        reduce(f, &bags, out->rows);
    for (uint32_t i = 0; i < count && bags.offsets == NULL; i++)
        memcpy(out->rows + (size_t)i * dim, row_of(f, bags.keys[i]), dim * sizeof(*out->rows));
    return true;
}

static void reply_tables(struct mr_endpoint *ep, const struct mr_request *r, const struct looked_up *tables,
                         uint32_t count)
{
    const uint32_t wanted = r->message->preamble.flags >> MR_LOOKUP_DTYPE_SHIFT;
    const enum mr_dtype dtype = wanted == 0 ? MR_F32 : (enum mr_dtype)wanted;
    struct mr_tensor out[2 * MR_LOOKUP_TABLES_MAX];
    uint32_t tensors = 0;
    for (uint32_t i = 0; i < count; i++)
        tensors += mr_rows_tensors(tables[i].shape, dtype, &out[tensors]);
    if (!mr_reply_begin(ep, r->ref, MR_OK, out, tensors)) {
        mr_reply_busy(ep, r->ref);
        return;
    }
    for (uint32_t i = 0, t = 0; i < count; i++, t += dtype == MR_I8 ? 2 : 1)
        mr_convert_from_f32(dtype, out[t].data, dtype == MR_I8 ? out[t + 1].data : NULL, tables[i].rows,
                            out[t].dims[0], out[t].dims[1]);
    mr_reply_end(ep, r->ref);
}

static void lookup_tables(struct fake_core *core, struct mr_endpoint *ep, const struct mr_request *r)
{
    struct looked_up tables[MR_LOOKUP_TABLES_MAX] = {0};
    uint32_t count = 0, taken;
    bool good = true;
    if (atomic_load(&core->node->lacks_lookup_tables)) {
        mr_reply_status(ep, r->ref, MR_UNKNOWN_OP);
        return;
    }
    for (uint32_t at = 0; good && at < r->message->preamble.tensor_count; at += taken, count++) {
        assert(count < MR_LOOKUP_TABLES_MAX);
        good = look_up(core, ep, r, &r->message->tensors[at], &taken, &tables[count]);
    }
    if (good)
        reply_tables(ep, r, tables, count);
    for (uint32_t i = 0; i < count; i++)
        free(tables[i].rows);
}

static struct mr_push_head head_in(const struct mr_tensor *t)
{
    struct mr_push_head head;
    memcpy(&head, t->data, sizeof(head));
    return head;
}

static float rate_of(const struct mr_push_head *head)
{
    return (head->flags & MR_PUSH_LEARNING_RATE) != 0 ? head->learning_rate : 1;
}

/* Subtracts gradients of bags (of keys, where there are none) from the rows that lack the push. */
static void apply(struct fake_feature *f, const struct bags *bags, const struct mr_push_head *head,
                  const struct mr_tensor *gradient, const struct push_id *id)
{
    uint32_t dim = f->feature.dims[0];
    float *gradients = rows_in(gradient), rate = rate_of(head);
    bool *has = calloc(bags->key_count + 1, sizeof(*has));
    if (has == NULL)
        abort();
    for (uint32_t i = 0; i < bags->key_count; i++)
        has[i] = row_has(make_row(f, bags->keys[i]), id);
    for (uint32_t i = 0; bags->offsets == NULL && i < bags->key_count; i++)
        for (uint32_t d = 0; d < dim && !has[i]; d++)
            row_of(f, bags->keys[i])[d] =
                (head->flags & MR_PUSH_SET) != 0
                    ? gradients[(size_t)i * dim + d]
                    : row_of(f, bags->keys[i])[d] - rate * gradients[(size_t)i * dim + d];
    for (uint32_t b = 0; bags->offsets != NULL && b < bags->bag_count; b++) {
        for (uint32_t i = bags->offsets[b]; i < bags->offsets[b + 1]; i++) {
            for (uint32_t d = 0; d < dim && !has[i]; d++)
                row_of(f, bags->keys[i])[d] -=
                    rate * (gradients[(size_t)b * dim + d] / divisor_of(f, bags, b) * weight_of(bags, i));
        }
    }
    for (uint32_t i = 0; i < bags->key_count; i++)
        row_note(fake_row_at(f, bags->keys[i]), id);
    free(has);
    free(gradients);
}

static bool variable_is_mine(struct mr_endpoint *ep, const struct mr_request *r, const struct fake_core *core,
                             const struct fake_feature *f)
{
    if (fake_owner(core->node, mr_variable_partition(f->feature.name)) == core->index)
        return true;
    mr_reply_error(ep, r->ref, MR_INVALID_ARGUMENT, "variable \"%s\" is not of core %u", f->feature.name,
                   core->index);
    return false;
}

/* Of `sent` keys, or a variable, all were applied, but that the second was refused where there are two, the
 * third has no row, and the fourth's gradient holds NaN; the message's last tensor. */
static uint32_t tell_counts(const struct mr_request *r, uint32_t sent, uint32_t words[MR_PUSHED_WORDS],
                            struct mr_tensor *out)
{
    if ((r->message->preamble.flags & MR_PUSH_COUNTS) == 0)
        return 0;
    words[MR_PUSHED_SENT] = sent;
    words[MR_PUSHED_REFUSED] = sent >= 2;
    words[MR_PUSHED_WITHOUT_ROW] = sent >= 3;
    words[MR_PUSHED_NOT_FINITE] = sent >= 4;
    words[MR_PUSHED_APPLIED] =
        sent - words[MR_PUSHED_REFUSED] - words[MR_PUSHED_WITHOUT_ROW] - words[MR_PUSHED_NOT_FINITE];
    *out = mr_tensor_1d(MR_U32, MR_PUSHED_WORDS, words);
    return 1;
}

/* Sent again by a client that has not heard of the last restore. */
static bool is_outdated(struct fake_node *node, const struct mr_request *r)
{
    const uint32_t flags = r->message->preamble.flags;
    if ((flags & MR_PUSH_AGAIN) == 0)
        return false;
    if (node->take_back_at > 0 && --node->take_back_at == 0)
        fake_node_take_back_now(node);
    return (uint8_t)(flags >> MR_PUSH_RESTORES_SHIFT) != (uint8_t)node->restores;
}

static bool is_in_set(atomic_uint *bits, const struct fake_core *core)
{
    return (atomic_load(bits) >> core->index & 1) != 0;
}

static void begin_late(struct fake_core *core, struct mr_endpoint *ep, const struct mr_request *r)
{
    core->is_late = mr_reply_later(ep, r) != NULL && mr_reply_begin(ep, r->ref, MR_OK, NULL, 0);
    core->late = r->ref;
}

void fake_core_end_late(struct fake_core *core, struct mr_endpoint *ep)
{
    if (!core->is_late || is_in_set(&core->node->late, core))
        return;
    core->is_late = false;
    mr_reply_end(ep, core->late);
}

/* A restore by call while this one is in flight, and others have been answered. */
static bool keep_back(struct fake_core *core, struct mr_endpoint *ep, const struct mr_request *r)
{
    struct fake_node *node = core->node;
    if (!node->takes_back_under || core->index != 1 || (r->message->preamble.flags & MR_PUSH_AGAIN) == 0)
        return false;
    node->takes_back_under = false;
    fake_node_take_back_now(node);
    node->kept = (struct fake_kept){.ep = ep, .ref = r->ref, .until_us = mr_clock_us() + KEPT_US};
    (void)mr_reply_later(ep, r);
    return true;
}

void fake_node_answer_kept(struct fake_node *node)
{
    struct mr_endpoint *ep = node->kept.ep;
    if (ep == NULL || mr_clock_us() < node->kept.until_us)
        return;
    node->kept.ep = NULL;
    mr_reply_status(ep, node->kept.ref, MR_BUSY);
}

/* Applies all tables' gradients, or none; false: the call was answered. */
static bool push_tables(struct fake_core *core, struct mr_endpoint *ep, const struct mr_request *r,
                        uint32_t *sent)
{
    const struct mr_tensor *tensors = r->message->tensors;
    const struct push_id id = id_of(r);
    *sent = 0;
    for (uint32_t applies = 0; applies < 2; applies++) {
        for (uint32_t at = 0, taken; at < r->message->preamble.tensor_count; at += taken) {
            const struct mr_tensor *t = &tensors[at];
            const struct mr_push_head head = head_in(t);
            struct fake_feature *table = find(core->node, head.feature, MR_TABLE);
            struct bags bags = bags_at(t, head.flags, &taken);
            const uint32_t gradients = t[3].dtype == MR_I8 ? 2 : 1;
            taken += gradients;
            if (applies > 0) {
                take_bag_tensors(&bags, head.flags, t + 3 + gradients);
                apply(table, &bags, &head, &t[3], &id);
                *sent += bags.key_count;
                continue;
            }
            if (table == NULL || t[3].dims[1] != table->feature.dims[0]) {
                if (table == NULL)
                    mr_reply_error(ep, r->ref, MR_UNKNOWN_TABLE, "no feature %u", head.feature);
                else
                    mr_reply_error(ep, r->ref, MR_WRONG_DIM, "\"%s\" has rows of %u, not %u",
                                   table->feature.name, table->feature.dims[0], t[3].dims[1]);
                return false;
            }
            if (!own_all(ep, r, core, table, bags.keys, bags.key_count))
                return false;
        }
    }
    return true;
}

static void push(struct fake_core *core, struct mr_endpoint *ep, const struct mr_request *r)
{
    uint32_t words[MR_PUSHED_WORDS], sent = 1;
    struct mr_tensor counts;
    const struct mr_tensor *t = r->message->tensors;
    uint32_t id = r->message->preamble.tensor_count == 0 ? 0 : *(const uint32_t *)t[0].data;
    struct fake_feature *variable = find(core->node, id, MR_VARIABLE);
    fake_record_tell(core, ep, r);
    if (keep_back(core, ep, r))
        return;
    if (is_outdated(core->node, r)) {
        mr_reply_status(ep, r->ref, MR_BUSY);
        return;
    }
    if (r->message->preamble.tensor_count != 1 && fake_record_has(core, r)) {
        atomic_fetch_add(&core->node->known, 1);
        mr_reply_status(ep, r->ref, MR_OK);
        return;
    }
    if (r->message->preamble.tensor_count <= 1) { /* a mark: about all that the core has */
        if (core->node->cluster != NULL && fake_cluster_loads(core->node->cluster, core->node->place)) {
            atomic_fetch_add(&core->node->waited, 1);
            mr_reply_busy(ep, r->ref);
            return;
        }
        if (r->message->preamble.tensor_count == 1)
            fake_record_skip(core, r, *(const uint64_t *)r->message->tensors[0].data);
        fake_record_add(core, r);
        mr_reply_status(ep, r->ref, MR_OK);
        return;
    }
    if (core->node->freeze == MR_FREEZE_ALL && core->index > 0) {
        mr_reply_status(ep, r->ref, MR_FROZEN);
        return;
    }
    if (variable != NULL) {
        if (!variable_is_mine(ep, r, core, variable))
            return;
        struct mr_push_head head = head_in(&t[0]);

        for (uint32_t i = 0; i < t[1].bytes / sizeof(float); i++)
            variable->values[i] -= rate_of(&head) * ((const float *)t[1].data)[i];
    } else if (!push_tables(core, ep, r, &sent)) {
        return;
    }
    atomic_fetch_add(&core->node->applied, 1);
    fake_record_add(core, r);
    if (atomic_load(&core->node->dumb))
        (void)mr_reply_later(ep, r);
    else if (is_in_set(&core->node->late, core) && !core->is_late)
        begin_late(core, ep, r);
    else
        fake_reply(ep, r, &counts, tell_counts(r, sent, words, &counts));
}

static void drop_batch(struct fake_batch *b)
{
    free(b->keys);
    free(b->offsets);
    free(b->weights);
    free(b->divisors);
    *b = (struct fake_batch){.used = false};
}

static void *copy_of(const struct mr_tensor *t)
{
    void *copy = malloc(t->bytes == 0 ? 1 : t->bytes);
    if (copy != NULL && t->bytes > 0)
        memcpy(copy, t->data, t->bytes);
    return copy;
}

/* The stream, made when missing. */
static struct fake_stream *stream_of(struct fake_core *core, uint32_t number)
{
    struct fake_stream *s = core->streams;
    while (s->used && s->number != number)
        if (++s == core->streams + FAKE_STREAMS_MAX)
            abort();
    s->used = true;
    s->number = number;
    return s;
}

static bool is_batch_applied(const struct fake_core *core, uint64_t id)
{
    const uint64_t sequence = mr_batch_sequence(id);
    for (uint32_t i = 0; i < FAKE_STREAMS_MAX && core->streams[i].used; i++)
        if (core->streams[i].number == mr_batch_stream(id))
            return (core->streams[i].applied[sequence / 64] >> (sequence % 64) & 1) != 0;
    return false;
}

/* make: one whose batch is applied has room for another, as nobody asks for it. A node drops it after its
 * time to live: here no time passes. */
static struct fake_batch *find_batch(struct fake_core *core, uint64_t id, bool make)
{
    struct fake_batch *room = NULL;
    for (uint32_t i = 0; i < FAKE_BATCHES_MAX; i++) {
        struct fake_batch *b = &core->batches[i];
        if (b->used && b->id == id)
            return b;
        if (room == NULL && (!b->used || is_batch_applied(core, b->id)))
            room = b;
    }
    return make ? room : NULL;
}

/* The tensor is a stream's number, or a batch's, and perhaps a plan, which is the stream's then, or has to
 * be. */
static bool claim(struct fake_core *core, struct mr_endpoint *ep, const struct mr_request *r, uint32_t number,
                  const struct mr_tensor *t)
{
    struct fake_stream *s = stream_of(core, number);
    struct mr_plan plan;
    if (t->dims[0] == 1)
        return true;
    memcpy(&plan, (const uint64_t *)t->data + 1, sizeof(plan));
    if (s->plan.request[0] != 0 && !mr_plan_same(&s->plan, &plan) &&
        !mr_plan_same(&s->plan, &MR_PLAN_UNKNOWN)) {
        mr_reply_error(ep, r->ref, MR_ALREADY_STARTED, "stream %u is another plan's", number);
        return false;
    }
    s->plan = plan;
    return true;
}

static void streams(struct fake_core *core, struct mr_endpoint *ep, const struct mr_request *r)
{
    uint64_t words[FAKE_STREAMS_MAX][MR_STREAM_WORDS];
    uint32_t count = 0;
    for (; count < FAKE_STREAMS_MAX && core->streams[count].used; count++) {
        const struct fake_stream *s = &core->streams[count];
        uint64_t applied = 0;
        for (uint32_t w = 0; w < FAKE_STREAM_WORDS; w++)
            applied += (uint64_t)__builtin_popcountll(s->applied[w]);
        const uint64_t entry[MR_STREAM_WORDS] = {
            s->number,    0,    applied, applied + core->index, s->plan.request[0], s->plan.request[1],
            s->plan.data, count};

        memcpy(words[count], entry, sizeof(entry));
    }
    struct mr_tensor t = mr_body_rows(MR_BODY_STREAM, count, words);

    fake_reply(ep, r, &t, 1);
}

static void forget_stream(struct fake_core *core, struct mr_endpoint *ep, const struct mr_request *r)
{
    const struct mr_tensor *t = &r->message->tensors[0];
    for (uint32_t i = 0; i < t->dims[0]; i++) {
        struct fake_stream *s = stream_of(core, (uint32_t)((const uint64_t *)t->data)[i]), *last = s;
        while (last + 1 < core->streams + FAKE_STREAMS_MAX && last[1].used)
            last++;
        *s = *last;
        *last = (struct fake_stream){.used = false};
    }
    mr_reply_status(ep, r->ref, MR_OK);
}

static void feed(struct fake_core *core, struct mr_endpoint *ep, const struct mr_request *r)
{
    const struct mr_tensor *t = r->message->tensors;
    const uint32_t *head = t[1].data;
    struct fake_batch *b = find_batch(core, *(const uint64_t *)t[0].data, true);
    struct fake_feature *f = find(core->node, head[0], MR_TABLE);
    const enum mr_status refused = (enum mr_status)atomic_load(&core->node->feed_status);
    if (refused != MR_OK) {
        mr_reply_status(ep, r->ref, refused);
        return;
    }
    if (f == NULL || b == NULL) {
        mr_reply_status(ep, r->ref, b == NULL ? MR_BATCH_CACHE_FULL : MR_UNKNOWN_TABLE);
        return;
    }
    if (!own_all(ep, r, core, f, t[2].data, t[2].dims[0]) ||
        !claim(core, ep, r, mr_batch_stream(*(const uint64_t *)t[0].data), &t[0]))
        return;
    if (b->used)
        drop_batch(b);
    *b = (struct fake_batch){.used = true,
                             .id = *(const uint64_t *)t[0].data,
                             .feature = head[0],
                             .samples = head[1],
                             .slots = head[2],
                             .key_count = t[2].dims[0],
                             .keys = copy_of(&t[2]),
                             .offsets = copy_of(&t[3]),
                             .weights = (head[3] & MR_BAG_WEIGHTS) != 0 ? copy_of(&t[4]) : NULL,
                             .divisors = (head[3] & MR_BAG_DIVISORS) != 0
                                             ? copy_of(&t[(head[3] & MR_BAG_WEIGHTS) != 0 ? 5 : 4])
                                             : NULL};
    mr_reply_status(ep, r->ref, MR_OK);
}

static struct bags bags_of(const struct fake_batch *b)
{
    return (struct bags){.keys = b->keys,
                         .key_count = b->key_count,
                         .offsets = b->offsets,
                         .bag_count = b->samples * b->slots,
                         .weights = b->weights,
                         .divisors = b->divisors};
}

static void lookup_batch(struct fake_core *core, struct mr_endpoint *ep, const struct mr_request *r)
{
    struct fake_batch *b = find_batch(core, *(const uint64_t *)r->message->tensors[0].data, false);
    if (b == NULL) {
        mr_reply_status(ep, r->ref, MR_UNKNOWN_BATCH);
        return;
    }
    struct fake_feature *f = find(core->node, b->feature, MR_TABLE);
    struct mr_tensor shape = mr_tensor_3d(MR_F32, b->samples, b->slots, f->feature.dims[0], NULL);
    struct bags bags = bags_of(b);
    float *rows = new_rows(shape);

    reduce(f, &bags, rows);
    reply_rows(ep, r, shape, rows);
}

static void push_batch(struct fake_core *core, struct mr_endpoint *ep, const struct mr_request *r)
{
    const struct mr_tensor *t = r->message->tensors;
    uint64_t id = *(const uint64_t *)t[0].data, sequence = mr_batch_sequence(id);
    struct fake_batch *b = find_batch(core, id, false);
    uint64_t *bits = stream_of(core, mr_batch_stream(id))->applied;
    uint32_t applied = 0, words[MR_PUSHED_WORDS], sent = 0;
    struct mr_tensor out[2] = {mr_tensor_1d(MR_U32, 1, &applied)};
    fake_record_tell(core, ep, r);
    if (fake_record_has(core, r) || is_batch_applied(core, id)) {
        fake_reply(ep, r, out, 1);
        return;
    }
    for (uint32_t i = 1; i + 1 < r->message->preamble.tensor_count; i += t[i + 1].dtype == MR_I8 ? 3 : 2) {
        uint32_t feature = *(const uint32_t *)t[i].data;
        struct fake_feature *table = find(core->node, feature, MR_TABLE);
        struct fake_feature *variable = find(core->node, feature, MR_VARIABLE);
        struct mr_push_head head = head_in(&t[i]);
        if (table != NULL && b != NULL) {
            struct bags bags = bags_of(b);
            apply(table, &bags, &head, &t[i + 1], &(struct push_id){.sequence = 0});
            sent += bags.key_count;
        } else if (variable != NULL) {
            if (!variable_is_mine(ep, r, core, variable))
                return;
            sent++;
            variable->values[0] -= rate_of(&head) * *(const float *)t[i + 1].data;
        } else {
            mr_reply_status(ep, r->ref, MR_UNKNOWN_BATCH);
            return;
        }
    }
    bits[sequence / 64] |= UINT64_C(1) << (sequence % 64);
    fake_record_add(core, r);
    applied = 1;
    fake_reply(ep, r, out, 1 + tell_counts(r, sent, words, &out[1]));
}

static void batch_state(struct fake_core *core, struct mr_endpoint *ep, const struct mr_request *r)
{
    const struct mr_tensor *asked = &r->message->tensors[0];
    uint32_t number = (uint32_t) * (const uint64_t *)asked->data;
    uint64_t head[MR_BATCH_STATE_WORDS] = {core->applied_watermark, core->node->incarnation};
    struct mr_tensor t[2] = {mr_body_tensor(MR_BODY_BATCH_STATE, head),
                             mr_tensor_1d(MR_U64, FAKE_STREAM_WORDS, stream_of(core, number)->applied)};
    if (!claim(core, ep, r, number, asked))
        return;
    fake_reply(ep, r, t, 2);
}

static void forget(struct fake_core *core, struct mr_endpoint *ep, const struct mr_request *r)
{
    for (uint32_t i = 0; i < r->message->tensors[0].dims[0]; i++) {
        struct fake_batch *b = find_batch(core, ((const uint64_t *)r->message->tensors[0].data)[i], false);
        if (b != NULL)
            drop_batch(b);
    }
    mr_reply_status(ep, r->ref, MR_OK);
}

static void variable(struct fake_core *core, struct mr_endpoint *ep, const struct mr_request *r)
{
    struct fake_feature *f = find(core->node, r->message->preamble.table, MR_VARIABLE);
    const struct mr_tensor *t = r->message->tensors;
    const uint64_t *range = t[0].data;
    if (f == NULL) {
        mr_reply_status(ep, r->ref, MR_UNKNOWN_VARIABLE);
        return;
    }
    if (!variable_is_mine(ep, r, core, f))
        return;
    if (r->message->preamble.op == MR_OP_VARIABLE_PUSH) {
        fake_record_tell(core, ep, r);
        if (!fake_record_has(core, r))
            memcpy(f->values + range[0], t[1].data, t[1].bytes);
        fake_record_add(core, r);
        mr_reply_status(ep, r->ref, MR_OK);
        return;
    }
    struct mr_tensor out = mr_tensor_1d(MR_F32, (uint32_t)range[1], f->values + range[0]);

    fake_reply(ep, r, &out, 1);
}

/* ---- a server of ill will: each of its texts is FAKE_HOSTILE, which a terminal takes for a command ---- */

static void hostile_cluster(struct mr_endpoint *ep, const struct mr_request *r)
{
    static struct mr_cluster_node node = {.name = FAKE_HOSTILE, .address = FAKE_HOSTILE, .core_count = 1};
    static uint16_t cores[MR_PARTITION_COUNT];
    static uint8_t owner[MR_PARTITION_COUNT];
    uint32_t head[MR_NODE_INFO_WORDS] = {1, 1, 0, MR_MESSAGE_BYTES_MAX};
    uint64_t words[MR_CLUSTER_WORDS] = {[MR_CLUSTER_EPOCH] = 1, [MR_CLUSTER_NODES] = 1};
    struct mr_tensor t[2 + MR_CLUSTER_TENSORS] = {
        mr_body_tensor(MR_BODY_NODE_INFO, head), mr_tensor_1d(MR_U16, MR_PARTITION_COUNT, cores),
        mr_body_tensor(MR_BODY_CLUSTER, words), mr_tensor_2d(MR_U8, 1, sizeof(node), &node),
        mr_tensor_1d(MR_U8, MR_PARTITION_COUNT, owner)};
    memcpy(node.version, FAKE_HOSTILE, sizeof(FAKE_HOSTILE));
    fake_reply(ep, r, t, 2 + MR_CLUSTER_TENSORS);
}

static void hostile_list(struct mr_endpoint *ep, const struct mr_request *r)
{
    uint64_t sizes[MR_LIST_WORDS] = {0};
    uint32_t id = 1, history[MR_LIST_HISTORY_WORDS + 1] = {0};
    struct mr_feature feature = mr_feature_table(FAKE_HOSTILE, 2);
    struct mr_tensor t[5] = {mr_tensor_2d(MR_U8, 1, sizeof(feature), &feature), mr_tensor_1d(MR_U32, 1, &id),
                             mr_body_rows(MR_BODY_LIST, 1, sizes),
                             mr_tensor_1d(MR_U32, MR_LIST_HISTORY_WORDS + 1, history),
                             mr_body_rows(MR_BODY_LIST_START, 0, NULL)};
    fake_reply(ep, r, t, 5);
}

static void hostile_moves(struct mr_endpoint *ep, const struct mr_request *r)
{
    static char names[2][MR_CLUSTER_NAME_BYTES] = {FAKE_HOSTILE, FAKE_HOSTILE};
    uint64_t words[MR_MOVES_WORDS] = {0};
    uint64_t move[MR_MOVES_ROW_WORDS] = {
        [MR_MOVES_ROW_ID] = 1, [MR_MOVES_ROW_TO] = 1, [MR_MOVES_ROW_COUNT] = 1};
    struct mr_tensor t[3] = {mr_body_tensor(MR_BODY_MOVES, words), mr_body_rows(MR_BODY_MOVES_ROW, 1, move),
                             mr_tensor_2d(MR_U8, 2, MR_CLUSTER_NAME_BYTES, names)};
    fake_reply(ep, r, t, 3);
}

static void hostile(struct mr_endpoint *ep, const struct mr_request *r)
{
    static const char text[] = FAKE_HOSTILE, line[] = FAKE_HOSTILE " = " FAKE_HOSTILE "\n";
    static struct mr_member_wire member = {.name = FAKE_HOSTILE};
    static struct mr_annotation annotation = {
        .event = FAKE_HOSTILE, .client = FAKE_HOSTILE, .text = FAKE_HOSTILE};
    uint64_t words[MR_WORLD_WORDS] = {0}, save[12] = {1}, failed[MR_HEARTBEAT_WORDS] = {MR_NODE_FAILED};
    struct mr_tensor texts = mr_tensor_1d(MR_U8, sizeof(text) - 1, text);
    struct mr_tensor lines = mr_tensor_1d(MR_U8, sizeof(line) - 1, line);
    switch (r->message->preamble.op) {
    case MR_OP_FACTS:
        fake_reply(ep, r, &lines, 1);
        break;
    case MR_OP_RPC_STATUS:
        fake_reply(ep, r,
                   (struct mr_tensor[3]){mr_body_tensor(MR_BODY_WORLD, words),
                                         mr_tensor_2d(MR_U8, 1, sizeof(member), &member), lines},
                   3);
        break;
    case MR_OP_ANNOTATE:
        fake_reply(ep, r,
                   (struct mr_tensor[2]){mr_body_tensor(MR_BODY_ANNOTATIONS, words),
                                         mr_tensor_2d(MR_U8, 1, sizeof(annotation), &annotation)},
                   2);
        break;
    case MR_OP_HEARTBEAT:
        fake_reply(ep, r, (struct mr_tensor[2]){mr_body_tensor(MR_BODY_HEARTBEAT, failed), texts}, 2);
        break;
    case MR_OP_CAPTURE:
        fake_reply(ep, r, (struct mr_tensor[2]){mr_body_tensor(MR_BODY_CAPTURE, words), texts}, 2);
        break;
    case MR_OP_MEMORY: /* of a form that no version has */
        fake_reply(ep, r, &texts, 1);
        break;
    case MR_OP_STATS:
        fake_reply(ep, r, (struct mr_tensor[2]){texts, mr_tensor_1d(MR_U64, 1, words)}, 2);
        break;
    case MR_OP_CHECKPOINT_STATUS:
        fake_reply(ep, r,
                   (struct mr_tensor[5]){mr_body_tensor(MR_BODY_PROGRESS, words), texts,
                                         mr_body_tensor(MR_BODY_DETAIL, words),
                                         mr_tensor_2d(MR_U64, 1, 12, save), texts},
                   5);
        break;
    case MR_OP_NODE_INFO:
        hostile_cluster(ep, r);
        break;
    case MR_OP_LIST:
        hostile_list(ep, r);
        break;
    case MR_OP_MOVES:
        hostile_moves(ep, r);
        break;
    default:
        mr_reply_error(ep, r->ref, MR_INVALID_ARGUMENT, FAKE_HOSTILE);
    }
}

void fake_node_answer(void *app, struct mr_endpoint *ep, const struct mr_request *request)
{
    static void (*const ops[MR_OP_COUNT])(struct fake_core *, struct mr_endpoint *,
                                          const struct mr_request *) = {
        [MR_OP_NODE_INFO] = node_info,
        [MR_OP_ECHO] = fake_echo,
        [MR_OP_CREATE] = create,
        [MR_OP_ALTER] = alter,
        [MR_OP_FREEZE] = fake_freeze,
        [MR_OP_LIST] = list,
        [MR_OP_FEED_SAMPLE] = feed,
        [MR_OP_LOOKUP_BATCH] = lookup_batch,
        [MR_OP_LOOKUP] = lookup,
        [MR_OP_PUSH_GRAD_BATCH] = push_batch,
        [MR_OP_PUSH_GRAD] = push,
        [MR_OP_VARIABLE_PUSH] = variable,
        [MR_OP_VARIABLE_PULL] = variable,
        [MR_OP_SAVE] = fake_checkpoint,
        [MR_OP_RESTORE] = fake_checkpoint,
        [MR_OP_CHECKPOINT_STATUS] = fake_checkpoint,
        [MR_OP_HEARTBEAT] = fake_heartbeat,
        [MR_OP_STATS] = fake_stats,
        [MR_OP_MEMORY] = fake_memory,
        [MR_OP_BATCH_STATE] = batch_state,
        [MR_OP_CAPTURE] = fake_capture,
        [MR_OP_FORGET_BATCH] = forget,
        [MR_OP_STREAMS] = streams,
        [MR_OP_FORGET_STREAM] = forget_stream,
        [MR_OP_START_SAMPLE] = fake_sample,
        [MR_OP_READ_SAMPLE] = fake_sample,
        [MR_OP_HUB_STATUS] = fake_hub_status,
        [MR_OP_RECENT_CALLS] = fake_recent_calls,
        [MR_OP_CLOCK] = fake_tell_clock,
        [MR_OP_LOOKUP_TABLES] = lookup_tables,
        [MR_OP_MOVE] = fake_move,
    };
    struct fake_core *core = app;
    uint8_t op = request->message->preamble.op;

    atomic_fetch_add(&core->requests, 1);
    if (atomic_load(&core->node->is_hostile)) {
        hostile(ep, request);
        return;
    }
    if (op == MR_OP_PUSH_GRAD && (request->message->preamble.flags & MR_PUSH_UNSEEN) != 0)
        atomic_fetch_add(&core->node->unseen, 1);
    if (op == MR_OP_PUSH_GRAD && (atomic_load(&core->node->busy) >> core->index & 1) != 0) {
        mr_reply_busy(ep, request->ref);
        return;
    }
    if (core->node->mute && (op == MR_OP_ECHO || op == MR_OP_PUSH_GRAD)) {
        (void)mr_reply_later(ep, request);
        return;
    }
    if (op < MR_OP_COUNT && ops[op] != NULL)
        ops[op](core, ep, request);
    else
        mr_reply_status(ep, request->ref, MR_UNKNOWN_OP);
}

void fake_core_forget(struct fake_core *core)
{
    for (uint32_t i = 0; i < FAKE_BATCHES_MAX; i++)
        drop_batch(&core->batches[i]);
    memset(core->streams, 0, sizeof(core->streams));
}
