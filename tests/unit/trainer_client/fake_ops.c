/* What a member of the fake cluster answers: about the map, its one table, and batches of one key per
 * sample. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "dataplane/wire/format/capability.h"
#include "dataplane/wire/format/rows.h"
#include "tests/unit/trainer_client/canned_answers.h"
#include "tests/unit/trainer_client/fake_cluster.h"

/* ---- rows ---- */

static bool owns(const struct fake_core *core, uint64_t key)
{
    const uint64_t seed = core->node->table->feature.seed;
    return fake_owner(core->node, mr_partition_of(mr_key_hash(key, seed))) == core->index;
}

struct fake_row *fake_row_at(struct fake_table *t, uint64_t key)
{
    uint32_t at = (uint32_t)(key % FAKE_ROWS_MAX);
    while (t->rows[at].used && t->rows[at].key != key)
        at = (at + 1) % FAKE_ROWS_MAX;
    return &t->rows[at];
}

static struct fake_row *row_of(struct fake_table *t, uint64_t key)
{
    struct fake_row *row = fake_row_at(t, key);
    for (uint32_t d = 0; d < t->feature.dims[0] && !row->used; d++)
        row->values[d] = fake_initial(key, d);
    row->used = true;
    row->key = key;
    return row;
}

/* A push as rows remember it. */
struct push_id {
    uint64_t client, sequence; /* sequence 0: it has no number */
};

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

/* Subtracts the gradients from the rows that lack the push. */
static void apply(struct fake_table *t, const struct mr_tensor *keys, const float *gradients,
                  const struct push_id *id)
{
    const uint32_t dim = t->feature.dims[0];
    for (uint32_t i = 0; i < keys->dims[0]; i++) {
        struct fake_row *row = row_of(t, ((const uint64_t *)keys->data)[i]);
        for (uint32_t d = 0; d < dim && !row_has(row, id); d++)
            row->values[d] -= gradients[(size_t)i * dim + d];
        row_note(row, id);
    }
}

/* ---- the map ---- */

static void node_info(struct fake_core *core, struct mr_endpoint *ep, const struct mr_request *r)
{
    struct fake_node *node = core->node;
    uint32_t words[MR_NODE_INFO_WORDS] = {node->core_count, 1, node->base_port, MR_MESSAGE_BYTES_MAX};
    uint16_t owners[MR_PARTITION_COUNT] = {0};
    struct fake_cluster_map map;
    for (uint32_t p = 0; p < MR_PARTITION_COUNT; p++)
        owners[p] = fake_owner(node, p);
    fake_cluster_tell(node->cluster, node->place, &map);
    if (atomic_load(&node->tells_epoch) != 0) /* the client looks no further, as it knows that one */
        map.words[MR_CLUSTER_EPOCH] = atomic_load(&node->tells_epoch);
    struct mr_tensor t[2 + MR_CLUSTER_TENSORS + MR_CLUSTER_RESTORED_TENSORS + MR_CLUSTER_COPIES_TENSORS] = {
        mr_body_tensor(MR_BODY_NODE_INFO, words),
        mr_tensor_1d(MR_U16, MR_PARTITION_COUNT, owners),
        mr_body_tensor(MR_BODY_CLUSTER, map.words),
        mr_tensor_2d(MR_U8, (uint32_t)map.words[MR_CLUSTER_NODES], sizeof(map.nodes[0]), map.nodes),
        node->cluster->others + node->cluster->count > MR_CLUSTER_FEW_NODES
            ? mr_tensor_1d(MR_U16, MR_PARTITION_COUNT, map.owner)
            : mr_tensor_1d(MR_U8, MR_PARTITION_COUNT, map.owner_of_few),
        mr_tensor_1d(MR_U32, MR_PARTITION_COUNT, map.restored_in),
        mr_body_rows(MR_BODY_COPIES, (uint32_t)map.words[MR_CLUSTER_NODES], map.copies)};
    const bool copies = atomic_load(&node->cluster->has_copies) && (r->capabilities & MR_CAN(COPIES)) != 0;
    map.words[MR_CLUSTER_ANSWERS_WAIT] = copies;
    const bool tells = copies || (map.any_restored && (r->capabilities & MR_CAN(TAKE_OVER)) != 0);
    canned_reply(ep, r, t,
                 2 + MR_CLUSTER_TENSORS + (tells ? MR_CLUSTER_RESTORED_TENSORS : 0) +
                     (copies ? MR_CLUSTER_COPIES_TENSORS : 0));
}

/* The next map has the change; the nodes have not read it yet. */
static void move(struct fake_core *core, struct mr_endpoint *ep, const struct mr_request *r)
{
    const uint64_t epoch = atomic_load(&core->node->cluster->epoch) + 1;
    struct mr_tensor t = mr_tensor_1d(MR_U64, 1, &epoch);
    canned_reply(ep, r, &t, 1);
}

/* Refuses a call by a map that is older than what the node has, or with a key of another member or core. */
static bool own_all(struct mr_endpoint *ep, const struct mr_request *r, const struct fake_core *core,
                    const struct mr_tensor *keys)
{
    struct fake_node *node = core->node;
    for (uint32_t i = 0; i < keys->dims[0]; i++) {
        const uint64_t key = ((const uint64_t *)keys->data)[i], epoch = atomic_load(&node->cluster->epoch);
        const uint32_t partition = mr_partition_of(mr_key_hash(key, node->table->feature.seed));
        if (atomic_load(&node->is_without_lease) ||
            fake_cluster_is_loading(node->cluster, node->place, partition)) {
            atomic_fetch_add(&node->waited, 1);
            mr_reply_busy(ep, r->ref);
            return false;
        }
        if (fake_cluster_owner(node->cluster, partition) != node->place ||
            mr_epoch_near(r->message->preamble.epoch, epoch) < atomic_load(&node->since)) {
            atomic_fetch_add(&node->refused, 1);
            mr_reply_status(ep, r->ref, MR_WRONG_OWNER);
            return false;
        }
        if (!owns(core, key)) {
            mr_reply_error(ep, r->ref, MR_INVALID_ARGUMENT, "key %llu does not belong to core %u",
                           (unsigned long long)key, core->index);
            return false;
        }
    }
    return true;
}

/* ---- the table ---- */

static void create(struct fake_core *core, struct mr_endpoint *ep, const struct mr_request *r)
{
    const uint32_t id = 1;
    struct mr_tensor t = mr_tensor_1d(MR_U32, 1, &id);
    canned_reply(ep, r, &t, 1);
}

static void list(struct fake_core *core, struct mr_endpoint *ep, const struct mr_request *r)
{
    struct fake_node *node = core->node;
    const uint32_t id = 1, taken_back[MR_LIST_HISTORY_WORDS + 1] = {0};
    const uint64_t sizes[MR_LIST_WORDS] = {0};
    struct mr_tensor t[5] = {mr_tensor_2d(MR_U8, 1, sizeof(node->table->feature), &node->table->feature),
                             mr_tensor_1d(MR_U32, 1, &id), mr_body_rows(MR_BODY_LIST, 1, sizes),
                             mr_tensor_1d(MR_U32, MR_LIST_HISTORY_WORDS + 1, taken_back),
                             mr_body_rows(MR_BODY_LIST_START, node->origin.start_count, node->origin.starts)};
    canned_reply(ep, r, t, 5);
}

/* Of one table or several, of which each has a head, keys and no bags. */
static void lookup(struct fake_core *core, struct mr_endpoint *ep, const struct mr_request *r)
{
    const bool has_heads = r->message->preamble.op == MR_OP_LOOKUP_TABLES;
    const struct mr_tensor *keys = &r->message->tensors[has_heads];
    const uint32_t step = has_heads ? 3 : 1, tables = r->message->preamble.tensor_count / step;
    struct mr_tensor out[MR_LOOKUP_TABLES_MAX];
    for (uint32_t i = 0; i < tables; i++) {
        out[i] = mr_tensor_2d(MR_F32, keys[i * step].dims[0], core->node->table->feature.dims[0], NULL);
        if (!own_all(ep, r, core, &keys[i * step]))
            return;
    }
    if (!mr_reply_begin(ep, r->ref, MR_OK, out, tables)) {
        mr_reply_busy(ep, r->ref);
        return;
    }
    for (uint32_t i = 0; i < tables; i++)
        for (uint32_t k = 0; k < out[i].dims[0]; k++)
            memcpy((float *)out[i].data + (size_t)k * out[i].dims[1],
                   row_of(core->node->table, ((const uint64_t *)keys[i * step].data)[k])->values,
                   out[i].dims[1] * sizeof(float));
    mr_reply_end(ep, r->ref);
}

/* ---- pushes ---- */

static bool is_in_set(atomic_uint *bits, const struct fake_core *core)
{
    return (atomic_load(bits) >> core->index & 1) != 0;
}

void fake_core_end_late(struct fake_core *core, struct mr_endpoint *ep)
{
    if (!core->is_late || is_in_set(&core->node->late, core))
        return;
    core->is_late = false;
    mr_reply_end(ep, core->late);
}

/* About all that the core has: which numbers it will not get. */
static void push_mark(struct fake_core *core, struct mr_endpoint *ep, const struct mr_request *r)
{
    if (fake_cluster_loads(core->node->cluster, core->node->place)) {
        atomic_fetch_add(&core->node->waited, 1);
        mr_reply_busy(ep, r->ref);
        return;
    }
    if (r->message->preamble.tensor_count == 1)
        fake_record_skip(core, r, *(const uint64_t *)r->message->tensors[0].data);
    fake_record_add(core, r);
    mr_reply_status(ep, r->ref, MR_OK);
}

static void push(struct fake_core *core, struct mr_endpoint *ep, const struct mr_request *r)
{
    const struct mr_tensor *t = r->message->tensors;
    struct push_id id = {.sequence = r->message->preamble.sequence};
    memcpy(&id.client, r->client_uuid, sizeof(id.client));
    fake_record_tell(core, ep, r);
    if (r->message->preamble.tensor_count != 1 && fake_record_has(core, r)) {
        atomic_fetch_add(&core->node->known, 1);
        mr_reply_status(ep, r->ref, MR_OK);
        return;
    }
    if (r->message->preamble.tensor_count <= 1) {
        push_mark(core, ep, r);
        return;
    }
    if (!own_all(ep, r, core, &t[1]))
        return;
    apply(core->node->table, &t[1], t[3].data, &id);
    atomic_fetch_add(&core->node->applied, 1);
    fake_record_add(core, r);
    if (is_in_set(&core->node->late, core) && !core->is_late) {
        core->is_late = mr_reply_later(ep, r) != NULL && mr_reply_begin(ep, r->ref, MR_OK, NULL, 0);
        core->late = r->ref;
    } else {
        mr_reply_status(ep, r->ref, MR_OK);
    }
}

/* ---- a batch ---- */

static void *copy_of(const struct mr_tensor *t)
{
    void *copy = malloc(t->bytes + 1);
    if (copy == NULL)
        abort();
    memcpy(copy, t->data, t->bytes);
    return copy;
}

static void feed(struct fake_core *core, struct mr_endpoint *ep, const struct mr_request *r)
{
    const struct mr_tensor *t = r->message->tensors;
    if (!own_all(ep, r, core, &t[2]))
        return;
    fake_core_forget(core);
    core->batch = (struct fake_batch){.samples = ((const uint32_t *)t[1].data)[1],
                                      .key_count = t[2].dims[0],
                                      .keys = copy_of(&t[2]),
                                      .offsets = copy_of(&t[3])};
    mr_reply_status(ep, r->ref, MR_OK);
}

static void lookup_batch(struct fake_core *core, struct mr_endpoint *ep, const struct mr_request *r)
{
    const struct fake_batch *b = &core->batch;
    const uint32_t dim = core->node->table->feature.dims[0];
    struct mr_tensor out = mr_tensor_3d(MR_F32, b->samples, 1, dim, NULL);
    if (b->keys == NULL) {
        mr_reply_status(ep, r->ref, MR_UNKNOWN_BATCH);
        return;
    }
    if (!mr_reply_begin(ep, r->ref, MR_OK, &out, 1)) {
        mr_reply_busy(ep, r->ref);
        return;
    }
    memset(out.data, 0, out.bytes);
    for (uint32_t s = 0; s < b->samples; s++)
        for (uint32_t i = b->offsets[s]; i < b->offsets[s + 1]; i++)
            for (uint32_t d = 0; d < dim; d++)
                ((float *)out.data)[(size_t)s * dim + d] += row_of(core->node->table, b->keys[i])->values[d];
    mr_reply_end(ep, r->ref);
}

static void push_batch(struct fake_core *core, struct mr_endpoint *ep, const struct mr_request *r)
{
    const struct fake_batch *b = &core->batch;
    const uint32_t dim = core->node->table->feature.dims[0], applied = 1;
    struct mr_tensor out = mr_tensor_1d(MR_U32, 1, &applied);
    for (uint32_t s = 0; b->keys != NULL && s < b->samples; s++)
        for (uint32_t i = b->offsets[s]; i < b->offsets[s + 1]; i++)
            apply(core->node->table, &(struct mr_tensor){.dims = {1}, .data = &b->keys[i]},
                  (const float *)r->message->tensors[2].data + (size_t)s * dim,
                  &(struct push_id){.sequence = 0});
    canned_reply(ep, r, &out, 1);
}

static void batch_state(struct fake_core *core, struct mr_endpoint *ep, const struct mr_request *r)
{
    const uint64_t head[MR_BATCH_STATE_WORDS] = {0, core->node->incarnation}, bitmap = 0;
    struct mr_tensor t[2] = {mr_body_tensor(MR_BODY_BATCH_STATE, head), mr_tensor_1d(MR_U64, 1, &bitmap)};
    canned_reply(ep, r, t, 2);
}

static void streams(struct fake_core *core, struct mr_endpoint *ep, const struct mr_request *r)
{
    struct mr_tensor t = mr_body_rows(MR_BODY_STREAM, 0, NULL);
    canned_reply(ep, r, &t, 1);
}

static void nothing(struct fake_core *core, struct mr_endpoint *ep, const struct mr_request *r)
{
    canned_reply(ep, r, NULL, 0);
}

void fake_node_answer(void *app, struct mr_endpoint *ep, const struct mr_request *request)
{
    static void (*const ops[MR_OP_COUNT])(struct fake_core *, struct mr_endpoint *,
                                          const struct mr_request *) = {
        [MR_OP_NODE_INFO] = node_info,
        [MR_OP_ECHO] = nothing,
        [MR_OP_CREATE] = create,
        [MR_OP_FREEZE] = nothing,
        [MR_OP_LIST] = list,
        [MR_OP_FEED_SAMPLE] = feed,
        [MR_OP_LOOKUP_BATCH] = lookup_batch,
        [MR_OP_LOOKUP] = lookup,
        [MR_OP_PUSH_GRAD_BATCH] = push_batch,
        [MR_OP_PUSH_GRAD] = push,
        [MR_OP_BATCH_STATE] = batch_state,
        [MR_OP_STREAMS] = streams,
        [MR_OP_FORGET_STREAM] = nothing,
        [MR_OP_LOOKUP_TABLES] = lookup,
        [MR_OP_MOVE] = move,
    };
    struct fake_core *core = app;
    const uint8_t op = request->message->preamble.op;
    if (op == MR_OP_PUSH_GRAD && (request->message->preamble.flags & MR_PUSH_UNSEEN) != 0)
        atomic_fetch_add(&core->node->unseen, 1);
    if (op == MR_OP_PUSH_GRAD && is_in_set(&core->node->busy, core))
        mr_reply_busy(ep, request->ref);
    else if (op < MR_OP_COUNT && ops[op] != NULL)
        ops[op](core, ep, request);
    else if (!canned_answer(ep, core->index, request))
        mr_reply_status(ep, request->ref, MR_UNKNOWN_OP);
}

void fake_core_forget(struct fake_core *core)
{
    free(core->batch.keys);
    free(core->batch.offsets);
    core->batch = (struct fake_batch){.samples = 0};
}
