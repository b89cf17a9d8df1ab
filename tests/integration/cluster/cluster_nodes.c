#include "tests/integration/cluster/cluster_nodes.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/command.h"
#include "tests/integration/netns.h"
#include "tests/integration/wire_client.h"
#include "tests/integration/end_with_test.h"
#include "tests/test.h"
#include "tests/wait.h"

#define PORT       7700u
#define LOG_BYTES  65536
#define TAIL_BYTES 16384
#define TAILS_MAX  32u
#define ASK_MS     2000u

void cluster_nodes_isolate(void)
{
    netns_require_root();
    /* With a link that the kernel has no IPv4 address on, as on the machine of a node that DPDK serves. */
    static const char links[] =
        "ip link set lo up && ip link add link0 type veth peer name link1 && "
        "{ ip addr add fe80::2/64 dev link0 nodad || true; } && ip link set link0 up && "
        "ip link set link1 up";
    if (unshare(CLONE_NEWNET) != 0 || system(links) != 0) { /* NOLINT(cert-env33-c): our own */
        perror("a network of the test's own");
        exit(1);
    }
}

static void write_configuration(const struct cluster_node *n, const char *cluster, const char *settings)
{
    char path[96];
    (void)snprintf(path, sizeof(path), "%s/conf", n->directory);
    FILE *f = fopen(path, "we");
    assert_non_null(f);
    (void)fprintf(f,
                  "[node]\nname = test-%u\n[port]\ndriver = socket\nipv4 = 127.0.0.1/8\nudp_port = %u\n"
                  "[cores]\ncount = %u\npoll_mode = adaptive\n"
                  "[memory]\nlimit_mib = 256\npackets_mib = 64\nmessages_mib = 64\n"
                  "[batches]\nmemory_mib = 16\n[cluster]\nname = %s\nnode = %s\n%s%s",
                  n->port, n->port, CLUSTER_NODE_CORES, cluster, n->name,
                  strstr(settings, "take_over_s") == NULL ? "take_over_s = 0\n" : "", settings);
    assert_int_equal(fclose(f), 0);
}

static _Noreturn void cluster_node_run(const struct cluster_node *n, const char *millraced, pid_t test)
{
    char path[96];
    (void)snprintf(path, sizeof(path), "%s/log", n->directory);
    const int output = open(path, O_CREAT | O_WRONLY | O_APPEND | O_CLOEXEC, 0600);
    (void)setenv("RUNTIME_DIRECTORY", n->directory, 1); /* DPDK's; tests with nodes of this name run beside */
    (void)dup2(output, STDOUT_FILENO);
    (void)dup2(output, STDERR_FILENO);
    (void)snprintf(path, sizeof(path), "%s/conf", n->directory);
    end_with_test(test);
    (void)execl(millraced, millraced, "--config", path, (char *)NULL);
    _exit(127);
}

void cluster_node_start(struct cluster_node *n, const char *millraced)
{
    const pid_t test = getpid();
    cluster_node_kill(n); /* one that a failed test has left */
    n->pid = fork();
    assert_true(n->pid >= 0);
    if (n->pid == 0)
        cluster_node_run(n, millraced, test);
}

void cluster_node_create_as(struct cluster_node *n, const char *millraced, uint32_t number,
                            const char *cluster, const char *name, const char *settings)
{
    *n = (struct cluster_node){.port = (uint16_t)(PORT + 10u * number),
                               .directory = "/tmp/millrace-test-XXXXXX"};
    (void)snprintf(n->name, sizeof(n->name), "%s", name);
    assert_non_null(mkdtemp(n->directory));
    write_configuration(n, cluster, settings);
    cluster_node_start(n, millraced);
}

void cluster_node_create(struct cluster_node *n, const char *millraced, uint32_t number, const char *settings)
{
    char name[16];
    (void)snprintf(name, sizeof(name), "n%u", number);
    cluster_node_create_as(n, millraced, number, "ads", name, settings);
}

void cluster_node_kill(struct cluster_node *n)
{
    if (n->pid <= 0)
        return;
    (void)kill(n->pid, SIGKILL);
    (void)waitpid(n->pid, NULL, 0);
    n->pid = 0;
}

void cluster_node_stop(struct cluster_node *n)
{
    int status;
    assert_true(n->pid > 0); /* 0 would be this process and its group */
    assert_int_equal(kill(n->pid, SIGTERM), 0);
    assert_int_equal(waitpid(n->pid, &status, 0), n->pid);
    n->pid = 0;
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* The ends of the logs of nodes that were destroyed; the oldest make room. */
static struct {
    char name[sizeof(((struct cluster_node *)NULL)->name)];
    char text[TAIL_BYTES];
} tails[TAILS_MAX];
static uint32_t tail_count;

static void read_tail(const struct cluster_node *n, char text[TAIL_BYTES])
{
    char path[96];
    (void)snprintf(path, sizeof(path), "%s/log", n->directory);
    text[0] = '\0';
    FILE *f = fopen(path, "re");
    if (f == NULL)
        return;
    if (fseek(f, 1 - TAIL_BYTES, SEEK_END) != 0)
        rewind(f);
    text[fread(text, 1, TAIL_BYTES - 1, f)] = '\0';
    (void)fclose(f);
}

static void print_tail(const char *name, const char *text)
{
    (void)fprintf(stderr, "---- the log of node %s, or its end:\n%s\n", name, text);
}

int cluster_nodes_end(int failed)
{
    const uint32_t first = tail_count > TAILS_MAX ? tail_count - TAILS_MAX : 0;
    for (uint32_t i = first; i < tail_count && failed != 0; i++)
        print_tail(tails[i % TAILS_MAX].name, tails[i % TAILS_MAX].text);
    return failed;
}

void cluster_node_destroy(struct cluster_node *n)
{
    cluster_node_kill(n);
    if (n->directory[0] == '\0')
        return;
    memcpy(tails[tail_count % TAILS_MAX].name, n->name, sizeof(n->name));
    read_tail(n, tails[tail_count++ % TAILS_MAX].text);
    assert_int_equal(command_run("rm -rf '%s'", n->directory), 0);
    n->directory[0] = '\0';
}

/* ---- what it shows and says ---- */

static void cluster_nodes_keep(void *context, const struct mr_message *answer)
{
    struct cluster_shown *out = context;
    assert_int_in_range(answer->preamble.tensor_count, 2 + MR_CLUSTER_TENSORS,
                        2 + MR_CLUSTER_TENSORS + MR_CLUSTER_RESTORED_TENSORS + MR_CLUSTER_COPIES_TENSORS);
    out->core_count = *(const uint32_t *)answer->tensors[0].data;
    memcpy(out->words, answer->tensors[2].data, sizeof(out->words));
    out->node_count = answer->tensors[3].dims[0];
    assert_int_in_range(out->node_count, 0, MR_CLUSTER_NODES_MAX);
    memcpy(out->nodes, answer->tensors[3].data, answer->tensors[3].bytes);
    memcpy(out->owner, answer->tensors[4].data, sizeof(out->owner));
}

enum mr_status cluster_node_show(const struct cluster_node *n, struct cluster_shown *out)
{
    char text[WIRE_CLIENT_TEXT_BYTES];
    const struct wire_client_request request = {
        .op = MR_OP_NODE_INFO, .show = cluster_nodes_keep, .context = out};
    struct wire_client *client = wire_client_create("127.0.0.1", n->port, 0);
    const enum mr_status status = wire_client_ask(client, &request, ASK_MS, text);
    wire_client_destroy(client);
    return status;
}

static bool has_ended(const struct cluster_node *n)
{
    return n->pid > 0 && waitpid(n->pid, NULL, WNOHANG) == n->pid;
}

static _Noreturn void fail_never(const struct cluster_node *n, const char *what)
{
    static char text[TAIL_BYTES]; /* also if nobody waits for the end of the tests */
    read_tail(n, text);
    print_tail(n->name, text);
    fail_msg("%s: never: %s", n->name, what);
    abort();
}

void cluster_node_wait(const struct cluster_node *n, struct cluster_shown *out,
                       bool (*holds)(const struct cluster_shown *shown), const char *what)
{
    bool is_so = false;
    (void)WAIT_WITHIN(WAIT_LIMIT_S, is_so = cluster_node_show(n, out) == MR_OK && holds(out),
                      is_so || has_ended(n));
    if (!is_so)
        fail_never(n, what);
}

bool cluster_node_says(const struct cluster_node *n, const char *text)
{
    static char log[LOG_BYTES];
    char path[96];
    (void)snprintf(path, sizeof(path), "%s/log", n->directory);
    FILE *f = fopen(path, "re");
    if (f == NULL)
        return false;
    const size_t bytes = fread(log, 1, sizeof(log) - 1, f);
    (void)fclose(f);
    log[bytes] = '\0';
    return strstr(log, text) != NULL;
}

void cluster_node_wait_says(const struct cluster_node *n, const char *text)
{
    bool is_said = false;
    (void)WAIT_WITHIN(WAIT_LIMIT_S, is_said = cluster_node_says(n, text), is_said || has_ended(n));
    if (!is_said)
        fail_never(n, text);
}
