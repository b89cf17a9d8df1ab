#include "ps/exactly_once/records.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include "dataplane/wire/base/bytes.h"
#include "ps/checkpoint/checkpoint.h"
#include "ps/checkpoint/checkpoint_format.h"

#define STREAM_HEAD_WORDS 2u /* stream, watermark */

/* ---- writing ---- */

struct writing {
    const struct ps_records *records;
    uint32_t core, core_count;
    const struct ps_partition_set *set; /* NULL: all */
    uint8_t *out;                       /* NULL: only counts */
    size_t at;
};

/* Writes a record's header and returns the place of its bytes; NULL: only counts. */
static uint8_t *add_record(struct writing *w, struct ps_record record)
{
    uint8_t *bytes = NULL;
    record.feature = w->core;
    record.count = w->core_count;
    if (w->out != NULL) {
        memcpy(w->out + w->at, &record, sizeof(record));
        bytes = w->out + w->at + sizeof(record);
        memset(bytes + record.bytes, 0, mr_padded(record.bytes) - record.bytes);
    }
    w->at += sizeof(record) + mr_padded(record.bytes);
    return bytes;
}

static void write_stream(struct writing *w, uint32_t stream)
{
    const struct ps_applied_batches *applied = w->records->applied;
    uint32_t words = ps_applied_batches_bitmap_words(applied, stream);
    uint64_t *to = (uint64_t *)(void *)add_record(
        w, (struct ps_record){.kind = PS_RECORD_STREAM,
                              .row_bytes = PS_STREAM_APPLIED,
                              .offset = ps_applied_batches_added(applied, stream),
                              .bytes = (STREAM_HEAD_WORDS + (uint64_t)words) * sizeof(uint64_t)});
    if (to != NULL) {
        to[0] = stream;
        to[1] = ps_applied_batches_watermark(applied, stream);
        ps_applied_batches_bitmap(applied, stream, to + STREAM_HEAD_WORDS);
    }
}

static void write_plan(struct writing *w, uint32_t stream)
{
    const struct ps_applied_batches *applied = w->records->applied;
    uint64_t *to = (uint64_t *)(void *)add_record(
        w, (struct ps_record){.kind = PS_RECORD_STREAM,
                              .row_bytes = PS_STREAM_PLAN,
                              .bytes = PS_STREAM_PLAN_WORDS * sizeof(uint64_t)});
    if (to != NULL) {
        to[0] = stream;
        memcpy(&to[1], ps_applied_batches_plan(applied, stream), sizeof(struct mr_plan));
        to[1 + MR_PLAN_WORDS] = ps_applied_batches_used(applied, stream);
    }
}

static void write_partial(struct writing *w, const struct ps_partial *partial)
{
    const bool is_single = partial->first == partial->last;
    const size_t head_bytes = (is_single ? 1 : 2) * sizeof(uint64_t);
    uint8_t *to =
        add_record(w, (struct ps_record){.kind = PS_RECORD_STREAM,
                                         .row_bytes = is_single ? PS_STREAM_PARTIAL : PS_STREAM_PARTIALS,
                                         .bytes = head_bytes + sizeof(partial->partitions)});
    if (to == NULL)
        return;
    memcpy(to, partial, head_bytes);
    memcpy(to + head_bytes, &partial->partitions, sizeof(partial->partitions));
}

static void write_client(struct writing *w, const struct ps_client *client)
{
    uint8_t *to = add_record(
        w, (struct ps_record){.kind = PS_RECORD_CLIENT, .bytes = MR_UUID_BYTES + sizeof(uint64_t)});
    if (to != NULL) {
        memcpy(to, client->uuid, MR_UUID_BYTES);
        memcpy(to + MR_UUID_BYTES, &client->last_step, sizeof(uint64_t));
    }
}

size_t ps_stored_push_stream_write(const struct ps_push_load *stream,
                                   const struct ps_partition_set *partitions, struct ps_record *record,
                                   uint8_t *out)
{
    uint64_t words[PS_PUSH_WINDOW_WORDS];
    struct ps_stored_push_stream stored = {.stream_id = stream->stream_id,
                                           .word_count =
                                               (uint16_t)ps_push_window_store(&stream->window, words),
                                           .has_partitions = partitions != NULL,
                                           .floor = stream->window.floor,
                                           .durable = stream->durable};
    const size_t word_bytes = stored.word_count * sizeof(*words);
    *record = (struct ps_record){.kind = PS_RECORD_PUSH_STREAM,
                                 .offset = stream->used,
                                 .bytes = sizeof(stored) + word_bytes +
                                          (partitions != NULL ? sizeof(*partitions) : 0)};
    if (out == NULL)
        return record->bytes;
    memcpy(stored.uuid, stream->uuid, MR_UUID_BYTES);
    memcpy(out, &stored, sizeof(stored));
    memcpy(out + sizeof(stored), words, word_bytes);
    if (partitions != NULL)
        memcpy(out + sizeof(stored) + word_bytes, partitions, sizeof(*partitions));
    return record->bytes;
}

/* partitions NULL: all. */
static void write_mark(struct writing *w, const struct ps_push_stream *stream,
                       const struct ps_push_mark *mark, const struct ps_partition_set *partitions)
{
    const struct ps_push_load load = {.uuid = stream->uuid,
                                      .stream_id = stream->stream_id,
                                      .used = stream->used,
                                      .window = mark->window,
                                      .durable = w->set != NULL ? mark->floors[PS_FLOOR_DURABLE] : 0};
    struct ps_record record;
    (void)ps_stored_push_stream_write(&load, partitions, &record, NULL);
    uint8_t *to = add_record(w, record);
    if (to != NULL)
        (void)ps_stored_push_stream_write(&load, partitions, &record, to);
}

static void write_part(struct writing *w, const struct ps_push_stream *stream,
                       const struct ps_push_mark *mark, struct ps_partition_set partitions)
{
    if (w->set != NULL)
        partitions = ps_partitions_and(&partitions, w->set);
    if (!mark->is_unknown && !ps_partitions_empty(&partitions))
        write_mark(w, stream, mark, &partitions);
}

static void write_push_stream(struct writing *w, const struct ps_push_stream *stream)
{
    if (stream->rest.next == NULL && w->set == NULL) {
        if (!stream->rest.is_unknown)
            write_mark(w, stream, &stream->rest, NULL);
        return;
    }
    write_part(w, stream, &stream->rest, ps_push_stream_rest(stream));
    for (const struct ps_push_piece *piece = stream->rest.next; piece != NULL; piece = piece->mark.next)
        write_part(w, stream, &piece->mark, piece->partitions);
}

static size_t write_all(struct writing *w)
{
    const struct ps_records *r = w->records;
    for (uint32_t s = ps_applied_batches_next_stream(r->applied, 0); s < PS_STREAMS_MAX;
         s = ps_applied_batches_next_stream(r->applied, s + 1)) {
        write_stream(w, s);
        write_plan(w, s);
    }
    for (uint32_t i = 0; i < r->partials->count; i++)
        write_partial(w, &r->partials->entries[i]);
    for (uint32_t i = 0; i < PS_CLIENTS_MAX; i++)
        if (ps_clients_at(r->clients, i)->used != 0)
            write_client(w, ps_clients_at(r->clients, i));
    for (uint32_t i = 0; i < PS_PUSH_STREAMS_MAX; i++)
        if (ps_pushes_at(r->pushes, i) != NULL)
            write_push_stream(w, ps_pushes_at(r->pushes, i));
    return w->at;
}

size_t ps_records_write(const struct ps_records *r, uint32_t core, uint32_t core_count, uint8_t *out)
{
    return write_all(&(struct writing){.records = r, .core = core, .core_count = core_count, .out = out});
}

size_t ps_records_export(const struct ps_records *r, const struct ps_partition_set *set, uint8_t *out)
{
    return write_all(&(struct writing){.records = r, .set = set, .out = out});
}

size_t ps_records_export_batches(const struct ps_records *r, uint32_t stream, uint8_t *out)
{
    struct writing *w = &(struct writing){.records = r, .out = out};
    write_stream(w, stream);
    if (ps_applied_batches_plan(r->applied, stream) == NULL)
        return w->at;
    write_plan(w, stream);
    for (uint32_t i = ps_partials_from(r->partials, (uint64_t)stream << MR_BATCH_SEQUENCE_BITS);
         i < r->partials->count && mr_batch_stream(r->partials->entries[i].first) == stream; i++)
        write_partial(w, &r->partials->entries[i]);
    return w->at;
}

size_t ps_records_export_client(const struct ps_records *r, const uint8_t *uuid, uint8_t *out)
{
    struct writing *w = &(struct writing){.records = r, .out = out};
    struct ps_client client = {.last_step = ps_clients_last_step(r->clients, uuid)};
    memcpy(client.uuid, uuid, MR_UUID_BYTES);
    if (client.last_step != 0)
        write_client(w, &client);
    return w->at;
}

size_t ps_records_export_pushes(const struct ps_records *r, const struct ps_partition_set *set,
                                const uint8_t *uuid, uint32_t stream_id, uint8_t *out)
{
    struct writing *w = &(struct writing){.records = r, .set = set, .out = out};
    const struct ps_push_stream *stream = ps_pushes_stream(r->pushes, uuid, stream_id);
    if (stream != NULL)
        write_push_stream(w, stream);
    return w->at;
}

/* ---- reading ---- */

bool ps_stored_push_stream_read(const struct ps_record *record, const uint8_t *bytes,
                                struct ps_push_load *out, const struct ps_partition_set **partitions)
{
    const struct ps_stored_push_stream *stored = (const struct ps_stored_push_stream *)(const void *)bytes;
    if (record->bytes < sizeof(*stored) || stored->word_count > PS_PUSH_WINDOW_WORDS ||
        stored->has_partitions > 1 ||
        record->bytes != sizeof(*stored) + stored->word_count * sizeof(uint64_t) +
                             stored->has_partitions * sizeof(**partitions) ||
        !mr_push_stream_is_valid(stored->stream_id) || stored->floor > mr_push_number_max(stored->stream_id))
        return false;
    *out = (struct ps_push_load){.uuid = stored->uuid,
                                 .stream_id = stored->stream_id,
                                 .used = record->offset,
                                 .durable = stored->durable};
    ps_push_window_load(&out->window, stored->floor, stored->words, stored->word_count);
    *partitions = stored->has_partitions != 0
                      ? (const struct ps_partition_set *)(const void *)(stored->words + stored->word_count)
                      : NULL;
    return true;
}

bool ps_stored_partial_read(uint32_t kind, const uint64_t *words, uint64_t bytes, struct ps_partial *out)
{
    const uint32_t head_words = kind == PS_STREAM_PARTIAL ? 1 : 2;
    if (bytes != head_words * sizeof(uint64_t) + sizeof(out->partitions))
        return false;
    *out = (struct ps_partial){.first = words[0], .last = words[head_words - 1]};
    memcpy(&out->partitions, words + head_words, sizeof(out->partitions));
    return out->first <= out->last && mr_batch_stream(out->first) == mr_batch_stream(out->last);
}

/* A stream of the other core, of those that are imported. */
struct theirs {
    const uint64_t *applied; /* stream, watermark, bitmap; NULL: it has not seen the stream */
    uint32_t word_count;
    uint64_t added;
    const uint64_t *plan; /* stream, plan, used */
};

struct import {
    struct ps_records *records;
    const struct ps_partition_set *set, *others;
    bool is_saved;             /* theirs are those of a checkpoint */
    struct theirs *streams;    /* [PS_STREAMS_MAX] */
    struct ps_partials theirs; /* partly applied there */
    struct ps_partials joined; /* what is partly applied afterwards, and entries that become void */
};

static bool read_stream(struct import *m, const struct ps_record *record, const uint8_t *bytes)
{
    const uint64_t *words = (const uint64_t *)(const void *)bytes;
    const uint32_t count = (uint32_t)(record->bytes / sizeof(uint64_t));
    if (record->row_bytes == PS_STREAM_PARTIAL || record->row_bytes == PS_STREAM_PARTIALS) {
        struct ps_partial partial;
        return ps_stored_partial_read(record->row_bytes, words, record->bytes, &partial) &&
               ps_partials_add(&m->theirs, &partial) == MR_OK;
    }
    if (count < STREAM_HEAD_WORDS || words[0] >= PS_STREAMS_MAX)
        return false;
    struct theirs *stream = &m->streams[words[0]];
    if (record->row_bytes == PS_STREAM_PLAN) {
        stream->plan = words;
        return count == PS_STREAM_PLAN_WORDS;
    }
    stream->applied = words;
    stream->word_count = count;
    stream->added = record->offset;
    return record->row_bytes == PS_STREAM_APPLIED &&
           count <= STREAM_HEAD_WORDS + PS_APPLIED_BATCHES_WINDOW / 64;
}

static bool read_record(struct import *m, const struct ps_record *record, const uint8_t *bytes)
{
    struct ps_push_load stream;
    const struct ps_partition_set *partitions;
    if (ps_record_check(record) != NULL)
        return false;
    if (record->kind == PS_RECORD_STREAM)
        return read_stream(m, record, bytes);
    if (record->kind == PS_RECORD_PUSH_STREAM)
        return ps_stored_push_stream_read(record, bytes, &stream, &partitions) && partitions != NULL;
    return record->kind == PS_RECORD_CLIENT;
}

/* Calls `visit` for each record until it returns false. */
static bool each_record(struct import *m, const uint8_t *bytes, size_t size,
                        bool (*visit)(struct import *m, const struct ps_record *record, const uint8_t *bytes))
{
    for (size_t at = 0; at < size;) {
        struct ps_record record;
        if (size - at < sizeof(record))
            return false;
        memcpy(&record, bytes + at, sizeof(record));
        at += sizeof(record);
        if (record.bytes > size - at || mr_padded(record.bytes) > size - at || !visit(m, &record, bytes + at))
            return false;
        at += mr_padded(record.bytes);
    }
    return true;
}

/* ---- batches ---- */

static bool theirs_has(const struct theirs *t, uint64_t sequence)
{
    if (t->applied == NULL)
        return false;
    const uint64_t watermark = t->applied[1], ahead = sequence - watermark;
    return sequence < watermark || (ahead / 64 < t->word_count - STREAM_HEAD_WORDS &&
                                    (t->applied[STREAM_HEAD_WORDS + ahead / 64] >> (ahead % 64) & 1) != 0);
}

/* A run of batches that both have in the same way. */
struct run {
    uint64_t first, end; /* sequence numbers */
    bool here, there;    /* applied to all that the core has */
    const struct ps_partial *partly_here, *partly_there;
};

/* What a stream will be. */
struct joined_stream {
    uint32_t stream;
    uint64_t low; /* all below are applied */
    uint32_t word_count;
    uint64_t *words;
    uint64_t count; /* applied */
    uint64_t again; /* how many were added more often than once: the record's check on itself */
};

static uint64_t id_in(const struct joined_stream *s, uint64_t sequence)
{
    return (uint64_t)s->stream << MR_BATCH_SEQUENCE_BITS | sequence;
}

/* The range that has the batch. The run ends where the range does, or before the next one begins. */
static const struct ps_partial *run_partly(const struct ps_partials *p, uint64_t batch_id, struct run *run)
{
    const uint32_t at = ps_partials_from(p, batch_id);
    if (at == p->count || mr_batch_stream(p->entries[at].first) != mr_batch_stream(batch_id))
        return NULL;
    const struct ps_partial *next = &p->entries[at];
    const bool has_it = next->first <= batch_id;
    const uint64_t end = mr_batch_sequence(has_it ? next->last : next->first) + has_it;
    run->end = end < run->end ? end : run->end;
    return has_it ? next : NULL;
}

/* The run that begins with batch `first` and ends before `end`. Only below `bits_end` one of both may have
 * applied some of it as a whole. */
static struct run run_at(const struct import *m, const struct joined_stream *s, uint64_t first,
                         uint64_t bits_end, uint64_t end)
{
    const struct ps_applied_batches *applied = m->records->applied;
    const struct theirs *t = &m->streams[s->stream];
    struct run run = {.first = first, .end = first < bits_end && bits_end < end ? bits_end : end};
    run.here = ps_applied_batches_has(applied, id_in(s, first));
    run.there = theirs_has(t, first);
    run.partly_here = run_partly(m->records->partials, id_in(s, first), &run);
    run.partly_there = run_partly(&m->theirs, id_in(s, first), &run);
    if (first >= bits_end)
        return run;
    uint64_t at = first + 1;
    while (at < run.end && ps_applied_batches_has(applied, id_in(s, at)) == run.here &&
           theirs_has(t, at) == run.there)
        at++;
    run.end = at;
    return run;
}

static struct ps_partition_set applied_to(bool whole, const struct ps_partial *partly)
{
    if (whole)
        return ps_partitions_all();
    return partly != NULL ? partly->partitions : (struct ps_partition_set){{0}};
}

/* Joins what both have of a run. *whole: it is applied to all that the core serves then. It becomes a range
 * unless that is known from the streams (`is_listed`: it cannot be). A range that is whole then stays until
 * the stream has it, so that no failure loses it. */
static enum mr_status join_run(struct import *m, const struct joined_stream *s, const struct run *run,
                               bool is_listed, bool *whole)
{
    const struct ps_partition_set here = applied_to(run->here, run->partly_here),
                                  there = applied_to(run->there, run->partly_there),
                                  kept = ps_partitions_and(&here, m->others),
                                  taken = ps_partitions_and(&there, m->set),
                                  joined = ps_partitions_or(&kept, &taken),
                                  served = ps_partitions_or(m->others, m->set);
    *whole = ps_partitions_within(&served, &joined);
    if (ps_partitions_empty(&joined) || (*whole && run->partly_here == NULL && !is_listed))
        return MR_OK;
    const struct ps_partial range = {id_in(s, run->first), id_in(s, run->end - 1), joined};
    return ps_partials_add(&m->joined, &range);
}

static bool is_whole(const struct joined_stream *s, uint64_t sequence)
{
    const uint64_t ahead = sequence - s->low;
    return sequence < s->low ||
           (ahead / 64 < s->word_count && (s->words[ahead / 64] >> (ahead % 64) & 1) != 0);
}

static void set_whole(struct joined_stream *s, uint64_t first, uint64_t end)
{
    for (uint64_t at = first - s->low; at < end - s->low; at++)
        s->words[at / 64] |= UINT64_C(1) << (at % 64);
    s->count += end - first;
}

static uint64_t end_of(uint64_t watermark, uint32_t words)
{
    return watermark + words * UINT64_C(64);
}

/* One after the last batch of the stream that is in a range. */
static uint64_t partials_end(const struct ps_partials *p, const struct joined_stream *s)
{
    const uint64_t last = id_in(s, mr_batch_sequence(UINT64_MAX));
    const uint32_t at = ps_partials_from(p, last);
    const struct ps_partial *range = at < p->count && p->entries[at].first <= last ? &p->entries[at]
                                     : at > 0                                      ? &p->entries[at - 1]
                                                                                   : NULL;
    return range != NULL && mr_batch_stream(range->first) == s->stream ? mr_batch_sequence(range->last) + 1
                                                                       : 0;
}

static uint64_t later(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* Joins what both have of the stream, run by run. What is whole and out of the window's reach is a range of
 * all partitions. */
static enum mr_status join_stream(struct import *m, struct joined_stream *out)
{
    const struct ps_applied_batches *applied = m->records->applied;
    const struct theirs *t = &m->streams[out->stream];
    const uint64_t mine = ps_applied_batches_watermark(applied, out->stream),
                   other = t->applied != NULL ? t->applied[1] : 0;
    const uint64_t my_end = end_of(mine, ps_applied_batches_bitmap_words(applied, out->stream)),
                   their_end = t->applied != NULL ? end_of(other, t->word_count - STREAM_HEAD_WORDS) : 0;
    const uint64_t bits_end = later(my_end, their_end);
    const uint64_t end =
        later(bits_end, later(partials_end(m->records->partials, out), partials_end(&m->theirs, out)));
    const uint64_t added = ps_applied_batches_added(applied, out->stream),
                   count = ps_applied_batches_count(applied, out->stream);
    out->again = added > count ? added - count : 0;
    out->low = out->count = mine < other ? mine : other;
    const uint64_t reach = out->low + PS_APPLIED_BATCHES_WINDOW,
                   words_end = bits_end < reach ? bits_end : reach;
    out->word_count = (uint32_t)((words_end - out->low + 63) / 64);
    out->words = calloc(out->word_count + 1, sizeof(*out->words));
    if (out->words == NULL)
        return MR_NO_MEMORY;
    for (uint64_t s = out->low; s < end;) {
        const uint64_t until = s < words_end ? words_end : end;
        const struct run run = run_at(m, out, s, bits_end, until);
        bool whole = true;
        s = run.end;
        if (!run.here && !run.there && run.partly_here == NULL && run.partly_there == NULL)
            continue;
        if (!run.here || !run.there || run.first >= words_end) {
            const enum mr_status status = join_run(m, out, &run, run.first >= words_end, &whole);
            if (status != MR_OK)
                return status;
        }
        if (whole && run.first < words_end)
            set_whole(out, run.first, run.end);
    }
    return MR_OK;
}

/* One of both has forgotten the stream, or the core served nothing: it is as the other has it, and the ranges
 * of batches that this one lacks are joined. */
static enum mr_status take_one(struct import *m, struct joined_stream *out)
{
    const struct ps_applied_batches *applied = m->records->applied;
    const struct theirs *t = &m->streams[out->stream];
    const bool is_theirs = t->applied != NULL;
    out->low = is_theirs ? t->applied[1] : ps_applied_batches_watermark(applied, out->stream);
    out->word_count =
        is_theirs ? t->word_count - STREAM_HEAD_WORDS : ps_applied_batches_bitmap_words(applied, out->stream);
    out->words = calloc(out->word_count + 1, sizeof(*out->words));
    if (out->words == NULL)
        return MR_NO_MEMORY;
    if (is_theirs)
        memcpy(out->words, t->applied + STREAM_HEAD_WORDS, out->word_count * sizeof(*out->words));
    else
        ps_applied_batches_bitmap(applied, out->stream, out->words);
    out->count = out->low;
    for (uint32_t i = 0; i < out->word_count; i++)
        out->count += (uint64_t)__builtin_popcountll(out->words[i]);
    const uint64_t added = is_theirs ? t->added : ps_applied_batches_added(applied, out->stream);
    out->again = added > out->count ? added - out->count : 0;
    const uint64_t bits_end = end_of(out->low, out->word_count),
                   end = later(partials_end(m->records->partials, out), partials_end(&m->theirs, out));
    enum mr_status status = MR_OK;
    for (uint64_t s = out->low; s < end && status == MR_OK;) {
        const struct run run = run_at(m, out, s, bits_end, end);
        bool whole;
        s = run.end;
        if (!is_whole(out, run.first))
            status = join_run(m, out, &run, true, &whole);
    }
    return status;
}

static enum mr_status plan_stream(struct import *m, struct joined_stream *out)
{
    const struct ps_applied_batches *applied = m->records->applied;
    const struct theirs *t = &m->streams[out->stream];
    const bool here = ps_applied_batches_plan(applied, out->stream) != NULL, there = t->applied != NULL;
    const uint64_t watermark = there ? t->applied[1] : ps_applied_batches_watermark(applied, out->stream);
    if (ps_partitions_empty(m->others)) /* the record speaks for nothing any more */
        return there ? take_one(m, out) : MR_OK;
    const bool is_forgotten = here != there && watermark > PS_FORGOTTEN_BATCHES && !(m->is_saved && here);
    return is_forgotten ? take_one(m, out) : join_stream(m, out);
}

static enum mr_status load_stream(struct import *m, const struct joined_stream *s)
{
    struct ps_applied_batches *applied = m->records->applied;
    const struct theirs *t = &m->streams[s->stream];
    const struct mr_plan *known = ps_applied_batches_plan(applied, s->stream);
    struct mr_plan plan = known != NULL ? *known : MR_PLAN_UNKNOWN;
    uint64_t used = ps_applied_batches_used(applied, s->stream);
    if (s->words == NULL) {
        ps_applied_batches_forget(applied, s->stream);
        return MR_OK;
    }
    enum mr_status status =
        ps_applied_batches_load(applied, s->stream, s->low, s->words, s->word_count, s->count + s->again);
    if (status != MR_OK)
        return status;
    if (t->plan != NULL && mr_plan_same(&plan, &MR_PLAN_UNKNOWN))
        memcpy(&plan, &t->plan[1], sizeof(plan));
    if (t->plan != NULL && t->plan[1 + MR_PLAN_WORDS] > used)
        used = t->plan[1 + MR_PLAN_WORDS];
    ps_applied_batches_load_plan(applied, s->stream, &plan, used);
    return MR_OK;
}

/* Removes the ranges, or the ends of ranges, of batches that are whole now. */
static void remove_void(struct ps_records *r)
{
    for (uint32_t i = r->partials->count; i-- > 0;) {
        const uint64_t last = r->partials->entries[i].last;
        uint64_t first = r->partials->entries[i].first;
        while (first <= last && ps_applied_batches_has(r->applied, first))
            ps_partials_remove(r->partials, first++);
    }
}

static enum mr_status import_batches(struct import *m)
{
    struct ps_records *r = m->records;
    struct joined_stream *joined = calloc(PS_STREAMS_MAX, sizeof(*joined));
    enum mr_status status = joined != NULL ? MR_OK : MR_NO_MEMORY;
    uint32_t count = 0;
    for (uint32_t s = 0; s < PS_STREAMS_MAX && status == MR_OK; s++) {
        if (ps_applied_batches_plan(r->applied, s) == NULL && m->streams[s].applied == NULL)
            continue;
        joined[count].stream = s;
        status = plan_stream(m, &joined[count++]);
    }
    if (status == MR_OK && !ps_partials_set(r->partials, m->joined.entries, m->joined.count))
        status = MR_NO_MEMORY;
    for (uint32_t i = 0; i < count; i++) {
        if (status == MR_OK)
            status = load_stream(m, &joined[i]);
        free(joined[i].words);
    }
    if (status == MR_OK)
        remove_void(r);
    free(joined);
    return status;
}

/* ---- push streams and clients ---- */

static bool import_client(struct import *m, const struct ps_record *record, const uint8_t *bytes)
{
    uint64_t last_step;
    if (record->kind != PS_RECORD_CLIENT)
        return true;
    memcpy(&last_step, bytes + MR_UUID_BYTES, sizeof(last_step));
    if (ps_clients_last_step(m->records->clients, bytes) == 0)
        ps_clients_note(m->records->clients, bytes, last_step);
    return true;
}

static bool import_stream(struct import *m, const struct ps_record *record, const uint8_t *bytes)
{
    struct ps_push_load stream;
    const struct ps_partition_set *partitions;
    if (record->kind != PS_RECORD_PUSH_STREAM)
        return true;
    if (!ps_stored_push_stream_read(record, bytes, &stream, &partitions) || partitions == NULL)
        return false; /* it was looked at before */
    const struct ps_partition_set taken = ps_partitions_and(partitions, m->set);
    return ps_partitions_empty(&taken) || ps_pushes_load(m->records->pushes, &stream, &taken) == MR_OK;
}

static enum mr_status records_import(struct import *m, const uint8_t *bytes, size_t size)
{
    m->streams = calloc(PS_STREAMS_MAX, sizeof(*m->streams));
    enum mr_status status = m->streams == NULL                                      ? MR_NO_MEMORY
                            : !each_record(m, bytes, size, read_record)             ? MR_BAD_MESSAGE
                            : ps_pushes_forget(m->records->pushes, m->set) != MR_OK ? MR_OUT_OF_MEMORY
                            : !each_record(m, bytes, size, import_stream)           ? MR_OUT_OF_MEMORY
                                                                                    : import_batches(m);
    if (status == MR_OK)
        each_record(m, bytes, size, import_client);
    free(m->streams);
    ps_partials_clear(&m->theirs);
    ps_partials_clear(&m->joined);
    return status;
}

enum mr_status ps_records_import(struct ps_records *r, const struct ps_partition_set *set,
                                 const struct ps_partition_set *others, const uint8_t *bytes, size_t size)
{
    struct import m = {.records = r, .set = set, .others = others};
    return records_import(&m, bytes, size);
}

enum mr_status ps_records_import_saved(struct ps_records *r, const struct ps_partition_set *set,
                                       const struct ps_partition_set *others, const uint8_t *bytes,
                                       size_t size)
{
    struct import m = {.records = r, .set = set, .others = others, .is_saved = true};
    return records_import(&m, bytes, size);
}

enum mr_status ps_records_forget(struct ps_records *r, const struct ps_partition_set *set)
{
    return ps_pushes_forget(r->pushes, set);
}
