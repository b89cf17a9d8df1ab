/* Parts of a file that are sent side by side: each once, with its number and bytes, as many at a time as
 * there is memory for. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "ps/io/store.h"
#include "ps/store/part_sender.h"
#include "tests/test.h"
#include "tests/wait.h"

enum { ROOM = 4096, PARTS = 20, LAST_BYTES = 100 };

struct fixture {
    struct ps_part_sender *sender;
    atomic_llong memory;
    uint8_t *part;
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t changed;
    uint32_t wanted; /* that must be under way at once before any of them ends */
    uint32_t under_way, most;
    uint32_t failing; /* the part that fails; 0: none */
    uint32_t held;    /* the part that is sent when this is 0 again */
    pid_t over;       /* a thread that has sent its part */
    size_t sent[PARTS + 1];
};

static int part_send(void *arg, uint32_t number, const uint8_t *data, size_t bytes)
{
    struct fixture *x = arg;
    pthread_mutex_lock(&x->lock);
    assert_int_in_range(number, 1, PARTS);
    assert_int_equal(x->sent[number], 0);
    for (size_t i = 0; i < bytes; i++)
        assert_int_equal(data[i], (uint8_t)number);
    x->sent[number] = bytes;
    x->under_way++;
    x->most = x->under_way > x->most ? x->under_way : x->most;
    pthread_cond_broadcast(&x->changed);
    while (x->most < x->wanted || x->held == number)
        pthread_cond_wait(&x->changed, &x->lock);
    x->under_way--;
    x->over = gettid();
    pthread_cond_broadcast(&x->changed);
    pthread_mutex_unlock(&x->lock);
    if (number != x->failing)
        return 0;
    ps_store_explain(EDQUOT, "the bucket's quota is used up");
    return -EDQUOT;
}

static int set_up(void **state)
{
    static struct fixture x;
    memset(&x, 0, sizeof(x));
    pthread_mutex_init(&x.lock, NULL);
    pthread_cond_init(&x.changed, NULL);
    *state = &x;
    return 0;
}

/* With memory for so many buffers beside the first. */
static void part_sender_create(struct fixture *x, uint32_t buffers)
{
    const struct ps_part_sender_options options = {
        .send = part_send, .arg = x, .room = ROOM, .sent = 0, .memory = &x->memory};
    atomic_init(&x->memory, (long long)buffers * ROOM);
    x->part = malloc(ROOM);
    x->sender = ps_part_sender_create(&options);
    assert_non_null(x->part);
    assert_non_null(x->sender);
}

static int part_sender_put(struct fixture *x, uint32_t number)
{
    memset(x->part, (int)number, ROOM);
    return ps_part_sender_put(x->sender, &x->part, number == PARTS ? LAST_BYTES : ROOM);
}

static int tear_down(void **state)
{
    struct fixture *x = *state;
    const long long memory = atomic_load(&x->memory);
    ps_part_sender_destroy(x->sender);
    assert_true(atomic_load(&x->memory) >= memory);
    free(x->part);
    pthread_cond_destroy(&x->changed);
    pthread_mutex_destroy(&x->lock);
    return 0;
}

static void send_all(struct fixture *x, uint32_t buffers)
{
    part_sender_create(x, buffers);
    for (uint32_t number = 1; number <= PARTS; number++)
        assert_int_equal(part_sender_put(x, number), 0);
    assert_true(ps_part_sender_sent(x->sender) + PS_PART_SENDER_MAX >= PARTS);
    assert_int_equal(ps_part_sender_finish(x->sender), 0);
    assert_int_equal(ps_part_sender_sent(x->sender), PARTS);
    for (uint32_t number = 1; number <= PARTS; number++)
        assert_int_equal(x->sent[number], number == PARTS ? LAST_BYTES : ROOM);
    assert_int_equal(atomic_load(&x->memory), (long long)buffers * ROOM);
}

TEST(parts_are_sent_side_by_side, set_up, tear_down)
{
    struct fixture *x = *state;
    x->wanted = PS_PART_SENDER_MAX;
    send_all(x, PARTS);
    assert_int_equal(x->most, PS_PART_SENDER_MAX);
}

TEST(memory_bounds_how_many, set_up, tear_down)
{
    struct fixture *x = *state;
    send_all(x, 1); /* which is filled while the other is sent */
    assert_int_equal(x->most, 1);
}

TEST(without_memory_they_are_sent_one_by_one, set_up, tear_down)
{
    struct fixture *x = *state;
    send_all(x, 0);
    assert_int_equal(x->most, 1);
}

/* Numbers go on after those that were sent before. */
TEST(parts_that_were_sent_are_counted, set_up, tear_down)
{
    struct fixture *x = *state;
    const struct ps_part_sender_options options = {
        .send = part_send, .arg = x, .room = ROOM, .sent = PARTS - 1, .memory = &x->memory};
    atomic_init(&x->memory, 0);
    x->part = malloc(ROOM);
    x->sender = ps_part_sender_create(&options);
    assert_int_equal(ps_part_sender_sent(x->sender), PARTS - 1);
    assert_int_equal(part_sender_put(x, PARTS), 0);
    assert_int_equal(ps_part_sender_sent(x->sender), PARTS);
    assert_int_equal(x->sent[PARTS], LAST_BYTES);
}

/* What goes on after an interruption needs all parts up to there. */
TEST(a_part_counts_once_those_before_it_do, set_up, tear_down)
{
    struct fixture *x = *state;
    x->held = 1;
    part_sender_create(x, PARTS);
    assert_int_equal(part_sender_put(x, 1), 0);
    assert_int_equal(part_sender_put(x, 2), 0);
    pthread_mutex_lock(&x->lock);
    while (x->over == 0)
        pthread_cond_wait(&x->changed, &x->lock);
    pthread_mutex_unlock(&x->lock);
    WAIT_UNTIL(thread_sleeps(x->over));
    const uint32_t sent = ps_part_sender_sent(x->sender);
    pthread_mutex_lock(&x->lock);
    x->held = 0;
    pthread_cond_broadcast(&x->changed);
    pthread_mutex_unlock(&x->lock);
    assert_int_equal(sent, 0);
    assert_int_equal(ps_part_sender_finish(x->sender), 0);
    assert_int_equal(ps_part_sender_sent(x->sender), 2);
}

static void check_failure(struct fixture *x)
{
    int error = 0;
    uint32_t number = 0;
    while (error == 0 && number < PARTS)
        error = part_sender_put(x, ++number);
    if (error == 0)
        error = ps_part_sender_finish(x->sender);
    assert_int_equal(error, -EDQUOT);
    assert_string_equal(ps_store_explanation(EDQUOT), "the bucket's quota is used up");
    assert_int_equal(part_sender_put(x, PARTS), -EDQUOT); /* nothing more is sent */
    assert_true(number == PARTS || x->sent[PARTS] == 0);
    assert_int_equal(ps_part_sender_finish(x->sender), -EDQUOT);
    assert_int_equal(ps_part_sender_sent(x->sender), x->failing - 1);
}

TEST(the_first_error_is_kept, set_up, tear_down)
{
    struct fixture *x = *state;
    x->failing = 3;
    part_sender_create(x, PARTS);
    check_failure(x);
}

TEST(so_is_that_of_the_last_part, set_up, tear_down)
{
    struct fixture *x = *state;
    x->failing = PARTS;
    part_sender_create(x, PARTS);
    check_failure(x);
}

TEST(so_is_one_without_memory, set_up, tear_down)
{
    struct fixture *x = *state;
    x->failing = 3;
    part_sender_create(x, 0);
    check_failure(x);
    assert_int_equal(x->sent[4], 0);
}
