#include "trainer_client/call/outcome.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "dataplane/wire/base/printable.h"
#include "dataplane/wire/base/buddy.h"
#include "trainer_client/call/last_error.h"
#include "dataplane/wire/base/clock.h"

#define TEXT_BYTES 480u

static bool succeeded(const struct mr_future *f, const struct mrc_shard_request *request)
{
    return request->status == MR_OK ||
           (request->status == MR_ALREADY_LEARNT && f->options.op == MR_OP_PUSH_GRAD_BATCH);
}

/* Describes how long the server has been silent, and why, as far as that is known. */
static void describe_silence(const struct mrc_shard_request *request, char text[TEXT_BYTES])
{
    struct mrc_link *link = request->link;
    struct mr_client_session_info info = {.silent_since_us = 0};
    uint64_t now_us = mr_clock_us();
    pthread_mutex_lock(&link->client->lock);
    if (link->session != NULL)
        mr_client_session_info(link->session, &info);
    bool refused = link->refused;
    uint64_t opened_us = link->opened_us;
    bool described =
        mrc_link_describe_path(link, text, TEXT_BYTES) || mrc_link_describe_version(link, text, TEXT_BYTES);

    pthread_mutex_unlock(&link->client->lock);

    if (described)
        return;
    const char *why = refused ? "; its machine says that nothing listens on that port" : "";

    if (info.silent_since_us == 0)
        snprintf(text, TEXT_BYTES, "the server has never answered, for %.1f s%s",
                 (double)(now_us - opened_us) * 1e-6, why);
    else
        snprintf(text, TEXT_BYTES, "the server has been silent for %.1f s%s",
                 (double)(now_us - info.silent_since_us) * 1e-6, why);
}

/* The packet that says BUSY has no reason with it. A member was asked about its lease when such a call ended
 * before. */
static void describe_busy(const struct mrc_shard_request *request, char text[TEXT_BYTES])
{
    const struct mrc_node *node = request->link->node;
    pthread_mutex_lock(&request->link->client->lock);
    const bool is_member = node->is_member, has_no_lease = node->has_no_lease;
    pthread_mutex_unlock(&request->link->client->lock);
    if (has_no_lease)
        snprintf(
            text, TEXT_BYTES,
            "the server has no lease, and has not executed it: it does not reach ZooKeeper, or ZooKeeper "
            "has ended its session; its log says which, and until then calls for its keys wait");
    else
        snprintf(
            text, TEXT_BYTES,
            "the server could not take it until its deadline, and has not executed it: it had no room "
            "for it, was loading or moving what it has%s; make it again later, or with a longer deadline",
            is_member ? ", or had lost its lease, as without ZooKeeper (millrace ctl nodes and its log "
                        "say which)"
                      : " (millrace ctl status and its log say which)");
}

static void describe(const struct mrc_shard_request *request, char text[TEXT_BYTES])
{
    if (request->answer_count > 0 && request->answers[0].dtype == MR_U8) {
        const char *said = request->answers[0].data;
        (void)mr_printable(text, TEXT_BYTES, said, strnlen(said, (size_t)request->answers[0].bytes));
    } else if (request->is_void) {
        snprintf(text, TEXT_BYTES,
                 "its number is no longer that feature's since the node was restarted or restored: create it "
                 "again, or list the features, for the number that it has now");
    } else if (request->unread_bytes > 0) {
        snprintf(text, TEXT_BYTES,
                 "the server has executed the call, and its reply of %u bytes finds no room in the client's "
                 "memory for messages, memory_bytes = %u: raise that to at least %" PRIu64
                 ", ask for less at once, or let go of replies that are held",
                 request->unread_bytes, request->link->client->link_config.memory_bytes,
                 2 * (uint64_t)mr_buddy_block_bytes(request->unread_bytes));
    } else if (request->status == MR_BUSY && !request->replied) {
        describe_busy(request, text);
    } else if (request->is_late) {
        snprintf(
            text, TEXT_BYTES,
            "the answer came later than the node's lease reaches, and another node may have the keys since");
    } else if (request->status == MR_UNREACHABLE) {
        describe_silence(request, text);
    } else {
        snprintf(text, TEXT_BYTES, "%s", mr_status_text(request->status));
    }
}

static enum mr_status partly_applied(const struct mr_future *f, const struct mrc_shard_request *failed,
                                     const char *text, uint32_t good)
{
    char step[MRC_STEPS_BYTES];
    return mrc_error(
        MR_UNKNOWN_OUTCOME, "%s: %s: %s: %s; %u of the call's %u messages to cores %s been applied%s",
        failed->link->name, mr_op_name(f->options.op), mr_status_name(failed->status), text, good,
        f->request_count, good == 1 ? "has" : "have", mrc_of_steps(f->options.step, f->options.step, step));
}

/* Reports a failed call. A push that may have been applied is named by its step. */
static enum mr_status report_failure(const struct mr_future *f, const struct mrc_shard_request *failed,
                                     const char *text)
{
    char step[MRC_STEPS_BYTES] = "", unfound[sizeof(f->client->cluster.unfound) + 2] = "";
    const char *kept = "";
    struct mr_client *client = f->client;
    pthread_mutex_lock(&client->lock);
    bool contested = !failed->replied && mrc_link_is_contested(failed->link, mr_clock_us());
    /* the map that says where the keys are cannot be followed */
    if ((failed->status == MR_WRONG_OWNER || failed->status == MR_UNREACHABLE) &&
        client->cluster.unfound[0] != '\0')
        snprintf(unfound, sizeof(unfound), "; %s", client->cluster.unfound);
    pthread_mutex_unlock(&client->lock);
    if (failed->status == MR_UNKNOWN_OUTCOME) {
        mrc_of_steps(f->options.step, f->options.step, step);
        kept = failed->kept ? "; it is kept to be sent again: it must not be pushed again" : "";
    }
    return mrc_error(
        failed->status, "%s: %s%s: %s: %s%s%s%s", failed->link->name, mr_op_name(f->options.op), step,
        mr_status_name(failed->status), text, kept, unfound,
        contested
            ? "; the server loses this session again and again: does another process use the same client_id?"
            : "");
}

/* Returns whether the call was split for former cores: the present ones refused it, or nobody was left to
 * ask. */
static bool is_overtaken(const struct mr_future *f, const struct mrc_shard_request *failed)
{
    if (!mr_op_repeatable(f->options.op))
        return false;
    if (failed->status == MR_WRONG_OWNER)
        return true;
    if (failed->status != MR_CANCELLED && failed->status != MR_INVALID_ARGUMENT)
        return false;
    pthread_mutex_lock(&f->client->lock);
    bool changed = mrc_map_has_changed(f);

    pthread_mutex_unlock(&f->client->lock);
    return changed;
}

/* Returns the request whose status is the call's; NULL when all requests succeeded. */
static const struct mrc_shard_request *find_failed(const struct mr_future *f, uint32_t *good)
{
    const struct mrc_shard_request *failed = NULL;
    *good = 0;
    for (uint32_t i = 0; i < f->request_count; i++) {
        const struct mrc_shard_request *request = &f->requests[i];
        if (succeeded(f, request))
            (*good)++;
        else if (failed == NULL ||
                 (request->status == MR_UNKNOWN_OUTCOME && failed->status != MR_UNKNOWN_OUTCOME))
            failed = request;
    }
    return failed;
}

enum mr_status mrc_outcome_status(const struct mr_future *f)
{
    uint32_t good;
    const struct mrc_shard_request *failed = find_failed(f, &good);
    return failed == NULL ? MR_OK : failed->status;
}

bool mrc_outcome_is_kept(const struct mr_future *f)
{
    bool kept = f->request_count > 0;
    for (uint32_t i = 0; i < f->request_count; i++)
        kept &= succeeded(f, &f->requests[i]) || f->requests[i].kept;
    return kept;
}

enum mr_status mrc_outcome(struct mr_future *f)
{
    char text[TEXT_BYTES];
    uint32_t good;
    const struct mrc_shard_request *failed = find_failed(f, &good);
    if (failed == NULL)
        return MR_OK;
    if (failed->status != MR_WRONG_OWNER && is_overtaken(f, failed))
        return mrc_error(MR_CANCELLED,
                         "%s: %s: the node's cores changed while the call was in flight: make it again",
                         failed->link->name, mr_op_name(f->options.op));
    describe(failed, text);
    return good > 0 && !mr_op_repeatable(f->options.op) && !failed->kept
               ? partly_applied(f, failed, text, good)
               : report_failure(f, failed, text);
}

/* Adds a request's counts, the last tensor of its answer. A core that had applied the push, or some of it,
 * before sends none, and neither does one that did not answer. */
static enum mr_status add_counts(const struct mr_future *f, uint32_t i, struct mr_pushed *sum)
{
    uint32_t before = f->options.op == MR_OP_PUSH_GRAD_BATCH ? 1 : 0;
    if (f->requests[i].status != MR_OK || f->requests[i].answer_count <= before) {
        sum->is_known = false;
        return MR_OK;
    }
    uint32_t words[MR_PUSHED_WORDS];

    if (!mrc_answer_body(f, i, before, MR_BODY_PUSHED, words))
        return mrc_answer_garbled(f, i);
    sum->sent += words[MR_PUSHED_SENT];
    sum->applied += words[MR_PUSHED_APPLIED];
    sum->refused += words[MR_PUSHED_REFUSED];
    sum->without_row += words[MR_PUSHED_WITHOUT_ROW];
    sum->not_finite += words[MR_PUSHED_NOT_FINITE];
    return MR_OK;
}

enum mr_status mrc_pushed(const struct mr_future *f, struct mr_pushed *out)
{
    enum mr_status status = MR_OK;
    *out = (struct mr_pushed){.is_known = true};
    for (uint32_t i = 0; i < f->request_count && status == MR_OK; i++)
        status = add_counts(f, i, out);
    return status;
}

const struct mr_tensor *mrc_answer_tensor(const struct mr_future *f, uint32_t i, uint32_t t,
                                          enum mr_dtype dtype, uint32_t rank)
{
    if (t >= f->requests[i].answer_count)
        return NULL;
    const struct mr_tensor *tensor = &f->requests[i].answers[t];

    return tensor->dtype == dtype && tensor->rank == rank ? tensor : NULL;
}

bool mrc_answer_body(const struct mr_future *f, uint32_t i, uint32_t t, enum mr_body body, void *words)
{
    return t < f->requests[i].answer_count && mr_body_read(body, &f->requests[i].answers[t], words);
}

const struct mr_tensor *mrc_answer_body_rows(const struct mr_future *f, uint32_t i, uint32_t t,
                                             enum mr_body body)
{
    if (t >= f->requests[i].answer_count || !mr_body_is_rows(body, &f->requests[i].answers[t]))
        return NULL;
    return &f->requests[i].answers[t];
}

static enum mr_status link_garbled(const struct mrc_link *link, enum mr_op op)
{
    char versions[MRC_PATH_TEXT_BYTES];
    pthread_mutex_lock(&link->client->lock);
    mrc_link_versions(link, versions, sizeof(versions));
    pthread_mutex_unlock(&link->client->lock);
    return mrc_error(MR_BAD_MESSAGE, "%s: %s: the answer is not of the form this version expects: %s",
                     link->name, mr_op_name(op), versions);
}

enum mr_status mrc_answer_garbled(const struct mr_future *f, uint32_t i)
{
    return link_garbled(f->requests[i].link, f->options.op);
}

/* ---- tensors for the caller ---- */

struct mr_reply {
    struct mr_client *client; /* NULL when the reply has memory of its own */
    struct mrc_link *link;
    struct mr_call *call;
    const struct mr_tensor *tensors;
    uint32_t tensor_count;
    struct mr_tensor few[MRC_FEW_ANSWERS];
    void *memory;      /* of the tensors' bytes, if they are not in the call */
    void *descriptors; /* of `tensors`, if they are many */
};

struct mr_reply *mrc_reply_view(struct mr_future *f)
{
    struct mrc_shard_request *request = &f->requests[0];
    struct mr_reply *r = calloc(1, sizeof(*r));
    if (r == NULL) {
        mrc_error_line("no memory for a reply");
        return NULL;
    }
    if (request->call != NULL) {
        r->client = f->client;
        r->link = request->link;
        r->call = request->call;
        request->call = NULL;
    }
    r->memory = request->copy;
    request->copy = NULL;
    r->tensors = r->few;
    if (request->answers == request->few) {
        memcpy(r->few, request->few, sizeof(r->few));
    } else {
        r->tensors = request->answers;
        r->descriptors = request->answers;
        request->answers = NULL;
    }
    r->tensor_count = request->answer_count;
    return r;
}

enum mr_status mrc_reply_give(struct mr_future *f, struct mr_reply **reply)
{
    if (reply == NULL)
        return MR_OK;
    struct mr_reply *view = mrc_reply_view(f);

    if (view == NULL)
        return MR_NO_MEMORY;
    *reply = view;
    return MR_OK;
}

enum mr_status mrc_reply_garbled(const struct mr_client *client, const struct mr_reply *reply, enum mr_op op)
{
    return link_garbled(reply->link == NULL ? client->links[0] : reply->link, op);
}

struct mr_reply *mrc_reply_own(struct mr_tensor tensor, void *memory)
{
    tensor.data = memory;
    return mrc_reply_own_all(&tensor, 1, memory);
}

struct mr_reply *mrc_reply_own_all(const struct mr_tensor *tensors, uint32_t count, void *memory)
{
    const size_t bytes = count * sizeof(*tensors);
    struct mr_reply *r = calloc(1, sizeof(*r));
    struct mr_tensor *all = r == NULL || count <= MRC_FEW_ANSWERS ? NULL : malloc(bytes);
    if (r == NULL || (all == NULL && count > MRC_FEW_ANSWERS)) {
        free(r);
        free(memory);
        mrc_error_line("no memory for a reply");
        return NULL;
    }
    r->descriptors = all;
    r->tensors = memcpy(all == NULL ? r->few : all, tensors, bytes);
    r->tensor_count = count;
    r->memory = memory;
    return r;
}

uint32_t mr_reply_tensor_count(const struct mr_reply *reply)
{
    return reply == NULL ? 0 : reply->tensor_count;
}

const struct mr_tensor *mr_reply_tensor(const struct mr_reply *reply, uint32_t i)
{
    return reply == NULL || i >= reply->tensor_count ? NULL : &reply->tensors[i];
}

void mr_reply_free(struct mr_reply *reply)
{
    if (reply == NULL)
        return;
    if (reply->client != NULL && !mrc_is_inherited(reply->client)) {
        struct mr_client *client = reply->client;
        pthread_mutex_lock(&client->lock);
        mrc_client_release_reply(client, reply->link, reply->call);
    }
    free(reply->memory);
    free(reply->descriptors);
    free(reply);
}
