#include "ps/restore/push_merge.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "ps/restore/restore.h"

struct saved {
    uint32_t core;
    struct ps_push_lane piece;
};

struct ps_push_merge {
    uint32_t saved_core_count, core_count;
    uint32_t count, room;
    struct saved *saved; /* once finished: by client, lane, core, partition */
};

struct ps_push_merge *ps_push_merge_create(uint32_t saved_core_count, uint32_t core_count)
{
    struct ps_push_merge *m = calloc(1, sizeof(*m));
    if (m != NULL) {
        m->saved_core_count = saved_core_count;
        m->core_count = core_count;
    }
    return m;
}

void ps_push_merge_destroy(struct ps_push_merge *m)
{
    if (m != NULL) {
        free(m->saved);
        free(m);
    }
}

/* ---- reading ---- */

static bool is_well_formed(const struct ps_push_merge *m, const struct ps_record *record,
                           const struct ps_stored_pushes *stored)
{
    return record->feature < m->saved_core_count && record->count == m->saved_core_count &&
           mr_push_lane_is_valid(stored->lane) && stored->partition < stored->partition_end &&
           stored->partition_end <= MR_PARTITION_COUNT && stored->reserved == 0 &&
           stored->floor <= MR_PUSH_NUMBER_MAX;
}

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

static bool grow(struct ps_push_merge *m)
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

enum mr_status ps_push_merge_add(struct ps_push_merge *m, const struct ps_record *record,
                                 const uint8_t *bytes, char *text)
{
    const struct ps_stored_pushes *stored = (const struct ps_stored_pushes *)(const void *)bytes;
    if (!is_well_formed(m, record, stored))
        return corrupt(text);
    if (!grow(m))
        return no_memory(text, MR_NO_MEMORY);
    struct saved *to = &m->saved[m->count++];
    *to = (struct saved){.core = record->feature,
                         .piece = {.lane = stored->lane,
                                   .partition = stored->partition,
                                   .partition_end = stored->partition_end,
                                   .used = record->offset}};
    memcpy(to->piece.uuid, stored->uuid, MR_UUID_BYTES);
    ps_push_window_load(&to->piece.window, stored->floor, stored->words,
                        (uint32_t)((record->bytes - sizeof(*stored)) / sizeof(uint64_t)));
    return MR_OK;
}

/* ---- merging ---- */

static int compare_lanes(const struct ps_push_lane *a, const struct ps_push_lane *b)
{
    int order = memcmp(a->uuid, b->uuid, MR_UUID_BYTES);
    return order != 0 ? order : (a->lane > b->lane) - (a->lane < b->lane);
}

static bool is_same_core(const struct saved *a, const struct saved *b)
{
    return a->core == b->core && compare_lanes(&a->piece, &b->piece) == 0;
}

static int compare(const void *a, const void *b)
{
    const struct saved *x = a, *y = b;
    int order = compare_lanes(&x->piece, &y->piece);
    if (order == 0)
        order = (x->core > y->core) - (x->core < y->core);
    return order != 0 ? order : x->piece.partition - y->piece.partition;
}

/* Checks that a core's pieces of a lane cover all partitions, each once. */
enum mr_status ps_push_merge_finish(struct ps_push_merge *m, char *text)
{
    if (m->count > 0)
        qsort(m->saved, m->count, sizeof(*m->saved), compare);
    for (uint32_t i = 0; i < m->count; i++) {
        bool is_first = i == 0 || !is_same_core(&m->saved[i - 1], &m->saved[i]);
        bool is_last = i + 1 == m->count || !is_same_core(&m->saved[i + 1], &m->saved[i]);
        const struct ps_push_lane *piece = &m->saved[i].piece;
        if (piece->partition != (is_first ? 0 : m->saved[i - 1].piece.partition_end) ||
            (is_last && piece->partition_end != MR_PARTITION_COUNT))
            return corrupt(text);
    }
    return MR_OK;
}

/* ---- giving out ---- */

struct range {
    uint32_t begin, end;
};

/* The partitions of core `core` of `core_count`. */
static struct range range_of(uint32_t core_count, uint32_t core)
{
    return (struct range){(core * MR_PARTITION_COUNT + core_count - 1) / core_count,
                          ((core + 1) * MR_PARTITION_COUNT + core_count - 1) / core_count};
}

static struct range common(struct range a, struct range b)
{
    struct range c = {a.begin > b.begin ? a.begin : b.begin, a.end < b.end ? a.end : b.end};
    return c.begin < c.end ? c : (struct range){0, 0};
}

/* Gives a core its pieces of a lane; equal neighbours are joined. */
struct output {
    struct ps_core *core;
    bool any;
    struct ps_push_lane last; /* not given out yet */
    enum mr_status status;
};

static void give_last(struct output *out)
{
    if (out->any && out->status == MR_OK)
        out->status = ps_pushes_load(out->core->pushes, &out->last);
}

static void give(struct output *out, const struct ps_push_lane *lane, const struct ps_push_window *window,
                 struct range range)
{
    if (range.begin == range.end)
        return;
    if (out->any && memcmp(&out->last.window, window, sizeof(*window)) == 0) {
        out->last.partition_end = (uint16_t)range.end;
        return;
    }
    give_last(out);
    uint32_t begin = out->any ? range.begin : 0; /* no push asks for partitions of other cores */
    out->last = (struct ps_push_lane){.lane = lane->lane,
                                      .partition = (uint16_t)begin,
                                      .partition_end = (uint16_t)range.end,
                                      .used = lane->used,
                                      .window = *window};
    memcpy(out->last.uuid, lane->uuid, MR_UUID_BYTES);
    out->any = true;
}

/* saved[0 .. count) are all records of a lane. A core that wrote none has applied nothing of it. */
static enum mr_status load_lane(const struct ps_push_merge *m, const struct saved *saved, uint32_t count,
                                struct ps_core *core)
{
    static const struct ps_push_window nothing;
    struct ps_push_lane lane = saved[0].piece;
    for (uint32_t i = 1; i < count; i++)
        lane.used = saved[i].piece.used > lane.used ? saved[i].piece.used : lane.used;
    struct output out = {.core = core, .status = MR_OK};
    struct range wanted = common(range_of(m->core_count, core->index),
                                 range_of(mr_push_lane_cores(lane.lane), mr_push_lane_core(lane.lane)));
    for (uint32_t c = 0, at = 0; c < m->saved_core_count; c++) {
        struct range of_core = common(wanted, range_of(m->saved_core_count, c));
        if (at == count || saved[at].core != c)
            give(&out, &lane, &nothing, of_core);
        for (; at < count && saved[at].core == c; at++) {
            struct range of_piece = {saved[at].piece.partition, saved[at].piece.partition_end};
            give(&out, &lane, &saved[at].piece.window, common(of_core, of_piece));
        }
    }
    out.last.partition_end = MR_PARTITION_COUNT;
    give_last(&out);
    return out.status;
}

static enum mr_status load_merged(const struct ps_push_merge *m, struct ps_core *core)
{
    enum mr_status status = MR_OK;
    for (uint32_t i = 0, end; i < m->count && status == MR_OK; i = end) {
        for (end = i + 1; end < m->count && compare_lanes(&m->saved[i].piece, &m->saved[end].piece) == 0;)
            end++;
        status = load_lane(m, m->saved + i, end - i, core);
    }
    return status;
}

static enum mr_status load_own(const struct ps_push_merge *m, struct ps_core *core)
{
    enum mr_status status = MR_OK;
    for (uint32_t i = 0; i < m->count && status == MR_OK; i++)
        if (m->saved[i].core == core->index)
            status = ps_pushes_load(core->pushes, &m->saved[i].piece);
    return status;
}

enum mr_status ps_push_merge_load(const struct ps_push_merge *m, struct ps_core *core, char *text)
{
    enum mr_status status = m->saved_core_count == m->core_count ? load_own(m, core) : load_merged(m, core);
    return status == MR_OK ? status : no_memory(text, status);
}
