/* The catalogue of a cluster: its features with their numbers, and the freeze level. The coordinator keeps
 * one, with a version; every node brings its own features to it. As with the map, a change is a function of
 * the catalogue alone, and is written on condition that it is still the one that the change was made from.
 *
 * A node may lack memory for a feature. So what is created is not final at first: every node tries it, and
 * says so in its report. Once all that serve have it, it is final; if one has failed, it is taken back. Which
 * of the two, anybody can see, and propose: whoever asked may be dead by then. Everything else holds as soon
 * as it is written. Numbers never return: a number up to last_feature that is not there belonged to a feature
 * that is gone. Pure: no input or output, no lock. Any thread. */
#ifndef PS_CLUSTER_CATALOG_H
#define PS_CLUSTER_CATALOG_H

#include <stdbool.h>
#include <stdint.h>
#include "dataplane/wire/format/mr_feature.h"
#include "dataplane/wire/format/mr_status.h"
#include "ps/cluster/feature_rules.h"
#include "ps/cluster/report.h"

/* As many as are sure to fit into one znode (catalog_json.c); the simulator's worlds have fewer. */
#ifndef PS_CLUSTER_FEATURES_MAX
#define PS_CLUSTER_FEATURES_MAX 2048u
#endif
#define PS_CLUSTER_TAKEN_BACK_MAX 8u

struct ps_cluster_feature {
    uint32_t id;
    bool is_final;
    /* the version that it came with, which those of one Create have in common; once final, that by which
     * it is */
    uint64_t since;
    struct mr_feature feature;
};

struct ps_cluster_catalog {
    uint64_t version;      /* rises by 1 with each change; 0: the coordinator has none yet */
    uint32_t last_feature; /* the highest number that was given */
    uint32_t freeze;       /* enum mr_freeze */
    uint32_t count;
    struct ps_cluster_feature features[PS_CLUSTER_FEATURES_MAX]; /* in the order of their numbers */
    uint32_t taken_back_count;                                   /* the last ones, the newest last */
    struct ps_cluster_taken_back {
        uint64_t since;
        enum mr_status status;
        char text[PS_CLUSTER_FAILED_BYTES];
    } taken_back[PS_CLUSTER_TAKEN_BACK_MAX];
};

/* Copies what is in use. */
void ps_cluster_catalog_copy(struct ps_cluster_catalog *to, const struct ps_cluster_catalog *from);
/* The feature's place of that name or number, or `count` when there is none. */
uint32_t ps_cluster_catalog_find(const struct ps_cluster_catalog *c, const char *name);
uint32_t ps_cluster_catalog_find_id(const struct ps_cluster_catalog *c, uint32_t id);

/* ---- what somebody asks for ---- */

/* To begin is for a cluster that never had a feature: with those of a checkpoint, which keep their
 * numbers. */
enum ps_catalog_request_kind {
    PS_CATALOG_CREATE,
    PS_CATALOG_DROP,
    PS_CATALOG_ALTER,
    PS_CATALOG_FREEZE,
    PS_CATALOG_BEGIN
};

struct ps_catalog_request {
    enum ps_catalog_request_kind kind;
    uint32_t feature_count; /* to create, to begin with; to alter: before and after */
    const struct mr_feature *features;
    uint32_t features_max; /* to create: so many there may be then; 0: only the cluster's own limit holds */
    uint32_t name_count;   /* to drop */
    const char *names;     /* [name_count][MR_NAME_BYTES] */
    uint32_t freeze;
    ps_rules_may_alter *may_alter;
    /* Found out on the way, except for the numbers to begin with. ids has room for all features, or names. */
    uint32_t *ids;        /* of what was created, in the order of `features`; of what is dropped, ascending */
    uint32_t id_count;    /* drop: names that mean the same feature count once; 0: not found out yet */
    struct mr_feature is; /* what was altered, as it is since */
    uint64_t final_since; /* create: the version since which all of them are final */
    uint64_t written_as; /* create: the version as which it was proposed last, and perhaps written; 0: none */
    bool was_written;    /* drop: it may have been, so what is gone is no error */
};

enum ps_catalog_request_state {
    PS_CATALOG_FAILED, /* *status and `text` say why */
    PS_CATALOG_WAITS,  /* for features that are not final yet */
    PS_CATALOG_WRITES, /* *next is to be written */
    PS_CATALOG_MADE    /* it is so in this catalogue */
};

/* Compares a request with the catalogue. To be asked again with every version until it is made or has failed:
 * what was perhaps written is recognised. `text` has PS_RULES_TEXT_BYTES. */
enum ps_catalog_request_state ps_cluster_catalog_try(const struct ps_cluster_catalog *c,
                                                     struct ps_catalog_request *request,
                                                     struct ps_cluster_catalog *next, enum mr_status *status,
                                                     char *text);

/* ---- what is not final ---- */

/* Are there features that are not final? */
bool ps_cluster_catalog_is_open(const struct ps_cluster_catalog *c);
/* Makes final or takes back what the reports of the nodes that have a session decide; they were read after
 * the catalogue. False: nothing is decided. */
bool ps_cluster_catalog_settle(const struct ps_cluster_catalog *c, const struct ps_cluster_report *reports,
                               uint32_t count, struct ps_cluster_catalog *next);
/* Do all nodes that serve have what this version says? */
bool ps_cluster_catalog_is_everywhere(uint64_t version, const struct ps_cluster_report *reports,
                                      uint32_t count);

#endif
