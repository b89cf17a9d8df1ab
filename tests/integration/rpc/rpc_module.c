/* A module for tests: what a node's functions can do. It is built against the public header alone. */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "millrace_rpc.h"

enum mr_status millrace_module_init(struct mr_rpc *rpc, const char *arguments, char *error,
                                    size_t error_bytes);
void millrace_module_exit(struct mr_rpc *rpc);

static double factor = 1;
static _Atomic uint32_t held;
static uint32_t starts, ends; /* of the module */
static _Atomic int64_t objects;

static enum mr_status scale(struct mr_rpc_call *call, const struct mr_value *arguments,
                            uint32_t argument_count)
{
    const struct mr_tensor *in = &arguments[0].tensor;
    float *out;
    void *data;
    enum mr_status status = mr_rpc_return_tensor(call, MR_F32, in->rank, in->dims, &data);
    (void)argument_count;
    if (status != MR_OK)
        return status;
    out = data;
    for (uint64_t i = 0; i < in->bytes / sizeof(float); i++)
        out[i] = (float)(factor * ((const float *)in->data)[i]);
    return MR_OK;
}

static enum mr_status refuse(struct mr_rpc_call *call, const struct mr_value *arguments,
                             uint32_t argument_count)
{
    (void)argument_count;
    return mr_rpc_fail(call, "%lld is not wanted", (long long)arguments[0].i64);
}

/* Calls "whoami" of that worker, and gives its answer back. */
static enum mr_status rpc_module_ask(struct mr_rpc_call *call, const struct mr_value *arguments,
                                     uint32_t argument_count)
{
    struct mr_rpc_result *result;
    enum mr_status status =
        mr_rpc_sync(mr_rpc_of(call), (uint32_t)arguments[0].i64, "whoami", NULL, 0, NULL, &result);
    (void)argument_count;
    if (status != MR_OK)
        return mr_rpc_fail(call, "%s: %s", mr_status_name(status), mr_rpc_last_error());
    status = mr_rpc_return(call, *mr_rpc_result_value(result, 0));
    mr_rpc_result_free(result);
    return status;
}

static enum mr_status whoami(struct mr_rpc_call *call, const struct mr_value *arguments,
                             uint32_t argument_count)
{
    struct mr_rpc_worker info;
    enum mr_status status = mr_worker_info(mr_rpc_of(call), mr_rpc_rank(mr_rpc_of(call)), &info);
    (void)arguments;
    (void)argument_count;
    return status == MR_OK ? mr_rpc_return(call, mr_value_string(info.name)) : status;
}

/* Until that file is there. */
static enum mr_status hold(struct mr_rpc_call *call, const struct mr_value *arguments,
                           uint32_t argument_count)
{
    (void)argument_count;
    atomic_fetch_add(&held, 1);
    while (access(arguments[0].string.text, F_OK) != 0)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    atomic_fetch_sub(&held, 1);
    return mr_rpc_return(call, mr_value_string("let go"));
}

static enum mr_status count_held(struct mr_rpc_call *call, const struct mr_value *arguments,
                                 uint32_t argument_count)
{
    (void)arguments;
    (void)argument_count;
    return mr_rpc_return(call, mr_value_i64(atomic_load(&held)));
}

/* Whether the thread may run on that CPU. */
static enum mr_status may_run_on(struct mr_rpc_call *call, const struct mr_value *arguments,
                                 uint32_t argument_count)
{
    cpu_set_t set;
    (void)argument_count;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof(set), &set) != 0)
        return mr_rpc_fail(call, "sched_getaffinity: %s", strerror(errno));
    return mr_rpc_return(call, mr_value_i64(CPU_ISSET((size_t)arguments[0].i64, &set)));
}

static enum mr_status count_lives(struct mr_rpc_call *call, const struct mr_value *arguments,
                                  uint32_t argument_count)
{
    (void)arguments;
    (void)argument_count;
    return mr_rpc_return(call, mr_value_i64(100 * (int64_t)starts + ends));
}

static void object_destroy(void *object)
{
    free(object);
    atomic_fetch_sub(&objects, 1);
}

static enum mr_status rpc_module_make(struct mr_rpc_call *call, const struct mr_value *arguments,
                                      uint32_t argument_count)
{
    void *object = malloc(1);
    (void)arguments;
    (void)argument_count;
    if (object == NULL)
        return MR_NO_MEMORY;
    atomic_fetch_add(&objects, 1);
    return mr_rpc_return_object(call, object, object_destroy);
}

static enum mr_status count_objects(struct mr_rpc_call *call, const struct mr_value *arguments,
                                    uint32_t argument_count)
{
    (void)arguments;
    (void)argument_count;
    return mr_rpc_return(call, mr_value_i64(atomic_load(&objects)));
}

/* ---- a thread of the module's own ---- */

static struct {
    pthread_t thread;
    struct mr_rpc *rpc;
    uint32_t rank;
    bool runs;
    _Atomic bool ends;
} own;

/* It can, until the module learns that the node stops. */
static void *call_all_the_time(void *arg)
{
    (void)arg;
    while (!atomic_load(&own.ends))
        if (mr_rpc_sync(own.rpc, own.rank, "whoami", NULL, 0, NULL, NULL) != MR_OK)
            abort();
    return NULL;
}

static enum mr_status begin_calling(struct mr_rpc_call *call, const struct mr_value *arguments,
                                    uint32_t argument_count)
{
    (void)argument_count;
    own.rpc = mr_rpc_of(call);
    own.rank = (uint32_t)arguments[0].i64;
    own.runs = pthread_create(&own.thread, NULL, call_all_the_time, NULL) == 0;
    return own.runs ? MR_OK : mr_rpc_fail(call, "no thread");
}

void millrace_module_exit(struct mr_rpc *rpc)
{
    ends++;
    if (!own.runs)
        return;
    atomic_store(&own.ends, true);
    (void)pthread_join(own.thread, NULL);
    if (mr_rpc_sync(rpc, own.rank, "whoami", NULL, 0, NULL, NULL) != MR_OK)
        abort();
}

enum mr_status millrace_module_init(struct mr_rpc *rpc, const char *arguments, char *error,
                                    size_t error_bytes)
{
    static const struct mr_rpc_function functions[] = {
        {.name = "scale", .arguments = "f32[...]", .results = "f32[...]", .run = scale},
        {.name = "refuse", .arguments = "i64", .results = "", .run = refuse},
        {.name = "ask", .arguments = "i64", .results = "string", .run = rpc_module_ask},
        {.name = "whoami", .arguments = "", .results = "string", .run = whoami},
        {.name = "begin_calling", .arguments = "i64", .results = "", .run = begin_calling},
        {.name = "hold", .arguments = "string", .results = "string", .run = hold},
        {.name = "held", .arguments = "", .results = "i64", .run = count_held, .flags = MR_RPC_INLINE},
        {.name = "make", .arguments = "", .results = "object", .run = rpc_module_make},
        {.name = "objects", .arguments = "", .results = "i64", .run = count_objects},
        {.name = "lives", .arguments = "", .results = "i64", .run = count_lives},
        {.name = "may_run_on", .arguments = "i64", .results = "i64", .run = may_run_on},
    };
    char *end;
    if (arguments[0] != 0) {
        factor = strtod(arguments, &end);
        if (*end != 0) {
            snprintf(error, error_bytes, "it takes a number, by which \"scale\" multiplies");
            return MR_INVALID_ARGUMENT;
        }
    }
    for (size_t i = 0; i < sizeof(functions) / sizeof(*functions); i++) {
        enum mr_status status = mr_rpc_register(rpc, &functions[i]);
        if (status != MR_OK) {
            snprintf(error, error_bytes, "%s", mr_rpc_last_error());
            return status;
        }
    }
    starts++;
    return MR_OK;
}
