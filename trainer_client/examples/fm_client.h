/* What the subcommands of `fm` have in common: connections that wait for the other side, the model's features
 * by name, and telling a passing trouble from a mistake. */
#ifndef EXAMPLES_FM_CLIENT_H
#define EXAMPLES_FM_CLIENT_H

#include <stdbool.h>
#include <stdint.h>
#include "trainer_client/examples/fm_options.h"

#define FM_LEDGER_MAX 4096u /* elements; batches beyond share them */

struct fm_features {
    uint32_t table, bias;
    uint32_t dense, ledger; /* 0 = none */
    uint32_t ledger_elements;
};

struct fm_client {
    const struct fm_options *options;
    struct mr_client *server, *hub;
    struct mr_sample_info info;
    struct fm_features features;
    uint64_t progress_us; /* when something last went well */
    uint64_t away_us;     /* sum of the times in which nothing did, each above FM_AWAY_US */
};

#define FM_AWAY_US 100000u

uint64_t fm_now_us(void);
void fm_sleep_us(uint64_t us);

/* Connects to both, or to the hub alone; waits for them for up to give_up_s. Says what is wrong and returns
 * false otherwise. */
bool fm_connect(struct fm_client *c, const struct fm_options *options);
bool fm_connect_hub(struct fm_client *c, const struct fm_options *options);
void fm_disconnect(struct fm_client *c);
/* Start or join the plan's part. Waits for the hub like fm_connect(). */
bool fm_start(struct fm_client *c, uint32_t part);
/* Make the features on the server, the same again being fine; c->info must be known. */
bool fm_create(struct fm_client *c);
/* Find those that a trainer made. */
bool fm_find(struct fm_client *c);

/* Whether it may go well a little later: the other side is away, restarts, or is busy. */
bool fm_is_passing(enum mr_status status);
void fm_made_progress(struct fm_client *c);
/* After a failed call: says what failed and returns false when it was a mistake, or when there was no
 * progress for give_up_s; else waits a little and returns true. */
bool fm_may_go_on(struct fm_client *c, enum mr_status status, const char *what);

#endif
