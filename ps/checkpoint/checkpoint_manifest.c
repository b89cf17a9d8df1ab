#include "ps/checkpoint/checkpoint_manifest.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "ps/checkpoint/manifest_json.h"

#define FORMAT_NAME  "millrace-checkpoint"
#define START_DIGITS 16u

/* Fields of a feature by type, for both printing and parsing. X(field) */
#define U32_FIELDS(X) X(kind) X(dtype) X(initializer) X(optimizer) X(pooling) X(admission) X(eviction)
#define FLOAT_FIELDS(X)                                                                                      \
    X(init_a)                                                                                                \
    X(init_b) X(learning_rate) X(weight_decay) X(clip_value) X(clip_norm) X(admission_arg) X(eviction_arg)
/* Written as decimal strings, because JSON readers limit numbers to 2^53 or 2^63. */
#define U64_FIELDS(X) X(seed) X(capacity_rows)
/* Fields that were added later: they are written when they are not 0, so that manifests without them stay
 * readable. */
#define LATER_U32_FIELDS(X) X(schedule) X(schedule_warmup_steps) X(schedule_steps) X(altered) X(range_values)

#define LATER_FLOAT_FIELDS(X) X(learning_rate_end)
#define LATER_U64_FIELDS(X)   X(memory_bytes) X(filter_bytes)

#define OPTIMIZER_ARGS (sizeof((struct mr_feature *)0)->optimizer_args / sizeof(float))

void ps_ancestry_begin(struct ps_ancestry *ancestry, const struct ps_ancestry *older, uint64_t id,
                       uint64_t from)
{
    struct ps_ancestry begun = {.count = 1, .starts[0] = {.id = id, .from = from}};
    for (uint32_t i = 0; older != NULL && i < older->count && begun.count < PS_STARTS_MAX; i++)
        begun.starts[begun.count++] = older->starts[i];
    *ancestry = begun;
}

/* ---- printing ---- */

static json_t *feature_json(const struct mr_feature *f, uint32_t id)
{
    json_t *dims = json_array(), *args = json_array();
    for (uint32_t i = 0; i < f->rank && i < MR_RANK_MAX; i++)
        json_array_append_new(dims, json_integer(f->dims[i]));
    for (size_t i = 0; i < OPTIMIZER_ARGS; i++)
        json_array_append_new(args, json_real((double)f->optimizer_args[i]));
    json_t *o = json_pack("{s:I, s:s%, s:o, s:o}", "id", (json_int_t)id, "name", f->name,
                          strnlen(f->name, sizeof(f->name)), "dims", dims, "optimizer_args", args);
    if (!o)
        return NULL;
    int bad = json_array_size(args) != OPTIMIZER_ARGS;
#define PRINT_U32(field)   bad |= json_object_set_new(o, #field, json_integer(f->field));
#define PRINT_FLOAT(field) bad |= json_object_set_new(o, #field, json_real((double)f->field));
#define PRINT_U64(field)   bad |= json_object_set_new(o, #field, json_sprintf("%" PRIu64, f->field));
    U32_FIELDS(PRINT_U32)
    FLOAT_FIELDS(PRINT_FLOAT)
    U64_FIELDS(PRINT_U64)
#define PRINT_LATER_U32(field)                                                                               \
    if (f->field != 0)                                                                                       \
    PRINT_U32(field)
#define PRINT_LATER_FLOAT(field)                                                                             \
    if (f->field != 0.0f || signbit(f->field))                                                               \
    PRINT_FLOAT(field)
#define PRINT_LATER_U64(field)                                                                               \
    if (f->field != 0)                                                                                       \
    PRINT_U64(field)
    LATER_U32_FIELDS(PRINT_LATER_U32)
    LATER_FLOAT_FIELDS(PRINT_LATER_FLOAT)
    LATER_U64_FIELDS(PRINT_LATER_U64)
    if (bad) {
        json_decref(o);
        return NULL;
    }
    return o;
}

static json_t *file_json(const struct ps_manifest_file *file, uint32_t core)
{
    char name[PS_FILE_NAME_BYTES];
    ps_file_name(core, name);
    return json_pack("{s:s, s:I, s:I, s:I, s:o}", "name", name, "blocks", (json_int_t)file->blocks,
                     "payload_bytes", (json_int_t)file->payload_bytes, "records", (json_int_t)file->records,
                     "hash", ps_json_hash(file->hash));
}

static int print_chain(json_t *root, const struct ps_manifest *m)
{
    int bad = json_object_set_new(root, "parent", json_integer((json_int_t)m->parent));
    bad |= json_object_set_new(root, "step", json_sprintf("%" PRIu64, m->step));
    bad |= json_object_set_new(root, "at_step", json_boolean(m->is_at_step));
    if (m->is_partial)
        bad |= json_object_set_new(root, "partial", json_true());
    if (m->parent != 0)
        bad |= json_object_set_new(root, "parent_hash", ps_json_hash(m->parent_hash));
    if (m->dropped_count > 0) {
        json_t *dropped = json_array();
        for (uint32_t i = 0; i < m->dropped_count; i++)
            bad |= json_array_append_new(dropped, json_integer(m->dropped[i]));
        bad |= json_object_set_new(root, "dropped", dropped);
    }
    return bad;
}

static int print_clock(json_t *root, const struct ps_manifest *m)
{
    return json_object_set_new(root, "clock_s", json_integer(m->clock_s));
}

static int print_ancestry(json_t *root, const struct ps_ancestry *a)
{
    json_t *starts = json_array();
    int bad = 0;
    for (uint32_t i = 0; i < a->count; i++)
        bad |= json_array_append_new(starts, json_pack("{s:o, s:I}", "start",
                                                       json_sprintf("%016" PRIx64, a->starts[i].id), "from",
                                                       (json_int_t)a->starts[i].from));
    return bad | json_object_set_new(root, "ancestry", starts);
}

static json_t *parameter_json(const struct ps_saved_parameter *p)
{
    json_t *dims = json_array();
    for (uint32_t i = 0; i < p->rank && i < MR_RANK_MAX; i++)
        json_array_append_new(dims, json_integer(p->dims[i]));
    json_t *o = json_pack("{s:s, s:o, s:o}", "name", p->name, "dims", dims, "step",
                          json_sprintf("%" PRIu64, p->step));
    if (o && p->optimizer[0] != '\0' &&
        (json_object_set_new(o, "optimizer", json_string(p->optimizer)) |
         json_object_set_new(o, "rule", json_integer(p->rule))) != 0) {
        json_decref(o);
        return NULL;
    }
    return o;
}

static int print_parameters(json_t *root, const struct ps_manifest *m)
{
    json_t *list = json_array();
    int bad = 0;
    for (uint32_t i = 0; i < m->parameter_count; i++)
        bad |= json_array_append_new(list, parameter_json(&m->parameters[i]));
    return bad | json_object_set_new(root, "parameters", list);
}

static char *checkpoint_manifest_print(const struct ps_manifest *m, struct ps_hash *hash)
{
    json_t *features = json_array(), *files = json_array();
    int bad = 0;
    for (uint32_t i = 0; i < m->feature_count; i++)
        bad |= json_array_append_new(features, feature_json(&m->features[i], m->feature_ids[i]));
    for (uint32_t i = 0; i < m->file_count; i++)
        bad |= json_array_append_new(files, file_json(&m->files[i], i));
    json_t *root = json_pack("{s:s, s:I, s:I, s:I, s:o, s:o}", "format", FORMAT_NAME, "version",
                             (json_int_t)m->version, "id", (json_int_t)m->id, "incarnation",
                             (json_int_t)m->incarnation, "features", features, "files", files);
    if (m->version > PS_FORMAT_VERSION_2)
        bad |= print_chain(root, m);
    if (m->version > PS_FORMAT_VERSION_3)
        bad |= print_clock(root, m) | (m->lacks_ancestry ? 0 : print_ancestry(root, &m->ancestry));
    if (m->version > PS_FORMAT_VERSION_4 && m->parameter_count > 0)
        bad |= print_parameters(root, m);
    if (m->version > PS_FORMAT_VERSION_6)
        bad |= ps_json_set_needs(root, m->needs, m->written_by);
    char *text = root && !bad ? ps_json_seal(root, hash) : NULL;
    json_decref(root);
    return text;
}

char *ps_manifest_print(const struct ps_manifest *m)
{
    struct ps_hash ignored;
    return checkpoint_manifest_print(m, &ignored);
}

char *ps_manifest_seal(struct ps_manifest *m)
{
    return checkpoint_manifest_print(m, &m->hash);
}

/* ---- parsing ---- */

static float parse_float_value(struct ps_json_parse *p, const json_t *v, const char *key)
{
    double d = json_number_value(v);
    float f = (float)d;
    if (json_is_number(v) && isfinite(f) && (double)f == d)
        return f;
    ps_json_refuse(p, "\"%s\" must be a number that a float holds exactly", key);
    return 0.0f;
}

/* Returns how many there are. */
static uint32_t parse_dims(struct ps_json_parse *p, const json_t *o, uint32_t dims[MR_RANK_MAX])
{
    const json_t *list = ps_json_array(p, o, "dims", 0, MR_RANK_MAX);
    for (uint32_t i = 0; i < json_array_size(list); i++) {
        const json_t *dim = json_array_get(list, i);
        json_int_t n = json_integer_value(dim);
        if (!json_is_integer(dim) || n < 0 || n > UINT32_MAX)
            ps_json_refuse(p, "\"dims\" must hold whole numbers below 2^32");
        else
            dims[i] = (uint32_t)n;
    }
    return (uint32_t)json_array_size(list);
}

static void parse_feature(struct ps_json_parse *p, const json_t *o, struct mr_feature *f, uint32_t *id)
{
    *id = (uint32_t)ps_json_integer(p, o, "id", 0, PS_FEATURE_ID_MAX);
    const char *name = ps_json_string(p, o, "name");
    if (strlen(name) >= sizeof(f->name)) {
        ps_json_refuse(p, "a feature's name is longer than %zu bytes", sizeof(f->name) - 1);
        return;
    }
    memcpy(f->name, name, strlen(name));
    const json_t *args = ps_json_array(p, o, "optimizer_args", OPTIMIZER_ARGS, OPTIMIZER_ARGS);
    f->rank = parse_dims(p, o, f->dims);
    for (size_t i = 0; i < json_array_size(args); i++)
        f->optimizer_args[i] = parse_float_value(p, json_array_get(args, i), "optimizer_args");
#define PARSE_U32(field)   f->field = (uint32_t)ps_json_integer(p, o, #field, 0, UINT32_MAX);
#define PARSE_FLOAT(field) f->field = parse_float_value(p, json_object_get(o, #field), #field);
#define PARSE_U64(field)   f->field = ps_json_u64(p, o, #field);
    U32_FIELDS(PARSE_U32)
    FLOAT_FIELDS(PARSE_FLOAT)
    U64_FIELDS(PARSE_U64)
#define PARSE_LATER_U32(field)                                                                               \
    if (json_object_get(o, #field))                                                                          \
    PARSE_U32(field)
#define PARSE_LATER_FLOAT(field)                                                                             \
    if (json_object_get(o, #field))                                                                          \
    PARSE_FLOAT(field)
#define PARSE_LATER_U64(field)                                                                               \
    if (json_object_get(o, #field))                                                                          \
    PARSE_U64(field)
    LATER_U32_FIELDS(PARSE_LATER_U32)
    LATER_FLOAT_FIELDS(PARSE_LATER_FLOAT)
    LATER_U64_FIELDS(PARSE_LATER_U64)
    const char *wrong = p->bad ? NULL : mr_feature_check(f);
    if (wrong) {
        char text[MR_FEATURE_TEXT_BYTES];
        mr_feature_explain(f, wrong, text, sizeof(text));
        ps_json_refuse(p, "feature \"%.*s\": %s", MR_NAME_BYTES, f->name, text);
    }
}

static void parse_features(struct ps_json_parse *p, const json_t *root, struct ps_manifest *m)
{
    const json_t *list = ps_json_array(p, root, "features", 0, MR_FEATURE_MAX);
    const size_t count = json_array_size(list);
    m->features = calloc(count + 1, sizeof(*m->features));
    m->feature_ids = calloc(count + 1, sizeof(*m->feature_ids));
    if (!m->features || !m->feature_ids) {
        ps_json_refuse(p, "no memory for its features");
        return;
    }
    for (size_t i = 0; i < count && !p->bad; i++) {
        parse_feature(p, json_array_get(list, i), &m->features[i], &m->feature_ids[i]);
        for (size_t j = 0; j < i; j++)
            if (m->feature_ids[i] == m->feature_ids[j] ||
                strcmp(m->features[i].name, m->features[j].name) == 0)
                ps_json_refuse(p, "feature \"%s\" is named twice", m->features[i].name);
    }
    m->feature_count = (uint32_t)count;
}

/* A name of a parameter or an optimizer: the same as those of features. */
static void parse_name(struct ps_json_parse *p, const json_t *o, const char *key, char out[MR_NAME_BYTES])
{
    const uint32_t one = 1;
    const char *name = ps_json_string(p, o, key);
    const struct mr_feature f = mr_feature_variable(name, 1, &one);
    if (strlen(name) >= MR_NAME_BYTES || mr_feature_check(&f))
        ps_json_refuse(p, "\"%s\" of a parameter must be 1 to %d of the characters A-Z a-z 0-9 _ . / : -",
                       key, MR_NAME_BYTES - 1);
    else
        (void)snprintf(out, MR_NAME_BYTES, "%s", name);
}

static void parse_parameter(struct ps_json_parse *p, const json_t *o, struct ps_saved_parameter *out)
{
    parse_name(p, o, "name", out->name);
    out->rank = parse_dims(p, o, out->dims);
    out->step = ps_json_u64(p, o, "step");
    if (json_object_get(o, "optimizer")) {
        parse_name(p, o, "optimizer", out->optimizer);
        out->rule = (uint32_t)ps_json_integer(p, o, "rule", 1, MR_OPT_LAST);
    }
    uint64_t floats = 1;
    for (uint32_t i = 0; i < out->rank; i++)
        floats = floats > PS_PARAMETER_FLOATS_MAX ? floats : floats * out->dims[i];
    if (floats > PS_PARAMETER_FLOATS_MAX)
        ps_json_refuse(p, "parameter \"%s\" is too large", out->name);
}

/* Names rise, so none comes twice; a state follows the values of its parameter. */
static bool is_in_order(const struct ps_saved_parameter *before, const struct ps_saved_parameter *p)
{
    const bool is_state = p->optimizer[0] != '\0';
    if (!before)
        return !is_state;
    const int names = strcmp(before->name, p->name);
    return is_state ? names == 0 && strcmp(before->optimizer, p->optimizer) < 0 : names < 0;
}

static void parse_parameters(struct ps_json_parse *p, const json_t *root, struct ps_manifest *m)
{
    if (!json_object_get(root, "parameters"))
        return;
    const json_t *list = ps_json_array(p, root, "parameters", 1, PS_PARAMETERS_MAX);
    const size_t count = json_array_size(list);
    m->parameters = calloc(count + 1, sizeof(*m->parameters));
    if (!m->parameters) {
        ps_json_refuse(p, "no memory for its parameters");
        return;
    }
    m->parameter_count = (uint32_t)count;
    for (size_t i = 0; i < count && !p->bad; i++) {
        parse_parameter(p, json_array_get(list, i), &m->parameters[i]);
        if (!is_in_order(i == 0 ? NULL : &m->parameters[i - 1], &m->parameters[i]))
            ps_json_refuse(p, "parameter \"%s\" is not in its place in the list", m->parameters[i].name);
    }
}

static void parse_files(struct ps_json_parse *p, const json_t *root, struct ps_manifest *m)
{
    const json_t *list = ps_json_array(p, root, "files", 1, MR_CORE_MAX);
    m->file_count = (uint32_t)json_array_size(list);
    for (uint32_t i = 0; i < m->file_count; i++) {
        const json_t *o = json_array_get(list, i);
        char name[PS_FILE_NAME_BYTES];
        ps_file_name(i, name);
        if (strcmp(ps_json_string(p, o, "name"), name) != 0)
            ps_json_refuse(p, "file %" PRIu32 " must be named \"%s\"", i, name);
        struct ps_manifest_file *file = &m->files[i];
        file->blocks = (uint32_t)ps_json_integer(p, o, "blocks", 0, PS_BLOCKS_MAX);
        file->payload_bytes =
            ps_json_integer(p, o, "payload_bytes", 0, (uint64_t)file->blocks * PS_PAYLOAD_BYTES);
        file->records = ps_json_integer(p, o, "records", 0, file->payload_bytes / sizeof(struct ps_record));
        file->hash = ps_json_get_hash(p, o, "hash");
    }
}

static void parse_dropped(struct ps_json_parse *p, const json_t *root, struct ps_manifest *m)
{
    const json_t *list = ps_json_array(p, root, "dropped", 1, MR_FEATURE_MAX);
    const size_t count = json_array_size(list);
    m->dropped = calloc(count + 1, sizeof(*m->dropped));
    if (!m->dropped) {
        ps_json_refuse(p, "no memory for what was dropped");
        return;
    }
    for (size_t i = 0; i < count && !p->bad; i++) {
        const json_t *id = json_array_get(list, i);
        const json_int_t n = json_integer_value(id);
        const bool is_good = json_is_integer(id) && n >= 0 && n <= (json_int_t)PS_FEATURE_ID_MAX;
        m->dropped[i] = is_good ? (uint32_t)n : 0;
        if (!is_good || ps_manifest_feature_kind(m, m->dropped[i]) != 0)
            ps_json_refuse(p, "\"dropped\" must hold numbers that \"features\" does not have");
    }
    m->dropped_count = (uint32_t)count;
}

static void parse_chain(struct ps_json_parse *p, const json_t *root, struct ps_manifest *m)
{
    m->parent = ps_json_integer(p, root, "parent", 0, m->id - 1);
    m->step = ps_json_u64(p, root, "step");
    const json_t *at_step = json_object_get(root, "at_step");
    if (!json_is_boolean(at_step))
        ps_json_refuse(p, "\"at_step\" must be true or false");
    m->is_at_step = json_is_true(at_step);
    m->is_partial = json_is_true(json_object_get(root, "partial"));
    if (m->is_partial && m->parent != 0)
        ps_json_refuse(p, "\"partial\" and a parent exclude each other");
    if (m->parent != 0)
        m->parent_hash = ps_json_get_hash(p, root, "parent_hash");
    if (m->parent != 0 && json_object_get(root, "dropped"))
        parse_dropped(p, root, m);
}

static void parse_ancestry(struct ps_json_parse *p, const json_t *root, struct ps_ancestry *a)
{
    const json_t *starts = ps_json_array(p, root, "ancestry", 0, PS_STARTS_MAX);
    a->count = (uint32_t)json_array_size(starts);
    for (uint32_t i = 0; i < a->count; i++) {
        const json_t *o = json_array_get(starts, i);
        const char *id = ps_json_string(p, o, "start");
        if (strlen(id) != START_DIGITS || strspn(id, "0123456789abcdef") != START_DIGITS)
            ps_json_refuse(p, "\"start\" must be %u lower-case hexadecimal digits", START_DIGITS);
        a->starts[i].id = strtoull(id, NULL, 16);
        a->starts[i].from = ps_json_integer(p, o, "from", 0, (uint64_t)PS_CHECKPOINT_ID_MAX);
    }
}

/* Returns the format version that a text names, in the fields that all versions share; 0: it is no
 * manifest. */
static uint32_t version_of(const char *json, size_t json_bytes)
{
    char ignored[PS_TEXT_BYTES];
    struct ps_json_parse p = {.text = ignored};
    json_t *root = json_loadb(json, json_bytes, JSON_REJECT_DUPLICATES, NULL);
    bool is_manifest = strcmp(ps_json_string(&p, root, "format"), FORMAT_NAME) == 0;
    uint32_t version = (uint32_t)ps_json_integer(&p, root, "version", PS_FORMAT_VERSION_1, UINT32_MAX);
    json_decref(root);
    return is_manifest && !p.bad ? version : 0;
}

bool ps_manifest_parse(const char *json, size_t json_bytes, struct ps_manifest *out, char *text)
{
    struct ps_json_parse p = {0};
    p.text = text;
    json_error_t error;
    json_t *root = json_loadb(json, json_bytes, JSON_REJECT_DUPLICATES, &error);
    struct ps_manifest m = {0};
    if (!root) {
        ps_json_refuse(&p, "line %d: %s", error.line, error.text);
        return false;
    }
    if (strcmp(ps_json_string(&p, root, "format"), FORMAT_NAME) != 0)
        ps_json_refuse(&p, "\"format\" must be \"%s\"", FORMAT_NAME);
    m.version = (uint32_t)ps_json_integer(&p, root, "version", PS_FORMAT_VERSION_1, PS_FORMAT_VERSION);
    m.hash = ps_json_own_hash(&p, root);
    if (!p.bad && m.version > PS_FORMAT_VERSION_6)
        m.needs = ps_json_get_needs(&p, root, m.written_by);
    if (!p.bad) {
        m.id = ps_json_integer(&p, root, "id", 1, (uint64_t)PS_CHECKPOINT_ID_MAX);
        m.incarnation = (uint32_t)ps_json_integer(&p, root, "incarnation", 0, UINT32_MAX);
        parse_files(&p, root, &m);
        parse_features(&p, root, &m);
        if (m.version > PS_FORMAT_VERSION_2)
            parse_chain(&p, root, &m);
        if (m.version > PS_FORMAT_VERSION_3) {
            m.clock_s = (uint32_t)ps_json_integer(&p, root, "clock_s", 0, UINT32_MAX);
            m.lacks_ancestry = m.version == PS_FORMAT_VERSION_4 && !json_object_get(root, "ancestry");
            if (!m.lacks_ancestry)
                parse_ancestry(&p, root, &m.ancestry);
        }
        if (m.version > PS_FORMAT_VERSION_4)
            parse_parameters(&p, root, &m);
    }
    json_decref(root);
    ps_json_same(&p, p.bad ? NULL : ps_manifest_print(&m), json, json_bytes);
    if (p.bad)
        ps_manifest_clear(&m);
    else
        *out = m;
    return !p.bad;
}

/* ---- the MANIFEST of a published checkpoint ---- */

/* Explains why a text does not parse: it is of a later version, or damaged. A text that is as it was written
 * is not damaged. */
static enum mr_status refuse_text(const char *json, uint64_t bytes, const char *path, const char *why,
                                  char *text)
{
    const uint32_t version = version_of(json, bytes);
    if (version <= PS_FORMAT_VERSION)
        return version != 0 && ps_json_is_sealed(json, bytes) ? ps_json_unknown(path, why, text)
                                                              : ps_checkpoint_corrupt(text, path, why);
    char newer[PS_TEXT_BYTES];
    (void)snprintf(
        newer, sizeof(newer),
        "it is of format %" PRIu32
        ", this version (%s) reads up to %u: use the version that wrote it, or name an older checkpoint",
        version, mr_version_text(), PS_FORMAT_VERSION);
    ps_text_path(text, path, newer);
    return MR_CHECKPOINT_NEWER;
}

static enum mr_status parse_file(const struct ps_store *store, struct ps_store_file *file, uint64_t bytes,
                                 const char *path, uint64_t id, struct ps_manifest *out, char *text)
{
    if (bytes == 0 || bytes > PS_MANIFEST_BYTES_MAX)
        return ps_checkpoint_corrupt(text, path,
                                     bytes == 0 ? "it is empty" : "it is too long for a manifest");
    char *json = malloc(bytes);
    struct ps_manifest m = {0};
    int error = json ? ps_store_read_all(store, file, json, bytes, 0) : -ENOMEM;
    enum mr_status status = error == 0 ? MR_OK : ps_checkpoint_fail(text, "read", path, error);
    char why[PS_TEXT_BYTES];
    if (status == MR_OK && !ps_manifest_parse(json, bytes, &m, why))
        status = refuse_text(json, bytes, path, why, text);
    if (status == MR_OK && m.id != id) {
        status = ps_checkpoint_corrupt(text, path, "it belongs to another checkpoint");
        ps_manifest_clear(&m);
    }
    free(json);
    if (status == MR_OK)
        *out = m;
    return status;
}

enum mr_status ps_manifest_read(const struct ps_store *store, const char *directory, uint64_t id,
                                struct ps_manifest *out, char *text)
{
    char base[PS_PATH_BYTES], path[PS_PATH_BYTES];
    if (!ps_path_published(directory, id, base) || !ps_path_join(base, PS_MANIFEST_NAME, path))
        return ps_checkpoint_fail(text, "open", directory, -ENAMETOOLONG);
    if (ps_store_look(store, base) == -ENOENT) {
        ps_text_path(text, base,
                     "there is no such checkpoint; millrace ckpt list shows those of its directory");
        return MR_CHECKPOINT_NOT_FOUND;
    }
    struct ps_store_file *file = NULL;
    uint64_t bytes = 0;
    int error = store->open(store->self, path, &file, &bytes);
    if (error != 0)
        return ps_checkpoint_fail(text, "open", path, error);
    enum mr_status status = parse_file(store, file, bytes, path, id, out, text);
    (void)store->close(file);
    return status;
}

/* ---- what a manifest says about its blocks ---- */

void ps_manifest_clear(struct ps_manifest *m)
{
    free(m->features);
    free(m->feature_ids);
    free(m->parameters);
    free(m->dropped);
    *m = (struct ps_manifest){0};
}

uint64_t ps_manifest_bytes(const struct ps_manifest *m)
{
    uint64_t bytes = 0;
    for (uint32_t core = 0; core < m->file_count; core++)
        bytes += m->files[core].payload_bytes;
    return bytes;
}

uint64_t ps_manifest_block_bytes(const struct ps_manifest *m)
{
    uint64_t bytes = 0;
    for (uint32_t core = 0; core < m->file_count; core++)
        bytes += (uint64_t)m->files[core].blocks * PS_BLOCK_BYTES;
    return bytes;
}

const struct mr_feature *ps_manifest_feature(const struct ps_manifest *m, uint32_t feature_id)
{
    for (uint32_t i = 0; i < m->feature_count; i++)
        if (m->feature_ids[i] == feature_id)
            return &m->features[i];
    return NULL;
}

uint32_t ps_manifest_feature_kind(const struct ps_manifest *m, uint32_t feature_id)
{
    const struct mr_feature *f = ps_manifest_feature(m, feature_id);
    return f ? f->kind : 0;
}

bool ps_manifest_note_dropped(struct ps_manifest *delta, const struct ps_manifest *parent)
{
    free(delta->dropped);
    delta->dropped_count = 0;
    delta->dropped = calloc(parent->feature_count + 1u, sizeof(*delta->dropped));
    for (uint32_t i = 0; delta->dropped && i < parent->feature_count; i++)
        if (!ps_manifest_feature(delta, parent->feature_ids[i]))
            delta->dropped[delta->dropped_count++] = parent->feature_ids[i];
    return delta->dropped != NULL;
}

static bool is_dropped(const struct ps_manifest *m, uint32_t feature_id)
{
    uint32_t i = 0;
    while (i < m->dropped_count && m->dropped[i] != feature_id)
        i++;
    return i < m->dropped_count;
}

bool ps_manifest_follows(const struct ps_manifest *parent, const struct ps_manifest *delta, char *wrong)
{
    for (uint32_t i = 0; i < parent->feature_count; i++) {
        const struct mr_feature *was = &parent->features[i];
        const struct mr_feature *is = ps_manifest_feature(delta, parent->feature_ids[i]);
        struct mr_feature altered = *was;
        const char *field = is ? mr_feature_alter(&altered, was, is) : NULL;
        if (is ? !field : is_dropped(delta, parent->feature_ids[i]))
            continue;
        if (field)
            (void)snprintf(wrong, PS_TEXT_BYTES, "where %.40s has another %.40s", was->name, field);
        else
            (void)snprintf(wrong, PS_TEXT_BYTES, "where it lacks %.63s", was->name);
        return false;
    }
    return true;
}

uint64_t ps_saved_parameter_bytes(const struct ps_saved_parameter *p)
{
    uint64_t bytes = sizeof(float);
    for (uint32_t i = 0; i < p->rank; i++)
        bytes *= p->dims[i];
    return bytes;
}

static const char *parameter_check(const struct ps_manifest *manifest, const struct ps_record *record)
{
    if (record->feature >= manifest->parameter_count)
        return "it holds a parameter that the manifest does not name";
    const uint64_t bytes = ps_saved_parameter_bytes(&manifest->parameters[record->feature]);
    return record->offset > bytes || record->bytes > bytes - record->offset
               ? "it holds a part beyond the end of a parameter"
               : NULL;
}

static const char *record_check(const struct ps_manifest *manifest, const struct ps_record *record)
{
    if (record->kind == PS_RECORD_PARAMETER)
        return parameter_check(manifest, record);
    const uint32_t wanted = ps_record_feature_kind(record->kind);
    if (record->kind == PS_RECORD_GONE && manifest->parent == 0)
        return "it holds keys that are gone, but the manifest names no parent";
    if (wanted == 0 || ps_manifest_feature_kind(manifest, record->feature) == wanted)
        return NULL;
    return wanted == MR_TABLE ? "it holds a part of a table that the manifest does not name"
                              : "it holds a variable that the manifest does not name";
}

const char *ps_manifest_block_check(const struct ps_manifest *manifest, const uint8_t *block)
{
    const struct ps_block_header *header = (const struct ps_block_header *)(const void *)block;
    const uint8_t *at = block + sizeof(*header);
    for (uint32_t i = 0; i < header->record_count; i++) {
        const struct ps_record *record = (const struct ps_record *)(const void *)at;
        const char *wrong = record_check(manifest, record);
        if (wrong)
            return wrong;
        at += ps_record_space(record->bytes);
    }
    return NULL;
}
