/* A member of a cluster: its features are the catalogue's (ps/cluster/catalog_member.h). Create, Drop,
 * Alter and Freeze are answered once all nodes have made them; other commands go on meanwhile. */
#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "dataplane/wire/base/list.h"
#include "dataplane/wire/base/log.h"
#include "dataplane/wire/base/plural.h"
#include "ps/cluster/catalog_member.h"
#include "ps/control/control_internal.h"
#include "ps/core/alter.h"

#define ANSWER_US 30000000u /* after which a command is told that not all nodes have answered */
#define LOOK_US   20000u    /* how often the coordinator is looked at while something depends on others */

/* What came from the coordinator's thread and was not looked at yet. */
struct mail {
    bool has_written, has_expired, has_view;
    uint64_t written_version;
    enum ps_member_written outcome;
    struct ps_cluster_catalog *catalog; /* of the view; its memory stays */
    struct ps_catalog_view view;
};

struct ps_control_cluster {
    struct ps_control *control;
    struct ps_catalog_member member;
    pthread_mutex_t lock; /* of `mail` and its reports */
    struct mail mail;
    struct ps_cluster_report mail_reports[PS_CLUSTER_REGISTERED_MAX];
    struct ps_cluster_catalog *catalog; /* of the view that is looked at, and its reports */
    struct ps_cluster_report reports[PS_CLUSTER_REGISTERED_MAX];
    uint64_t woken_us;
    uint64_t failed_logged; /* the features that came with this version, in the log */
    bool is_lost_logged;
    bool has_catalog; /* one has come */
    bool was_frozen;  /* the level of before this start is set */
    bool asks_begin;  /* a request to begin with a checkpoint's features is on its way */
    bool is_held;     /* commands wait for it */
    struct waiting *held, **held_end;
    enum mr_status held_status; /* why no command is possible */
    char held_text[PS_RULES_TEXT_BYTES];
};

/* A command that waits for the cluster; or a request of the node's own. */
struct waiting {
    struct ps_catalog_pending pending;
    struct ps_command *command; /* NULL: the node's own, to begin; it looks whether that was made */
    struct waiting *next;       /* of those that are held */
};

/* ---- the node's features ---- */

static bool is_same(const struct mr_feature *a, const struct mr_feature *b)
{
    return mr_feature_diff(a, b) == NULL && a->altered == b->altered;
}

/* What the catalogue no longer has. False: a save holds what is to be dropped. */
static bool drop_missing(struct ps_control *c, const struct ps_cluster_catalog *catalog)
{
    char ignored[PS_CONTROL_TEXT_BYTES];
    uint16_t ids[MR_FEATURE_MAX];
    uint32_t count = 0;
    for (uint32_t i = 0; i < c->catalog.count; i++)
        if (ps_cluster_catalog_find_id(catalog, c->catalog.ids[i]) == catalog->count)
            ids[count++] = (uint16_t)c->catalog.ids[i];
    if (count == 0)
        return true;
    if (ps_control_check_idle(c, ignored) != MR_OK)
        return false;
    ps_control_drop_ids(c, ids, count);
    mr_log_with(MR_LOG_INFO, MR_LOG_FIELDS({"count", .number = count}), "features_dropped",
                "cluster: dropped %u feature%s; there are %u", count, mr_plural(count), c->catalog.count);
    return true;
}

static void alter_changed(struct ps_control *c, const struct ps_cluster_catalog *catalog)
{
    for (uint32_t i = 0; i < c->catalog.count; i++) {
        const uint32_t at = ps_cluster_catalog_find_id(catalog, c->catalog.ids[i]);
        if (at < catalog->count && !is_same(&c->catalog.features[i], &catalog->features[at].feature))
            ps_control_alter_to(c, i, &catalog->features[at].feature);
    }
}

static void log_failed(struct ps_control_cluster *k, const struct ps_cluster_feature *f, const char *text)
{
    if (k->failed_logged == f->since)
        return;
    k->failed_logged = f->since;
    mr_log_error("feature_not_created", "cluster: %.200s%s", text,
                 f->is_final ? "; the others have it: this node serves nothing until it can create it, too"
                             : "; the cluster takes it back");
}

/* In the order of their numbers, up to the first that fails: what came with it is not final, or nothing is
 * served. */
static void create_missing(struct ps_control_cluster *k, const struct ps_cluster_catalog *catalog,
                           struct ps_cluster_features_report *report)
{
    struct ps_control *c = k->control;
    char text[PS_CONTROL_TEXT_BYTES];
    const uint32_t before = c->catalog.count;
    report->catalog = catalog->version;
    report->failed = 0;
    report->failed_status = MR_OK;
    memset(report->failed_text, 0, sizeof(report->failed_text));
    for (uint32_t i = 0; i < catalog->count; i++) {
        const struct ps_cluster_feature *f = &catalog->features[i];
        if (ps_catalog_find_id(&c->catalog, f->id) < c->catalog.count)
            continue;
        const enum mr_status status = ps_control_create_everywhere(c, &f->feature, f->id, text);
        if (status == MR_OK)
            continue;
        report->catalog = f->since - 1;
        report->failed = f->since;
        report->failed_status = status;
        (void)snprintf(report->failed_text, sizeof(report->failed_text), "node %.50s: %.100s",
                       c->membership.node, text);
        log_failed(k, f, report->failed_text);
        break;
    }
    if (c->catalog.count > before)
        mr_log_with(MR_LOG_INFO, MR_LOG_FIELDS({"count", .number = c->catalog.count - before}),
                    "features_created", "cluster: created %u feature%s, first %.63s; there are %u",
                    c->catalog.count - before, mr_plural(c->catalog.count - before),
                    c->catalog.features[before].name, c->catalog.count);
}

static void set_freeze(struct ps_control_cluster *k, uint32_t level)
{
    struct ps_control *c = k->control;
    if (c->history.freeze != level || !k->was_frozen)
        ps_control_freeze_to(c, level, !k->was_frozen);
    k->was_frozen = true;
}

static bool control_cluster_apply(void *context, const struct ps_cluster_catalog *catalog,
                                  struct ps_cluster_features_report *report)
{
    struct ps_control_cluster *k = context;
    char ignored[PS_CONTROL_TEXT_BYTES];
    const bool is_whole = k->control->lacks_part || ps_control_check_whole(k->control, ignored) == MR_OK;
    if (!is_whole || !drop_missing(k->control, catalog))
        return false;
    alter_changed(k->control, catalog);
    set_freeze(k, catalog->freeze);
    create_missing(k, catalog, report);
    return true;
}

/* ---- commands ---- */

static void write_catalog(void *context, const struct ps_cluster_catalog *next)
{
    const struct ps_control_cluster *k = context;
    k->control->membership.ops->write_catalog(k->control->membership.context, next);
}

static void control_cluster_report(void *context, const struct ps_cluster_features_report *report)
{
    const struct ps_control_cluster *k = context;
    k->control->membership.ops->report(k->control->membership.context, report);
}

static void serve(void *context, uint64_t session)
{
    const struct ps_control_cluster *k = context;
    k->control->membership.ops->serve(k->control->membership.context, session);
}

static void answer_made(struct ps_control *c, struct ps_command *command,
                        const struct ps_catalog_request *request)
{
    switch (request->kind) {
    case PS_CATALOG_CREATE:
        ps_control_answer_created(c, command, request->ids);
        break;
    case PS_CATALOG_DROP:
        if (request->name_count < command->name_list_count)
            ps_control_drop_parameters(c, command->name_list + (size_t)request->name_count * MR_NAME_BYTES,
                                       command->name_list_count - request->name_count);
        ps_command_answer(command, mr_tensor_1d(MR_U32, request->id_count, NULL), request->ids);
        break;
    case PS_CATALOG_ALTER:
        ps_command_answer(command, mr_tensor_1d(MR_U8, sizeof(request->is), NULL), &request->is);
        break;
    case PS_CATALOG_FREEZE:
    case PS_CATALOG_BEGIN:
        break;
    }
}

static void control_cluster_answer(void *context, struct ps_catalog_pending *pending, enum mr_status status,
                                   const char *text)
{
    struct ps_control_cluster *k = context;
    struct waiting *w = MR_CONTAINER(pending, struct waiting, pending);
    if (w->command == NULL)
        k->asks_begin = false;
    else if (status == MR_OK)
        answer_made(k->control, w->command, &pending->request);
    else
        ps_command_fail(w->command, status, "%s", text);
    if (w->command != NULL)
        ps_command_send_back(k->control, w->command);
    free(pending->request.ids);
    free(w);
}

static enum mr_status use(void *context, uint64_t needs, char *text)
{
    const struct ps_control_cluster *k = context;
    return k->control->membership.ops->use(k->control->membership.context, needs, text);
}

static const struct ps_catalog_member_ops member_ops = {.write = write_catalog,
                                                        .apply = control_cluster_apply,
                                                        .report = control_cluster_report,
                                                        .serve = serve,
                                                        .use = use,
                                                        .answer = control_cluster_answer};

static struct ps_catalog_request request_of(struct ps_control *c, struct ps_command *command)
{
    struct ps_catalog_request request = {.kind = PS_CATALOG_FREEZE,
                                         .features = command->features,
                                         .feature_count = command->feature_count,
                                         .names = command->name_list,
                                         .freeze = command->freeze,
                                         .may_alter = ps_alter_check};
    if (command->op == MR_OP_CREATE) {
        request.kind = PS_CATALOG_CREATE;
        request.features_max = ps_control_features_max(c, command);
    }
    if (command->op == MR_OP_ALTER)
        request.kind = PS_CATALOG_ALTER;
    if (command->op == MR_OP_DROP) {
        request.kind = PS_CATALOG_DROP;
        request.name_count = ps_control_sort_names(c, command->name_list, command->name_list_count);
    }
    return request;
}

static void ask_or_hold(struct ps_control_cluster *k, struct waiting *w)
{
    if (!k->is_held) {
        ps_catalog_member_ask(&k->member, &w->pending, dp_now_us());
        return;
    }
    w->next = NULL;
    *k->held_end = w;
    k->held_end = &w->next;
}

/* Answers those whose time is over, or all. */
static void refuse_held(struct ps_control_cluster *k, uint64_t now_us, bool all, enum mr_status status,
                        const char *text)
{
    struct waiting *w = k->held;
    k->held = NULL;
    k->held_end = &k->held;
    for (struct waiting *next; w != NULL; w = next) {
        next = w->next;
        if (all || w->pending.deadline_us <= now_us)
            control_cluster_answer(k, &w->pending, status, text);
        else
            ask_or_hold(k, w);
    }
}

void ps_control_cluster_hold(struct ps_control *c)
{
    c->cluster->is_held = true;
}

void ps_control_cluster_release(struct ps_control *c, enum mr_status status, const char *text)
{
    struct ps_control_cluster *k = c->cluster;
    if (!k->is_held)
        return;
    k->is_held = false;
    k->held_status = status;
    (void)snprintf(k->held_text, sizeof(k->held_text), "%.*s", (int)sizeof(k->held_text) - 1, text);
    refuse_held(k, dp_now_us(), status != MR_OK, status, k->held_text); /* else asks them */
}

bool ps_control_cluster_ask(struct ps_control *c, struct ps_command *command)
{
    command->status = ps_control_check_whole(c, command->text);
    if (command->status != MR_OK)
        return true;
    if (c->cluster->held_status != MR_OK) {
        ps_command_fail(command, c->cluster->held_status, "%s", c->cluster->held_text);
        return true;
    }
    struct waiting *w = calloc(1, sizeof(*w));
    uint32_t *ids = calloc(command->feature_count + command->name_list_count + 1, sizeof(*ids));
    if (w == NULL || ids == NULL) {
        free(w);
        free(ids);
        ps_command_fail(command, MR_OUT_OF_MEMORY, "no memory left");
        return true;
    }
    *w = (struct waiting){
        .command = command,
        .pending = {.request = request_of(c, command), .deadline_us = dp_now_us() + ANSWER_US}};
    w->pending.request.ids = ids;
    ask_or_hold(c->cluster, w);
    return false;
}

static struct ps_catalog_request request_to_begin(const struct ps_catalog *features, uint32_t *ids)
{
    return (struct ps_catalog_request){.kind = PS_CATALOG_BEGIN,
                                       .features = features->features,
                                       .feature_count = features->count,
                                       .ids = ids};
}

static bool ask_to_begin(struct ps_control_cluster *k, const struct ps_catalog *features)
{
    struct waiting *w = calloc(1, sizeof(*w));
    uint32_t *ids = calloc(features->count + 1, sizeof(*ids));
    if (w == NULL || ids == NULL) {
        free(w);
        free(ids);
        return false;
    }
    memcpy(ids, features->ids, features->count * sizeof(*ids));
    w->pending.request = request_to_begin(features, ids);
    w->pending.deadline_us = dp_now_us() + ANSWER_US;
    k->asks_begin = true;
    ps_catalog_member_ask(&k->member, &w->pending, dp_now_us());
    return true;
}

enum ps_catalog_request_state ps_control_cluster_begin(struct ps_control *c, struct ps_catalog *features,
                                                       char *text)
{
    struct ps_control_cluster *k = c->cluster;
    struct ps_cluster_catalog *next = malloc(sizeof(*next));
    enum ps_catalog_request_state state = PS_CATALOG_WAITS;
    enum mr_status status;
    if (k->has_catalog && next != NULL) {
        struct ps_catalog_request request = request_to_begin(features, features->ids);
        state = ps_cluster_catalog_try(k->member.catalog, &request, next, &status, text);
    }
    free(next);
    if (state != PS_CATALOG_WRITES)
        return state;
    if (!k->asks_begin)
        (void)ask_to_begin(k, features); /* without memory it is asked for later */
    return PS_CATALOG_WAITS;
}

/* ---- the coordinator's mail: any thread ---- */

static struct mail *open_mail(struct ps_control_cluster *k)
{
    pthread_mutex_lock(&k->lock);
    return &k->mail;
}

static void close_mail(struct ps_control_cluster *k)
{
    pthread_mutex_unlock(&k->lock);
    sem_post(&k->control->wake);
}

void ps_control_cluster_viewed(struct ps_control *c, const struct ps_catalog_view *view)
{
    struct mail *mail = open_mail(c->cluster);
    mail->has_view = true;
    mail->view = *view;
    ps_cluster_catalog_copy(mail->catalog, view->catalog);
    assert(view->report_count <= PS_CLUSTER_REGISTERED_MAX);
    memcpy(c->cluster->mail_reports, view->reports, view->report_count * sizeof(view->reports[0]));
    close_mail(c->cluster);
}

void ps_control_cluster_written(struct ps_control *c, const struct ps_cluster_catalog *next,
                                enum ps_member_written outcome)
{
    struct mail *mail = open_mail(c->cluster);
    mail->has_written = true;
    mail->written_version = next->version;
    mail->outcome = outcome;
    close_mail(c->cluster);
}

void ps_control_cluster_expired(struct ps_control *c)
{
    struct mail *mail = open_mail(c->cluster);
    mail->has_expired = true;
    mail->has_view = false; /* it was the session's */
    close_mail(c->cluster);
}

/* ---- the control thread ---- */

static void say_lost(struct ps_control_cluster *k, bool is_lost, uint64_t version)
{
    if (is_lost && !k->is_lost_logged)
        mr_log_error(
            "cluster_lost_memory",
            "cluster: the coordinator has version %llu of the catalogue, and had %llu before: ZooKeeper has "
            "lost "
            "data; this node keeps its features, and no feature can be created until all nodes start again",
            (unsigned long long)version, (unsigned long long)k->member.catalog->version);
    k->is_lost_logged = is_lost;
}

/* Takes what has come since; false: no view. */
static bool take_mail(struct ps_control_cluster *k, struct mail *out)
{
    struct mail *mail = open_mail(k);
    *out = *mail;
    mail->has_written = mail->has_expired = mail->has_view = false;
    if (out->has_view) {
        mail->catalog = k->catalog;
        k->catalog = out->catalog;
        memcpy(k->reports, k->mail_reports, out->view.report_count * sizeof(k->reports[0]));
    }
    pthread_mutex_unlock(&k->lock);
    out->view.catalog = k->catalog;
    out->view.reports = k->reports;
    return out->has_view;
}

static void look_at_mail(struct ps_control_cluster *k, uint64_t now_us)
{
    struct mail mail;
    const bool has_view = take_mail(k, &mail);
    if (mail.has_written)
        ps_catalog_member_written(&k->member, mail.written_version, mail.outcome, now_us);
    if (mail.has_expired)
        ps_catalog_member_expired(&k->member);
    k->has_catalog = k->has_catalog || has_view;
    if (has_view)
        say_lost(k, !ps_catalog_member_viewed(&k->member, &mail.view, now_us), mail.view.catalog->version);
}

static bool catalog_is_waiting(const struct ps_control_cluster *k)
{
    return k->member.pending != NULL || k->held != NULL ||
           (k->member.has_view && ps_catalog_member_is_waiting(&k->member));
}

void ps_control_cluster_sync(struct ps_control *c)
{
    struct ps_control_cluster *k = c->cluster;
    const uint64_t now_us = dp_now_us();
    look_at_mail(k, now_us);
    ps_catalog_member_tick(&k->member, now_us);
    if (k->held != NULL)
        refuse_held(k, now_us, false, MR_DEADLINE_EXCEEDED,
                    "the cluster has not begun with its checkpoint yet (cluster.init_from)");
    if (catalog_is_waiting(k) && now_us - k->woken_us >= LOOK_US) {
        k->woken_us = now_us;
        c->membership.ops->wake(c->membership.context);
    }
}

void ps_control_cluster_poll(struct ps_control *c)
{
    if (c->cluster == NULL)
        return;
    ps_control_cluster_sync(c);
    c->membership.ops->poll(c->membership.context);
}

uint64_t ps_control_cluster_pause_us(const struct ps_control *c)
{
    if (c->cluster == NULL)
        return UINT64_MAX;
    return catalog_is_waiting(c->cluster) ? LOOK_US : c->membership.ops->pause_us(c->membership.context);
}

const struct ps_cluster_catalog *ps_control_cluster_catalog(const struct ps_control *c)
{
    return c->cluster != NULL && c->cluster->has_catalog ? c->cluster->member.catalog : NULL;
}

bool ps_control_cluster_is_final(const struct ps_control *c, uint32_t id)
{
    const struct ps_cluster_catalog *catalog = c->cluster->member.catalog;
    const uint32_t at = ps_cluster_catalog_find_id(catalog, id);
    return at < catalog->count && catalog->features[at].is_final;
}

void ps_control_cluster_restored(struct ps_control *c)
{
    if (c->cluster != NULL)
        ps_catalog_member_again(&c->cluster->member);
}

/* ---- its life ---- */

enum mr_status ps_control_join(struct ps_control *c, const char *node,
                               const struct ps_control_cluster_ops *ops, void *context)
{
    struct ps_control_cluster *k = calloc(1, sizeof(*k));
    if (k == NULL)
        return MR_NO_MEMORY;
    k->control = c;
    k->held_end = &k->held;
    k->catalog = calloc(1, sizeof(*k->catalog));
    k->mail.catalog = calloc(1, sizeof(*k->catalog));
    if (k->catalog == NULL || k->mail.catalog == NULL ||
        !ps_catalog_member_init(&k->member, &member_ops, k)) {
        free(k->catalog);
        free(k->mail.catalog);
        free(k);
        return MR_NO_MEMORY;
    }
    pthread_mutex_init(&k->lock, NULL);
    c->membership.node = node;
    c->membership.ops = ops;
    c->membership.context = context;
    c->cluster = k;
    return MR_OK;
}

void ps_control_cluster_stop(struct ps_control *c)
{
    if (c->cluster != NULL)
        refuse_held(c->cluster, 0, true, MR_SHUTTING_DOWN, "the node is stopping");
    while (c->cluster != NULL && c->cluster->member.pending != NULL)
        ps_catalog_member_refuse(&c->cluster->member, MR_SHUTTING_DOWN, "the node is stopping");
}

void ps_control_cluster_destroy(struct ps_control *c)
{
    struct ps_control_cluster *k = c->cluster;
    if (k == NULL)
        return;
    c->cluster = NULL;
    ps_catalog_member_destroy(&k->member);
    pthread_mutex_destroy(&k->lock);
    free(k->catalog);
    free(k->mail.catalog);
    free(k);
}
