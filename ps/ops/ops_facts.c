/* What the node is: its configuration, and what it runs on. */
#include <stdlib.h>
#include <string.h>
#include "ps/core/facts.h"
#include "ps/ops/ops.h"

void ps_op_facts(void *core_app, struct mr_endpoint *ep, const struct mr_request *request)
{
    const struct ps_op op = ps_op_of(core_app, ep, request);
    char *text = ps_facts_text(op.core->node->facts);
    if (text == NULL) {
        mr_reply_busy(ep, request->ref);
        return;
    }
    struct mr_tensor tensor = mr_tensor_1d(MR_U8, (uint32_t)strlen(text), text);
    ps_reply(ep, request, &tensor, 1);
    free(text);
}
