#include "ps/restore/applied_batches_merge.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "ps/restore/restore.h"

/* A stream's record of one writing core, its plan, or one of its partly applied batches. */
struct saved {
    uint32_t core;
    uint32_t kind; /* enum ps_stream_record */
    uint64_t added;
    uint32_t word_count;
    uint64_t *words; /* as of that kind */
};

struct saved_client {
    uint32_t core;
    uint8_t uuid[MR_UUID_BYTES];
    uint64_t last_step;
};

struct ps_applied_batches_merge {
    uint32_t saved_core_count, core_count;
    uint32_t saved_count, saved_room;
    struct saved *saved;
    uint32_t client_count, client_room;
    struct saved_client *clients;
    /* with another number of cores: what each of them holds */
    uint32_t merged_count;
    struct saved *merged;
    uint32_t partial_count, partial_room;
    struct ps_partial *partials;
};

struct ps_applied_batches_merge *ps_applied_batches_merge_create(uint32_t saved_core_count,
                                                                 uint32_t core_count)
{
    struct ps_applied_batches_merge *m = calloc(1, sizeof(*m));
    if (m != NULL) {
        m->saved_core_count = saved_core_count;
        m->core_count = core_count;
    }
    return m;
}

void ps_applied_batches_merge_destroy(struct ps_applied_batches_merge *m)
{
    if (m == NULL)
        return;
    for (uint32_t i = 0; i < m->saved_count; i++)
        free(m->saved[i].words);
    for (uint32_t i = 0; i < m->merged_count; i++)
        free(m->merged[i].words);
    free(m->saved);
    free(m->merged);
    free(m->clients);
    free(m->partials);
    free(m);
}

/* Makes room for one more in an array of `count`; false when memory is short. */
static bool grow(void **array, uint32_t count, uint32_t *room, size_t element_bytes)
{
    if (count < *room)
        return true;
    uint32_t wanted = *room == 0 ? 64 : 2 * *room;
    void *bigger = realloc(*array, wanted * element_bytes);
    if (bigger == NULL)
        return false;
    *array = bigger;
    *room = wanted;
    return true;
}

static enum mr_status no_memory(char *text)
{
    snprintf(text, PS_RESTORE_TEXT_BYTES, "no memory left for the record of applied batches");
    return MR_NO_MEMORY;
}

/* ---- reading ---- */

static enum mr_status add_client(struct ps_applied_batches_merge *m, const struct ps_record *record,
                                 const uint8_t *bytes, char *text)
{
    if (!grow((void **)&m->clients, m->client_count, &m->client_room, sizeof(*m->clients)))
        return no_memory(text);
    struct saved_client *client = &m->clients[m->client_count++];
    client->core = record->feature;
    memcpy(client->uuid, bytes, MR_UUID_BYTES);
    memcpy(&client->last_step, bytes + MR_UUID_BYTES, sizeof(client->last_step));
    return MR_OK;
}

static bool is_well_formed(const struct ps_applied_batches_merge *m, const struct ps_record *record,
                           const uint8_t *bytes)
{
    uint64_t stream;
    memcpy(&stream, bytes, sizeof(stream));
    if (record->feature >= m->saved_core_count || record->count != m->saved_core_count)
        return false;
    if (record->row_bytes == PS_STREAM_PARTIAL)
        return record->bytes == sizeof(struct ps_partial);
    if (record->row_bytes == PS_STREAM_PLAN)
        return record->bytes == PS_STREAM_PLAN_WORDS * sizeof(uint64_t) && stream < PS_STREAMS_MAX;
    return record->row_bytes == PS_STREAM_APPLIED && stream < PS_STREAMS_MAX &&
           record->bytes <= (2 + PS_APPLIED_BATCHES_WINDOW / 64) * sizeof(uint64_t);
}

enum mr_status ps_applied_batches_merge_add(struct ps_applied_batches_merge *m,
                                            const struct ps_record *record, const uint8_t *bytes, char *text)
{
    if (record->kind == PS_RECORD_CLIENT)
        return add_client(m, record, bytes, text);
    if (!is_well_formed(m, record, bytes)) {
        snprintf(text, PS_RESTORE_TEXT_BYTES, "a record of applied batches is out of its range");
        return MR_CHECKPOINT_CORRUPT;
    }
    uint64_t *words = malloc(record->bytes);
    if (words == NULL || !grow((void **)&m->saved, m->saved_count, &m->saved_room, sizeof(*m->saved))) {
        free(words);
        return no_memory(text);
    }
    memcpy(words, bytes, record->bytes);
    m->saved[m->saved_count++] = (struct saved){.core = record->feature,
                                                .kind = record->row_bytes,
                                                .added = record->offset,
                                                .word_count = (uint32_t)(record->bytes / sizeof(uint64_t)),
                                                .words = words};
    return MR_OK;
}

/* ---- merging ---- */

static bool saved_has(const struct saved *s, uint64_t sequence)
{
    uint64_t watermark = s->words[1], ahead = sequence - watermark;
    return sequence < watermark ||
           (ahead / 64 < s->word_count - 2 && (s->words[2 + ahead / 64] >> (ahead % 64) & 1) != 0);
}

static void set_partition(uint64_t *partitions, uint32_t p)
{
    partitions[p / 64] |= UINT64_C(1) << (p % 64);
}

/* The batch is applied in the partitions of writing core `core`; of those only in `limit` when that is
 * given. */
static bool add_partial(struct ps_applied_batches_merge *m, uint64_t batch_id, uint32_t core,
                        const uint64_t *limit)
{
    uint32_t i = 0;
    while (i < m->partial_count && m->partials[i].batch_id != batch_id)
        i++;
    if (i == m->partial_count) {
        if (m->partial_count == PS_PARTIALS_MAX ||
            !grow((void **)&m->partials, m->partial_count, &m->partial_room, sizeof(*m->partials)))
            return false;
        m->partials[m->partial_count++] = (struct ps_partial){.batch_id = batch_id};
    }
    for (uint32_t p = 0; p < MR_PARTITION_COUNT; p++) {
        bool is_applied = limit == NULL || (limit[p / 64] >> (p % 64) & 1) != 0;
        if (is_applied && p * m->saved_core_count / MR_PARTITION_COUNT == core)
            set_partition(m->partials[i].partitions, p);
    }
    return true;
}

/* One stream: what all cores have applied, as a record; what some have, as partials. */
static bool merge_stream(struct ps_applied_batches_merge *m, const struct saved *const *of_core,
                         struct saved *out)
{
    uint64_t stream = 0, low = UINT64_MAX, high = 0;
    for (uint32_t c = 0; c < m->saved_core_count; c++) {
        if (of_core[c] == NULL) {
            low = 0;
            continue;
        }
        uint64_t end = of_core[c]->words[1] + (of_core[c]->word_count - 2) * UINT64_C(64);
        stream = of_core[c]->words[0];
        low = of_core[c]->words[1] < low ? of_core[c]->words[1] : low;
        high = end > high ? end : high;
    }
    uint64_t bitmap_words = (high - low + 63) / 64;
    uint64_t *words =
        bitmap_words <= PS_APPLIED_BATCHES_WINDOW / 64 ? calloc(2 + bitmap_words, sizeof(*words)) : NULL;
    if (words == NULL)
        return false;
    *out = (struct saved){.words = words, .word_count = (uint32_t)(2 + bitmap_words), .added = low};
    words[0] = stream;
    words[1] = low;
    for (uint64_t s = low; s < high; s++) {
        uint64_t cores = 0;
        for (uint32_t c = 0; c < m->saved_core_count; c++)
            cores |= (uint64_t)(of_core[c] != NULL && saved_has(of_core[c], s)) << c;
        if (__builtin_popcountll(cores) == (int)m->saved_core_count) {
            words[2 + (s - low) / 64] |= UINT64_C(1) << ((s - low) % 64);
            out->added++;
            continue;
        }
        for (uint32_t c = 0; c < m->saved_core_count; c++)
            if ((cores >> c & 1) != 0 && !add_partial(m, stream << MR_BATCH_SEQUENCE_BITS | s, c, NULL))
                return false;
    }
    return true;
}

static bool merge_streams(struct ps_applied_batches_merge *m)
{
    m->merged = calloc(m->saved_count + 1, sizeof(*m->merged));
    for (uint32_t i = 0; i < m->saved_count && m->merged != NULL; i++) {
        const struct saved *of_core[DP_CORES_MAX] = {NULL};
        bool is_first = m->saved[i].kind == PS_STREAM_APPLIED;
        for (uint32_t j = 0; j < m->saved_count && is_first; j++) {
            const struct saved *s = &m->saved[j];
            if (s->kind == PS_STREAM_APPLIED && s->words[0] == m->saved[i].words[0]) {
                is_first = j >= i;
                of_core[s->core] = s;
            }
        }
        if (is_first && !merge_stream(m, of_core, &m->merged[m->merged_count++]))
            return false;
    }
    return m->merged != NULL;
}

/* Of one client the lowest step comes first. */
static int compare_clients(const void *a, const void *b)
{
    const struct saved_client *x = a, *y = b;
    int order = memcmp(x->uuid, y->uuid, MR_UUID_BYTES);
    return order != 0 ? order : (x->last_step > y->last_step) - (x->last_step < y->last_step);
}

enum mr_status ps_applied_batches_merge_finish(struct ps_applied_batches_merge *m, char *text)
{
    if (m->saved_core_count == m->core_count)
        return MR_OK;
    bool is_merged = merge_streams(m);
    for (uint32_t i = 0; i < m->saved_count && is_merged; i++) {
        const struct saved *s = &m->saved[i];
        is_merged = s->kind != PS_STREAM_PARTIAL || add_partial(m, s->words[0], s->core, s->words + 1);
    }
    if (!is_merged) {
        snprintf(text, PS_RESTORE_TEXT_BYTES,
                 "its %u cores differ in too many batches: restore it with %u cores", m->saved_core_count,
                 m->saved_core_count);
        return MR_UNSUPPORTED;
    }
    if (m->client_count > 0)
        qsort(m->clients, m->client_count, sizeof(*m->clients), compare_clients);
    return MR_OK;
}

/* ---- giving out ---- */

static enum mr_status load_stream(struct ps_core *core, const struct saved *s, char *text)
{
    enum mr_status status = ps_applied_batches_load(core->applied, (uint32_t)s->words[0], s->words[1],
                                                    s->words + 2, s->word_count - 2, s->added);
    if (status != MR_OK) {
        snprintf(text, PS_RESTORE_TEXT_BYTES, "applied batches of stream %u: %s", (unsigned)s->words[0],
                 mr_status_text(status));
        return status;
    }
    core->counters.batches_learnt += s->added;
    return MR_OK;
}

/* The plans of streams that are loaded; of writing core `of`, or UINT32_MAX: of all, which have the same. */
static void load_plans(const struct ps_applied_batches_merge *m, struct ps_core *core, uint32_t of)
{
    for (uint32_t i = 0; i < m->saved_count; i++) {
        const struct saved *s = &m->saved[i];
        if (s->kind == PS_STREAM_PLAN && (s->core == of || of == UINT32_MAX)) {
            struct mr_plan plan;
            memcpy(&plan, &s->words[1], sizeof(plan));
            ps_applied_batches_load_plan(core->applied, (uint32_t)s->words[0], &plan,
                                         s->words[1 + MR_PLAN_WORDS]);
        }
    }
}

static enum mr_status load_own(const struct ps_applied_batches_merge *m, struct ps_core *core, char *text)
{
    enum mr_status status = MR_OK;
    struct ps_partials own = {0};
    own.entries = calloc(m->saved_count + 1, sizeof(*own.entries));
    if (own.entries == NULL)
        return no_memory(text);
    for (uint32_t i = 0; i < m->saved_count && status == MR_OK; i++) {
        const struct saved *s = &m->saved[i];
        if (s->core != core->index)
            continue;
        if (s->kind == PS_STREAM_PARTIAL)
            memcpy(&own.entries[own.count++], s->words, sizeof(*own.entries));
        else if (s->kind == PS_STREAM_APPLIED)
            status = load_stream(core, s, text);
    }
    load_plans(m, core, core->index);
    for (uint32_t i = 0; i < m->client_count; i++)
        if (m->clients[i].core == core->index)
            ps_clients_note(core->clients, m->clients[i].uuid, m->clients[i].last_step);
    if (status == MR_OK && !ps_partials_set(&core->partials, own.entries, own.count))
        status = no_memory(text);
    free(own.entries);
    return status;
}

static enum mr_status load_merged(const struct ps_applied_batches_merge *m, struct ps_core *core, char *text)
{
    for (uint32_t i = 0; i < m->merged_count; i++) {
        enum mr_status status = load_stream(core, &m->merged[i], text);
        if (status != MR_OK)
            return status;
    }
    load_plans(m, core, UINT32_MAX);
    for (uint32_t i = 0; i < m->client_count; i++) {
        bool is_lowest = i == 0 || memcmp(m->clients[i - 1].uuid, m->clients[i].uuid, MR_UUID_BYTES) != 0;
        if (is_lowest)
            ps_clients_note(core->clients, m->clients[i].uuid, m->clients[i].last_step);
    }
    return ps_partials_set(&core->partials, m->partials, m->partial_count) ? MR_OK : no_memory(text);
}

enum mr_status ps_applied_batches_merge_load(const struct ps_applied_batches_merge *m, struct ps_core *core,
                                             char *text)
{
    return m->saved_core_count == m->core_count ? load_own(m, core, text) : load_merged(m, core, text);
}
