#include "tools/cluster_tolerance.h"

#include <stdio.h>

bool tool_tolerance_text(const struct mr_cluster_state *state, const char *name,
                         char text[TOOL_TOLERANCE_BYTES])
{
    text[0] = '\0';
    switch ((enum mr_tolerance)state->tolerance) {
    case MR_TOLERATES_ONE:
        (void)snprintf(text, TOOL_TOLERANCE_BYTES,
                       "whichever node dies now, the others serve on what it owns%s",
                       !state->has_copies    ? ""
                       : state->answers_wait ? ", with all pushes that were answered (cluster.copies = sync)"
                                             : ", but for the last milliseconds of clients without replay "
                                               "(cluster.copies = async)");
        return true;
    case MR_TOLERANCE_OFF:
        (void)snprintf(text, TOOL_TOLERANCE_BYTES,
                       "a node that dies now keeps its partitions until it is back: set cluster.take_over_s");
        break;
    case MR_TOLERANCE_ALONE:
        (void)snprintf(text, TOOL_TOLERANCE_BYTES,
                       "no other node is there that could take over: start another one");
        break;
    case MR_TOLERANCE_AWAY:
        (void)snprintf(text, TOOL_TOLERANCE_BYTES, "%.63s is away, and what it owns is not taken over yet",
                       name);
        break;
    case MR_TOLERANCE_UNSAVED:
        (void)snprintf(text, TOOL_TOLERANCE_BYTES,
                       "the cluster has no checkpoint that others could take over from: millrace ctl save");
        break;
    case MR_TOLERANCE_ROOM:
        (void)snprintf(text, TOOL_TOLERANCE_BYTES,
                       "the others have no room for what %.63s owns: raise memory.limit_mib, or add a node",
                       name);
        break;
    case MR_TOLERANCE_VERSION:
        (void)snprintf(text, TOOL_TOLERANCE_BYTES, "%.63s has a version that cannot take over: upgrade it",
                       name);
        break;
    case MR_TOLERANCE_BACKUP:
        (void)snprintf(text, TOOL_TOLERANCE_BYTES,
                       "what %.63s owns has no backup: start a node on another host, or raise "
                       "memory.limit_mib (cluster.host says which nodes share one)",
                       name);
        break;
    case MR_TOLERANCE_SYNC:
        (void)snprintf(
            text, TOOL_TOLERANCE_BYTES,
            "the backups of what %.63s owns are not in sync yet: what would be lost with it is what "
            "no checkpoint has and no client keeps",
            name);
        break;
    case MR_TOLERANCE_UNKNOWN:
    case MR_TOLERANCE_COUNT:
        break;
    }
    return false;
}
