/* Measures what a call costs its client when the keys are spread over several nodes: the processor time of
 * the client's process for a call of 13312 keys, one JSON object per line:
 *   {"name": "nodes_pull_8x2", "value": 611.0, "unit": "us", "p99": 640.0, "runs": 300}
 * 8x2: eight nodes of two cores; 1x16 has as many owners on one node. The nodes are stand-ins in a process of
 * their own, which answer without a table. nodes_memory_8x2 is what the client's process has grown by
 * meanwhile.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "dataplane/wire/format/cluster.h"
#include "dataplane/wire/format/op.h"
#include "millrace.h"
#include "tests/bench/common/bench_util.h"
#include "trainer_client/socket/socket_server.h"

#define ROWS      13312u /* 512 samples x 26 slots */
#define DIM       16u
#define NODES_MAX 32u
#define CORES_MAX 16u
#define RUNS      300u
#define WARM_UP   50u
#define EPOCH     1u

struct shape {
    uint32_t nodes, cores;
};

/* One core of a stand-in. */
struct stand_in {
    const struct shape *shape;
    const uint16_t *ports; /* of core 0 of each node */
    uint32_t node;
    uint16_t core;
    struct mrc_socket_server *server;
};

/* ---- the nodes ---- */

static void nodes_answer(struct mr_endpoint *ep, const struct mr_request *r, struct mr_tensor *tensors,
                         uint32_t count)
{
    if (mr_reply_begin(ep, r->ref, MR_OK, tensors, count))
        mr_reply_end(ep, r->ref);
    else
        mr_reply_busy(ep, r->ref);
}

static void answer_info(const struct stand_in *s, struct mr_endpoint *ep, const struct mr_request *r)
{
    const struct shape *shape = s->shape;
    uint32_t words[4] = {shape->cores, 1, s->ports[s->node], MR_MESSAGE_BYTES_MAX};
    uint64_t cluster[MR_CLUSTER_WORDS] = {
        [MR_CLUSTER_EPOCH] = EPOCH, [MR_CLUSTER_SELF] = s->node, [MR_CLUSTER_NODES] = shape->nodes};
    struct mr_cluster_node nodes[NODES_MAX] = {0};
    uint16_t core[MR_PARTITION_COUNT];
    uint8_t owner[MR_PARTITION_COUNT];
    for (uint32_t p = 0; p < MR_PARTITION_COUNT; p++) {
        core[p] = (uint16_t)(p * shape->cores / MR_PARTITION_COUNT);
        owner[p] = (uint8_t)(p % shape->nodes);
    }
    for (uint32_t i = 0; i < shape->nodes; i++) {
        (void)snprintf(nodes[i].name, sizeof(nodes[i].name), "n%u", i);
        (void)snprintf(nodes[i].address, sizeof(nodes[i].address), "127.0.0.1:%u", s->ports[i]);
        nodes[i].core_count = shape->cores;
    }
    struct mr_tensor t[2 + MR_CLUSTER_TENSORS] = {
        mr_tensor_1d(MR_U32, 4, words), mr_tensor_1d(MR_U16, MR_PARTITION_COUNT, core),
        mr_body_tensor(MR_BODY_CLUSTER, cluster), mr_tensor_2d(MR_U8, shape->nodes, sizeof(nodes[0]), nodes),
        mr_tensor_1d(MR_U8, MR_PARTITION_COUNT, owner)};

    nodes_answer(ep, r, t, 2 + MR_CLUSTER_TENSORS);
}

static void on_request(void *app, struct mr_endpoint *ep, const struct mr_request *r)
{
    uint32_t id = 1;
    struct mr_tensor t = mr_tensor_1d(MR_U32, 1, &id);
    switch (r->message->preamble.op) {
    case MR_OP_NODE_INFO:
        answer_info(app, ep, r);
        return;
    case MR_OP_CREATE:
        nodes_answer(ep, r, &t, 1);
        return;
    case MR_OP_LOOKUP:
        t = mr_tensor_2d(MR_F32, r->message->tensors[0].dims[0], DIM, NULL); /* whatever is in the buffer */
        nodes_answer(ep, r, &t, 1);
        return;
    default:
        mr_reply_status(ep, r->ref, MR_OK);
    }
}

/* Opens the nodes on free ports in a row for each of them. */
static bool open_node(struct stand_in *cores, const struct shape *shape, uint16_t *ports, uint32_t node)
{
    for (uint16_t core = 0; core < shape->cores; core++) {
        struct stand_in *s = &cores[core];
        char listen[32], error[256];
        *s = (struct stand_in){.shape = shape, .ports = ports, .node = node, .core = core};
        const struct mrc_socket_server_options options = {.listen = listen,
                                                          .incarnation = 1,
                                                          .on_request = on_request,
                                                          .app = s,
                                                          .core = core,
                                                          .core_count = (uint16_t)shape->cores,
                                                          .takes_epochs = true};
        (void)snprintf(listen, sizeof(listen), "127.0.0.1:%u", core == 0 ? 0u : ports[node] + core);
        if (mrc_socket_server_create(&options, &s->server, error, sizeof(error)) != MR_OK) {
            while (core-- > 0)
                mrc_socket_server_destroy(cores[core].server);
            return false;
        }
        if (core == 0)
            ports[node] = mrc_socket_server_port(s->server);
    }
    return true;
}

static _Noreturn void serve(const struct shape *shape, int ready)
{
    static struct stand_in cores[NODES_MAX * CORES_MAX];
    static uint16_t ports[NODES_MAX];
    for (uint32_t n = 0; n < shape->nodes; n++)
        while (!open_node(&cores[(size_t)n * shape->cores], shape, ports, n)) {
        }
    if (write(ready, ports, sizeof(ports)) != sizeof(ports))
        _exit(1);
    for (;;)
        for (uint32_t i = 0; i < shape->nodes * shape->cores; i++)
            (void)mrc_socket_server_run(cores[i].server, 0);
}

/* ---- the client ---- */

static double cpu_us(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec * 1e-3;
}

static double resident_bytes(void)
{
    FILE *f = fopen("/proc/self/statm", "re");
    unsigned long all = 0, resident = 0;
    if (f == NULL || fscanf(f, "%lu %lu", &all, &resident) != 2) /* NOLINT(cert-err34-c): the kernel's */
        bench_give_up("/proc/self/statm");
    (void)fclose(f);
    return (double)resident * (double)sysconf(_SC_PAGESIZE);
}

static void measure(struct mr_client *client, const struct shape *shape, const char *what)
{
    static uint64_t keys[ROWS];
    static float gradients[ROWS * DIM];
    const bool is_pull = strcmp(what, "pull") == 0;
    char name[64];
    double *us = calloc(RUNS, sizeof(*us));
    for (uint32_t i = 0; i < ROWS; i++)
        keys[i] = i * UINT64_C(2654435761);
    for (uint32_t i = 0; i < RUNS + WARM_UP; i++) {
        const double begin_us = cpu_us();
        if (is_pull) {
            struct mr_reply *reply;
            bench_check(mr_lookup(client, NULL, 1, keys, ROWS, &reply), "lookup");
            mr_reply_free(reply);
        } else {
            bench_check(mr_push_gradients(client, NULL, 1, keys, ROWS, DIM, gradients), "push");
        }
        if (i >= WARM_UP)
            us[i - WARM_UP] = cpu_us() - begin_us;
    }
    (void)snprintf(name, sizeof(name), "nodes_%s_%ux%u", what, shape->nodes, shape->cores);
    bench_print_latency(name, us, RUNS);
    free(us);
}

static void nodes_run(const struct shape *shape)
{
    uint16_t ports[NODES_MAX];
    char server[32], name[64];
    int ready[2];
    uint32_t id;
    const double before = resident_bytes();
    if (pipe(ready) != 0)
        exit(1);
    const pid_t child = fork();

    if (child == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        serve(shape, ready[1]);
    }
    if (child < 0 || read(ready[0], ports, sizeof(ports)) != sizeof(ports))
        exit(1);
    (void)snprintf(server, sizeof(server), "127.0.0.1:%u", ports[0]);
    /* A client that spins would be charged for the nodes' time. */
    struct mr_client_options options = {.server = server, .busy_poll_us = 1};
    struct mr_client *client = bench_connect(&options);
    const struct mr_feature feature = mr_feature_table("bench", DIM);

    bench_check(mr_create(client, NULL, &feature, 1, &id), "create");
    measure(client, shape, "pull");
    measure(client, shape, "push");
    (void)snprintf(name, sizeof(name), "nodes_memory_%ux%u", shape->nodes, shape->cores);
    bench_print_rate(name, resident_bytes() - before, "bytes", 1);
    mr_client_destroy(client);
    (void)kill(child, SIGKILL);
    (void)waitpid(child, NULL, 0);
    (void)close(ready[0]);
    (void)close(ready[1]);
}

/* Each shape has a client process of its own, whose memory nothing has used before. */
int main(void)
{
    static const struct shape shapes[] = {{1, 2}, {2, 2}, {4, 2}, {8, 2}, {1, 16}, {16, 2}, {32, 2}};
    for (uint32_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        const pid_t client = fork();
        int status = -1;

        if (client == 0) {
            nodes_run(&shapes[i]);
            return 0;
        }
        if (client < 0 || waitpid(client, &status, 0) != client || status != 0)
            return 1;
    }
    return 0;
}
