/* What the node is: its configuration, and what it runs on. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "ps/config/config_reload.h"
#include "ps/ops/ops.h"

static void print_config(const struct ps_config *config, FILE *out)
{
    char name[PS_CONFIG_SHOWN_BYTES], value[PS_CONFIG_SHOWN_BYTES];
    for (uint32_t key = 0; key < PS_CONFIG_KEY_COUNT; key++) {
        ps_config_key_name(key, name);
        ps_config_show(config, key, value);
        (void)fprintf(out, "config.%s = %s\n", name, value);
    }
}

void ps_op_facts(void *core_app, struct mr_endpoint *ep, const struct mr_request *request)
{
    const struct ps_op op = ps_op_of(core_app, ep, request);
    const struct ps_node *node = op.core->node;
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    if (out != NULL) {
        (void)fputs(node->facts != NULL ? node->facts : "", out);
        print_config(node->config, out);
        (void)fclose(out);
    }
    if (text == NULL) {
        mr_reply_busy(ep, request->ref);
        return;
    }
    struct mr_tensor tensor = mr_tensor_1d(MR_U8, (uint32_t)bytes, text);
    ps_reply(ep, request, &tensor, 1);
    free(text);
}
