#include "tools/cluster_loss.h"

#include <stdio.h>

bool tool_loss_text(const struct mr_cluster_state *state, const char *name, char text[TOOL_LOSS_BYTES])
{
    text[0] = '\0';
    switch ((enum mr_tolerance)state->loss) {
    case MR_LOSS_TOLERATED:
        (void)snprintf(text, TOOL_LOSS_BYTES, "whichever node dies now, the others take over what it owns");
        return true;
    case MR_LOSS_KEPT:
        (void)snprintf(text, TOOL_LOSS_BYTES,
                       "a node that dies now keeps its partitions until it is back: set cluster.take_over_s");
        break;
    case MR_LOSS_OF_ALL:
        (void)snprintf(text, TOOL_LOSS_BYTES,
                       "no other node is there that could take over: start another one");
        break;
    case MR_LOSS_OF_SECOND:
        (void)snprintf(text, TOOL_LOSS_BYTES, "%.63s is away, and what it owns is not taken over yet", name);
        break;
    case MR_LOSS_UNSAVED:
        (void)snprintf(text, TOOL_LOSS_BYTES,
                       "the cluster has no checkpoint that others could take over from: millrace ctl save");
        break;
    case MR_LOSS_NO_ROOM:
        (void)snprintf(text, TOOL_LOSS_BYTES,
                       "the others have no room for what %.63s owns: raise memory.limit_mib, or add a node",
                       name);
        break;
    case MR_LOSS_OLD_VERSION:
        (void)snprintf(text, TOOL_LOSS_BYTES, "%.63s has a version that cannot take over: upgrade it", name);
        break;
    case MR_LOSS_UNKNOWN:
        break;
    }
    return false;
}
