/* What a core's last calls were: operation, size, client, and where their time went (docs/adr/0096). Two
 * rings: the last calls, and a selection that lasts longer, of slow calls with those before and after each. A
 * call is recorded when the last of its answer has gone to the port, or when its client has given it up
 * before that. Calls that were answered with BUSY, or refused before any work, are not recorded.
 *
 * Of calls that latency.h does not time, in bursts, the whole time is known, and the phases are not.
 *
 * Belongs to the endpoint's thread, which also reads.
 */
#ifndef MR_CALL_RECORDS_H
#define MR_CALL_RECORDS_H

#include <stdbool.h>
#include <stdint.h>

#define MR_CALL_RECORDS  512u /* of each ring */
#define MR_RECORD_BEFORE 8u   /* so many calls before a slow one are selected with it, */
#define MR_RECORD_AFTER  4u   /* and so many after it */

struct mr_call_record {
    uint64_t number;                  /* from 1, in the order in which calls were over */
    uint64_t arrived_ns;              /* the last of its request, by the endpoint's clock */
    float total_ns, wait_ns, work_ns; /* wait_ns < 0: not known; until its turn, also of a long call */
    uint32_t table, keys;             /* 0: none, or not known */
    uint32_t request_bytes, reply_bytes;
    uint8_t ip[16];
    uint16_t port;
    uint8_t op, status;
};

struct mr_call_ring {
    uint64_t count; /* written so far; the last MR_CALL_RECORDS are there */
    struct mr_call_record *records;
};

struct mr_call_records {
    struct mr_call_ring last, selected;
    uint64_t selected_to; /* calls up to this number are selected, or never will be */
    uint64_t slow_count;
    float slow_ns; /* a call is slow from here on; infinite: none is */
    uint32_t after_left;
    uint64_t until_us; /* somebody counts on slow_ns until then */
};

/* False: no memory. */
bool mr_call_records_init(struct mr_call_records *r);
void mr_call_records_destroy(struct mr_call_records *r);

/* Returns where the next call is to be written, all of it but its number; then mr_call_record_add(). */
static inline struct mr_call_record *mr_call_record_next(struct mr_call_records *r)
{
    return &r->last.records[r->last.count % MR_CALL_RECORDS];
}

/* For the function below: selects the newest call, and those before it if it is slow. */
void mr_call_record_select(struct mr_call_records *r);

static inline void mr_call_record_add(struct mr_call_records *r)
{
    struct mr_call_record *record = mr_call_record_next(r);
    record->number = ++r->last.count;
    if (__builtin_expect(record->total_ns >= r->slow_ns || r->after_left > 0, 0))
        mr_call_record_select(r);
}

/* Selects slow calls for a reader, who asks again before MR_RECORD_WATCH_US have passed. Of several readers
 * the one with the smallest span decides. */
#define MR_RECORD_WATCH_US UINT64_C(10000000)
void mr_call_records_watch(struct mr_call_records *r, uint64_t slow_ns, uint64_t now_us);

/* Returns the oldest position that a ring still has: records [oldest, count) can be read. */
static inline uint64_t mr_call_ring_oldest(const struct mr_call_ring *ring)
{
    return ring->count > MR_CALL_RECORDS ? ring->count - MR_CALL_RECORDS : 0;
}

static inline const struct mr_call_record *mr_call_ring_at(const struct mr_call_ring *ring, uint64_t position)
{
    return &ring->records[position % MR_CALL_RECORDS];
}

#endif
