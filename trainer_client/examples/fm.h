/* What the files of `fm` share: its options, its connections, one batch on its way, its subcommands. */
#ifndef EXAMPLES_FM_H
#define EXAMPLES_FM_H

#include <stdbool.h>
#include <stdint.h>
#include "dataplane/wire/base/trace.h"
#include "millrace.h"

#define FM_LEARNING_RATE 0.05f /* of Adagrad */

struct fm_options {
    const char *hub, *server, *key_file, *trace;
    struct mr_sample_plan plan;
    uint32_t factors;   /* 0: logistic regression */
    uint32_t optimizer; /* enum mr_optimizer, of the table */
    float optimizer_args[6];
    uint32_t optimizer_arg_count; /* 0: the defaults */
    float learning_rate, weight_decay, initial_accumulator, initial_deviation;
    enum mr_dtype wire_dtype; /* of rows and their gradients on the wire */
    uint32_t pipeline;        /* batches in flight */
    uint32_t save_every;      /* steps; 0 = never */
    uint32_t pause_after;     /* steps; 0 = never */
    uint32_t give_up_s;       /* without any progress */
    uint64_t until_applied;   /* `fm wait` */
    bool replay;              /* of the server's client, see millrace.h */
    bool ledger, quiet;
    bool logistic_regression;
};

/* ---- fm_client.c: connections that wait for the other side, and the model's features by name ---- */

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
    struct mr_trace *trace; /* NULL: none */
    uint64_t progress_us;   /* when something last went well */
    uint64_t away_us;       /* sum of the times in which nothing did, each above FM_AWAY_US */
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

/* ---- fm_step.c: one batch on its way through a trainer: lookups, gradients, push, all as futures ---- */

struct fm_step {
    struct mr_batch batch;
    struct mr_future *lookup, *bias, *dense, *push;
    bool applied; /* the push's answer */
    /* arrays that grow as needed and are used again */
    float *gradient, *dense_gradient, *ledger_gradient;
    uint64_t gradient_floats;
};

void fm_step_free(struct fm_step *s);
/* Ask for the parameters of s->batch. On failure nothing is in flight. */
enum mr_status fm_step_begin(struct fm_step *s, struct fm_client *c);
/* Wait for them. `*pooled` [samples, slots, 1 + factors], `*bias` and `*dense` [dense] (NULL when there are
 * none) own the views and are set on success only. */
enum mr_status fm_step_parameters(struct fm_step *s, struct mr_reply **pooled, struct mr_reply **bias,
                                  struct mr_reply **dense);
/* Wait for the parameters, compute, and begin the push of the gradients. `*loss` is the sum over the
 * samples. */
enum mr_status fm_step_push(struct fm_step *s, struct fm_client *c, uint64_t step, double *loss);
/* Wait for the push. */
enum mr_status fm_step_end(struct fm_step *s);
/* Drop whatever is in flight, and the batch. */
void fm_step_drop(struct fm_step *s);

/* ---- the subcommands; each returns the program's exit code ---- */

int fm_plan(const struct fm_options *options);
int fm_train(const struct fm_options *options);
int fm_evaluate(const struct fm_options *options);
int fm_record(const struct fm_options *options);
int fm_wait(const struct fm_options *options);

#endif
