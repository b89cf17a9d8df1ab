/* The catalogue of features: a node's part of it as it is (ps/cluster/catalog_member.h), in place of its
 * tables a list of what it holds, and clients that create, drop, alter and freeze. It draws from a stream
 * of its own and its messages have no effect on the others', so what happens with partitions is the same
 * without it. */
#include <stdio.h>
#include <string.h>
#include "cluster_world.h"

#define TICK_US         10000u
#define PATIENCE_US     300000u /* of a node with a call */
#define CALL_US         500000u /* of a client with a node */
#define PAUSE_US        200000u /* of a client between two calls */
#define CALLS           5u      /* of each client */
#define NAMES           5u
#define NAMES_KEPT      2u /* of these: never dropped */
#define NEWER           5u /* a name of its own: of a feature that older processes do not know */
#define FAILS_PPM       60000u
#define WAITS_PPM       100000u
#define ANSWER_LOST_PPM 100000u

static struct context {
    struct world *w;
    uint32_t i;
} contexts[NODES_MAX];

static void send_features(struct world *w, struct message m)
{
    if (is_cut_off(w, m.from, m.to) || (!is_calm(w) && sim_chance(&w->features_rng, w->loss_ppm)))
        return;
    post(w, m, 100 + sim_below(&w->features_rng, w->delay_us_max));
}

static const struct ps_cluster_catalog *newest(const struct world *w)
{
    return &w->catalogs[w->catalog_version];
}

static struct mr_feature feature_of(uint32_t name, uint32_t dim)
{
    const char text[2] = {(char)('a' + (int)name), '\0'};
    struct mr_feature feature = mr_feature_table(text, dim);
    if (name == NEWER) {
        feature.optimizer = MR_OPT_ADAM;
        feature.optimizer_args[0] = 0.9f;
        feature.optimizer_args[1] = 0.999f;
        feature.optimizer_args[2] = 1e-8f;
        feature.optimizer_args[3] = 1; /* the step of pushes */
    }
    return feature;
}

/* ---- checks ---- */

static const struct ps_cluster_feature *find(const struct ps_cluster_catalog *c, uint32_t id)
{
    const uint32_t at = ps_cluster_catalog_find_id(c, id);
    return at == c->count ? NULL : &c->features[at];
}

/* What came with one version becomes final, or goes, as a whole. */
static void check_one(struct world *w, const struct ps_cluster_catalog *next,
                      const struct ps_cluster_feature *was)
{
    const struct ps_cluster_feature *is = find(next, was->id);
    const uint32_t name = (uint32_t)(was->feature.name[0] - 'a');
    if (was->is_final) {
        if (is == NULL ? !w->is_dropped[name] : !is->is_final)
            fail(w, "feature %u was final, and is not any more", was->id);
        return;
    }
    const struct ps_cluster_catalog *before = &w->catalogs[next->version - 1];
    for (uint32_t i = 0; i < before->count; i++) {
        const struct ps_cluster_feature *other = find(next, before->features[i].id);
        if (before->features[i].since == was->since &&
            ((other == NULL) != (is == NULL) || (is != NULL && other->is_final != is->is_final)))
            fail(w, "of the features of version %llu some are final or gone, and some not",
                 (unsigned long long)was->since);
    }
}

static void check_catalog(struct world *w, const struct ps_cluster_catalog *next)
{
    const struct ps_cluster_catalog *before = newest(w);
    if (next->last_feature < before->last_feature)
        fail(w, "the last number falls from %u to %u", before->last_feature, next->last_feature);
    for (uint32_t i = 0; i < before->count; i++)
        check_one(w, next, &before->features[i]);
    for (uint32_t i = 0; i < next->count; i++) {
        const struct ps_cluster_feature *f = &next->features[i];
        versions_check_feature(w, &f->feature);
        if (find(before, f->id) == NULL && (f->id <= before->last_feature || f->is_final))
            fail(w, "number %u comes again, or is final at once", f->id);
        for (uint32_t j = 0; j < i; j++)
            if (next->features[j].id == f->id || strcmp(next->features[j].feature.name, f->feature.name) == 0)
                fail(w, "number %u or name %s is there twice", f->id, f->feature.name);
    }
}

/* May answer calls of clients, by its own clock. */
static bool is_serving(const struct world *w, uint32_t i)
{
    const struct node *node = &w->nodes[i];
    return node->runs && node->features.session != 0 && node->features.session == node->session &&
           node_now(w, i) < node->member.lease_end_us;
}

static bool holds(const struct node *node, uint32_t id)
{
    for (uint32_t i = 0; i < node->features.count; i++)
        if (node->features.held[i].id == id)
            return true;
    return false;
}

/* And knows that everybody does, so that it may list it. */
static bool holds_final(const struct node *node, uint32_t id)
{
    const struct ps_cluster_feature *f = find(node->features.member.catalog, id);
    return holds(node, id) && f != NULL && f->is_final;
}

/* A node begins to serve: it has all that somebody was told is there. */
static void check_serves(struct world *w, uint32_t i)
{
    for (uint32_t k = 0; k < newest(w)->count; k++)
        if (w->is_created[newest(w)->features[k].id] && !holds_final(&w->nodes[i], newest(w)->features[k].id))
            fail(w, "node %u serves, and lacks feature %u", i, newest(w)->features[k].id);
}

/* A call is about to be answered as done: it is so on every node that serves. */
static void check_answer(struct world *w, const struct asked *asked)
{
    const struct ps_catalog_request *request = &asked->pending.request;
    for (uint32_t k = 0; request->kind == PS_CATALOG_CREATE && k < request->feature_count; k++)
        w->is_created[request->ids[k]] = true;
    for (uint32_t i = 0; i < w->node_count; i++) {
        if (!is_serving(w, i))
            continue;
        for (uint32_t k = 0; request->kind == PS_CATALOG_CREATE && k < request->feature_count; k++)
            if (find(newest(w), request->ids[k]) != NULL && !holds_final(&w->nodes[i], request->ids[k]))
                fail(w, "feature %u was created, and node %u lacks it", request->ids[k], i);
        for (uint32_t k = 0; request->kind == PS_CATALOG_DROP && k < request->id_count; k++)
            if (holds(&w->nodes[i], request->ids[k]))
                fail(w, "feature %u was dropped, and node %u has it", request->ids[k], i);
        if (request->kind != PS_CATALOG_CREATE && w->nodes[i].features.version < asked->pending.made_in)
            fail(w, "a call was answered with version %llu, and node %u has %llu",
                 (unsigned long long)asked->pending.made_in, i,
                 (unsigned long long)w->nodes[i].features.version);
    }
}

void features_check_end(struct world *w)
{
    const struct ps_cluster_catalog *c = newest(w);
    if (ps_cluster_catalog_is_open(c))
        fail(w, "features stay without being final");
    for (uint32_t i = 0; i < w->client_count; i++)
        if (w->feature_calls[i].done < CALLS)
            fail(w, "client %u's call for features hangs", i);
    for (uint32_t i = 0; i < w->node_count; i++) {
        const struct features *f = &w->nodes[i].features;
        if (f->count != c->count || f->freeze != c->freeze)
            fail(w, "node %u has %u features of %u", i, f->count, c->count);
        for (uint32_t k = 0; k < f->count && !w->failed; k++) {
            const struct ps_cluster_feature *is = find(c, f->held[k].id);
            if (is == NULL || mr_feature_diff(&is->feature, &f->held[k].feature) != NULL)
                fail(w, "node %u has another feature %u", i, f->held[k].id);
        }
    }
}

bool features_are_settled(const struct world *w)
{
    for (uint32_t i = 0; i < w->client_count; i++)
        if (w->feature_calls[i].done < CALLS)
            return false;
    for (uint32_t i = 0; i < w->node_count; i++)
        if (w->nodes[i].features.version != w->catalog_version || !is_serving(w, i))
            return false;
    return !ps_cluster_catalog_is_open(newest(w));
}

/* ---- what the node's part asks for ---- */

static void write_catalog(void *context, const struct ps_cluster_catalog *next)
{
    const struct context *k = context;
    struct world *w = k->w;
    w->next_catalog_proposal = (w->next_catalog_proposal + 1) % CATALOG_PROPOSALS_MAX;
    ps_cluster_catalog_copy(&w->catalog_proposals[w->next_catalog_proposal], next);
    w->nodes[k->i].features.proposal = ++w->last_proposal;
    w->nodes[k->i].features.proposed = next->version;
    send_features(w, (struct message){.kind = ASK_CATALOG,
                                      .from = k->i,
                                      .to = COORDINATOR,
                                      .session = w->nodes[k->i].session,
                                      .sent_us = node_now(w, k->i),
                                      .start_id = w->nodes[k->i].start_id,
                                      .number = w->last_proposal,
                                      .proposal = w->next_catalog_proposal});
}

static void drop_missing(struct features *f, const struct ps_cluster_catalog *c)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < f->count; i++)
        if (find(c, f->held[i].id) != NULL)
            f->held[kept++] = f->held[i];
    f->count = kept;
}

static bool apply(void *context, const struct ps_cluster_catalog *c,
                  struct ps_cluster_features_report *report)
{
    const struct context *k = context;
    struct features *f = &k->w->nodes[k->i].features;
    if (!is_calm(k->w) && sim_chance(&k->w->features_rng, WAITS_PPM))
        return false;
    for (uint32_t i = 0; i < c->count; i++)
        if (k->w->nodes[k->i].is_older && mr_feature_needs(&c->features[i].feature) != 0)
            fail(k->w, "node %u, an older one, takes feature %s for another", k->i,
                 c->features[i].feature.name);
    drop_missing(f, c);
    f->freeze = c->freeze;
    f->version = c->version;
    *report = (struct ps_cluster_features_report){.has_catalog = report->has_catalog, .catalog = c->version};
    for (uint32_t i = 0; i < c->count; i++) {
        uint32_t at = 0;
        while (at < f->count && f->held[at].id != c->features[i].id)
            at++;
        if (at == f->count && !is_calm(k->w) && sim_chance(&k->w->features_rng, FAILS_PPM)) {
            report->failed = c->features[i].since;
            report->catalog = f->version = report->failed - 1;
            report->failed_status = MR_OUT_OF_MEMORY;
            return true;
        }
        f->count += at == f->count;
        f->held[at] = (struct held){.id = c->features[i].id, .feature = c->features[i].feature};
    }
    return true;
}

static void features_report(void *context, const struct ps_cluster_features_report *report)
{
    const struct context *k = context;
    k->w->nodes[k->i].features.said.features = *report;
}

static void serve(void *context, uint64_t session)
{
    const struct context *k = context;
    k->w->nodes[k->i].features.session = session;
    if (is_serving(k->w, k->i))
        check_serves(k->w, k->i);
}

static void reply(struct world *w, uint32_t i, uint32_t c)
{
    const struct asked *asked = &w->nodes[i].features.asked[c];
    send_features(w, (struct message){.kind = REPLY_FEATURES,
                                      .from = i,
                                      .to = NODES_MAX + c,
                                      .number = asked->number,
                                      .status = (uint8_t)asked->status});
}

static void answer(void *context, struct ps_catalog_pending *pending, enum mr_status status, const char *text)
{
    const struct context *k = context;
    struct features *f = &k->w->nodes[k->i].features;
    (void)text;
    for (uint32_t c = 0; c < CLIENTS_MAX; c++) {
        if (pending != &f->asked[c].pending)
            continue;
        f->asked[c].is_open = false;
        f->asked[c].status = status;
        if (status == MR_OK)
            check_answer(k->w, &f->asked[c]);
        reply(k->w, k->i, c);
    }
}

static enum mr_status use(void *context, uint64_t needs, char *text)
{
    const struct context *k = context;
    (void)text;
    return versions_use(k->w, k->i, needs);
}

static const struct ps_catalog_member_ops ops = {.write = write_catalog,
                                                 .apply = apply,
                                                 .report = features_report,
                                                 .serve = serve,
                                                 .use = use,
                                                 .answer = answer};

/* ---- the process ---- */

static void tick_later(struct world *w, uint32_t i)
{
    post(w,
         (struct message){
             .kind = FEATURES_TICK, .to = i, .to_start = i < NODES_MAX ? w->nodes[i].start_id : 0},
         TICK_US / 2 + sim_below(&w->features_rng, TICK_US));
}

void features_start(struct world *w, uint32_t i)
{
    struct features *f = &w->nodes[i].features;
    *f = (struct features){.count = 0};
    contexts[i] = (struct context){.w = w, .i = i};
    if (!ps_catalog_member_init(&f->member, &ops, &contexts[i]))
        fail(w, "no memory");
    tick_later(w, i);
}

void features_end(struct world *w, uint32_t i)
{
    ps_catalog_member_destroy(&w->nodes[i].features.member);
}

/* One session's rounds come one after the other, and the fate of a write is known before the next view. */
void features_viewed(struct world *w, uint32_t i, const struct message *m)
{
    struct features *f = &w->nodes[i].features;
    struct ps_cluster_report reports[NODES_MAX];
    struct ps_catalog_view view = {.session = w->nodes[i].session,
                                   .catalog = &w->catalogs[m->catalog],
                                   .in_use = w->maps[m->epoch].needs,
                                   .reports = reports,
                                   .own = NODES_MAX,
                                   .leads = m->leads};
    if (m->sent_us < f->rounds_from_us)
        return;
    f->rounds_from_us = m->sent_us;
    for (uint32_t n = 0; n < w->node_count; n++) {
        if (m->registered[n] == 0)
            continue;
        if (m->sessions[n] == view.session)
            view.own = view.report_count;
        reports[view.report_count++] = m->reports[n];
    }
    (void)ps_catalog_member_viewed(&f->member, &view, node_now(w, i));
}

void features_expired(struct world *w, uint32_t i)
{
    ps_catalog_member_expired(&w->nodes[i].features.member);
}

static void written(struct world *w, uint32_t i, enum ps_member_written outcome)
{
    struct features *f = &w->nodes[i].features;
    f->proposal = 0;
    f->rounds_from_us = node_now(w, i);
    ps_catalog_member_written(&f->member, f->proposed, outcome, node_now(w, i));
}

static void tick(struct world *w, uint32_t i)
{
    struct features *f = &w->nodes[i].features;
    if (f->proposal != 0 && sim_chance(&w->features_rng, ANSWER_LOST_PPM))
        written(w, i, PS_PERHAPS_WRITTEN);
    ps_catalog_member_tick(&f->member, node_now(w, i));
    tick_later(w, i);
}

static void take_call(struct world *w, uint32_t i, const struct message *m)
{
    const uint32_t c = m->from - NODES_MAX;
    const struct feature_call *call = &w->feature_calls[c];
    struct features *f = &w->nodes[i].features;
    struct asked *asked = &f->asked[c];
    if (asked->number == m->number && !asked->is_open)
        reply(w, i, c);
    if (asked->number == m->number || asked->is_open || call->number != m->number)
        return;
    *asked = (struct asked){.is_open = true, .number = call->number};
    if (w->nodes[i].is_older && call->kind == PS_CATALOG_CREATE && call->names[0] == NEWER) {
        asked->is_open = false; /* the client does not even send it */
        asked->status = MR_VERSION_MISMATCH;
        reply(w, i, c);
        return;
    }
    struct ps_catalog_request *request = &asked->pending.request;
    *request = (struct ps_catalog_request){.kind = call->kind,
                                           .feature_count = call->count,
                                           .features = asked->features,
                                           .name_count = call->count,
                                           .names = asked->names[0],
                                           .freeze = call->variant % 3,
                                           .may_alter = features_may_alter,
                                           .ids = asked->ids};
    for (uint32_t k = 0; k < call->count; k++) {
        asked->features[k] = feature_of(call->names[k], call->variant == 0 ? 5 : 4);
        (void)snprintf(asked->names[k], MR_NAME_BYTES, "%s", asked->features[k].name);
    }
    if (call->kind == PS_CATALOG_ALTER) {
        request->feature_count = 2;
        asked->features[1] = asked->features[0];
        asked->features[1].learning_rate = 0.125f * (float)(1 + call->variant);
    }
    asked->pending.deadline_us = node_now(w, i) + PATIENCE_US;
    ps_catalog_member_ask(&f->member, &asked->pending, node_now(w, i));
}

/* NOLINTNEXTLINE(readability-non-const-parameter): as all of its kind */
bool features_may_alter(const struct mr_feature *is, const struct mr_feature *after, char *text, size_t bytes)
{
    (void)is;
    (void)after;
    (void)text;
    (void)bytes;
    return true;
}

void features_receive(struct world *w, uint32_t i, const struct message *m)
{
    const struct node *node = &w->nodes[i];
    if (m->kind == FEATURES_TICK)
        tick(w, i);
    else if (m->kind == CALL_FEATURES)
        take_call(w, i, m);
    else if (m->number == node->features.proposal && m->start_id == node->start_id)
        written(w, i, (enum ps_member_written)m->outcome);
}

/* ---- the coordinator ---- */

/* Requests of one session are executed in the order in which they were sent. */
bool features_heard(struct session *s, const struct message *m)
{
    if (m->sent_us < s->sent_us)
        return false;
    s->sent_us = m->sent_us;
    if (m->kind != ASK_CATALOG)
        s->report = m->report;
    return true;
}

void features_write(struct world *w, const struct message *m)
{
    const struct ps_cluster_catalog *next = &w->catalog_proposals[m->proposal];
    const bool fits = next->version == w->catalog_version + 1;
    if (fits && w->catalog_version + 1 == CATALOGS_MAX) {
        fail(w, "the catalogue changes without end");
        return;
    }
    if (fits) {
        check_catalog(w, next);
        ps_cluster_catalog_copy(&w->catalogs[++w->catalog_version], next);
    }
    send_features(w, (struct message){.kind = TELL_CATALOG_WRITTEN,
                                      .from = COORDINATOR,
                                      .to = m->from,
                                      .number = m->number,
                                      .start_id = m->start_id,
                                      .outcome = fits ? PS_WRITTEN : PS_NOT_WRITTEN});
}

/* ---- clients ---- */

static void begin_call(struct world *w, uint32_t c)
{
    struct sim_rng *rng = &w->features_rng;
    struct feature_call *call = &w->feature_calls[c];
    const uint32_t kind = (uint32_t)sim_below(rng, 8);
    call->kind = kind < 4   ? PS_CATALOG_CREATE
                 : kind < 6 ? PS_CATALOG_DROP
                 : kind < 7 ? PS_CATALOG_ALTER
                            : PS_CATALOG_FREEZE;
    const uint32_t count = call->kind == PS_CATALOG_CREATE && sim_below(rng, 2) == 1 ? 2 : 1;
    call->count = count;
    call->variant = (uint32_t)sim_below(rng, 8);
    for (uint32_t k = 0; k < count; k++) {
        const uint32_t first = call->kind == PS_CATALOG_DROP ? NAMES_KEPT : 0;
        call->names[k] = (uint8_t)(first + sim_below(rng, NAMES - first));
        w->is_dropped[call->names[k]] |= call->kind == PS_CATALOG_DROP;
    }
    if (w->has_versions && (call->done + 1 == CALLS || sim_below(&w->versions_rng, 4) == 0)) {
        call->kind = PS_CATALOG_CREATE; /* each client's last call, too: once all are upgraded, it succeeds */
        call->count = 1;
        call->variant = 1;
        call->names[0] = NEWER;
    }
    call->number++;
    call->node = (uint32_t)sim_below(rng, w->node_count);
    call->begun_us = w->now_us;
    call->is_open = true;
}

void features_client_start(struct world *w, uint32_t c)
{
    tick_later(w, NODES_MAX + c);
}

static void client_tick(struct world *w, uint32_t c)
{
    struct feature_call *call = &w->feature_calls[c];
    if (call->done < CALLS)
        tick_later(w, NODES_MAX + c);
    if (call->done == CALLS || (!call->is_open && w->now_us < call->next_us))
        return;
    if (!call->is_open || w->now_us - call->begun_us > CALL_US)
        begin_call(w, c);
    send_features(
        w, (struct message){
               .kind = CALL_FEATURES, .from = NODES_MAX + c, .to = call->node, .number = call->number});
}

void features_client_receive(struct world *w, uint32_t c, const struct message *m)
{
    struct feature_call *call = &w->feature_calls[c];
    if (m->kind == FEATURES_TICK) {
        client_tick(w, c);
    } else if (call->is_open && m->number == call->number) {
        call->is_open = false;
        if (call->names[0] != NEWER || call->kind != PS_CATALOG_CREATE || m->status == MR_OK ||
            call->done + 1 < CALLS)
            call->done++;
        call->next_us = w->now_us + sim_below(&w->features_rng, PAUSE_US);
    }
}
