/* Trains tables of all optimizers and two variables, with calls that follow from the step's number alone, and
 * prints a hash of what came of it: the same bits on every architecture.
 *
 * usage: step_trainer ADDRESS create
 *        step_trainer ADDRESS train FIRST LAST
 *        step_trainer ADDRESS print STEP          a line for each feature: rows, with the optimizer's state
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>
#include "millrace.h"

#define CALL_MS          120000u
#define ROWS             512u
#define STEP_KEYS        64u
#define BAG_KEYS         4u
#define DIM_MOST         40u
#define VARIABLE_MOST    1200u
#define DENSE_TABLE      (MR_OPT_LAST + 0u)
#define F16_TABLE        (MR_OPT_LAST + 1u)
#define BF16_TABLE       (MR_OPT_LAST + 2u)
#define TABLES           (MR_OPT_LAST + 3u)
#define VARIABLES        2u
#define FEATURES         (TABLES + VARIABLES)
#define GRADIENTS_IN_ONE 65536.0f /* they are whole numbers of these */

static const uint32_t table_dims[TABLES] = {16, 12, 8, 33, 16, 24, 7, 16, 5, 10, 16, 40};

static struct mr_client *client;
static struct mr_feature features[FEATURES];
static uint32_t ids[FEATURES];

static void step_trainer_check(enum mr_status status)
{
    if (status == MR_OK)
        return;
    fprintf(stderr, "step_trainer: %s: %s\n", mr_status_text(status), mr_last_error());
    exit(1);
}

/* splitmix64's finalizer. */
static uint64_t mix(uint64_t z)
{
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static uint64_t row_key(uint64_t i)
{
    return mix(i + 1);
}

static void fill_gradients(float *out, size_t count, uint64_t seed)
{
    for (size_t i = 0; i < count; i++) {
        const int32_t whole = (int32_t)(mix(seed * 4096 + i) >> 46) - (1 << 17);
        out[i] = (float)whole / GRADIENTS_IN_ONE;
    }
}

static void describe_table(uint32_t t)
{
    static const uint32_t initializers[] = {MR_INIT_NORMAL, MR_INIT_TRUNCATED_NORMAL, MR_INIT_UNIFORM};
    char name[MR_NAME_BYTES];
    const enum mr_optimizer optimizer = t < MR_OPT_LAST    ? (enum mr_optimizer)(t + 1)
                                        : t == DENSE_TABLE ? MR_OPT_ADAM
                                        : t == F16_TABLE   ? MR_OPT_ADAGRAD
                                                           : MR_OPT_MOMENTUM;
    (void)snprintf(name, sizeof(name), "table_%u", t);
    struct mr_feature *f = &features[t];
    *f = mr_feature_table(name, table_dims[t]);
    mr_feature_set_optimizer(f, optimizer);
    f->seed = t;
    f->learning_rate = 0.05f;
    f->initializer = initializers[t % 3];
    f->init_a = t % 3 == 2 ? -0.3f : 0.01f;
    f->init_b = 0.3f;
    f->pooling = t % 2 == 0 ? MR_POOL_MEAN : MR_POOL_SQRTN;
    if (optimizer == MR_OPT_ASSIGN)
        return;
    if (t == DENSE_TABLE)
        f->optimizer_args[MR_OPTIMIZER_ARG_DENSE] = 1;
    else
        f->weight_decay = 0.01f;
    f->clip_value = t % 2 == 0 ? 1.5f : 0;
    f->clip_norm = t % 4 == 0 ? 2.0f : 0;
    f->schedule = t % 4; /* each of enum mr_schedule */
    if (f->schedule != MR_SCHEDULE_CONSTANT) {
        f->schedule_warmup_steps = 3;
        f->schedule_steps = 40;
        f->learning_rate_end = 0.001f;
    }
    if (t == F16_TABLE || t == BF16_TABLE)
        f->dtype = t == F16_TABLE ? MR_F16 : MR_BF16;
}

static void describe_features(void)
{
    for (uint32_t t = 0; t < TABLES; t++)
        describe_table(t);
    features[TABLES] = mr_feature_variable("variable_0", 2, (const uint32_t[]){40, 30});
    features[TABLES + 1] = mr_feature_variable("variable_1", 1, (const uint32_t[]){123});
    for (uint32_t v = 0; v < VARIABLES; v++) {
        struct mr_feature *f = &features[TABLES + v];
        mr_feature_set_optimizer(f, v == 0 ? MR_OPT_ADAMW : MR_OPT_MOMENTUM);
        f->learning_rate = 0.02f;
        f->weight_decay = 0.1f;
        f->initializer = MR_INIT_NORMAL;
        f->init_b = 0.1f;
    }
}

static uint32_t variable_elements(uint32_t v)
{
    return v == 0 ? 40 * 30 : 123;
}

/* Keys one by one, or in bags; in each type that gradients travel in. */
static void train_table(uint32_t t, uint64_t step)
{
    static const enum mr_dtype wire[] = {MR_F32, MR_F16, MR_BF16, MR_I8};
    const uint32_t dim = table_dims[t];
    const struct mr_options options = {
        .deadline_ms = CALL_MS, .step = step, .wire_dtype = wire[(step + t) % 4]};
    static float gradients[STEP_KEYS * DIM_MOST];
    uint64_t keys[STEP_KEYS];
    uint32_t offsets[STEP_KEYS / BAG_KEYS + 1];
    for (uint32_t i = 0; i < STEP_KEYS; i++)
        keys[i] = row_key(mix(step * STEP_KEYS + i) % ROWS);
    for (uint32_t i = 0; i <= STEP_KEYS / BAG_KEYS; i++)
        offsets[i] = i * BAG_KEYS;
    struct mr_reply *reply;
    step_trainer_check(mr_lookup(client, &options, ids[t], keys, STEP_KEYS, &reply)); /* makes the rows */
    mr_reply_free(reply);
    fill_gradients(gradients, (size_t)STEP_KEYS * dim, step * FEATURES + t);
    if (step % 2 == 0 || features[t].optimizer == MR_OPT_ASSIGN)
        step_trainer_check(mr_push_gradients(client, &options, ids[t], keys, STEP_KEYS, dim, gradients));
    else
        step_trainer_check(mr_push_gradients_bags(client, &options, ids[t], keys, NULL, offsets,
                                                  STEP_KEYS / BAG_KEYS, dim, gradients));
}

static void train(uint64_t first, uint64_t last)
{
    static float gradient[VARIABLE_MOST];
    for (uint64_t step = first; step <= last; step++) {
        for (uint32_t t = 0; t < TABLES; t++)
            train_table(t, step);
        for (uint32_t v = 0; v < VARIABLES; v++) {
            const struct mr_options options = {.deadline_ms = CALL_MS, .step = step};
            fill_gradients(gradient, variable_elements(v), step * FEATURES + TABLES + v);
            step_trainer_check(
                mr_variable_push_gradient(client, &options, ids[TABLES + v], variable_elements(v), gradient));
        }
    }
}

static uint64_t reply_hash(struct mr_reply *reply)
{
    const struct mr_tensor *tensor = mr_reply_tensor(reply, 0);
    const uint64_t hash = XXH3_64bits(tensor->data, tensor->bytes);
    mr_reply_free(reply);
    return hash;
}

static void print_table(uint32_t t, const struct mr_options *options)
{
    uint64_t keys[ROWS];
    uint32_t offsets[ROWS / BAG_KEYS + 1];
    float weights[ROWS];
    struct mr_reply *rows, *bags;
    for (uint32_t i = 0; i < ROWS; i++)
        keys[i] = row_key(i);
    for (uint32_t i = 0; i <= ROWS / BAG_KEYS; i++)
        offsets[i] = i * BAG_KEYS;
    fill_gradients(weights, ROWS, t);
    step_trainer_check(mr_get_rows(client, options, ids[t], keys, ROWS, true, &rows));
    step_trainer_check(
        mr_lookup_bags(client, options, ids[t], keys, weights, offsets, ROWS / BAG_KEYS, &bags));
    printf("%s rows %016llx", features[t].name, (unsigned long long)reply_hash(rows));
    printf(" bags %016llx\n", (unsigned long long)reply_hash(bags));
}

static void step_trainer_print(uint64_t step)
{
    const struct mr_options options = {.deadline_ms = CALL_MS, .step = step, .read_only = true};
    const struct mr_options all = {.deadline_ms = CALL_MS};
    for (uint32_t t = 0; t < TABLES; t++)
        print_table(t, &options);
    for (uint32_t v = 0; v < VARIABLES; v++) {
        struct mr_reply *reply;
        step_trainer_check(mr_variable_pull(client, &all, ids[TABLES + v], 0, 0, &reply));
        printf("%s %016llx\n", features[TABLES + v].name, (unsigned long long)reply_hash(reply));
    }
}

int main(int argc, char **argv)
{
    char error[512] = "";
    const bool is_create = argc == 3 && strcmp(argv[2], "create") == 0;
    const bool is_train = argc == 5 && strcmp(argv[2], "train") == 0;
    const bool is_print = argc == 4 && strcmp(argv[2], "print") == 0;
    if (!is_create && !is_train && !is_print) {
        fprintf(stderr, "usage: step_trainer ADDRESS create | train FIRST LAST | print STEP\n");
        return 2;
    }
    const struct mr_client_options options = {
        .server = argv[1], .connect_ms = CALL_MS, .deadline_ms = CALL_MS};
    if (mr_client_create(&options, &client, error, sizeof(error)) != MR_OK) {
        fprintf(stderr, "step_trainer: %s\n", error);
        return 1;
    }
    describe_features();
    step_trainer_check(mr_create(client, NULL, features, FEATURES, ids));
    if (is_train)
        train(strtoull(argv[3], NULL, 10), strtoull(argv[4], NULL, 10));
    if (is_print)
        step_trainer_print(strtoull(argv[3], NULL, 10));
    mr_client_destroy(client);
    return 0;
}
