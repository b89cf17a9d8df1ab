/* Annotations of clients, and all annotations for whoever asks (dataplane/wire/format/mr_annotation.h). */
#include <assert.h>
#include <string.h>
#include "dataplane/wire/base/printable.h"
#include "dataplane/udp/address.h"
#include "dataplane/wire/base/log.h"
#include "ps/core/annotations.h"
#include "ps/ops/ops.h"

static_assert(sizeof(struct mr_annotation) == 256, "as on the wire");

/* One line, for others to read. False: it is too long, or has what is no character. */
static bool read_text(const struct mr_tensor *tensor, char text[MR_ANNOTATION_TEXT_BYTES])
{
    if (tensor->bytes >= MR_ANNOTATION_TEXT_BYTES)
        return false;
    memcpy(text, tensor->data, tensor->bytes);
    text[tensor->bytes] = '\0';
    for (const char *s = text; s < text + tensor->bytes;) {
        const size_t bytes = mr_utf8_bytes(s);
        if (!mr_printable_is((const unsigned char *)s, bytes))
            return false;
        s += bytes;
    }
    return true;
}

static void add_annotation(const struct ps_op *op, const char *text)
{
    struct mr_address from;
    char who[MR_ADDRESS_TEXT_BYTES] = "?";
    if (mr_call_ref_address(op->ep, op->request->ref, &from))
        mr_address_text(&from, who);
    ps_annotations_add(op->core->node->annotations, MR_ANNOTATION_CLIENT, who, text);
    mr_log_with(MR_LOG_DEBUG, MR_LOG_FIELDS({"client", .text = who}), "annotation", "%s: annotation: %s", who,
                text);
}

/* What the log says is for operators: it names clients, folders and values. Returns how many are left. */
static uint32_t leave_out_log(struct mr_annotation *annotations, uint32_t count)
{
    uint32_t left = 0;
    for (uint32_t i = 0; i < count; i++)
        if (strcmp(annotations[i].event, MR_ANNOTATION_CLIENT) == 0)
            annotations[left++] = annotations[i];
    return left;
}

void ps_op_annotate(void *core_app, struct mr_endpoint *ep, const struct mr_request *request)
{
    const struct ps_op op = ps_op_of(core_app, ep, request);
    struct mr_annotation annotations[PS_ANNOTATIONS_KEPT];
    char text[MR_ANNOTATION_TEXT_BYTES];
    uint64_t words[MR_ANNOTATIONS_WORDS];
    if (!ps_check_vector(&op, 0, MR_U64, 1, "number") || !ps_check_tensor(&op, 1, MR_U8, 1, "text"))
        return;
    if (!read_text(&op.tensors[1], text)) {
        ps_refuse(&op, MR_INVALID_ARGUMENT, "an annotation is one line of UTF-8, at most %u bytes",
                  MR_ANNOTATION_TEXT_BYTES - 1);
        return;
    }
    uint32_t count =
        ps_annotations_read(op.core->node->annotations, ps_tensor_u64(&op.tensors[0], 0), annotations,
                            &words[MR_ANNOTATIONS_LAST], &words[MR_ANNOTATIONS_MISSED]);
    if (request->role != MR_ROLE_OPERATOR)
        count = leave_out_log(annotations, count);
    struct mr_tensor tensors[2] = {mr_body_tensor(MR_BODY_ANNOTATIONS, NULL),
                                   mr_tensor_2d(MR_U8, count, sizeof(struct mr_annotation), NULL)};
    if (!ps_reply_begin(ep, request, tensors, 2))
        return;
    memcpy(tensors[0].data, words, sizeof(words));
    memcpy(tensors[1].data, annotations, count * sizeof(*annotations));
    if (text[0] != '\0')
        add_annotation(&op, text);
    mr_reply_end(ep, request->ref);
}
