#include "ps/node.h"

#include <errno.h>
#include <semaphore.h>
#include <stddef.h>
#include <time.h>
#include "ps/core.h"

#define POST_RETRY_NS 100000

void ps_node_map_partitions(struct ps_node *node, uint32_t core_count)
{
    node->core_count = core_count;
    for (uint32_t p = 0; p < MR_PARTITION_COUNT; p++) {
        node->partition_core[p] = (uint16_t)(p * core_count / MR_PARTITION_COUNT);
    }
}

struct core_task {
    struct dp_task task;
    void (*run)(struct ps_core *core, void *arg);
    void *arg;
    sem_t *done;
};

static void run_core_task(struct dp_task *task, void *core_app, struct dp_core *core)
{
    (void)core;
    struct core_task *t = (struct core_task *)(void *)((char *)task - offsetof(struct core_task, task));
    ps_long_calls_settle(core_app); /* what it does must not fall into the middle of a call */
    t->run(core_app, t->arg);
    sem_post(t->done);
}

void ps_node_each_core(struct ps_node *node, void (*run)(struct ps_core *core, void *arg), void *arg)
{
    struct core_task tasks[DP_CORES_MAX];
    sem_t done;
    sem_init(&done, 0, 0);
    for (uint32_t i = 0; i < node->core_count; i++) {
        tasks[i] = (struct core_task){.task.run = run_core_task, .run = run, .arg = arg, .done = &done};
        while (!dp_post(node->dp, i, &tasks[i].task)) {
            nanosleep(&(struct timespec){.tv_nsec = POST_RETRY_NS}, NULL);
        }
    }
    for (uint32_t i = 0; i < node->core_count; i++) {
        while (sem_wait(&done) != 0 && errno == EINTR) {
        }
    }
    sem_destroy(&done);
}
