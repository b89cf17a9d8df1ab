/* S3 as a store. It has keys, and no directories; a checkpoint's temporary and its published directory are
 * the same keys: it is published once it has a MANIFEST. So the MANIFEST is held back until the rename,
 * which puts it there unless there is one already. Files go up in parts, and are there when the last one
 * is. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "ps/checkpoint/checkpoint_manifest.h"
#include "ps/store/credentials.h"
#include "ps/store/remote_store.h"
#include "ps/store/s3_request.h"
#include "ps/store/s3_upload.h"
#include "ps/store/s3_xml.h"

#define AMAZON_BYTES 160
#define HELD_MAX     4u /* MANIFESTs that wait for their rename */

struct held {
    char key[PS_PATH_BYTES]; /* "": free */
    uint8_t *data;
    size_t bytes;
};

struct s3 {
    struct ps_s3_bucket bucket; /* the first member, where requests look for it */
    atomic_llong memory;        /* that is left of PS_S3_PART_MEMORY; may be below 0 */
    pthread_mutex_t lock;       /* of what follows */
    struct held held[HELD_MAX];
};

struct ps_store_file {
    struct ps_remote *remote;
    char key[PS_PATH_BYTES];
    /* of one that is being written: */
    bool is_new, is_held, is_complete;
    struct ps_s3_upload upload; /* a MANIFEST that is held back has its part alone */
};

/* ---- keys ---- */

static bool is_temporary(const char *path)
{
    const char *slash = strrchr(path, '/');
    return ps_name_temporary(slash ? slash + 1 : path) != 0;
}

/* The key of a path: a temporary directory has the keys of the published one. */
static bool key_of(const struct ps_remote *r, const char *path, char key[PS_PATH_BYTES])
{
    const char *name = path + r->url.root_bytes;
    name += *name == '/';
    const char *dot = strstr(name, ".tmp-ckpt-");
    if (dot && (dot == name || dot[-1] == '/'))
        return (size_t)snprintf(key, PS_PATH_BYTES, "%.*s%s", (int)(dot - name), name,
                                dot + strlen(".tmp-")) < PS_PATH_BYTES;
    return (size_t)snprintf(key, PS_PATH_BYTES, "%s", name) < PS_PATH_BYTES;
}

static bool is_manifest(const char *key)
{
    const char *slash = strrchr(key, '/');
    return strcmp(slash ? slash + 1 : key, PS_MANIFEST_NAME) == 0;
}

/* Whether a path is that of a file in a temporary directory. */
static bool is_in_temporary(const char *path)
{
    char directory[PS_PATH_BYTES];
    (void)snprintf(directory, sizeof(directory), "%s", path);
    char *slash = strrchr(directory, '/');
    if (slash)
        *slash = '\0';
    return is_temporary(directory);
}

/* ---- listing ---- */

struct listing {
    struct ps_remote *r;
    char prefix[PS_PATH_BYTES]; /* with its slash */
    void (*visit)(void *arg, const char *name);
    void *arg;
    uint64_t id; /* of the checkpoint whose keys are being read; 0: none */
    bool has_manifest;
    bool is_checkpoint, is_of_temporary; /* the directory that is listed is one */
    bool is_published;                   /* it has a MANIFEST */
};

static void end_checkpoint(struct listing *l)
{
    char name[64];
    if (l->id == 0)
        return;
    (void)snprintf(name, sizeof(name), "%sckpt-%llu", l->has_manifest ? "" : ".tmp-",
                   (unsigned long long)l->id);
    l->visit(l->arg, name);
    l->id = 0;
}

/* Keys come in the order of their bytes: those of a checkpoint together, its MANIFEST first. */
static void take_key(void *arg, const char *key)
{
    struct listing *l = arg;
    const size_t prefix_bytes = strlen(l->prefix);
    if (strncmp(key, l->prefix, prefix_bytes) != 0)
        return;
    char name[PS_PATH_BYTES];
    const char *rest = key + prefix_bytes, *slash = strchr(rest, '/');
    if (!slash) {
        l->is_published = l->is_published || strcmp(rest, PS_MANIFEST_NAME) == 0;
        if (*rest != '\0' && (!l->is_checkpoint || l->is_published != l->is_of_temporary))
            l->visit(l->arg, rest);
        return;
    }
    (void)snprintf(name, sizeof(name), "%.*s", (int)(slash - rest), rest);
    const uint64_t id = ps_name_published(name);
    if (id != l->id)
        end_checkpoint(l);
    if (id == 0)
        return;
    if (l->id == 0)
        l->has_manifest = false;
    l->id = id;
    l->has_manifest = l->has_manifest || strcmp(slash + 1, PS_MANIFEST_NAME) == 0;
}

static int list_keys(struct ps_remote *r, const char *prefix, void (*visit)(void *arg, const char *key),
                     void *arg)
{
    char token[S3_TOKEN_BYTES] = "", query[PS_HTTP_URL_BYTES];
    for (uint32_t i = 0; i < PS_REMOTE_PAGES_MAX; i++) {
        char *xml;
        query[0] = '\0';
        bool fits = true;
        if (token[0] != '\0') /* in the order of their names, as signatures want them */
            fits = ps_store_url_append(query, sizeof(query), "continuation-token=") &&
                   ps_store_url_escape(query, sizeof(query), token, false) &&
                   ps_store_url_append(query, sizeof(query), "&");
        if (!fits || !ps_store_url_append(query, sizeof(query), "list-type=2&prefix=") ||
            !ps_store_url_escape(query, sizeof(query), prefix, false))
            return -ENAMETOOLONG;
        struct ps_s3_call c = {.method = "GET", .key = "", .query = query};
        int error = ps_s3_ask(r, &c, &xml);
        if (error == 0 && !s3_xml_listing(xml, visit, arg, token)) {
            ps_store_explain(EPROTO, "this is no listing of S3; is the endpoint right?");
            error = -EPROTO;
        }
        free(xml);
        if (error != 0 || token[0] == '\0')
            return error;
    }
    return -EOVERFLOW;
}

struct left {
    struct listing *l;
    uint64_t last;
};

/* An upload without any finished object leaves a temporary checkpoint, too. */
static void take_upload(void *arg, const char *key, const char *upload)
{
    struct left *left = arg;
    const size_t prefix_bytes = strlen(left->l->prefix);
    char name[PS_PATH_BYTES], manifest[PS_PATH_BYTES];
    uint64_t bytes;
    int64_t written_s;
    (void)upload;
    if (strncmp(key, left->l->prefix, prefix_bytes) != 0)
        return;
    (void)snprintf(name, sizeof(name), "%.*s", (int)strcspn(key + prefix_bytes, "/"), key + prefix_bytes);
    const uint64_t id = ps_name_published(name);
    if (id == 0 || id == left->last)
        return;
    left->last = id;
    (void)snprintf(manifest, sizeof(manifest), "%.*s/%s", (int)(prefix_bytes + strlen(name)), key,
                   PS_MANIFEST_NAME);
    if (ps_s3_head(left->l->r, manifest, &bytes, &written_s) != -ENOENT)
        return;
    (void)snprintf(name, sizeof(name), ".tmp-ckpt-%llu", (unsigned long long)id);
    left->l->visit(left->l->arg, name);
}

/* The temporary directory of a checkpoint that is published is not there, nor the other way round. */
static int s3_list(void *self, const char *path, void (*visit)(void *arg, const char *name), void *arg)
{
    const char *slash = strrchr(path, '/');
    struct listing l = {.r = self, .visit = visit, .arg = arg, .is_of_temporary = is_temporary(path)};
    char key[PS_PATH_BYTES];
    l.is_checkpoint = l.is_of_temporary || ps_name_published(slash ? slash + 1 : path) != 0;
    if (!key_of(self, path, key) || (size_t)snprintf(l.prefix, sizeof(l.prefix), "%s%s", key,
                                                     key[0] != '\0' ? "/" : "") >= sizeof(l.prefix))
        return -ENAMETOOLONG;
    const int error = list_keys(self, l.prefix, take_key, &l);
    if (error != 0)
        return error;
    end_checkpoint(&l);
    if (l.is_checkpoint && l.is_published == l.is_of_temporary)
        return l.is_published ? -EBUSY : -ENOENT;
    struct left left = {.l = &l};
    /* Who only reads need not be allowed to see uploads. */
    if (!l.is_checkpoint)
        (void)ps_s3_list_uploads(self, l.prefix, take_upload, &left);
    return 0;
}

/* ---- MANIFESTs that are held back ---- */

static struct held *find_held(struct s3 *s, const char *key)
{
    for (uint32_t i = 0; i < HELD_MAX; i++)
        if (strcmp(s->held[i].key, key) == 0)
            return &s->held[i];
    return NULL;
}

static void clear_held(struct held *held)
{
    free(held->data);
    *held = (struct held){0};
}

static void forget_held(struct s3 *s, const char *key)
{
    pthread_mutex_lock(&s->lock);
    struct held *held = find_held(s, key);
    if (held)
        clear_held(held);
    pthread_mutex_unlock(&s->lock);
}

/* ---- names ---- */

static void sweep_upload(void *arg, const char *key, const char *upload)
{
    ps_s3_abort_upload(arg, key, upload);
}

static int s3_make_directory(void *self, const char *path)
{
    char key[PS_PATH_BYTES], manifest[PS_PATH_BYTES];
    uint64_t bytes;
    int64_t written_s;
    if (!key_of(self, path, key) || !ps_path_join(key, PS_MANIFEST_NAME, manifest))
        return -ENAMETOOLONG;
    const int error = ps_s3_head(self, manifest, &bytes, &written_s);
    return error == 0 ? -EEXIST : error == -ENOENT ? 0 : error;
}

/* What is published is not removed by its temporary name. */
static int s3_remove(void *self, const char *path)
{
    struct ps_remote *r = self;
    char key[PS_PATH_BYTES];
    if (!key_of(r, path, key))
        return -ENAMETOOLONG;
    if (is_manifest(key) && is_in_temporary(path)) {
        forget_held(r->kind, key);
        return -ENOENT;
    }
    if (!is_temporary(path))
        return ps_s3_delete(r, key);
    if (!ps_store_url_append(key, sizeof(key), "/"))
        return -ENAMETOOLONG;
    (void)ps_s3_list_uploads(r, key, sweep_upload, r); /* all that is left of the directory */
    return 0;
}

static int s3_facts(void *self, const char *path, uint64_t *file_bytes, int64_t *written_s)
{
    char key[PS_PATH_BYTES];
    return key_of(self, path, key) ? ps_s3_head(self, key, file_bytes, written_s) : -ENAMETOOLONG;
}

/* ---- publishing ---- */

/* Holds a MANIFEST back: takes over the part of the file. */
static int hold(struct ps_store_file *f)
{
    struct s3 *s = f->remote->kind;
    pthread_mutex_lock(&s->lock);
    struct held *held = find_held(s, f->key);
    if (held)
        clear_held(held);
    else
        held = find_held(s, "");
    if (held) {
        memcpy(held->key, f->key, sizeof(held->key));
        held->data = f->upload.part;
        held->bytes = f->upload.part_bytes;
        f->upload.part = NULL;
    }
    pthread_mutex_unlock(&s->lock);
    return held ? 0 : -EBUSY;
}

/* Whether the object has these bytes. */
static int compare(struct ps_remote *r, const char *key, const struct held *held)
{
    struct ps_http_answer answer;
    uint8_t *there = malloc(held->bytes + 1);
    if (!there)
        return -ENOMEM;
    const struct ps_s3_call c = {.method = "GET", .key = key, .into = there, .into_bytes = held->bytes + 1};
    int error = ps_s3_perform(r, &c, &answer);
    if (error == 0 && (answer.body_bytes != held->bytes || memcmp(there, held->data, held->bytes) != 0)) {
        ps_store_explain(EEXIST, "another checkpoint of this number is there: give each node its own prefix");
        error = -EEXIST;
    }
    free(there);
    return error;
}

int ps_s3_condition(struct ps_remote *r, const char *path, enum ps_condition *condition)
{
    char key[PS_PATH_BYTES];
    if (!key_of(r, path, key))
        return -ENAMETOOLONG;
    const int error = ps_s3_put(r, key, "", 0, "If-None-Match: *");
    *condition = error == 0         ? PS_CONDITION_IGNORED
                 : error == -EEXIST ? PS_CONDITION_HONOURED
                                    : PS_CONDITION_REFUSED;
    return error == -EEXIST || error == -EOPNOTSUPP ? 0 : error;
}

/* Servers that refuse conditions are asked first. */
static int put_if_absent(struct ps_remote *r, const char *key, const void *data, size_t bytes)
{
    uint64_t there_bytes;
    int64_t written_s;
    int error = ps_s3_put(r, key, data, bytes, "If-None-Match: *");
    if (error != -EOPNOTSUPP)
        return error;
    error = ps_s3_head(r, key, &there_bytes, &written_s);
    if (error == 0)
        return -EEXIST;
    return error == -ENOENT ? ps_s3_put(r, key, data, bytes, NULL) : error;
}

static int publish(struct ps_remote *r, const char *key)
{
    struct s3 *s = r->kind;
    struct held held = {0};
    pthread_mutex_lock(&s->lock);
    struct held *found = find_held(s, key);
    if (found) {
        held = *found;
        *found = (struct held){0};
    }
    pthread_mutex_unlock(&s->lock);
    if (!held.data)
        return -ENOENT;
    int error = put_if_absent(r, key, held.data, held.bytes);
    if (error == -EEXIST) /* also after a try whose answer was lost */
        error = compare(r, key, &held);
    free(held.data);
    return error;
}

static int s3_rename(void *self, const char *from, const char *to)
{
    char key[PS_PATH_BYTES], manifest[PS_PATH_BYTES];
    if (!key_of(self, to, key) || !ps_path_join(key, PS_MANIFEST_NAME, manifest))
        return -ENAMETOOLONG;
    if (is_temporary(from) && !is_temporary(to))
        return publish(self, manifest);
    return is_temporary(to) ? ps_s3_delete(self, manifest) : -ENOTSUP;
}

/* ---- files ---- */

static struct ps_store_file *file_new(struct ps_remote *r, const char *path)
{
    struct ps_store_file *f = calloc(1, sizeof(*f));
    if (!f)
        return NULL;
    f->remote = r;
    if (key_of(r, path, f->key))
        return f;
    free(f);
    return NULL;
}

static int s3_create(void *self, const char *path, bool direct, struct ps_store_file **file)
{
    (void)direct;
    struct ps_store_file *f = file_new(self, path);
    if (!f)
        return -ENOMEM;
    f->is_new = true;
    f->is_held = is_manifest(f->key) && is_in_temporary(path);
    f->upload = (struct ps_s3_upload){
        .remote = f->remote, .key = f->key, .memory = &((struct s3 *)f->remote->kind)->memory};
    const int error =
        ps_s3_upload_open(&f->upload, f->is_held ? PS_MANIFEST_BYTES_MAX : PS_S3_PART_BYTES_MIN);
    if (error == 0)
        *file = f;
    else
        free(f);
    return error;
}

static int s3_open(void *self, const char *path, struct ps_store_file **file, uint64_t *file_bytes)
{
    int64_t written_s;
    struct ps_store_file *f = file_new(self, path);
    if (!f)
        return -ENOMEM;
    const int error = ps_s3_head(self, f->key, file_bytes, &written_s);
    if (error == 0)
        *file = f;
    else
        free(f);
    return error;
}

static int s3_replace(void *self, const char *path, const void *data, size_t bytes)
{
    char key[PS_PATH_BYTES];
    return key_of(self, path, key) ? ps_s3_put(self, key, data, bytes, NULL) : -ENAMETOOLONG;
}

static int s3_put_new(void *self, const char *path, const void *data, size_t bytes)
{
    char key[PS_PATH_BYTES];
    return key_of(self, path, key) ? put_if_absent(self, key, data, bytes) : -ENAMETOOLONG;
}

static int64_t s3_read(struct ps_store_file *f, void *data, size_t bytes, uint64_t offset)
{
    struct ps_http_answer answer;
    char range[96];
    (void)snprintf(range, sizeof(range), "Range: bytes=%llu-%llu", (unsigned long long)offset,
                   (unsigned long long)(offset + bytes - 1));
    const struct ps_s3_call c = {
        .method = "GET", .key = f->key, .header = range, .into = data, .into_bytes = bytes};
    const int error = ps_s3_perform(f->remote, &c, &answer);
    if (error == 0 && answer.status != 206 && offset > 0) {
        ps_store_explain(EPROTO, "the store does not know ranges");
        return -EPROTO;
    }
    return error != 0 ? error : (int64_t)answer.body_bytes;
}

static int s3_reserve(struct ps_store_file *f, uint64_t bytes)
{
    return ps_s3_upload_reserve(&f->upload, bytes);
}

static int set_nothing(struct ps_store_file *f, uint64_t bytes)
{
    (void)f;
    (void)bytes;
    return 0;
}

static int64_t s3_write(struct ps_store_file *f, const void *data, size_t bytes, uint64_t offset)
{
    const struct ps_s3_upload *u = &f->upload;
    if (offset != u->written)
        return -ESPIPE;
    return f->is_held && bytes > u->part_room - u->part_bytes ? -EFBIG
                                                              : ps_s3_upload_write(&f->upload, data, bytes);
}

static int s3_sync(struct ps_store_file *f)
{
    if (!f->is_new || f->is_complete)
        return 0;
    const int error = f->is_held ? hold(f) : ps_s3_upload_finish(&f->upload);
    f->is_complete = error == 0;
    return error;
}

static int s3_close(struct ps_store_file *f)
{
    if (f->is_new)
        ps_s3_upload_close(&f->upload, f->is_complete);
    free(f);
    return 0;
}

/* ---- going on ---- */

static int s3_mark(struct ps_store_file *f, struct ps_store_mark *mark)
{
    if (f->is_complete && !f->is_held)
        return ps_s3_head_mark(f->remote, f->key, mark);
    ps_s3_upload_mark(&f->upload, mark);
    return 0;
}

static int s3_is_marked(void *self, const char *path, const struct ps_store_mark *mark)
{
    struct ps_store_mark there;
    char key[PS_PATH_BYTES];
    if (!key_of(self, path, key))
        return -ENAMETOOLONG;
    const int error = ps_s3_head_mark(self, key, &there);
    if (error != 0)
        return error == -ENOENT ? -ESTALE : error;
    return mark->bytes > 0 && there.bytes == mark->bytes && strcmp(there.text, mark->text) == 0 ? 0 : -ESTALE;
}

static void sweep_other_upload(void *arg, const char *key, const char *upload)
{
    const struct ps_store_file *f = arg;
    if (strcmp(key, f->key) == 0 && strcmp(upload, f->upload.id) != 0)
        ps_s3_abort_upload(f->remote, key, upload);
}

static int s3_resume(void *self, const char *path, struct ps_store_mark *mark, struct ps_store_file **file)
{
    struct ps_store_file *f = NULL;
    int error = s3_create(self, path, false, &f);
    if (error != 0)
        return error;
    error = ps_s3_upload_resume(&f->upload, mark);
    if (error != 0 && error != -ESTALE) {
        (void)s3_close(f);
        return error;
    }
    mark->bytes = f->upload.written;
    (void)ps_s3_list_uploads(self, f->key, sweep_other_upload, f);
    *file = f;
    return 0;
}

/* ---- opening ---- */

static const char *environment(const char *first, const char *second, const char *otherwise)
{
    const char *value = getenv(first);
    if (!value || *value == '\0')
        value = getenv(second);
    return value && *value ? value : otherwise;
}

/* Where the bucket is. An endpoint of one's own has it in the path, unless told otherwise. */
static const char *endpoint_of(const struct ps_store_url *u, const char *region, char amazon[AMAZON_BYTES])
{
    (void)snprintf(amazon, AMAZON_BYTES, "https://s3.%s.amazonaws.com", region);
    return u->endpoint[0] != '\0' ? u->endpoint
                                  : environment("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", amazon);
}

static bool set_base(struct s3 *s, const struct ps_store_url *u, const char *region)
{
    char amazon[AMAZON_BYTES];
    const char *endpoint = endpoint_of(u, region, amazon);
    const bool is_in_path = u->path_style >= 0 ? u->path_style != 0 : strcmp(endpoint, amazon) != 0;
    const char *host = strstr(endpoint, "://");
    if (!host)
        return false;
    host += strlen("://");
    s->bucket.is_payload_signed = strncmp(endpoint, "https://", 8) != 0;
    const int host_bytes = (int)strcspn(host, "/");
    const int n = is_in_path ? snprintf(s->bucket.base, sizeof(s->bucket.base), "%.*s/%s",
                                        (int)(host - endpoint) + host_bytes, endpoint, u->bucket)
                             : snprintf(s->bucket.base, sizeof(s->bucket.base), "%.*s%s.%.*s",
                                        (int)(host - endpoint), endpoint, u->bucket, host_bytes, host);
    return n > 0 && (size_t)n < sizeof(s->bucket.base);
}

static enum mr_status refuse(const struct ps_remote *remote, const char *why, char *text)
{
    ps_text_path(text, remote->directory, why);
    return MR_INVALID_ARGUMENT;
}

enum mr_status ps_s3_open(struct ps_remote *remote, const struct ps_remote_options *options,
                          const struct ps_credentials *credentials, char *text)
{
    const struct ps_store_url *u = &remote->url;
    const char *region =
        u->region[0] != '\0' ? u->region : environment("AWS_REGION", "AWS_DEFAULT_REGION", "us-east-1");
    char sigv4[128], amazon[AMAZON_BYTES];
    if (credentials->access_key[0] == '\0' || credentials->secret_key[0] == '\0')
        return refuse(remote,
                      "there are no credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or name a "
                      "file with them (checkpoint.remote_credentials, AWS_SHARED_CREDENTIALS_FILE)",
                      text);
    struct s3 *s = calloc(1, sizeof(*s));
    (void)snprintf(sigv4, sizeof(sigv4), "aws:amz:%.64s:s3", region);
    const struct ps_http_options http = {.user = credentials->access_key,
                                         .password = credentials->secret_key,
                                         .sigv4 = sigv4,
                                         .secure = ps_remote_is_secure(endpoint_of(u, region, amazon)),
                                         .ca = ps_remote_ca(remote),
                                         .explain = ps_s3_explain,
                                         .tries = options->tries,
                                         .pause_ms_max = options->pause_ms_max,
                                         .stop = options->stop};
    remote->kind = s;
    remote->http = s ? ps_http_create(&http) : NULL;
    if (!remote->http)
        return refuse(remote, "no memory", text);
    pthread_mutex_init(&s->lock, NULL);
    atomic_init(&s->memory, PS_S3_PART_MEMORY);
    if (credentials->session_token[0] != '\0')
        (void)snprintf(s->bucket.token_header, sizeof(s->bucket.token_header), "x-amz-security-token: %s",
                       credentials->session_token);
    if (!set_base(s, u, region))
        return refuse(remote, "AWS_ENDPOINT_URL is no URL: write http(s)://HOST:PORT", text);
    struct ps_store *store = &remote->store;
    store->make_directory = s3_make_directory;
    store->create = s3_create;
    store->open = s3_open;
    store->write = s3_write;
    store->read = s3_read;
    store->sync = s3_sync;
    store->reserve = s3_reserve;
    store->set_length = set_nothing;
    store->close = s3_close;
    store->mark = s3_mark;
    store->is_marked = s3_is_marked;
    store->resume = s3_resume;
    store->replace = s3_replace;
    store->put_new = s3_put_new;
    store->rename = s3_rename;
    store->list = s3_list;
    store->remove = s3_remove;
    store->facts = s3_facts;
    return MR_OK;
}

void ps_s3_close(struct ps_remote *remote)
{
    struct s3 *s = remote->kind;
    if (!s)
        return;
    for (uint32_t i = 0; i < HELD_MAX; i++)
        clear_held(&s->held[i]);
    if (remote->http)
        pthread_mutex_destroy(&s->lock);
    explicit_bzero(s->bucket.token_header, sizeof(s->bucket.token_header));
    free(s);
}
