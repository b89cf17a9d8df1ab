/* Marks of clients, and all marks for whoever asks (dataplane/wire/format/mr_mark.h). */
#include <assert.h>
#include <string.h>
#include "dataplane/udp/address.h"
#include "dataplane/wire/base/log.h"
#include "ps/core/marks.h"
#include "ps/ops/ops.h"

static_assert(sizeof(struct mr_mark) == 256, "as on the wire");

/* One line, for others to read. False: it is too long, or has characters that are none. */
static bool read_text(const struct mr_tensor *tensor, char text[MR_MARK_TEXT_BYTES])
{
    if (tensor->bytes >= MR_MARK_TEXT_BYTES)
        return false;
    memcpy(text, tensor->data, tensor->bytes);
    text[tensor->bytes] = '\0';
    for (uint64_t i = 0; i < tensor->bytes; i++)
        if ((unsigned char)text[i] < ' ' || text[i] == 0x7f)
            return false;
    return true;
}

static void log_mark(const struct ps_op *op, const char *text)
{
    struct mr_address from;
    char who[MR_ADDRESS_TEXT_BYTES] = "?";
    if (mr_call_ref_address(op->ep, op->request->ref, &from))
        mr_address_text(&from, who);
    mr_log_with(MR_LOG_DEBUG, MR_LOG_FIELDS({"client", .text = who}), "mark", "%s: mark: %s", who, text);
}

void ps_op_mark(void *core_app, struct mr_endpoint *ep, const struct mr_request *request)
{
    const struct ps_op op = ps_op_of(core_app, ep, request);
    struct mr_mark marks[PS_MARKS_KEPT];
    char text[MR_MARK_TEXT_BYTES];
    uint64_t last, missed;
    struct ps_marks *kept = op.core->node->marks;
    if (!ps_check_vector(&op, 0, MR_U64, 1, "number") || !ps_check_tensor(&op, 1, MR_U8, 1, "text"))
        return;
    if (!read_text(&op.tensors[1], text)) {
        ps_refuse(&op, MR_INVALID_ARGUMENT, "a mark is one line of at most %u bytes", MR_MARK_TEXT_BYTES - 1);
        return;
    }
    const uint32_t count = ps_marks_read(kept, ps_tensor_u64(&op.tensors[0], 0), marks, &last, &missed);
    struct mr_tensor tensors[2] = {mr_tensor_1d(MR_U64, 2, NULL),
                                   mr_tensor_2d(MR_U8, count, sizeof(struct mr_mark), NULL)};
    if (!ps_reply_begin(ep, request, tensors, 2))
        return;
    memcpy(tensors[0].data, ((const uint64_t[2]){last, missed}), 2 * sizeof(uint64_t));
    memcpy(tensors[1].data, marks, count * sizeof(*marks));
    if (text[0] != '\0') {
        ps_marks_add(kept, MR_MARK_CLIENT, text);
        log_mark(&op, text);
    }
    mr_reply_end(ep, request->ref);
}
