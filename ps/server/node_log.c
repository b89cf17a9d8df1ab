#include "ps/server/node_log.h"

#include <stdio.h>
#include <unistd.h>
#include "dataplane/wire/base/log.h"

/* Of a member of a cluster it is its name there. */
static void name_of(const struct ps_config *config, char *out, size_t out_bytes)
{
    if (config->cluster_name[0] == '\0')
        snprintf(out, out_bytes, "%s", config->node_name);
    else if (config->cluster_node[0] != '\0')
        snprintf(out, out_bytes, "%s", config->cluster_node);
    else if (gethostname(out, out_bytes) != 0)
        out[0] = '\0';
    out[out_bytes - 1] = '\0';
}

bool ps_node_log_configure(const struct ps_config *config, char *error, size_t error_bytes)
{
    char node[72];
    const char *why;
    name_of(config, node, sizeof(node));
    const struct mr_log_options options = {.program = "millraced",
                                           .node = node,
                                           .level = (enum mr_log_level)config->log_level,
                                           .format = (enum mr_log_format)config->log_format,
                                           .journal = (enum mr_log_journal)config->log_journal,
                                           .rate_per_s = (uint32_t)config->log_rate_per_s};
    if (mr_log_configure(&options, &why))
        return true;
    snprintf(error, error_bytes, "log.journal = yes: %s; set auto, or no", why);
    return false;
}
