#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cuts.h"
#include "millrace_admin.h"
#include "tests/property/random.h"

#define KEYS       5u /* the same of all visitors: what goes into another one's table is seen */
#define DIM        4u
#define LIVES_MAX  12u
#define PUSHES_MAX 30u
#define PAUSE_NS   8000000u
#define ABSENCE_NS 400000000u /* over which a number may become another table's */

struct visitor {
    struct mr_feature feature;
    struct mr_client *client;
    uint32_t index, table, pushes;
    struct cuts_disturbed since;
    struct mr_feature now; /* the table, as it was altered */
};

static const uint64_t keys[KEYS] = {11, 22, 33, 44, 55};

static void visitor_pause(void)
{
    fiber_sleep_ns(random_below(fiber_random(), random_one_in(fiber_random(), 10) ? ABSENCE_NS : PAUSE_NS));
}

/* Its table may be in no checkpoint, and what was pushed to it be lost with an older copy of the
 * directory. */
static bool may_be_gone(const struct visitor *v)
{
    const struct cuts_disturbed now = cuts_disturbed();
    return now.crashes != v->since.crashes || now.restores != v->since.restores || v->since.restores % 2 == 1;
}

/* False: it has lost its table, or some of what it pushed. */
static bool goes_on(const struct visitor *v, enum mr_status status, const char *what)
{
    if (status == MR_OK)
        return true;
    if (!may_be_gone(v) || (status != MR_UNKNOWN_TABLE && status != MR_UNKNOWN_OUTCOME))
        cuts_fail("visitor %u: %s: %s: %s", v->index, what, mr_status_name(status), mr_last_error());
    return false;
}

/* What it pushed is in its rows, and nothing else, but for what was taken back. */
static bool check_rows(const struct visitor *v)
{
    struct mr_reply *reply;
    char whose[32];
    (void)snprintf(whose, sizeof(whose), "visitor %u", v->index);
    if (!goes_on(v, mr_lookup(v->client, NULL, v->table, keys, KEYS, &reply), "a lookup"))
        return false;
    const bool all = cuts_is_kept(&v->since);
    const float *rows = mr_reply_tensor(reply, 0)->data;

    for (uint32_t i = 0; i < KEYS; i++) {
        const uint32_t count = cuts_count_of(rows + (size_t)i * DIM, DIM, whose, i);
        if (count > v->pushes || (all && count < v->pushes))
            cuts_fail("visitor %u: row %u of its table %u has %u pushes, and it made %u", v->index, i,
                      v->table, count, v->pushes);
    }
    mr_reply_free(reply);
    return true;
}

/* What was altered is as it was altered last. */
static bool check_features(const struct visitor *v)
{
    struct mr_feature_info *infos;
    uint32_t count;
    if (!goes_on(v, mr_list(v->client, NULL, &infos, &count), "a list"))
        return false;
    for (uint32_t i = 0; i < count; i++) {
        if (infos[i].id == v->table && strcmp(infos[i].feature.name, v->now.name) == 0 &&
            cuts_is_kept(&v->since) && infos[i].feature.capacity_rows != v->now.capacity_rows)
            cuts_fail("visitor %u: its table %u may have %llu rows, and was altered to have %llu", v->index,
                      v->table, (unsigned long long)infos[i].feature.capacity_rows,
                      (unsigned long long)v->now.capacity_rows);
    }
    free(infos);
    return true;
}

static bool alter(struct visitor *v)
{
    struct mr_feature after = v->now;
    after.capacity_rows = v->now.capacity_rows + 1000;
    if (!goes_on(v, mr_alter(v->client, NULL, &v->now, &after), "an alteration"))
        return false;
    v->now = after;
    cuts_note_alter();
    return check_features(v);
}

/* Is refused while a checkpoint is written. */
static void cuts_visitor_drop(struct visitor *v)
{
    const char *name = v->feature.name;
    enum mr_status status;
    const struct cuts_disturbed since = cuts_disturbed();
    do {
        status = mr_drop(v->client, NULL, &name, 1);
        visitor_pause();
    } while (status == MR_CHECKPOINT_RUNNING && !cuts_training_has_ended());
    if (status == MR_CHECKPOINT_RUNNING || !goes_on(v, status, "a drop"))
        return;
    cuts_note_drop(v->table, &since);
}

static bool cuts_visitor_push(struct visitor *v)
{
    float gradients[KEYS * DIM];
    for (uint32_t i = 0; i < KEYS * DIM; i++)
        gradients[i] = -1;
    if (!goes_on(v, mr_push_gradients(v->client, NULL, v->table, keys, KEYS, DIM, gradients), "a push"))
        return false;
    v->pushes++;
    return true;
}

static void train(struct visitor *v)
{
    const uint32_t pushes = 1 + random_below(fiber_random(), PUSHES_MAX);
    while (v->pushes < pushes && !cuts_training_has_ended()) {
        if (!cuts_visitor_push(v) || (random_one_in(fiber_random(), 4) && !check_rows(v)) ||
            (random_one_in(fiber_random(), 4) && !alter(v)))
            return;
        visitor_pause();
    }
    if (check_rows(v) && check_features(v) && random_one_in(fiber_random(), 2))
        cuts_visitor_drop(v);
}

static void live(struct visitor *v)
{
    v->pushes = 0;
    v->now = v->feature;
    v->table = 0;
    v->since = cuts_disturbed();
    v->client = cuts_connect(true, 0);
    if (goes_on(v, mr_create(v->client, NULL, &v->feature, 1, &v->table), "create"))
        train(v);
    mr_client_destroy(v->client);
}

static void *cuts_visitor_run(void *arg)
{
    struct visitor v = *(struct visitor *)arg;
    const uint32_t lives = 1 + random_below(fiber_random(), LIVES_MAX);
    for (uint32_t i = 0; i < lives && !cuts_training_has_ended(); i++) {
        (void)snprintf(v.feature.name, sizeof(v.feature.name), "visit-%u-%u", v.index, i);
        live(&v);
        fiber_sleep_ns(random_below(fiber_random(), PAUSE_NS));
    }
    return NULL;
}

struct fiber *cuts_visitor_start(const struct mr_feature *like, uint32_t index)
{
    static struct visitor visitors[CUTS_VISITORS];
    struct visitor *v = &visitors[index];
    *v = (struct visitor){.feature = *like, .index = index};
    v->feature.dims[0] = DIM;
    return fiber_start("visitor", cuts_visitor_run, v);
}
