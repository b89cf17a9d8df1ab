/* What a Save asks for, and what all of them came to. */
#ifndef PS_SAVE_REQUEST_H
#define PS_SAVE_REQUEST_H

#include <stdbool.h>
#include <stdint.h>
#include "ps/save/save_policy.h"

#define PS_SAVES_QUEUED_MAX 8u

struct ps_save_request {
    char directory[PS_CHAIN_DIRECTORY_BYTES]; /* "": the configured one */
    enum ps_save_wish wish;
    /* the cut is made at this step; 0: at once, or, with trainers, at the one training has come to */
    uint64_t step;
    uint32_t trainers; /* that a step has; 0: as configured */
    bool queue;        /* while another is under way it waits; otherwise that is an error */
    bool is_automatic;
    uint64_t number; /* in ps/control/save_log.h; set by the control thread */
};

/* X(name, help): of the node, shown with core 0's. Written by the control thread. */
#define PS_CHECKPOINT_COUNTER_LIST(X)                                                                        \
    X(saves_good, "checkpoints published, deltas among them")                                                \
    X(deltas_good, "deltas published")                                                                       \
    X(saves_failed, "saves that failed, or were given up")                                                   \
    X(saves_withdrawn, "saves that were cancelled by a call")                                                \
    X(saves_automatic, "saves that began by themselves")                                                     \
    X(saves_at_step, "checkpoints cut at a step, with all trainers held there")                              \
    X(saves_late, "automatic saves at a step that were cut at once because trainers did not come")           \
    X(saves_queued, "saves that wait for another one now")                                                   \
    X(waiting_step, "the step that a save waits for now; 0: none")                                           \
    X(trainers_held, "trainers that have come to it, and wait")                                              \
    X(trainers_awaited, "trainers that it waits for in all")                                                 \
    X(bytes_written, "bytes of all checkpoints published")                                                   \
    X(write_us, "microseconds that these took")                                                              \
    X(running_id, "the checkpoint being written now; 0: none")                                               \
    X(running_bytes, "bytes of it written")                                                                  \
    X(running_bytes_total, "bytes that it will have, about")                                                 \
    X(last_good_id, "the last one published")                                                                \
    X(last_good_step, "its step")                                                                            \
    X(last_status, "how the last save ended: an mr_status, 0 is good")                                       \
    X(restored_id, "the checkpoint that this node was restored from; 0: none")                               \
    X(restored_step, "its step")                                                                             \
    X(restored_at_step, "1: it holds all pushes up to that step and none after it")

struct ps_checkpoint_counters {
#define PS_CHECKPOINT_COUNTER_FIELD(name, help) uint64_t name;
    PS_CHECKPOINT_COUNTER_LIST(PS_CHECKPOINT_COUNTER_FIELD)
#undef PS_CHECKPOINT_COUNTER_FIELD
};

#endif
