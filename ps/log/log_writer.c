#include "ps/log/log_writer.h"

#include <assert.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include "dataplane/wire/base/list.h"
#include "dataplane/wire/base/number.h"
#include "ps/io/io_ring.h"
#include "ps/io/io_threads.h"
#include "ps/log/log_room.h"

#define SPARE_BLOCKS_MAX 3u
#define TARGETS_MAX      64u /* files that are open: one, and those of cuts within one stall */
#define WAIT_US          10000u
#define LOOK_US          100u /* between two looks at what threads do, on a core without other work */
#define RING_WRITE       1u

struct log_block {
    struct log_block *next;
    struct log_target *target;
    struct ps_log_block *head; /* its memory: the records follow */
    uint64_t capacity_bytes;   /* of that */
    uint64_t end_position;     /* records appended up to its last */
    bool is_sealed;            /* takes no more records */
    bool ends_target;          /* no block of that file follows */
};

/* A segment's file, until its last block is durable. */
struct log_target {
    struct ps_log_file file;
    uint64_t offset;         /* of the next block */
    uint64_t next_number;    /* its number */
    uint64_t room_bytes;     /* of the file: blocks or zeros */
    bool is_over;            /* closed once no room is made in it */
    struct log_block ending; /* without records, where the last block is under way when the file is left */
};

struct ps_log_writer {
    const struct ps_store *store;
    struct ps_log_counters *counters;
    struct log_target targets[TARGETS_MAX]; /* those with a file are in use */
    struct log_target *target;              /* of new records; NULL: none yet */
    struct log_block *first, *last;
    struct log_block *spare[SPARE_BLOCKS_MAX];
    uint32_t spare_count;
    struct log_block *promised;
    uint8_t *ending_memory; /* of the targets' last blocks, PS_LOG_ALIGN each */
    uint64_t pending_bytes;
    uint64_t position;
    _Atomic uint64_t durable;
    _Atomic int error;
    uint64_t begun_us, retry_us;
    uint64_t switched_at_bytes; /* what had been written at the last switch */
    _Atomic bool is_covered;    /* up to there; the counter does not know yet */
    /* the flush that runs, of the first block */
    bool in_flight, is_by_ring, has_ended;
    int flush_error;
    uint64_t written_bytes;
    struct ps_io_ring ring;
    struct ps_io_threads *threads; /* they make room, and flush where the ring is closed */
    struct ps_io_job job;
    struct ps_log_room room;
    bool is_notified;
};

/* ---- blocks ---- */

static uint64_t block_bytes(const struct log_block *b)
{
    return sizeof(*b->head) + b->head->bytes;
}

/* Whether it is a target's own, of which the memory is the writer's. */
static bool block_is_ending(const struct log_block *b)
{
    return b->capacity_bytes == PS_LOG_ALIGN;
}

static void block_free(struct log_block *b)
{
    if (b == NULL || block_is_ending(b))
        return;
    free(b->head);
    free(b);
}

static struct log_block *block_new(struct ps_log_writer *w, uint64_t content_bytes)
{
    const uint64_t needed = sizeof(struct ps_log_block) + ps_log_record_space(content_bytes);
    if (needed <= PS_LOG_BLOCK_BYTES && w->spare_count > 0)
        return w->spare[--w->spare_count];
    struct log_block *b = calloc(1, sizeof(*b));
    if (b == NULL)
        return NULL;
    b->capacity_bytes =
        ps_log_padded(needed > PS_LOG_BLOCK_BYTES ? needed : PS_LOG_BLOCK_BYTES, PS_LOG_ALIGN);
    b->head = aligned_alloc(PS_LOG_ALIGN, b->capacity_bytes);
    if (b->head == NULL) {
        free(b);
        return NULL;
    }
    return b;
}

static void block_give(struct ps_log_writer *w, struct log_block *b)
{
    if (block_is_ending(b))
        return;
    if (b->capacity_bytes == PS_LOG_BLOCK_BYTES && w->spare_count < SPARE_BLOCKS_MAX)
        w->spare[w->spare_count++] = b;
    else
        block_free(b);
}

static bool block_fits(const struct log_block *b, uint64_t content_bytes)
{
    return block_bytes(b) + ps_log_record_space(content_bytes) <= b->capacity_bytes;
}

static void block_put(struct ps_log_writer *w, struct log_block *b)
{
    b->next = NULL;
    b->target = w->target;
    b->is_sealed = b->ends_target = false;
    b->head->bytes = b->head->record_count = 0;
    if (w->last != NULL) {
        w->last->is_sealed = true;
        w->last->next = b;
    } else {
        w->first = b;
    }
    w->last = b;
}

/* ---- records ---- */

bool ps_log_writer_promise(struct ps_log_writer *w, uint64_t content_bytes)
{
    const uint64_t space = ps_log_record_space(content_bytes);
    if (w->target == NULL || atomic_load_explicit(&w->error, memory_order_relaxed) != 0 ||
        (w->pending_bytes > 0 && w->pending_bytes + space > PS_LOG_PENDING_BYTES))
        return false;
    if (w->promised != NULL && sizeof(struct ps_log_block) + space <= w->promised->capacity_bytes)
        return true;
    struct log_block *b = block_new(w, content_bytes);
    if (b == NULL)
        return false;
    if (w->promised != NULL)
        block_give(w, w->promised);
    w->promised = b;
    return true;
}

static bool last_takes(const struct ps_log_writer *w, uint64_t content_bytes)
{
    return w->last != NULL && !w->last->is_sealed && block_fits(w->last, content_bytes);
}

bool ps_log_writer_has_room(struct ps_log_writer *w, uint64_t content_bytes)
{
    if (w->target == NULL || w->pending_bytes >= PS_LOG_PENDING_BYTES || content_bytes > PS_LOG_SMALL_BYTES)
        return false;
    if (last_takes(w, content_bytes) || w->spare_count > 0)
        return true;
    struct log_block *b = block_new(w, content_bytes);
    if (b == NULL)
        return false;
    assert(!block_is_ending(b));
    block_give(w, b);
    return true;
}

/* The block that the record goes to. */
static struct log_block *block_for(struct ps_log_writer *w, const struct ps_log_record *record)
{
    if (last_takes(w, record->bytes))
        return w->last;
    struct log_block *b = record->kind == PS_LOG_PUSH ? w->promised : block_new(w, record->bytes);
    if (record->kind == PS_LOG_PUSH)
        w->promised = NULL;
    assert(b != NULL &&
           sizeof(struct ps_log_block) + ps_log_record_space(record->bytes) <= b->capacity_bytes);
    block_put(w, b);
    return b;
}

uint8_t *ps_log_writer_append(struct ps_log_writer *w, const struct ps_log_record *record)
{
    assert(w->target != NULL);
    struct log_block *b = block_for(w, record);
    const uint64_t space = ps_log_record_space(record->bytes);
    uint8_t *at = (uint8_t *)b->head + block_bytes(b);
    memcpy(at, record, sizeof(*record));
    memset(at + sizeof(*record) + record->bytes, 0, space - sizeof(*record) - record->bytes);
    b->head->bytes += space;
    b->head->record_count++;
    b->end_position = ++w->position;
    b->is_sealed = block_bytes(b) + sizeof(struct ps_log_record) > b->capacity_bytes;
    w->pending_bytes += space;
    w->counters->records++;
    w->counters->lag_bytes = w->pending_bytes;
    return at + sizeof(*record);
}

uint64_t ps_log_writer_position(const struct ps_log_writer *w)
{
    return w->position;
}

uint64_t ps_log_writer_durable(const struct ps_log_writer *w)
{
    return atomic_load_explicit(&w->durable, memory_order_acquire);
}

int ps_log_writer_error(const struct ps_log_writer *w)
{
    return atomic_load_explicit(&w->error, memory_order_acquire);
}

/* ---- files ---- */

/* Its bytes are durable. */
static void target_close(struct ps_log_writer *w, struct log_target *target)
{
    ps_log_room_cancel(&w->room, target->file.file);
    target->is_over = true;
    if (w->room.file == target->file.file)
        return;
    (void)w->store->close(target->file.file);
    target->file.file = NULL;
}

static struct log_target *target_new(struct ps_log_writer *w)
{
    uint32_t i = 0;
    while (i < TARGETS_MAX && w->targets[i].file.file != NULL)
        i++;
    assert(i < TARGETS_MAX); /* ps_log_writer_can_switch() was asked */
    return &w->targets[i];
}

bool ps_log_writer_can_switch(const struct ps_log_writer *w)
{
    uint32_t used = 0;
    for (uint32_t i = 0; i < TARGETS_MAX; i++)
        used += w->targets[i].file.file != NULL;
    return used < TARGETS_MAX;
}

/* The file's last block says that it is that. */
static void target_end(struct ps_log_writer *w, struct log_target *target)
{
    struct log_block *b = w->last;
    if (b == NULL || b->target != target || (b == w->first && w->in_flight)) {
        b = &target->ending;
        b->head = (struct ps_log_block *)(void *)(w->ending_memory + (target - w->targets) * PS_LOG_ALIGN);
        b->capacity_bytes = PS_LOG_ALIGN;
        block_put(w, b);
        b->end_position = w->position;
    }
    b->is_sealed = b->ends_target = true;
}

void ps_log_writer_switch(struct ps_log_writer *w, const struct ps_log_file *file)
{
    struct log_target *target = target_new(w), *before = w->target;
    if (before != NULL)
        target_end(w, before);
    *target = (struct log_target){.file = *file, .offset = PS_LOG_ALIGN, .room_bytes = PS_LOG_FIRST_BYTES};
    w->target = target;
    w->switched_at_bytes = w->counters->bytes;
}

/* ---- flushes ---- */

static uint64_t flush_bytes(const struct log_block *b)
{
    return ps_log_padded(block_bytes(b), PS_LOG_ALIGN);
}

static int flush_run(struct ps_io_job *job)
{
    struct ps_log_writer *w = MR_CONTAINER(job, struct ps_log_writer, job);
    const struct log_block *b = w->first;
    struct ps_store_file *file = b->target->file.file;
    w->flush_error = ps_store_write_all(w->store, file, b->head, flush_bytes(b), b->target->offset);
    if (w->flush_error == 0)
        w->flush_error = w->store->sync(file);
    return 0; /* an error would end the threads */
}

static void flush_put(struct ps_log_writer *w)
{
    const struct log_block *b = w->first;
    struct ps_store_file *file = b->target->file.file;
    const int descriptor = w->store->descriptor(file);
    w->has_ended = false;
    w->flush_error = 0;
    w->is_by_ring = w->ring.is_open && descriptor >= 0;
    if (w->is_by_ring) {
        ps_io_ring_write_durable(&w->ring, RING_WRITE, descriptor, w->store->is_direct(file),
                                 (const uint8_t *)b->head + w->written_bytes,
                                 flush_bytes(b) - w->written_bytes, b->target->offset + w->written_bytes);
    } else {
        w->job = (struct ps_io_job){.run = flush_run, .queue = PS_IO_NO_QUEUE};
        ps_io_threads_put(w->threads, &w->job);
    }
}

static void flush_begin(struct ps_log_writer *w, uint64_t now_us)
{
    struct log_block *b = w->first;
    b->is_sealed = true;
    ps_log_block_seal(b->head, b->target->file.nonce, b->target->next_number, b->ends_target);
    memset((uint8_t *)b->head + block_bytes(b), 0, flush_bytes(b) - block_bytes(b));
    w->in_flight = true;
    w->begun_us = now_us;
    w->written_bytes = 0;
    flush_put(w);
}

/* The block is durable. */
static void flush_succeeded(struct ps_log_writer *w)
{
    struct log_block *b = w->first;
    struct log_target *target = b->target;
    target->offset += flush_bytes(b);
    target->next_number++;
    target->room_bytes = mr_max_u64(target->room_bytes, target->offset);
    w->counters->bytes += flush_bytes(b);
    w->counters->kept_bytes += flush_bytes(b);
    w->pending_bytes -= b->head->bytes;
    w->first = b->next;
    if (w->first == NULL)
        w->last = NULL;
    atomic_store_explicit(&w->durable, b->end_position, memory_order_release);
    block_give(w, b);
    if (target != w->target && (w->first == NULL || w->first->target != target))
        target_close(w, target);
}

static void flush_ended(struct ps_log_writer *w, uint64_t now_us)
{
    struct ps_log_counters *c = w->counters;
    assert(w->first != NULL); /* it was on its way */
    struct ps_store_file *file = w->first->target->file.file;
    const uint64_t took_us = now_us - w->begun_us;
    if (ps_store_leave_direct(w->store, file, w->flush_error)) {
        w->written_bytes = 0;
        flush_put(w);
        return;
    }
    w->in_flight = false;
    if (w->flush_error != 0) {
        c->errors++;
        w->retry_us = now_us + PS_LOG_RETRY_US;
    } else {
        c->flushes++;
        c->flush_us += took_us;
        c->flush_last_us = took_us;
        c->flush_max_us = mr_max_u64(c->flush_max_us, took_us);
        flush_succeeded(w);
    }
    atomic_store_explicit(&w->error, -w->flush_error, memory_order_release);
    c->stalled = w->flush_error != 0;
    c->lag_bytes = w->pending_bytes;
}

static void ring_result(struct ps_log_writer *w, int result)
{
    const uint64_t left = flush_bytes(w->first) - w->written_bytes;
    if (result > 0)
        w->written_bytes += (uint64_t)result < left ? (uint64_t)result : left;
    if (result <= 0)
        w->flush_error = result < 0 ? result : -EIO;
    w->has_ended = w->flush_error != 0 || w->written_bytes == flush_bytes(w->first);
    if (!w->has_ended)
        flush_put(w);
}

static void room_end(struct ps_log_writer *w, uint64_t now_us)
{
    uint64_t to;
    const struct ps_store_file *file = ps_log_room_end(&w->room, now_us, &to);
    for (uint32_t i = 0; i < TARGETS_MAX; i++) {
        struct log_target *target = &w->targets[i];
        if (target->file.file != file)
            continue;
        target->room_bytes = mr_max_u64(target->room_bytes, to);
        if (target->is_over)
            target_close(w, target);
    }
}

/* Takes what the ring and the threads have done, waiting for the next at most wait_us. */
static void results_take(struct ps_log_writer *w, uint32_t wait_us, uint64_t now_us)
{
    const bool is_by_ring = w->in_flight && w->is_by_ring;
    const struct ps_io_job *job;
    uint64_t tag;
    int result;
    while (w->in_flight && w->is_by_ring && !w->has_ended &&
           ps_io_ring_take(&w->ring, wait_us, &tag, &result))
        ring_result(w, result);
    if (w->in_flight && w->is_by_ring && !w->has_ended && !w->ring.is_open) { /* it has closed itself */
        w->written_bytes = 0;
        flush_put(w);
    }
    while ((job = ps_io_threads_take(w->threads, is_by_ring ? 0 : wait_us)) != NULL) {
        if (job == &w->room.job)
            room_end(w, now_us);
        else
            w->has_ended = true;
        wait_us = 0;
    }
}

static uint64_t flush_due_us(const struct ps_log_writer *w)
{
    if (w->first == NULL || w->in_flight)
        return UINT64_MAX;
    if (w->flush_error != 0)
        return w->retry_us;
    return w->first->is_sealed ? 0 : w->begun_us + PS_LOG_GROUP_US;
}

static bool flush_may_begin(struct ps_log_writer *w)
{
    const struct log_target *target = w->first->target;
    return ps_log_room_allows(&w->room, target->file.file, target->offset + flush_bytes(w->first));
}

/* Once little room is left behind the flush that runs. Only past the page cache: else this thread's flush
 * might be told of an error that the log's would have to know. */
static void room_begin(struct ps_log_writer *w, uint64_t now_us)
{
    const struct log_target *target = w->target;
    if (target == NULL || w->room.file != NULL || !w->store->is_direct(target->file.file))
        return;
    uint64_t end = target->offset;
    if (w->in_flight && w->first->target == target)
        end += flush_bytes(w->first);
    const uint64_t left = target->room_bytes > end ? target->room_bytes - end : 0;
    if (left < target->room_bytes / 4 && left < PS_LOG_ROOM_BYTES_MAX / 2)
        ps_log_room_begin(&w->room, w->threads, target->file.file, mr_max_u64(end, target->room_bytes),
                          now_us);
}

void ps_log_writer_begin(struct ps_log_writer *w, uint64_t kept_bytes)
{
    w->counters->is_kept = 1;
    w->counters->kept_bytes = kept_bytes;
}

void ps_log_writer_covered(struct ps_log_writer *w)
{
    atomic_store(&w->is_covered, true);
}

uint64_t ps_log_writer_poll(struct ps_log_writer *w, uint64_t now_us)
{
    if (atomic_load_explicit(&w->is_covered, memory_order_relaxed) && atomic_exchange(&w->is_covered, false))
        w->counters->kept_bytes = w->counters->bytes - w->switched_at_bytes;
    results_take(w, 0, now_us);
    if (w->in_flight && w->has_ended)
        flush_ended(w, now_us);
    if (flush_due_us(w) <= now_us && flush_may_begin(w)) {
        flush_begin(w, now_us);
        if (w->is_by_ring)
            results_take(w, 0, now_us); /* has the kernel know of it */
    }
    room_begin(w, now_us);
    if (w->in_flight && w->has_ended)
        return now_us;
    if (w->in_flight)
        return w->is_by_ring && w->is_notified ? UINT64_MAX : now_us + LOOK_US;
    const uint64_t due_us = flush_due_us(w);
    return due_us <= now_us ? now_us + LOOK_US : due_us; /* it waits for the room */
}

void ps_log_writer_notify(struct ps_log_writer *w, int eventfd)
{
    w->is_notified = eventfd >= 0 && ps_io_ring_notify(&w->ring, eventfd);
}

/* ---- life ---- */

int ps_log_writer_create(const struct ps_store *store, struct ps_log_counters *counters,
                         struct ps_log_writer **out, const char **note)
{
    struct ps_log_writer *w = calloc(1, sizeof(*w));
    if (w == NULL)
        return -ENOMEM;
    w->store = w->room.store = store;
    w->counters = counters;
    w->ending_memory = aligned_alloc(PS_LOG_ALIGN, TARGETS_MAX * PS_LOG_ALIGN);
    *note = ps_io_ring_open(&w->ring, 2, NULL, 0, NULL, 0);
    const int error = w->ending_memory != NULL
                          ? ps_io_threads_create("mr-log-flush", w->ring.is_open ? 1 : 2, &w->threads)
                          : -ENOMEM;
    if (error != 0) {
        ps_io_ring_close(&w->ring);
        free(w->ending_memory);
        free(w);
        return error;
    }
    *out = w;
    return 0;
}

void ps_log_writer_destroy(struct ps_log_writer *w)
{
    if (w == NULL)
        return;
    w->counters->is_kept = 0;
    const uint64_t now_us = w->begun_us + PS_LOG_GROUP_US;
    w->flush_error = w->in_flight ? w->flush_error : 0;
    atomic_store(&w->room.is_cancelled, true);
    while (w->first != NULL || w->room.file != NULL) {
        const bool begins = w->first != NULL && !w->in_flight && w->room.file == NULL;
        if (begins)
            flush_begin(w, now_us);
        results_take(w, WAIT_US, now_us);
        if (w->in_flight && w->has_ended)
            flush_ended(w, now_us);
        if (!w->in_flight && w->flush_error != 0 && w->room.file == NULL)
            break;
    }
    ps_io_threads_destroy(w->threads);
    ps_io_ring_close(&w->ring);
    while (w->first != NULL) {
        struct log_block *b = w->first;
        w->first = b->next;
        block_free(b);
    }
    for (uint32_t i = 0; i < TARGETS_MAX; i++)
        if (w->targets[i].file.file != NULL)
            target_close(w, &w->targets[i]);
    block_free(w->promised);
    free(w->ending_memory);
    while (w->spare_count > 0)
        block_free(w->spare[--w->spare_count]);
    free(w);
}
