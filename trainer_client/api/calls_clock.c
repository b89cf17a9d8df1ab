/* How far the clocks of servers and hubs are ahead of this process's. */
#include "dataplane/wire/base/clock.h"
#include "dataplane/wire/base/clock_name.h"
#include "dataplane/wire/base/clock_offset.h"
#include "dataplane/wire/format/op.h"
#include "trainer_client/api/calls.h"

struct clock_context {
    struct mr_clock_offset *out;
    uint64_t begin_ns;
};

static enum mr_status finish_clock(struct mr_future *f, struct mr_reply **reply)
{
    const struct clock_context *context = f->context;
    const struct mr_tensor *words = mrc_part_tensor(f, 0, 0, MR_U64, 1);
    if (words == NULL || words->dims[0] != 2)
        return mrc_part_garbled(f, 0);
    const uint64_t *word = words->data, end_ns = mr_clock_ns();
    *context->out = (struct mr_clock_offset){
        .own_clock = mr_clock_name(), .peer_clock = word[0], .at_ns = (context->begin_ns + end_ns) / 2};
    if (context->out->own_clock != word[0])
        mr_clock_exchange(context->begin_ns, word[1], end_ns, &context->out->offset_ns,
                          &context->out->error_ns);
    return MR_OK;
}

static enum mr_status exchange(struct mr_client *client, const struct mr_options *options, uint32_t core,
                               uint32_t map_changes, struct mr_clock_offset *out)
{
    struct mr_future *f;
    enum mr_status status =
        mrc_future_new(client, options, MR_OP_CLOCK, 0, 1, 0, sizeof(struct clock_context), &f);
    if (status != MR_OK)
        return status;
    *(struct clock_context *)f->context = (struct clock_context){.out = out, .begin_ns = mr_clock_ns()};
    f->parts[0].owner = (uint16_t)core;
    f->finish = finish_clock;
    return mrc_run_by_map(f, map_changes, options, NULL);
}

enum mr_status mr_clock_offset(struct mr_client *client, const struct mr_options *options, uint32_t core,
                               struct mr_clock_offset *out)
{
    uint32_t map_changes = 0;
    enum mr_status status = mrc_check_core("mr_clock_offset", client, core, &map_changes);
    if (status != MR_OK)
        return status;
    if (out == NULL)
        return mrc_bad_argument("mr_clock_offset", "out is NULL");
    status = exchange(client, options, core, map_changes, out);
    if (options != NULL && options->future != NULL)
        return status;
    for (int i = 1; i < MR_CLOCK_EXCHANGES && status == MR_OK && out->error_ns > 0; i++) {
        struct mr_clock_offset other = *out;
        status = exchange(client, options, core, map_changes, &other);
        if (status == MR_OK && (other.peer_clock != out->peer_clock || other.error_ns < out->error_ns))
            *out = other;
    }
    return status;
}
