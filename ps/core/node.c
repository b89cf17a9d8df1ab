#include "ps/core/node.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include "dataplane/wire/base/list.h"
#include "ps/core/core.h"

#define POST_RETRY_NS 100000

void ps_node_map_partitions(struct ps_node *node, uint32_t core_count)
{
    node->core_count = core_count;
    for (uint32_t p = 0; p < MR_PARTITION_COUNT; p++)
        node->partition_core[p] = (uint16_t)ps_node_core_of(core_count, p);
}

void ps_node_wake_control(const struct ps_node *node)
{
    if (node->control_wake != NULL)
        sem_post(node->control_wake);
}

void ps_node_set_state(struct ps_node *node, enum mr_node_state state)
{
    uint32_t before = atomic_load(&node->state);
    while (before != MR_NODE_STOPPING && !atomic_compare_exchange_weak(&node->state, &before, state)) {
    }
}

static pthread_mutex_t why_lock = PTHREAD_MUTEX_INITIALIZER;

void ps_node_fail(struct ps_node *node, const char *why)
{
    pthread_mutex_lock(&why_lock);
    (void)snprintf(node->why, sizeof(node->why), "%s", why);
    pthread_mutex_unlock(&why_lock);
    ps_node_set_state(node, MR_NODE_FAILED);
}

enum mr_node_state ps_node_state(const struct ps_node *node, char why[PS_WHY_BYTES])
{
    const enum mr_node_state state = (enum mr_node_state)atomic_load(&node->state);
    why[0] = '\0';
    if (state == MR_NODE_FAILED) {
        pthread_mutex_lock(&why_lock);
        memcpy(why, node->why, sizeof(node->why));
        pthread_mutex_unlock(&why_lock);
    }
    return state;
}

const char *ps_node_state_name(enum mr_node_state state)
{
    static const char *const names[MR_NODE_STATES] = {
        [MR_NODE_SERVING] = "serving",   [MR_NODE_SAVING] = "saving",       [MR_NODE_RESTORING] = "restoring",
        [MR_NODE_STOPPING] = "stopping", [MR_NODE_READ_ONLY] = "read_only", [MR_NODE_FAILED] = "failed"};
    return names[state];
}

/* There may be more cores than processors: the last one must get to run. */
static void wait_for_all(_Atomic uint32_t *missing)
{
    atomic_fetch_sub_explicit(missing, 1, memory_order_acq_rel);
    while (atomic_load_explicit(missing, memory_order_acquire) > 0)
        sched_yield();
}

static void run_core_task(struct dp_task *task, void *core_app, struct dp_core *core)
{
    struct ps_core_task *t = MR_CONTAINER(task, struct ps_core_task, task);
    ps_coop_tasks_settle(core_app); /* what it does must not fall into the middle of a call */
    if (t->missing != NULL)
        wait_for_all(t->missing);
    t->run(core_app, t->arg);
    sem_post(t->done);
}

static void node_begin(struct ps_node *node, struct ps_node_round *round,
                       void (*run)(struct ps_core *core, void *arg), void *arg, _Atomic uint32_t *missing)
{
    sem_init(&round->done, 0, 0);
    round->core_count = node->core_count;
    ps_node_note_turn(node);
    for (uint32_t i = 0; i < node->core_count; i++) {
        round->tasks[i] = (struct ps_core_task){
            .task.run = run_core_task, .run = run, .arg = arg, .done = &round->done, .missing = missing};
        while (!dp_post(node->dp, i, &round->tasks[i].task))
            nanosleep(&(struct timespec){.tv_nsec = POST_RETRY_NS}, NULL);
    }
}

void ps_node_begin(struct ps_node *node, struct ps_node_round *round,
                   void (*run)(struct ps_core *core, void *arg), void *arg)
{
    node_begin(node, round, run, arg, NULL);
}

void ps_node_wait(struct ps_node_round *round)
{
    for (uint32_t i = 0; i < round->core_count; i++) {
        while (sem_wait(&round->done) != 0 && errno == EINTR) {
        }
    }
    sem_destroy(&round->done);
}

void ps_node_each_core(struct ps_node *node, void (*run)(struct ps_core *core, void *arg), void *arg)
{
    struct ps_node_round round;
    node_begin(node, &round, run, arg, NULL);
    ps_node_wait(&round);
}

void ps_node_each_core_at_once(struct ps_node *node, void (*run)(struct ps_core *core, void *arg), void *arg)
{
    _Atomic uint32_t missing = node->core_count;
    struct ps_node_round round;
    node_begin(node, &round, run, arg, &missing);
    ps_node_wait(&round);
}
