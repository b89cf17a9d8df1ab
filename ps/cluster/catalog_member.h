/* A node's part in the catalogue of its cluster: it brings its own features to what the catalogue says,
 * carries through what its clients ask for, and helps to settle what others began.
 *
 * A node serves once its own entry at the coordinator says that it has the catalogue's version, as one
 * view shows both: the entry was written before the catalogue was read, and whoever settles reads the
 * catalogue before the entries. So either the node is waited for, or it has seen the change. A node with a
 * new session begins anew with this, because nobody waited for it meanwhile.
 *
 * A state machine without input or output, as member.h: events go in by functions, what is to be done goes
 * out through struct ps_catalog_member_ops. One thread (the control thread). */
#ifndef PS_CATALOG_MEMBER_H
#define PS_CATALOG_MEMBER_H

#include <stdbool.h>
#include <stdint.h>
#include "ps/cluster/catalog.h"
#include "ps/cluster/member.h"

struct ps_catalog_pending;

/* They call nothing of the catalogue member's. */
struct ps_catalog_member_ops {
    /* Writes the catalogue, of which it keeps a copy, if the coordinator's is still the one before it.
     * Answered by ps_catalog_member_written(), always. */
    void (*write)(void *context, const struct ps_cluster_catalog *next);
    /* Brings the node to the catalogue, and sets in *report how far that has come: `catalog` to its
     * version; or, if features that came with one version cannot be created, `failed`, and `catalog` to
     * the version before that one. False: it must wait, has changed nothing, and is to be tried again. */
    bool (*apply)(void *context, const struct ps_cluster_catalog *catalog,
                  struct ps_cluster_features_report *report);
    /* Puts the report into the node's entry. */
    void (*report)(void *context, const struct ps_cluster_features_report *report);
    /* The node may serve from now on, under this session with the coordinator; 0: not any more. */
    void (*serve)(void *context, uint64_t session);
    /* A request needs capabilities that are not in use: puts them into use by the map, which a later view
     * shows. MR_OK; or a status, with a line in `text` (PS_RULES_TEXT_BYTES): some node lacks one. */
    enum mr_status (*use)(void *context, uint64_t needs, char *text);
    /* A request has come to its end. Its memory is the caller's again. */
    void (*answer)(void *context, struct ps_catalog_pending *pending, enum mr_status status,
                   const char *text);
};

/* A request on its way. */
struct ps_catalog_pending {
    struct ps_catalog_pending *next;
    struct ps_catalog_request request;
    uint64_t deadline_us;
    bool is_made;
    uint64_t made_in; /* then: the version that everybody must have before the answer */
};

struct ps_catalog_member {
    const struct ps_catalog_member_ops *ops;
    void *context;
    struct ps_cluster_catalog *catalog; /* as it was last seen */
    struct ps_cluster_catalog *proposal;
    uint64_t in_use; /* capabilities, by the map that was seen with the catalogue */
    bool has_view;   /* of this session */
    bool is_applied;
    uint64_t serves; /* the session under which it may; 0: none */
    bool leads;
    bool writes; /* a change of the catalogue is on its way */
    bool asks;   /* the catalogue must be read, because a change's fate is not known or it was too late */
    struct ps_catalog_pending
        *proposed; /* what that change is for; NULL: it settles, or its request is answered */
    struct ps_cluster_features_report own;
    uint32_t report_count;
    struct ps_cluster_report reports[PS_CLUSTER_REGISTERED_MAX]; /* of all nodes with a session */
    struct ps_catalog_pending *pending;                          /* the oldest first */
};

/* What the coordinator knew at one time; the reports were read after the catalogue, and the node's own was
 * written before it. */
struct ps_catalog_view {
    uint64_t session; /* the node's own */
    const struct ps_cluster_catalog *catalog;
    uint64_t in_use;                         /* capabilities, by the map */
    const struct ps_cluster_report *reports; /* of all nodes that have a session */
    uint32_t report_count;
    uint32_t own; /* index of the node's own; report_count: it is not there */
    bool leads;
};

/* False: no memory. */
bool ps_catalog_member_init(struct ps_catalog_member *m, const struct ps_catalog_member_ops *ops,
                            void *context);
/* Requests that are pending are not answered. */
void ps_catalog_member_destroy(struct ps_catalog_member *m);

/* Somebody asks for a change. Answered at once or later, by its deadline. */
void ps_catalog_member_ask(struct ps_catalog_member *m, struct ps_catalog_pending *pending, uint64_t now_us);
/* An older catalogue than is known changes nothing; false then: the coordinator has lost it. */
bool ps_catalog_member_viewed(struct ps_catalog_member *m, const struct ps_catalog_view *view,
                              uint64_t now_us);
/* What became of write() of that version. */
void ps_catalog_member_written(struct ps_catalog_member *m, uint64_t version, enum ps_member_written outcome,
                               uint64_t now_us);
/* The session is dead. */
void ps_catalog_member_expired(struct ps_catalog_member *m);
/* Now and then: tries again what had to wait, and answers what is late. */
void ps_catalog_member_tick(struct ps_catalog_member *m, uint64_t now_us);
/* The node's features were replaced, by a restore: they are brought to the catalogue again. */
void ps_catalog_member_again(struct ps_catalog_member *m);
/* Answers the oldest request, because the node ends. */
void ps_catalog_member_refuse(struct ps_catalog_member *m, enum mr_status status, const char *text);
/* Should the coordinator be looked at soon, because something depends on what other nodes do? */
bool ps_catalog_member_is_waiting(const struct ps_catalog_member *m);

#endif
