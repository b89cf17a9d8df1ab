/* What cores and the control thread do with a checkpoint that is being written. */
#include <assert.h>
#include <string.h>

#include "dataplane/wire/base/clock.h"
#include "ps/checkpoint/checkpoint_writer_internal.h"

#define HEADERS_SHARE 32u /* of a block's bytes: headers of records, and what is left over at its end */

#define CACHE_LINE         64u
#define PREFETCH_BYTES_MAX 4096u

/* ---- a core's side ---- */

uint32_t ps_writer_record_bytes_max(void)
{
    return PS_PAYLOAD_BYTES - (uint32_t)sizeof(struct ps_record);
}

bool ps_writer_failed(const struct ps_writer *w)
{
    return atomic_load_explicit(&w->failed, memory_order_acquire);
}

void ps_writer_expect(struct ps_writer *w, uint32_t core, uint64_t bytes)
{
    assert(core < w->core_count && !w->cores[core].block);
    w->cores[core].expected_bytes = bytes + bytes / HEADERS_SHARE + PS_BLOCK_BYTES;
}

uint32_t ps_writer_free_bytes(struct ps_writer *w, uint32_t core)
{
    assert(core < w->core_count);
    struct writer_core *c = &w->cores[core];
    if (ps_writer_failed(w))
        return 0;
    uint32_t left = c->block ? PS_PAYLOAD_BYTES - c->payload_bytes : 0;
    return left + ps_ring_count(&c->empty) * PS_PAYLOAD_BYTES;
}

static void hand_over(struct writer_core *c)
{
    struct ps_block_header *header = (struct ps_block_header *)(void *)c->block;
    header->payload_bytes = c->payload_bytes;
    header->record_count = c->record_count;
    bool room = ps_ring_put(&c->full, c->buffer);
    assert(room);
    (void)room;
    c->block = NULL;
}

static bool take_block(struct ps_writer *w, struct writer_core *c)
{
    if (!ps_ring_take(&c->empty, &c->buffer))
        return false;
    c->block = w->buffers + c->buffer * PS_BLOCK_BYTES;
    c->payload_bytes = 0;
    c->record_count = 0;
    return true;
}

static bool record_belongs(const struct ps_writer *w, const struct ps_record *record)
{
    const uint32_t kind = ps_record_feature_kind(record->kind);
    if (record->kind == PS_RECORD_GONE && w->attempt.manifest.parent == 0)
        return false;
    return kind == 0 || (record->feature <= PS_FEATURE_ID_MAX && w->feature_kind[record->feature] == kind);
}

/* The next record will be about as large: its place comes into the caches meanwhile, from where the disk's
 * reads have left it. */
static void prefetch_next(const struct writer_core *c, uint32_t bytes)
{
    uint32_t left = PS_PAYLOAD_BYTES - c->payload_bytes;
    bytes = bytes < left ? bytes : left;
    bytes = bytes < PREFETCH_BYTES_MAX ? bytes : PREFETCH_BYTES_MAX;
    const uint8_t *next = c->block + sizeof(struct ps_block_header) + c->payload_bytes;
    for (uint32_t at = 0; at < bytes; at += CACHE_LINE)
        __builtin_prefetch(next + at, 1, 3);
}

uint8_t *ps_writer_append(struct ps_writer *w, uint32_t core, const struct ps_record *record)
{
    assert(core < w->core_count && !ps_record_check(record) && record_belongs(w, record));
    struct writer_core *c = &w->cores[core];
    if (ps_writer_failed(w))
        return NULL;
    const uint32_t space = (uint32_t)ps_record_space(record->bytes);
    if (c->block && space > PS_PAYLOAD_BYTES - c->payload_bytes)
        hand_over(c);
    if (!c->block && !take_block(w, c))
        return NULL;
    uint8_t *at = c->block + sizeof(struct ps_block_header) + c->payload_bytes;
    memcpy(at, record, sizeof(*record));
    uint8_t *content = at + sizeof(*record);
    memset(content + record->bytes, 0, space - sizeof(*record) - record->bytes);
    c->payload_bytes += space;
    c->record_count++;
    prefetch_next(c, space);
    return content;
}

void ps_writer_core_done(struct ps_writer *w, uint32_t core)
{
    assert(core < w->core_count);
    struct writer_core *c = &w->cores[core];
    if (c->block)
        hand_over(c);
    atomic_store_explicit(&c->done, true, memory_order_release);
}

/* ---- the control thread's side ---- */

void ps_writer_status(const struct ps_writer *w, struct ps_writer_status *out)
{
    struct ps_writer_status status = {.id = w->attempt.manifest.id};
    if (atomic_load_explicit(&w->done, memory_order_acquire)) {
        status = w->outcome;
        status.id = w->attempt.manifest.id;
        status.done = true;
        status.manifest_hash = w->attempt.manifest.hash;
    } else {
        status.duration_us = mr_clock_us() - w->start_us;
    }
    status.bytes_written = atomic_load_explicit(&w->bytes_written, memory_order_relaxed);
    *out = status;
}

const char *ps_writer_method(const struct ps_writer *w)
{
    return w->method;
}

void ps_writer_abort(struct ps_writer *w)
{
    atomic_store_explicit(&w->abort, true, memory_order_release);
}
