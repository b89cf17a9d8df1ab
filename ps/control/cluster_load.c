#include "ps/control/cluster_load.h"

#include <inttypes.h>
#include "dataplane/wire/base/log.h"
#include "ps/cluster/cluster_map.h"
#include "ps/control/control_internal.h"

/* Loads this node's part of a checkpoint of the cluster; 0: there is none yet, and the node begins with what
 * the cluster does. False: the node cannot serve, and the log says why. */
static bool load_part(struct ps_cluster_load *l, struct ps_control *control, uint64_t checkpoint,
                      const bool *owns)
{
    char text[PS_CONTROL_TEXT_BYTES] = "";
    struct ps_restored restored;
    const struct ps_restore_request request =
        checkpoint == 0 ? ps_cluster_init_request(&l->init, owns)
                        : (struct ps_restore_request){.directory = l->commit.directory,
                                                      .is_own = true,
                                                      .goes_on = true,
                                                      .id = checkpoint,
                                                      .owns = owns,
                                                      .own_part = l->node};
    if (checkpoint == 0 && l->init.directory[0] == '\0')
        return true;
    if (l->has_part) {
        mr_log_error(
            "cluster_version",
            "cluster %s: the map gives this node more partitions, which this version does not load: run one "
            "version on all nodes",
            l->cluster);
        return false;
    }
    if (checkpoint != 0 && l->commit.directory[0] == '\0') {
        mr_log_with(MR_LOG_ERROR, MR_LOG_FIELDS({"checkpoint", .number = checkpoint}), "cluster_no_directory",
                    "cluster %s: there is a checkpoint %" PRIu64
                    " of the cluster, and this node has no checkpoint.directory: set it and start again",
                    l->cluster, checkpoint);
        return false;
    }
    if (ps_control_restore(control, &request, &restored, text) != MR_OK)
        return false; /* the log says why */
    if (checkpoint != 0)
        ps_control_durable(control);
    l->has_part = true;
    return true;
}

/* Whether the checkpoints in the directory are those of this cluster: its next ones would replace others, and
 * be taken for them. No checkpoint can end before this node serves, so none is newer than the map says. */
static bool has_own_directory(const struct ps_cluster_load *l, const struct ps_cluster_load_now *now)
{
    char text[PS_TEXT_BYTES] = "";
    uint64_t newest = 0;
    if (l->commit.directory[0] == '\0')
        return true;
    if (ps_cluster_commit_newest(&l->commit, &newest, text) != MR_OK) {
        mr_log_error("cluster_not_loaded",
                     "cluster %s: this node serves nothing: %s; put that right and start it again",
                     l->cluster, text);
        return false;
    }
    if (newest <= now->committed || newest == now->cut)
        return true;
    mr_log_error(
        "cluster_lost_memory",
        "cluster %s: this node serves nothing: %s has CLUSTER-%" PRIu64
        ", and ZooKeeper knows of no checkpoint after %" PRIu64
        ": it has lost what it knew, or the checkpoints are of a former cluster. To begin a new one, set "
        "checkpoint.directory to an empty directory, and cluster.init_from to the checkpoint that it is to "
        "begin with",
        l->cluster, l->commit.directory, newest, now->committed);
    return false;
}

/* Lets a new cluster begin with the checkpoint that the configuration names. Returns whether the node may
 * load now what it owns: those features must be in the catalogue, or they would count as dropped. */
static bool begin_cluster(struct ps_cluster_load *l, struct ps_control *control,
                          const struct ps_cluster_load_now *now)
{
    char text[PS_CONTROL_TEXT_BYTES] = "";
    l->waits = false;
    if (l->init.directory[0] == '\0' || now->epoch == 0 || l->has_begun)
        return true;
    switch (now->committed == 0 ? ps_cluster_init_look(&l->init, control, text) : PS_INIT_READY) {
    case PS_INIT_READY:
        l->has_begun = true;
        ps_control_cluster_release(control, MR_OK, "");
        return true;
    case PS_INIT_WAITS:
        l->waits = true;
        return false;
    case PS_INIT_FAILED:
    default:
        ps_control_cluster_release(control, MR_FEATURE_MISMATCH, text);
        mr_log_error(
            "cluster_not_loaded",
            "cluster %s: this node serves nothing: cluster.init_from = %s: %s; put that right and start it "
            "again",
            l->cluster, l->init_from, text);
        l->has_failed = true;
        return false;
    }
}

bool ps_cluster_load_look(struct ps_cluster_load *l, struct ps_control *control,
                          const struct ps_cluster_load_now *now)
{
    bool owns[MR_PARTITION_COUNT], any = false;
    if (l->has_failed || !begin_cluster(l, control, now))
        return false;
    for (uint32_t slot = 0; slot < MR_PARTITION_COUNT; slot++) {
        owns[ps_cluster_slot(slot)] = now->grants[slot] != 0;
        any |= now->grants[slot] != 0;
    }
    if (!any)
        return false;
    if (control->gate == PS_GATE_BUSY && !has_own_directory(l, now)) {
        l->has_failed = true;
        return false;
    }
    if (load_part(l, control, now->committed, owns))
        return true;
    mr_log_error("cluster_not_loaded",
                 "cluster %s: this node serves nothing: its part of checkpoint %" PRIu64
                 " of %s cannot be loaded; put that right and start it again",
                 l->cluster, now->committed != 0 ? now->committed : l->init.id,
                 now->committed != 0 ? "the cluster" : l->init.directory);
    l->has_failed = true;
    return false;
}
