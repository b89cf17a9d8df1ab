/* Writes one core's log: records into blocks in memory, blocks to the segment's file, each with a flush of
 * the disk. Belongs to the core's thread, which never waits: the kernel writes (io_uring), past the page
 * cache where the file system can, or a thread of the writer's own where io_uring is not allowed. Room in
 * the file is made ahead (ps/log/log_room.h).
 *
 * Group commit: one flush runs at a time, and takes all records that have come by then, PS_LOG_BLOCK_BYTES
 * or one larger record at most. The next begins PS_LOG_GROUP_US after the last one began, or as soon as
 * PS_LOG_BLOCK_BYTES wait.
 *
 * A write or flush that fails is made again, both of them, every PS_LOG_RETRY_US, for as long as it takes:
 * what a failed flush has lost is still in memory. Until then the writer is stalled. A record is appended
 * only where it was promised, or there was room: so that cannot fail. */
#ifndef PS_LOG_WRITER_H
#define PS_LOG_WRITER_H

#include <stdbool.h>
#include <stdint.h>
#include "dataplane/wire/base/counter_set.h"
#include "ps/io/store.h"
#include "ps/log/log_format.h"

#define PS_LOG_BLOCK_BYTES (1u << 20)
#define PS_LOG_FIRST_BYTES (256u << 10) /* of a segment when it is made: its header, and zeros */
#define PS_LOG_GROUP_US    200u
#define PS_LOG_RETRY_US    100000u
#define PS_LOG_PENDING_BYTES                                                                                 \
    (64u << 20) /* that are not durable yet: more only for one record that is larger */

/* X(name, kind, unit, help): per core; written by its thread. */
#define PS_LOG_COUNTER_LIST(X)                                                                               \
    X(is_kept, GAUGE, NONE, "1: the core keeps a log")                                                       \
    X(kept_bytes, GAUGE, BYTES, "bytes of the log on disk that no published checkpoint has yet")             \
    X(records, COUNTER, NONE, "records appended to the log: pushes, evictions, changes of tables")           \
    X(bytes, COUNTER, BYTES, "bytes written to the log and flushed")                                         \
    X(flushes, COUNTER, NONE, "flushes of the log: each makes all answers durable that wait by then")        \
    X(flush_us, COUNTER, MICROSECONDS, "time that writes to the log and their flushes took")                 \
    X(flush_last_us, GAUGE, MICROSECONDS, "the last write to the log with its flush")                        \
    X(flush_max_us, GAUGE, MICROSECONDS, "the longest write to the log with its flush")                      \
    X(lag_bytes, GAUGE, BYTES, "bytes of records that are not durable yet")                                  \
    X(errors, COUNTER, NONE, "writes or flushes of the log that failed, and were made again")                \
    X(stalled, GAUGE, NONE, "1 while the log cannot be written: pushes are answered BUSY")                   \
    X(answers_waiting, GAUGE, NONE, "answers to pushes that wait until the log is durable")                  \
    X(pushes_held_back, COUNTER, NONE, "pushes refused for the moment because the log had no room for them") \
    X(records_replayed, COUNTER, NONE, "records of the log that the start applied again")

struct ps_log_counters {
    PS_LOG_COUNTER_LIST(MR_COUNTER_FIELD)
};

struct ps_log_writer;

/* A segment's file that is ready for its first block. */
struct ps_log_file {
    struct ps_store_file *file;
    uint64_t nonce;
};

/* Its thread runs on the processors that the caller may run on: not on a data core's. The store outlives the
 * writer. 0 or -ENOMEM. `note`: why the kernel does not write (static text), or NULL.
 * */
int ps_log_writer_create(const struct ps_store *store, struct ps_log_counters *counters,
                         struct ps_log_writer **out, const char **note);
/* Waits for the flush that runs, and writes what is left, once. Closes its files. NULL is fine. */
void ps_log_writer_destroy(struct ps_log_writer *w);
/* Records go to this file from now on, which is the writer's. The one before is closed once all of its
 * records are durable; the new one's first block comes after them. */
void ps_log_writer_switch(struct ps_log_writer *w, const struct ps_log_file *file);

/* Whether there is place for another file: no stall lasts for that many cuts. */
bool ps_log_writer_can_switch(const struct ps_log_writer *w);

/* Makes room for one push with so much content at most; it stays until that is appended. False: the writer
 * is stalled, or too much is not durable yet, or memory is short. */
bool ps_log_writer_promise(struct ps_log_writer *w, uint64_t content_bytes);
/* Whether another record with so much content, PS_LOG_SMALL_BYTES at most, can be appended now. Unlike a
 * promise it does not ask whether the writer is stalled. */
#define PS_LOG_SMALL_BYTES (768u << 10)
bool ps_log_writer_has_room(struct ps_log_writer *w, uint64_t content_bytes);
/* Appends a record and returns where its content goes, aligned to PS_LOG_RECORD_ALIGN, until the next call;
 * the zeros behind it are there. */
uint8_t *ps_log_writer_append(struct ps_log_writer *w, const struct ps_log_record *record);
/* Records appended so far, and how many of them are durable. Any thread may ask for the latter. */
uint64_t ps_log_writer_position(const struct ps_log_writer *w);
uint64_t ps_log_writer_durable(const struct ps_log_writer *w);

/* So many bytes of earlier segments are kept, too. Before the first switch. */
void ps_log_writer_begin(struct ps_log_writer *w, uint64_t kept_bytes);
/* A published checkpoint has all records before the last switch. Any thread. */
void ps_log_writer_covered(struct ps_log_writer *w);
/* Has the kernel ring this eventfd when a flush ends. It outlives the writer. */
void ps_log_writer_notify(struct ps_log_writer *w, int eventfd);
/* Takes what has ended and begins what is due. Returns when it is to be called again at the latest:
 * UINT64_MAX: once there is another record, or it was notified. */
uint64_t ps_log_writer_poll(struct ps_log_writer *w, uint64_t now_us);
/* 0, or the errno by which the writer is stalled. Any thread. */
int ps_log_writer_error(const struct ps_log_writer *w);

#endif
