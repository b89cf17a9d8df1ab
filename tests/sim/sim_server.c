/* What servers do with requests: answer, answer later, be busy. */
#include "sim.h"

static void execute(struct sim *sim, struct mr_endpoint *ep, struct sim_call *c,
                    const struct mr_request *request)
{
    sim_check_executed(sim, c, request);
    if (sim_chance(&sim->rng, sim->work.save_ppm))
        sim_record_save(sim, c->server);
    if (c->number != 0)
        mr_reply_set_sequence(ep, request->ref, sim_record_floor(sim, c->server, c->client));
}

static void sim_server_answer(struct sim *sim, struct mr_endpoint *ep, const struct mr_request *request)
{
    struct sim_call *c = sim_check_request(sim, request);
    if (c == NULL) {
        sim_fail(sim, "a request came damaged");
        mr_reply_status(ep, request->ref, MR_BAD_MESSAGE);
        return;
    }
    if (c->reply_bytes == 0) {
        execute(sim, ep, c, request);
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
    execute(sim, ep, c, request);
    sim_fill(&tensors[1], c->client, c->serial, 2);
    mr_reply_end(ep, request->ref);
}

/* ---- an answer in parts ---- */

/* False: it is not begun; the call is answered as busy, or at once. */
static bool open_begin(struct sim *sim, struct mr_endpoint *ep, struct sim_later *l, struct sim_call *c)
{
    uint64_t id[2] = {c->client, c->serial};
    struct mr_tensor tensors[2] = {mr_tensor_1d(MR_U64, 2, id), mr_tensor_1d(MR_U8, c->reply_bytes, NULL)};
    if (!mr_reply_begin(ep, l->ref, MR_OK, tensors, 2)) {
        mr_reply_busy(ep, l->ref);
        return false;
    }
    execute(sim, ep, c, l->request);
    l->open = true;
    l->to = tensors[1];
    l->written = 0;
    return true;
}

/* Write on. True: that was the last part. */
static bool open_go_on(struct sim *sim, struct mr_endpoint *ep, struct sim_later *l, const struct sim_call *c)
{
    uint64_t end = l->written + 1 + sim_below(&sim->rng, l->to.bytes / 4 + 1);
    end = end < l->to.bytes ? end : l->to.bytes;
    sim_fill_part(&l->to, c->client, c->serial, 2, l->written, end);
    l->written = end;
    sim_log(sim, "server %u: call %u of client %u is answered up to %llu", c->server, c->serial, c->client,
            (unsigned long long)end);
    if (end == l->to.bytes) {
        mr_reply_end(ep, l->ref);
        return true;
    }
    if (sim_chance(&sim->rng, 700000))
        mr_reply_advance(ep, l->ref, (uint8_t *)l->to.data + end);
    return false;
}

/* True: the call is answered, or needs no answer any more. */
static bool answer_part(struct sim *sim, struct sim_node *node, struct sim_later *l)
{
    struct sim_call *c = sim_check_request(sim, l->request);
    if (c == NULL) {
        sim_fail(sim, "a request to be answered later was damaged");
        return true;
    }
    bool alive = mr_call_ref_alive(node->ep, l->ref);
    if (!alive && l->open) {
        mr_reply_end(node->ep, l->ref);
        return true;
    }
    if (!alive) {
        mr_reply_status(node->ep, l->ref, MR_OK);
        return true;
    }
    if (!l->open && (c->reply_bytes == 0 || !sim_chance(&sim->rng, sim->work.parts_ppm))) {
        sim_server_answer(sim, node->ep, l->request);
        return true;
    }
    if (!l->open && !open_begin(sim, node->ep, l, c))
        return true;
    return open_go_on(sim, node->ep, l, c);
}

static void put_off(struct sim *sim, struct sim_node *node, const struct mr_request *request)
{
    uint32_t index = 0;
    while (index < SIM_LATER_MAX && sim->later[index].used)
        index++;
    const struct mr_request *kept = index < SIM_LATER_MAX ? mr_reply_later(node->ep, request) : NULL;
    if (kept == NULL) {
        mr_reply_busy(node->ep, request->ref);
        return;
    }
    sim->later[index] = (struct sim_later){
        .used = true, .node = node->index, .life = node->life, .ref = request->ref, .request = kept};
    sim->later_count++;
    uint64_t longest_us = sim_chance(&sim->rng, 50000) ? 1500000 : 30000;
    sim_at(sim, sim->now_us + sim_below(&sim->rng, longest_us), SIM_ANSWER, index, NULL);
}

void sim_on_request(void *app, struct mr_endpoint *ep, const struct mr_request *request)
{
    struct sim_node *node = app;
    struct sim *sim = node->sim;
    sim_log(sim, "server %u: request %llu", node->index, (unsigned long long)request->ref.call_id);
    if (sim_chance(&sim->rng, sim->work.busy_ppm))
        mr_reply_busy(ep, request->ref);
    else if (sim_chance(&sim->rng, sim->work.later_ppm))
        put_off(sim, node, request);
    else
        sim_server_answer(sim, ep, request);
}

void sim_answer_later(struct sim *sim, uint32_t index)
{
    struct sim_later *l = &sim->later[index];
    struct sim_node *node = &sim->nodes[l->node];
    if (node->life == l->life && node->stalled_until_us > sim->now_us) {
        sim_at(sim, node->stalled_until_us, SIM_ANSWER, index, NULL);
        return;
    }
    if (node->life == l->life) {
        node->poll_at_us = sim->now_us;
        if (!answer_part(sim, node, l)) {
            sim_at(sim, sim->now_us + sim_below(&sim->rng, 3000), SIM_ANSWER, index, NULL);
            return;
        }
    }
    l->used = false;
    sim->later_count--;
}
