/* What a new cluster begins with: a checkpoint of another one, or of a node by itself (cluster.init_from).
 * Its features, with their numbers, become the catalogue's; each node loads the rows and the records of the
 * partitions that it owns. Until the cluster has a checkpoint of its own, a node that starts again loads the
 * same once more. Control thread. */
#ifndef PS_CLUSTER_INIT_H
#define PS_CLUSTER_INIT_H

#include <stdbool.h>
#include "ps/control/control.h"

struct ps_cluster_init {
    char directory[PS_DIRECTORY_BYTES]; /* "": the cluster begins empty */
    uint64_t id;
    struct ps_catalog *features; /* NULL: not read yet */
};

enum ps_cluster_init_state {
    PS_INIT_WAITS, /* for the catalogue: look again */
    PS_INIT_READY, /* the checkpoint may be loaded */
    PS_INIT_FAILED /* and `text` (PS_CONTROL_TEXT_BYTES) says why */
};

/* False: the path is too long. */
bool ps_cluster_init_create(struct ps_cluster_init *init, const char *path);
/* Reads the checkpoint's features, and lets the cluster begin with them. */
enum ps_cluster_init_state ps_cluster_init_look(struct ps_cluster_init *init, struct ps_control *control,
                                                char *text);
/* What is to be restored of it: the partitions `owns`, which must stay. */
struct ps_restore_request ps_cluster_init_request(const struct ps_cluster_init *init, const bool *owns);
void ps_cluster_init_destroy(struct ps_cluster_init *init);

#endif
