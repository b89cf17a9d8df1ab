#include "ps/cluster/catalog_json.h"

#include <stdio.h>
#include <string.h>
#include "dataplane/wire/format/capability.h"
#include "dataplane/wire/format/op.h"
#include "ps/cluster/json_reader.h"

#define REST_BYTES (sizeof(struct mr_feature) - MR_NAME_BYTES) /* of a descriptor, after its name */
#define REST_CHARS (2 * REST_BYTES + 1)

/* ---- writing ---- */

static json_t *rest_json(const struct mr_feature *feature)
{
    char text[REST_CHARS];
    const uint8_t *rest = (const uint8_t *)feature + MR_NAME_BYTES;
    for (size_t i = 0; i < REST_BYTES; i++)
        (void)snprintf(text + 2 * i, 3, "%02x", rest[i]);
    return json_string(text);
}

static json_t *features_json(const struct ps_cluster_catalog *c)
{
    json_t *features = json_array();
    for (uint32_t i = 0; i < c->count; i++) {
        const struct ps_cluster_feature *f = &c->features[i];
        (void)json_array_append_new(features,
                                    json_pack("{s:I, s:s, s:I, s:b, s:o}", "id", (json_int_t)f->id, "name",
                                              f->feature.name, "since", (json_int_t)f->since, "final",
                                              f->is_final, "rest", rest_json(&f->feature)));
    }
    return features;
}

static json_t *taken_back_json(const struct ps_cluster_catalog *c)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < c->taken_back_count; i++)
        (void)json_array_append_new(
            list, json_pack("{s:I, s:I, s:s}", "since", (json_int_t)c->taken_back[i].since, "status",
                            (json_int_t)c->taken_back[i].status, "text", c->taken_back[i].text));
    return list;
}

/* A version that lacks what a feature needs would make it without that. */
static uint64_t needs_of(const struct ps_cluster_catalog *c)
{
    uint64_t needs = 0;
    for (uint32_t i = 0; i < c->count; i++)
        needs |= mr_feature_needs(&c->features[i].feature);
    return needs;
}

char *ps_cluster_catalog_json(const struct ps_cluster_catalog *c)
{
    json_t *features = features_json(c);
    if (json_array_size(features) != c->count) { /* no memory; what is missing would count as dropped */
        json_decref(features);
        return NULL;
    }
    return ps_json_print(json_pack("{s:i, s:I, s:I, s:I, s:o, s:o}", "format", ps_cluster_format(needs_of(c)),
                                   "version", (json_int_t)c->version, "last_feature",
                                   (json_int_t)c->last_feature, "freeze", (json_int_t)c->freeze, "features",
                                   features, "taken_back", taken_back_json(c)));
}

/* ---- reading ---- */

static int digit(char c)
{
    const char *const digits = "0123456789abcdef";
    const char *at = c != '\0' ? strchr(digits, c) : NULL;
    return at != NULL ? (int)(at - digits) : -1;
}

static void read_rest(struct ps_json_reader *r, const json_t *object, struct mr_feature *feature)
{
    char text[REST_CHARS] = "";
    uint8_t *rest = (uint8_t *)feature + MR_NAME_BYTES;
    ps_json_text(r, object, "rest", text, sizeof(text));
    if (strlen(text) != REST_CHARS - 1)
        ps_json_fault(r, "is no descriptor of this version", "rest");
    for (size_t i = 0; i < REST_BYTES && r->is_good; i++) {
        const int high = digit(text[2 * i]), low = digit(text[2 * i + 1]);
        if (high < 0 || low < 0)
            ps_json_fault(r, "is not hexadecimal", "rest");
        else
            rest[i] = (uint8_t)(high * 16 + low);
    }
}

static void read_feature(struct ps_json_reader *r, const json_t *object, struct ps_cluster_catalog *c)
{
    struct ps_cluster_feature *f = &c->features[c->count];
    const json_t *is_final = json_object_get(object, "final");
    *f = (struct ps_cluster_feature){.id = (uint32_t)ps_json_number(r, object, "id", c->last_feature),
                                     .since = ps_json_number(r, object, "since", c->version),
                                     .is_final = json_is_true(is_final)};
    ps_json_name(r, object, "name", f->feature.name);
    read_rest(r, object, &f->feature);
    if (!json_is_boolean(is_final))
        ps_json_fault(r, "is neither true nor false", "final");
    if (f->id == 0 || (c->count > 0 && f->id <= c->features[c->count - 1].id))
        ps_json_fault(r, "is not above the one before", "id");
    if (f->since == 0)
        ps_json_fault(r, "is no version", "since");
    if (r->is_good && mr_feature_check(&f->feature) != NULL)
        ps_json_fault(r, mr_feature_check(&f->feature), "is no feature of this version");
    if (r->is_good && ps_cluster_catalog_find(c, f->feature.name) < c->count)
        ps_json_fault(r, "is there twice", "name");
    c->count++;
}

static void read_taken_back(struct ps_json_reader *r, const json_t *object, struct ps_cluster_catalog *c)
{
    struct ps_cluster_taken_back *t = &c->taken_back[c->taken_back_count++];
    *t = (struct ps_cluster_taken_back){
        .since = ps_json_number(r, object, "since", c->version),
        .status = (enum mr_status)ps_json_number(r, object, "status", MR_STATUS_COUNT - 1)};
    ps_json_text(r, object, "text", t->text, sizeof(t->text));
}

static void read_catalog(struct ps_json_reader *r, const json_t *root, struct ps_cluster_catalog *c)
{
    c->count = c->taken_back_count = 0;
    c->version = ps_json_number(r, root, "version", INT64_MAX);
    c->last_feature = (uint32_t)ps_json_number(r, root, "last_feature", MR_FEATURE_ID_MAX);
    c->freeze = (uint32_t)ps_json_number(r, root, "freeze", MR_FREEZE_ALL);
    const json_t *features = ps_json_list(r, root, "features", PS_CLUSTER_FEATURES_MAX);
    const size_t count = json_array_size(features);
    for (size_t i = 0; i < count && r->is_good; i++)
        read_feature(r, json_array_get(features, i), c);
    const json_t *taken_back = ps_json_list(r, root, "taken_back", PS_CLUSTER_TAKEN_BACK_MAX);
    const size_t taken_back_count = json_array_size(taken_back);
    for (size_t i = 0; i < taken_back_count && r->is_good; i++)
        read_taken_back(r, json_array_get(taken_back, i), c);
}

bool ps_cluster_catalog_parse(const char *json, size_t bytes, struct ps_cluster_catalog *c,
                              char text[PS_CLUSTER_TEXT_BYTES])
{
    struct ps_json_reader r = {.is_good = true};
    json_t *root = ps_json_load(&r, json, bytes);
    if (r.is_good)
        read_catalog(&r, root, c);
    json_decref(root);
    memcpy(text, r.text, sizeof(r.text));
    return r.is_good;
}
