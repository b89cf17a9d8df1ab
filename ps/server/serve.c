#include "ps/server/serve.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "dataplane/wire/base/log.h"
#include "ps/control/control.h"
#include "ps/core/core.h"
#include "ps/store/store_url.h"

void ps_serve_config(struct ps_config *config)
{
    config->checkpoint_directory[0] = '\0';
    config->checkpoint_remote[0] = '\0';
    config->checkpoint_durable = PS_DURABLE_DISK;
    config->checkpoint_durability = PS_DURABILITY_CHECKPOINT;
    config->checkpoint_deltas = 0;
    config->checkpoint_every_steps = 0;
    config->checkpoint_every_s = 0;
    config->checkpoint_save_on_stop = false;
}

static void freeze_core(struct ps_core *core, void *arg)
{
    core->freeze = MR_FREEZE_ALL;
    core->counters.freeze = MR_FREEZE_ALL;
    core->counters.read_only = 1;
}

enum mr_status ps_serve_start(struct ps_node *node, char *error)
{
    const char *path = node->config->checkpoint_serve;
    char directory[PS_DIRECTORY_BYTES], text[PS_CONTROL_TEXT_BYTES] = "path: too long";
    struct ps_restore_request request = {.directory = directory, .is_own = true};
    struct ps_restored restored = {0};
    enum mr_status status = MR_INVALID_ARGUMENT;
    if (ps_store_url_split(path, directory, sizeof(directory), &request.id))
        status = ps_control_restore(node->control, &request, &restored, text);
    if (status != MR_OK) {
        snprintf(error, DP_ERROR_BYTES, "checkpoint.serve = %.120s: %s: %.300s", path, mr_status_text(status),
                 text);
        return status;
    }
    node->is_read_only = true;
    snprintf(node->serves, sizeof(node->serves), "checkpoint %" PRIu64 " of %.200s", restored.id, directory);
    ps_node_each_core(node, freeze_core, NULL);
    mr_log_info("serves_checkpoint", "serving %s, read only", node->serves);
    return MR_OK;
}
