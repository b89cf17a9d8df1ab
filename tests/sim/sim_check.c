/* The model: what must be true of every call. */
#include <string.h>

#include "sim.h"

#define LATE_US      400u /* a deadline is noticed at the timers' next tick, after what was being taken in */
#define SMALL_BYTES  1000u
#define PATTERN_STEP 1000003u

/* Bytes that a message is cut out of, at a place that follows from whose it is. Their number is prime, so
 * that two segments of a message are never alike. */
#define PATTERN_BYTES 1048573u

static const uint8_t *pattern(void)
{
    static uint8_t bytes[PATTERN_BYTES];
    static bool made;
    struct sim_rng rng = {42};
    for (uint32_t i = 0; !made && i < PATTERN_BYTES; i++)
        bytes[i] = (uint8_t)(sim_random(&rng) >> 24);
    made = true;
    return bytes;
}

static uint64_t place_of(uint64_t client, uint64_t serial, uint64_t salt)
{
    return (client * PATTERN_STEP * 31 + serial * 10007 + salt * 500009) % PATTERN_BYTES;
}

static uint64_t piece_bytes(uint64_t left, uint64_t place)
{
    uint64_t to_end = PATTERN_BYTES - place;
    return left < to_end ? left : to_end;
}

void sim_fill_part(struct mr_tensor *t, uint64_t client, uint64_t serial, uint64_t salt, uint64_t from,
                   uint64_t to)
{
    uint64_t place = (place_of(client, serial, salt) + from) % PATTERN_BYTES;
    for (uint64_t done = from, n; done < to; done += n, place = 0) {
        n = piece_bytes(to - done, place);
        memcpy((uint8_t *)t->data + done, pattern() + place, n);
    }
}

void sim_fill(struct mr_tensor *t, uint64_t client, uint64_t serial, uint64_t salt)
{
    sim_fill_part(t, client, serial, salt, 0, t->bytes);
}

bool sim_intact(const struct mr_tensor *t, uint64_t client, uint64_t serial, uint64_t salt)
{
    uint64_t place = place_of(client, serial, salt);
    for (uint64_t done = 0, n; done < t->bytes; done += n, place = 0) {
        n = piece_bytes(t->bytes - done, place);
        if (memcmp((const uint8_t *)t->data + done, pattern() + place, n) != 0)
            return false;
    }
    return true;
}

bool sim_repeatable(const struct sim_call *c)
{
    return c->number != 0 || mr_op_repeatable(c->op);
}

/* ---- executed ---- */

struct sim_call *sim_check_request(struct sim *sim, const struct mr_request *request)
{
    const struct mr_message *m = request->message;
    if (m->preamble.tensor_count != 2 || m->tensors[0].bytes != 4 * sizeof(uint64_t))
        return NULL;
    const uint64_t *id = m->tensors[0].data;
    if (id[0] >= sim->clients || id[1] >= SIM_CALLS_MAX)
        return NULL;
    struct sim_call *c = &sim->calls[id[0]][id[1]];
    if (!c->started || c->op != m->preamble.op || c->request_bytes != m->tensors[1].bytes ||
        c->reply_bytes != id[2] || c->number != m->preamble.sequence ||
        !sim_intact(&m->tensors[1], id[0], id[1], 1))
        return NULL;
    return c;
}

void sim_check_executed(struct sim *sim, struct sim_call *c, const struct mr_request *request)
{
    sim->executions++;
    if (sim->nodes[sim->servers + c->client].held[c->server] && !c->ahead)
        sim_fail(sim, "client %u call %u was let go while its session was held", c->client, c->serial);
    if (c->number != 0 && !sim_record_apply(c))
        return;
    c->executed++;
    c->executed_session = c->session_id == request->ref.session_id ? c->executed_session + 1 : 1;
    c->session_id = request->ref.session_id;
    sim_note(sim, c->serial, c->executed);
    sim_log(sim, "client %u: call %u (%s) is executed", c->client, c->serial, mr_op_name(c->op));
    if (!sim_repeatable(c) && c->executed > 1)
        sim_fail(sim, "client %u call %u, not repeatable, was executed twice", c->client, c->serial);
    if (c->executed_session > 1)
        sim_fail(sim, "client %u call %u was executed twice in one session", c->client, c->serial);
    bool outcome_known = !sim_repeatable(c) && c->status != MR_UNKNOWN_OUTCOME;
    if (c->ended && !c->cancelled && (outcome_known || c->status == MR_BUSY))
        sim_fail(sim, "client %u call %u was executed after it ended with %s", c->client, c->serial,
                 mr_status_name(c->status));
}

/* ---- ended ---- */

static void check_reply(struct sim *sim, const struct sim_call *c, const struct mr_message *reply)
{
    if (c->executed == 0)
        sim_fail(sim, "client %u call %u has an answer and was never executed", c->client, c->serial);
    if (c->number != 0)
        sim_record_learn(sim, c, reply->preamble.sequence);
    if (c->reply_bytes == 0)
        return;
    if (reply->preamble.tensor_count != 2 || reply->tensors[0].bytes != 2 * sizeof(uint64_t) ||
        reply->tensors[1].bytes != c->reply_bytes) {
        sim_fail(sim, "client %u call %u has another call's answer", c->client, c->serial);
        return;
    }
    const uint64_t *id = reply->tensors[0].data;
    if (id[0] != c->client || id[1] != c->serial)
        sim_fail(sim, "client %u call %u has another call's answer", c->client, c->serial);
    else if (!sim_intact(&reply->tensors[1], c->client, c->serial, 2))
        sim_fail(sim, "client %u call %u has a damaged answer", c->client, c->serial);
}

static void check_time(struct sim *sim, const struct sim_call *c)
{
    const struct sim_node *node = &sim->nodes[sim->servers + c->client];
    uint64_t taken_us = c->ended_us - c->started_us;
    if (c->has_deadline) {
        uint64_t due_us = sim_when_us(node, c->deadline_us);
        due_us = due_us > node->stalled_until_us ? due_us : node->stalled_until_us;
        if (sim->now_us > due_us + LATE_US)
            sim_fail(sim, "client %u call %u ended %llu us after its deadline", c->client, c->serial,
                     (unsigned long long)(sim->now_us - due_us));
    }
    if (sim->work.late_us > 0 && taken_us > sim->work.late_us)
        sim_fail(sim, "client %u call %u took %llu us", c->client, c->serial, (unsigned long long)taken_us);
    if (c->request_bytes > SMALL_BYTES || c->reply_bytes > SMALL_BYTES)
        return;
    sim->slowest_small_us = taken_us > sim->slowest_small_us ? taken_us : sim->slowest_small_us;
    if (sim->work.small_late_us > 0 && taken_us > sim->work.small_late_us)
        sim_fail(sim, "client %u call %u is small, and was held up for %llu us", c->client, c->serial,
                 (unsigned long long)taken_us);
}

void sim_check_end(struct sim *sim, const struct sim_call *c, const struct mr_message *reply)
{
    check_time(sim, c);
    switch (c->status) {
    case MR_OK:
        check_reply(sim, c, reply);
        break;
    case MR_FROZEN:
        check_reply(sim, c, reply);
        if (c->reply_bytes != 0 || c->serial % 2 == 0)
            sim_fail(sim, "client %u call %u ended with a status nobody gave it", c->client, c->serial);
        break;
    case MR_CANCELLED:
        if (!c->cancelled)
            sim_fail(sim, "client %u call %u ended as cancelled, which it was not", c->client, c->serial);
        break;
    case MR_UNKNOWN_OUTCOME:
        if (sim_repeatable(c) || (sim->restarts == 0 && !c->has_deadline))
            sim_fail(sim, "client %u call %u ended with an unknown outcome without a reason", c->client,
                     c->serial);
        break;
    case MR_BUSY:
    case MR_DEADLINE_EXCEEDED:
    case MR_UNREACHABLE:
        if (!c->has_deadline)
            sim_fail(sim, "client %u call %u without a deadline missed it", c->client, c->serial);
        if ((!sim_repeatable(c) || c->status == MR_BUSY) && c->executed > 0)
            sim_fail(sim, "client %u call %u ended with %s and was executed", c->client, c->serial,
                     mr_status_name(c->status));
        break;
    default:
        sim_fail(sim, "client %u call %u ended with %s", c->client, c->serial, mr_status_name(c->status));
        break;
    }
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
            if (c->ended && c->executed > 0 &&
                (c->status == MR_BUSY ||
                 (!sim_repeatable(c) && (c->status == MR_DEADLINE_EXCEEDED || c->status == MR_UNREACHABLE))))
                sim_fail(sim, "client %u call %u ended with %s and was executed later", n, i,
                         mr_status_name(c->status));
        }
    }
}
