#include "tests/unit/trainer_client/fake_node.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>
#include <setjmp.h>
#include <cmocka.h>
#include "tests/wait.h"
#include "trainer_client/socket/socket_server.h"

#define PORT_TRIES 200u
#define PORT_FIRST 10240u /* up to where Linux begins with ephemeral ports */
#define PORT_COUNT 22000u

struct fake_thread {
    pthread_t thread;
    atomic_bool stop;
};

static enum mr_status open_core(struct fake_node *node, uint32_t core, uint16_t port)
{
    char listen[32], error[256];
    struct mrc_socket_server_options options = {.listen = listen,
                                                .incarnation = node->incarnation,
                                                .start_id = node->start_id,
                                                .on_request = fake_node_answer,
                                                .app = &node->cores[core],
                                                .core = (uint16_t)core,
                                                .core_count = (uint16_t)node->core_count,
                                                .takes_epochs = true};
    snprintf(listen, sizeof(listen), "127.0.0.1:%u", port);
    node->cores[core].index = (uint16_t)core;
    node->cores[core].node = node;
    return mrc_socket_server_create(&options, &node->cores[core].server, error, sizeof(error));
}

static void close_cores(struct fake_node *node)
{
    for (uint32_t i = 0; i < node->core_count; i++) {
        mrc_socket_server_destroy(node->cores[i].server);
        node->cores[i].server = NULL;
    }
}

static bool open_cores(struct fake_node *node, uint16_t base_port)
{
    if (open_core(node, 0, base_port) != MR_OK)
        return false;
    node->base_port = mrc_socket_server_port(node->cores[0].server);
    for (uint32_t i = 1; i < node->core_count; i++) {
        if (node->base_port + i > UINT16_MAX ||
            open_core(node, i, (uint16_t)(node->base_port + i)) != MR_OK) {
            close_cores(node);
            return false;
        }
    }
    return true;
}

static void *serve(void *arg)
{
    struct fake_node *node = arg;
    while (!atomic_load(&node->thread->stop)) {
        /* With several cores none may sleep while another has work. */
        if (atomic_load(&node->save_wanted)) {
            fake_record_save(node);
            atomic_store(&node->save_wanted, false);
        }
        while (atomic_load(&node->pause_wanted)) {
            atomic_store(&node->is_paused, true);
            wait_pause();
        }
        atomic_store(&node->is_paused, false);
        for (uint32_t i = 0; i < node->core_count; i++) {
            fake_core_end_late(&node->cores[i], mrc_socket_server_endpoint(node->cores[i].server));
            mrc_socket_server_run(node->cores[i].server, i + 1 == node->core_count ? 1 : 0);
        }
    }
    return NULL;
}

void fake_node_pause(struct fake_node *node)
{
    atomic_store(&node->pause_wanted, true);
    WAIT_UNTIL(node->thread == NULL || atomic_load(&node->is_paused));
}

void fake_node_go_on(struct fake_node *node)
{
    atomic_store(&node->pause_wanted, false);
    WAIT_UNTIL(node->thread == NULL || !atomic_load(&node->is_paused));
}

static void start_thread(struct fake_node *node)
{
    node->thread = calloc(1, sizeof(*node->thread));
    assert_non_null(node->thread);
    assert_int_equal(pthread_create(&node->thread->thread, NULL, serve, node), 0);
}

/* None that the kernel gives to others while the node is away. */
static uint16_t any_port(void)
{
    uint16_t random = 0;
    assert_int_equal(getrandom(&random, sizeof(random), 0), sizeof(random));
    return (uint16_t)(PORT_FIRST + random % PORT_COUNT);
}

static void begin_start(struct fake_node *node)
{
    struct fake_origin *origin = &node->origin;
    const uint32_t older = origin->start_count < FAKE_STARTS_MAX ? origin->start_count : FAKE_STARTS_MAX - 1;
    memmove(origin->starts[1], origin->starts[0], older * sizeof(origin->starts[0]));
    origin->starts[0][MR_LIST_START_ID] = node->start_id;
    origin->starts[0][MR_LIST_START_FROM] = origin->checkpoint;
    origin->start_count = older + 1;
}

struct fake_node *fake_node_start_member(const struct fake_cluster *cluster, uint32_t place,
                                         uint32_t core_count, const struct mr_feature *table)
{
    struct fake_node *node = calloc(1, sizeof(*node));
    bool open = false;
    assert_non_null(node);
    node->core_count = core_count;
    node->incarnation = 1;
    node->start_id = 1;
    begin_start(node);
    node->cluster = cluster;
    node->place = place;
    node->forgetful = true;
    node->table = calloc(1, sizeof(*node->table));
    node->saved = calloc(1, sizeof(*node->saved));
    node->saved_push_streams = calloc(FAKE_PUSH_STREAMS_MAX, sizeof(*node->saved_push_streams));
    assert_true(node->table != NULL && node->saved != NULL && node->saved_push_streams != NULL);
    for (uint32_t i = 0; i < FAKE_CORES_MAX; i++) {
        node->cores[i].push_streams = calloc(FAKE_PUSH_STREAMS_MAX, sizeof(*node->cores[i].push_streams));
        assert_non_null(node->cores[i].push_streams);
    }
    node->table->feature = *table;
    fake_record_save(node);
    for (uint32_t i = 0; i < PORT_TRIES && !open; i++)
        open = open_cores(node, any_port());
    assert_true(open);
    start_thread(node);
    return node;
}

void fake_node_change_ports(struct fake_node *node)
{
    node->base_port = any_port();
}

void fake_node_kill(struct fake_node *node)
{
    if (node->thread == NULL)
        return;
    atomic_store(&node->thread->stop, true);
    pthread_join(node->thread->thread, NULL);
    free(node->thread);
    node->thread = NULL;
    close_cores(node);
    for (uint32_t i = 0; i < node->core_count; i++)
        fake_core_forget(&node->cores[i]);
}

void fake_node_restart(struct fake_node *node)
{
    bool open = false;
    if (node->forgetful)
        fake_record_restore(node);
    node->incarnation++;
    node->start_id++;
    begin_start(node);
    for (uint32_t i = 0; i < PORT_TRIES && !open; i++)
        open = open_cores(node, node->base_port);
    assert_true(open);
    start_thread(node);
}

void fake_node_save(struct fake_node *node)
{
    atomic_store(&node->save_wanted, true);
    WAIT_UNTIL(node->thread == NULL || !atomic_load(&node->save_wanted));
}

void fake_node_destroy(struct fake_node *node)
{
    fake_node_kill(node);
    for (uint32_t i = 0; i < FAKE_CORES_MAX; i++)
        free(node->cores[i].push_streams);
    free(node->table);
    free(node->saved);
    free(node->saved_push_streams);
    free(node);
}

uint16_t fake_owner(const struct fake_node *node, uint32_t partition)
{
    if (node->cluster != NULL) /* as clients expect of members that have not told it yet */
        return (uint16_t)(partition * node->core_count / MR_PARTITION_COUNT);
    /* Uneven on purpose. */
    return (uint16_t)(partition * partition % 7 % node->core_count);
}

float fake_initial(uint64_t key, uint32_t d)
{
    return (float)(key % 1000) + 0.25f * (float)d;
}
