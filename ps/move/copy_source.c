#include "ps/move/copy_source.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include "dataplane/optimizer/rule.h"
#include "dataplane/wire/base/bytes.h"
#include "dataplane/wire/endpoint.h"
#include "dataplane/wire/format/move.h"
#include "ps/core/core.h"
#include "ps/move/copy_ring.h"
#include "ps/table/table_changes.h"

#define CHUNK_ROWS   64u                        /* of a PS_RECORD_ROWS */
#define CURSOR_BYTES (2u * MR_MOVE_BLOCK_BYTES) /* are kept ahead of the backup at most */
#define NOTED_MAX    256u /* of each kind between two records: beyond, all are written */
#define MARKS_MIN    64u
#define LOOK_US      1000u /* between two looks at what changed without a call's record */
#define PARK_US                                                                                              \
    500000u /* a question is kept for so long at most: the backup is to know that the source lives */

/* Where a record ends that answers may wait for. */
struct copy_mark {
    uint64_t record, end;
};

/* One backup. */
struct ps_copy_source {
    uint64_t id;
    struct ps_partition_set partitions;
    struct ps_copy_ring ring;
    uint64_t number; /* of the last record */
    bool is_lost, repeats;
    /* the cursor: the feature's next partition or range; the hashes of a partition's rows that are left */
    bool is_begun; /* what the core has recorded of pushes and batches is in the stream */
    bool is_through;
    uint64_t whole; /* the position after it; 0: not yet */
    uint32_t feature, next;
    uint64_t *hashes;
    uint32_t hash_count, hash_at;
    struct ps_copy_status *status;
    bool waits;              /* answers do, until the backup has what the marks are about */
    struct copy_mark *marks; /* ring */
    uint32_t mark_first, mark_count, mark_room;
    uint64_t lost_record;            /* the first one that is not in the stream; 0: all are */
    const struct mr_request *parked; /* the backup's question; NULL: none is kept */
    uint64_t parked_us;
};

struct push_note {
    uint8_t uuid[MR_UUID_BYTES];
    uint32_t stream_id;
};

struct range_note {
    uint32_t feature, range;
};

/* What has changed since the last record, and the backups that are to hear of it. */
struct ps_copies {
    uint32_t count;
    struct ps_copy_source sources[PS_COPY_SOURCES_MAX];
    bool all_records; /* more than was noted here */
    uint32_t push_count, client_count, stream_count, range_count;
    struct push_note pushes[NOTED_MAX];
    uint8_t clients[NOTED_MAX][MR_UUID_BYTES];
    uint32_t streams[NOTED_MAX];
    bool all_ranges;
    struct range_note ranges[NOTED_MAX];
    uint8_t *scratch; /* of exported records */
    size_t scratch_bytes;
    uint64_t looked_us; /* at what changed without a call's record */
};

/* ---- notes ---- */

void ps_copies_note_push(struct ps_core *core, const uint8_t *uuid, uint32_t stream_id)
{
    struct ps_copies *c = core->copies;
    for (uint32_t i = 0; i < c->push_count; i++)
        if (c->pushes[i].stream_id == stream_id && memcmp(c->pushes[i].uuid, uuid, MR_UUID_BYTES) == 0)
            return;
    c->all_records |= c->push_count == NOTED_MAX;
    if (c->all_records)
        return;
    memcpy(c->pushes[c->push_count].uuid, uuid, MR_UUID_BYTES);
    c->pushes[c->push_count++].stream_id = stream_id;
}

void ps_copies_note_client(struct ps_core *core, const uint8_t *uuid)
{
    struct ps_copies *c = core->copies;
    for (uint32_t i = 0; i < c->client_count; i++)
        if (memcmp(c->clients[i], uuid, MR_UUID_BYTES) == 0)
            return;
    c->all_records |= c->client_count == NOTED_MAX;
    if (!c->all_records)
        memcpy(c->clients[c->client_count++], uuid, MR_UUID_BYTES);
}

void ps_copies_note_batches(struct ps_core *core, uint32_t stream)
{
    struct ps_copies *c = core->copies;
    for (uint32_t i = 0; i < c->stream_count; i++)
        if (c->streams[i] == stream)
            return;
    c->all_records |= c->stream_count == NOTED_MAX;
    if (!c->all_records)
        c->streams[c->stream_count++] = stream;
}

void ps_copies_note_range(struct ps_core *core, uint32_t feature, uint32_t range)
{
    struct ps_copies *c = core->copies;
    for (uint32_t i = 0; i < c->range_count; i++)
        if (c->ranges[i].feature == feature && c->ranges[i].range == range)
            return;
    c->all_ranges |= c->range_count == NOTED_MAX;
    if (!c->all_ranges)
        c->ranges[c->range_count++] = (struct range_note){feature, range};
}

void ps_copies_note_all(struct ps_core *core)
{
    core->copies->all_records = true;
}

static void notes_clear(struct ps_core *core)
{
    struct ps_copies *c = core->copies;
    for (uint32_t id = 1; id <= core->feature_id_max; id++)
        ps_table_changes_clear(&core->changes[id]);
    c->push_count = c->client_count = c->stream_count = c->range_count = 0;
    c->all_records = c->all_ranges = false;
}

static bool notes_any(const struct ps_core *core)
{
    const struct ps_copies *c = core->copies;
    bool any = c->push_count + c->client_count + c->stream_count + c->range_count > 0 || c->all_records ||
               c->all_ranges;
    for (uint32_t id = 1; id <= core->feature_id_max && !any; id++)
        any = core->changes[id].count > 0 || core->changes[id].is_lost;
    for (uint32_t i = 0; i < c->count && !any; i++) /* the beginning of a record */
        any = c->sources[i].ring.put != c->sources[i].ring.end;
    return any;
}

/* ---- a source ---- */

static struct ps_copy_source *copy_source_find(const struct ps_core *core, uint64_t id)
{
    struct ps_copies *c = core->copies;
    for (uint32_t i = 0; c != NULL && i < c->count; i++)
        if (c->sources[i].id == id)
            return &c->sources[i];
    return NULL;
}

void ps_copy_source_narrow(struct ps_core *core, uint64_t id, const struct ps_partition_set *partitions)
{
    struct ps_copy_source *s = copy_source_find(core, id);
    if (s != NULL)
        s->partitions = ps_partitions_and(&s->partitions, partitions);
}

bool ps_copy_source_is(const struct ps_core *core, uint64_t id)
{
    return copy_source_find(core, id) != NULL;
}

static void copy_source_say(const struct ps_core *core, struct ps_copy_source *s)
{
    const bool follows = s->whole != 0 && s->ring.begin >= s->whole;
    const enum ps_copy_state state = s->is_lost   ? PS_COPY_LOST
                                     : s->repeats ? PS_COPY_REPEATS
                                     : follows    ? PS_COPY_FOLLOWS
                                                  : PS_COPY_FORMS;
    atomic_store_explicit(&s->status->applied, s->ring.begin, memory_order_relaxed);
    atomic_store_explicit(&s->status->end, s->ring.end, memory_order_relaxed);
    const bool is_new = atomic_load_explicit(&s->status->state, memory_order_relaxed) != (uint32_t)state;
    atomic_store_explicit(&s->status->state, (uint32_t)state, memory_order_release);
    if (is_new)
        ps_node_wake_control(core->node);
}

static void copy_source_lose(struct ps_core *core, struct ps_copy_source *s)
{
    s->is_lost = true;
    free(s->hashes);
    s->hashes = NULL;
    copy_source_say(core, s);
}

/* ---- answers that wait ---- */

/* Up to which record the backup has all; UINT64_MAX: it lacks none. */
static uint64_t copy_source_passed(const struct ps_copy_source *s)
{
    if (s->mark_count > 0)
        return s->marks[s->mark_first].record - 1;
    return s->lost_record != 0 ? s->lost_record - 1 : UINT64_MAX;
}

/* Of all backups that answers wait for. */
static uint64_t copies_passed(const struct ps_core *core, bool *any_waits)
{
    const struct ps_copies *c = core->copies;
    uint64_t passed = core->push_answers.record;
    *any_waits = false;
    for (uint32_t i = 0; i < c->count; i++) {
        const struct ps_copy_source *s = &c->sources[i];
        *any_waits |= s->waits;
        if (s->waits && copy_source_passed(s) < passed)
            passed = copy_source_passed(s);
    }
    return passed;
}

/* Sends what waited for it. */
static void copies_say_passed(struct ps_core *core)
{
    bool any_waits;
    const uint64_t passed = copies_passed(core, &any_waits);
    if (!any_waits)
        ps_push_answers_wait_no_more(core);
    else
        ps_push_answers_pass(core, passed);
}

static bool marks_grow(struct ps_copy_source *s)
{
    const uint32_t room = s->mark_room == 0 ? MARKS_MIN : 2 * s->mark_room;
    struct copy_mark *marks = malloc(room * sizeof(*marks));
    if (marks == NULL)
        return false;
    for (uint32_t i = 0; i < s->mark_count; i++)
        marks[i] = s->marks[(s->mark_first + i) % s->mark_room];
    free(s->marks);
    s->marks = marks;
    s->mark_first = 0;
    s->mark_room = room;
    return true;
}

/* The record that was just made is in the stream, if this backup is concerned, or the source is lost. */
static void copy_source_mark(struct ps_core *core, struct ps_copy_source *s, bool is_put)
{
    const uint64_t record = core->push_answers.record;
    if (!s->is_lost && is_put && s->mark_count == s->mark_room && !marks_grow(s))
        copy_source_lose(core, s);
    if (s->is_lost)
        s->lost_record = s->lost_record == 0 ? record : s->lost_record;
    else if (is_put)
        s->marks[(s->mark_first + s->mark_count++) % s->mark_room] = (struct copy_mark){record, s->ring.end};
}

static void copy_source_unmark(struct ps_core *core, struct ps_copy_source *s)
{
    bool any = false;
    for (; s->mark_count > 0 && s->marks[s->mark_first].end <= s->ring.begin; s->mark_count--) {
        s->mark_first = (s->mark_first + 1) % s->mark_room;
        any = true;
    }
    if (any)
        copies_say_passed(core);
}

enum mr_status ps_copy_source_wait(struct ps_core *core, uint64_t id, bool waits)
{
    struct ps_copy_source *s = copy_source_find(core, id);
    if (s == NULL || s->waits == waits)
        return MR_OK;
    ps_copies_record(core); /* what was applied is in the stream */
    if (waits) {
        bool any_waits;
        const uint64_t passed = copies_passed(core, &any_waits);
        if (ps_push_answers_wait(core, passed) != MR_OK)
            return MR_NO_MEMORY;
    }
    s->waits = waits;
    s->mark_first = s->mark_count = 0;
    s->lost_record = s->is_lost ? core->push_answers.record + 1 : 0;
    copies_say_passed(core);
    return MR_OK;
}

/* Another node may own the partitions now: what it has of what waits is not known. */
static void copy_source_give_up(struct ps_core *core, struct ps_copy_source *s)
{
    if (!s->waits)
        return;
    const uint64_t passed = copy_source_passed(s);
    if (passed != UINT64_MAX)
        ps_push_answers_give_up(core, passed + 1);
    s->waits = false;
    copies_say_passed(core);
}

/* Has the core collect what its tables change. */
static struct ps_copies *copies_make(struct ps_core *core)
{
    if (core->copies != NULL)
        return core->copies;
    core->copies = calloc(1, sizeof(*core->copies));
    core->changes = calloc(MR_FEATURE_ID_MAX + 1, sizeof(*core->changes));
    if (core->copies == NULL || core->changes == NULL) {
        free(core->copies);
        free(core->changes);
        core->copies = NULL;
        core->changes = NULL;
        return NULL;
    }
    for (uint32_t id = 1; id <= core->feature_id_max; id++)
        if (core->features[id] != NULL && core->features[id]->table != NULL)
            ps_table_collect(core->features[id]->table, &core->changes[id]);
    return core->copies;
}

enum mr_status ps_copy_source_begin(struct ps_core *core, uint64_t id,
                                    const struct ps_partition_set *partitions, size_t ring_bytes,
                                    struct ps_copy_status *status)
{
    struct ps_copies *c = copies_make(core);
    assert(id != 0 && copy_source_find(core, id) == NULL);
    if (c == NULL)
        return MR_NO_MEMORY;
    if (c->count == PS_COPY_SOURCES_MAX)
        return MR_UNSUPPORTED;
    struct ps_copy_source *s = &c->sources[c->count];
    *s = (struct ps_copy_source){.id = id, .feature = 1, .status = status};
    for (uint32_t p = 0; p < MR_PARTITION_COUNT; p++)
        if (ps_partitions_has(partitions, p) && core->node->partition_core[p] == core->index)
            ps_partitions_add(&s->partitions, p);
    const bool has_ring = ps_copy_ring_init(&s->ring, ring_bytes);
    c->count += has_ring;
    if (has_ring)
        copy_source_say(core, s);
    else if (c->count == 0)
        ps_copy_source_end(core, 0);
    return has_ring ? MR_OK : MR_NO_MEMORY;
}

static void copies_free(struct ps_core *core)
{
    for (uint32_t id = 1; id <= MR_FEATURE_ID_MAX; id++) {
        if (core->features[id] != NULL && core->features[id]->table != NULL)
            ps_table_collect(core->features[id]->table, NULL);
        ps_table_changes_free(&core->changes[id]);
    }
    free(core->changes);
    free(core->copies->scratch);
    free(core->copies);
    core->copies = NULL;
    core->changes = NULL;
}

void ps_copy_source_end(struct ps_core *core, uint64_t id)
{
    struct ps_copies *c = core->copies;
    if (c == NULL)
        return;
    for (uint32_t i = c->count; i-- > 0;) {
        struct ps_copy_source *s = &c->sources[i];
        if (id != 0 && s->id != id)
            continue;
        copy_source_give_up(core, s);
        if (s->parked != NULL)
            mr_reply_busy(core->ep, s->parked->ref);
        ps_copy_ring_free(&s->ring);
        free(s->marks);
        free(s->hashes);
        *s = c->sources[--c->count];
    }
    if (c->count == 0)
        copies_free(core);
}

/* ---- what a record holds ---- */

static void put_head(struct ps_copy_source *s, const struct ps_record *record)
{
    ps_copy_ring_put(&s->ring, record, sizeof(*record));
}

/* Rows, or keys without any, of one table. */
struct copy_chunk {
    const struct ps_feature *feature;
    uint32_t count;
    bool has_rows;
    uint64_t keys[CHUNK_ROWS];
    const uint8_t *rows[CHUNK_ROWS];
};

static void chunk_put(struct ps_copy_source *s, struct copy_chunk *chunk)
{
    if (chunk->count == 0)
        return;
    const uint32_t row_bytes = chunk->has_rows ? ps_table_stored_row_bytes(chunk->feature->table) : 0;
    const struct ps_record record = {.kind = chunk->has_rows ? PS_RECORD_ROWS : PS_RECORD_GONE,
                                     .feature = chunk->feature->id,
                                     .count = chunk->count,
                                     .row_bytes = row_bytes,
                                     .bytes = chunk->count * (sizeof(uint64_t) + (uint64_t)row_bytes)};
    put_head(s, &record);
    ps_copy_ring_put(&s->ring, chunk->keys, chunk->count * sizeof(uint64_t));
    for (uint32_t i = 0; chunk->has_rows && i < chunk->count; i++)
        ps_copy_ring_put(&s->ring, chunk->rows[i], row_bytes);
    ps_copy_ring_pad(&s->ring);
    chunk->count = 0;
}

/* Adds a key as it is now. */
static void chunk_add(struct ps_copy_source *s, struct copy_chunk *chunk, uint64_t hash)
{
    uint64_t key;
    const uint8_t *row = ps_table_row_of(chunk->feature->table, hash, &key);
    if (chunk->count == CHUNK_ROWS || (row != NULL) != chunk->has_rows)
        chunk_put(s, chunk);
    chunk->has_rows = row != NULL;
    chunk->keys[chunk->count] = key;
    chunk->rows[chunk->count++] = row;
}

static void put_changes(struct ps_core *core, struct ps_copy_source *s)
{
    struct copy_chunk chunk;
    for (uint32_t id = 1; id <= core->feature_id_max; id++) {
        const struct ps_table_changes *changes = &core->changes[id];
        chunk.feature = core->features[id];
        chunk.count = 0;
        chunk.has_rows = true;
        for (uint32_t i = 0; chunk.feature != NULL && i < changes->count; i++)
            if (ps_partitions_has(&s->partitions, mr_partition_of(changes->hashes[i])))
                chunk_add(s, &chunk, changes->hashes[i]);
        if (chunk.feature != NULL)
            chunk_put(s, &chunk);
    }
}

#define PIECE_BYTES (64u << 10)

/* A range that the core has, if it is one of these partitions. */
static void put_range(struct ps_core *core, struct ps_copy_source *s, uint32_t id, uint32_t range)
{
    static _Thread_local uint8_t piece[PIECE_BYTES];
    const struct ps_feature *f = ps_core_feature(core, id);
    if (f == NULL || range >= f->range_count || f->ranges[range].variable == NULL ||
        !ps_partitions_has(&s->partitions, f->ranges[range].partition))
        return;
    const struct ps_variable *v = f->ranges[range].variable;
    const uint64_t total = ps_variable_stored_bytes(v), base = range * mr_rule_range_bytes(&f->feature);
    for (uint64_t at = 0; at < total; at += PIECE_BYTES) {
        const uint64_t bytes = total - at < PIECE_BYTES ? total - at : PIECE_BYTES;
        const struct ps_record record = {.kind = PS_RECORD_VARIABLE,
                                         .feature = id,
                                         .count = (uint32_t)bytes,
                                         .offset = base + at,
                                         .bytes = bytes};
        ps_variable_store(v, at, bytes, piece);
        put_head(s, &record);
        ps_copy_ring_put(&s->ring, piece, bytes);
        ps_copy_ring_pad(&s->ring);
    }
}

static void put_ranges(struct ps_core *core, struct ps_copy_source *s)
{
    const struct ps_copies *c = core->copies;
    for (uint32_t i = 0; i < c->range_count; i++)
        put_range(core, s, c->ranges[i].feature, c->ranges[i].range);
    for (uint32_t id = 1; c->all_ranges && id <= core->feature_id_max; id++)
        for (uint32_t i = 0; core->features[id] != NULL && i < core->features[id]->range_count; i++)
            put_range(core, s, id, i);
}

/* Room for exported records; NULL: no memory, and the source is lost. */
static uint8_t *scratch_of(struct ps_copies *c, struct ps_copy_source *s, size_t bytes)
{
    if (bytes > c->scratch_bytes) {
        uint8_t *more = realloc(c->scratch, 2 * bytes);
        if (more == NULL) {
            s->ring.is_full = true;
            return NULL;
        }
        c->scratch = more;
        c->scratch_bytes = 2 * bytes;
    }
    return c->scratch;
}

static void put_all_records(struct ps_core *core, struct ps_copy_source *s)
{
    const struct ps_records records = ps_core_records(core);
    const size_t bytes = ps_records_export(&records, &s->partitions, NULL);
    uint8_t *out = scratch_of(core->copies, s, bytes);
    if (out == NULL || bytes == 0)
        return;
    (void)ps_records_export(&records, &s->partitions, out);
    ps_copy_ring_put(&s->ring, out, bytes);
}

static void put_records(struct ps_core *core, struct ps_copy_source *s)
{
    struct ps_copies *c = core->copies;
    const struct ps_records records = ps_core_records(core);
    uint8_t *out = NULL;
    size_t bytes = 0;
    if (c->all_records) {
        put_all_records(core, s);
        return;
    }
    for (uint32_t pass = 0; pass < 2; pass++) {
        if (pass == 1 && (out = scratch_of(c, s, bytes)) == NULL)
            return;
        bytes = 0;
        for (uint32_t i = 0; i < c->stream_count; i++)
            bytes += ps_records_export_batches(&records, c->streams[i], out != NULL ? out + bytes : NULL);
        for (uint32_t i = 0; i < c->client_count; i++)
            bytes += ps_records_export_client(&records, c->clients[i], out != NULL ? out + bytes : NULL);
        for (uint32_t i = 0; i < c->push_count; i++)
            bytes += ps_records_export_pushes(&records, &s->partitions, c->pushes[i].uuid,
                                              c->pushes[i].stream_id, out != NULL ? out + bytes : NULL);
    }
    ps_copy_ring_put(&s->ring, out, bytes);
}

/* Completes what was put, if anything was. */
static void copy_source_commit(struct ps_core *core, struct ps_copy_source *s)
{
    if (s->ring.put == s->ring.end && !s->ring.is_full)
        return;
    put_head(s, &(struct ps_record){.kind = PS_COPY_END, .offset = ++s->number});
    ps_copy_ring_commit(&s->ring);
    if (s->ring.is_full)
        copy_source_lose(core, s);
    else
        copy_source_say(core, s);
}

/* Does the backup need to be told? Else its cursor will come by, or there is nothing to be completed. */
static bool copy_source_is_told(const struct ps_copy_source *s)
{
    return !s->is_lost && s->is_begun;
}

/* Puts what the core's tables have changed, and begins to collect anew. */
static void copies_put_changes(struct ps_core *core)
{
    struct ps_copies *c = core->copies;
    bool is_lost = false;
    for (uint32_t id = 1; id <= core->feature_id_max; id++)
        is_lost |= core->changes[id].is_lost;
    for (uint32_t i = 0; i < c->count; i++) {
        struct ps_copy_source *s = &c->sources[i];
        if (!copy_source_is_told(s))
            continue;
        s->ring.is_full |= is_lost;
        put_changes(core, s);
    }
    for (uint32_t id = 1; id <= core->feature_id_max; id++)
        ps_table_changes_clear(&core->changes[id]);
}

void ps_copies_record_more(struct ps_core *core)
{
    if (core->push_is_open)
        copies_put_changes(core);
}

void ps_copies_record(struct ps_core *core)
{
    struct ps_copies *c = core->copies;
    if (core->push_is_open || !notes_any(core))
        return;
    core->push_answers.record++;
    copies_put_changes(core);
    for (uint32_t i = 0; i < c->count; i++) {
        struct ps_copy_source *s = &c->sources[i];
        const uint64_t end = s->ring.end;
        if (copy_source_is_told(s)) {
            put_ranges(core, s);
            put_records(core, s);
            copy_source_commit(core, s);
        }
        if (s->waits)
            copy_source_mark(core, s, s->ring.end != end);
    }
    notes_clear(core);
    if (core->push_answers.waits_for_backups)
        copies_say_passed(core);
}

/* ---- the cursor ---- */

static void budget_use(uint64_t *budget_bytes, uint64_t cost_bytes)
{
    *budget_bytes -= cost_bytes < *budget_bytes ? cost_bytes : *budget_bytes;
}

/* Enters the next partition of the cursor's table. False: there is no other. */
static bool cursor_enter(struct ps_copy_source *s, const struct ps_feature *f, uint64_t *budget_bytes)
{
    while (s->next < MR_PARTITION_COUNT &&
           (!ps_partitions_has(&s->partitions, s->next) || ps_table_partition_rows(f->table, s->next) == 0))
        s->next++;
    if (s->next == MR_PARTITION_COUNT)
        return false;
    s->hash_count = ps_table_partition_rows(f->table, s->next);
    s->hash_at = 0;
    s->hashes = malloc(s->hash_count * sizeof(*s->hashes));
    s->ring.is_full |= s->hashes == NULL;
    if (s->hashes != NULL)
        ps_table_partition_hashes(f->table, s->next++, s->hashes);
    budget_use(budget_bytes, s->hash_count * sizeof(*s->hashes));
    return s->hashes != NULL;
}

/* Rows that were removed since are in a record of their own. */
static void cursor_rows(struct ps_copy_source *s, const struct ps_feature *f, uint64_t *budget_bytes)
{
    struct copy_chunk chunk = {.feature = f, .has_rows = true};
    uint64_t key;
    const uint32_t row_bytes = ps_table_stored_row_bytes(f->table);
    for (; s->hash_at < s->hash_count && chunk.count<CHUNK_ROWS && * budget_bytes> 0; s->hash_at++) {
        if (ps_table_row_of(f->table, s->hashes[s->hash_at], &key) != NULL)
            chunk_add(s, &chunk, s->hashes[s->hash_at]);
        budget_use(budget_bytes, PS_KEY_COST_BYTES + row_bytes);
    }
    chunk_put(s, &chunk);
    if (s->hash_at < s->hash_count)
        return;
    free(s->hashes);
    s->hashes = NULL;
}

/* Puts what comes next of the cursor's feature. False: there is no more of it. */
static bool cursor_feature(struct ps_core *core, struct ps_copy_source *s, uint64_t *budget_bytes)
{
    const struct ps_feature *f = core->features[s->feature];
    if (f == NULL || (f->table == NULL && s->next == f->range_count)) {
        free(s->hashes); /* of one that was dropped */
        s->hashes = NULL;
        return false;
    }
    if (f->table != NULL) {
        if (s->hashes == NULL && !cursor_enter(s, f, budget_bytes))
            return false;
        cursor_rows(s, f, budget_bytes);
        return true;
    }
    put_range(core, s, s->feature, s->next++);
    budget_use(budget_bytes, mr_rule_range_bytes(&f->feature));
    return true;
}

/* A record with the next part of what the core has: as it is, with all that was applied by now. */
static void cursor_step(struct ps_core *core, struct ps_copy_source *s, uint64_t *budget_bytes)
{
    if (!s->is_begun) {
        put_all_records(core, s);
        s->is_begun = true;
    }
    while (s->feature <= core->feature_id_max && !s->ring.is_full && !cursor_feature(core, s, budget_bytes)) {
        s->feature++;
        s->next = 0;
    }
    s->is_through = s->feature > core->feature_id_max;
    if (s->is_through)
        put_head(s, &(struct ps_record){.kind = PS_COPY_WHOLE});
    copy_source_commit(core, s);
    s->whole = s->is_through ? s->ring.end : 0;
}

/* ---- reading ---- */

static bool copy_source_trim(struct ps_core *core, struct ps_copy_source *s, uint64_t position)
{
    if (!ps_copy_ring_trim(&s->ring, position))
        return false;
    copy_source_say(core, s);
    copy_source_unmark(core, s);
    return true;
}

/* NULL: `out` says why not. */
static struct ps_copy_source *copy_source_at(struct ps_core *core, uint64_t id, uint64_t position,
                                             struct ps_migration_block *out)
{
    struct ps_copy_source *s = copy_source_find(core, id);
    *out = (struct ps_migration_block){.bytes = (const uint8_t *)"", .state = MR_MOVE_NOT_READY};
    if (s == NULL)
        return NULL;
    const bool begins = position == 1 && (s->is_lost || s->ring.begin > 1);
    if (begins && !s->repeats) {
        s->repeats = true; /* until the map says that it has nothing: then the source begins again, too */
        copy_source_say(core, s);
    }
    if (begins)
        return NULL;
    if (copy_source_trim(core, s, position))
        return s;
    out->state = MR_MOVE_LOST;
    return NULL;
}

void ps_copy_source_applied(struct ps_core *core, uint64_t id, uint64_t position)
{
    struct ps_copy_source *s = copy_source_find(core, id);
    if (s != NULL && position > s->ring.begin)
        (void)copy_source_trim(core, s, position);
}

bool ps_copy_source_read(struct ps_core *core, uint64_t id, uint64_t position, uint64_t budget_bytes,
                         struct ps_migration_block *out)
{
    struct ps_copy_source *s = copy_source_at(core, id, position, out);
    size_t count = 0;
    if (s == NULL)
        return true;
    ps_copies_record(core);
    while (!s->is_lost && !s->is_through && !core->push_is_open &&
           ps_copy_ring_kept(&s->ring) < CURSOR_BYTES) {
        if (budget_bytes == 0)
            return false;
        cursor_step(core, s, &budget_bytes);
    }
    if (!s->is_lost)
        copy_source_say(core, s);
    out->bytes = ps_copy_ring_read(&s->ring, MR_MOVE_BLOCK_BYTES, &count);
    out->byte_count = (uint32_t)count;
    out->state = MR_MOVE_MORE;
    out->is_first = !s->is_through;
    out->left_bytes = ps_copy_ring_kept(&s->ring) - count;
    return true;
}

bool ps_copy_source_park(struct ps_core *core, uint64_t id, const struct mr_request *request, uint64_t now_us)
{
    struct ps_copy_source *s = copy_source_find(core, id);
    if (s == NULL || !s->is_through || ps_copy_ring_kept(&s->ring) > 0)
        return false;
    if (s->parked != NULL)
        mr_reply_busy(core->ep, s->parked->ref);
    s->parked = request;
    s->parked_us = now_us;
    return true;
}

uint64_t ps_copies_due_us(const struct ps_core *core)
{
    const struct ps_copies *c = core->copies;
    uint64_t due_us = !core->push_is_open && notes_any(core) ? c->looked_us + LOOK_US : UINT64_MAX;
    for (uint32_t i = 0; i < c->count; i++)
        if (c->sources[i].parked != NULL && c->sources[i].parked_us + PARK_US < due_us)
            due_us = c->sources[i].parked_us + PARK_US;
    return due_us;
}

const struct mr_request *ps_copies_unpark(struct ps_core *core, uint64_t now_us, uint64_t *id)
{
    struct ps_copies *c = core->copies;
    if (now_us - c->looked_us >= LOOK_US) {
        c->looked_us = now_us;
        ps_copies_record(core);
    }
    for (uint32_t i = 0; i < c->count; i++) {
        struct ps_copy_source *s = &c->sources[i];
        const struct mr_request *request = s->parked;
        if (request == NULL || (ps_copy_ring_kept(&s->ring) == 0 && now_us < s->parked_us + PARK_US))
            continue;
        s->parked = NULL;
        *id = s->id;
        return request;
    }
    return NULL;
}
