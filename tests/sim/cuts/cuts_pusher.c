#include <math.h>
#include <stdio.h>
#include <string.h>
#include "cuts.h"
#include "cuts_net.h"
#include "tests/property/random.h"

#define CONNECT_MS  600000 /* of virtual time: over all restarts */
#define DEADLINE_MS 600000
#define MEMORY      (8u << 20)

/* ---- the model: one float of one row ---- */

static float values[CUTS_COUNT_MAX + 1];

void cuts_rows_begin(const struct mr_feature *feature)
{
    float w = 0, sum = feature->optimizer_args[0];
    for (uint32_t i = 0; i <= CUTS_COUNT_MAX; i++) {
        values[i] = w;
        sum += 1; /* of squares: each gradient is -1 */
        if (feature->optimizer == MR_OPT_ADAGRAD)
            w += feature->learning_rate / (sqrtf(sum) + feature->optimizer_args[1]);
        else
            w += feature->learning_rate;
    }
}

float cuts_row_value(uint32_t count)
{
    return values[count];
}

uint32_t cuts_count_of(const float *row, uint32_t dim, const char *whose, uint32_t key)
{
    uint32_t count = 0;
    for (uint32_t d = 1; d < dim; d++) {
        if (row[d] != row[0])
            cuts_fail("%s: its row %u begins with %.9g, and float %u of it is %.9g", whose, key,
                      (double)row[0], d, (double)row[d]);
    }
    while (count < CUTS_COUNT_MAX && values[count] != row[0])
        count++;
    if (count == CUTS_COUNT_MAX)
        cuts_fail("%s: its row %u is %.9g, which no number of pushes gives", whose, key, (double)row[0]);
    return count;
}

/* ---- a trainer ---- */

struct mr_client *cuts_connect(bool replay, uint32_t replay_bytes)
{
    const struct mr_client_options options = {.server = NET_SERVER,
                                              .connect_ms = CONNECT_MS,
                                              .deadline_ms = DEADLINE_MS,
                                              .memory_bytes = MEMORY,
                                              .busy_poll_us = 1,
                                              .replay = replay,
                                              .replay_bytes = replay_bytes};
    struct mr_client *client;
    char error[256];
    if (mr_client_create(&options, &client, error, sizeof(error)) != MR_OK)
        cuts_fail("%s", error);
    return client;
}

void cuts_pusher_create(struct cuts_pusher *p, const struct cuts_work *work, uint32_t index, uint32_t table)
{
    const uint32_t keys = work->groups * work->group_keys;
    memset(p, 0, sizeof(*p));
    p->work = work;
    p->index = index;
    p->table = table;
    for (uint32_t i = 0; i < keys; i++)
        p->keys[i] = (index * CUTS_KEYS_MAX + i + 1) * UINT64_C(0x9e3779b97f4a7c15);
    p->client = cuts_connect(true, work->replay_bytes);
    cuts_expect_ok(mr_lookup(p->client, NULL, table, p->keys, keys, NULL), "a trainer's first lookup");
}

/* Until it is sent. */
static void cuts_pusher_push(struct cuts_pusher *p, uint64_t number)
{
    static float gradients[CUTS_GROUP_KEYS_MAX * CUTS_DIM_MAX];
    const uint32_t group_keys = p->work->group_keys, dim = p->work->feature.dims[0];
    const uint64_t *keys = p->keys + number % p->work->groups * group_keys;
    const struct mr_options options = {.step = number};
    for (uint32_t i = 0; i < group_keys * dim; i++)
        gradients[i] = -1;
    for (;;) {
        p->begun_ns[number] = fiber_now_ns();
        enum mr_status status =
            mr_push_gradients(p->client, &options, p->table, keys, group_keys, dim, gradients);

        if (!p->work->loses || status != MR_UNKNOWN_OUTCOME) {
            cuts_expect_ok(status, "a push");
            break;
        }
        if (p->work->replay_bytes == 0 && cuts_disturbed().put_backs == 0)
            cuts_fail("trainer %u reports a loss, and nothing can be lost: %s", p->index, mr_last_error());
        cuts_losses_note(&p->losses);
    }
    p->ended_ns[number] = fiber_now_ns();
}

static void *push_all(void *arg)
{
    struct cuts_pusher *p = arg;
    while (p->step < p->work->pushes) {
        cuts_pusher_push(p, ++p->step);
        if (random_one_in(fiber_random(), 3))
            fiber_sleep_ns(random_below(fiber_random(), p->work->pause_ns));
    }
    p->has_ended = true;
    return NULL;
}

void cuts_pusher_start(struct cuts_pusher *p)
{
    p->fiber = fiber_start("pusher", push_all, p);
}

/* ---- what is in a checkpoint ---- */

static void read_counts(const struct cuts_pusher *p, struct mr_client *client, uint32_t *counts)
{
    const uint32_t keys = p->work->groups * p->work->group_keys;
    struct mr_reply *reply;
    cuts_expect_ok(mr_lookup(client, NULL, p->table, p->keys, keys, &reply), "a lookup");
    const float *rows = mr_reply_tensor(reply, 0)->data;
    const uint32_t dim = p->work->feature.dims[0];
    char whose[32];

    (void)snprintf(whose, sizeof(whose), "trainer %u", p->index);
    for (uint32_t i = 0; i < keys; i++)
        counts[i] = cuts_count_of(rows + (size_t)i * dim, dim, whose, i);
    mr_reply_free(reply);
}

/* How often pushes 1..count meet a group. */
static uint64_t pushes_to(const struct cuts_work *work, uint64_t count, uint32_t group)
{
    return (count + work->groups - group) / work->groups - (group == 0);
}

struct cuts_instant cuts_read(const struct cuts_pusher *p, struct mr_client *client)
{
    const uint32_t keys = p->work->groups * p->work->group_keys;
    uint32_t counts[CUTS_KEYS_MAX];
    uint64_t sum = 0;
    struct cuts_instant instant = {0};
    read_counts(p, client, counts);
    for (uint32_t i = 0; i < keys; i++)
        sum += counts[i];
    instant.whole = sum / p->work->group_keys;
    for (uint32_t i = 0; i < keys; i++) {
        const uint32_t group = i / p->work->group_keys;
        const uint64_t more = counts[i] - pushes_to(p->work, instant.whole, group);
        if (more > (group == (instant.whole + 1) % p->work->groups))
            cuts_fail("trainer %u: no instant: all its rows together have %llu pushes and %llu rows, and row "
                      "%u, of "
                      "group %u, has %u",
                      p->index, (unsigned long long)instant.whole,
                      (unsigned long long)(sum % p->work->group_keys), i, group, counts[i]);
        instant.share += (uint32_t)more;
    }
    return instant;
}

void cuts_read_loosely(const struct cuts_pusher *p, struct mr_client *client)
{
    uint32_t counts[CUTS_KEYS_MAX];
    read_counts(p, client, counts);
    for (uint32_t i = 0; i < p->work->groups * p->work->group_keys; i++) {
        if (counts[i] > pushes_to(p->work, p->step, i / p->work->group_keys))
            cuts_fail("trainer %u: row %u has %u pushes, and so many were never made", p->index, i,
                      counts[i]);
    }
}

/* ---- what is there in the end ---- */

void cuts_pusher_end(struct cuts_pusher *p)
{
    const uint64_t last = p->step + 2 * p->work->groups;
    while (p->step < last)
        cuts_pusher_push(p, ++p->step);
    read_counts(p, p->client, p->last);
}

/* Of pushes to a group: those begun from `begun_ns` on and not among the losses, and those answered after
 * `ended_ns`. */
struct made {
    uint32_t least, most;
};

static struct made made_to(const struct cuts_pusher *p, uint32_t group, uint64_t begun_ns, uint64_t ended_ns)
{
    struct made made = {0};
    for (uint64_t i = 1; i <= p->step; i++) {
        if (i % p->work->groups != group)
            continue;
        made.least += p->begun_ns[i] >= begun_ns && !p->losses.steps[i];
        made.most += p->ended_ns[i] > ended_ns;
    }
    return made;
}

static void check_between(const struct cuts_pusher *p, uint32_t key, uint32_t least, uint32_t most)
{
    if (p->last[key] < least)
        cuts_fail("trainer %u: row %u has %u pushes in the end, and lacks %u that nobody reported as lost "
                  "(%u reports)",
                  p->index, key, p->last[key], least - p->last[key], p->losses.reports);
    if (p->last[key] > most)
        cuts_fail("trainer %u: row %u has %u pushes in the end, and there are to be %u at most", p->index,
                  key, p->last[key], most);
}

void cuts_check_losses(const struct cuts_pusher *p, uint64_t from_ns)
{
    for (uint32_t i = 0; i < p->work->groups * p->work->group_keys; i++) {
        const struct made made = made_to(p, i / p->work->group_keys, from_ns, 0);
        check_between(p, i, made.least, made.most);
    }
}

void cuts_check_restored(const struct cuts_pusher *p, struct mr_client *client, uint64_t from_ns,
                         uint64_t to_ns)
{
    uint32_t counts[CUTS_KEYS_MAX];
    read_counts(p, client, counts);
    for (uint32_t i = 0; i < p->work->groups * p->work->group_keys; i++) {
        const struct made made = made_to(p, i / p->work->group_keys, to_ns, from_ns);
        check_between(p, i, counts[i] + made.least, counts[i] + made.most);
    }
}

void cuts_check_instant(const struct cuts_pusher *pushers, const struct cuts_instant *instants)
{
    uint64_t begun_ns = 0, latest_push = 0;
    uint32_t latest = 0;
    for (uint32_t i = 0; i < pushers[0].work->pushers; i++) {
        const uint64_t last = instants[i].whole + (instants[i].share > 0);
        if (pushers[i].begun_ns[last] <= begun_ns)
            continue;
        begun_ns = pushers[i].begun_ns[last];
        latest_push = last;
        latest = i;
    }
    for (uint32_t i = 0; i < pushers[0].work->pushers; i++) {
        const uint64_t next = instants[i].whole + 1, ended_ns = pushers[i].ended_ns[next];
        if (ended_ns != 0 && ended_ns < begun_ns)
            cuts_fail("push %llu of trainer %u is not in it, and was answered before push %llu of trainer %u "
                      "was begun, "
                      "which is",
                      (unsigned long long)next, i, (unsigned long long)latest_push, latest);
    }
}
