/* What is done of a push while it still arrives: repeated keys are found, as the keys come before the
 * gradients. It changes no row, and is of use only if the push becomes whole, is admitted, and its turn
 * comes; then its handler takes it over. One push at a time: a core that has more to do has no time to
 * spare. */
#include <string.h>
#include "ps/ops/ops.h"

#define KEYS_MIN      1024u /* of a push for which it is worth while */
#define KEYS_PER_STEP 512u  /* 3 to 4 us */

/* The tensors of a push by keys, of which the first part counts. */
enum { HEAD_AT, KEYS_AT, OFFSETS_AT, GRADIENT_AT, TENSORS_MIN };

static bool peek(const struct ps_early_push *e, uint32_t index, enum mr_dtype dtype, uint32_t rank,
                 struct mr_tensor *out)
{
    return mr_message_peek(e->message, e->message_bytes, index, out) && out->dtype == dtype &&
           out->rank == rank;
}

/* A gradient of f32 for each key, as nearly every push has. */
static bool find_keys(const struct ps_early_push *e, uint32_t dim, struct mr_tensor *keys,
                      struct mr_tensor *gradient)
{
    struct mr_tensor offsets;
    return peek(e, KEYS_AT, MR_U64, 1, keys) && keys->bytes == keys->dims[0] * sizeof(uint64_t) &&
           peek(e, OFFSETS_AT, MR_U32, 1, &offsets) && offsets.bytes == 0 &&
           peek(e, GRADIENT_AT, MR_F32, 2, gradient) && gradient->dims[0] == keys->dims[0] &&
           gradient->dims[1] == dim && gradient->bytes == (uint64_t)keys->dims[0] * dim * sizeof(float);
}

/* The descriptors are at the message's beginning, and the head right after them. */
static bool find_table(const struct ps_core *core, const struct ps_early_push *e, uint32_t *id)
{
    struct mr_preamble preamble;
    struct mr_tensor head;
    if (e->received_bytes < sizeof(preamble))
        return false;
    memcpy(&preamble, e->message, sizeof(preamble));
    if (preamble.op != MR_OP_PUSH_GRAD || preamble.tensor_count < TENSORS_MIN ||
        !peek(e, HEAD_AT, MR_U32, 1, &head) || head.bytes < sizeof(*id) ||
        (const uint8_t *)head.data + head.bytes > e->message + e->received_bytes)
        return false;
    memcpy(id, head.data, sizeof(*id));
    const struct ps_feature *f = ps_core_feature(core, *id);
    return f != NULL && f->table != NULL;
}

static bool early_push_begin(const struct ps_core *core, struct ps_early_push *e)
{
    struct mr_tensor keys, gradient;
    if (!find_table(core, e, &e->feature_id))
        return false;
    const struct ps_feature *f = ps_core_feature(core, e->feature_id);
    return find_keys(e, f->feature.dims[0], &keys, &gradient) && keys.dims[0] >= KEYS_MIN &&
           ps_early_keys_begin(&e->keys, f->table, keys.data, keys.dims[0], gradient.data);
}

void ps_arriving(void *core_app, struct mr_call_ref ref, const uint8_t *message, uint32_t received_bytes,
                 uint32_t message_bytes)
{
    struct ps_core *core = core_app;
    struct ps_early_push *e = &core->early;
    if (e->state != PS_EARLY_NONE && memcmp(&e->ref, &ref, sizeof(ref)) == 0) {
        e->received_bytes = received_bytes;
        return;
    }
    if (e->state == PS_EARLY_TAKEN || (e->state != PS_EARLY_NONE && (mr_call_ref_arriving(core->ep, e->ref) ||
                                                                     mr_call_ref_alive(core->ep, e->ref))))
        return;
    *e = (struct ps_early_push){.state = PS_EARLY_NOTED,
                                .ref = ref,
                                .message = message,
                                .received_bytes = received_bytes,
                                .message_bytes = message_bytes};
}

/* How many keys are there: those of whole segments from the beginning on. */
static uint32_t keys_arrived(const struct ps_early_push *e)
{
    size_t before = (size_t)((const uint8_t *)e->keys.keys - e->message);
    size_t keys = e->received_bytes > before ? (e->received_bytes - before) / sizeof(uint64_t) : 0;
    return keys < e->keys.key_count ? (uint32_t)keys : e->keys.key_count;
}

bool ps_early_push_step(struct ps_core *core)
{
    struct ps_early_push *e = &core->early;
    if ((e->state != PS_EARLY_NOTED && e->state != PS_EARLY_BEGUN) || core->gate != PS_GATE_OPEN ||
        !mr_call_ref_arriving(core->ep, e->ref))
        return false;
    if (e->state == PS_EARLY_NOTED)
        e->state = early_push_begin(core, e) ? PS_EARLY_BEGUN : PS_EARLY_UNFIT;
    const struct ps_feature *f = e->state == PS_EARLY_BEGUN ? ps_core_feature(core, e->feature_id) : NULL;
    if (f == NULL || f->table == NULL || !ps_early_keys_are_of(&e->keys, f->table)) {
        e->state =
            PS_EARLY_UNFIT; /* the table was dropped or replaced meanwhile, or it is another kind of call */
        return false;
    }
    uint32_t before = e->keys.numbered + e->keys.slots_cleared;
    const enum dp_phase at = dp_op_enter(core->phases);
    (void)dp_phase_enter(core->phases, DP_PHASE_optimizer);
    (void)ps_early_keys_step(&e->keys, f->table, keys_arrived(e), KEYS_PER_STEP);
    dp_op_leave(core->phases, MR_OP_PUSH_GRAD, at);
    return e->keys.numbered + e->keys.slots_cleared != before;
}

struct ps_early_keys *ps_early_push_take(struct ps_core *core, struct mr_call_ref ref)
{
    struct ps_early_push *e = &core->early;
    if (e->state != PS_EARLY_BEGUN || memcmp(&e->ref, &ref, sizeof(ref)) != 0)
        return NULL;
    e->state = PS_EARLY_TAKEN;
    return &e->keys;
}

void ps_early_push_end(struct ps_core *core)
{
    if (core->early.state == PS_EARLY_TAKEN)
        core->early.state = PS_EARLY_NONE;
}
