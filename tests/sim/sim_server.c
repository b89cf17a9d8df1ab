/* What servers do with requests: answer, answer later, be busy. */
#include "sim.h"

static void answer(struct sim *sim, struct mr_endpoint *ep, const struct mr_request *request)
{
    struct sim_call *c = sim_check_request(sim, request);
    if (c == NULL) {
        sim_fail(sim, "a request came damaged");
        mr_reply_status(ep, request->ref, MR_BAD_MESSAGE);
        return;
    }
    if (c->reply_bytes == 0) {
        sim_check_executed(sim, c, request);
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
    sim_check_executed(sim, c, request);
    sim_fill(&tensors[1], c->client, c->serial, 2);
    mr_reply_end(ep, request->ref);
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
    sim->later[index] = (struct sim_later){true, node->index, node->life, request->ref, kept};
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
        answer(sim, ep, request);
}

void sim_answer_later(struct sim *sim, uint32_t index)
{
    struct sim_later *l = &sim->later[index];
    struct sim_node *node = &sim->nodes[l->node];
    if (node->life == l->life && node->stalled_until_us > sim->now_us) {
        sim_at(sim, node->stalled_until_us, SIM_ANSWER, index, NULL);
        return;
    }
    l->used = false;
    sim->later_count--;
    if (node->life != l->life)
        return;
    node->poll_at_us = sim->now_us;
    /* The request must still be there, whether or not anybody waits for the answer. */
    if (mr_call_ref_alive(node->ep, l->ref))
        answer(sim, node->ep, l->request);
    else if (sim_check_request(sim, l->request) == NULL)
        sim_fail(sim, "a request to be answered later was damaged");
    else
        mr_reply_status(node->ep, l->ref, MR_OK);
}
