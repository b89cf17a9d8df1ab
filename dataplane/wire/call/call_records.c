#include "dataplane/wire/call/call_records.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

#define CACHE_LINE 64u

static_assert(sizeof(struct mr_call_record) == CACHE_LINE, "a call dirties one cache line");

bool mr_call_records_init(struct mr_call_records *r)
{
    const size_t bytes = MR_CALL_RECORDS * sizeof(struct mr_call_record);
    r->slow_ns = INFINITY;
    r->last.records = aligned_alloc(CACHE_LINE, bytes);
    r->selected.records = aligned_alloc(CACHE_LINE, bytes);
    return r->last.records != NULL && r->selected.records != NULL;
}

void mr_call_records_destroy(struct mr_call_records *r)
{
    free(r->last.records);
    free(r->selected.records);
}

void mr_call_record_select(struct mr_call_records *r)
{
    const uint64_t newest = r->last.count;
    uint64_t from = newest;
    if (mr_call_ring_at(&r->last, newest - 1)->total_ns >= r->slow_ns) {
        r->slow_count++;
        r->after_left = MR_RECORD_AFTER;
        from = newest > MR_RECORD_BEFORE ? newest - MR_RECORD_BEFORE : 1;
    } else {
        r->after_left--;
    }
    if (from <= r->selected_to)
        from = r->selected_to + 1;
    for (uint64_t number = from; number <= newest; number++)
        r->selected.records[r->selected.count++ % MR_CALL_RECORDS] = *mr_call_ring_at(&r->last, number - 1);
    r->selected_to = newest;
}

void mr_call_records_watch(struct mr_call_records *r, uint64_t slow_ns, uint64_t now_us)
{
    const float asked_ns = (float)slow_ns;
    if (asked_ns > r->slow_ns && now_us < r->until_us)
        return;
    r->slow_ns = asked_ns;
    r->until_us = now_us + MR_RECORD_WATCH_US;
}
