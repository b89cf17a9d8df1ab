/* A server that knows the ECHO operation only, on a real DPDK port: what the data plane's tests talk to.
 *
 * Prints "ready driver=... memory=... steering=..." once it serves, and at the end one line per core of its
 * counters. Ends on SIGTERM. */
#include <inttypes.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include "dataplane/loop/core.h"
#include "tests/integration/dataplane/server_options.h"

static void echo(void *core_app, struct mr_endpoint *endpoint, const struct mr_request *request)
{
    struct mr_tensor tensors[MR_TENSORS_MAX];
    uint16_t count = request->message->preamble.tensor_count;
    memcpy(tensors, request->message->tensors, count * sizeof(tensors[0]));
    if (mr_reply_begin(endpoint, request->ref, MR_OK, tensors, count))
        mr_reply_end(endpoint, request->ref);
    else
        mr_reply_busy(endpoint, request->ref);
}

static const dp_handler dispatch[MR_OP_COUNT] = {[MR_OP_ECHO] = echo};

static void *core_start(void *self, struct dp_core *core, char error[DP_ERROR_BYTES])
{
    return core;
}

static void print_counter(void *arg, const struct mr_counter_set *set, const struct mr_counter *counter,
                          uint64_t value)
{
    if (value != 0)
        printf(" %s.%s=%" PRIu64, set->name, counter->name, value);
}

/* ---- tasks that are posted just before the stop ---- */

#define LAST_TASKS 64u /* a core */

static atomic_uint tasks_run;

/* Slow enough for the stop to come while most of them wait. */
static void run_task(struct dp_task *task, void *core_app, struct dp_core *core)
{
    nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
    atomic_fetch_add(&tasks_run, 1);
}

/* All of them have run by the time that the data plane stands still. */
static bool stop_behind_tasks(struct dp *dp, uint32_t core_count)
{
    static struct dp_task task = {.run = run_task};
    for (uint32_t i = 0; i < LAST_TASKS * core_count; i++)
        while (!dp_post(dp, i % core_count, &task)) {
        }
    dp_stop(dp);
    if (atomic_load(&tasks_run) == LAST_TASKS * core_count)
        return true;
    fprintf(stderr, "%u of %u tasks ran before the stop\n", atomic_load(&tasks_run), LAST_TASKS * core_count);
    return false;
}

int main(int argc, char **argv)
{
    struct dp_app app = {.core_start = core_start, .dispatch = dispatch};
    char error[DP_ERROR_BYTES] = "";
    struct dp_config config;
    sigset_t signals;
    struct dp *dp;
    int signal;
    int at = server_options_parse(argc, argv, &config);
    if (at != argc) {
        fprintf(stderr, "unknown option %s\n", argv[at]);
        return 2;
    }
    config.endpoint.incarnation = 1;
    /* Before any thread is made, so that they all leave the signals to this one. */
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    sigprocmask(SIG_BLOCK, &signals, NULL);
    if (dp_create(&config, &dp, error) != MR_OK) {
        fprintf(stderr, "%s\n", error);
        return 1;
    }
    if (dp_start(dp, &app, error) != MR_OK) {
        fprintf(stderr, "%s\n", error);
        dp_destroy(dp);
        return 1;
    }
    printf("ready driver=%s (%s) memory=%s steering=%s (%s) segment_bytes=%u\n", dp_driver_name(dp),
           dp_driver_why(dp), dp_memory_name(dp), dp_steering_name(dp), dp_steering_why(dp),
           dp_net_udp_bytes_max(&dp->net) - MR_HEADER_BYTES);
    fflush(stdout);
    sigwait(&signals, &signal);
    for (uint32_t i = 0; i < config.core_count; i++) {
        printf("core=%u busy_ppm=%u", i, dp_core_busy_ppm(&dp->cores[i]));
        dp_core_each_counter(&dp->cores[i], print_counter, NULL);
        printf("\n");
    }
    printf("done\n");
    fflush(stdout);
    bool good = stop_behind_tasks(dp, config.core_count);
    dp_destroy(dp);
    return good ? 0 : 1;
}
