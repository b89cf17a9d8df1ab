/* The control thread: Create, Freeze, List, Save and Restore, over all cores.
 *
 * Core 0's handler hands a command over; the thread does it, reaching each core through tasks, and the answer
 * goes back to core 0 as a task. Commands are done one after the other; a save goes on in the background
 * meanwhile.
 */
#ifndef PS_CONTROL_H
#define PS_CONTROL_H

#include <stdbool.h>
#include <stdint.h>
#include "dataplane/dataplane.h"
#include "dataplane/wire/endpoint.h"
#include "dataplane/wire/format/mr_feature.h"
#include "ps/control/save_log.h"
#include "ps/core/node.h"
#include "ps/restore/restore_plan.h"
#include "ps/save/save_policy.h"

#define PS_CONTROL_TEXT_BYTES 400
#define PS_REPLY_TENSORS_MAX  5u

/* A call for the control thread: what it asks for, and then the answer. Everything is a copy. */
struct ps_command {
    struct dp_task task; /* brings it back to core 0 */
    struct ps_command *next;
    struct ps_node *node;
    struct mr_call_ref ref;
    uint32_t op;
    /* asked */
    uint32_t feature_count;
    struct mr_feature *features;
    uint32_t freeze; /* enum mr_freeze */
    uint64_t checkpoint_id;
    uint32_t name_count; /* of features to restore; 0: all */
    struct mr_restore_pair *names;
    bool replace; /* what has such a name already */
    char directory[PS_DIRECTORY_BYTES];
    struct ps_save_request save;
    uint64_t cancel_number; /* of the save to cancel; 0: `save` is one to be made */
    /* answered; tensors' data are the command's */
    enum mr_status status;
    char text[PS_CONTROL_TEXT_BYTES];
    uint32_t tensor_count;
    struct mr_tensor tensors[PS_REPLY_TENSORS_MAX];
};

/* What CHECKPOINT_STATUS answers, in its order. */
struct ps_checkpoint_view {
    uint64_t state; /* enum mr_checkpoint_state of millrace.h: 0 idle, 1 saving, 2 loading */
    uint64_t id;
    uint64_t bytes_done, bytes_total;
    uint64_t duration_us;
    uint64_t last_good_id;
    uint64_t last_status; /* enum mr_status */
    uint64_t last_errno;
    char text[256];
};

/* The same with more. Words as in docs/protocol.md, CHECKPOINT_STATUS. */
#define PS_STATUS_WORDS 8u
#define PS_DETAIL_WORDS 10u
#define PS_SAVE_WORDS   12u
struct ps_checkpoint_report {
    uint64_t words[PS_STATUS_WORDS];
    char text[256];
    uint64_t details[PS_DETAIL_WORDS];
    uint64_t saves[PS_SAVE_LOG_MAX][PS_SAVE_WORDS]; /* the oldest first */
    uint32_t save_count;
    char lines[PS_SAVE_LOG_MAX * PS_SAVE_TEXT_BYTES]; /* a line for each: what went wrong */
};

/* NULL when memory is short. */
struct ps_control *ps_control_create(struct ps_node *node);
void ps_control_destroy(struct ps_control *c);
/* Reads what the node's checkpoint directory says of its history. Before its data plane is made. MR_IO_ERROR,
 * MR_NO_MEMORY, and a line in `error`. */
enum mr_status ps_control_open_history(struct ps_control *c, char *error, size_t error_bytes);
uint32_t ps_control_lineage(const struct ps_control *c);
/* Starts the thread. Before that, and after stop, its work may be done by the caller: restore at start, save
 * at the end. */
bool ps_control_start(struct ps_control *c);
/* Ends the thread once the command at hand is done; further ones are answered MR_SHUTTING_DOWN. A save under
 * way is given up, unless `finish_save`. */
void ps_control_stop(struct ps_control *c, bool finish_save);

/* Hand a command over, which it owns from then on; false when PS_RING_CAPACITY of them are not done. Core 0's
 * thread. */
bool ps_control_submit(struct ps_control *c, struct ps_command *command);
void ps_command_free(struct ps_command *command);
/* Of one save by its number, or of all that are known (0). False: that one is not known. Any thread. */
bool ps_control_report(struct ps_control *c, uint64_t number, struct ps_checkpoint_report *out);

/* The thread's work, also for main while the thread is not running. `text` has PS_CONTROL_TEXT_BYTES. */

/* The configured directory is this node's until it is destroyed. MR_IO_ERROR: another process has it, and
 * `text` says who. */
enum mr_status ps_control_claim_directory(struct ps_control *c, char *text);
/* Let data calls in (PS_GATE_OPEN), tell clients to try again (PS_GATE_BUSY), or refuse with status and
 * text. */
void ps_control_gate(struct ps_control *c, uint32_t gate, enum mr_status status, const char *text);
struct ps_restore_request {
    const char *directory; /* "": the configured one */
    bool is_own;           /* the configuration names that directory itself, not a client */
    uint64_t id;           /* 0: the newest that verifies */
    const struct mr_restore_pair *names;
    uint32_t name_count; /* 0: everything, in place of all that the node holds */
    bool replace;        /* names: what has such a name already */
    bool by_call;        /* not at start: it takes back what had been answered, and clients are told so */
};
/* What it came to. */
struct ps_restored {
    uint64_t id, step;          /* of the checkpoint; step 0: training said none */
    bool is_at_step;            /* it was cut at that step */
    uint32_t tables, variables; /* taken of it */
};
/* Before the first restore of a start: false, or what the node was restored from by call and has not saved
 * since, which a start with `latest` goes on from: then `request` asks for that. Its directory is valid until
 * the next restore. */
bool ps_control_goes_back(struct ps_control *c, struct ps_restore_request *request);
/* What is loaded lies beside what serves until all of it is there; on failure the node holds what it held
 * before. One exception: when both do not fit into memory, the checkpoint is verified first and then takes
 * the place of what was there; should it fail even so, `text` says that the node refuses data calls. Data
 * calls must not be let in meanwhile, but with names they may be. */
enum mr_status ps_control_restore(struct ps_control *c, const struct ps_restore_request *request,
                                  struct ps_restored *restored, char *text);
/* What the start went on from is a checkpoint that the next start would load, too: clients may forget the
 * pushes in it. */
void ps_control_durable(struct ps_control *c);
/* Waits for the save under way to end; what became of it. MR_OK when there is none. */
enum mr_status ps_control_save_wait(struct ps_control *c, char *text);
/* The save with which a node ends: no data call is let in from then on. Returns once it has ended. */
enum mr_status ps_control_save_last(struct ps_control *c, char *text);

#endif
