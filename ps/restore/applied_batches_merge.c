#include "ps/restore/applied_batches_merge.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "ps/restore/restore.h"

/* A stream's record of one writing core, its plan, or one of its partly applied batches. */
struct saved {
    uint32_t writer;
    uint32_t kind; /* enum ps_stream_record */
    uint64_t added;
    uint32_t word_count;
    uint64_t *words; /* as of that kind */
};

struct saved_client {
    uint32_t writer;
    uint8_t uuid[MR_UUID_BYTES];
    uint64_t last_step;
};

struct ps_applied_batches_merge {
    const struct ps_saved_writers *writers;
    uint32_t saved_count, saved_room;
    struct saved *saved;
    uint32_t client_count, client_room;
    struct saved_client *clients;
    /* of records that are merged: what each core holds */
    uint32_t merged_count;
    struct saved *merged;
    struct ps_partials partials;
};

struct ps_applied_batches_merge *ps_applied_batches_merge_create(const struct ps_saved_writers *writers)
{
    struct ps_applied_batches_merge *m = calloc(1, sizeof(*m));
    if (m != NULL)
        m->writers = writers;
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
    ps_partials_clear(&m->partials);
    free(m);
}

/* Makes room for one more in an array of `count`; false when memory is short. */
static bool applied_batches_merge_grow(void **array, uint32_t count, uint32_t *room, size_t element_bytes)
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

static enum mr_status add_client(struct ps_applied_batches_merge *m, uint32_t writer, const uint8_t *bytes,
                                 char *text)
{
    if (!applied_batches_merge_grow((void **)&m->clients, m->client_count, &m->client_room,
                                    sizeof(*m->clients)))
        return no_memory(text);
    struct saved_client *client = &m->clients[m->client_count++];
    client->writer = writer;
    memcpy(client->uuid, bytes, MR_UUID_BYTES);
    memcpy(&client->last_step, bytes + MR_UUID_BYTES, sizeof(client->last_step));
    return MR_OK;
}

static bool is_well_formed(const struct ps_record *record, const uint8_t *bytes)
{
    uint64_t stream;
    struct ps_partial partial;
    memcpy(&stream, bytes, sizeof(stream));
    if (record->row_bytes == PS_STREAM_PARTIAL || record->row_bytes == PS_STREAM_PARTIALS)
        return ps_stored_partial_read(record->row_bytes, (const uint64_t *)(const void *)bytes, record->bytes,
                                      &partial);
    if (record->row_bytes == PS_STREAM_PLAN)
        return record->bytes == PS_STREAM_PLAN_WORDS * sizeof(uint64_t) && stream < PS_STREAMS_MAX;
    return record->row_bytes == PS_STREAM_APPLIED && stream < PS_STREAMS_MAX &&
           record->bytes <= (2 + PS_APPLIED_BATCHES_WINDOW / 64) * sizeof(uint64_t);
}

enum mr_status ps_applied_batches_merge_add(struct ps_applied_batches_merge *m, uint32_t part,
                                            const struct ps_record *record, const uint8_t *bytes, char *text)
{
    const uint32_t writer = ps_saved_writer(m->writers, part, record->feature, record->count);
    if (writer == m->writers->count || (record->kind == PS_RECORD_STREAM && !is_well_formed(record, bytes))) {
        snprintf(text, PS_RESTORE_TEXT_BYTES, "a record of applied batches is out of its range");
        return MR_CHECKPOINT_CORRUPT;
    }
    if (!m->writers->counts[writer])
        return MR_OK;
    if (record->kind == PS_RECORD_CLIENT)
        return add_client(m, writer, bytes, text);
    uint64_t *words = malloc(record->bytes);
    if (words == NULL ||
        !applied_batches_merge_grow((void **)&m->saved, m->saved_count, &m->saved_room, sizeof(*m->saved))) {
        free(words);
        return no_memory(text);
    }
    memcpy(words, bytes, record->bytes);
    m->saved[m->saved_count++] = (struct saved){.writer = writer,
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

static bool is_partial(const struct saved *s)
{
    return s->kind == PS_STREAM_PARTIAL || s->kind == PS_STREAM_PARTIALS;
}

/* The range of such a record, which was checked when it was added. */
static struct ps_partial partial_of(const struct saved *s)
{
    struct ps_partial partial = {.first = 0};
    (void)ps_stored_partial_read(s->kind, s->words, s->word_count * sizeof(*s->words), &partial);
    return partial;
}

/* A stream of all writers that count: [writers->count], NULL: it has not seen the stream. */
struct of_writers {
    uint64_t stream, low, high;
    const struct saved **of;
};

static void look_at(const struct ps_applied_batches_merge *m, struct of_writers *s)
{
    s->low = UINT64_MAX;
    for (uint32_t w = 0; w < m->writers->count; w++) {
        if (s->of[w] == NULL) {
            s->low = m->writers->counts[w] ? 0 : s->low;
            continue;
        }
        const uint64_t end = s->of[w]->words[1] + (s->of[w]->word_count - 2) * UINT64_C(64);
        s->stream = s->of[w]->words[0];
        s->low = s->of[w]->words[1] < s->low ? s->of[w]->words[1] : s->low;
        s->high = end > s->high ? end : s->high;
    }
}

/* Whether the same writers have the batch as have the one before it. */
static bool is_same_as_before(const struct of_writers *s, uint32_t writers, uint64_t sequence)
{
    for (uint32_t w = 0; w < writers; w++)
        if (s->of[w] != NULL && saved_has(s->of[w], sequence) != saved_has(s->of[w], sequence - 1))
            return false;
    return true;
}

/* Finds in which partitions a batch is applied. Returns whether all writers that count have it. */
static bool find_applied(const struct ps_applied_batches_merge *m, const struct of_writers *s,
                         uint64_t sequence, struct ps_partition_set *applied)
{
    bool whole = true;
    *applied = (struct ps_partition_set){{0}};
    for (uint32_t w = 0; w < m->writers->count; w++) {
        const bool has = s->of[w] != NULL && saved_has(s->of[w], sequence);
        whole &= has || !m->writers->counts[w];
        if (has)
            *applied = ps_partitions_or(applied, &m->writers->partitions[w]);
    }
    return whole;
}

/* Goes through the stream by runs of batches that the same writers have. What all have goes into the record;
 * what some have, or what is out of its reach, becomes ranges. */
static enum mr_status merge_stream(struct ps_applied_batches_merge *m, struct of_writers *s,
                                   struct saved *out)
{
    look_at(m, s);
    const uint64_t reach = s->low + PS_APPLIED_BATCHES_WINDOW, words_end = s->high < reach ? s->high : reach;
    const uint64_t bitmap_words = (words_end - s->low + 63) / 64;
    uint64_t *words = calloc(2 + bitmap_words, sizeof(*words));
    if (words == NULL)
        return MR_NO_MEMORY;
    *out = (struct saved){.words = words, .word_count = (uint32_t)(2 + bitmap_words), .added = s->low};
    words[0] = s->stream;
    words[1] = s->low;
    for (uint64_t first = s->low, end; first < s->high; first = end) {
        const uint64_t id = s->stream << MR_BATCH_SEQUENCE_BITS;
        struct ps_partial range;
        const bool whole = find_applied(m, s, first, &range.partitions);
        const uint64_t until = first < words_end ? words_end : s->high;
        for (end = first + 1; end < until && is_same_as_before(s, m->writers->count, end);)
            end++;
        range.first = id | first;
        range.last = id | (end - 1);
        enum mr_status status = MR_OK;
        if ((!whole || first >= words_end) && !ps_partitions_empty(&range.partitions))
            status = ps_partials_add(&m->partials, &range);
        if (status != MR_OK)
            return status;
        if (!whole || first >= words_end)
            continue;
        for (uint64_t sequence = first; sequence < end; sequence++)
            words[2 + (sequence - s->low) / 64] |= UINT64_C(1) << ((sequence - s->low) % 64);
        out->added += end - first;
    }
    return MR_OK;
}

static enum mr_status merge_streams(struct ps_applied_batches_merge *m)
{
    const struct saved **of = calloc(m->writers->count + 1, sizeof(void *));
    m->merged = calloc(m->saved_count + 1, sizeof(*m->merged));
    enum mr_status status = of != NULL && m->merged != NULL ? MR_OK : MR_NO_MEMORY;
    for (uint32_t i = 0; i < m->saved_count && status == MR_OK; i++) {
        struct of_writers s = {.of = of};
        bool is_first = m->saved[i].kind == PS_STREAM_APPLIED;
        memset((void *)of, 0, m->writers->count * sizeof(void *));
        for (uint32_t j = 0; j < m->saved_count && is_first; j++) {
            const struct saved *other = &m->saved[j];
            if (other->kind == PS_STREAM_APPLIED && other->words[0] == m->saved[i].words[0]) {
                is_first = j >= i;
                of[other->writer] = other;
            }
        }
        if (is_first)
            status = merge_stream(m, &s, &m->merged[m->merged_count++]);
    }
    free(of);
    return status;
}

/* What was partly applied before goes on to be so, in the partitions that each writer had. */
static enum mr_status merge_partials(struct ps_applied_batches_merge *m)
{
    enum mr_status status = MR_OK;
    for (uint32_t i = 0; i < m->saved_count && status == MR_OK; i++) {
        if (!is_partial(&m->saved[i]))
            continue;
        struct ps_partial range = partial_of(&m->saved[i]);
        range.partitions = ps_partitions_and(&range.partitions, &m->writers->partitions[m->saved[i].writer]);
        status = ps_partials_add(&m->partials, &range);
    }
    return status;
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
    if (m->writers->own_part != PS_SAVED_NO_PART)
        return MR_OK;
    enum mr_status status = merge_streams(m);
    if (status == MR_OK)
        status = merge_partials(m);
    if (status == MR_NO_MEMORY)
        return no_memory(text);
    if (status != MR_OK) {
        snprintf(text, PS_RESTORE_TEXT_BYTES,
                 "its %u cores differ in too many ranges of batches: restore it onto nodes and cores as they "
                 "were",
                 m->writers->count);
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
    core->counters.batches_applied += s->added;
    return MR_OK;
}

/* The plans of streams that are loaded; of writer `of`, or UINT32_MAX: of all, which have the same. */
static void load_plans(const struct ps_applied_batches_merge *m, struct ps_core *core, uint32_t of)
{
    for (uint32_t i = 0; i < m->saved_count; i++) {
        const struct saved *s = &m->saved[i];
        if (s->kind == PS_STREAM_PLAN && (s->writer == of || of == UINT32_MAX)) {
            struct mr_plan plan;
            memcpy(&plan, &s->words[1], sizeof(plan));
            ps_applied_batches_load_plan(core->applied, (uint32_t)s->words[0], &plan,
                                         s->words[1 + MR_PLAN_WORDS]);
        }
    }
}

static bool add_partial(struct ps_partials *to, const struct saved *s)
{
    const struct ps_partial range = partial_of(s);
    return ps_partials_add(to, &range) == MR_OK;
}

static enum mr_status load_own(const struct ps_applied_batches_merge *m, struct ps_core *core, uint32_t own,
                               char *text)
{
    enum mr_status status = MR_OK;
    struct ps_partials partials = {0};
    for (uint32_t i = 0; i < m->saved_count && status == MR_OK; i++) {
        const struct saved *s = &m->saved[i];
        if (s->writer != own)
            continue;
        if (s->kind == PS_STREAM_APPLIED)
            status = load_stream(core, s, text);
        else if (is_partial(s) && !add_partial(&partials, s))
            status = no_memory(text);
    }
    load_plans(m, core, own);
    for (uint32_t i = 0; i < m->client_count; i++)
        if (m->clients[i].writer == own)
            ps_clients_note(core->clients, m->clients[i].uuid, m->clients[i].last_step);
    if (status == MR_OK && !ps_partials_set(&core->partials, partials.entries, partials.count))
        status = no_memory(text);
    ps_partials_clear(&partials);
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
    return ps_partials_set(&core->partials, m->partials.entries, m->partials.count) ? MR_OK : no_memory(text);
}

enum mr_status ps_applied_batches_merge_load(const struct ps_applied_batches_merge *m, struct ps_core *core,
                                             char *text)
{
    const uint32_t own = ps_saved_writer_own(m->writers, core->index);
    return own < m->writers->count ? load_own(m, core, own, text) : load_merged(m, core, text);
}
