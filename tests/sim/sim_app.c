/* What servers and clients do, and what must be true of it.
 *
 * A request is u64[4] {client, serial, reply bytes, executions so far: 0} and u8[n]; the bytes follow from client and
 * serial. The reply is u64[2] {client, serial} and u8[m]. */
#include <assert.h>
#include <string.h>

#include "sim.h"

#define LATE_US 40u /* a deadline is noticed at the timers' next tick */

static uint8_t pattern(uint64_t client, uint64_t serial, uint64_t salt, uint64_t i)
{
    uint64_t x = (client * 1000003 + serial * 10007 + salt * 101 + i) * UINT64_C(0x9E3779B97F4A7C15);
    return (uint8_t)(x >> 56);
}

static void fill(struct mr_tensor *t, uint64_t client, uint64_t serial, uint64_t salt)
{
    for (uint64_t i = 0; i < t->bytes; i++)
        ((uint8_t *)t->data)[i] = pattern(client, serial, salt, i);
}

static bool intact(const struct mr_tensor *t, uint64_t client, uint64_t serial, uint64_t salt)
{
    for (uint64_t i = 0; i < t->bytes; i++)
        if (((const uint8_t *)t->data)[i] != pattern(client, serial, salt, i))
            return false;
    return true;
}

/* ---- servers ---- */

static struct sim_call *model_call(struct sim *sim, const struct mr_request *request)
{
    const struct mr_message *m = request->message;
    if (m->preamble.tensor_count != 2 || m->tensors[0].bytes != 4 * sizeof(uint64_t))
        return NULL;
    const uint64_t *id = m->tensors[0].data;
    if (id[0] >= sim->clients || id[1] >= SIM_CALLS_MAX)
        return NULL;
    struct sim_call *c = &sim->calls[id[0]][id[1]];
    if (!c->started || c->op != m->preamble.op || c->request_bytes != m->tensors[1].bytes ||
        c->reply_bytes != id[2] || !intact(&m->tensors[1], id[0], id[1], 1))
        return NULL;
    return c;
}

static void executed(struct sim *sim, struct sim_call *c, const struct mr_request *request)
{
    c->executed++;
    c->executed_session = c->session_id == request->ref.session_id ? c->executed_session + 1 : 1;
    c->session_id = request->ref.session_id;
    sim->executions++;
    sim_note(sim, c->serial, c->executed);
    if (!mr_op_repeatable(c->op) && c->executed > 1)
        sim_fail(sim, "client %u call %u, not repeatable, was executed twice", c->client, c->serial);
    if (c->executed_session > 1)
        sim_fail(sim, "client %u call %u was executed twice in one session", c->client, c->serial);
    if (c->ended && !c->cancelled && !mr_op_repeatable(c->op) && c->status != MR_UNKNOWN_OUTCOME)
        sim_fail(sim, "client %u call %u was executed after it ended with %s", c->client, c->serial,
                 mr_status_name(c->status));
}

static void answer(struct sim *sim, struct mr_endpoint *ep, const struct mr_request *request)
{
    struct sim_call *c = model_call(sim, request);
    if (c == NULL) {
        sim_fail(sim, "a request came damaged");
        mr_reply_status(ep, request->ref, MR_BAD_MESSAGE);
        return;
    }
    if (c->reply_bytes == 0) {
        executed(sim, c, request);
        if (c->serial % 2 == 0)
            mr_reply_status(ep, request->ref, MR_OK);
        else
            mr_reply_error(ep, request->ref, MR_FROZEN, "call %u of client %u", c->serial, c->client);
        return;
    }
    uint64_t id[2] = {c->client, c->serial};
    struct mr_tensor tensors[2] = {mr_tensor_1d(MR_U64, 2, id), mr_tensor_1d(MR_U8, c->reply_bytes, NULL)};
    if (!mr_reply_begin(ep, request->ref, MR_OK, tensors, 2)) {
        mr_reply_busy(ep, request->ref);
        return;
    }
    executed(sim, c, request);
    fill(&tensors[1], c->client, c->serial, 2);
    mr_reply_end(ep, request->ref);
}

static void later(struct sim *sim, struct sim_node *node, const struct mr_request *request)
{
    for (uint32_t i = 0; i < SIM_LATER_MAX; i++) {
        struct sim_later *l = &sim->later[i];
        if (l->used)
            continue;
        const struct mr_request *kept = mr_reply_later(node->ep, request);
        if (kept == NULL) {
            mr_reply_busy(node->ep, request->ref);
            return;
        }
        *l = (struct sim_later){
            true, node->index, node->life, sim->now_us + sim_below(&sim->rng, 30000), request->ref, kept};
        return;
    }
    mr_reply_busy(node->ep, request->ref);
}

void sim_on_request(void *app, struct mr_endpoint *ep, const struct mr_request *request)
{
    struct sim_node *node = app;
    struct sim *sim = node->sim;
    if (sim_chance(&sim->rng, sim->busy_ppm))
        mr_reply_busy(ep, request->ref);
    else if (sim_chance(&sim->rng, sim->later_ppm))
        later(sim, node, request);
    else
        answer(sim, ep, request);
}

void sim_answer_later(struct sim *sim)
{
    for (uint32_t i = 0; i < SIM_LATER_MAX; i++) {
        struct sim_later *l = &sim->later[i];
        if (!l->used || l->at_us > sim->now_us)
            continue;
        struct sim_node *node = &sim->nodes[l->node];
        if (node->life == l->life) {
            /* The request must still be there, whether or not anybody waits for the answer. */
            if (mr_call_ref_alive(node->ep, l->ref))
                answer(sim, node->ep, l->request);
            else if (model_call(sim, l->request) == NULL)
                sim_fail(sim, "a request to be answered later was damaged");
            else
                mr_reply_status(node->ep, l->ref, MR_OK);
            node->poll_at_us = sim->now_us;
        }
        l->used = false;
    }
}

/* ---- clients ---- */

static void check_reply(struct sim *sim, const struct sim_call *c, const struct mr_message *reply)
{
    if (c->executed == 0)
        sim_fail(sim, "client %u call %u has an answer and was never executed", c->client, c->serial);
    if (c->reply_bytes == 0)
        return;
    if (reply->preamble.tensor_count != 2 || reply->tensors[0].bytes != 2 * sizeof(uint64_t) ||
        reply->tensors[1].bytes != c->reply_bytes) {
        sim_fail(sim, "client %u call %u has another call's answer", c->client, c->serial);
        return;
    }
    const uint64_t *id = reply->tensors[0].data;
    if (id[0] != c->client || id[1] != c->serial || !intact(&reply->tensors[1], c->client, c->serial, 2))
        sim_fail(sim, "client %u call %u has a damaged answer", c->client, c->serial);
}

static void check_end(struct sim *sim, const struct sim_call *c, const struct mr_message *reply)
{
    bool answered = c->status == MR_OK || c->status == MR_FROZEN;
    if (answered)
        check_reply(sim, c, reply);
    switch (c->status) {
    case MR_OK:
        break;
    case MR_FROZEN:
        if (c->reply_bytes != 0 || c->serial % 2 == 0)
            sim_fail(sim, "client %u call %u ended with a status nobody gave it", c->client, c->serial);
        break;
    case MR_CANCELLED:
        if (!c->cancelled)
            sim_fail(sim, "client %u call %u ended as cancelled, which it was not", c->client, c->serial);
        break;
    case MR_UNKNOWN_OUTCOME:
        if (mr_op_repeatable(c->op) || (sim->restarts == 0 && !c->has_deadline))
            sim_fail(sim, "client %u call %u ended with an unknown outcome without a reason", c->client,
                     c->serial);
        break;
    case MR_DEADLINE_EXCEEDED:
    case MR_UNREACHABLE:
        if (!c->has_deadline)
            sim_fail(sim, "client %u call %u without a deadline missed it", c->client, c->serial);
        if (!mr_op_repeatable(c->op) && c->executed > 0)
            sim_fail(sim, "client %u call %u ended with %s and was executed", c->client, c->serial,
                     mr_status_name(c->status));
        break;
    default:
        sim_fail(sim, "client %u call %u ended with %s", c->client, c->serial, mr_status_name(c->status));
        break;
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
    c->free_at_us = sim->now_us + (sim_chance(&sim->rng, 100000) ? sim_below(&sim->rng, 20000) : 0);
    sim_note(sim, c->serial, status);
    if (c->has_deadline && node->stalled_until_us + LATE_US < sim->now_us &&
        sim->now_us > c->deadline_us + LATE_US)
        sim_fail(sim, "client %u call %u ended %llu us after its deadline", c->client, c->serial,
                 (unsigned long long)(sim->now_us - c->deadline_us));
    check_end(sim, c, reply);
    if (c->free_at_us == sim->now_us) {
        c->freed = true;
        mr_call_free(node->ep, call);
    }
}

static uint32_t some_bytes(struct sim_rng *rng, uint32_t bytes_max)
{
    uint32_t top = sim_chance(rng, 600000) ? 200 : sim_chance(rng, 700000) ? 20000 : bytes_max;
    return (uint32_t)sim_below(rng, (top < bytes_max ? top : bytes_max) + 1);
}

static void begin_call(struct sim *sim, struct sim_node *node)
{
    static const uint8_t ops[] = {MR_OP_PUSH_GRAD, MR_OP_ECHO, MR_OP_LOOKUP, MR_OP_SAVE};
    uint32_t client = node->index - sim->servers;
    struct sim_call *c = &sim->calls[client][node->calls_started];
    struct sim_rng *rng = &sim->rng;
    memset(c, 0, sizeof(*c));
    c->client = client;
    c->serial = node->calls_started;
    c->life = node->life;
    c->op = ops[sim_below(rng, sizeof(ops))];
    c->server = (uint8_t)sim_below(rng, sim->servers);
    c->request_bytes = some_bytes(rng, sim->request_bytes_max);
    c->reply_bytes = sim_chance(rng, 300000) ? 0 : some_bytes(rng, sim->reply_bytes_max);
    c->started_us = sim->now_us;
    c->has_deadline = sim_chance(rng, sim->deadline_ppm);
    c->deadline_us = c->has_deadline ? sim->now_us + sim_between(rng, 100, 2000000) : UINT64_MAX;
    uint64_t id[4] = {client, c->serial, c->reply_bytes, 0};
    struct mr_tensor tensors[2] = {mr_tensor_1d(MR_U64, 4, id), mr_tensor_1d(MR_U8, c->request_bytes, NULL)};
    struct mr_call_options options = {.op = c->op,
                                      .priority = (uint8_t)sim_below(rng, 8),
                                      .step = c->serial,
                                      .deadline_us = c->deadline_us,
                                      .user = c};
    enum mr_status status =
        mr_call_begin(node->ep, node->sessions[c->server], &options, tensors, 2, &c->call);
    if (status == MR_NO_MEMORY) /* tries again later */
        return;
    if (status != MR_OK) {
        sim_fail(sim, "a call could not begin: %s", mr_status_name(status));
        return;
    }
    fill(&tensors[1], client, c->serial, 1);
    c->started = true;
    node->calls_started++;
    mr_call_send(node->ep, c->call, sim->now_us);
}

void sim_client_step(struct sim *sim, struct sim_node *node)
{
    uint32_t client = node->index - sim->servers;
    for (uint32_t i = 0; i < node->calls_started; i++) {
        struct sim_call *c = &sim->calls[client][i];
        if (c->crashed || c->freed)
            continue;
        if (c->ended && c->free_at_us <= sim->now_us) {
            c->freed = true;
            mr_call_free(node->ep, c->call);
        } else if (!c->ended && !c->cancelled && sim_chance(&sim->rng, sim->cancel_ppm)) {
            c->cancelled = true;
            mr_call_cancel(node->ep, c->call);
        }
    }
    if (node->next_call_us > sim->now_us || node->calls_started >= sim->calls_per_client)
        return;
    uint32_t burst = (uint32_t)sim_between(&sim->rng, 1, 12);
    while (burst-- > 0 && node->calls_started < sim->calls_per_client)
        begin_call(sim, node);
    node->next_call_us = sim->now_us + sim_below(&sim->rng, sim->call_gap_us);
    node->poll_at_us = sim->now_us;
}

void sim_client_crashed(struct sim *sim, struct sim_node *node)
{
    for (uint32_t i = 0; i < node->calls_started; i++) {
        struct sim_call *c = &sim->calls[node->index - sim->servers][i];
        c->crashed |= !c->freed;
    }
}

uint64_t sim_app_next_us(const struct sim *sim)
{
    uint64_t next_us = UINT64_MAX;
    for (uint32_t i = 0; i < SIM_LATER_MAX; i++)
        if (sim->later[i].used && sim->later[i].at_us < next_us)
            next_us = sim->later[i].at_us;
    for (uint32_t n = sim->servers; n < sim->servers + sim->clients; n++) {
        const struct sim_node *node = &sim->nodes[n];
        if (node->calls_started < sim->calls_per_client && node->next_call_us < next_us)
            next_us = node->next_call_us;
        for (uint32_t i = 0; i < node->calls_started; i++) {
            const struct sim_call *c = &sim->calls[n - sim->servers][i];
            if (c->ended && !c->freed && !c->crashed && c->free_at_us < next_us)
                next_us = c->free_at_us;
        }
    }
    return next_us;
}

bool sim_all_ended(const struct sim *sim)
{
    for (uint32_t n = sim->servers; n < sim->servers + sim->clients; n++) {
        const struct sim_node *node = &sim->nodes[n];
        if (node->calls_started < sim->calls_per_client)
            return false;
        for (uint32_t i = 0; i < node->calls_started; i++) {
            const struct sim_call *c = &sim->calls[n - sim->servers][i];
            if (!c->crashed && !c->freed)
                return false;
        }
    }
    return true;
}

/* At the end, with all faults over for long. */
void sim_check_calls(struct sim *sim)
{
    for (uint32_t n = 0; n < sim->clients; n++) {
        for (uint32_t i = 0; i < sim->nodes[sim->servers + n].calls_started; i++) {
            const struct sim_call *c = &sim->calls[n][i];
            bool answered = c->ended && (c->status == MR_OK || c->status == MR_FROZEN);
            if (!c->crashed && !c->ended)
                sim_fail(sim, "client %u call %u (%s) never ended", n, i, mr_op_name(c->op));
            if (!c->crashed && !c->has_deadline && !c->cancelled && sim->restarts == 0 &&
                (!answered || c->executed != 1))
                sim_fail(sim, "client %u call %u: nobody crashed, and it was executed %u times", n, i,
                         c->executed);
            if (c->ended && !mr_op_repeatable(c->op) && c->executed > 0 &&
                (c->status == MR_DEADLINE_EXCEEDED || c->status == MR_UNREACHABLE))
                sim_fail(sim, "client %u call %u ended with %s and was executed later", n, i,
                         mr_status_name(c->status));
        }
    }
}
