/* What a real node computes, against a model of tables and optimizers written here from the definitions
 * alone, in double precision. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>
#include "millrace_admin.h"
#include "tests/integration/node_fixture.h"
#include "tests/test.h"

enum {
    DIM = 6,
    KEYS = 150,
    PUSHES = 8,
    KEYS_PER_PUSH = 220,
    SAMPLES = 15,
    SLOTS = 4,
    BAGS = SAMPLES * SLOTS
};

#define TOLERANCE 2e-5

static uint32_t cores; /* of this run */

struct fixture {
    struct node_fixture node;
    struct mr_client *client;
};

static int set_up(void **state)
{
    static struct fixture x;
    node_fixture_start(&x.node, cores, NULL);
    x.client = node_fixture_connect(&x.node);
    *state = &x;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *x = *state;
    mr_client_destroy(x->client);
    node_fixture_stop(&x->node);
    return 0;
}

/* xorshift64* (Vigna, 2016). */
static uint64_t random_number(uint64_t *state)
{
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * 0x2545f4914f6cdd1du;
}

static float random_gradient(uint64_t *state)
{
    return (float)(int64_t)(random_number(state) >> 40) * 0x1p-22f - 2.0f;
}

static uint64_t key_of(uint32_t index)
{
    return (uint64_t)index * 0x9e3779b97f4a7c15u;
}

static uint32_t values_create(struct fixture *x, const struct mr_feature *feature)
{
    uint32_t id;
    assert_int_equal(mr_create(x->client, NULL, feature, 1, &id), MR_OK);
    return id;
}

static void look_up(struct fixture *x, uint32_t table, const uint64_t *keys, uint32_t count, float *rows)
{
    struct mr_reply *reply;
    assert_int_equal(mr_lookup(x->client, NULL, table, keys, count, &reply), MR_OK);

    const struct mr_tensor *t = mr_reply_tensor(reply, 0);

    assert_int_equal(t->rank, 2);
    assert_int_equal(t->dims[0], count);
    assert_int_equal(t->dims[1], DIM);
    memcpy(rows, t->data, t->bytes);
    mr_reply_free(reply);
}

/* ---- first values ---- */

/* The definition, once more: splitmix64 from the hash of the key under the inverted seed, 32 bits an
 * element. */
static uint32_t defined_bits(const struct mr_feature *f, uint64_t key, uint32_t element)
{
    uint64_t z = XXH3_64bits_withSeed(&key, sizeof(key), ~f->seed) + (element / 2 + 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    z ^= z >> 31;
    return (uint32_t)(element % 2 == 0 ? z : z >> 32);
}

static double normal_share_below(double z)
{
    return 0.5 * erfc(-z / sqrt(2.0));
}

static void check_first_value(const struct mr_feature *f, uint64_t key, uint32_t element, float value)
{
    uint32_t bits = defined_bits(f, key, element);
    double a = (double)f->init_a, b = (double)f->init_b, got = (double)value;
    double share = ((double)bits + 0.5) * 0x1p-32;
    switch (f->initializer) {
    case MR_INIT_CONSTANT:
        assert_true(value == f->init_a);
        break;
    case MR_INIT_UNIFORM:
        assert_true(value >= f->init_a && value <= f->init_b);
        assert_true(fabs(got - (a + (b - a) * share)) < 1e-6 * (fabs(a) + fabs(b)));
        break;
    case MR_INIT_NORMAL:
        assert_true(fabs(normal_share_below((got - a) / b) - share) < 1e-6);
        break;
    default: /* cut at two deviations: the share lies between those of the cuts */
        assert_true(fabs(got - a) <= 2.000001 * b);
        share = normal_share_below(-2) + (1 - 2 * normal_share_below(-2)) * share;
        assert_true(fabs(normal_share_below((got - a) / b) - share) < 1e-6);
        break;
    }
}

/* By batch, one key a bag, in the opposite order. */
static void look_up_backwards(struct fixture *x, uint32_t table, uint64_t batch_id, bool read_only,
                              float *rows)
{
    uint64_t keys[KEYS];
    uint32_t offsets[KEYS + 1];
    struct mr_batch_keys batch = {table, KEYS, 1, keys, offsets, NULL};
    struct mr_reply *reply;
    for (uint32_t i = 0; i <= KEYS; i++)
        offsets[i] = i;
    for (uint32_t i = 0; i < KEYS; i++)
        keys[i] = key_of(KEYS - 1 - i);
    assert_int_equal(mr_feed_sample(x->client, NULL, batch_id, &batch, 1, read_only), MR_OK);
    assert_int_equal(mr_lookup_batch(x->client, NULL, batch_id, table, &reply), MR_OK);

    const float *values = mr_reply_tensor(reply, 0)->data;

    for (uint32_t i = 0; i < KEYS; i++)
        memcpy(rows + i * DIM, values + (KEYS - 1 - i) * DIM, DIM * sizeof(*rows));
    mr_reply_free(reply);
}

static void look_up_read_only(struct fixture *x, uint32_t table, const uint64_t *keys, uint32_t count,
                              float *rows)
{
    struct mr_options options = {.read_only = true};
    struct mr_feature_info *infos;
    struct mr_reply *reply;
    uint32_t infos_count;
    assert_int_equal(mr_lookup(x->client, &options, table, keys, count, &reply), MR_OK);
    memcpy(rows, mr_reply_tensor(reply, 0)->data, mr_reply_tensor(reply, 0)->bytes);
    mr_reply_free(reply);
    assert_int_equal(mr_list(x->client, NULL, &infos, &infos_count), MR_OK);
    for (uint32_t i = 0; i < infos_count; i++)
        assert_true(infos[i].id != table || infos[i].rows == 0);
    free(infos);
}

static void check_first_values(struct fixture *x, uint32_t initializer, uint64_t batch_id)
{
    struct mr_feature f = mr_feature_table("", DIM);
    uint64_t keys[KEYS];
    float by_key[KEYS * DIM], by_batch[KEYS * DIM], kept[KEYS * DIM];
    snprintf(f.name, sizeof(f.name), "first.%u", initializer);
    f.initializer = initializer;
    f.init_a = -0.5f;
    f.init_b = 1.25f;
    f.seed = 99 + initializer;
    for (uint32_t i = 0; i < KEYS; i++)
        keys[i] = key_of(i);

    uint32_t table = values_create(x, &f);

    look_up_read_only(x, table, keys, KEYS, by_key);
    assert_int_equal(mr_freeze(x->client, NULL, 1), MR_OK);
    look_up(x, table, keys, KEYS, kept);
    assert_memory_equal(by_key, kept, sizeof(by_key));
    look_up_backwards(x, table, batch_id, true, by_batch);
    assert_int_equal(mr_freeze(x->client, NULL, 0), MR_OK);
    look_up_backwards(x, table, batch_id + 1, false, kept); /* makes the rows */
    assert_memory_equal(by_key, by_batch, sizeof(by_key));
    assert_memory_equal(by_key, kept, sizeof(by_key));
    look_up(x, table, keys, KEYS, kept);
    assert_memory_equal(by_key, kept, sizeof(by_key));
    for (uint32_t i = 0; i < KEYS * DIM; i++)
        check_first_value(&f, keys[i / DIM], i % DIM, by_key[i]);
    assert_int_equal(mr_forget_batches(x->client, NULL, (uint64_t[]){batch_id + 1}, 1), MR_OK);
}

TEST(test_first_values, set_up, tear_down)
{
    for (uint32_t kind = MR_INIT_CONSTANT; kind <= MR_INIT_TRUNCATED_NORMAL; kind++)
        check_first_values(*state, kind, (uint64_t)kind << 48);
}

/* ---- the optimizers' model ---- */

struct model {
    struct mr_feature feature;
    double rows[KEYS][DIM], state[KEYS][DIM];
    double sums[KEYS][DIM]; /* gradients of the push in flight */
    bool touched[KEYS];
};

static void model_add(struct model *m, uint32_t index, const float *gradient, double share)
{
    m->touched[index] = true;
    for (uint32_t d = 0; d < DIM; d++)
        m->sums[index][d] += share * (double)gradient[d];
}

static void model_step(const struct mr_feature *f, double *values, double *state, double *g, uint32_t count)
{
    double norm = 0, scale = 1, rate = (double)f->learning_rate;
    for (uint32_t d = 0; d < count && f->clip_value > 0; d++)
        g[d] = fmax(fmin(g[d], (double)f->clip_value), -(double)f->clip_value);
    for (uint32_t d = 0; d < count; d++)
        norm += g[d] * g[d];
    norm = sqrt(norm);
    if (f->clip_norm > 0 && norm > (double)f->clip_norm)
        scale = (double)f->clip_norm / norm;
    for (uint32_t d = 0; d < count; d++) {
        double gradient = g[d] * scale + (double)f->weight_decay * values[d];
        if (f->optimizer == MR_OPT_ADAGRAD) {
            state[d] += gradient * gradient;
            gradient /= sqrt(state[d]) + (double)f->optimizer_args[1];
        }
        values[d] -= rate * gradient;
    }
}

static void model_end_push(struct model *m)
{
    for (uint32_t k = 0; k < KEYS; k++)
        if (m->touched[k])
            model_step(&m->feature, m->rows[k], m->state[k], m->sums[k], DIM);
    memset(m->sums, 0, sizeof(m->sums));
    memset(m->touched, 0, sizeof(m->touched));
}

static void check_close(double got, double expected)
{
    if (!(fabs(got - expected) <= TOLERANCE * (1 + fabs(expected))))
        fail_msg("%.9g is not %.9g", got, expected);
}

static void check_rows(struct fixture *x, uint32_t table, const struct model *m)
{
    uint64_t keys[KEYS];
    float rows[KEYS * DIM];
    for (uint32_t i = 0; i < KEYS; i++)
        keys[i] = key_of(i);
    look_up(x, table, keys, KEYS, rows);
    for (uint32_t i = 0; i < KEYS * DIM; i++)
        check_close((double)rows[i], m->rows[i / DIM][i % DIM]);
}

static uint32_t begin_model(struct fixture *x, struct model *m, const struct mr_feature *feature)
{
    uint64_t keys[KEYS];
    float rows[KEYS * DIM];
    uint32_t table = values_create(x, feature);
    memset(m, 0, sizeof(*m));
    m->feature = *feature;
    for (uint32_t i = 0; i < KEYS; i++)
        keys[i] = key_of(i);
    look_up(x, table, keys, KEYS, rows); /* that these are right is another test's */
    for (uint32_t i = 0; i < KEYS * DIM; i++) {
        m->rows[i / DIM][i % DIM] = (double)rows[i];
        m->state[i / DIM][i % DIM] = (double)feature->optimizer_args[0];
    }
    return table;
}

/* Keys of which most come several times. */
static void push_keys(struct fixture *x, uint32_t table, struct model *m, uint64_t *random)
{
    uint64_t keys[KEYS_PER_PUSH];
    float gradients[KEYS_PER_PUSH * DIM];
    for (uint32_t i = 0; i < KEYS_PER_PUSH; i++) {
        uint32_t index = (uint32_t)(random_number(random) % (KEYS / 2));
        keys[i] = key_of(index);
        for (uint32_t d = 0; d < DIM; d++)
            gradients[i * DIM + d] = random_gradient(random);
        model_add(m, index, gradients + i * DIM, 1);
    }
    model_end_push(m);
    assert_int_equal(mr_push_gradients(x->client, NULL, table, keys, KEYS_PER_PUSH, DIM, gradients), MR_OK);
}

struct bags {
    uint64_t keys[BAGS * 4];
    uint32_t indices[BAGS * 4], offsets[BAGS + 1];
    float gradients[BAGS * DIM];
};

/* Bags of none to three keys, the same key twice in one among them. */
static void make_bags(struct bags *b, uint64_t *random)
{
    uint32_t count = 0;
    b->offsets[0] = 0;
    for (uint32_t i = 0; i < BAGS; i++) {
        for (uint64_t n = random_number(random) % 4; n > 0; n--, count++) {
            b->indices[count] = (uint32_t)(random_number(random) % KEYS);
            b->keys[count] = key_of(b->indices[count]);
        }
        if (i % 10 == 9 && count > 0) {
            b->indices[count] = b->indices[count - 1];
            b->keys[count] = key_of(b->indices[count]);
            count++;
        }
        b->offsets[i + 1] = count;
        for (uint32_t d = 0; d < DIM; d++)
            b->gradients[i * DIM + d] = random_gradient(random);
    }
}

static double share_of(const struct model *m, uint32_t keys_in_bag)
{
    switch (m->feature.pooling) {
    case MR_POOL_MEAN:
        return 1.0 / keys_in_bag;
    case MR_POOL_SQRTN:
        return 1.0 / sqrt(keys_in_bag);
    default:
        return 1;
    }
}

static void check_bags(const struct model *m, const struct bags *b, const float *values)
{
    for (uint32_t i = 0; i < BAGS * DIM; i++) {
        uint32_t bag = i / DIM, begin = b->offsets[bag], end = b->offsets[bag + 1];
        double sum = 0;
        for (uint32_t k = begin; k < end; k++)
            sum += share_of(m, end - begin) * m->rows[b->indices[k]][i % DIM];
        check_close((double)values[i], sum);
    }
}

static void model_add_bags(struct model *m, const struct bags *b)
{
    for (uint32_t i = 0; i < BAGS; i++) {
        uint32_t begin = b->offsets[i], end = b->offsets[i + 1];
        for (uint32_t k = begin; k < end; k++)
            model_add(m, b->indices[k], b->gradients + i * DIM, share_of(m, end - begin));
    }
    model_end_push(m);
}

static void push_bags(struct fixture *x, uint32_t table, struct model *m, uint64_t *random)
{
    static struct bags b;
    struct mr_reply *reply;
    make_bags(&b, random);
    assert_int_equal(mr_lookup_bags(x->client, NULL, table, b.keys, NULL, b.offsets, BAGS, &reply), MR_OK);
    check_bags(m, &b, mr_reply_tensor(reply, 0)->data);
    mr_reply_free(reply);
    assert_int_equal(
        mr_push_gradients_bags(x->client, NULL, table, b.keys, NULL, b.offsets, BAGS, DIM, b.gradients),
        MR_OK);
    model_add_bags(m, &b);
}

/* Twice by everybody: the second changes nothing. */
static void push_batch(struct fixture *x, uint32_t table, struct model *m, uint64_t batch_id,
                       uint64_t *random)
{
    static struct bags b;
    struct mr_batch_keys keys = {table, SAMPLES, SLOTS, b.keys, b.offsets, NULL};
    struct mr_batch_gradient gradient = {table, mr_tensor_3d(MR_F32, SAMPLES, SLOTS, DIM, b.gradients)};
    struct mr_reply *reply;
    bool applied;
    make_bags(&b, random);
    assert_int_equal(mr_feed_sample(x->client, NULL, batch_id, &keys, 1, false), MR_OK);
    assert_int_equal(mr_lookup_batch(x->client, NULL, batch_id, table, &reply), MR_OK);
    check_bags(m, &b, mr_reply_tensor(reply, 0)->data);
    mr_reply_free(reply);
    for (uint32_t time = 0; time < 2; time++) {
        applied = time == 1;
        assert_int_equal(mr_push_gradients_batch(x->client, NULL, batch_id, &gradient, 1, &applied), MR_OK);
        assert_int_equal(applied, time == 0);
    }
    model_add_bags(m, &b);
}

static void check_pushes(struct fixture *x, const struct mr_feature *feature, uint64_t first_batch)
{
    static struct model m;
    uint64_t random = 0x1234567 + first_batch;
    uint32_t table = begin_model(x, &m, feature);
    for (uint32_t n = 0; n < PUSHES; n++) {
        push_keys(x, table, &m, &random);
        check_rows(x, table, &m);
        push_bags(x, table, &m, &random);
        check_rows(x, table, &m);
        push_batch(x, table, &m, first_batch + n, &random);
        check_rows(x, table, &m);
    }
}

static struct mr_feature learning(const char *name, uint32_t optimizer)
{
    struct mr_feature f = mr_feature_table(name, DIM);
    f.initializer = MR_INIT_UNIFORM;
    f.init_a = -1;
    f.init_b = 1;
    f.seed = 5;
    f.optimizer = optimizer;
    f.learning_rate = 0.05f;
    if (optimizer == MR_OPT_ADAGRAD)
        f.optimizer_args[0] = 0.1f;
    return f;
}

TEST(test_sgd, set_up, tear_down)
{
    struct mr_feature plain = learning("sgd", MR_OPT_SGD), more = learning("sgd.more", MR_OPT_SGD);
    check_pushes(*state, &plain, UINT64_C(1) << 48);
    more.weight_decay = 0.02f;
    more.clip_value = 1.5f;
    more.clip_norm = 2;
    check_pushes(*state, &more, UINT64_C(2) << 48);
}

TEST(test_adagrad, set_up, tear_down)
{
    struct mr_feature plain = learning("adagrad", MR_OPT_ADAGRAD),
                      more = learning("adagrad.more", MR_OPT_ADAGRAD);
    check_pushes(*state, &plain, UINT64_C(3) << 48);
    more.weight_decay = 0.02f;
    more.clip_norm = 2;
    check_pushes(*state, &more, UINT64_C(4) << 48);
}

TEST(test_poolings, set_up, tear_down)
{
    struct mr_feature mean = learning("mean", MR_OPT_ADAGRAD), root = learning("sqrtn", MR_OPT_SGD);
    mean.pooling = MR_POOL_MEAN;
    root.pooling = MR_POOL_SQRTN;
    check_pushes(*state, &mean, UINT64_C(5) << 48);
    check_pushes(*state, &root, UINT64_C(6) << 48);
}

TEST(test_gradients_that_are_no_numbers, set_up, tear_down)
{
    struct fixture *x = *state;
    struct mr_feature f = learning("nan", MR_OPT_ADAGRAD);
    uint64_t keys[2] = {key_of(1), key_of(2)};
    float before[2 * DIM], after[2 * DIM], gradients[2 * DIM];
    uint32_t table = values_create(x, &f);
    for (uint32_t d = 0; d < 2 * DIM; d++)
        gradients[d] = 1;
    gradients[2] = NAN;
    look_up(x, table, keys, 2, before);
    assert_int_equal(mr_push_gradients(x->client, NULL, table, keys, 2, DIM, gradients), MR_OK);
    look_up(x, table, keys, 2, after);
    assert_memory_equal(before, after, DIM * sizeof(*before));
    for (uint32_t d = DIM; d < 2 * DIM; d++)
        assert_true(after[d] < before[d]);
    assert_int_equal(node_fixture_sum(x->client, "table.gradients_skipped"), 1);
}

/* ---- variables ---- */

TEST(test_variable, set_up, tear_down)
{
    enum { ELEMENTS = 12 };
    struct fixture *x = *state;
    uint32_t dims[3] = {2, 3, 2};
    struct mr_feature f = mr_feature_variable("dense", 3, dims);
    double values[ELEMENTS], accumulated[ELEMENTS];
    float sent[ELEMENTS];
    uint64_t random = 3;
    struct mr_reply *reply;

    f.optimizer = MR_OPT_ADAGRAD;
    f.learning_rate = 0.3f;
    f.optimizer_args[0] = 0.5f;
    f.clip_norm = 3;

    uint32_t id = values_create(x, &f);

    for (uint32_t i = 0; i < ELEMENTS; i++) {
        values[i] = (double)(sent[i] = random_gradient(&random));
        accumulated[i] = 0.5;
    }
    assert_int_equal(mr_variable_push(x->client, NULL, id, 0, ELEMENTS, sent), MR_OK);
    for (uint32_t round = 0; round < PUSHES; round++) {
        double gradient[ELEMENTS];
        for (uint32_t i = 0; i < ELEMENTS; i++)
            gradient[i] = (double)(sent[i] = random_gradient(&random));
        model_step(&f, values, accumulated, gradient, ELEMENTS);
        assert_int_equal(mr_variable_push_gradient(x->client, NULL, id, ELEMENTS, sent), MR_OK);
        values[round] = (double)(sent[0] = random_gradient(&random));
        assert_int_equal(mr_variable_push(x->client, NULL, id, round, 1, sent), MR_OK);
        assert_int_equal(mr_variable_pull(x->client, NULL, id, round, ELEMENTS - round, &reply), MR_OK);
        assert_int_equal(mr_reply_tensor(reply, 0)->dims[0], ELEMENTS - round);
        for (uint32_t i = round; i < ELEMENTS; i++)
            check_close((double)((const float *)mr_reply_tensor(reply, 0)->data)[i - round], values[i]);
        mr_reply_free(reply);
    }
}

int main(int argc, char **argv)
{
    if (!node_fixture_arguments(argc, argv, &cores))
        return 2;
    return tests_run(NULL, NULL);
}
