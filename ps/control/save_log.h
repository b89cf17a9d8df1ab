/* The list of saves of a node since its start: those that wait, the one being written, and how the last ones
 * ended. Each has a number of its own (1, 2, 3, ...), because a checkpoint gets its id, which belongs to a
 * directory, only at the cut. Pure; the caller locks.
 */
#ifndef PS_SAVE_LOG_H
#define PS_SAVE_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "dataplane/wire/format/mr_status.h"

#define PS_SAVE_LOG_MAX    32u /* more than may be unfinished at a time */
#define PS_SAVE_TEXT_BYTES 256

/* Numbers of the wire: enum mr_save_state of millrace.h. */
enum ps_save_state { PS_SAVE_ENDED = 0, PS_SAVE_WRITING = 1, PS_SAVE_WAITS_FOR_STEP = 3, PS_SAVE_QUEUED = 4 };

struct ps_save_entry {
    uint64_t number;
    enum ps_save_state state;
    uint64_t id; /* of the checkpoint; 0 until the cut */
    bool is_delta, is_at_step, is_automatic;
    bool is_partial;       /* the checkpoint has the features that the save named */
    bool is_copied;        /* it is where checkpoint.remote takes it from */
    uint64_t committed_ms; /* when it was published, since 1970; 0: it is not */
    uint64_t parent_id;    /* of a delta */
    uint64_t step;         /* of the cut; until then the one that was asked for */
    uint64_t bytes, duration_us;
    enum mr_status status; /* of one that has ended */
    int error_number;
    char text[PS_SAVE_TEXT_BYTES]; /* what went wrong */
};

struct ps_save_log {
    uint64_t last_number;
    struct ps_save_entry entries[PS_SAVE_LOG_MAX]; /* by number */
};

/* Adds an entry; it replaces the oldest one when the list is full. */
static inline struct ps_save_entry *ps_save_log_add(struct ps_save_log *log)
{
    uint64_t number = ++log->last_number;
    struct ps_save_entry *entry = &log->entries[number % PS_SAVE_LOG_MAX];
    *entry = (struct ps_save_entry){.number = number};
    return entry;
}

/* NULL when there was no such save, or its entry has been replaced. */
static inline struct ps_save_entry *ps_save_log_find(struct ps_save_log *log, uint64_t number)
{
    struct ps_save_entry *entry = &log->entries[number % PS_SAVE_LOG_MAX];
    return number != 0 && entry->number == number ? entry : NULL;
}

#endif
