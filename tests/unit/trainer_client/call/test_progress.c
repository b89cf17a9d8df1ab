/* Many calls and many threads: all end, none is lost, none comes back with another's answer. */
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include "tests/test.h"
#include "tests/unit/trainer_client/live_node.h"
#include "tests/wait.h"
#include "trainer_client/call/client.h"
#include "trainer_client/millrace.h"
#include "trainer_client/millrace_observe.h"
#include "dataplane/wire/base/clock.h"

static struct mr_client *connect_with(const struct live_node *node, struct mr_client_options options)
{
    struct mr_client *client = NULL;
    char error[512] = "";
    options.server = live_node_address(node);
    options.deadline_ms = 60000;
    if (mr_client_create(&options, &client, error, sizeof(error)) != MR_OK)
        fail_msg("%s", error);
    return client;
}

/* More calls at once than there are slots, and more than the library holds: those without an answer to keep
 * need none. */
TEST(test_thousands)
{
    enum { CALLS = 6000 };
    struct live_node *node = live_node_start_new(2);
    struct mr_client *client = connect_with(node, (struct mr_client_options){0});
    struct mr_future **futures = calloc(CALLS, sizeof(void *));

    assert_non_null(futures);
    for (uint32_t i = 0; i < CALLS; i++) {
        struct mr_options options = {.future = &futures[i], .more = i % 3 != 0, .priority = (uint8_t)(i % 8)};
        assert_int_equal(mr_echo(client, &options, i % 2, NULL, 0, NULL), MR_OK);
    }
    for (uint32_t i = 0; i < CALLS; i++) {
        assert_int_equal(mr_future_wait(futures[i], NULL), MR_OK);
        mr_future_destroy(futures[i]);
    }
    free(futures);
    mr_client_destroy(client);
    live_node_destroy(node);
}

/* The message memory is far too small for all of them at once: calls wait for room, and answers that nobody
 * has taken yet do not stand in the way of others. */
TEST(test_backpressure)
{
    enum { CALLS = 200, BYTES = 60000 };
    struct live_node *node = live_node_start_new(1);
    struct mr_client *client = connect_with(node, (struct mr_client_options){.memory_bytes = 1 << 20});
    struct mr_future *futures[CALLS];
    uint8_t *bytes = malloc(CALLS + BYTES);

    assert_non_null(bytes);
    for (uint32_t i = 0; i < CALLS + BYTES; i++)
        bytes[i] = (uint8_t)(i * 31u >> 3);
    for (uint32_t i = 0; i < CALLS; i++) {
        struct mr_options options = {.future = &futures[i]};
        struct mr_tensor tensor = mr_tensor_1d(MR_U8, BYTES, bytes + i);
        assert_int_equal(mr_echo(client, &options, 0, &tensor, 1, NULL), MR_OK);
    }
    for (uint32_t i = 0; i < CALLS; i++) {
        struct mr_reply *reply = NULL;
        assert_int_equal(mr_future_wait(futures[i], &reply), MR_OK);
        assert_memory_equal(mr_reply_tensor(reply, 0)->data, bytes + i, BYTES);
        mr_reply_free(reply);
        mr_future_destroy(futures[i]);
    }
    free(bytes);
    mr_client_destroy(client);
    live_node_destroy(node);
}

/* Larger than all the memory: waiting would not help. */
TEST(test_too_large)
{
    struct live_node *node = live_node_start_new(1);
    struct mr_client *client = connect_with(node, (struct mr_client_options){.memory_bytes = 1 << 20});
    uint8_t *bytes = calloc(1, 2 << 20);
    struct mr_tensor tensor = mr_tensor_1d(MR_U8, 2 << 20, bytes);
    assert_non_null(bytes);
    assert_int_equal(mr_echo(client, NULL, 0, &tensor, 1, NULL), MR_NO_MEMORY);
    assert_non_null(strstr(mr_last_error(), "memory_bytes = 1048576"));
    assert_int_equal(mr_echo(client, NULL, 0, NULL, 0, NULL), MR_OK);
    free(bytes);
    mr_client_destroy(client);
    live_node_destroy(node);
}

struct worker {
    pthread_t thread;
    struct mr_client *client;
    uint32_t number;
    uint32_t wrong;
};

enum { THREADS = 8, ROUNDS = 150, OUTSTANDING = 5 };

static void one_round(struct worker *w, uint32_t n)
{
    struct mr_future *futures[OUTSTANDING];
    uint64_t values[OUTSTANDING][300];
    for (uint32_t i = 0; i < OUTSTANDING; i++) {
        uint32_t count = 1 + (n * 7 + i * 61 + w->number * 13) % 300;
        struct mr_tensor tensor = mr_tensor_1d(MR_U64, count, values[i]);
        struct mr_options options = {.future = &futures[i]};
        for (uint32_t k = 0; k < count; k++)
            values[i][k] = ((uint64_t)w->number << 40) + ((uint64_t)n << 20) + i * 1000 + k;
        if (mr_echo(w->client, &options, (n + i) % 3, &tensor, 1, NULL) != MR_OK) {
            futures[i] = NULL;
            w->wrong++;
        }
    }
    for (uint32_t i = 0; i < OUTSTANDING; i++) {
        struct mr_reply *reply = NULL;
        if (mr_future_wait(futures[i], &reply) != MR_OK ||
            memcmp(mr_reply_tensor(reply, 0)->data, values[i], mr_reply_tensor(reply, 0)->bytes) != 0)
            w->wrong++;
        mr_reply_free(reply);
        mr_future_destroy(futures[i]);
    }
}

static void *work(void *arg)
{
    struct worker *w = arg;
    for (uint32_t n = 0; n < ROUNDS; n++) {
        one_round(w, n);
        if (mr_echo(w->client, NULL, n % 3, NULL, 0, NULL) != MR_OK)
            w->wrong++;
    }
    return NULL;
}

/* is_crowded: as where others are found to want the processor, so that nobody spins. */
static void run_threads(struct mr_client_options options, bool is_crowded)
{
    struct live_node *node = live_node_start_new(3);
    struct mr_client *client = connect_with(node, options);
    struct worker workers[THREADS];
    pthread_mutex_lock(&client->lock);
    client->progress.answers.crowded_until_us = is_crowded ? UINT64_MAX : 0;
    pthread_mutex_unlock(&client->lock);
    for (uint32_t i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){.client = client, .number = i};
        assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
    }
    for (uint32_t i = 0; i < THREADS; i++) {
        pthread_join(workers[i].thread, NULL);
        assert_int_equal(workers[i].wrong, 0);
    }
    mr_client_destroy(client);
    live_node_destroy(node);
}

TEST(test_threads)
{
    run_threads((struct mr_client_options){.busy_poll_us = 1}, false);
    run_threads((struct mr_client_options){.busy_poll_us = 200}, false);
    run_threads((struct mr_client_options){.busy_poll_us = 0}, true);
}

TEST(test_threads_and_progress_thread)
{
    run_threads((struct mr_client_options){.progress_thread = true}, false);
}

/* Long requests, which are sent while they are copied, from threads that share a client: each answer is its
 * call's, and what the caller gave may change as soon as the call returns. */
enum { LONG_BYTES = 600000, LONG_CALLS = 12 };

static void *call_long(void *arg)
{
    struct worker *w = arg;
    uint8_t *bytes = malloc(LONG_BYTES);
    for (uint32_t n = 0; n < LONG_CALLS && bytes != NULL; n++) {
        struct mr_tensor tensor = mr_tensor_1d(MR_U8, LONG_BYTES, bytes);
        struct mr_future *future = NULL;
        struct mr_options options = {.future = &future};
        struct mr_reply *reply = NULL;
        for (uint32_t i = 0; i < LONG_BYTES; i++)
            bytes[i] = (uint8_t)(i * 7 + (i >> 9) + 31 * n + w->number);
        if (mr_echo(w->client, n % 2 == 0 ? NULL : &options, 0, &tensor, 1, n % 2 == 0 ? &reply : NULL) !=
            MR_OK)
            w->wrong++;
        if (n % 2 != 0) {
            uint8_t first = bytes[0], last = bytes[LONG_BYTES - 1];
            memset(bytes, 0xee, LONG_BYTES);
            w->wrong += future == NULL || mr_future_wait(future, &reply) != MR_OK;
            mr_future_destroy(future);
            const uint8_t *echoed = reply != NULL ? mr_reply_tensor(reply, 0)->data : NULL;
            w->wrong += echoed == NULL || echoed[0] != first || echoed[LONG_BYTES - 1] != last;
        } else {
            w->wrong += reply == NULL || memcmp(mr_reply_tensor(reply, 0)->data, bytes, LONG_BYTES) != 0;
        }
        mr_reply_free(reply);
    }
    w->wrong += bytes == NULL;
    free(bytes);
    return NULL;
}

TEST(test_long_requests)
{
    enum { CALLERS = 3 };
    struct live_node *node = live_node_start_new(1);
    struct mr_client *client = connect_with(node, (struct mr_client_options){0});
    struct worker workers[CALLERS];
    for (uint32_t i = 0; i < CALLERS; i++) {
        workers[i] = (struct worker){.client = client, .number = i};
        assert_int_equal(pthread_create(&workers[i].thread, NULL, call_long, &workers[i]), 0);
    }
    for (uint32_t i = 0; i < CALLERS; i++) {
        pthread_join(workers[i].thread, NULL);
        assert_int_equal(workers[i].wrong, 0);
    }
    mr_client_destroy(client);
    live_node_destroy(node);
}

/* With a thread of the library's own a call ends without its caller's help. */
TEST(test_progress_thread)
{
    struct live_node *node = live_node_start_new(1);
    struct mr_client *client = connect_with(node, (struct mr_client_options){.progress_thread = true});
    struct mr_future *future = NULL;
    struct mr_options options = {.future = &future};
    unsigned long long before = atomic_load(&node->cores[0].requests);
    uint32_t large = 3 << 20;
    uint8_t *bytes = calloc(1, large);
    struct mr_tensor tensor = mr_tensor_1d(MR_U8, large, bytes);
    assert_non_null(bytes);
    assert_int_equal(mr_echo(client, &options, 0, &tensor, 1, NULL), MR_OK);
    WAIT_UNTIL(atomic_load(&node->cores[0].requests) != before);
    assert_int_equal(mr_future_wait(future, NULL), MR_OK);
    mr_future_destroy(future);
    free(bytes);
    mr_client_destroy(client);
    live_node_destroy(node);
}

/* The caller's own event loop. */
TEST(test_event_loop)
{
    struct live_node *node = live_node_start_new(2);
    struct mr_client *client = connect_with(node, (struct mr_client_options){0});
    struct mr_future *future = NULL;
    struct mr_options options = {.future = &future};
    struct pollfd pollfd = {.fd = mr_client_fd(client), .events = POLLIN};
    uint32_t ended = 0;
    assert_true(pollfd.fd >= 0);
    assert_int_equal(mr_echo(client, &options, 1, NULL, 0, NULL), MR_OK);
    while (ended == 0) {
        assert_true(poll(&pollfd, 1, mr_client_timeout_ms(client)) >= 0);
        ended = mr_client_progress(client);
    }
    assert_int_equal(ended, 1);
    assert_true(mr_future_done(future));
    assert_int_equal(mr_future_wait(future, NULL), MR_OK);
    mr_future_destroy(future);
    mr_client_destroy(client);
    live_node_destroy(node);
}

/* Waiting for a while: a call that nobody answers goes on, one that is answered is over, and so is none at
 * all. */
TEST(test_wait_for)
{
    struct live_node *mute = live_node_start_new(1), *node = live_node_start_new(2);
    live_node_refuse(mute, MR_OP_ECHO, LIVE_SILENT, LIVE_ALL_CORES);
    struct mr_client *waiting = connect_with(mute, (struct mr_client_options){0});
    struct mr_client *client = connect_with(node, (struct mr_client_options){0});
    struct mr_future *future = NULL;
    struct mr_options options = {.future = &future};
    assert_int_equal(mr_echo(waiting, &options, 0, NULL, 0, NULL), MR_OK);
    assert_false(mr_future_wait_for(future, 0));
    assert_false(mr_future_wait_for(future, 20));
    assert_false(mr_future_done(future));
    mr_future_destroy(future);
    mr_client_destroy(waiting);
    for (uint32_t i = 0; i < 100; i++) {
        assert_int_equal(mr_echo(client, &options, i % 2, NULL, 0, NULL), MR_OK);
        assert_true(mr_future_wait_for(future, 60000));
        assert_true(mr_future_wait_for(future, 0));
        assert_int_equal(mr_future_wait(future, NULL), MR_OK);
        mr_future_destroy(future);
    }
    assert_true(mr_future_wait_for(NULL, 60000));
    mr_client_destroy(client);
    live_node_destroy(node);
    live_node_destroy(mute);
}

/* A loop that waits for a descriptor of its own hears of calls that others complete, once for each. */
TEST(test_notify)
{
    enum { CALLS = 50 };
    struct live_node *node = live_node_start_new(2);
    struct mr_client *client = connect_with(node, (struct mr_client_options){.progress_thread = true});
    struct pollfd pollfd = {.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), .events = POLLIN};
    struct mr_future *futures[CALLS];
    uint64_t heard = 0, more;

    for (uint32_t i = 0; i < CALLS; i++) {
        struct mr_options options = {.future = &futures[i]};
        assert_int_equal(mr_echo(client, &options, i % 2, NULL, 0, NULL), MR_OK);
        mr_future_notify(futures[i], pollfd.fd); /* whether it has ended already or not */
    }
    while (heard < CALLS) {
        assert_int_equal(poll(&pollfd, 1, 60000), 1);
        assert_int_equal(read(pollfd.fd, &more, sizeof(more)), sizeof(more));
        heard += more;
    }
    assert_int_equal(heard, CALLS);
    for (uint32_t i = 0; i < CALLS; i++) {
        assert_true(mr_future_wait_for(futures[i], 0));
        mr_future_destroy(futures[i]);
    }
    assert_int_equal(poll(&pollfd, 1, 0), 0);
    mr_future_notify(NULL, pollfd.fd);
    close(pollfd.fd);
    mr_client_destroy(client);
    live_node_destroy(node);
}

/* ---- many thousands at once, from several threads ---- */

enum { SENDERS = 4, EACH = 5000 };

struct sender {
    pthread_t thread;
    struct mr_client *client;
    uint64_t base;
    struct mr_future *futures[EACH];
};

static void *send_all(void *arg)
{
    struct sender *s = arg;
    for (uint32_t i = 0; i < EACH; i++) {
        uint64_t value = s->base + i;
        struct mr_tensor tensor = mr_tensor_1d(MR_U64, 1, &value);
        struct mr_options options = {.future = &s->futures[i]};
        if (mr_echo(s->client, &options, i % 2, &tensor, 1, NULL) != MR_OK)
            s->futures[i] = NULL;
    }
    return NULL;
}

static void take_all(struct sender *s)
{
    for (uint32_t i = 0; i < EACH; i++) {
        struct mr_reply *reply = NULL;
        assert_non_null(s->futures[i]);
        assert_int_equal(mr_future_wait(s->futures[i], &reply), MR_OK);
        assert_int_equal(*(const uint64_t *)mr_reply_tensor(reply, 0)->data, s->base + i);
        mr_reply_free(reply);
        mr_future_destroy(s->futures[i]);
    }
}

/* The caller's own loop: sleeps on the descriptor, for as long as the library says. */
static void run_loop_until_ended(struct mr_client *client, uint32_t calls)
{
    struct pollfd pollfd = {.fd = mr_client_fd(client), .events = POLLIN};
    for (uint32_t ended = 0; ended < calls; ended += mr_client_progress(client))
        (void)poll(&pollfd, 1, mr_client_timeout_ms(client));
}

static void run_many(bool progress_thread)
{
    struct live_node *node = live_node_start_new(2);
    struct mr_client *client =
        connect_with(node, (struct mr_client_options){.progress_thread = progress_thread});
    struct sender *senders = calloc(SENDERS, sizeof(*senders));
    assert_non_null(senders);
    for (uint32_t t = 0; t < SENDERS; t++) {
        senders[t].client = client;
        senders[t].base = (uint64_t)t << 32;
        assert_int_equal(pthread_create(&senders[t].thread, NULL, send_all, &senders[t]), 0);
    }
    for (uint32_t t = 0; t < SENDERS; t++)
        pthread_join(senders[t].thread, NULL);
    for (uint32_t t = 0; t < SENDERS; t++)
        take_all(&senders[t]);
    free(senders);
    mr_client_destroy(client);
    live_node_destroy(node);
}

TEST(test_20000_with_progress_thread)
{
    run_many(true);
}

TEST(test_20000_driven_by_senders)
{
    run_many(false);
}

/* One call after another is handed over while the loop may sleep: each wakes it, or is answered and so wakes
 * it. */
static void *send_slowly(void *arg)
{
    struct sender *s = arg;
    for (uint32_t i = 0; i < 1000; i++) {
        struct mr_options options = {.future = &s->futures[i]};
        if (mr_echo(s->client, &options, 0, NULL, 0, NULL) != MR_OK)
            s->futures[i] = NULL;
    }
    return NULL;
}

TEST(test_own_loop_beside_a_sender)
{
    struct live_node *node = live_node_start_new(1);
    struct mr_client *client = connect_with(node, (struct mr_client_options){0});
    struct sender *s = calloc(1, sizeof(*s));
    assert_non_null(s);
    s->client = client;
    assert_int_equal(pthread_create(&s->thread, NULL, send_slowly, s), 0);
    run_loop_until_ended(client, 1000);
    pthread_join(s->thread, NULL);
    for (uint32_t i = 0; i < 1000; i++) {
        assert_int_equal(mr_future_wait(s->futures[i], NULL), MR_OK);
        mr_future_destroy(s->futures[i]);
    }
    free(s);
    mr_client_destroy(client);
    live_node_destroy(node);
}

/* A call that goes out while the loop sleeps for ever: nobody is there to answer, and the loop has to look
 * after it. */
TEST(test_own_loop_is_woken_for_timers)
{
    struct live_node *node = live_node_start_new(1);
    struct mr_client *client = connect_with(node, (struct mr_client_options){0});
    struct pollfd pollfd = {.fd = mr_client_fd(client), .events = POLLIN};
    struct mr_future *future;
    struct mr_options options = {.future = &future};
    assert_int_equal(mr_echo(client, NULL, 0, NULL, 0, NULL), MR_OK);
    while (poll(&pollfd, 1, 0) == 1)
        mr_client_progress(client);
    live_node_kill(node);
    (void)mr_client_timeout_ms(client); /* about to sleep for so long */
    assert_int_equal(mr_echo(client, &options, 0, NULL, 0, NULL), MR_OK);
    assert_int_equal(poll(&pollfd, 1, 0), 1);
    live_node_restart(node);
    assert_int_equal(mr_future_wait(future, NULL), MR_OK);
    mr_future_destroy(future);
    mr_client_destroy(client);
    live_node_destroy(node);
}

/* True from the third time on that it is asked: while the driver looks for packets. */
static bool third_time(const void *arg)
{
    uint32_t *asked = *(uint32_t *const *)arg;
    return ++*asked >= 3;
}

TEST(test_driver_does_not_sleep_over_its_own_end)
{
    struct live_node *node = live_node_start_new(1);
    struct mr_client *client = connect_with(node, (struct mr_client_options){.busy_poll_us = 1});
    uint32_t asked = 0, *counter = &asked;
    pthread_mutex_lock(&client->lock);
    client->progress.sleep_until_us = 0;
    assert_true(mrc_wait(client, third_time, &counter, UINT64_MAX));
    assert_true(client->progress.sleep_until_us == 0); /* it has not slept */
    pthread_mutex_unlock(&client->lock);
    mr_client_destroy(client);
    live_node_destroy(node);
}
