/* A simulated cluster: nodes with ps/cluster/ as it is, a coordinator, a store of checkpoints, clients
 * that train, and everything that can fail between them. One seed draws it all. Times are in microseconds
 * of the world's clock; each node has a clock of its own, which runs faster or slower. */
#ifndef SIM_CLUSTER_WORLD_H
#define SIM_CLUSTER_WORLD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ps/cluster/catalog_member.h"
#include "ps/cluster/copies.h"
#include "ps/cluster/leader.h"
#include "ps/cluster/member.h"
#include "tests/sim/sim_random.h"

#define NODES_MAX      5u
#define CLIENTS_MAX    3u
#define COORDINATOR    (NODES_MAX + CLIENTS_MAX) /* as a party that sends and gets messages */
#define PARTITIONS_MAX PS_CLUSTER_PARTITIONS_MAX
#define STEPS_MAX      32u
#define LOG_MAX        160u /* pushes in a partition; one applied twice has room, too */
#define EPOCHS_MAX     1500u
#define CUTS_MAX       256u
#define STARTS_MAX     64u
#define MESSAGES_MAX   4096u
#define NOBODY         UINT32_MAX

#define CATALOGS_MAX          400u
#define CATALOG_PROPOSALS_MAX 64u
#define FEATURE_IDS_MAX       800u

#define VERSIONS_FIRST     UINT64_C(1000000) /* seeds from here on have nodes of two versions */
#define COPIES_FIRST       UINT64_C(2000000) /* and from here on copies, some of them of two versions, too */
#define VERSION_STARTS_MAX 4096u

/* What a partition has learnt: a number for each client up to which its pushes are in, and the pushes
 * themselves in the order in which they were applied. */
struct state {
    uint8_t upto[CLIENTS_MAX];
    uint16_t length;
    struct push {
        uint8_t client, step;
    } log[LOG_MAX];
};

struct part { /* of a checkpoint */
    uint64_t cut;
    uint64_t start_id;
    bool has[PARTITIONS_MAX];
    struct state states[PARTITIONS_MAX];
};

enum kind {
    /* to the coordinator, and its answers */
    ASK_REGISTER,
    ASK_READ,
    ASK_WRITE,
    TELL_VIEW,
    TELL_WRITTEN,
    TELL_GLIMPSE,
    /* clients and nodes */
    CALL_PUSH,
    CALL_LOOKUP,
    CALL_MAP,
    REPLY_CALL,
    REPLY_MAP,
    /* node to node */
    MOVE_DATA,
    MOVE_HAVE,
    /* a party's own */
    TICK,
    LEAD,
    LOADED,
    PART_WRITTEN,
    CLUSTER_WRITTEN,
    START,
    FAULT,
    /* the catalogue of features */
    ASK_CATALOG,
    TELL_CATALOG_WRITTEN,
    CALL_FEATURES,
    REPLY_FEATURES,
    FEATURES_TICK,
    UPGRADE,
    /* copies */
    COPY_DATA,
    COPY_HAVE
};

struct message {
    uint64_t at_us;
    uint64_t order; /* of two at the same time */
    enum kind kind;
    uint32_t from, to;              /* nodes are 0.., clients after NODES_MAX */
    uint64_t to_start;              /* TICK and what a process told itself: it must still run; 0: any */
    uint64_t sent_us;               /* by the sender's clock */
    uint64_t session;               /* ASK and TELL */
    uint64_t registered[NODES_MAX]; /* TELL_VIEW: start ids; 0: no session */
    uint64_t sessions[NODES_MAX];
    bool leads;
    uint64_t epoch;    /* of a map: world->maps[epoch] */
    uint32_t proposal; /* ASK_WRITE: index of world->proposals */
    uint64_t grant, start_id, number;
    uint32_t partition;
    uint8_t step, status, outcome;
    uint8_t upto[CLIENTS_MAX];
    /* MOVE_DATA, MOVE_HAVE; COPY_DATA, COPY_HAVE */
    uint16_t offset, length;
    bool is_last;
    struct push entries[8];
    uint32_t entry_count;
    /* the catalogue */
    uint64_t catalog;                            /* TELL_VIEW: world->catalogs[catalog] */
    struct ps_cluster_report report;             /* ASK: the node's own */
    struct ps_cluster_report reports[NODES_MAX]; /* TELL_VIEW: as `registered` */
};

enum call_status { CALL_OK, CALL_WAIT, CALL_OTHER_OWNER, CALL_GAP };

struct session {
    uint64_t id;
    uint64_t start_id;
    uint64_t heard_us;
    bool is_registered;
    uint64_t sent_us; /* by the node's clock, of what it was sent last */
    struct ps_cluster_report report;
};

struct coordinator {
    uint64_t epoch;
    struct session sessions[NODES_MAX]; /* id 0: none */
    uint64_t leader;                    /* a session */
    uint64_t last_session;
    uint64_t down_until_us;
};

struct staged { /* what arrived by a move */
    uint64_t move;
    bool is_complete;
    struct state state;
};

struct copied {     /* what a backup has of a partition */
    uint64_t grant; /* the number of the assignment by which it came; 0: nothing */
    struct state state;
};

struct feed { /* how far the backup of a partition has come, as its owner knows */
    uint64_t grant;
    bool has_begun;
    uint16_t position;
    uint64_t behind_since_us; /* 0: it has everything */
};

/* A node's features, in place of tables, and calls for them. */
struct features {
    struct ps_catalog_member member;
    struct ps_cluster_report said;
    uint64_t session;            /* under which it may serve; 0: none */
    uint64_t proposal, proposed; /* on its way: its number, and the version; 0: none is */
    uint64_t rounds_from_us;     /* by the node's clock: an answer to what was sent before is of no use */
    uint64_t version;
    uint32_t freeze, count;
    struct held {
        uint32_t id;
        struct mr_feature feature;
    } held[PS_CLUSTER_FEATURES_MAX];
    struct asked { /* by each client last */
        bool is_open;
        uint32_t number;
        enum mr_status status;
        struct ps_catalog_pending pending;
        struct mr_feature features[2];
        char names[2][MR_NAME_BYTES];
        uint32_t ids[2];
    } asked[CLIENTS_MAX];
};

/* What a client asks for. */
struct feature_call {
    bool is_open;
    enum ps_catalog_request_kind kind;
    uint32_t number, node, count, variant, done;
    uint8_t names[2];
    uint64_t begun_us, next_us;
};

struct node {
    bool runs;
    bool is_older;  /* the process is of the version before */
    uint64_t wants; /* capabilities that are to be put into use */
    uint64_t paused_until_us;
    double clock_rate;
    uint64_t start_id;
    uint64_t session; /* as the process knows it; 0: it has none */
    bool leads;
    uint64_t absent_since_us[NODES_MAX]; /* of the map's nodes, as the leader saw it; 0: it is there */
    uint64_t cut_seen, cut_seen_us;      /* the leader's */
    bool cluster_is_being_written;
    struct ps_member member;
    struct features features;
    struct state states[PARTITIONS_MAX];
    uint64_t failed[PARTITIONS_MAX]; /* grants under which they could not be loaded */
    struct staged staged[PARTITIONS_MAX];
    struct copied copies[PARTITIONS_MAX];
    uint64_t lost[PARTITIONS_MAX]; /* assignments of which it has lost what it had, until the map ends them */
    struct feed feeds[PARTITIONS_MAX];
    uint16_t part_length[PARTITIONS_MAX]; /* how much of a partition the newest part of a checkpoint has */
    uint64_t cut, cut_step;               /* gate: calls beyond wait; 0: none */
    bool part_is_taken;                   /* and the gate is open again */
    struct sending {
        uint64_t move;
        bool is_last;
        uint16_t acknowledged[PARTITIONS_MAX];
        bool has_last[PARTITIONS_MAX];
    } sending[PS_CLUSTER_MOVES_MAX];
};

struct client {
    uint64_t epoch; /* of the map it knows */
    uint32_t step;  /* whose pushes are in flight */
    uint64_t next_step_us;
    uint8_t acked[PARTITIONS_MAX]; /* pushes up to this one are applied, as far as it knows */
    uint64_t grant[PARTITIONS_MAX], start_id[PARTITIONS_MAX];
    uint32_t durable; /* the steps that it has forgotten */
    uint64_t lookups;
};

struct world {
    struct sim_rng rng, watch_rng;
    bool verbose;
    uint64_t now_us;
    uint64_t trace;
    uint64_t last_order;
    uint32_t node_count, client_count, partition_count, steps;
    uint64_t calm_us;          /* faults end */
    uint64_t computing_us_max; /* between two steps of a client */
    uint64_t session_us;
    uint64_t take_over_us;
    bool rebalances;               /* a node that owns nothing gets its share by itself */
    uint32_t spare;                /* the node that is one; node_count: none */
    bool has_copies, answers_wait; /* replication 2; and copies = sync */
    bool backups_lose;             /* now and then, what they have */
    struct sim_rng copies_rng;
    uint32_t host_count;
    uint64_t drop_us;
    struct sim_rng loads_rng;
    uint32_t load_fails_ppm; /* of what is taken over */
    uint64_t store_us_max;   /* what a file takes */
    uint32_t loss_ppm, twice_ppm, delay_us_max;
    uint32_t kill_ppm, pause_ppm, outage_ppm, cut_off_ppm, order_ppm; /* at each FAULT */
    bool cut_off[NODES_MAX][NODES_MAX + 1]; /* from other nodes; the last: the coordinator */
    bool clients_cut_off[NODES_MAX];
    struct coordinator coordinator;
    struct node nodes[NODES_MAX];
    struct client clients[CLIENTS_MAX];
    struct sim_rng features_rng;
    bool has_versions;
    struct sim_rng versions_rng;
    uint64_t upgrade_us[NODES_MAX];
    struct feature_call feature_calls[CLIENTS_MAX];
    uint64_t catalog_version, last_proposal;
    uint32_t next_catalog_proposal;
    bool is_dropped[32];                     /* a client has asked for that, by name */
    bool is_created[FEATURE_IDS_MAX];        /* and was told so, by number */
    bool is_older_start[VERSION_STARTS_MAX]; /* by start id */
    struct ps_cluster_map maps[EPOCHS_MAX];  /* all that the coordinator has had, by epoch */
    struct ps_cluster_map proposals[MESSAGES_MAX];
    struct ps_cluster_catalog catalogs[CATALOGS_MAX]; /* all that the coordinator has had, by version */
    struct ps_cluster_catalog catalog_proposals[CATALOG_PROPOSALS_MAX];
    uint32_t next_proposal;
    struct part parts[NODES_MAX][CUTS_MAX]; /* by the number of a cut modulo CUTS_MAX */
    uint64_t clusters[CUTS_MAX];            /* cuts with a file CLUSTER */
    uint64_t last_start;
    bool drained[NODES_MAX];
    bool wants_balance, wants_cut;
    /* which generation of owners served a partition last: owners as the coordinator's map had them */
    struct generation {
        uint64_t grant, start_id;
    } generations[PARTITIONS_MAX][EPOCHS_MAX];
    uint32_t generation_count[PARTITIONS_MAX];
    uint32_t served[PARTITIONS_MAX];
    uint32_t answered[PARTITIONS_MAX]; /* pushes that this generation had answered */
    /* with copies: the pushes that were answered, a bit for each step, but for those that may be lost */
    uint64_t acknowledged[PARTITIONS_MAX][CLIENTS_MAX];
    uint32_t heap_count;
    uint32_t heap[MESSAGES_MAX];
    uint32_t free_count;
    uint32_t free_list[MESSAGES_MAX];
    struct message messages[MESSAGES_MAX];
    struct counts {
        uint64_t moves, cancelled, cuts, restarts, take_overs, replayed, promotions, promotions_lost, synced;
    } counts;
    char *why;
    size_t why_bytes;
    bool failed;
};

/* ---- cluster_world.c ---- */

/* One run, as in struct seeds_program. */
bool cluster_run(void *world, uint64_t seed, bool verbose, uint64_t *trace, char *why, size_t why_bytes);
void fail(struct world *w, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Delivers m after delay_us. */
void post(struct world *w, struct message m, uint64_t delay_us);
/* The same over the network, which loses, doubles and delays. */
void send_message(struct world *w, struct message m);
uint64_t node_now(const struct world *w, uint32_t node); /* by its clock */
bool is_calm(const struct world *w);
bool is_cut_off(const struct world *w, uint32_t from, uint32_t to);

/* ---- cluster_coordinator.c ---- */

void coordinator_receive(struct world *w, const struct message *m);
void coordinator_tick(struct world *w);

/* ---- cluster_node.c ---- */

void node_start(struct world *w, uint32_t i);
void node_receive(struct world *w, const struct message *m);

/* ---- cluster_client.c ---- */

void client_start(struct world *w, uint32_t c);
void client_receive(struct world *w, const struct message *m);
bool client_is_done(const struct world *w, uint32_t c);

/* ---- cluster_features.c ---- */

void features_start(struct world *w, uint32_t i);
void features_end(struct world *w, uint32_t i);
void features_viewed(struct world *w, uint32_t i, const struct message *m);
void features_expired(struct world *w, uint32_t i);
void features_receive(struct world *w, uint32_t i, const struct message *m);
/* The coordinator: false if it came out of order, and is not executed. */
bool features_heard(struct session *s, const struct message *m);
void features_write(struct world *w, const struct message *m);
void features_client_start(struct world *w, uint32_t c);
void features_client_receive(struct world *w, uint32_t c, const struct message *m);
bool features_are_settled(const struct world *w);
void features_check_end(struct world *w);
ps_rules_may_alter features_may_alter;

/* ---- cluster_versions.c ---- */

void versions_draw(struct world *w, uint64_t seed);
void versions_upgrade(struct world *w, uint32_t i);
void versions_start(struct world *w, uint32_t i);
bool versions_is_older(const struct world *w, uint64_t start_id);
struct mr_peer_version versions_of(const struct world *w, uint64_t start_id);
void versions_forget(struct ps_cluster_map *map);
bool versions_can_read(const struct world *w, uint32_t i, const struct ps_cluster_map *map);
enum mr_status versions_use(struct world *w, uint32_t i, uint64_t needs);
void versions_propose(struct world *w, uint32_t i, const struct ps_cluster_map *map);
void versions_check_map(struct world *w, const struct ps_cluster_map *map);
void versions_check_feature(struct world *w, const struct mr_feature *feature);

/* ---- cluster_copies.c ---- */

void copies_draw(struct world *w, uint64_t seed);
void copies_describe(const struct world *w, uint32_t i, struct ps_cluster_node *self);
/* A node, now and then: it sends its backups what they lack, and proposes which are in sync. */
void copies_tick(struct world *w, uint32_t i);
void copies_receive(struct world *w, uint32_t i, const struct message *m);
/* May a push be answered that the partition has? */
bool copies_may_answer(const struct world *w, uint32_t i, uint32_t p, uint32_t client, uint32_t step);
void copies_answered(struct world *w, uint32_t p, uint32_t client, uint32_t step);
/* The node has been promoted: does it have what came under this grant? */
bool copies_adopt(struct world *w, uint32_t i, uint32_t p, uint64_t grant);
/* The node begins with this state of a partition. It may lack what was answered for, unless it comes from
 * `what`, NULL: which may have lost something. */
void copies_begin(struct world *w, uint32_t i, uint32_t p, const struct state *s, const char *what);
/* The node has cut; must its part wait for backups? */
void copies_cut(struct world *w, uint32_t i);
bool copies_part_waits(const struct world *w, uint32_t i);
void copies_check_map(struct world *w, const struct ps_cluster_map *map);
void copies_check_proposal(struct world *w, const struct ps_cluster_map *before,
                           const struct ps_cluster_map *next, const struct message *view,
                           const uint64_t absent_us[PS_CLUSTER_NODES_MAX]);
bool copies_are_made(const struct world *w, uint32_t *without);

/* ---- cluster_check.c: the promises ---- */

/* The coordinator has taken a map. */
void check_map(struct world *w, const struct ps_cluster_map *map);
/* A node executes a call. */
void check_execution(struct world *w, uint32_t node, uint32_t partition, uint64_t grant, uint64_t start_id);
/* A node has answered a push, and the partition has so many now. */
void check_push(struct world *w, uint32_t partition, uint32_t length);
/* A node installs what came by a move. */
void check_installed(struct world *w, uint32_t partition, uint64_t grant, uint64_t start_id, uint32_t length);
/* CLUSTER of this cut is about to be written. */
void check_cut(struct world *w, const struct ps_cluster_map *map);
/* All faults are over, and everybody is done. */
void check_end(struct world *w);

#endif
