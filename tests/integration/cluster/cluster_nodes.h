/* Nodes of one cluster, each a millraced on sockets of the loopback interface in a network of the test's
 * own. For cmocka tests. */
#ifndef TESTS_CLUSTER_NODES_H
#define TESTS_CLUSTER_NODES_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include "dataplane/wire/format/cluster.h"
#include "dataplane/wire/format/mr_feature.h"
#include "dataplane/wire/format/mr_status.h"

#define CLUSTER_NODE_CORES 2u

struct cluster_node {
    pid_t pid; /* 0: it does not run */
    uint16_t port;
    char name[16];
    char directory[64]; /* its configuration and its log */
};

/* What a node says of the cluster. */
struct cluster_shown {
    uint32_t core_count;
    uint64_t words[MR_CLUSTER_WORDS];
    uint32_t node_count;
    struct mr_cluster_node nodes[MR_CLUSTER_NODES_MAX];
    uint8_t owner[MR_PARTITION_COUNT];
};

/* Gives this process, and those that it starts, a network with the loopback interface, and a link that leads
 * nowhere and has a link-local address only; skips the test without root. */
void cluster_nodes_isolate(void);

/* Makes and starts node `number` (its name is n0, n1, ...); settings are lines of its configuration, ""
 * for none, after those that every node of the fixture has. Unless they set cluster.take_over_s, nobody takes
 * over what a killed node owns: otherwise a slow machine would decide. */
void cluster_node_create(struct cluster_node *n, const char *millraced, uint32_t number,
                         const char *settings);
/* The same in a cluster other than "ads", or under another name. */
void cluster_node_create_as(struct cluster_node *n, const char *millraced, uint32_t number,
                            const char *cluster, const char *name, const char *settings);
/* Starts it again after it has ended. By a thread that lives as long as the test does: the node ends with
 * it. */
void cluster_node_start(struct cluster_node *n, const char *millraced);
void cluster_node_kill(struct cluster_node *n);
/* Stops it in an orderly way; fails the test unless it ends well. */
void cluster_node_stop(struct cluster_node *n);
/* Kills it if it runs, and removes what it left, but for the end of its log. */
void cluster_node_destroy(struct cluster_node *n);

/* Asks core 0 for NODE_INFO. MR_DEADLINE_EXCEEDED, MR_UNREACHABLE: it does not answer. */
enum mr_status cluster_node_show(const struct cluster_node *n, struct cluster_shown *out);
/* Asks until `holds` does; fails the test, and says what was waited for, after a minute. */
void cluster_node_wait(const struct cluster_node *n, struct cluster_shown *out,
                       bool (*holds)(const struct cluster_shown *shown), const char *what);
/* Does its log say so? */
bool cluster_node_says(const struct cluster_node *n, const char *text);
/* Waits for it. */
void cluster_node_wait_says(const struct cluster_node *n, const char *text);

/* After the last test: if some have failed, prints the ends of all logs. Returns `failed`. */
int cluster_nodes_end(int failed);

#endif
