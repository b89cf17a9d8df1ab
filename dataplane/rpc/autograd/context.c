#include "dataplane/rpc/autograd/context.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "dataplane/rpc/base/rpc.h"

static uint32_t creator_of(uint64_t id)
{
    return (uint32_t)(id >> MR_RPC_ID_SHIFT);
}

static uint64_t counter_of(uint64_t id)
{
    return id & ((UINT64_C(1) << MR_RPC_ID_SHIFT) - 1);
}

void mr_context_text(struct mr_contexts *contexts, uint64_t id, char text[MR_CONTEXT_TEXT_BYTES])
{
    char who[MR_MEMBER_TEXT_BYTES];
    mr_member_text(contexts->agent, creator_of(id), who);
    snprintf(text, MR_CONTEXT_TEXT_BYTES, "context %lu of %.90s", (unsigned long)counter_of(id), who);
}

/* ---- notifying other workers of the end: the messages are there before, so that the end cannot fail ---- */

struct mr_context_end {
    struct mr_work work;
    struct mr_agent_call call;
    struct mr_context_end *next; /* of the context */
    uint64_t words[MR_CONTEXT_END_WORDS];
};

static struct mr_context_end *end_new(uint64_t id, uint32_t to,
                                      bool (*ended)(struct mr_rpc *agent, struct mr_agent_call *call,
                                                    enum mr_status status, const struct mr_message *reply))
{
    struct mr_context_end *end = calloc(1, sizeof(*end));
    if (end == NULL)
        return NULL;
    end->call = (struct mr_agent_call){
        .to = to, .op = MR_OP_RPC_CONTEXT_END, .control = true, .deadline_us = UINT64_MAX, .ended = ended};
    end->words[MR_CONTEXT_END_CONTEXT] = id;
    return end;
}

static void send_end(struct mr_rpc *agent, struct mr_work *work)
{
    struct mr_context_end *end = MR_CONTAINER(work, struct mr_context_end, work);
    struct mr_tensor tensor = mr_body_tensor(MR_BODY_CONTEXT_END, end->words);
    /* The receiver may be dead, or this worker has left. Without memory for messages, a later end reports
     * this one, too. */
    if (mr_agent_begin(agent, &end->call, &tensor, 1) == MR_OK)
        mr_agent_send(agent, &end->call);
    else
        free(end);
}

static bool notified(struct mr_rpc *agent, struct mr_agent_call *call, enum mr_status status,
                     const struct mr_message *reply)
{
    free(MR_CONTAINER(call, struct mr_context_end, call));
    return false;
}

enum mr_status mr_context_end_prepare(struct mr_autograd *c, uint32_t rank)
{
    uint8_t bit = (uint8_t)(1u << (rank % 8));
    if ((c->notified[rank / 8] & bit) != 0)
        return MR_OK;
    struct mr_context_end *end = end_new(c->id.id, rank, notified);

    if (end == NULL)
        return MR_NO_MEMORY;
    end->next = c->ends;
    c->ends = end;
    c->notified[rank / 8] |= bit;
    return MR_OK;
}

static void notify_of_end(struct mr_autograd *c, uint64_t over_below)
{
    struct mr_rpc *agent = c->contexts->agent;
    pthread_mutex_lock(&c->lock);
    struct mr_context_end *end = c->ends, *next;

    c->ends = NULL;
    pthread_mutex_unlock(&c->lock);
    for (; end != NULL; end = next) {
        next = end->next;
        end->words[MR_CONTEXT_END_OVER_BELOW] = over_below;
        end->work.run = send_end;
        mr_agent_submit(agent, &end->work);
    }
}

/* ---- made and freed ---- */

static struct mr_autograd *context_new(struct mr_contexts *contexts, uint64_t id)
{
    struct mr_autograd *c = calloc(1, sizeof(*c));
    if (c == NULL)
        return NULL;
    c->id.id = id;
    c->contexts = contexts;
    c->made_us = mr_agent_now(contexts->agent);
    mr_agent_hold(contexts->agent);
    mr_list_init(&c->own);
    atomic_store_explicit(&c->holds, 1, memory_order_relaxed);
    pthread_mutex_init(&c->lock, NULL);
    mr_tape_init(&c->tape, &contexts->numbers);
    mr_id_map_init(&c->calls);
    mr_id_map_init(&c->served);
    mr_id_map_init(&c->gradients);
    return c;
}

void mr_recorded_run_free(struct mr_recorded_run *run)
{
    if (run == NULL)
        return;
    if (run->saved != NULL && run->saved_destroy != NULL)
        run->saved_destroy(run->saved);
    free(run);
}

static void drop_gradients(struct mr_autograd *c)
{
    while (c->gradients_first != NULL) {
        struct mr_parameter_gradient *entry = c->gradients_first;
        c->gradients_first = entry->next;
        mr_rref_release(entry->parameter);
        free(entry->sum);
        free(entry);
    }
    while (c->lent != NULL) {
        struct mr_lent_sum *lent = c->lent;
        c->lent = lent->next;
        free(lent->sum);
        free(lent);
    }
    mr_id_map_destroy(&c->gradients);
}

static void context_free(struct mr_autograd *c)
{
    struct mr_rpc *agent = c->contexts->agent;
    for (uint32_t i = 0; i < c->tape.node_count; i++)
        if (c->tape.nodes[i].kind == MR_RECORDED_RUN)
            mr_recorded_run_free(c->tape.nodes[i].of);
    mr_tape_fini(&c->tape);
    mr_id_map_free(&c->calls);
    mr_id_map_free(&c->served);
    drop_gradients(c);
    while (c->ends != NULL) {
        struct mr_context_end *end = c->ends;
        c->ends = end->next;
        free(end);
    }
    free(c->pass.awaited);
    pthread_mutex_destroy(&c->lock);
    free(c);
    mr_agent_put(agent);
}

static void free_job(struct mr_job *job)
{
    context_free(MR_CONTAINER(job, struct mr_autograd, freeing));
}

void mr_context_hold(struct mr_autograd *c)
{
    atomic_fetch_add(&c->holds, 1);
}

void mr_context_put(struct mr_autograd *c, bool inside)
{
    if (atomic_fetch_sub(&c->holds, 1) != 1)
        return;
    if (!inside) {
        context_free(c);
        return;
    }
    /* The user's function that destroys what was saved may take long. */
    c->freeing = (struct mr_job){.run = free_job};
    mr_executor_give_one(c->contexts->agent->executor, &c->freeing);
}

/* ---- the table ---- */

static bool is_over(const struct mr_contexts *contexts, uint64_t id)
{
    uint32_t creator = creator_of(id);
    const struct mr_context_creator *known = &contexts->creators[creator];
    if (creator == contexts->agent->config.rank) /* otherwise it would be in the table */
        return true;
    return counter_of(id) < known->over_below || mr_id_map_get(&known->over, counter_of(id)) != NULL;
}

/* Under the lock, for a context that is not in the table: returns why it cannot be made known, or MR_OK. */
static enum mr_status may_begin(struct mr_contexts *contexts, uint64_t id, uint32_t by)
{
    char text[MR_CONTEXT_TEXT_BYTES];
    uint32_t creator = creator_of(id);
    if (creator >= contexts->agent->config.world_size || counter_of(id) == 0)
        return mr_rpc_error(MR_INVALID_ARGUMENT, "there is no autograd context %lu", (unsigned long)id);
    mr_context_text(contexts, id, text);
    if (atomic_load(&contexts->agent->members[creator].dead))
        return mr_rpc_error(MR_WORKER_DIED, "%s ended when its worker died", text);
    if (is_over(contexts, id))
        return mr_rpc_error(MR_INVALID_ARGUMENT, "%s has ended", text);
    if (by == MR_RPC_NO_RANK)
        return mr_rpc_error(MR_INVALID_ARGUMENT, "%s is not known here: no call in it came", text);
    /* The caller died while its call waited here: nobody is left who would report the end. */
    if (atomic_load(&contexts->agent->members[by].dead))
        return mr_rpc_error(MR_WORKER_DIED, "%s: the worker that called died", text);
    if (contexts->map.count >= MR_CONTEXTS_MAX)
        return mr_rpc_error(MR_NO_MEMORY, "%s: %u contexts are known here that nobody has ended", text,
                            MR_CONTEXTS_MAX);
    return MR_OK;
}

enum mr_status mr_context_get(struct mr_contexts *contexts, uint64_t id, uint32_t by,
                              struct mr_autograd **out)
{
    struct mr_autograd *made = NULL;
    enum mr_status status = MR_OK;
    pthread_mutex_lock(&contexts->lock);
    struct mr_id_node *node = mr_id_map_get(&contexts->map, id);

    if (node == NULL) {
        status = may_begin(contexts, id, by);
        if (status == MR_OK) {
            made = context_new(contexts, id);
            if (made == NULL)
                status = mr_rpc_error(MR_NO_MEMORY, "no memory for an autograd context");
            else
                mr_id_map_put(&contexts->map, &made->id);
            node = made == NULL ? NULL : &made->id;
        }
    }
    if (status == MR_OK) {
        *out = MR_CONTAINER(node, struct mr_autograd, id);
        mr_context_hold(*out);
    }
    pthread_mutex_unlock(&contexts->lock);
    return status;
}

void mr_contexts_use(struct mr_contexts *contexts, struct mr_contexts_use *out)
{
    uint64_t now_us = mr_agent_now(contexts->agent);
    pthread_mutex_lock(&contexts->lock);
    *out = (struct mr_contexts_use){.begun = contexts->begun, .known = contexts->map.count};
    if (!mr_list_empty(&contexts->own))
        out->oldest_us = now_us - MR_CONTAINER(contexts->own.next, struct mr_autograd, own)->made_us;
    pthread_mutex_unlock(&contexts->lock);
}

void mr_pass_fail(struct mr_pass *pass, enum mr_status status, const char *format, ...)
{
    va_list args;
    if (pass->status != MR_OK)
        return;
    pass->status = status;
    va_start(args, format);
    vsnprintf(pass->error, sizeof(pass->error), format, args);
    va_end(args);
}

static void abort_pass(struct mr_autograd *c)
{
    struct mr_pass *pass = &c->pass;
    if (pass->id == 0)
        return;
    mr_pass_fail(pass, MR_INVALID_ARGUMENT, "the context has ended");
    pass->id = 0;
    if (pass->is_root)
        (void)mr_agent_done(&pass->done);
}

/* Under the table's lock: takes a context out of the table, whose hold passes to the caller. */
static void take_out(struct mr_contexts *contexts, struct mr_autograd *c)
{
    mr_id_map_remove(&contexts->map, &c->id);
    if (!mr_list_empty(&c->own))
        contexts->begun--;
    mr_list_remove(&c->own);
    pthread_mutex_lock(&c->lock);
    c->over = true;
    abort_pass(c);
    pthread_mutex_unlock(&c->lock);
}

/* ---- the creator's ---- */

enum mr_status mr_autograd_begin(struct mr_rpc *agent, struct mr_autograd **context)
{
    struct mr_contexts *contexts = agent->contexts;
    uint64_t rank = agent->config.rank;
    if (agent->config.rank == MR_RPC_NO_RANK)
        return mr_rpc_error(MR_UNSUPPORTED, "mr_autograd_begin: this node is no worker");
    if (mr_agent_is_inherited(agent))
        return mr_agent_check_process(agent, "mr_autograd_begin");
    pthread_mutex_lock(&contexts->lock);
    if (contexts->begun >= MR_CONTEXTS_BEGUN_MAX) {
        pthread_mutex_unlock(&contexts->lock);
        return mr_rpc_error(MR_NO_MEMORY,
                            "mr_autograd_begin: this worker has begun %u contexts and ended none of them: "
                            "each is ended by mr_autograd_end()",
                            MR_CONTEXTS_BEGUN_MAX);
    }
    struct mr_autograd *c = context_new(contexts, (rank << MR_RPC_ID_SHIFT) | (contexts->last + 1));

    if (c != NULL) {
        contexts->last++;
        contexts->begun++;
        mr_id_map_put(&contexts->map, &c->id);
        mr_list_append(&contexts->own, &c->own);
        *context = c;
    }
    pthread_mutex_unlock(&contexts->lock);
    return c != NULL ? MR_OK : mr_rpc_error(MR_NO_MEMORY, "mr_autograd_begin: no memory");
}

/* Under the lock: returns the number below which all contexts of this worker are over. */
static uint64_t own_over_below(const struct mr_contexts *contexts)
{
    if (mr_list_empty(&contexts->own))
        return contexts->last + 1;
    return counter_of(MR_CONTAINER(contexts->own.next, struct mr_autograd, own)->id.id);
}

void mr_autograd_end(struct mr_autograd *c)
{
    if (c == NULL || creator_of(c->id.id) != c->contexts->agent->config.rank ||
        mr_agent_is_inherited(c->contexts->agent))
        return;
    struct mr_contexts *contexts = c->contexts;

    pthread_mutex_lock(&contexts->lock);
    bool ended_before = c->over; /* it ended with the worker */

    if (!ended_before)
        take_out(contexts, c);
    uint64_t over_below = own_over_below(contexts);

    pthread_mutex_unlock(&contexts->lock);
    if (!ended_before)
        notify_of_end(c, over_below);
    mr_context_put(c, false);
}

uint64_t mr_autograd_id(const struct mr_autograd *c)
{
    return c->id.id;
}

/* ---- the others' ---- */

/* Under the lock. Does nothing if the number does not rise: a context that lives long must not slow down the
 * ends of all others. */
static void raise_over_below(struct mr_context_creator *known, uint64_t over_below)
{
    if (over_below <= known->over_below)
        return;
    known->over_below = over_below;
    MR_ID_MAP_EACH(node, &known->over) {
        if (node->id < known->over_below) {
            mr_id_map_remove(&known->over, node);
            free(node);
        }
    }
}

/* Under the lock. */
static void note_over(struct mr_contexts *contexts, uint64_t id, uint64_t over_below)
{
    struct mr_context_creator *known = &contexts->creators[creator_of(id)];
    raise_over_below(known, over_below);
    if (counter_of(id) < known->over_below || mr_id_map_get(&known->over, counter_of(id)) != NULL)
        return;
    struct mr_id_node *node = calloc(1, sizeof(*node));

    if (node == NULL)
        return; /* a late call may bring the context back, until a later end reports it */
    node->id = counter_of(id);
    mr_id_map_put(&known->over, node);
}

/* Under the lock: takes out all that are over by now, or all of a creator's, into a chain by freeing.next. */
static struct mr_job *take_over(struct mr_contexts *contexts, uint32_t creator, bool all)
{
    struct mr_job *taken = NULL;
    MR_ID_MAP_EACH(node, &contexts->map) {
        struct mr_autograd *c = MR_CONTAINER(node, struct mr_autograd, id);
        if (creator_of(c->id.id) != creator || (!all && !is_over(contexts, c->id.id)))
            continue;
        take_out(contexts, c);
        c->freeing.next = taken;
        taken = &c->freeing;
    }
    return taken;
}

static void put_chain(struct mr_job *taken, uint64_t over_below, bool notify)
{
    while (taken != NULL) {
        struct mr_autograd *c = MR_CONTAINER(taken, struct mr_autograd, freeing);
        taken = taken->next;
        if (notify)
            notify_of_end(c, over_below);
        mr_context_put(c, true);
    }
}

void mr_contexts_heard(struct mr_contexts *contexts, uint64_t id, uint64_t over_below)
{
    uint32_t creator = creator_of(id);
    if (creator >= contexts->agent->config.world_size || creator == contexts->agent->config.rank)
        return;
    pthread_mutex_lock(&contexts->lock);
    note_over(contexts, id, over_below);
    struct mr_job *taken = take_over(contexts, creator, false);

    pthread_mutex_unlock(&contexts->lock);
    put_chain(taken, over_below, true);
}

static bool answered(struct mr_rpc *agent, struct mr_agent_call *call, enum mr_status status,
                     const struct mr_message *reply)
{
    struct mr_context_end *question = MR_CONTAINER(call, struct mr_context_end, call);
    if (status == MR_INVALID_ARGUMENT && reply != NULL)
        mr_contexts_heard(agent->contexts, question->words[MR_CONTEXT_END_CONTEXT], 0);
    free(question);
    return false;
}

static void ask_for_end(struct mr_rpc *agent, uint64_t id)
{
    struct mr_context_end *question = end_new(id, creator_of(id), answered);
    if (question == NULL)
        return; /* a later end of the same creator reports it */
    question->work.run = send_end;
    mr_agent_submit(agent, &question->work);
}

/* Under the lock: asks about all contexts of others, because a worker that was to report an end may have
 * died. */
static void ask_creators(struct mr_contexts *contexts)
{
    MR_ID_MAP_EACH(node, &contexts->map)
        if (creator_of(node->id) != contexts->agent->config.rank)
            ask_for_end(contexts->agent, node->id);
}

void mr_contexts_died(struct mr_rpc *agent, uint32_t rank)
{
    struct mr_contexts *contexts = agent->contexts;
    pthread_mutex_lock(&contexts->lock);
    struct mr_job *taken = take_over(contexts, rank, true);

    mr_id_map_free(&contexts->creators[rank].over); /* it is enough to know that it is dead */
    ask_creators(contexts);
    pthread_mutex_unlock(&contexts->lock);
    put_chain(taken, 0, false); /* everybody notices the death */
}

/* On the creator: `from` knows the context, and perhaps nobody is left to notify it of the end. */
static void serve_question(struct mr_rpc *agent, struct mr_contexts *contexts, uint64_t id, uint32_t from,
                           struct mr_call_ref ref)
{
    struct mr_endpoint *ep = agent->config.endpoint;
    struct mr_autograd *c;
    enum mr_status status = mr_context_get(contexts, id, MR_RPC_NO_RANK, &c);
    if (status == MR_OK) {
        pthread_mutex_lock(&c->lock);
        status = c->over ? MR_INVALID_ARGUMENT : mr_context_end_prepare(c, from);
        pthread_mutex_unlock(&c->lock);
        mr_context_put(c, true);
    }
    if (status == MR_NO_MEMORY)
        mr_reply_busy(ep, ref);
    else
        mr_reply_status(ep, ref, status);
}

void mr_context_end_serve(struct mr_rpc *agent, struct mr_member *from, const struct mr_request *request)
{
    struct mr_contexts *contexts = agent->contexts;
    uint64_t words[MR_CONTEXT_END_WORDS];
    if (request->message->preamble.tensor_count != 1 ||
        !mr_body_read(MR_BODY_CONTEXT_END, &request->message->tensors[0], words)) {
        mr_reply_status(agent->config.endpoint, request->ref, MR_BAD_MESSAGE);
        return;
    }
    const uint64_t context = words[MR_CONTEXT_END_CONTEXT];
    if (context >> MR_RPC_ID_SHIFT == agent->config.rank) {
        serve_question(agent, contexts, context, from->rank, request->ref);
        return;
    }
    mr_reply_status(agent->config.endpoint, request->ref, MR_OK);
    mr_contexts_heard(contexts, context, words[MR_CONTEXT_END_OVER_BELOW]);
}

/* ---- all of them ---- */

enum mr_status mr_contexts_create(struct mr_rpc *agent, struct mr_contexts **out)
{
    struct mr_contexts *contexts = calloc(1, sizeof(*contexts));
    if (contexts == NULL)
        return MR_NO_MEMORY;
    contexts->creators = calloc(agent->config.world_size, sizeof(*contexts->creators));
    if (contexts->creators == NULL) {
        free(contexts);
        return MR_NO_MEMORY;
    }
    for (uint32_t i = 0; i < agent->config.world_size; i++)
        mr_id_map_init(&contexts->creators[i].over);
    contexts->agent = agent;
    pthread_mutex_init(&contexts->lock, NULL);
    mr_id_map_init(&contexts->map);
    mr_list_init(&contexts->own);
    *out = contexts;
    return MR_OK;
}

void mr_contexts_end(struct mr_contexts *contexts)
{
    if (contexts == NULL)
        return;
    struct mr_job *others = NULL;

    pthread_mutex_lock(&contexts->lock);
    MR_ID_MAP_EACH(node, &contexts->map) {
        struct mr_autograd *c = MR_CONTAINER(node, struct mr_autograd, id);
        take_out(contexts, c);
        if (creator_of(c->id.id) == contexts->agent->config.rank) /* the program ends these */
            continue;
        c->freeing.next = others;
        others = &c->freeing;
    }
    pthread_mutex_unlock(&contexts->lock);
    put_chain(others, 0, false);
}

void mr_contexts_free(struct mr_contexts *contexts)
{
    if (contexts == NULL)
        return;
    mr_id_map_destroy(&contexts->map);
    for (uint32_t i = 0; i < contexts->agent->config.world_size; i++)
        mr_id_map_free(&contexts->creators[i].over);
    free(contexts->creators);
    pthread_mutex_destroy(&contexts->lock);
    free(contexts);
}
