#include "ps/restore/push_merge.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "ps/restore/restore.h"

struct saved {
    uint32_t writer;
    uint8_t uuid[MR_UUID_BYTES];
    struct ps_push_load piece;           /* its uuid is set when it is loaded */
    struct ps_partition_set *partitions; /* NULL: all */
    bool is_range;                       /* of those that cover all partitions together */
};

struct ps_push_merge {
    const struct ps_saved_writers *writers;
    const bool *owns;
    uint32_t count, room;
    struct saved *saved; /* once finished: by client, push stream, writer */
};

struct ps_push_merge *ps_push_merge_create(const struct ps_saved_writers *writers, const bool *owns)
{
    struct ps_push_merge *m = calloc(1, sizeof(*m));
    if (m != NULL) {
        m->writers = writers;
        m->owns = owns;
    }
    return m;
}

void ps_push_merge_destroy(struct ps_push_merge *m)
{
    for (uint32_t i = 0; m != NULL && i < m->count; i++)
        free(m->saved[i].partitions);
    if (m != NULL)
        free(m->saved);
    free(m);
}

/* ---- reading ---- */

static enum mr_status corrupt(char *text)
{
    snprintf(text, PS_RESTORE_TEXT_BYTES, "a record of numbered pushes is out of its range");
    return MR_CHECKPOINT_CORRUPT;
}

static enum mr_status no_memory(char *text, enum mr_status status)
{
    snprintf(text, PS_RESTORE_TEXT_BYTES,
             "no memory left for the record of numbered pushes: raise batches.memory_mib");
    return status;
}

static bool push_merge_grow(struct ps_push_merge *m)
{
    if (m->count < m->room)
        return true;
    uint32_t room = m->room == 0 ? 64 : 2 * m->room;
    struct saved *saved = realloc(m->saved, room * sizeof(*saved));
    if (saved == NULL)
        return false;
    m->saved = saved;
    m->room = room;
    return true;
}

/* A range of partitions, of a push stream of a core: the format before version 6. */
static bool read_range(const struct ps_record *record, const uint8_t *bytes, struct ps_push_load *out,
                       struct ps_partition_set *partitions)
{
    const struct ps_stored_pushes *stored = (const struct ps_stored_pushes *)(const void *)bytes;
    if (mr_push_stream_is_chosen(stored->stream_id) || !mr_push_stream_is_valid(stored->stream_id) ||
        stored->partition >= stored->partition_end || stored->partition_end > MR_PARTITION_COUNT ||
        stored->reserved != 0 || stored->floor > MR_PUSH_NUMBER_MAX)
        return false;
    *out =
        (struct ps_push_load){.uuid = stored->uuid, .stream_id = stored->stream_id, .used = record->offset};
    ps_push_window_load(&out->window, stored->floor, stored->words,
                        (uint32_t)((record->bytes - sizeof(*stored)) / sizeof(uint64_t)));
    *partitions = ps_partitions_range(stored->partition, stored->partition_end);
    return true;
}

bool ps_push_merge_read(const struct ps_record *record, const uint8_t *bytes, struct ps_push_load *out,
                        struct ps_partition_set *partitions)
{
    const struct ps_partition_set *some;
    if (record->kind == PS_RECORD_PUSHES)
        return read_range(record, bytes, out, partitions);
    if (!ps_stored_push_stream_read(record, bytes, out, &some))
        return false;
    *partitions = some != NULL ? *some : ps_partitions_all();
    return true;
}

enum mr_status ps_push_merge_add(struct ps_push_merge *m, uint32_t part, const struct ps_record *record,
                                 const uint8_t *bytes, char *text)
{
    struct saved saved = {
        .writer = ps_saved_writer(m->writers, part, record->feature, record->count),
    };
    const struct ps_partition_set all = ps_partitions_all();
    struct ps_partition_set partitions;
    if (saved.writer == m->writers->count || !ps_push_merge_read(record, bytes, &saved.piece, &partitions))
        return corrupt(text);
    if (!m->writers->counts[saved.writer])
        return MR_OK;
    memcpy(saved.uuid, saved.piece.uuid, MR_UUID_BYTES);
    saved.is_range = record->kind == PS_RECORD_PUSHES;
    saved.piece.is_cut = true;
    if (!ps_partitions_within(&all, &partitions)) {
        saved.partitions = malloc(sizeof(partitions));
        if (saved.partitions == NULL)
            return no_memory(text, MR_NO_MEMORY);
        *saved.partitions = partitions;
    }
    if (!push_merge_grow(m)) {
        free(saved.partitions);
        return no_memory(text, MR_NO_MEMORY);
    }
    m->saved[m->count++] = saved;
    return MR_OK;
}

/* ---- merging ---- */

static int compare_streams(const struct saved *a, const struct saved *b)
{
    int order = memcmp(a->uuid, b->uuid, MR_UUID_BYTES);
    return order != 0 ? order
                      : (a->piece.stream_id > b->piece.stream_id) - (a->piece.stream_id < b->piece.stream_id);
}

static int compare(const void *a, const void *b)
{
    const struct saved *x = a, *y = b;
    int order = compare_streams(x, y);
    return order != 0 ? order : (x->writer > y->writer) - (x->writer < y->writer);
}

static struct ps_partition_set set_of(const struct saved *s)
{
    return s->partitions != NULL ? *s->partitions : ps_partitions_all();
}

/* Checks that a writer's pieces of a push stream do not overlap; ranges cover all partitions. */
static bool is_consistent(const struct saved *saved, uint32_t count)
{
    struct ps_partition_set covered = {{0}};
    const struct ps_partition_set all = ps_partitions_all();
    bool is_range = false;
    for (uint32_t i = 0; i < count; i++) {
        const struct ps_partition_set partitions = set_of(&saved[i]);
        const struct ps_partition_set both = ps_partitions_and(&covered, &partitions);
        if (!ps_partitions_empty(&both))
            return false;
        covered = ps_partitions_or(&covered, &partitions);
        is_range |= saved[i].is_range;
    }
    return !is_range || ps_partitions_within(&all, &covered);
}

enum mr_status ps_push_merge_finish(struct ps_push_merge *m, char *text)
{
    if (m->count > 0)
        qsort(m->saved, m->count, sizeof(*m->saved), compare);
    for (uint32_t i = 0, end; i < m->count; i = end) {
        for (end = i + 1; end < m->count && compare(&m->saved[i], &m->saved[end]) == 0;)
            end++;
        if (!is_consistent(&m->saved[i], end - i))
            return corrupt(text);
    }
    return MR_OK;
}

/* ---- giving out ---- */

/* The core that loads, and what it is to have. */
struct output {
    const struct ps_push_merge *m;
    struct ps_core *core;
    struct ps_partition_set mine;
};

static enum mr_status push_merge_load(const struct output *out, const struct saved *saved,
                                      const struct ps_partition_set *partitions,
                                      const struct ps_push_window *window, uint64_t used)
{
    struct ps_push_load piece = saved->piece;
    piece.uuid = saved->uuid;
    piece.window = *window;
    piece.used = used;
    return ps_pushes_load(out->core->pushes, &piece, partitions);
}

/* The partitions that pushes of a core's push stream can be about. */
static struct ps_partition_set slice_of(uint32_t stream_id)
{
    const uint32_t cores = mr_push_stream_cores(stream_id), core = mr_push_stream_core(stream_id);
    return ps_partitions_range((core * MR_PARTITION_COUNT + cores - 1) / cores,
                               ((core + 1) * MR_PARTITION_COUNT + cores - 1) / cores);
}

/* saved[0 .. count) are all records of a push stream. Of a core's push stream, a writer without a record
 * has applied nothing; of one that a client chose, it is not known whether it has anything to do with it. */
static enum mr_status load_stream(const struct output *out, const struct saved *saved, uint32_t count)
{
    static const struct ps_push_window nothing;
    const bool is_chosen = mr_push_stream_is_chosen(saved[0].piece.stream_id);
    const struct ps_partition_set all = ps_partitions_all();
    struct ps_partition_set wanted = out->mine, given = {{0}};
    enum mr_status status = MR_OK;
    uint64_t used = 0;
    if (!is_chosen) {
        const struct ps_partition_set slice = slice_of(saved[0].piece.stream_id);
        wanted = ps_partitions_and(&wanted, &slice);
    }
    if (ps_partitions_empty(&wanted))
        return MR_OK;
    for (uint32_t i = 0; i < count; i++)
        used = saved[i].piece.used > used ? saved[i].piece.used : used;
    /* No push asks for the partitions of other cores: they are as the first piece. */
    struct ps_partition_set beside = ps_partitions_without(&all, &wanted);
    for (uint32_t i = 0; i < count && status == MR_OK; i++) {
        struct ps_partition_set partitions = set_of(&saved[i]);
        partitions = ps_partitions_and(&partitions, &out->m->writers->partitions[saved[i].writer]);
        partitions = ps_partitions_and(&partitions, &wanted);
        if (ps_partitions_empty(&partitions))
            continue;
        given = ps_partitions_or(&given, &partitions);
        partitions = ps_partitions_or(&partitions, &beside);
        beside = (struct ps_partition_set){{0}};
        status = push_merge_load(out, &saved[i], &partitions, &saved[i].piece.window, used);
    }
    const struct ps_partition_set rest = ps_partitions_without(&wanted, &given);
    if (status == MR_OK && !is_chosen && !ps_partitions_empty(&given) && !ps_partitions_empty(&rest))
        status = push_merge_load(out, &saved[0], &rest, &nothing, used);
    return status;
}

static enum mr_status load_merged(const struct output *out)
{
    const struct ps_push_merge *m = out->m;
    enum mr_status status = MR_OK;
    for (uint32_t i = 0, end; i < m->count && status == MR_OK; i = end) {
        for (end = i + 1; end < m->count && compare_streams(&m->saved[i], &m->saved[end]) == 0;)
            end++;
        status = load_stream(out, m->saved + i, end - i);
    }
    return status;
}

static enum mr_status load_own(const struct output *out, uint32_t writer)
{
    const struct ps_push_merge *m = out->m;
    enum mr_status status = MR_OK;
    for (uint32_t i = 0; i < m->count && status == MR_OK; i++)
        if (m->saved[i].writer == writer)
            status = push_merge_load(out, &m->saved[i], m->saved[i].partitions, &m->saved[i].piece.window,
                                     m->saved[i].piece.used);
    return status;
}

enum mr_status ps_push_merge_load(const struct ps_push_merge *m, struct ps_core *core, char *text)
{
    struct output out = {.m = m, .core = core};
    const uint32_t own = ps_saved_writer_own(m->writers, core->index);
    for (uint32_t p = 0; p < MR_PARTITION_COUNT; p++)
        if (core->node->partition_core[p] == core->index && (m->owns == NULL || m->owns[p]))
            ps_partitions_add(&out.mine, p);
    enum mr_status status = own < m->writers->count ? load_own(&out, own) : load_merged(&out);
    return status == MR_OK ? status : no_memory(text, status);
}
