/* `fm plan`: what the hub finds in the samples. `fm wait`: until so many batches are applied. `fm record`:
 * what the server says it has applied, against the plan.
 *
 * Lost are batches that the server's record of the stream lacks. Applied twice are counted in two ways, of
 * which the larger counts: how often a core applied a batch of the stream again, and what the
 * ledger holds too much: a variable in which each batch's push counts itself in the same call that carries
 * its gradients, so that it shows what was applied to the state, not what was recorded.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "millrace_admin.h"
#include "millrace_observe.h"
#include "trainer_client/examples/fm.h"

static bool count_applied(struct fm_client *c, uint64_t *applied)
{
    uint64_t watermark, *bitmap;
    uint32_t words;
    enum mr_status status;
    while ((status = mr_batch_state(c->server, NULL, c->info.stream, &watermark, &bitmap, &words)) != MR_OK)
        if (!fm_may_go_on(c, status, "BatchState"))
            return false;
    *applied = watermark;
    for (uint32_t i = 0; i < words; i++)
        *applied += (uint64_t)__builtin_popcountll(bitmap[i]);
    free(bitmap);
    return true;
}

/* How often a core applied a batch of this stream once more. */
static bool count_added(struct fm_client *c, uint64_t *twice)
{
    struct mr_stream *streams;
    uint32_t count;
    *twice = 0;
    if (mr_streams(c->server, NULL, &streams, &count) != MR_OK) {
        fprintf(stderr, "fm: %s\n", mr_last_error());
        return false;
    }
    for (uint32_t i = 0; i < count; i++)
        *twice = streams[i].stream == c->info.stream ? streams[i].twice : *twice;
    free(streams);
    return true;
}

struct ledger {
    bool exists;
    uint64_t missing, surplus;
};

static bool read_ledger(struct fm_client *c, struct ledger *ledger)
{
    struct mr_reply *reply;
    uint32_t elements = c->features.ledger_elements;
    *ledger = (struct ledger){.exists = c->features.ledger != 0};
    if (!ledger->exists)
        return true;
    enum mr_status status = mr_variable_pull(c->server, NULL, c->features.ledger, 0, 0, &reply);
    if (status != MR_OK) {
        fprintf(stderr, "fm: the ledger cannot be read: %s\n", mr_last_error());
        return false;
    }
    const float *counts = mr_reply_tensor(reply, 0)->data;
    for (uint32_t i = 0; i < elements; i++) {
        uint64_t expected = c->info.batches / elements + (i < c->info.batches % elements);
        uint64_t count = counts[i] > 0 ? (uint64_t)(counts[i] + 0.5f) : 0;
        ledger->missing += expected > count ? expected - count : 0;
        ledger->surplus += count > expected ? count - expected : 0;
    }
    mr_reply_free(reply);
    return true;
}

int fm_plan(const struct fm_options *options)
{
    struct fm_client c;
    if (!fm_connect_hub(&c, options))
        return 1;
    bool ok = fm_start(&c, MR_PART_TRAIN);
    if (ok) {
        printf("{\"samples\": %" PRIu64 ", \"slots\": %u, \"dense\": %u, \"keys\": %" PRIu64
               ", \"batches\": %" PRIu64 ", \"stream\": %u, \"broken_lines\": %" PRIu64 "}\n",
               c.info.samples, c.info.slots, c.info.dense, c.info.keys, c.info.batches, c.info.stream,
               c.info.broken_lines);
    }
    fm_disconnect(&c);
    return ok ? 0 : 1;
}

int fm_record(const struct fm_options *options)
{
    struct fm_client c;
    uint64_t applied, added_twice;
    struct ledger ledger;
    if (!fm_connect(&c, options))
        return 1;
    bool ok = fm_find(&c) && fm_start(&c, MR_PART_TRAIN) && count_applied(&c, &applied) &&
              count_added(&c, &added_twice) && read_ledger(&c, &ledger);
    if (ok) {
        uint64_t lost = c.info.batches > applied ? c.info.batches - applied : 0;
        lost = lost > ledger.missing ? lost : ledger.missing;
        uint64_t twice = added_twice > ledger.surplus ? added_twice : ledger.surplus;
        printf("{\"batches\": %" PRIu64 ", \"applied\": %" PRIu64 ", \"pushes_lost\": %" PRIu64
               ", \"pushes_twice\": %" PRIu64 ", \"ledger\": %s}\n",
               c.info.batches, applied, lost, twice, ledger.exists ? "true" : "false");
    }
    fm_disconnect(&c);
    return ok ? 0 : 1;
}

int fm_wait(const struct fm_options *options)
{
    struct fm_client c;
    if (!fm_connect_hub(&c, options))
        return 1;
    bool ok = true, reached = false;
    uint64_t applied = 0;
    while (ok && !reached) {
        struct mr_hub_status state;
        enum mr_status status = mr_hub_status(c.hub, NULL, &state);
        reached = status == MR_OK && (state.batches_applied >= options->until_applied || state.at_end);
        if (status == MR_OK && state.batches_applied != applied) {
            applied = state.batches_applied;
            fm_made_progress(&c);
        }
        if (!reached)
            ok = fm_may_go_on(&c, status == MR_OK ? MR_NOT_READY : status, "HubStatus");
        if (reached) {
            printf("{\"applied\": %" PRIu64 ", \"handed_out\": %" PRIu64 ", \"handed_again\": %" PRIu64
                   ", \"expired\": %" PRIu64 ", \"at_end\": %s}\n",
                   state.batches_applied, state.batches_handed_out, state.batches_handed_again,
                   state.batches_expired, state.at_end ? "true" : "false");
        }
    }
    fm_disconnect(&c);
    return ok ? 0 : 1;
}
