/* Answers to pushes that leave later than the pushes are applied: once the log has them on the disk
 * (ps/core/push_log.h), or once the backups of the core's partitions have them (ps/move/copy_source.h, with
 * cluster.copies = sync). They leave in the order of the calls. Belongs to the core's thread. */
#ifndef PS_PUSH_ANSWERS_H
#define PS_PUSH_ANSWERS_H

#include <stdbool.h>
#include <stdint.h>
#include "ps/core/coop_task.h"

struct ps_push_answer;

/* Zeros: no answer waits. */
struct ps_push_answers {
    struct ps_push_answer *waiting; /* ring; NULL: none has waited yet */
    uint32_t first, count;
    bool waits_for_backups;
    uint64_t record; /* number of the last record made for backups; the first has 1 */
    uint64_t passed; /* all backups that answers wait for have applied the records up to this one */
};

/* ---- for handlers, in this order ---- */

/* Before anything changes: the answer may leave later. False: the call was answered BUSY. */
bool ps_push_answer_keep(const struct ps_op *op);
/* Begins the answer, as mr_reply_begin(); pushes replayed from the log have none. */
bool ps_push_answer_begin(const struct ps_op *op, struct mr_tensor *tensors, uint32_t count);
/* Ends the answer: at once, or when the log and the backups have all that was applied until now. The records
 * for both were made before. */
void ps_push_answer_end(const struct ps_op *op);

/* ---- for those whom answers wait for ---- */

/* From now on answers wait for records of backups, up to `passed`. MR_NO_MEMORY: they do not. */
enum mr_status ps_push_answers_wait(struct ps_core *core, uint64_t passed);
/* Answers wait for backups no longer; those that did are sent. */
void ps_push_answers_wait_no_more(struct ps_core *core);
/* The backups have all records up to this one. */
void ps_push_answers_pass(struct ps_core *core, uint64_t passed);
/* Cancels the answers that wait for this record or a later one: another node may own the partitions, with or
 * without them. Idempotent calls are answered BUSY, others UNKNOWN_OUTCOME. */
void ps_push_answers_give_up(struct ps_core *core, uint64_t record);
/* Sends those that need not wait any more. */
void ps_push_answers_send(struct ps_core *core);

/* Makes room for them. MR_NO_MEMORY. */
enum mr_status ps_push_answers_make(struct ps_core *core);
/* Those that wait are given up: their calls end with the endpoint. */
void ps_push_answers_free(struct ps_core *core);

#endif
