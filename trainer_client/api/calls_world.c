/* The world of workers that a node takes part in. */
#include <string.h>
#include "dataplane/rpc/world/world.h"
#include "dataplane/wire/base/printable.h"
#include "millrace_observe.h"
#include "trainer_client/api/calls.h"
#include "dataplane/udp/address.h"

#define LINE_BYTES 2048u

static_assert(sizeof(((struct mr_world_member *)0)->name) == MR_RPC_NAME_BYTES, "names fit");
static_assert(sizeof(((struct mr_world_member *)0)->address) == MR_ADDRESS_TEXT_BYTES, "addresses fit");

struct world_context {
    struct mr_world *world;
    struct mr_world_visitor visitor;
};

static void read_words(const uint64_t *w, struct mr_world *out)
{
    *out = (struct mr_world){.is_worker = (w[MR_WORLD_FLAGS] & 1u) != 0,
                             .is_rendezvous = (w[MR_WORLD_FLAGS] & 2u) != 0,
                             .is_complete = (w[MR_WORLD_FLAGS] & 4u) != 0,
                             .rank = (uint32_t)w[MR_WORLD_RANK],
                             .world_size = (uint32_t)w[MR_WORLD_SIZE],
                             .joined = (uint32_t)w[MR_WORLD_JOINED],
                             .threads_max = (uint32_t)w[MR_WORLD_THREADS_MAX],
                             .threads = (uint32_t)w[MR_WORLD_THREADS],
                             .functions_running = (uint32_t)w[MR_WORLD_RUNNING],
                             .functions_blocked = (uint32_t)w[MR_WORLD_BLOCKED],
                             .functions_waiting = (uint32_t)w[MR_WORLD_WAITING],
                             .calls_served = w[MR_WORLD_CALLS_SERVED],
                             .calls_failed = w[MR_WORLD_CALLS_FAILED],
                             .calls_refused = w[MR_WORLD_CALLS_REFUSED],
                             .calls_made = w[MR_WORLD_CALLS_MADE],
                             .calls_made_failed = w[MR_WORLD_CALLS_MADE_FAILED],
                             .calls_under_way = w[MR_WORLD_CALLS_UNDER_WAY],
                             .values_owned = w[MR_WORLD_VALUES_OWNED],
                             .values_held = w[MR_WORLD_VALUES_HELD],
                             .dead_after_ms = (uint32_t)w[MR_WORLD_DEAD_AFTER_MS],
                             .contexts_begun = w[MR_WORLD_CONTEXTS_BEGUN],
                             .contexts_known = w[MR_WORLD_CONTEXTS_KNOWN],
                             .context_oldest_s = w[MR_WORLD_CONTEXT_OLDEST_S]};
}

static void visit_members(const struct world_context *context, const struct mr_tensor *members)
{
    for (uint64_t i = 0; i < members->dims[0] && context->visitor.member != NULL; i++) {
        struct mr_member_wire line;
        struct mr_world_member member = {.rank = 0};
        struct mr_address address = {.port = 0};
        memcpy(&line, (const uint8_t *)members->data + i * members->dims[1], sizeof(line));
        line.name[sizeof(line.name) - 1] = 0;
        memcpy(member.name, line.name, sizeof(member.name));
        mr_make_printable(member.name, sizeof(member.name));
        member.rank = line.rank;
        member.has_joined = (line.flags & MR_MEMBER_JOINED) != 0;
        member.is_node = (line.flags & MR_JOIN_NODE) != 0;
        member.is_rendezvous = (line.flags & MR_JOIN_RENDEZVOUS) != 0;
        member.is_dead = (line.flags & MR_MEMBER_DEAD) != 0;
        member.has_left = (line.flags & MR_MEMBER_LEFT) != 0;
        memcpy(address.ip, line.ip, sizeof(address.ip));
        address.port = line.port;
        if (line.port != 0)
            mr_address_text(&address, member.address);
        context->visitor.member(context->visitor.arg, &member);
    }
}

static bool visit_functions(const struct world_context *context, const struct mr_tensor *functions)
{
    const char *at = functions->data, *end = at + functions->bytes;
    while (at < end && context->visitor.function != NULL) {
        const char *line_end = memchr(at, '\n', (size_t)(end - at));
        char line[LINE_BYTES];
        if (line_end == NULL)
            return false;
        size_t bytes = (size_t)(line_end - at) < sizeof(line) ? (size_t)(line_end - at) : sizeof(line) - 1;

        (void)mr_printable(line, sizeof(line), at, bytes);
        context->visitor.function(context->visitor.arg, line);
        at = line_end + 1;
    }
    return true;
}

static enum mr_status finish_world(struct mr_future *f, struct mr_reply **reply)
{
    const struct world_context *context = f->context;
    uint64_t words[MR_WORLD_WORDS];
    const struct mr_tensor *members = mrc_answer_tensor(f, 0, 1, MR_U8, 2);
    const struct mr_tensor *functions = mrc_answer_tensor(f, 0, 2, MR_U8, 1);
    if (!mrc_answer_body(f, 0, 0, MR_BODY_WORLD, words) || members == NULL ||
        members->dims[1] < sizeof(struct mr_member_wire) || functions == NULL)
        return mrc_answer_garbled(f, 0);
    read_words(words, context->world);
    visit_members(context, members);
    return visit_functions(context, functions) ? MR_OK : mrc_answer_garbled(f, 0);
}

enum mr_status mr_world(struct mr_client *client, const struct mr_options *options, struct mr_world *world,
                        const struct mr_world_visitor *visitor)
{
    struct world_context context = {.world = world};
    if (client == NULL || world == NULL)
        return mrc_bad_argument("mr_world", client == NULL ? "client is NULL" : "world is NULL");
    if (visitor != NULL)
        context.visitor = *visitor;
    return mrc_run_core0(client, options, MR_OP_RPC_STATUS, NULL, 0, finish_world, &context, sizeof(context));
}
