#include "trainer_client/replay/state_probe.h"

#include <string.h>
#include "trainer_client/api/calls.h"
#include "trainer_client/call/client.h"
#include "trainer_client/call/future.h"
#include "trainer_client/call/last_error.h"
#include "trainer_client/replay/reshard.h"
#include "trainer_client/replay/reshard_trim.h"
#include "trainer_client/replay/resend.h"
#include "trainer_client/replay/replay_hooks.h"
#include "dataplane/wire/base/clock.h"

#define ASK_AGAIN_US 100000u

/* ---- when ---- */

void mrc_state_probe_want(struct mrc_node *node)
{
    if (node->replay->probe.due)
        return;
    node->replay->probe.due = true;
    node->replay->probe.ask_us = 0;
}

void mrc_state_probe_session_up(struct mrc_node *node, const struct mr_client_session_info *info,
                                bool started)
{
    struct mrc_state_probe *s = &node->replay->probe;
    s->lineage_now = info->lineage;
    if (!s->has_met) {
        s->has_met = true;
        s->lineage = info->lineage;
        s->restores = info->restores;
        mrc_ancestry_meet(&node->replay->ancestry, info->start_id);
    }
    if (started && (node->client->met.count > 0 || node->replay->has_pushed))
        mrc_state_probe_want(node);
    else if (started)
        mrc_ancestry_meet(&node->replay->ancestry, info->start_id);
    if (!started)
        mrc_state_probe_answered(node, info->restores);
}

void mrc_state_probe_answered(struct mrc_node *node, uint32_t restores)
{
    if (restores != node->replay->probe.restores)
        mrc_state_probe_want(node);
}

bool mrc_state_probe_is_over(const struct mrc_node *node)
{
    return !node->replay->probe.due && !node->replay->probe.asking;
}

uint64_t mrc_state_probe_next_us(const struct mrc_node *node)
{
    const bool waits = node->replay->probe.due && !node->replay->probe.asking && !mrc_resend_in_flight(node);
    return waits ? node->replay->probe.ask_us : UINT64_MAX;
}

/* ---- numbers ---- */

void mrc_state_probe_meet(struct mrc_node *node, uint32_t id, const struct mr_feature *feature,
                          uint64_t start_id)
{
    struct mr_client *client = node->client;
    (void)mrc_features_add(&client->met, id, feature); /* without memory it is not checked */
    /* An answer from before the restart holds only after the node has confirmed it. */
    mrc_features_set_void(&client->met, id, start_id != node->start_id);
    if (start_id == node->start_id)
        (void)mrc_features_add(&client->features, id, feature);
    else
        mrc_state_probe_want(node);
}

static void check_met(struct mr_client *client)
{
    for (uint32_t i = 0; i < client->met.count; i++) {
        uint32_t id;
        const struct mr_feature *met = mrc_features_at(&client->met, i, &id);
        const struct mr_feature *now = mrc_features_get(&client->features, id);
        mrc_features_set_void(&client->met, id, now == NULL || strcmp(now->name, met->name) != 0);
    }
}

/* Returns the number that a tensor of the request names, if it is a feature's head; 0: none. */
static uint32_t head_of(uint32_t op, const struct mr_tensor *t, const void *data)
{
    uint32_t id = 0;
    const bool has_heads = op == MR_OP_PUSH_GRAD || op == MR_OP_PUSH_GRAD_BATCH || op == MR_OP_FEED_SAMPLE ||
                           op == MR_OP_LOOKUP_TABLES;
    if (has_heads && data != NULL && t->dtype == MR_U32 && t->rank == 1 && t->dims[0] == MR_PUSH_HEAD_WORDS)
        memcpy(&id, data, sizeof(id));
    return id;
}

/* Returns the first void number that the request names; 0: none. */
static uint32_t void_number(const struct mrc_shard_request *request)
{
    const struct mr_future *f = request->future;
    const struct mrc_features *met = &f->client->met;
    const uint32_t table = request->table != 0 ? request->table : f->options.table;
    if (mrc_features_is_void(met, table))
        return table;
    for (uint32_t t = 0; t < request->tensor_count; t++) {
        const void *data = request->call != NULL ? request->tensors[t].data : request->sources[t];
        uint32_t id = head_of(f->options.op, &request->tensors[t], data);
        if (id != 0 && mrc_features_is_void(met, id))
            return id;
    }
    return 0;
}

enum mr_status mrc_state_probe_check(const struct mr_future *f)
{
    if (f->client->met.void_count == 0 || f->on_end != NULL)
        return MR_OK;
    for (uint32_t i = 0; i < f->request_count; i++) {
        uint32_t id = void_number(&f->requests[i]);
        if (id != 0)
            return mrc_error(
                MR_UNKNOWN_TABLE,
                "%s: %s: number %u was \"%s\", and is no longer since the node was restarted or restored: "
                "create it again, or list the features, for the number that it has now",
                f->client->server, mr_op_name(f->options.op), id,
                mrc_features_get(&f->client->met, id)->name);
    }
    return MR_OK;
}

/* Checks the calls that were held or are in flight; the endpoint ends each of them. */
static bool end_one_void(struct mrc_link *link)
{
    for (struct mr_link *l = link->requests.next; l != &link->requests; l = l->next) {
        struct mrc_shard_request *request = MR_CONTAINER(l, struct mrc_shard_request, in_flight);
        if (request->future->on_end == NULL && request->future->sent && !request->is_void &&
            void_number(request) != 0) {
            request->is_void = true;
            mr_call_cancel(link->ep, request->call);
            return true;
        }
    }
    return false;
}

/* ---- what is kept ---- */

struct review {
    const struct mrc_node *node;
    const struct mrc_replay *stream;  /* that is looked at */
    const uint32_t *ids, *taken_back; /* of the features that there are */
    uint32_t count, restores, whole;
    bool same_lineage;
};

static uint32_t taken_back_at(const struct review *r, const struct mrc_push *push)
{
    uint32_t id = mrc_push_feature(push);
    for (uint32_t i = 0; i < r->count && id != 0; i++)
        if (r->ids[i] == id)
            return r->taken_back[i];
    return r->whole; /* with everything else that was there then */
}

static enum mrc_verdict judge(void *arg, struct mrc_push *push)
{
    const struct review *r = arg;
    struct mr_client *client = r->node->client;
    if (push->restores != MRC_PUSH_UNANSWERED) {
        if (r->same_lineage && push->restores < taken_back_at(r, push))
            return MRC_TAKEN_BACK;
        /* In another directory, or an older copy of this one, the counts begin again with what is kept
         * now. */
        if (!r->same_lineage || push->restores > r->restores)
            push->restores = r->restores;
    }
    if (!mrc_features_is_void(&client->met, mrc_push_feature(push)))
        return MRC_KEEP;
    mrc_reshard_failed(client, mrc_replay_sequence(r->stream, push), MR_UNKNOWN_TABLE);
    return MRC_VOID;
}

static void review_stream(struct mrc_replay *stream, struct review *r)
{
    r->stream = stream;
    mrc_replay_review(stream, judge, r);
    if (r->same_lineage)
        mrc_replay_restored(stream, r->whole);
    if (stream->restarted && mrc_ancestry_lacks(&r->node->replay->ancestry, r->node->start_id))
        mrc_trim_suspect(&stream->trimmed);
}

static void review_kept(struct mrc_node *node, struct review *r)
{
    const struct mrc_reshard *reshard = node->client->reshard;
    for (uint32_t i = 0; i < reshard->stream_count; i++)
        if (reshard->streams[i]->home->node == node)
            review_stream(reshard->streams[i], r);
    for (uint32_t i = 0; i < node->link_count; i++) {
        struct mrc_link *link = node->links[i];
        review_stream(&link->replay->own, r);
        for (uint32_t l = 0; l < link->replay->former_count; l++)
            review_stream(link->replay->former[l], r);
        link->replay->resend_us = 0;
    }
    if (r->same_lineage)
        mrc_reshard_restored(node->client, r->whole);
}

/* ---- asking ---- */

static bool read_origin(struct mrc_node *node, struct mr_future *f, struct review *r)
{
    const struct mr_tensor *starts = mrc_answer_tensor(f, 0, 4, MR_U64, 2);
    if (starts == NULL || starts->dims[1] != MR_LIST_START_WORDS)
        return false;
    const struct mrc_origin origin = {.starts = starts->data,
                                      .count = starts->dims[0],
                                      .same_lineage = r->same_lineage,
                                      .restores = r->restores,
                                      .whole = r->whole};

    mrc_ancestry_judge(&node->replay->ancestry, f->requests[0].start_id, &origin);
    return true;
}

static bool read_review(struct mrc_node *node, struct mr_future *f, struct review *r)
{
    const struct mr_tensor *ids = mrc_answer_tensor(f, 0, 1, MR_U32, 1),
                           *words = mrc_answer_tensor(f, 0, 3, MR_U32, 1);
    mrc_features_clear(&f->client->features);
    if (!mrc_learn_features(f) || words == NULL || words->dims[0] != MR_LIST_HISTORY_WORDS + ids->dims[0])
        return false;
    const uint32_t *history = words->data;

    *r = (struct review){.node = node,
                         .ids = ids->data,
                         .taken_back = history + MR_LIST_HISTORY_WORDS,
                         .count = ids->dims[0],
                         .restores = history[MR_LIST_HISTORY_RESTORES],
                         .whole = history[MR_LIST_HISTORY_WHOLE],
                         .same_lineage = node->replay->probe.lineage == node->replay->probe.lineage_now};
    return read_origin(node, f, r);
}

static void take_over(struct mrc_node *node, struct review *r)
{
    struct mrc_state_probe *s = &node->replay->probe;
    check_met(node->client);
    review_kept(node, r);
    s->lineage = s->lineage_now;
    s->restores = r->restores;
    for (uint32_t i = 0; i < node->link_count; i++) {
        while (end_one_void(node->links[i])) {
        }
    }
}

static void answer_came(struct mr_future *f)
{
    struct mrc_node *node = f->requests[0].link->node;
    struct mrc_state_probe *s = &node->replay->probe;
    struct review review;
    s->asking = false;
    if (f->requests[0].status == MR_OK && f->requests[0].start_id == node->start_id &&
        read_review(node, f, &review)) {
        take_over(node, &review);
    } else {
        s->due = true;
        s->ask_us = mr_clock_us() + ASK_AGAIN_US;
    }
    mrc_future_free_locked(f);
}

void mrc_state_probe_poll(struct mrc_node *node)
{
    struct mrc_state_probe *s = &node->replay->probe;
    struct mr_future *f;
    if (!s->due || s->asking || node->core_count == 0 || mr_clock_us() < s->ask_us)
        return;
    if (mrc_resend_in_flight(node)) /* a push that comes back unapplied must not miss the review */
        return;
    s->ask_us = mr_clock_us() + ASK_AGAIN_US;
    if (mrc_future_new(node->client, NULL, MR_OP_LIST, 0, 1, 0, 0, &f) != MR_OK)
        return;
    f->requests[0].to = node->links[0];
    f->on_end = answer_came;
    f->options.ahead = true; /* held sessions are released once this is known */
    s->asking = mrc_future_send_locked(f) == MR_OK;
    if (s->asking)
        s->due = false;
    else
        mrc_future_free_locked(f);
}
