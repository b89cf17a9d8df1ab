#include "tests/integration/rpc/rpc_workers.h"
#include "tests/integration/end_with_test.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "tests/test.h"
#include "tests/wait.h"

static enum mr_status whoami(struct mr_rpc_call *call, const struct mr_value *arguments,
                             uint32_t argument_count)
{
    struct mr_rpc_worker info;
    enum mr_status status = mr_worker_info(mr_rpc_of(call), mr_rpc_rank(mr_rpc_of(call)), &info);
    (void)arguments;
    (void)argument_count;
    return status == MR_OK ? mr_rpc_return(call, mr_value_string(info.name)) : status;
}

static const struct mr_rpc_function functions[] = {{.name = "whoami", .results = "string", .run = whoami}};

struct joining {
    const struct rpc_workers *workers;
    struct mr_rpc *rpc;
    const char *place, *listen;
    uint32_t rank;
    enum mr_status status;
    char error[512];
};

static void *join_rpc(void *arg)
{
    struct joining *j = arg;
    struct mr_rpc_options options = {.rendezvous = j->place != NULL ? j->place : j->workers->rendezvous,
                                     .listen = j->listen,
                                     .rendezvous_is_node = !j->workers->meet_at_first,
                                     .dead_after_ms = j->workers->dead_after_ms,
                                     .functions = functions,
                                     .function_count = 1};
    char name[16];
    snprintf(name, sizeof(name), "w%u", j->rank);
    /* it may be taken by one of the world before, of which the node has heard a moment ago */
    (void)WAIT_WITHIN(WAIT_LIMIT_S,
                      j->status = mr_rpc_init(name, j->rank, j->workers->world_size, &options, &j->rpc,
                                              j->error, sizeof(j->error)),
                      j->status != MR_INVALID_ARGUMENT || strstr(j->error, "is taken by") == NULL);
    return NULL;
}

void rpc_workers_join(struct rpc_workers *workers, uint32_t first, uint32_t count)
{
    struct joining joining[RPC_WORKERS_MAX];
    pthread_t threads[RPC_WORKERS_MAX];
    assert_int_in_range(count, 1, RPC_WORKERS_MAX);
    for (uint32_t i = 0; i < count; i++) {
        joining[i] = (struct joining){.workers = workers,
                                      .rank = first + i,
                                      .place = workers->places[i],
                                      .listen = workers->listens[i]};
        assert_int_equal(pthread_create(&threads[i], NULL, join_rpc, &joining[i]), 0);
    }
    for (uint32_t i = 0; i < count; i++) {
        pthread_join(threads[i], NULL);
        workers->rpcs[i] = joining[i].rpc;
    }
    for (uint32_t i = 0; i < count; i++)
        if (joining[i].status != MR_OK)
            fail_msg("%s", joining[i].error);
    workers->count = count;
}

struct leaving {
    struct mr_rpc *rpc;
    enum mr_status status;
    char error[512];
};

static void *leave(void *arg)
{
    struct leaving *l = arg;
    l->status = mr_rpc_shutdown(l->rpc, 0);
    snprintf(l->error, sizeof(l->error), "%s", mr_rpc_last_error());
    mr_rpc_destroy(l->rpc);
    return NULL;
}

void rpc_workers_leave(struct rpc_workers *workers, enum mr_status expected)
{
    struct leaving leaving[RPC_WORKERS_MAX];
    pthread_t threads[RPC_WORKERS_MAX];
    for (uint32_t i = 0; i < workers->count; i++) {
        leaving[i] = (struct leaving){.rpc = workers->rpcs[i]};
        assert_int_equal(pthread_create(&threads[i], NULL, leave, &leaving[i]), 0);
    }
    for (uint32_t i = 0; i < workers->count; i++)
        pthread_join(threads[i], NULL);
    for (uint32_t i = 0; i < workers->count; i++)
        if (leaving[i].status != expected)
            fail_msg("%s: %s", mr_status_name(leaving[i].status), leaving[i].error);
    workers->count = 0;
}

pid_t rpc_workers_fork(const struct rpc_workers *workers, uint32_t rank, void (*then)(struct mr_rpc *rpc))
{
    struct joining joining = {.workers = workers, .rank = rank};
    const pid_t test = getpid();
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid > 0)
        return pid;
    end_with_test(test);
    join_rpc(&joining);
    if (joining.status != MR_OK)
        fprintf(stderr, "%s\n", joining.error);
    else if (then != NULL)
        then(joining.rpc);
    while (joining.status == MR_OK)
        (void)pause();
    _exit(1);
}

void rpc_workers_refused(enum mr_status got, enum mr_status expected, const char *says)
{
    if (got != expected || strstr(mr_rpc_last_error(), says) == NULL)
        fail_msg("%s, not %s, or \"%s\" is not in: %s", mr_status_name(got), mr_status_name(expected), says,
                 mr_rpc_last_error());
}

static struct mr_rpc_result *rpc_workers_call(struct mr_rpc *rpc, uint32_t to, const char *function,
                                              const struct mr_value *arguments, uint32_t argument_count)
{
    struct mr_rpc_result *result;
    if (mr_rpc_sync(rpc, to, function, arguments, argument_count, NULL, &result) != MR_OK)
        fail_msg("%s", mr_rpc_last_error());
    assert_int_equal(mr_rpc_result_count(result), 1);
    return result;
}

int64_t rpc_workers_i64(struct mr_rpc *rpc, uint32_t to, const char *function,
                        const struct mr_value *arguments, uint32_t argument_count)
{
    struct mr_rpc_result *result = rpc_workers_call(rpc, to, function, arguments, argument_count);
    int64_t value = mr_rpc_result_value(result, 0)->i64;
    mr_rpc_result_free(result);
    return value;
}

void rpc_workers_string(struct mr_rpc *rpc, uint32_t to, const char *function,
                        const struct mr_value *arguments, uint32_t argument_count, const char *expected)
{
    struct mr_rpc_result *result = rpc_workers_call(rpc, to, function, arguments, argument_count);
    assert_string_equal(mr_rpc_result_value(result, 0)->string.text, expected);
    mr_rpc_result_free(result);
}
