/* Commits checkpoints of the cluster, for its leader: checks that the nodes' parts are there and are those
 * that the nodes have reported, and writes the file CLUSTER. A thread of its own asks the store, so nobody
 * waits for it. Any thread, one at a time. */
#ifndef PS_CLUSTER_COMMIT_H
#define PS_CLUSTER_COMMIT_H

#include <stdint.h>
#include "ps/checkpoint/checkpoint.h"
#include "ps/checkpoint/checkpoint_format.h"
#include "ps/checkpoint/cluster_manifest.h"

struct ps_cluster_commit;

struct ps_cluster_commit_options {
    const char *directory;   /* of the cluster's checkpoints: a path or a URL */
    const char *credentials; /* see ps_stores_create() */
    uint32_t pause_ms_max;
    struct ps_retention retention;
    /* Called on the thread when something has succeeded. */
    void (*ended)(void *context);
    void *context;
};

/* Finds the newest checkpoint of a cluster in the directory; 0: there is none. Asks the store itself and
 * waits for it. Otherwise `text` (PS_TEXT_BYTES) says why it cannot be known. */
enum mr_status ps_cluster_commit_newest(const struct ps_cluster_commit_options *options, uint64_t *id,
                                        char *text);
/* NULL: no memory, or no thread. What options points to must outlive it. */
struct ps_cluster_commit *ps_cluster_commit_start(const struct ps_cluster_commit_options *options);
/* Waits for the request in flight. NULL is fine. */
void ps_cluster_commit_stop(struct ps_cluster_commit *c);

enum ps_commit_state {
    PS_COMMIT_UNKNOWN, /* nobody has asked for this one yet */
    PS_COMMIT_BUSY,
    PS_COMMIT_ABSENT, /* CLUSTER-<id> is not there */
    PS_COMMIT_THERE,
    PS_COMMIT_FAILED /* a part is not as it should be; or the store cannot be asked: ask again */
};
/* What is known of a checkpoint; `text` (PS_TEXT_BYTES) says why it failed. */
enum ps_commit_state ps_cluster_commit_state(struct ps_cluster_commit *c, uint64_t id, char *text);
/* Finds out whether it is there. No effect while another request is in flight. */
void ps_cluster_commit_look(struct ps_cluster_commit *c, uint64_t id);
/* Writes it, once all parts are found to be good. No effect while another request is in flight. */
void ps_cluster_commit_write(struct ps_cluster_commit *c, const struct ps_cluster_manifest *manifest);
/* The map has noted it: older ones go, but for those that are to stay. No effect while another request is in
 * flight. */
void ps_cluster_commit_retain(struct ps_cluster_commit *c, uint64_t committed);

#endif
