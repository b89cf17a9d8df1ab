/* A member of a cluster for the client's tests: a thread that serves some cores over loopback sockets, and a
 * model of what a node does with one table, simple enough to be believed. A key that reaches a core which
 * does not own it is refused (MR_INVALID_ARGUMENT), so that every test is one of the sharding, too. Whatever
 * needs no cluster is tested with a real node: live_node.h. */
#ifndef FAKE_NODE_H
#define FAKE_NODE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include "dataplane/wire/endpoint.h"
#include "dataplane/wire/format/mr_feature.h"
#include "dataplane/wire/format/op.h"

#define FAKE_CORES_MAX        4u
#define FAKE_ROWS_MAX         4096u
#define FAKE_DIM_MAX          8u
#define FAKE_PUSH_STREAMS_MAX 256u
#define FAKE_NUMBERS_MAX      4096u
#define FAKE_STARTS_MAX       8u

struct fake_cluster;

/* A numbered push that was applied to a row, and those before it. */
struct fake_pushed {
    uint64_t client, sequence;
    const struct fake_pushed *before;
};

/* What was applied to a row goes with it, wherever it goes: so each is applied once. */
struct fake_row {
    uint64_t key;
    bool used;
    const struct fake_pushed *pushed;
    float values[FAKE_DIM_MAX];
};

struct fake_table {
    struct mr_feature feature;
    struct fake_row rows[FAKE_ROWS_MAX]; /* of all cores */
};

/* The one that was fed last; keys NULL: none. */
struct fake_batch {
    uint32_t samples, key_count;
    uint64_t *keys;
    uint32_t *offsets;
};

/* Which of one client's numbered pushes of a push stream a core has applied. */
struct fake_push_stream {
    bool used;
    uint8_t uuid[MR_UUID_BYTES];
    uint32_t stream_id;
    bool has[FAKE_NUMBERS_MAX];
    bool is_partly;   /* some keys came from elsewhere: only their rows say which of these they have */
    uint64_t durable; /* all up to it are in the checkpoint */
    bool is_saved;    /* of saved ones */
};

struct fake_core {
    uint16_t index;
    struct fake_node *node;
    struct mrc_socket_server *server;
    struct fake_batch batch;
    struct fake_push_stream *push_streams; /* [FAKE_PUSH_STREAMS_MAX] */
    bool is_late;                          /* an answer was begun, and waits */
    struct mr_call_ref late;
};

/* What fake_node_save() keeps of where the state comes from; see LIST. */
struct fake_origin {
    uint64_t checkpoint; /* the last one; 0: none */
    uint32_t start_count;
    uint64_t starts[FAKE_STARTS_MAX][MR_LIST_START_WORDS];
};

/* What the node's thread does not touch is set before it starts. */
struct fake_node {
    uint32_t core_count;
    uint32_t incarnation;
    uint64_t start_id; /* rises with each start */
    uint16_t base_port;
    atomic_uint busy;             /* bit i: core i answers PUSH_GRAD with BUSY */
    atomic_bool is_without_lease; /* each call for rows is answered with BUSY */
    atomic_ullong tells_epoch;    /* it knows the map of that epoch, and no later one; 0: the newest */
    /* bit i: core i begins its next answer to a PUSH_GRAD, and ends it once the bit is gone */
    atomic_uint late;
    atomic_ullong applied; /* pushes, without those that were known */
    atomic_ullong known;   /* pushes that had been applied before */
    atomic_ullong unseen;  /* pushes that came with MR_PUSH_UNSEEN */
    bool forgetful;        /* a restart goes back to the last fake_node_save() */
    atomic_bool save_wanted;
    struct fake_table *table, *saved;
    uint64_t saves;                              /* fake_node_save() so far */
    struct fake_origin origin, saved_origin;     /* `origin` also says which checkpoint is on disk */
    struct fake_push_stream *saved_push_streams; /* [FAKE_PUSH_STREAMS_MAX], of all cores */
    uint32_t place;                              /* in the cluster */
    struct fake_core cores[FAKE_CORES_MAX];
    const struct fake_cluster *cluster;
    atomic_ullong since;   /* calls by maps of earlier epochs are refused ... */
    atomic_ullong refused; /* ... and so many have been */
    atomic_ullong waited;  /* calls that found what they are about not loaded yet, or no lease */
    atomic_bool pause_wanted, is_paused; /* its thread does nothing, and the test may change anything */
    struct fake_thread *thread;
};

/* Starts it on free ports of 127.0.0.1, with a table of which a checkpoint is on disk. Fails the test when
 * that does not work. */
struct fake_node *fake_node_start_member(const struct fake_cluster *cluster, uint32_t place,
                                         uint32_t core_count, const struct mr_feature *table);
/* Its thread takes a pause, unless it was killed, and goes on. */
void fake_node_pause(struct fake_node *node);
void fake_node_go_on(struct fake_node *node);
/* Sets the checkpoint of `to` to what the cores of `from` know now. Both are paused. */
void fake_record_merge(const struct fake_node *from, struct fake_node *to);
/* Adds to what all cores of `to` know of numbered pushes what a checkpoint of `from` does: of a push stream
 * that both know, what both have. `to` is paused. */
void fake_record_take_over(const struct fake_node *from, struct fake_node *to);
/* Has all cores of `to` know what those of `from` know of numbered pushes, and no more. Both are paused. */
void fake_record_hand_over(struct fake_push_stream *from[FAKE_CORES_MAX], struct fake_node *to);
/* Kill it: nothing is said to anybody. What it knows of the table stays for the restart. */
void fake_node_kill(struct fake_node *node);
/* After a kill: again on the same ports, as the next incarnation. Batches are gone. */
void fake_node_restart(struct fake_node *node);
/* A checkpoint of the table and of what was pushed; a node that is forgetful comes back as it was then. */
void fake_node_save(struct fake_node *node);
/* After a kill: its next start is on other ports. */
void fake_node_change_ports(struct fake_node *node);
void fake_node_destroy(struct fake_node *node);
uint16_t fake_owner(const struct fake_node *node, uint32_t partition);
/* A row's value before anything is pushed. */
float fake_initial(uint64_t key, uint32_t d);
/* fake_record.c: the record of numbered pushes, and checkpoints. By the node's thread, or while there is
 * none. */
bool fake_record_has(struct fake_core *core, const struct mr_request *request);
void fake_record_add(struct fake_core *core, const struct mr_request *request);
/* Marks the numbers from `from` up to the request's. */
void fake_record_skip(struct fake_core *core, const struct mr_request *request, uint64_t from);
/* Tells in the answer what is durable. */
void fake_record_tell(struct fake_core *core, struct mr_endpoint *ep, const struct mr_request *request);
void fake_record_save(struct fake_node *node);
void fake_record_restore(struct fake_node *node);
/* The row of a key, or where it can be. */
struct fake_row *fake_row_at(struct fake_table *table, uint64_t key);
/* fake_ops.c */
void fake_node_answer(void *app, struct mr_endpoint *ep, const struct mr_request *request);
void fake_core_forget(struct fake_core *core);
void fake_core_end_late(struct fake_core *core, struct mr_endpoint *ep);

#endif
