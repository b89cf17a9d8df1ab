/* The trainer's connections, and the model's features on the server. */
#include "trainer_client/examples/fm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define CALL_DEADLINE_MS 5000u
#define CONNECT_MS       1000u
#define REPLAY_BYTES     (256u << 20) /* some thousand pushes */
#define PAUSE_US         20000u
#define EPSILON          1e-8f
#define START_MS         600000u /* the hub may read a large file through first */

uint64_t fm_now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

void fm_sleep_us(uint64_t us)
{
    struct timespec t = {.tv_sec = (time_t)(us / 1000000), .tv_nsec = (long)(us % 1000000) * 1000};
    nanosleep(&t, NULL);
}

bool fm_is_passing(enum mr_status status)
{
    switch (status) {
    case MR_DEADLINE_EXCEEDED:
    case MR_UNKNOWN_OUTCOME:
    case MR_UNREACHABLE:
    case MR_BUSY:
    case MR_UNKNOWN_BATCH:
    case MR_BATCH_EXPIRED:
    case MR_ALREADY_LEARNT:
    case MR_UNKNOWN_TABLE:
    case MR_UNKNOWN_VARIABLE:
    case MR_CHECKPOINT_RUNNING:
    case MR_NOT_STARTED:
    case MR_NOT_READY:
    case MR_ALREADY_STARTED: /* another plan comes first */
    case MR_SHUTTING_DOWN:
    case MR_WRONG_OWNER: /* the keys moved, or their node was away for long */
        return true;
    default:
        return false;
    }
}

void fm_made_progress(struct fm_client *c)
{
    uint64_t now_us = fm_now_us();
    if (now_us - c->progress_us > FM_AWAY_US)
        c->away_us += now_us - c->progress_us;
    c->progress_us = now_us;
}

bool fm_may_go_on(struct fm_client *c, enum mr_status status, const char *what)
{
    uint64_t silent_us = fm_now_us() - c->progress_us;
    const char *where = mr_last_error()[0] != '\0' ? mr_last_error() : mr_status_text(status);
    if (!fm_is_passing(status)) {
        fprintf(stderr, "fm: %s: %s\n", what, where);
        return false;
    }
    if (silent_us > (uint64_t)c->options->give_up_s * 1000000) {
        fprintf(stderr, "fm: no progress for %u s, giving up: %s: %s\n", c->options->give_up_s, what, where);
        return false;
    }
    fm_sleep_us(PAUSE_US);
    return true;
}

static bool connect_to(struct fm_client *c, const char *address, bool replay, struct mr_client **client)
{
    const struct mr_client_options options = {.server = address,
                                              .key_file = c->options->key_file,
                                              .connect_ms = CONNECT_MS,
                                              .deadline_ms = CALL_DEADLINE_MS,
                                              .replay = replay,
                                              .replay_bytes = REPLAY_BYTES};
    char error[400];
    for (;;) {
        enum mr_status status = mr_client_create(&options, client, error, sizeof(error));
        if (status == MR_OK)
            return true;
        bool late = fm_now_us() - c->progress_us > (uint64_t)c->options->give_up_s * 1000000;
        if (status != MR_UNREACHABLE || late) {
            fprintf(stderr, "fm: %s\n", error);
            *client = NULL;
            return false;
        }
    }
}

bool fm_connect_hub(struct fm_client *c, const struct fm_options *options)
{
    *c = (struct fm_client){.options = options, .progress_us = fm_now_us()};
    if (!connect_to(c, options->hub, false, &c->hub))
        return false;
    c->progress_us = fm_now_us();
    return true;
}

bool fm_connect(struct fm_client *c, const struct fm_options *options)
{
    if (!fm_connect_hub(c, options))
        return false;
    if (!connect_to(c, options->server, options->replay, &c->server)) {
        mr_client_destroy(c->hub);
        return false;
    }
    c->progress_us = fm_now_us();
    return true;
}

void fm_disconnect(struct fm_client *c)
{
    mr_client_destroy(c->hub);
    mr_client_destroy(c->server);
}

bool fm_start(struct fm_client *c, uint32_t part)
{
    struct mr_sample_plan plan = c->options->plan;
    const struct mr_options options = {.deadline_ms = START_MS};
    plan.part = part;
    plan.epochs = part == MR_PART_HELD_OUT ? 1 : plan.epochs;
    enum mr_status status;
    while ((status = mr_start_sample(c->hub, &options, &plan, &c->info)) != MR_OK)
        if (!fm_may_go_on(c, status, "StartSample"))
            return false;
    fm_made_progress(c);
    return true;
}

/* ---- the model's features on the server: a table of the keys' weights and factors, and a few variables
 * ---- */

/* What an optimizer takes when the command line says nothing; the meanings are in mr_feature.h. */
static void default_args(const struct fm_options *o, float args[6])
{
    switch (o->optimizer) {
    case MR_OPT_MOMENTUM:
        args[0] = 0.9f;
        break;
    case MR_OPT_ADAGRAD:
    case MR_OPT_ROWWISE_ADAGRAD:
        args[0] = o->initial_accumulator;
        args[1] = EPSILON;
        break;
    case MR_OPT_ADAM:
    case MR_OPT_ADAMW:
        args[0] = 0.9f;
        args[1] = 0.999f;
        args[2] = EPSILON;
        break;
    case MR_OPT_FTRL:
    case MR_OPT_GROUP_FTRL:
        args[0] = o->initial_accumulator;
        args[1] = 1.0f;
        break;
    default:
        break;
    }
}

static void set_optimizer(const struct fm_options *o, struct mr_feature *f)
{
    f->optimizer = o->optimizer;
    f->learning_rate = o->learning_rate;
    memset(f->optimizer_args, 0, sizeof(f->optimizer_args));
    if (o->optimizer_arg_count > 0)
        memcpy(f->optimizer_args, o->optimizer_args, o->optimizer_arg_count * sizeof(float));
    else
        default_args(o, f->optimizer_args);
}

/* Bias and dense weights are no rows: they learn by Adagrad whatever the table does, and as fast as it would
 * by default. */
static struct mr_feature make_variable(const struct fm_options *o, const char *suffix, uint32_t elements)
{
    char name[2 * MR_NAME_BYTES];
    snprintf(name, sizeof(name), "%.50s.%s", o->plan.table, suffix);
    struct mr_feature v = mr_feature_variable(name, 1, &elements);
    v.optimizer = MR_OPT_ADAGRAD;
    v.learning_rate = o->optimizer == MR_OPT_ADAGRAD ? o->learning_rate : FM_LEARNING_RATE;
    v.optimizer_args[0] = o->initial_accumulator;
    v.optimizer_args[1] = EPSILON;
    return v;
}

static struct mr_feature make_table(const struct fm_options *o)
{
    struct mr_feature t = mr_feature_table(o->plan.table, 1 + o->factors);
    if (o->initial_deviation > 0) {
        t.initializer = MR_INIT_NORMAL;
        t.init_b = o->initial_deviation;
    }
    t.seed = 1;
    set_optimizer(o, &t);
    t.weight_decay = o->weight_decay;
    return t;
}

/* Counts in plain steps of one: a gradient of -1 under SGD with learning rate 1 adds 1. */
static struct mr_feature make_ledger(const struct fm_options *o, uint32_t elements)
{
    struct mr_feature v = make_variable(o, "ledger", elements);
    v.optimizer = MR_OPT_SGD;
    v.learning_rate = 1;
    memset(v.optimizer_args, 0, sizeof(v.optimizer_args));
    return v;
}

static uint32_t ledger_elements(const struct mr_sample_info *info)
{
    return info->batches < FM_LEDGER_MAX ? (uint32_t)info->batches : FM_LEDGER_MAX;
}

bool fm_create(struct fm_client *c)
{
    const struct fm_options *o = c->options;
    struct mr_feature features[4];
    uint32_t ids[4], count = 0, dense = 0, ledger = 0;
    features[count++] = make_table(o);
    features[count++] = make_variable(o, "bias", 1);
    if (c->info.dense > 0) {
        dense = count;
        features[count] = make_variable(o, "dense", c->info.dense);
        /* They all move in every batch: together no faster than one weight of a key. */
        features[count++].learning_rate /= (float)c->info.dense;
    }
    if (o->ledger && c->info.batches > 0) {
        ledger = count;
        features[count++] = make_ledger(o, ledger_elements(&c->info));
    }
    enum mr_status status;
    while ((status = mr_create(c->server, NULL, features, count, ids)) != MR_OK)
        if (!fm_may_go_on(c, status, "Create"))
            return false;
    c->features = (struct fm_features){.table = ids[0],
                                       .bias = ids[1],
                                       .dense = dense > 0 ? ids[dense] : 0,
                                       .ledger = ledger > 0 ? ids[ledger] : 0,
                                       .ledger_elements = ledger > 0 ? ledger_elements(&c->info) : 0};
    return true;
}

static void note_feature(struct fm_features *f, const char *table, const struct mr_feature_info *info)
{
    const char *name = info->feature.name;
    size_t bytes = strlen(table);
    if (strncmp(name, table, bytes) != 0)
        return;
    if (name[bytes] == '\0') {
        f->table = info->id;
    } else if (strcmp(name + bytes, ".bias") == 0) {
        f->bias = info->id;
    } else if (strcmp(name + bytes, ".dense") == 0) {
        f->dense = info->id;
    } else if (strcmp(name + bytes, ".ledger") == 0) {
        f->ledger = info->id;
        f->ledger_elements = info->feature.dims[0];
    }
}

bool fm_find(struct fm_client *c)
{
    struct mr_feature_info *infos;
    uint32_t count;
    enum mr_status status;
    while ((status = mr_list(c->server, NULL, &infos, &count)) != MR_OK)
        if (!fm_may_go_on(c, status, "List"))
            return false;
    c->features = (struct fm_features){0};
    for (uint32_t i = 0; i < count; i++)
        note_feature(&c->features, c->options->plan.table, &infos[i]);
    free(infos);
    if (c->features.table == 0 || c->features.bias == 0) {
        fprintf(stderr, "fm: %s has no model named '%s'; train one first\n", c->options->server,
                c->options->plan.table);
        return false;
    }
    return true;
}
