#include "ps/move/take_over.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "dataplane/wire/base/bytes.h"
#include "dataplane/wire/base/clock.h"
#include "ps/base/cpu_affinity.h"
#include "ps/checkpoint/checkpoint_chain.h"
#include "ps/checkpoint/checkpoint_format.h"
#include "ps/core/core.h"
#include "ps/restore/push_merge.h"
#include "ps/restore/saved_writers.h"

struct ps_take_over {
    struct ps_take_over_options options;
    /* the thread's own */
    const struct ps_chain *chain;
    struct ps_saved_writers *writers;
    struct ps_partition_set *parts;    /* [chain->part_count]: what is taken of each */
    struct ps_move_collected *records; /* [writers->count] */
    _Atomic bool stop;
    bool has_thread;
    pthread_t thread;
    pthread_mutex_t lock; /* of what follows */
    struct ps_take_over_progress progress;
};

static enum mr_status take_over_corrupt(char *text)
{
    (void)snprintf(text, PS_MOVE_TEXT_BYTES, "records of batches and pushes: one is out of its range");
    return MR_CHECKPOINT_CORRUPT;
}

static enum mr_status take_over_no_memory(char *text)
{
    (void)snprintf(text, PS_MOVE_TEXT_BYTES, "no memory left");
    return MR_NO_MEMORY;
}

/* ---- what was applied ---- */

/* Makes room for a record, and returns the place of its content; NULL: no memory. */
static uint8_t *records_add(struct ps_move_collected *to, const struct ps_record *record)
{
    const size_t bytes = sizeof(*record) + mr_padded(record->bytes);
    uint8_t *more = realloc(to->bytes, to->byte_count + bytes);
    if (more == NULL)
        return NULL;
    to->bytes = more;
    uint8_t *at = more + to->byte_count;
    memset(at, 0, bytes);
    memcpy(at, record, sizeof(*record));
    to->byte_count += bytes;
    return at + sizeof(*record);
}

/* As ps_records_export() writes it: about these partitions, and durable as far as the checkpoint has it. */
static bool records_add_pushes(struct ps_move_collected *to, const struct ps_push_load *load,
                               const struct ps_partition_set *partitions)
{
    struct ps_push_load stored = *load;
    struct ps_record record;
    stored.durable = load->window.floor;
    (void)ps_stored_push_stream_write(&stored, partitions, &record, NULL);
    uint8_t *bytes = records_add(to, &record);
    if (bytes != NULL)
        (void)ps_stored_push_stream_write(&stored, partitions, &record, bytes);
    return bytes != NULL;
}

static enum mr_status take_over_collect(struct ps_take_over *t, uint32_t part, const struct ps_record *record,
                                        const uint8_t *bytes, char *text)
{
    const uint32_t writer = ps_saved_writer(t->writers, part, record->feature, record->count);
    struct ps_push_load load;
    struct ps_partition_set partitions;
    if (writer == t->writers->count)
        return take_over_corrupt(text);
    if (!t->writers->counts[writer])
        return MR_OK;
    if (record->kind == PS_RECORD_STREAM || record->kind == PS_RECORD_CLIENT) {
        uint8_t *to = records_add(&t->records[writer], record);
        if (to == NULL)
            return take_over_no_memory(text);
        memcpy(to, bytes, record->bytes);
        return MR_OK;
    }
    if (!ps_push_merge_read(record, bytes, &load, &partitions))
        return take_over_corrupt(text);
    partitions = ps_partitions_and(&partitions, &t->writers->partitions[writer]);
    return ps_partitions_empty(&partitions) || records_add_pushes(&t->records[writer], &load, &partitions)
               ? MR_OK
               : take_over_no_memory(text);
}

/* Of each core that wrote the checkpoint, as of one that a move comes from. What none of them has recorded
 * was not applied to these partitions, whatever this node has recorded for others. */
static enum mr_status take_over_import(struct ps_take_over *t, char *text)
{
    enum mr_status status = MR_OK;
    const struct ps_move_collected nothing = {NULL, 0};
    const uint32_t count = t->writers != NULL ? t->writers->count : 0;
    for (uint32_t i = 0; i < count && status == MR_OK; i++) {
        const struct ps_partition_set set =
            ps_partitions_and(&t->writers->partitions[i], &t->options.partitions);
        if (!ps_partitions_empty(&set))
            status = ps_move_load_records(t->options.node, &set, &t->records[i], true, text);
    }
    return t->writers != NULL
               ? status
               : ps_move_load_records(t->options.node, &t->options.partitions, &nothing, true, text);
}

/* ---- blocks ---- */

static enum mr_status take_over_load(struct ps_take_over *t, const struct ps_chain_link *link,
                                     const uint8_t *block, char *text)
{
    const struct ps_block_header *header = (const struct ps_block_header *)(const void *)block;
    const struct ps_move_block loaded = {.bytes = block + sizeof(*header),
                                         .byte_count = header->payload_bytes,
                                         .is_first = link->is_first,
                                         .clock_s =
                                             ps_chain_part_last(t->chain, link->part)->manifest.clock_s,
                                         .is_saved = true,
                                         .is_last = link->is_last};
    struct ps_move_load *load;
    uint64_t rows;
    enum mr_status status =
        ps_move_load_begin(t->options.node, &t->parts[link->part], &loaded, -1, &load, text);
    if (status == MR_OK)
        status = ps_move_load_end(load, &rows, text);
    if (status != MR_OK)
        return status == MR_BAD_MESSAGE ? MR_CHECKPOINT_CORRUPT : status;
    pthread_mutex_lock(&t->lock);
    t->progress.rows += rows;
    t->progress.bytes += loaded.byte_count;
    pthread_mutex_unlock(&t->lock);
    return MR_OK;
}

struct collecting {
    struct ps_take_over *t;
    uint32_t part;
    char *text;
};

static enum mr_status collect_record(void *arg, const struct ps_record *record, const uint8_t *bytes)
{
    const struct collecting *c = arg;
    const bool is_wanted = record->kind == PS_RECORD_STREAM || record->kind == PS_RECORD_CLIENT ||
                           record->kind == PS_RECORD_PUSHES || record->kind == PS_RECORD_PUSH_STREAM;
    return is_wanted ? take_over_collect(c->t, c->part, record, bytes, c->text) : MR_OK;
}

struct reading {
    struct ps_take_over *t;
    char *text;
};

static enum mr_status visit_blocks(void *arg, uint32_t number, const uint8_t *const *blocks, uint32_t count)
{
    const struct reading *r = arg;
    const struct ps_chain_link *link = r->t->chain->links[number];
    struct collecting c = {.t = r->t, .part = link->part, .text = r->text};
    enum mr_status status = MR_OK;
    for (uint32_t i = 0; i < count && status == MR_OK; i++) {
        if (atomic_load(&r->t->stop)) {
            (void)snprintf(r->text, PS_MOVE_TEXT_BYTES, "it was cancelled");
            return MR_CANCELLED;
        }
        status = take_over_load(r->t, link, blocks[i], r->text);
        if (status == MR_OK && link->is_last)
            status = ps_block_each(blocks[i], collect_record, &c);
    }
    return status;
}

/* ---- variables ---- */

struct whole_check {
    const struct ps_take_over *t;
    enum mr_status status[DP_CORES_MAX];
    char text[DP_CORES_MAX][PS_CORE_TEXT_BYTES];
};

static bool is_whole(const struct ps_core *core, const struct ps_feature *f,
                     const struct ps_partition_set *partitions)
{
    for (uint32_t i = 0; i < f->range_count; i++) {
        const struct ps_range *r = &f->ranges[i];
        if (r->owner_core == core->index && ps_partitions_has(partitions, r->partition) &&
            (r->variable == NULL || r->loaded_bytes != ps_variable_stored_bytes(r->variable)))
            return false;
    }
    return true;
}

/* Variables that the checkpoint has, and that were not dropped since. Others begin with the node's owning
 * them. */
static void check_whole(struct ps_core *core, void *arg)
{
    struct whole_check *check = arg;
    const struct ps_manifest *m = ps_chain_manifest(check->t->chain);
    for (uint32_t i = 0; i < m->feature_count; i++) {
        const struct ps_feature *f =
            m->feature_ids[i] <= MR_FEATURE_ID_MAX ? ps_core_feature(core, m->feature_ids[i]) : NULL;
        if (f == NULL || is_whole(core, f, &check->t->options.partitions))
            continue;
        (void)snprintf(check->text[core->index], PS_CORE_TEXT_BYTES, "variable %s is not whole",
                       f->feature.name);
        check->status[core->index] = MR_CHECKPOINT_CORRUPT;
    }
}

static enum mr_status take_over_check(const struct ps_take_over *t, char *text)
{
    struct whole_check *check = calloc(1, sizeof(*check));
    enum mr_status status = MR_OK;
    if (check == NULL)
        return take_over_no_memory(text);
    check->t = t;
    ps_node_each_core(t->options.node, check_whole, check);
    for (uint32_t i = 0; i < t->options.node->core_count && status == MR_OK; i++) {
        status = check->status[i];
        if (status != MR_OK)
            (void)snprintf(text, PS_MOVE_TEXT_BYTES, "%s", check->text[i]);
    }
    free(check);
    return status;
}

/* ---- the thread ---- */

/* Which parts have what of these partitions, and who wrote them; the others' blocks are not read. */
static enum mr_status take_over_plan(struct ps_take_over *t, struct ps_reader *reader, char *text)
{
    bool owns[MR_PARTITION_COUNT];
    const struct ps_chain *chain = ps_reader_chain(reader);
    uint64_t bytes = 0;
    t->chain = chain;
    for (uint32_t p = 0; p < MR_PARTITION_COUNT; p++)
        owns[p] = ps_partitions_has(&t->options.partitions, p);
    t->writers = ps_saved_writers_of_chain(chain, owns, PS_SAVED_NO_PART, t->options.node->core_count);
    t->parts = calloc(chain->part_count, sizeof(*t->parts));
    t->records = t->writers != NULL ? calloc(t->writers->count + 1, sizeof(*t->records)) : NULL;
    if (t->parts == NULL || t->records == NULL)
        return take_over_no_memory(text);
    for (uint32_t part = 0; part < chain->part_count; part++) {
        for (uint32_t p = 0; p < MR_PARTITION_COUNT; p++)
            if (owns[p] && ps_chain_part_owns(chain, part, p))
                ps_partitions_add(&t->parts[part], p);
        if (ps_partitions_empty(&t->parts[part]))
            ps_reader_leave_out(reader, part);
    }
    for (uint32_t i = 0; i < chain->count; i++)
        if (!ps_partitions_empty(&t->parts[chain->links[i]->part]))
            bytes += ps_manifest_block_bytes(&chain->links[i]->manifest);
    pthread_mutex_lock(&t->lock);
    t->progress.bytes_total = bytes;
    pthread_mutex_unlock(&t->lock);
    return MR_OK;
}

static enum mr_status take_over_read(struct ps_take_over *t, char *text)
{
    struct ps_reader *reader = NULL;
    struct reading reading = {.t = t, .text = text};
    enum mr_status status = ps_reader_open_unread(t->options.place.store, t->options.place.path,
                                                  t->options.checkpoint, &reader, text);
    if (status != MR_OK)
        return status;
    if (t->options.is_cluster && ps_reader_chain(reader)->cluster == NULL) {
        ps_text_path(text, t->options.place.path, "the file CLUSTER of that number cannot be opened");
        status = MR_CHECKPOINT_NOT_FOUND;
    }
    if (status == MR_OK)
        status = take_over_plan(t, reader, text);
    if (status == MR_OK)
        status = ps_reader_blocks(reader, 1, 1, visit_blocks, &reading, text);
    if (status == MR_OK)
        status = take_over_check(t, text);
    if (status == MR_OK)
        status = take_over_import(t, text);
    ps_reader_close(reader);
    return status;
}

static void *take_over_main(void *arg)
{
    struct ps_take_over *t = arg;
    char text[PS_MOVE_TEXT_BYTES] = "";
    (void)pthread_setname_np(pthread_self(), "mr-take-over");
    const enum mr_status status =
        t->options.checkpoint != 0 ? take_over_read(t, text) : take_over_import(t, text);
    pthread_mutex_lock(&t->lock);
    t->progress.state = status == MR_OK ? PS_TAKE_OVER_LOADED : PS_TAKE_OVER_FAILED;
    t->progress.status = status;
    memcpy(t->progress.text, text, sizeof(text));
    pthread_mutex_unlock(&t->lock);
    ps_node_wake_control(t->options.node);
    return NULL;
}

/* ---- life ---- */

enum mr_status ps_take_over_start(const struct ps_take_over_options *options, struct ps_take_over **out,
                                  char *text)
{
    struct ps_take_over *t = calloc(1, sizeof(*t));
    if (t == NULL)
        return take_over_no_memory(text);
    t->options = *options;
    t->progress.started_us = mr_clock_us();
    (void)pthread_mutex_init(&t->lock, NULL);
    t->has_thread = pthread_create(&t->thread, NULL, take_over_main, t) == 0;
    if (!t->has_thread) {
        ps_take_over_stop(t);
        return take_over_no_memory(text);
    }
    ps_cpu_affinity_avoid(t->thread, options->node->cpus, options->node->cpu_count);
    *out = t;
    return MR_OK;
}

void ps_take_over_progress(struct ps_take_over *t, struct ps_take_over_progress *out)
{
    pthread_mutex_lock(&t->lock);
    *out = t->progress;
    pthread_mutex_unlock(&t->lock);
}

void ps_take_over_cancel(struct ps_take_over *t)
{
    atomic_store(&t->stop, true);
}

void ps_take_over_stop(struct ps_take_over *t)
{
    if (t == NULL)
        return;
    ps_take_over_cancel(t);
    if (t->has_thread)
        (void)pthread_join(t->thread, NULL);
    for (uint32_t i = 0; t->records != NULL && i < t->writers->count; i++)
        free(t->records[i].bytes);
    free(t->records);
    free(t->parts);
    ps_saved_writers_free(t->writers);
    (void)pthread_mutex_destroy(&t->lock);
    free(t);
}
