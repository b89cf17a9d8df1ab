#include "ps/cluster/catalog.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

void ps_cluster_catalog_copy(struct ps_cluster_catalog *to, const struct ps_cluster_catalog *from)
{
    memcpy(to, from, offsetof(struct ps_cluster_catalog, features) + from->count * sizeof(from->features[0]));
    to->taken_back_count = from->taken_back_count;
    memcpy(to->taken_back, from->taken_back, sizeof(to->taken_back));
}

uint32_t ps_cluster_catalog_find(const struct ps_cluster_catalog *c, const char *name)
{
    uint32_t i = 0;
    while (i < c->count && strncmp(c->features[i].feature.name, name, MR_NAME_BYTES) != 0)
        i++;
    return i;
}

uint32_t ps_cluster_catalog_find_id(const struct ps_cluster_catalog *c, uint32_t id)
{
    uint32_t i = 0;
    while (i < c->count && c->features[i].id != id)
        i++;
    return i;
}

static void begin_next(const struct ps_cluster_catalog *c, struct ps_cluster_catalog *next)
{
    ps_cluster_catalog_copy(next, c);
    next->version++;
}

static void remove_at(struct ps_cluster_catalog *c, uint32_t at)
{
    c->count--;
    memmove(&c->features[at], &c->features[at + 1], (c->count - at) * sizeof(c->features[0]));
}

__attribute__((format(printf, 4, 5))) static enum ps_catalog_request_state
refuse(enum mr_status *status, char *text, enum mr_status why, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text, PS_RULES_TEXT_BYTES, format, arguments);
    va_end(arguments);
    *status = why;
    return PS_CATALOG_FAILED;
}

/* ---- Create ---- */

static const struct ps_cluster_taken_back *find_taken_back(const struct ps_cluster_catalog *c, uint64_t since)
{
    for (uint32_t i = 0; i < c->taken_back_count && since != 0; i++)
        if (c->taken_back[i].since == since)
            return &c->taken_back[i];
    return NULL;
}

static bool check_all(const struct ps_cluster_catalog *c, const struct ps_catalog_request *request,
                      enum mr_status *status, char *text)
{
    for (uint32_t i = 0; i < request->feature_count; i++) {
        const uint32_t at = ps_cluster_catalog_find(c, request->features[i].name);
        *status =
            ps_rules_create(request->features, i, at < c->count ? &c->features[at].feature : NULL, text);
        if (*status != MR_OK)
            return false;
    }
    return true;
}

/* The numbers of those that are there; how many are missing, each name once, and whether all others are
 * final. */
static uint32_t find_all(const struct ps_cluster_catalog *c, struct ps_catalog_request *request,
                         bool *are_final)
{
    uint32_t missing = 0;
    *are_final = true;
    request->final_since = 0;
    for (uint32_t i = 0; i < request->feature_count; i++) {
        const uint32_t at = ps_cluster_catalog_find(c, request->features[i].name);
        bool is_new = at == c->count;
        request->ids[i] = is_new ? 0 : c->features[at].id;
        *are_final = *are_final && (is_new || c->features[at].is_final);
        if (!is_new && c->features[at].since > request->final_since)
            request->final_since = c->features[at].since;
        for (uint32_t j = 0; j < i && is_new; j++)
            is_new = strncmp(request->features[j].name, request->features[i].name, MR_NAME_BYTES) != 0;
        missing += is_new;
    }
    return missing;
}

static void add_missing(const struct ps_catalog_request *request, struct ps_cluster_catalog *next)
{
    for (uint32_t i = 0; i < request->feature_count; i++) {
        const uint32_t at = ps_cluster_catalog_find(next, request->features[i].name);
        if (at == next->count)
            next->features[next->count++] = (struct ps_cluster_feature){
                .id = ++next->last_feature, .since = next->version, .feature = request->features[i]};
        request->ids[i] = next->features[at].id;
    }
}

static enum ps_catalog_request_state catalog_create(const struct ps_cluster_catalog *c,
                                                    struct ps_catalog_request *request,
                                                    struct ps_cluster_catalog *next, enum mr_status *status,
                                                    char *text)
{
    const struct ps_cluster_taken_back *taken_back = find_taken_back(c, request->written_as);
    bool are_final;
    if (taken_back != NULL)
        return refuse(status, text, taken_back->status, "%.*s; no feature was created",
                      (int)sizeof(taken_back->text) - 1, taken_back->text);
    if (!check_all(c, request, status, text))
        return PS_CATALOG_FAILED;
    const uint32_t missing = find_all(c, request, &are_final);
    if (!are_final)
        return PS_CATALOG_WAITS; /* what is tried now may be taken back */
    if (missing == 0)
        return PS_CATALOG_MADE;
    if (request->features_max != 0 && c->count + missing > request->features_max)
        return refuse(status, text, MR_UNAUTHORIZED, PS_RULES_TRAINER_TABLES, request->features_max,
                      c->count);
    if (c->count + missing > PS_CLUSTER_FEATURES_MAX)
        return refuse(status, text, MR_INVALID_ARGUMENT,
                      "a cluster has at most %u features, and has %u: drop some, or run another cluster",
                      PS_CLUSTER_FEATURES_MAX, c->count);
    if (c->last_feature + missing > MR_FEATURE_ID_MAX)
        return refuse(
            status, text, MR_INVALID_ARGUMENT,
            "a cluster gives each number once, and of %u it has given %u: restore by name into a node by "
            "itself what is to go on, and let another cluster begin with its checkpoint (cluster.init_from)",
            MR_FEATURE_ID_MAX, c->last_feature);
    begin_next(c, next);
    add_missing(request, next);
    request->written_as = next->version;
    return PS_CATALOG_WRITES;
}

/* ---- Begin ---- */

/* What is there may have been altered, or dropped, since the cluster began with it. */
static bool has_begun(const struct ps_cluster_catalog *c, const struct ps_catalog_request *request)
{
    for (uint32_t i = 0; i < request->feature_count; i++) {
        const uint32_t at = ps_cluster_catalog_find_id(c, request->ids[i]);
        if (request->ids[i] > c->last_feature ||
            (at < c->count &&
             strncmp(c->features[at].feature.name, request->features[i].name, MR_NAME_BYTES) != 0))
            return false;
    }
    return true;
}

/* In the order of their numbers. Final from the beginning: a node that cannot have them serves nothing. */
static void add_as_numbered(struct ps_cluster_catalog *next, uint32_t id, const struct mr_feature *feature)
{
    uint32_t at = next->count++;
    for (; at > 0 && next->features[at - 1].id > id; at--)
        next->features[at] = next->features[at - 1];
    next->features[at] =
        (struct ps_cluster_feature){.id = id, .is_final = true, .since = next->version, .feature = *feature};
    if (id > next->last_feature)
        next->last_feature = id;
}

static enum ps_catalog_request_state catalog_begin(const struct ps_cluster_catalog *c,
                                                   const struct ps_catalog_request *request,
                                                   struct ps_cluster_catalog *next, enum mr_status *status,
                                                   char *text)
{
    if (has_begun(c, request))
        return PS_CATALOG_MADE;
    if (c->last_feature > 0)
        return refuse(status, text, MR_FEATURE_MISMATCH,
                      "the cluster has begun with other features: %u were created", c->last_feature);
    if (request->feature_count > PS_CLUSTER_FEATURES_MAX)
        return refuse(status, text, MR_INVALID_ARGUMENT,
                      "a cluster has at most %u features, and the checkpoint has %u", PS_CLUSTER_FEATURES_MAX,
                      request->feature_count);
    begin_next(c, next);
    for (uint32_t i = 0; i < request->feature_count; i++)
        add_as_numbered(next, request->ids[i], &request->features[i]);
    return PS_CATALOG_WRITES;
}

/* ---- Drop ---- */

static void add_id(struct ps_catalog_request *request, uint32_t id)
{
    uint32_t at = request->id_count;
    for (uint32_t i = 0; i < request->id_count; i++)
        if (request->ids[i] == id)
            return;
    for (; at > 0 && request->ids[at - 1] > id; at--)
        request->ids[at] = request->ids[at - 1];
    request->ids[at] = id;
    request->id_count++;
}

/* Names mean what they meant at first, whatever gets the same name later. */
static enum ps_catalog_request_state find_dropped(const struct ps_cluster_catalog *c,
                                                  struct ps_catalog_request *request, enum mr_status *status,
                                                  char *text)
{
    request->id_count = 0;
    for (uint32_t i = 0; i < request->name_count; i++) {
        const char *name = request->names + (size_t)i * MR_NAME_BYTES;
        const uint32_t at = ps_cluster_catalog_find(c, name);
        if (at == c->count)
            return refuse(status, text, MR_UNKNOWN_TABLE,
                          "there is no table or variable named %.63s; millrace ctl list shows them", name);
        if (!c->features[at].is_final)
            return PS_CATALOG_WAITS;
        add_id(request, c->features[at].id);
    }
    return PS_CATALOG_WRITES;
}

static enum ps_catalog_request_state catalog_drop(const struct ps_cluster_catalog *c,
                                                  struct ps_catalog_request *request,
                                                  struct ps_cluster_catalog *next, enum mr_status *status,
                                                  char *text)
{
    if (!request->was_written) {
        const enum ps_catalog_request_state state = find_dropped(c, request, status, text);
        if (state != PS_CATALOG_WRITES) {
            request->id_count = 0;
            return state;
        }
    }
    begin_next(c, next);
    for (uint32_t i = 0; i < request->id_count; i++) {
        const uint32_t at = ps_cluster_catalog_find_id(next, request->ids[i]);
        if (at < next->count)
            remove_at(next, at);
    }
    if (next->count == c->count)
        return PS_CATALOG_MADE;
    request->was_written = true;
    return PS_CATALOG_WRITES;
}

/* ---- Alter and Freeze ---- */

static enum ps_catalog_request_state alter(const struct ps_cluster_catalog *c,
                                           struct ps_catalog_request *request,
                                           struct ps_cluster_catalog *next, enum mr_status *status,
                                           char *text)
{
    const struct mr_feature *before = &request->features[0];
    const uint32_t at = ps_cluster_catalog_find(c, before->name);
    if (at == c->count)
        return refuse(status, text, MR_UNKNOWN_TABLE,
                      "there is no table or variable named %.63s; millrace ctl list shows what there is",
                      before->name);
    if (!c->features[at].is_final)
        return PS_CATALOG_WAITS;
    const struct mr_feature *is = &c->features[at].feature;
    *status = ps_rules_alter(is, before, &request->features[1], request->may_alter, &request->is, text);
    if (*status != MR_OK)
        return PS_CATALOG_FAILED;
    if (mr_feature_diff(is, &request->is) == NULL) /* the call came again */
        return PS_CATALOG_MADE;
    begin_next(c, next);
    next->features[at].feature = request->is;
    return PS_CATALOG_WRITES;
}

static enum ps_catalog_request_state freeze(const struct ps_cluster_catalog *c,
                                            const struct ps_catalog_request *request,
                                            struct ps_cluster_catalog *next)
{
    if (c->freeze == request->freeze)
        return PS_CATALOG_MADE;
    begin_next(c, next);
    next->freeze = request->freeze;
    return PS_CATALOG_WRITES;
}

enum ps_catalog_request_state ps_cluster_catalog_try(const struct ps_cluster_catalog *c,
                                                     struct ps_catalog_request *request,
                                                     struct ps_cluster_catalog *next, enum mr_status *status,
                                                     char *text)
{
    *status = MR_OK;
    text[0] = '\0';
    switch (request->kind) {
    case PS_CATALOG_CREATE:
        return catalog_create(c, request, next, status, text);
    case PS_CATALOG_DROP:
        return catalog_drop(c, request, next, status, text);
    case PS_CATALOG_ALTER:
        return alter(c, request, next, status, text);
    case PS_CATALOG_BEGIN:
        return catalog_begin(c, request, next, status, text);
    case PS_CATALOG_FREEZE:
    default:
        return freeze(c, request, next);
    }
}

/* ---- what is not final ---- */

bool ps_cluster_catalog_is_open(const struct ps_cluster_catalog *c)
{
    for (uint32_t i = 0; i < c->count; i++)
        if (!c->features[i].is_final)
            return true;
    return false;
}

bool ps_cluster_catalog_is_everywhere(uint64_t version, const struct ps_cluster_report *reports,
                                      uint32_t count)
{
    bool is_anywhere = false;
    for (uint32_t i = 0; i < count; i++) {
        if (reports[i].features.has_catalog && reports[i].features.catalog < version)
            return false;
        is_anywhere = is_anywhere || reports[i].features.has_catalog;
    }
    return is_anywhere;
}

static const struct ps_cluster_features_report *
find_failed(uint64_t since, const struct ps_cluster_report *reports, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (reports[i].features.failed == since)
            return &reports[i].features;
    return NULL;
}

static void note_taken_back(struct ps_cluster_catalog *c, uint64_t since,
                            const struct ps_cluster_features_report *failed)
{
    if (c->taken_back_count == PS_CLUSTER_TAKEN_BACK_MAX)
        memmove(&c->taken_back[0], &c->taken_back[1], --c->taken_back_count * sizeof(c->taken_back[0]));
    struct ps_cluster_taken_back *t = &c->taken_back[c->taken_back_count++];
    *t = (struct ps_cluster_taken_back){.since = since, .status = failed->failed_status};
    memcpy(t->text, failed->failed_text, sizeof(t->text));
}

bool ps_cluster_catalog_settle(const struct ps_cluster_catalog *c, const struct ps_cluster_report *reports,
                               uint32_t count, struct ps_cluster_catalog *next)
{
    bool is_changed = false;
    uint64_t noted = 0; /* features of one Create stand side by side */
    if (!ps_cluster_catalog_is_open(c))
        return false;
    begin_next(c, next);
    for (uint32_t i = next->count; i-- > 0;) {
        const uint64_t since = next->features[i].since;
        if (next->features[i].is_final)
            continue;
        const struct ps_cluster_features_report *failed = find_failed(since, reports, count);
        if (failed != NULL) {
            if (noted != since)
                note_taken_back(next, since, failed);
            noted = since;
            remove_at(next, i);
            is_changed = true;
        } else if (ps_cluster_catalog_is_everywhere(since, reports, count)) {
            next->features[i].is_final = true;
            next->features[i].since = next->version;
            is_changed = true;
        }
    }
    return is_changed;
}
