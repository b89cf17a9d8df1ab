/* Checkpoints in the simulator: a whole node (cores, control thread, writer, restore) and trainers, all the
 * real code, as fibers under a virtual clock (fiber.h), over a simulated network (cuts_net.h). Trainers push
 * to rows on different cores without a pause while checkpoints are cut and the node is killed and comes back,
 * with another number of cores. In some worlds trainers keep too little for a replay, somebody restores a
 * checkpoint in the middle, or puts an older copy of the directory back; a second job makes tables that no
 * checkpoint may hold, alters them and drops them.
 *
 *   cuts.c          command line; a process for each seed
 *   cuts_world.c    what kind of world a seed is; the node's life, saves, and what disturbs them
 *   cuts_pusher.c   what trainers do, and what must be true of their rows
 *   cuts_losses.c   the losses reported to a trainer
 *   cuts_visitor.c  the second job
 *   cuts_net.c     the network, and the library's sockets
 *   cuts_dp.c      the data plane
 *   fiber.c        threads that take turns; fiber_wraps.c: behind the calls of the C library
 *
 * A trainer adds the same to all rows of one of its groups per push, and waits for the answer. So a row tells
 * how many pushes it has, by a plain model of one row (cuts_row_value).
 */
#ifndef SIM_CUTS_H
#define SIM_CUTS_H

#include <stdbool.h>
#include <stdint.h>
#include "dataplane/wire/format/mr_feature.h"
#include "tests/sim/cuts/fiber.h"
#include "trainer_client/millrace.h"

enum {
    CUTS_PUSHERS_MAX = 4,
    CUTS_GROUPS_MAX = 16,
    CUTS_GROUP_KEYS_MAX = 6,
    CUTS_KEYS_MAX = CUTS_GROUPS_MAX * CUTS_GROUP_KEYS_MAX,
    CUTS_PUSHES_MAX = 400,
    CUTS_DIM_MAX = 512,
    CUTS_LAST_MAX = 2 * CUTS_GROUPS_MAX, /* pushes after the last restart, two to each group */
    CUTS_STEPS_MAX = CUTS_PUSHES_MAX + CUTS_LAST_MAX,
    CUTS_COUNT_MAX = CUTS_PUSHES_MAX / 4 + 4, /* pushes to one group at most: there are 4 groups at least */
    CUTS_VISITORS = 3,
};

/* What trainers do; drawn, and then only read. */
struct cuts_work {
    struct mr_feature feature;
    uint32_t pushers, pushes, groups, group_keys; /* pushes: of each */
    uint32_t pause_ns;                            /* between two pushes at most */
    uint32_t replay_bytes;                        /* 0: enough for all of them */
    bool loses;                                   /* pushes may be lost: then they are reported */
};

/* How often what happened to the node. */
struct cuts_disturbed {
    uint32_t crashes, put_backs;
    uint32_t restores; /* begun or ended: odd while there is one */
};

/* What visitors did to features. A table that was dropped must not be there after any start, as long as
 * nobody has restored or put back something since. */
void cuts_note_drop(uint32_t table, const struct cuts_disturbed *since);
void cuts_note_alter(void);
/* Whether that holds. */
bool cuts_is_kept(const struct cuts_disturbed *since);

/* The steps of pushes that were reported to a trainer as lost. */
struct cuts_losses {
    bool steps[CUTS_STEPS_MAX + 2];
    uint32_t reports;
};

struct cuts_pusher {
    const struct cuts_work *work;
    struct mr_client *client;
    struct fiber *fiber;
    uint32_t index, table;
    uint64_t keys[CUTS_KEYS_MAX];          /* group after group */
    uint64_t begun_ns[CUTS_STEPS_MAX + 2]; /* by push, from 1; 0: not yet */
    uint64_t ended_ns[CUTS_STEPS_MAX + 2]; /* answered by all cores */
    uint64_t step;                         /* the push it is at */
    bool has_ended;
    struct cuts_losses losses;
    uint32_t last[CUTS_KEYS_MAX]; /* pushes that its rows had after the last restart */
};

/* Ends the process: this seed has failed. */
__attribute__((noreturn, format(printf, 1, 2))) void cuts_fail(const char *format, ...);
void cuts_expect_ok(enum mr_status status, const char *what);

/* ---- cuts_world.c ---- */

struct cuts_disturbed cuts_disturbed(void);
bool cuts_training_has_ended(void);

/* ---- cuts_losses.c ---- */

/* A push was not sent because others are lost, as mr_last_error() says. */
void cuts_losses_note(struct cuts_losses *losses);

/* ---- cuts_visitor.c ---- */

/* Starts a job of its own, which makes tables under names of its own, pushes to them, and sees that they have
 * exactly that. It ends with the training. */
struct fiber *cuts_visitor_start(const struct mr_feature *like, uint32_t index);

/* ---- cuts_pusher.c ---- */

/* The row after so many pushes: any float of it. */
float cuts_row_value(uint32_t count);
void cuts_rows_begin(const struct mr_feature *feature);
struct mr_client *cuts_connect(bool replay, uint32_t replay_bytes);
/* How many pushes a row has. */
uint32_t cuts_count_of(const float *row, uint32_t dim, const char *whose, uint32_t key);
/* A client that has made its rows; and then pushes. */
void cuts_pusher_create(struct cuts_pusher *p, const struct cuts_work *work, uint32_t index, uint32_t table);
void cuts_pusher_start(struct cuts_pusher *p);
/* What one trainer has in a checkpoint: pushes 1..whole, and of the next one a share of its rows. */
struct cuts_instant {
    uint64_t whole;
    uint32_t share;
};
/* Its rows by `client` (its own, or any other). Each is what the model says; all together they are an instant
 * of this trainer. */
struct cuts_instant cuts_read(const struct cuts_pusher *p, struct mr_client *client);
/* Two more pushes to each group, whose answers tell of everything that is lost; then what is in its rows is
 * noted in `last`. */
void cuts_pusher_end(struct cuts_pusher *p);
/* `last` holds every push that was begun at from_ns or later and is not among the losses, and no push more
 * often than it was made. */
void cuts_check_losses(const struct cuts_pusher *p, uint64_t from_ns);
/* A restore by hand that began at from_ns and was over at to_ns brought the rows that `client` reads now:
 * `last` is that, and what was pushed afterwards, and nothing of what had been answered before it. */
void cuts_check_restored(const struct cuts_pusher *p, struct mr_client *client, uint64_t from_ns,
                         uint64_t to_ns);
/* As many pushes as some row of it has, of which `whole` cannot be told: rows are what the model says, and no
 * push is there twice. */
void cuts_read_loosely(const struct cuts_pusher *p, struct mr_client *client);
/* All trainers' together are one instant: what had been answered before anything in it was begun is in it. */
void cuts_check_instant(const struct cuts_pusher *pushers, const struct cuts_instant *instants);

#endif
