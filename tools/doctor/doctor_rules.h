/* Judging a machine's facts: what is fine, what would be better, what does not work, and the command that
 * fixes it. Pure. */
#ifndef TOOL_DOCTOR_RULES_H
#define TOOL_DOCTOR_RULES_H

#include <stdint.h>
#include "dataplane/wire/format/drop_causes.h"
#include "millrace_observe.h"
#include "tools/doctor/doctor_facts.h"
#include "tools/doctor/doctor_store.h"
#include "tools/doctor/doctor_zookeeper.h"
#include "tools/log_state.h"
#include "ps/log/log_disk.h"

#define DOCTOR_FINDINGS_MAX (DOCTOR_NICS_MAX + 32u + DOCTOR_ZOOKEEPER_MAX + MR_DROP_CAUSES_MAX)

enum doctor_level { DOCTOR_OK, DOCTOR_ADVICE, DOCTOR_PROBLEM };

struct doctor_finding {
    const char *check; /* "hugepages" */
    enum doctor_level level;
    char what[200];
    char fix[240]; /* a command, or a line to put into a named file; "" when nothing is to be done */
};

struct doctor_findings {
    struct doctor_finding list[DOCTOR_FINDINGS_MAX];
    uint32_t count;
};

/* One or more findings for each check, in a fixed order; only one when /proc could not be read. */
void doctor_judge(const struct doctor_facts *facts, struct doctor_findings *findings);
/* Whether the nodes of a running server serve. */
struct doctor_nodes {
    const char *server; /* its address, as it was given */
    uint32_t count, failed;
    uint32_t state;               /* of the first node, as in struct mr_core_state */
    char name[MR_NODE_WHY_BYTES]; /* of the first that has failed; "": it is in no cluster */
    char why[MR_NODE_WHY_BYTES];  /* it has */
};
/* Takes in what core 0 of a node says; name: "" in no cluster. */
void doctor_nodes_add(struct doctor_nodes *nodes, const char *name, const struct mr_core_state *core);
/* Adds a finding. */
void doctor_judge_nodes(const struct doctor_nodes *nodes, struct doctor_findings *findings);
/* Adds a finding about what a cluster loses with one more node; none where the server is in no cluster, or
 * says nothing. `name`: of the node that this is about, or "". */
void doctor_judge_tolerance(const char *server, const struct mr_cluster_state *cluster, const char *name,
                            struct doctor_findings *findings);
/* How packets reach the cores of a running server, from its counters. */
struct doctor_port {
    const char *server; /* its address, as it was given */
    uint32_t core_count;
    uint64_t steering, queues;            /* port.steering, port.queues */
    uint64_t carrier, virtual_link;       /* port.carrier, port.virtual_link; UINT64_MAX: an older server */
    uint64_t frames, handed_on;           /* over all cores */
    uint64_t push_streams_lost;           /* ps.push_streams_lost, likewise */
    uint64_t dropped[MR_DROP_CAUSES_MAX]; /* likewise, by the index of the cause */
};
/* A visitor for mr_stats() of every core: picks what the port (arg) holds. */
void doctor_port_counter(void *arg, const char *name, uint64_t value);
/* Adds a finding about the steering, one about what carries the packets, one for each reason why packets
 * were dropped, and one about pushes that may be applied twice. */
void doctor_judge_port(const struct doctor_port *port, struct doctor_findings *findings);
/* Adds a finding about the log that a server keeps; none where it keeps none. */
void doctor_judge_log(const char *server, const struct tool_log_state *log, struct doctor_findings *findings);
/* Adds findings about a directory for a log. error: of looking at it, an errno; 0: it was measured. */
void doctor_judge_log_disk(const char *directory, const struct ps_log_disk *disk, int error,
                           struct doctor_findings *findings);
/* Adds a finding or a few. */
void doctor_judge_store(const struct doctor_store *store, struct doctor_findings *findings);
/* Adds a finding about the ensemble, and one for each server that does not serve. */
void doctor_judge_zookeeper(const struct doctor_zookeeper *ensemble, struct doctor_findings *findings);
/* "ok", "advice", "problem" */
const char *doctor_level_name(enum doctor_level level);
uint32_t doctor_count(const struct doctor_findings *findings, enum doctor_level level);

#endif
