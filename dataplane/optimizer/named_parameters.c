#include "dataplane/optimizer/named_parameters.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "dataplane/wire/format/mr_feature.h"

struct mr_named_optimizer {
    char name[MR_NAME_BYTES];
    uint64_t steps;
};

/* A parameter's values, or a state beside them. */
struct named {
    char name[MR_NAME_BYTES];
    struct mr_named_optimizer *optimizer; /* NULL: the values */
    uint32_t rule;
    struct mr_versions *versions;
};

struct mr_named_parameters {
    pthread_mutex_t lock; /* of what is below */
    uint32_t count, room;
    struct named *named; /* in no order */
    uint32_t optimizer_count;
    struct mr_named_optimizer **optimizers; /* never fewer: steps of others may count them */
    _Atomic uint64_t changes;
};

struct mr_named_parameters *mr_named_create(void)
{
    struct mr_named_parameters *all = calloc(1, sizeof(*all));
    if (all != NULL)
        pthread_mutex_init(&all->lock, NULL);
    return all;
}

void mr_named_destroy(struct mr_named_parameters *all)
{
    if (all == NULL)
        return;
    for (uint32_t i = 0; i < all->count; i++)
        mr_versions_release(all->named[i].versions);
    for (uint32_t i = 0; i < all->optimizer_count; i++)
        free(all->optimizers[i]);
    free(all->optimizers);
    free(all->named);
    pthread_mutex_destroy(&all->lock);
    free(all);
}

bool mr_named_is_name(const char *name)
{
    const uint32_t one = 1;
    struct mr_feature f = mr_feature_variable(name, 1, &one);
    return mr_feature_check(&f) == NULL;
}

pthread_mutex_t *mr_named_lock(struct mr_named_parameters *all)
{
    return &all->lock;
}

uint64_t mr_named_changes(const struct mr_named_parameters *all)
{
    return atomic_load(&all->changes);
}

static void changed(struct mr_named_parameters *all)
{
    atomic_fetch_add(&all->changes, 1);
}

/* ---- names ---- */

static struct named *named_parameters_find(const struct mr_named_parameters *all, const char *name,
                                           const struct mr_named_optimizer *optimizer)
{
    for (uint32_t i = 0; i < all->count; i++)
        if (all->named[i].optimizer == optimizer && strcmp(all->named[i].name, name) == 0)
            return &all->named[i];
    return NULL;
}

static bool make_room(struct mr_named_parameters *all, uint32_t count)
{
    if (all->room - all->count >= count)
        return true;
    uint32_t room = all->room * 2 > all->count + count ? all->room * 2 : all->count + count;
    struct named *more = realloc(all->named, room * sizeof(*more));
    if (more == NULL)
        return false;
    all->named = more;
    all->room = room;
    return true;
}

/* There is room. Takes the versions. */
static void named_parameters_put(struct mr_named_parameters *all, const char *name,
                                 struct mr_named_optimizer *optimizer, uint32_t rule,
                                 struct mr_versions *versions)
{
    struct named *n = &all->named[all->count++];
    *n = (struct named){.optimizer = optimizer, .rule = rule, .versions = versions};
    snprintf(n->name, sizeof(n->name), "%s", name);
    changed(all);
}

static enum mr_status named_parameters_add(struct mr_named_parameters *all, const char *name,
                                           struct mr_named_optimizer *optimizer, uint32_t rule,
                                           const struct mr_tensor *initial, struct mr_versions **out,
                                           char *text)
{
    if (all->count == MR_NAMED_MAX) {
        snprintf(text, MR_NAMED_TEXT_BYTES, "a node has at most %u named parameters and states of them",
                 MR_NAMED_MAX);
        return MR_TOO_LARGE;
    }
    enum mr_status status = make_room(all, 1) ? mr_versions_create(initial, out) : MR_NO_MEMORY;
    if (status != MR_OK) {
        snprintf(text, MR_NAMED_TEXT_BYTES, "no memory for %llu bytes", (unsigned long long)initial->bytes);
        return status;
    }
    named_parameters_put(all, name, optimizer, rule, *out);
    return MR_OK;
}

/* ---- parameters ---- */

static bool same_shape(const struct mr_tensor *a, const struct mr_tensor *b)
{
    return a->dtype == b->dtype && a->rank == b->rank &&
           memcmp(a->dims, b->dims, a->rank * sizeof(a->dims[0])) == 0;
}

static void shape_text(const struct mr_tensor *t, char *out, size_t bytes)
{
    size_t at = 0;
    out[0] = '\0';
    for (uint32_t i = 0; i < t->rank && at < bytes; i++)
        at += (size_t)snprintf(out + at, bytes - at, "%s%u", i == 0 ? "" : ", ", t->dims[i]);
}

enum mr_status mr_named_open(struct mr_named_parameters *all, const char *name,
                             const struct mr_tensor *initial, struct mr_versions **out, char *text)
{
    const struct named *there = named_parameters_find(all, name, NULL);
    enum mr_status status = MR_OK;
    if (there == NULL) {
        status = named_parameters_add(all, name, NULL, 0, initial, out, text);
    } else if (!same_shape(mr_versions_shape(there->versions), initial)) {
        char has[80], wants[80];
        shape_text(mr_versions_shape(there->versions), has, sizeof(has));
        shape_text(initial, wants, sizeof(wants));
        snprintf(text, MR_NAMED_TEXT_BYTES,
                 "parameter %s is there already, with the shape [%s], not [%s]: use another name, or drop it",
                 name, has, wants);
        return MR_WRONG_SHAPE;
    } else {
        *out = there->versions;
    }
    if (status == MR_OK)
        mr_versions_retain(*out);
    return status;
}

bool mr_named_is_there(const struct mr_named_parameters *all, const char *name)
{
    return named_parameters_find(all, name, NULL) != NULL;
}

bool mr_named_drop(struct mr_named_parameters *all, const char *name)
{
    uint32_t kept = 0;
    if (!mr_named_is_there(all, name))
        return false;
    for (uint32_t i = 0; i < all->count; i++)
        if (strcmp(all->named[i].name, name) == 0)
            mr_versions_release(all->named[i].versions);
        else
            all->named[kept++] = all->named[i];
    all->count = kept;
    changed(all);
    return true;
}

/* ---- optimizers ---- */

struct mr_named_optimizer *mr_named_optimizer(struct mr_named_parameters *all, const char *name)
{
    for (uint32_t i = 0; i < all->optimizer_count; i++)
        if (strcmp(all->optimizers[i]->name, name) == 0)
            return all->optimizers[i];
    struct mr_named_optimizer **more =
        realloc(all->optimizers, (all->optimizer_count + 1) * sizeof(struct mr_named_optimizer *));
    if (more == NULL)
        return NULL;
    all->optimizers = more;
    struct mr_named_optimizer *o = calloc(1, sizeof(*o));
    if (o == NULL)
        return NULL;
    snprintf(o->name, sizeof(o->name), "%s", name);
    return all->optimizers[all->optimizer_count++] = o;
}

void mr_named_stepped(struct mr_named_parameters *all, struct mr_named_optimizer *optimizer)
{
    if (optimizer != NULL)
        optimizer->steps++;
    changed(all);
}

uint64_t mr_named_steps(const struct mr_named_optimizer *optimizer)
{
    return optimizer->steps;
}

static const char *name_of(const struct mr_named_parameters *all, const struct mr_versions *parameter)
{
    for (uint32_t i = 0; i < all->count; i++)
        if (all->named[i].optimizer == NULL && all->named[i].versions == parameter)
            return all->named[i].name;
    return NULL;
}

enum mr_status mr_named_state(struct mr_named_parameters *all, struct mr_named_optimizer *optimizer,
                              const struct mr_versions *parameter, uint32_t rule,
                              const struct mr_tensor *initial, struct mr_versions **out, char *text)
{
    const char *name = name_of(all, parameter);
    if (name == NULL) {
        snprintf(text, MR_NAMED_TEXT_BYTES,
                 "has no name, which an optimizer with a name needs: make it with mr_parameter_open()");
        return MR_INVALID_ARGUMENT;
    }
    const struct named *there = named_parameters_find(all, name, optimizer);
    enum mr_status status = MR_OK;
    if (there == NULL) {
        char copy[MR_NAME_BYTES]; /* the names may move */
        snprintf(copy, sizeof(copy), "%s", name);
        status = named_parameters_add(all, copy, optimizer, rule, initial, out, text);
    } else if (there->rule != rule || !same_shape(mr_versions_shape(there->versions), initial)) {
        snprintf(text, MR_NAMED_TEXT_BYTES,
                 "(%s) has state of an optimizer %s of another kind: use another name for this optimizer",
                 name, optimizer->name);
        return MR_INVALID_ARGUMENT;
    } else {
        *out = there->versions;
    }
    if (status == MR_OK)
        mr_versions_retain(*out);
    return status;
}

/* ---- all of them ---- */

static uint64_t cut_one(const struct named *n, struct mr_named_item *item)
{
    *item = (struct mr_named_item){
        .rule = n->rule, .shape = *mr_versions_shape(n->versions), .version = mr_versions_hold(n->versions)};
    memcpy(item->name, n->name, sizeof(item->name));
    if (n->optimizer != NULL)
        memcpy(item->optimizer, n->optimizer->name, sizeof(item->optimizer));
    item->step = n->optimizer != NULL ? n->optimizer->steps : mr_version_number(item->version);
    return item->shape.bytes;
}

/* A parameter's values come before its states. */
static int by_name(const void *a, const void *b)
{
    const struct mr_named_item *x = a, *y = b;
    int names = strcmp(x->name, y->name);
    return names != 0 ? names : strcmp(x->optimizer, y->optimizer);
}

static bool is_among(const char *name, const char (*names)[MR_NAME_BYTES], uint32_t count)
{
    uint32_t i = 0;
    while (i < count && strcmp(names[i], name) != 0)
        i++;
    return i < count;
}

struct mr_named_cut *mr_named_cut(struct mr_named_parameters *all, const char (*names)[MR_NAME_BYTES],
                                  uint32_t name_count)
{
    struct mr_named_cut *cut = malloc(sizeof(*cut) + all->count * sizeof(cut->items[0]));
    if (cut == NULL)
        return NULL;
    cut->count = 0;
    for (uint32_t i = 0; i < all->count; i++)
        if (names == NULL || is_among(all->named[i].name, names, name_count))
            cut_one(&all->named[i], &cut->items[cut->count++]);
    qsort(cut->items, cut->count, sizeof(cut->items[0]), by_name);
    return cut;
}

void mr_named_cut_free(struct mr_named_cut *cut)
{
    for (uint32_t i = 0; cut != NULL && i < cut->count; i++)
        mr_version_release(cut->items[i].version);
    free(cut);
}

static struct mr_named_optimizer *find_optimizer(const struct mr_named_parameters *all, const char *name)
{
    for (uint32_t i = 0; i < all->optimizer_count; i++)
        if (strcmp(all->optimizers[i]->name, name) == 0)
            return all->optimizers[i];
    return NULL;
}

/* NULL: there is none of that name. */
static struct named *find_item(const struct mr_named_parameters *all, const struct mr_named_item *item)
{
    if (item->optimizer[0] == '\0')
        return named_parameters_find(all, item->name, NULL);
    const struct mr_named_optimizer *optimizer = find_optimizer(all, item->optimizer);
    return optimizer == NULL ? NULL : named_parameters_find(all, item->name, optimizer);
}

const struct mr_named_item *mr_named_misfit(const struct mr_named_parameters *all,
                                            const struct mr_named_item *items, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        const struct named *there = find_item(all, &items[i]);
        if (there != NULL && (there->rule != items[i].rule ||
                              !same_shape(mr_versions_shape(there->versions), &items[i].shape)))
            return &items[i];
    }
    return NULL;
}

/* Makes the optimizers of all items. */
static bool make_optimizers(struct mr_named_parameters *all, const struct mr_named_item *items,
                            uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (items[i].optimizer[0] != '\0' && mr_named_optimizer(all, items[i].optimizer) == NULL)
            return false;
    return true;
}

enum mr_status mr_named_replace(struct mr_named_parameters *all, struct mr_named_item *items, uint32_t count)
{
    if (!make_room(all, count) || !make_optimizers(all, items, count))
        return MR_NO_MEMORY;
    for (uint32_t i = 0; i < count; i++) {
        struct mr_named_item *item = &items[i];
        struct named *there = find_item(all, item);
        struct mr_named_optimizer *optimizer =
            item->optimizer[0] == '\0' ? NULL : find_optimizer(all, item->optimizer);
        if (there != NULL)
            mr_versions_replace(there->versions, item->versions);
        else
            named_parameters_put(all, item->name, optimizer, item->rule, item->versions);
        item->versions = NULL;
        if (optimizer != NULL)
            optimizer->steps = item->step;
    }
    changed(all);
    return MR_OK;
}
