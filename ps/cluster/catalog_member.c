#include "ps/cluster/catalog_member.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool ps_catalog_member_init(struct ps_catalog_member *m, const struct ps_catalog_member_ops *ops,
                            void *context)
{
    *m = (struct ps_catalog_member){.ops = ops, .context = context};
    m->catalog = calloc(1, sizeof(*m->catalog));
    m->proposal = calloc(1, sizeof(*m->proposal));
    if (m->catalog != NULL && m->proposal != NULL)
        return true;
    ps_catalog_member_destroy(m);
    return false;
}

void ps_catalog_member_destroy(struct ps_catalog_member *m)
{
    free(m->catalog);
    free(m->proposal);
    m->catalog = m->proposal = NULL;
}

/* ---- the node itself ---- */

/* The features that failed are not final: others have to settle it, and trying again changes nothing. */
static bool has_failed_for_now(const struct ps_catalog_member *m)
{
    for (uint32_t i = 0; i < m->catalog->count && m->own.failed != 0; i++)
        if (m->catalog->features[i].since == m->own.failed)
            return !m->catalog->features[i].is_final;
    return false;
}

static bool is_same(const struct ps_cluster_features_report *a, const struct ps_cluster_features_report *b)
{
    return a->has_catalog == b->has_catalog && a->catalog == b->catalog && a->failed == b->failed &&
           a->failed_status == b->failed_status && strcmp(a->failed_text, b->failed_text) == 0;
}

/* Nobody waits for a node that does not serve and lacks something. */
static void catalog_member_apply(struct ps_catalog_member *m)
{
    const struct ps_cluster_features_report before = m->own;
    if (!m->ops->apply(m->context, m->catalog, &m->own))
        return;
    m->is_applied = m->own.failed == 0;
    m->own.has_catalog = m->serves != 0 || m->is_applied;
    if (!is_same(&before, &m->own))
        m->ops->report(m->context, &m->own);
}

static void set_serves(struct ps_catalog_member *m, uint64_t session)
{
    if (m->serves == session)
        return;
    m->serves = session;
    m->ops->serve(m->context, session);
}

/* ---- what was asked for ---- */

static void catalog_member_answer(struct ps_catalog_member *m, struct ps_catalog_pending *pending,
                                  enum mr_status status, const char *text)
{
    struct ps_catalog_pending **at = &m->pending;
    while (*at != pending)
        at = &(*at)->next;
    *at = pending->next;
    if (m->proposed == pending)
        m->proposed = NULL;
    m->ops->answer(m->context, pending, status, text);
}

static void answer_late(struct ps_catalog_member *m, struct ps_catalog_pending *pending)
{
    char text[PS_RULES_TEXT_BYTES];
    (void)snprintf(
        text, sizeof(text), "%s",
        !m->has_view ? "the cluster's coordinator does not answer: are ZooKeeper's servers running, and can "
                       "this node reach them?"
                     : "not every node of the cluster has answered in time; their logs say what they "
                       "wait for");
    catalog_member_answer(m, pending, MR_DEADLINE_EXCEEDED, text);
}

static void catalog_write(struct ps_catalog_member *m, struct ps_catalog_pending *pending)
{
    m->writes = true;
    m->proposed = pending;
    m->ops->write(m->context, m->proposal);
}

/* What a node must have for the features that are asked for. */
static uint64_t needs_of(const struct ps_catalog_request *request)
{
    uint64_t needs = 0;
    const bool makes = request->kind == PS_CATALOG_CREATE || request->kind == PS_CATALOG_BEGIN;
    for (uint32_t i = request->kind == PS_CATALOG_ALTER ? 1 : 0;
         (makes || request->kind == PS_CATALOG_ALTER) && i < request->feature_count; i++)
        needs |= mr_feature_needs(&request->features[i]);
    return needs;
}

/* Whether all that it needs is in use; otherwise it waits, or is answered. */
static bool may_be_made(struct ps_catalog_member *m, struct ps_catalog_pending *pending)
{
    char text[PS_RULES_TEXT_BYTES];
    const uint64_t needs = needs_of(&pending->request);
    if ((needs & ~m->in_use) == 0)
        return true;
    const enum mr_status status = m->ops->use(m->context, needs, text);
    if (status != MR_OK)
        catalog_member_answer(m, pending, status, text);
    return false;
}

/* Looks at one request; it may be answered, and gone. */
static void pursue(struct ps_catalog_member *m, struct ps_catalog_pending *pending)
{
    char text[PS_RULES_TEXT_BYTES];
    enum mr_status status;
    if (!pending->is_made && (m->proposed == pending || !may_be_made(m, pending)))
        return;
    if (!pending->is_made) {
        const bool was_written = pending->request.was_written;
        const uint64_t written_as = pending->request.written_as;
        switch (ps_cluster_catalog_try(m->catalog, &pending->request, m->proposal, &status, text)) {
        case PS_CATALOG_FAILED:
            catalog_member_answer(m, pending, status, text);
            return;
        case PS_CATALOG_WAITS:
            return;
        case PS_CATALOG_WRITES:
            if (!m->writes && !m->asks) {
                catalog_write(m, pending);
            } else {
                pending->request.was_written = was_written;
                pending->request.written_as = written_as;
            }
            return;
        case PS_CATALOG_MADE:
            pending->is_made = true;
            pending->made_in = pending->request.kind == PS_CATALOG_CREATE ? pending->request.final_since
                                                                          : m->catalog->version;
            break;
        }
    }
    if (ps_cluster_catalog_is_everywhere(pending->made_in, m->reports, m->report_count))
        catalog_member_answer(m, pending, MR_OK, "");
}

/* Also by a node that does not serve: it may be that none does, because all lack what is to be taken back. */
static void settle(struct ps_catalog_member *m)
{
    if (m->has_view && (m->leads || m->pending != NULL) && !m->writes && !m->asks &&
        ps_cluster_catalog_settle(m->catalog, m->reports, m->report_count, m->proposal))
        catalog_write(m, NULL);
}

/* What is not final is settled first: others wait for it. */
static void go_on(struct ps_catalog_member *m, uint64_t now_us)
{
    settle(m);
    for (struct ps_catalog_pending *pending = m->pending, *next;
         pending != NULL && m->has_view && m->serves != 0; pending = next) {
        next = pending->next;
        pursue(m, pending);
    }
    for (struct ps_catalog_pending *pending = m->pending, *next; pending != NULL; pending = next) {
        next = pending->next;
        if (now_us >= pending->deadline_us)
            answer_late(m, pending);
    }
}

void ps_catalog_member_ask(struct ps_catalog_member *m, struct ps_catalog_pending *pending, uint64_t now_us)
{
    struct ps_catalog_pending **at = &m->pending;
    while (*at != NULL)
        at = &(*at)->next;
    pending->next = NULL;
    pending->is_made = false;
    *at = pending;
    go_on(m, now_us);
}

bool ps_catalog_member_viewed(struct ps_catalog_member *m, const struct ps_catalog_view *view,
                              uint64_t now_us)
{
    if (view->catalog->version < m->catalog->version)
        return false;
    const bool is_new = view->catalog->version > m->catalog->version;
    if (is_new) {
        ps_cluster_catalog_copy(m->catalog, view->catalog);
        m->is_applied = false;
    }
    m->has_view = true;
    m->asks = false;
    m->leads = view->leads;
    m->in_use = view->in_use;
    m->report_count =
        view->report_count < PS_CLUSTER_REGISTERED_MAX ? view->report_count : PS_CLUSTER_REGISTERED_MAX;
    memcpy(m->reports, view->reports, m->report_count * sizeof(m->reports[0]));
    if (!m->is_applied && (is_new || !has_failed_for_now(m)))
        catalog_member_apply(m);
    const struct ps_cluster_features_report *own =
        view->own < m->report_count ? &m->reports[view->own].features : NULL;
    if (own != NULL && own->has_catalog && own->catalog == m->catalog->version)
        set_serves(m, view->session);
    go_on(m, now_us);
    return true;
}

void ps_catalog_member_written(struct ps_catalog_member *m, uint64_t version, enum ps_member_written outcome,
                               uint64_t now_us)
{
    struct ps_catalog_pending *pending = m->proposed;
    m->writes = false;
    m->proposed = NULL;
    m->asks = true; /* the next view tells */
    if (pending != NULL && outcome == PS_NOT_WRITTEN) {
        pending->request.was_written = false;
        pending->request.written_as =
            pending->request.written_as == version ? 0 : pending->request.written_as;
    }
    go_on(m, now_us);
}

void ps_catalog_member_expired(struct ps_catalog_member *m)
{
    m->has_view = m->leads = m->is_applied = m->own.has_catalog = false;
    m->asks = true;
    set_serves(m, 0);
    m->ops->report(m->context, &m->own);
}

void ps_catalog_member_tick(struct ps_catalog_member *m, uint64_t now_us)
{
    if (m->has_view && !m->is_applied && !has_failed_for_now(m))
        catalog_member_apply(m);
    go_on(m, now_us);
}

void ps_catalog_member_again(struct ps_catalog_member *m)
{
    m->is_applied = false;
    if (m->has_view)
        catalog_member_apply(m);
}

void ps_catalog_member_refuse(struct ps_catalog_member *m, enum mr_status status, const char *text)
{
    if (m->pending != NULL)
        catalog_member_answer(m, m->pending, status, text);
}

bool ps_catalog_member_is_waiting(const struct ps_catalog_member *m)
{
    return m->pending != NULL || (m->serves == 0 && m->own.failed == 0) ||
           (m->leads && ps_cluster_catalog_is_open(m->catalog));
}
