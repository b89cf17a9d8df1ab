/* A client, and fork(): what the child may do with its parent's handles, while threads of the parent are
 * inside the library. */
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include "tests/checkpoint_calls.h"
#include "tests/test.h"
#include "tests/unit/trainer_client/live_node.h"
#include "dataplane/rpc/millrace_rpc.h"
#include "trainer_client/millrace.h"
#include "trainer_client/millrace_admin.h"
#include "trainer_client/millrace_observe.h"

enum { FORKS = 30, CHILD_SECONDS = 60 };

struct family {
    struct live_node *node;
    char address[64];
    struct mr_client *client;
    struct mr_future *in_flight, *over;
    struct mr_reply *reply;
    atomic_bool stop;
};

static const float values[3] = {1, 2, 3};

/* In the child: nothing here may fail the test by a jump. Each check that fails is said by a line. */
static int failures;

static void expect(bool holds, const char *what)
{
    if (holds)
        return;
    failures++;
    (void)fprintf(stderr, "in the child: %s; %s\n", what, mr_last_error());
}

static void expect_forked(enum mr_status status, const char *what)
{
    expect(status == MR_FORKED && strstr(mr_last_error(), "from which this one was forked") != NULL, what);
}

static void use_inherited_client(const struct family *x)
{
    struct mr_client *client = x->client;
    struct mr_feature feature = mr_feature_table("another", 2);
    const uint64_t keys[2] = {1, 2};
    float gradients[4] = {0};
    struct mr_replay_info info = {.on = true};
    uint32_t id, count;
    struct mr_reply *reply = NULL;
    struct mr_feature_info *infos = NULL;
    expect_forked(mr_echo(client, NULL, 0, NULL, 0, NULL), "mr_echo");
    expect_forked(mr_create(client, NULL, &feature, 1, &id), "mr_create");
    expect_forked(mr_list(client, NULL, &infos, &count), "mr_list");
    expect_forked(mr_lookup(client, NULL, 1, keys, 2, &reply), "mr_lookup");
    expect_forked(mr_push_gradients(client, NULL, 1, keys, 2, 2, gradients), "mr_push_gradients");
    expect_forked(mr_variable_pull(client, NULL, 1, 0, 1, &reply), "mr_variable_pull");
    expect_forked(mr_lookup_batch(client, NULL, 7, 1, &reply), "mr_lookup_batch");
    expect_forked(save_into(client, NULL, "/dir", NULL), "mr_save");
    expect(mr_client_core_count(client) == 0 && mr_client_fd(client) == -1, "what it says of itself");
    expect(mr_client_timeout_ms(client) == -1 && mr_client_progress(client) == 0, "driving it");
    mr_client_replay_info(client, &info);
    expect(!info.on, "its replay buffer");
}

static void use_inherited_futures(const struct family *x)
{
    struct mr_future *const futures[] = {x->in_flight, x->over};
    for (uint32_t i = 0; i < 2; i++) {
        expect(mr_future_done(futures[i]) && mr_future_wait_for(futures[i], 10000), "no waiting");
        expect_forked(mr_future_wait(futures[i], NULL), "mr_future_wait");
        mr_future_notify(futures[i], STDERR_FILENO);
        mr_future_destroy(futures[i]);
    }
    const float *replied = mr_reply_tensor(x->reply, 0)->data;
    for (uint32_t i = 0; i < sizeof(values) / sizeof(values[0]); i++)
        expect(replied[i] == values[i], "a reply from before");
    mr_reply_free(x->reply);
}

static void use_own_client(const struct family *x)
{
    struct mr_client_options options = {.server = x->address, .progress_thread = true};
    struct mr_client *client = NULL;
    expect(mr_client_create(&options, &client, NULL, 0) == MR_OK, "a client of its own");
    expect(mr_echo(client, NULL, 0, NULL, 0, NULL) == MR_OK, "a call of its own");
    mr_client_destroy(client);
}

static void be_the_child(const struct family *x)
{
    (void)alarm(CHILD_SECONDS); /* a lock that nobody gives back */
    use_inherited_client(x);
    use_inherited_futures(x);
    mr_client_destroy(x->client);
    use_own_client(x);
    expect_forked(mr_echo(x->client, NULL, 0, NULL, 0, NULL), "after it was destroyed");
    _exit(failures == 0 ? 0 : 1);
}

/* Keeps the library's locks taken most of the time. */
static void *call_on(void *arg)
{
    struct family *x = arg;
    while (!atomic_load(&x->stop))
        if (mr_echo(x->client, NULL, 0, NULL, 0, NULL) != MR_OK)
            return (void *)mr_last_error();
    return NULL;
}

static void forks_start(struct family *x, bool progress_thread)
{
    struct mr_client_options options = {.server = x->address, .progress_thread = progress_thread};
    struct mr_tensor tensor = mr_tensor_1d(MR_F32, 3, values);
    struct mr_options later = {.future = &x->over};
    *x = (struct family){.node = live_node_start_new(1)};
    snprintf(x->address, sizeof(x->address), "%s", live_node_address(x->node));
    assert_int_equal(mr_client_create(&options, &x->client, NULL, 0), MR_OK);
    assert_int_equal(mr_echo(x->client, NULL, 0, &tensor, 1, &x->reply), MR_OK);
    assert_int_equal(mr_echo(x->client, &later, 0, NULL, 0, NULL), MR_OK);
    while (!mr_future_done(x->over))
        (void)mr_client_progress(x->client);
}

static void fork_once(struct family *x)
{
    struct mr_options later = {.future = &x->in_flight};
    int how;
    assert_int_equal(mr_echo(x->client, &later, 0, NULL, 0, NULL), MR_OK);
    pid_t child = fork();

    assert_true(child >= 0);
    if (child == 0)
        be_the_child(x);
    assert_int_equal(waitpid(child, &how, 0), child);
    if (!WIFEXITED(how) || WEXITSTATUS(how) != 0)
        fail_msg("the child ended with %d", how);
    assert_int_equal(mr_future_wait(x->in_flight, NULL), MR_OK);
    mr_future_destroy(x->in_flight);
}

TEST(test_children)
{
    for (uint32_t with_thread = 0; with_thread < 2; with_thread++) {
        struct family x = {.node = NULL};
        pthread_t caller;
        void *failed;
        forks_start(&x, with_thread != 0);
        uint64_t start_id = mr_client_start_id(x.client);

        assert_int_equal(pthread_create(&caller, NULL, call_on, &x), 0);
        for (uint32_t i = 0; i < FORKS; i++)
            fork_once(&x);
        atomic_store(&x.stop, true);
        pthread_join(caller, &failed);
        assert_null(failed);
        /* The parent has the session that it had. */
        assert_int_equal(mr_echo(x.client, NULL, 0, NULL, 0, NULL), MR_OK);
        assert_int_equal(mr_client_start_id(x.client), start_id);
        assert_int_equal(mr_future_wait(x.over, NULL), MR_OK);
        mr_future_destroy(x.over);
        mr_reply_free(x.reply);
        mr_client_destroy(x.client);
        live_node_destroy(x.node);
    }
}

/* ---- workers of remote calls ---- */

struct office {
    struct mr_rpc *rpc;
    struct mr_rref *rref;
    struct mr_autograd *context;
    atomic_bool stop;
};

static enum mr_status say_seven(struct mr_rpc_call *call, const struct mr_value *arguments, uint32_t count)
{
    (void)arguments;
    (void)count;
    return mr_rpc_return(call, mr_value_i64(7));
}

static void expect_no_worker(enum mr_status status, const char *what)
{
    expect(status == MR_FORKED && strstr(mr_rpc_last_error(), "forked") != NULL, what);
}

static void be_no_worker(const struct office *x, struct mr_rpc_future *in_flight)
{
    struct mr_rpc_result *result = NULL;
    struct mr_rpc_future *future = NULL;
    struct mr_autograd *context = NULL;
    struct mr_rref *rref = NULL;
    (void)alarm(CHILD_SECONDS);
    expect_no_worker(mr_rpc_sync(x->rpc, 0, "seven", NULL, 0, NULL, &result), "mr_rpc_sync");
    expect_no_worker(mr_rpc_async(x->rpc, 0, "seven", NULL, 0, NULL, &future), "mr_rpc_async");
    expect(mr_rpc_done(in_flight), "mr_rpc_done");
    expect_no_worker(mr_rpc_wait(in_flight, &result), "mr_rpc_wait");
    mr_rpc_cancel(in_flight);
    mr_rpc_future_destroy(in_flight);
    expect_no_worker(mr_rref_create(x->rpc, mr_value_i64(1), NULL, &rref), "mr_rref_create");
    expect_no_worker(mr_rref_to_here(x->rref, 1000, &result), "mr_rref_to_here");
    mr_rref_release(x->rref);
    expect_no_worker(mr_autograd_begin(x->rpc, &context), "mr_autograd_begin");
    expect_no_worker(mr_autograd_backward(x->context, NULL, 0, false), "mr_autograd_backward");
    mr_autograd_end(x->context);
    expect_no_worker(mr_rpc_shutdown(x->rpc, 1000), "mr_rpc_shutdown");
    mr_rpc_close(x->rpc);
    mr_rpc_destroy(x->rpc);
    _exit(failures == 0 ? 0 : 1);
}

static void *work_on(void *arg)
{
    struct office *x = arg;
    enum mr_status status = MR_OK;
    while (!atomic_load(&x->stop) && status == MR_OK) {
        struct mr_rpc_result *result = NULL;
        status = mr_rpc_sync(x->rpc, 0, "seven", NULL, 0, NULL, &result);
        mr_rpc_result_free(result);
    }
    return status == MR_OK ? NULL : x;
}

static void work_begins(struct office *x)
{
    const struct mr_rpc_function seven = {
        .name = "seven", .arguments = "", .results = "i64", .run = say_seven};
    char rendezvous[32], error[512] = "";
    const struct mr_rpc_options options = {
        .rendezvous = rendezvous, .functions = &seven, .function_count = 1};
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof(address);
    int free_port = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(free_port, (const struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(getsockname(free_port, (struct sockaddr *)&address, &bytes), 0);
    close(free_port);
    snprintf(rendezvous, sizeof(rendezvous), "127.0.0.1:%u", ntohs(address.sin_port));
    *x = (struct office){.rpc = NULL};
    if (mr_rpc_init("alone", 0, 1, &options, &x->rpc, error, sizeof(error)) != MR_OK)
        fail_msg("%s", error);
    assert_int_equal(mr_rref_create(x->rpc, mr_value_i64(1), NULL, &x->rref), MR_OK);
    assert_int_equal(mr_autograd_begin(x->rpc, &x->context), MR_OK);
}

TEST(test_a_child_is_no_worker)
{
    struct office x = {.rpc = NULL};
    pthread_t caller;
    void *failed;
    work_begins(&x);
    assert_int_equal(pthread_create(&caller, NULL, work_on, &x), 0);
    for (uint32_t i = 0; i < FORKS; i++) {
        struct mr_rpc_future *in_flight;
        int how;
        assert_int_equal(mr_rpc_async(x.rpc, 0, "seven", NULL, 0, NULL, &in_flight), MR_OK);
        pid_t child = fork();

        assert_true(child >= 0);
        if (child == 0)
            be_no_worker(&x, in_flight);
        assert_int_equal(waitpid(child, &how, 0), child);
        if (!WIFEXITED(how) || WEXITSTATUS(how) != 0)
            fail_msg("the child ended with %d", how);
        assert_int_equal(mr_rpc_wait(in_flight, NULL), MR_OK);
        mr_rpc_future_destroy(in_flight);
    }
    atomic_store(&x.stop, true);
    pthread_join(caller, &failed);
    assert_null(failed);
    mr_rref_release(x.rref);
    mr_autograd_end(x.context);
    assert_int_equal(mr_rpc_shutdown(x.rpc, 0), MR_OK);
    mr_rpc_destroy(x.rpc);
}
