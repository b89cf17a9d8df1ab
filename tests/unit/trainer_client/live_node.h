/* A node in the test's process that is served from loopback sockets, with what a test needs in front of it:
 * silence, answers of the test's own, and a crash. The client's tests run against it. */
#ifndef LIVE_NODE_H
#define LIVE_NODE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include "dataplane/dataplane.h"
#include "dataplane/wire/format/op.h"
#include "ps/config/config.h"

#define LIVE_CORES_MAX      4u
#define LIVE_UNANSWERED_MAX 64u
#define LIVE_ALL_CORES      0xffu
#define LIVE_SILENT         0xffu

struct mr_client;
struct ps_core;

struct live_core {
    atomic_ullong requests;        /* since the node was made */
    atomic_uint packets;           /* datagrams that came */
    atomic_uint direct, detours;   /* datagrams from ports that lead here, and from others */
    uint16_t wrong_ports[2];       /* of a node that spreads: the ports that lead elsewhere */
    _Atomic(struct ps_core *) app; /* NULL: it is not there */
    /* Calls that are not to be answered when they have been executed, of which one is late; its thread's. */
    struct mr_call_ref unanswered[LIVE_UNANSWERED_MAX], late;
    uint32_t unanswered_count;
    const struct mr_request *executing; /* one of them, which was not put off yet; NULL: none */
    bool expects_late, has_late;
};

/* Answers a request in the node's place; false: it does not. By the core's thread. */
typedef bool (*live_answer)(struct mr_endpoint *ep, uint32_t core, const struct mr_request *request);

struct live_node {
    /* Set before a start. */
    struct ps_config config;
    bool is_old;          /* says no version, as those before 0.3.0 */
    uint32_t incarnation; /* 0: its own */

    struct ps_server *server; /* NULL: it was killed */
    char *directory;          /* its checkpoints, and what else the test puts there */
    uint32_t core_count;
    uint16_t base_port, next_port; /* next_port 0: as base_port */
    /* While it runs. */
    _Atomic(live_answer) answer;       /* NULL: none */
    atomic_uint refusals[MR_OP_COUNT]; /* see live_node_refuse() */
    atomic_bool spreads;               /* datagrams from some source ports come in on another core */
    atomic_bool dumb;                  /* PUSH_GRAD is applied and never answered */
    /* bit i: core i begins its next answer to a PUSH_GRAD, and ends it once the bit is gone */
    atomic_uint late;
    atomic_uint asked[MR_OP_COUNT]; /* requests of each kind */
    atomic_uint hold_at;            /* that many pushes sent again from now on, the last of these is ... */
    atomic_bool is_held, is_let_go; /* ... taken, and executed when the test says so */
    atomic_uint hold_core;          /* ... at this core alone; LIVE_ALL_CORES: at any */
    atomic_ullong unseen;           /* pushes that came with MR_PUSH_UNSEEN */
    atomic_ullong applied_at_save;  /* live_node_applied() as of the last SAVE */
    /* of this file */
    atomic_bool is_dying, is_pausing;
    atomic_uint cut_off, paused; /* cores that are */
    struct mr_request held;
    uint32_t held_core;
    uint64_t applied_before, repeated_before; /* by starts before this one */
    struct live_core cores[LIVE_CORES_MAX];
};

/* One that is not started yet, and the start, on free ports of 127.0.0.1. Each fails the test when it does
 * not work. */
struct live_node *live_node_new(uint32_t core_count);
void live_node_start(struct live_node *node);
struct live_node *live_node_start_new(uint32_t core_count);
/* Ends it without a word to anybody. It restarts with its last checkpoint, on the same ports. */
void live_node_kill(struct live_node *node);
void live_node_restart(struct live_node *node);
void live_node_restart_with(struct live_node *node, uint32_t core_count);
/* The same on other ports, where the client does not find it; its next start is where it was. */
void live_node_restart_aside(struct live_node *node);
void live_node_destroy(struct live_node *node);
/* "127.0.0.1:PORT"; valid until the thread's next call. */
const char *live_node_address(const struct live_node *node);
/* From now on these cores (bit i: core i) answer the operation with that status. LIVE_SILENT: they take it
 * and never answer it; MR_OK: they do as ever. */
void live_node_refuse(struct live_node *node, enum mr_op op, uint32_t status, uint32_t cores);
/* Its cores do nothing, and go on. */
void live_node_pause(struct live_node *node);
void live_node_go_on(struct live_node *node);
/* Pushes that its cores have applied, and that they had applied before, since it was made. */
uint64_t live_node_applied(const struct live_node *node);
uint64_t live_node_repeated(const struct live_node *node);
/* A client for what the test does besides: without replay. */
struct mr_client *live_node_operator(const struct live_node *node);
/* A checkpoint, complete. */
void live_node_save(struct live_node *node);
/* Restores a checkpoint of its own by call; id 0: the last one. */
void live_node_take_back(struct live_node *node, uint64_t id);
/* Makes the rows of these keys, each once, with the values of live_value(). */
void live_node_fill(struct live_node *node, uint32_t table, uint32_t dim, const uint64_t *keys,
                    uint32_t count);
/* Differs for all keys of a test and all elements; a number of quarters below 1024, so that sums are
 * exact. */
float live_value(uint64_t key, uint32_t d);
/* The core that has a partition, of so many. */
uint16_t live_owner(uint32_t core_count, uint32_t partition);
/* Requests to all cores so far. */
uint64_t live_node_requests(const struct live_node *node);

#endif
