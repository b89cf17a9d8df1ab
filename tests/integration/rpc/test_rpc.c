/* Workers over real sockets on loopback, each in a process of its own, and the example remote_add. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "rpc_processes.h"
#include "tests/integration/end_with_test.h"
#include "tests/test.h"
#include "tests/wait.h"

enum { THREADS = 4, CALLS = 200, LARGE = 1 << 18, LINE = 4096 };

static const char *remote_add;

/* ---- the example ---- */

struct output {
    FILE *from;
    pid_t pid;
    char text[LINE];
};

static void start_example(struct output *o, const char *rank, const char *address)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    const pid_t test = getpid();
    o->pid = fork();
    assert_true(o->pid >= 0);
    if (o->pid == 0) {
        end_with_test(test);
        (void)dup2(ends[1], STDOUT_FILENO);
        (void)dup2(ends[1], STDERR_FILENO);
        close(ends[0]);
        close(ends[1]);
        execl(remote_add, remote_add, "--rank", rank, "--rendezvous", address, (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    o->from = fdopen(ends[0], "r");
    assert_non_null(o->from);
}

static void finish_example(struct output *o)
{
    int status = 0;
    size_t bytes = fread(o->text, 1, sizeof(o->text) - 1, o->from);
    o->text[bytes] = 0;
    (void)fclose(o->from);
    assert_int_equal(waitpid(o->pid, &status, 0), o->pid);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        fail_msg("it ended with %x: %s", (unsigned)status, o->text);
}

TEST(remote_add_adds)
{
    struct output caller, adder;
    char address[32];
    rpc_free_address(address);
    start_example(&adder, "1", address);
    start_example(&caller, "0", address);
    finish_example(&caller);
    finish_example(&adder);
    assert_string_equal(caller.text,
                        "remote_add: sum 11 22 33 44\n"
                        "remote_add: sum 11 22 33 44\n"
                        "remote_add: add on worker \"adder\" (rank 1): the tensors have 4 and 3 elements\n"
                        "remote_add: ok\n");
    assert_string_equal(adder.text, "remote_add: ok\n");
}

/* ---- workers in processes ---- */

static enum mr_status mirror(struct mr_rpc_call *call, const struct mr_value *arguments,
                             uint32_t argument_count)
{
    enum mr_status status = MR_OK;
    for (uint32_t i = 0; i < argument_count && status == MR_OK; i++)
        status = mr_rpc_return(call, arguments[i]);
    return status;
}

static enum mr_status die(struct mr_rpc_call *call, const struct mr_value *arguments, uint32_t argument_count)
{
    (void)kill(getpid(), SIGKILL);
    return MR_OK;
}

static enum mr_status memory(struct mr_rpc_call *call, const struct mr_value *arguments,
                             uint32_t argument_count);

static const struct mr_rpc_function functions[] = {
    {.name = "memory", .results = "i64", .run = memory},
    {.name = "mirror", .arguments = "...", .results = "...", .run = mirror},
    {.name = "mirror_inline", .arguments = "...", .results = "...", .run = mirror, .flags = MR_RPC_INLINE},
    {.name = "die", .run = die},
};

static struct mr_rpc *join_rpc(uint32_t rank, uint32_t world_size, const char *address)
{
    struct mr_rpc_options options = {.functions = functions,
                                     .function_count = sizeof(functions) / sizeof(functions[0])};
    return rpc_join(rank, world_size, address, &options);
}

/* Of small and large values, alternating; whether all came back right. */
static void *call_often(void *arg)
{
    struct mr_rpc *rpc = arg;
    float *large = malloc(LARGE * sizeof(*large));
    bool right = large != NULL;
    for (uint32_t i = 0; right && i < LARGE; i++)
        large[i] = (float)i;
    for (uint32_t i = 0; right && i < CALLS; i++) {
        struct mr_value values[2] = {mr_value_i64(i),
                                     mr_value_tensor(mr_tensor_1d(MR_F32, i % 50 == 0 ? LARGE : i, large))};
        struct mr_rpc_result *result;
        uint32_t to = (mr_rpc_rank(rpc) + 1 + i % 2) % mr_rpc_world_size(rpc);
        if (mr_rpc_sync(rpc, to, i % 3 == 0 ? "mirror_inline" : "mirror", values, 2, NULL, &result) !=
            MR_OK) {
            fprintf(stderr, "%s\n", mr_rpc_last_error());
            right = false;
            break;
        }
        const struct mr_tensor *t = &mr_rpc_result_value(result, 1)->tensor;

        right = mr_rpc_result_value(result, 0)->i64 == i && t->bytes == values[1].tensor.bytes &&
                memcmp(t->data, large, t->bytes) == 0;
        mr_rpc_result_free(result);
    }
    free(large);
    return right ? NULL : rpc;
}

/* Several threads, each worker calling the others and itself. */
static int all_call_all(uint32_t rank, const char *address)
{
    struct mr_rpc *rpc = join_rpc(rank, 3, address);
    pthread_t threads[THREADS];
    int failed = rpc == NULL;
    for (uint32_t i = 0; rpc != NULL && i < THREADS; i++)
        failed += pthread_create(&threads[i], NULL, call_often, rpc) != 0;
    for (uint32_t i = 0; rpc != NULL && i < THREADS; i++) {
        void *wrong = NULL;
        failed += pthread_join(threads[i], &wrong) != 0 || wrong != NULL;
    }
    if (rpc != NULL && mr_rpc_shutdown(rpc, 0) != MR_OK) {
        fprintf(stderr, "%s\n", mr_rpc_last_error());
        failed++;
    }
    mr_rpc_destroy(rpc);
    return failed;
}

TEST(threads_of_all_workers_call_each_other)
{
    rpc_run_world(all_call_all, 3, UINT32_MAX);
}

/* It is killed in the middle of a call; the third worker goes on, and both leave without it. */
static int watch_one_die(uint32_t rank, const char *address)
{
    struct mr_rpc *rpc = join_rpc(rank, 3, address);
    int failed = rpc == NULL;
    if (rpc == NULL)
        return 1;
    if (rank == 0 && (mr_rpc_sync(rpc, 2, "die", NULL, 0, NULL, NULL) != MR_WORKER_DIED ||
                      strstr(mr_rpc_last_error(), "worker \"w2\" (rank 2)") == NULL)) {
        fprintf(stderr, "%s\n", mr_rpc_last_error());
        failed++;
    }
    failed += mr_rpc_shutdown(rpc, 0) != MR_OK;
    mr_rpc_destroy(rpc);
    return failed;
}

TEST(a_killed_worker_is_named)
{
    rpc_run_world(watch_one_die, 3, 2);
}

/* ---- messages in parts ---- */

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { ROOM_MIB = 400 }; /* sanitizers keep what was freed, for a while */
#else
enum { ROOM_MIB = 24 };
#endif
enum { LONG_FLOATS = 150 << 18, ROUNDS = 2, PATIENT_MS = 1000000 };

/* Of this process, resident. */
static int64_t memory_mib(void)
{
    long pages = 0, resident = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (f == NULL || fscanf(f, "%ld %ld", &pages, &resident) != 2)
        resident = -1;
    if (f != NULL)
        (void)fclose(f);
    return resident * sysconf(_SC_PAGESIZE) >> 20;
}

static enum mr_status memory(struct mr_rpc_call *call, const struct mr_value *arguments,
                             uint32_t argument_count)
{
    return mr_rpc_return(call, mr_value_i64(memory_mib()));
}

static int64_t memory_of(struct mr_rpc *rpc, uint32_t rank)
{
    struct mr_rpc_result *result;
    if (mr_rpc_sync(rpc, rank, "memory", NULL, 0, NULL, &result) != MR_OK)
        return INT64_MAX;
    int64_t mib = mr_rpc_result_value(result, 0)->i64;

    mr_rpc_result_free(result);
    return mib;
}

/* What is given back is given back a moment later. */
static bool memory_comes_down(struct mr_rpc *rpc, uint32_t rank, int64_t to_mib)
{
    if (WAIT_WITHIN(WAIT_LIMIT_S, memory_of(rpc, rank) <= to_mib))
        return true;
    fprintf(stderr, "rank %u has %lld MiB, and had %lld\n", rank, (long long)memory_of(rpc, rank),
            (long long)to_mib);
    return false;
}

static bool mirror_long(struct mr_rpc *rpc, const float *floats)
{
    struct mr_value value = mr_value_tensor(mr_tensor_1d(MR_F32, LONG_FLOATS, floats));
    struct mr_rpc_call_options patient = {.timeout_ms = UINT32_MAX};
    struct mr_rpc_result *result;
    if (mr_rpc_sync(rpc, 0, "mirror", &value, 1, &patient, &result) != MR_OK) {
        fprintf(stderr, "%s\n", mr_rpc_last_error());
        return false;
    }
    const struct mr_tensor *t = &mr_rpc_result_value(result, 0)->tensor;
    bool same = t->bytes == value.tensor.bytes && memcmp(t->data, floats, t->bytes) == 0;

    mr_rpc_result_free(result);
    return same;
}

static int send_long(uint32_t rank, const char *address)
{
    struct mr_rpc *rpc = join_rpc(rank, 2, address);
    float *floats = rank == 1 ? malloc(LONG_FLOATS * sizeof(*floats)) : NULL;
    bool right = rpc != NULL && (rank == 0 || floats != NULL);
    for (uint32_t i = 0; right && rank == 1 && i < LONG_FLOATS; i++)
        floats[i] = (float)(i % 16777213u);
    int64_t own_mib = memory_mib(), other_mib = right ? memory_of(rpc, 0) : 0;

    for (uint32_t i = 0; right && rank == 1 && i < ROUNDS; i++)
        right = mirror_long(rpc, floats);
    if (right && rank == 1)
        right =
            memory_comes_down(rpc, 0, other_mib + ROOM_MIB) && memory_comes_down(rpc, 1, own_mib + ROOM_MIB);
    free(floats);
    if (rpc != NULL && mr_rpc_shutdown(rpc, PATIENT_MS) != MR_OK) {
        fprintf(stderr, "%s\n", mr_rpc_last_error());
        right = false;
    }
    mr_rpc_destroy(rpc);
    return !right;
}

/* 150 MiB there and back, and then the memory is as it was. */
TEST(long_messages_go_in_parts)
{
    rpc_run_world(send_long, 2, UINT32_MAX);
}

/* ---- ends in any order ---- */

struct handles {
    struct mr_rpc_future *future;
    struct mr_rpc_result *small, *large;
    struct mr_rref *own, *remote;
    struct mr_autograd *context;
};

static bool make_handles(struct mr_rpc *rpc, const float *floats, struct handles *h)
{
    struct mr_value small = mr_value_i64(7), large = mr_value_tensor(mr_tensor_1d(MR_F32, LARGE, floats));
    struct mr_value leaf;
    struct mr_rpc_call_options in_context = {.timeout_ms = 0};
    return mr_rpc_async(rpc, 0, "mirror", &small, 1, NULL, &h->future) == MR_OK &&
           mr_rpc_sync(rpc, 0, "mirror", &small, 1, NULL, &h->small) == MR_OK &&
           mr_rpc_sync(rpc, 0, "mirror", &large, 1, NULL, &h->large) == MR_OK &&
           mr_rref_create(rpc, large, NULL, &h->own) == MR_OK &&
           mr_remote(rpc, 0, "mirror", &large, 1, NULL, &h->remote) == MR_OK &&
           mr_rref_confirm(h->remote, 0) == MR_OK && mr_autograd_begin(rpc, &h->context) == MR_OK &&
           mr_autograd_leaf(h->context, large.tensor, &leaf) == MR_OK &&
           (in_context.context = h->context, mr_rpc_sync(rpc, 0, "mirror", &leaf, 1, &in_context, NULL)) ==
               MR_OK;
}

enum { HANDLES = 7 }; /* and the worker itself */

static bool end_one(uint32_t which, struct mr_rpc *rpc, const float *floats, struct handles *h)
{
    switch (which) {
    case 0:
        mr_rpc_future_destroy(h->future);
        return true;
    case 1: {
        bool right = mr_rpc_result_value(h->small, 0)->i64 == 7;

        mr_rpc_result_free(h->small);
        return right;
    }
    case 2: { /* it lies in a message that was received */
        const void *sent = floats, *came = mr_rpc_result_value(h->large, 0)->tensor.data;
        bool right = memcmp(came, sent, LARGE * sizeof(*floats)) == 0;

        mr_rpc_result_free(h->large);
        return right;
    }
    case 3:
        mr_rref_release(h->own);
        return true;
    case 4:
        mr_rref_release(h->remote);
        return true;
    case 5:
        mr_autograd_end(h->context);
        return true;
    default:
        mr_rpc_destroy(rpc);
        return true;
    }
}

/* The world's second worker begins with the `turn`th of its handles, or with itself, and goes on round. */
static int end_from(uint32_t turn, const char *address)
{
    float *floats = calloc(LARGE, sizeof(*floats));
    struct mr_rpc *rpc = join_rpc(1, 2, address);
    struct handles h;
    bool right = floats != NULL && rpc != NULL;
    if (right)
        floats[LARGE - 1] = 3;
    if (right && !make_handles(rpc, floats, &h)) {
        fprintf(stderr, "%s\n", mr_rpc_last_error());
        right = false;
    }
    for (uint32_t i = 0; right && i < HANDLES; i++)
        right = end_one((HANDLES - 1 + turn + i) % HANDLES, rpc, floats, &h);
    free(floats);
    return !right;
}

static int serve_who_ends(uint32_t turn, const char *address)
{
    struct mr_rpc *rpc = join_rpc(0, 2, address);
    int failed = rpc == NULL || mr_rpc_shutdown(rpc, 0) != MR_OK;
    mr_rpc_destroy(rpc);
    return failed;
}

TEST(handles_may_outlive_their_worker)
{
    pid_t pids[2 * HANDLES];
    for (uint32_t turn = 0; turn < HANDLES; turn++) {
        char address[32];
        rpc_free_address(address);
        pids[2 * turn] = rpc_in_process(serve_who_ends, turn, address);
        pids[2 * turn + 1] = rpc_in_process(end_from, turn, address);
    }
    for (uint32_t i = 0; i < 2 * HANDLES; i++)
        rpc_expect_end(pids[i], 0);
}

enum { ERROR = 512, TRIES = 30 }; /* of waits that may be too short for an answer */

TEST(errors_at_the_start_are_lines)
{
    struct mr_rpc_options options = {.rendezvous = "127.0.0.1:9", .init_timeout_ms = 300};
    struct mr_rpc *rpc;
    char error[512] = "", address[32];
    for (uint32_t tries = 0; tries < TRIES && strstr(error, "nothing listens") == NULL; tries++)
        assert_int_equal(mr_rpc_init("a", 1, 2, &options, &rpc, error, sizeof(error)), MR_UNREACHABLE);
    assert_string_equal(error,
                        "worker \"a\" (rank 1): nobody answers at the rendezvous, 127.0.0.1:9: the host is "
                        "there, and nothing listens at that port");
    rpc_free_address(address);
    options.rendezvous = address;
    assert_int_equal(mr_rpc_init("a", 0, 3, &options, &rpc, error, sizeof(error)), MR_DEADLINE_EXCEEDED);
    assert_non_null(strstr(error, "1 of 3 workers have joined; missing: rank 1 2"));
    assert_int_equal(mr_rpc_init("", 0, 2, &options, &rpc, error, sizeof(error)), MR_INVALID_ARGUMENT);
    assert_int_equal(mr_rpc_init("a\x1b[2J", 0, 2, &options, &rpc, error, sizeof(error)),
                     MR_INVALID_ARGUMENT);
    assert_non_null(strstr(error, "letters, digits"));
    assert_int_equal(mr_rpc_init("a", 2, 2, &options, &rpc, error, sizeof(error)), MR_INVALID_ARGUMENT);
    assert_int_equal(mr_rpc_init("a", 0, 0, &options, &rpc, error, sizeof(error)), MR_INVALID_ARGUMENT);
    options.key_file = "/nonexistent";
    assert_int_not_equal(mr_rpc_init("a", 0, 2, &options, &rpc, error, sizeof(error)), MR_OK);
    assert_non_null(strstr(error, "/nonexistent"));
    options = (struct mr_rpc_options){.rendezvous = NULL};
    assert_int_equal(mr_rpc_init("a", 0, 2, &options, &rpc, error, sizeof(error)), MR_INVALID_ARGUMENT);
    assert_non_null(strstr(error, "options.rendezvous"));
    mr_rpc_destroy(NULL);
}

/* Where the workers may meet, and where one listens. */
TEST(wrong_places_are_lines)
{
    static const struct {
        uint32_t rank;
        enum mr_status status;
        const char *rendezvous, *listen;
        const char *says;
    } wrong[] = {
        {0, MR_INVALID_ARGUMENT, "127.0.0.1:9,127.0.0.2:9", NULL,
         "rank 0 listens there, so name one address"},
        {1, MR_UNREACHABLE, "127.0.0.1:9,127.0.0.1:10", NULL,
         "127.0.0.1:10: the host is there, and nothing listens"},
        {1, MR_INVALID_ARGUMENT, "no-such-host.invalid:9,", NULL, "is no address"},
        {1, MR_INVALID_ARGUMENT, "1:9,1:9,1:9,1:9,1:9,1:9,1:9,1:9,1:9,1:9,1:9,1:9,1:9,1:9,1:9,1:9,1:9", NULL,
         "names more than 16 places"},
        {1, MR_INVALID_ARGUMENT, "127.0.0.1:9", "127.0.0.1:0,127.0.0.2:0", "one of IPv4 and one of IPv6"},
        {1, MR_INVALID_ARGUMENT, "127.0.0.1:9", "127.0.0.1:8,[::1]:9", "with the same port"},
        {1, MR_INVALID_ARGUMENT, "127.0.0.1:9", "127.0.0.1:0,[::]:0", "which the others reach it at"},
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
        struct mr_rpc_options options = {
            .rendezvous = wrong[i].rendezvous, .listen = wrong[i].listen, .init_timeout_ms = 300};
        struct mr_rpc *rpc;
        char error[512] = "";
        for (uint32_t tries = 0; tries < TRIES && strstr(error, wrong[i].says) == NULL; tries++)
            assert_int_equal(mr_rpc_init("a", wrong[i].rank, 2, &options, &rpc, error, sizeof(error)),
                             wrong[i].status);
        if (strstr(error, wrong[i].says) == NULL)
            fail_msg("\"%s\" is not in: %s", wrong[i].says, error);
    }
}

static void write_key(char path[32], char digit)
{
    snprintf(path, 32, "/tmp/test_rpc_key.XXXXXX");
    int fd = mkstemp(path);

    assert_true(fd >= 0);
    for (uint32_t i = 0; i < 64; i++)
        assert_int_equal(write(fd, &digit, 1), 1);
    close(fd);
}

/* Waits at the rendezvous again and again, and hands on why nobody came. */
static pid_t wait_for_strangers(struct mr_rpc_options options, int *errors)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t pid = fork();

    assert_true(pid >= 0);
    *errors = ends[0];
    while (pid == 0) {
        char error[ERROR] = "";
        struct mr_rpc *rpc;
        (void)mr_rpc_init("b", 0, 2, &options, &rpc, error, sizeof(error));
        if (write(ends[1], error, sizeof(error)) != sizeof(error))
            _exit(1);
    }
    close(ends[1]);
    return pid;
}

static void expect_in_time(const char *says, bool (*next)(void *arg, char error[ERROR]), void *arg)
{
    char error[ERROR] = "";
    for (uint32_t i = 0; i < TRIES; i++) {
        assert_true(next(arg, error));
        if (strstr(error, says) != NULL)
            return;
    }
    fail_msg("\"%s\" does not say \"%s\"", error, says);
}

static bool ask_in_vain(void *options, char error[ERROR])
{
    struct mr_rpc *rpc;
    return mr_rpc_init("a", 1, 2, options, &rpc, error, ERROR) == MR_UNREACHABLE &&
           strstr(error, "nobody answers at the rendezvous") != NULL;
}

struct both {
    struct mr_rpc_options *asks;
    int errors;
};

/* Of a time in which it is asked: what was read before may be of one that began later than the questions. */
static bool ask_and_read_error(void *arg, char error[ERROR])
{
    struct both *both = arg;
    (void)ask_in_vain(both->asks, error);
    return read(both->errors, error, ERROR) == ERROR;
}

static void expect_strangers(const char *key, const char *other_key, const char *says)
{
    struct mr_rpc_options first = {.init_timeout_ms = 1500, .key_file = key};
    struct mr_rpc_options second = {.init_timeout_ms = 500, .key_file = other_key};
    char address[32];
    int errors;
    rpc_free_address(address);
    first.rendezvous = second.rendezvous = address;
    pid_t pid = wait_for_strangers(first, &errors);

    expect_in_time(says, ask_in_vain, &second);
    struct both both = {.asks = &second, .errors = errors};

    expect_in_time("missing: rank 1; somebody asks under another key", ask_and_read_error, &both);
    assert_int_equal(kill(pid, SIGKILL), 0);
    rpc_expect_killed(pid);
    close(errors);
}

TEST(keys_that_differ_are_said)
{
    char one[32], other[32];
    write_key(one, '1');
    write_key(other, '2');
    expect_strangers(one, other, "a program listens there, and probably has another key: see key_file");
    expect_strangers(one, NULL, "probably has another key: this worker has none (key_file)");
    (void)unlink(one);
    (void)unlink(other);
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return 2;
    remote_add = argv[1];
    return tests_run(NULL, NULL);
}
