/* What clients ask for. A request is u64[4] {client, serial, reply bytes, 0} and u8[n]; the bytes follow from
 * client and serial. The reply is u64[2] {client, serial} and u8[m]. */
#include <string.h>

#include "sim.h"

#define ENDING_CALLS 4u /* of a client's last ones: what they want does not fill its share */

static void schedule(struct sim *sim, const struct sim_node *node, uint64_t in_us)
{
    sim_at(sim, sim->now_us + in_us, SIM_CALLS, node->index, NULL);
}

static void gone(struct sim *sim, struct sim_node *node, struct sim_call *c)
{
    sim->calls_alive--;
    node->calls_waiting--;
    c->call = NULL;
    if (node->calls_started == sim->work.calls_per_client && node->calls_waiting == ENDING_CALLS)
        sim_share_over(sim);
    if (node->calls_held) {
        node->calls_held = false;
        schedule(sim, node, 0);
    }
}

void sim_on_reply(void *app, struct mr_call *call, void *user, enum mr_status status,
                  const struct mr_message *reply)
{
    struct sim_node *node = app;
    struct sim *sim = node->sim;
    struct sim_call *c = user;
    if (c->ended)
        sim_fail(sim, "client %u call %u ended twice", c->client, c->serial);
    c->ended = true;
    c->status = status;
    c->ended_us = sim->now_us;
    sim_note(sim, c->serial, status);
    sim_log(sim, "client %u: call %u (%s) ends with %s", c->client, c->serial, mr_op_name(c->op),
            mr_status_name(status));
    sim_check_end(sim, c, reply);
    sim_stream_ended(sim, c);
    if (sim_chance(&sim->rng, 900000)) {
        c->freed = true;
        gone(sim, node, c);
        mr_call_free(node->ep, call);
    } else {
        sim_at(sim, sim->now_us + sim_below(&sim->rng, 20000), SIM_FREE, c->serial, c);
    }
}

static uint32_t some_bytes(struct sim *sim, uint32_t bytes_max)
{
    struct sim_rng *rng = &sim->rng;
    uint32_t top = bytes_max;
    if (!sim_chance(rng, sim->work.large_ppm))
        top = sim_chance(rng, 600000) ? 200 : 20000;
    return (uint32_t)sim_below(rng, (top < bytes_max ? top : bytes_max) + 1);
}

static void draw_call(struct sim *sim, const struct sim_node *node, struct sim_call *c)
{
    static const uint8_t ops[] = {MR_OP_PUSH_GRAD, MR_OP_ECHO, MR_OP_LOOKUP, MR_OP_SAVE};
    struct sim_rng *rng = &sim->rng;
    *c = (struct sim_call){.client = node->index - sim->servers,
                           .serial = node->calls_started,
                           .life = node->life,
                           .op = ops[sim_below(rng, sizeof(ops))],
                           .server = (uint8_t)sim_below(rng, sim->servers),
                           .started_us = sim->now_us,
                           .deadline_us = UINT64_MAX};
    c->request_bytes = some_bytes(sim, sim->work.request_bytes_max);
    c->reply_bytes = sim_chance(rng, 300000) ? 0 : some_bytes(sim, sim->work.reply_bytes_max);
    if (sim->work.stream && sim_stream_priority(c->serial) == 0)
        c->request_bytes = sim->work.request_bytes_max;
    c->has_deadline = sim_chance(rng, sim->work.deadline_ppm);
    if (c->op == MR_OP_PUSH_GRAD && sim_chance(rng, sim->work.number_ppm)) {
        c->number = node->last_number[c->server] + 1;
        c->has_deadline = false;
    }
    if (c->has_deadline)
        c->deadline_us = sim_clock_us(node) + sim_between(rng, 100, 2000000);
}

/* False: there was no memory for it; it is tried again later. */
static bool send_call(struct sim *sim, struct sim_node *node, struct sim_call *c)
{
    uint64_t id[4] = {c->client, c->serial, c->reply_bytes, 0};
    struct mr_tensor tensors[2] = {mr_tensor_1d(MR_U64, 4, id), mr_tensor_1d(MR_U8, c->request_bytes, NULL)};
    struct mr_call_options options = {.op = c->op,
                                      .priority = (uint8_t)sim_below(&sim->rng, 8),
                                      .step = c->serial,
                                      .sequence = c->number,
                                      .ahead = c->ahead,
                                      .deadline_us = c->deadline_us,
                                      .user = c};
    c->priority = options.priority = sim->work.stream ? sim_stream_priority(c->serial) : options.priority;
    enum mr_status status =
        mr_call_begin(node->ep, node->sessions[c->server], &options, tensors, 2, &c->call);
    if (status == MR_NO_MEMORY)
        return false;
    if (status != MR_OK) {
        sim_fail(sim, "a call could not begin: %s", mr_status_name(status));
        return false;
    }
    sim_fill(&tensors[1], c->client, c->serial, 1);
    c->started = true;
    node->calls_waiting++;
    sim->calls_alive++;
    sim_log(sim, "client %u: call %u (%s, number %llu) to server %u, %u bytes for %u", c->client, c->serial,
            mr_op_name(c->op), (unsigned long long)c->number, c->server, c->request_bytes, c->reply_bytes);
    mr_call_send(node->ep, c->call, sim_clock_us(node));
    return true;
}

static bool begin_call(struct sim *sim, struct sim_node *node)
{
    struct sim_call *c = &sim->calls[node->index - sim->servers][node->calls_started];
    draw_call(sim, node, c);
    if (!send_call(sim, node, c))
        return false;
    node->calls_started++;
    sim->calls_to_start--;
    if (c->number != 0)
        node->last_number[c->server] = c->number;
    else if (sim_chance(&sim->rng, sim->work.cancel_ppm))
        sim_at(sim, sim->now_us + sim_below(&sim->rng, 30000), SIM_CANCEL, c->serial, c);
    return true;
}

void sim_client_calls(struct sim *sim, struct sim_node *node)
{
    const struct sim_work *work = &sim->work;
    if (node->stalled_until_us > sim->now_us) {
        schedule(sim, node, node->stalled_until_us - sim->now_us);
        return;
    }
    const uint32_t waiting_max =
        sim->work.shared ? sim_share_waiting(sim, node->index - sim->servers) : work->waiting_max;
    uint64_t burst = sim_between(&sim->rng, 1, work->burst_max);
    bool begun = true;
    while (begun && burst-- > 0 && node->calls_started < work->calls_per_client &&
           node->calls_waiting < waiting_max)
        begun = begin_call(sim, node);
    node->poll_at_us = sim->now_us;
    if (node->calls_started == work->calls_per_client)
        return;
    node->calls_held = begun && node->calls_waiting >= waiting_max;
    if (!node->calls_held)
        schedule(sim, node, begun ? sim_below(&sim->rng, work->gap_us) : 1000);
}

/* ---- numbered pushes ---- */

void sim_client_replay(struct sim *sim, struct sim_call *c)
{
    struct sim_node *node = &sim->nodes[sim->servers + c->client];
    if (c->life != node->life || c->known_safe || !c->freed)
        return;
    c->ended = c->freed = false;
    c->executed_session = 0;
    c->ahead = true;
    c->started_us = sim->now_us;
    if (send_call(sim, node, c)) {
        node->poll_at_us = sim->now_us;
        return;
    }
    c->ended = c->freed = true;
    sim_at(sim, sim->now_us + 1000, SIM_REPLAY, c->serial, c);
}

/* Client, server, and life of the client: its session is not there in another one. */
static uint32_t which_session(const struct sim_node *node, uint32_t server)
{
    return node->index | server << 8 | node->life << 16;
}

void sim_client_release(struct sim *sim, uint32_t which)
{
    struct sim_node *node = &sim->nodes[which & 0xff];
    uint32_t server = which >> 8 & 0xff;
    if (which != which_session(node, server))
        return;
    sim_log(sim, "client %u: session to server %u is released", node->index - sim->servers, server);
    node->held[server] = false;
    mr_client_session_release(node->ep, node->sessions[server], sim_clock_us(node));
    node->poll_at_us = sim->now_us;
}

/* What ended and may be lost is brought again; what has not ended the transport brings again by itself. */
void sim_on_session(void *app, struct mr_client_session *session, enum mr_client_session_event event)
{
    struct sim_node *node = app;
    struct sim *sim = node->sim;
    sim_log(sim, "client %u: session event %u", node->index - sim->servers, (uint32_t)event);
    if (event != MR_SESSION_RESTARTED)
        return;
    for (uint32_t server = 0; node->config.hold_on_restart && server < sim->servers; server++) {
        if (node->sessions[server] != session)
            continue;
        node->held[server] = true;
        sim_at(sim, sim->now_us + sim_below(&sim->rng, 60000), SIM_RELEASE, which_session(node, server),
               NULL);
    }
    for (uint32_t i = 0; i < node->calls_started; i++) {
        struct sim_call *c = &sim->calls[node->index - sim->servers][i];
        if (c->number != 0 && c->ended && c->life == node->life && node->sessions[c->server] == session &&
            !c->known_safe)
            sim_at(sim, sim->now_us + (c->freed ? 0 : 20001), SIM_REPLAY, c->serial, c);
    }
}

void sim_client_cancel(struct sim *sim, struct sim_call *c)
{
    struct sim_node *node = &sim->nodes[sim->servers + c->client];
    if (c->ended || c->crashed || sim->calm || node->stalled_until_us > sim->now_us)
        return;
    c->cancelled = true;
    mr_call_cancel(node->ep, c->call);
    node->poll_at_us = sim->now_us;
}

void sim_client_free(struct sim *sim, struct sim_call *c)
{
    struct sim_node *node = &sim->nodes[sim->servers + c->client];
    if (c->crashed || c->freed)
        return;
    struct mr_call *call = c->call;
    c->freed = true;
    gone(sim, node, c);
    mr_call_free(node->ep, call);
}

void sim_client_crashed(struct sim *sim, struct sim_node *node)
{
    for (uint32_t i = 0; i < node->calls_started; i++) {
        struct sim_call *c = &sim->calls[node->index - sim->servers][i];
        if (c->freed || c->crashed)
            continue;
        c->crashed = true;
        gone(sim, node, c);
    }
}
