/* A lookup or push by key: from what the caller gave to each core's request, and from the cores' answers to
 * one.
 *
 * Gradients go, and rows come, in the options' wire_dtype; callers see f32. */
#ifndef MRC_ROWS_CALL_H
#define MRC_ROWS_CALL_H

#include "trainer_client/api/calls.h"

/* What a call is about, while it is being made. */
struct mrc_rows_call {
    struct mr_client *client;
    const struct mr_options *options;
    enum mr_op op;
    uint32_t table;
    const uint64_t *keys;
    uint32_t key_count;
    const uint32_t *offsets; /* NULL: no bags */
    uint32_t bag_count;
    const float *weights;   /* of keys in bags; NULL: none */
    uint32_t dim;           /* pushes */
    const float *gradients; /* pushes; NULL: lookup */
    /* mrc_rows_run()'s own; zero to begin with */
    enum mr_dtype dtype; /* of rows in messages */
    bool averages;       /* several cores, and bags are divided by something */
    uint32_t pooling;    /* enum mr_pooling; several cores */
    struct mrc_attempt attempt;
};

/* The arguments have been checked. reply: as of the public calls. */
enum mr_status mrc_rows_run(struct mrc_rows_call *c, struct mr_reply **reply);

#endif
