#include "ps/store/stores.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "ps/checkpoint/checkpoint_format.h"
#include "ps/store/store_url.h"

/* One bucket or NameNode, asked by one user. */
struct opened {
    struct opened *next;
    char root[PS_STORE_URL_BYTES]; /* of its URLs */
    char query[PS_STORE_URL_BYTES];
    enum ps_place_use use;
    _Atomic bool stop;
    struct ps_remote *remote;
};

struct ps_stores {
    const char *credentials;
    uint32_t pause_ms_max;
    struct opened *first;
};

struct ps_stores *ps_stores_create(const char *credentials, uint32_t pause_ms_max)
{
    struct ps_stores *s = calloc(1, sizeof(*s));
    if (!s)
        return NULL;
    s->credentials = credentials;
    s->pause_ms_max = pause_ms_max > 0 ? pause_ms_max : PS_HTTP_PAUSE_MS_MAX;
    return s;
}

void ps_stores_destroy(struct ps_stores *s)
{
    struct opened *next;
    for (struct opened *o = s ? s->first : NULL; o; o = next) {
        next = o->next;
        ps_remote_close(o->remote);
        free(o);
    }
    free(s);
}

static bool is_it(const struct opened *o, const struct ps_store_url *u, const char *query,
                  enum ps_place_use use)
{
    return o->use == use && strlen(o->root) == u->root_bytes &&
           strncmp(o->root, u->directory, u->root_bytes) == 0 && strcmp(o->query, query) == 0;
}

static enum mr_status open_one(struct ps_stores *s, const char *url, const struct ps_store_url *u,
                               const char *query, enum ps_place_use use, struct opened **out, char *text)
{
    const bool gives_up_sooner = use == PS_PLACE_SAVE || use == PS_PLACE_ASIDE;
    const bool is_short = gives_up_sooner && s->pause_ms_max > PS_STORES_SAVE_PAUSE_MS_MAX;
    struct opened *o = calloc(1, sizeof(*o));
    if (!o) {
        (void)ps_checkpoint_fail(text, "open", u->directory, -ENOMEM);
        return MR_NO_MEMORY;
    }
    const struct ps_remote_options options = {.credentials = s->credentials,
                                              .tries = gives_up_sooner ? PS_STORES_SAVE_TRIES : 0,
                                              .pause_ms_max =
                                                  is_short ? PS_STORES_SAVE_PAUSE_MS_MAX : s->pause_ms_max,
                                              .stop = &o->stop};
    (void)snprintf(o->root, sizeof(o->root), "%.*s", (int)u->root_bytes, u->directory);
    (void)snprintf(o->query, sizeof(o->query), "%s", query);
    o->use = use;
    const enum mr_status status = ps_remote_open(url, &options, &o->remote, text);
    if (status != MR_OK) {
        free(o);
        return status;
    }
    o->next = s->first;
    s->first = o;
    *out = o;
    return MR_OK;
}

enum mr_status ps_stores_place(struct ps_stores *s, const char *directory, enum ps_place_use use,
                               struct ps_place *out, char *text)
{
    struct ps_store_url u;
    *out = (struct ps_place){.store = ps_store_local()};
    if (!ps_store_url_is_remote(directory)) {
        (void)snprintf(out->path, sizeof(out->path), "%s", directory);
        return MR_OK;
    }
    if (!ps_store_url_parse(directory, &u, text))
        return MR_INVALID_ARGUMENT;
    const char *query = directory + strcspn(directory, "?");
    struct opened *o = s->first;
    while (o && !is_it(o, &u, query, use))
        o = o->next;
    const enum mr_status status = o ? MR_OK : open_one(s, directory, &u, query, use, &o, text);
    if (status != MR_OK)
        return status;
    out->store = &o->remote->store;
    out->stop = &o->stop;
    (void)snprintf(out->path, sizeof(out->path), "%s", u.directory);
    return MR_OK;
}
