#include "ps/node_cluster/cluster_load.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include "dataplane/wire/base/log.h"
#include "ps/cluster/cluster_map.h"
#include "ps/control/control_internal.h"

#define LOAD_WHY_BYTES 512u

/* The node serves nothing from now on: the log says why, and so does all that shows its state. Always
 * false. */
__attribute__((format(printf, 4, 5))) static bool load_give_up(struct ps_cluster_load *l,
                                                               struct ps_control *control,
                                                               enum mr_status status, const char *format, ...)
{
    char why[LOAD_WHY_BYTES];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(why, sizeof(why), format, arguments);
    va_end(arguments);
    l->has_failed = true;
    mr_log_error("cluster_not_loaded", "cluster %s: this node serves nothing: %s", l->cluster, why);
    control->lacks_part = control->gate != PS_GATE_BROKEN; /* otherwise it holds half of it */
    ps_control_gate_broken(control, status, why);
    return false;
}

/* Loads this node's part of a checkpoint of the cluster; 0: there is none yet, and the node begins with what
 * the cluster does. False: the node cannot serve. */
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
    if (checkpoint != 0 && l->commit.directory[0] == '\0')
        return load_give_up(l, control, MR_CHECKPOINT_NOT_FOUND,
                            "there is a checkpoint %" PRIu64
                            " of the cluster, and this node has no checkpoint.directory: set it and start it "
                            "again",
                            checkpoint);
    const enum mr_status status = ps_control_restore(control, &request, &restored, text);
    if (status != MR_OK)
        return load_give_up(l, control, status,
                            "its part of checkpoint %" PRIu64
                            " of %s cannot be loaded (%.160s): put that right and start it again",
                            checkpoint != 0 ? checkpoint : l->init.id,
                            checkpoint != 0 ? "the cluster" : l->init.directory, text);
    if (checkpoint != 0)
        ps_control_durable(control);
    return true;
}

/* Whether the checkpoints in the directory are those of this cluster: its next ones would replace others, and
 * be taken for them. None is newer than the newest cut that was begun. One between that and the committed one
 * was given up while a leader before this one was writing its file; the map's is the one that counts. */
static bool has_own_directory(struct ps_cluster_load *l, struct ps_control *control,
                              const struct ps_cluster_load_now *now)
{
    char text[PS_TEXT_BYTES] = "";
    uint64_t newest = 0;
    if (l->commit.directory[0] == '\0')
        return true;
    const enum mr_status status = ps_cluster_commit_newest(&l->commit, &newest, text);
    if (status != MR_OK)
        return load_give_up(l, control, status, "%s: put that right and start it again", text);
    if (newest <= now->last_cut)
        return true;
    return load_give_up(
        l, control, MR_CHECKPOINT_NOT_FOUND,
        "%s has CLUSTER-%" PRIu64 ", and ZooKeeper knows of none after %" PRIu64
        ": it has lost what it knew, or the checkpoints are of a former cluster. To begin a new one, set "
        "checkpoint.directory to an empty directory, and cluster.init_from to the checkpoint that it is to "
        "begin with",
        l->commit.directory, newest, now->last_cut);
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
        return load_give_up(l, control, MR_FEATURE_MISMATCH,
                            "cluster.init_from = %s: %s; put that right and start it again", l->init_from,
                            text);
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
    if (control->gate == PS_GATE_BUSY && !has_own_directory(l, control, now))
        return false;
    return load_part(l, control, now->committed, owns);
}
