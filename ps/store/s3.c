/* S3 as a store. It has keys, and no directories; a checkpoint's temporary and its published directory are
 * the same keys: it is published once it has a MANIFEST. So the MANIFEST is held back until the rename,
 * which puts it there unless there is one already. Files go up in parts, and are there when the last one
 * is. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>
#include "ps/checkpoint/checkpoint_manifest.h"
#include "ps/store/credentials.h"
#include "ps/store/part_sender.h"
#include "ps/store/remote_store.h"
#include "ps/store/s3_request.h"
#include "ps/store/s3_xml.h"

#define PAGES_MAX      100000u     /* of one listing */
#define PART_BYTES_MIN (8u << 20)  /* S3 wants 5 MiB */
#define PART_BYTES_MAX (16u << 20) /* so that memory has a bound */
#define PARTS_MAX      9000u       /* S3 allows 10000 */
#define PART_MEMORY    (24u << 20) /* of all files together; each has one part, whatever that comes to */
#define HELD_MAX       4u          /* MANIFESTs that wait for their rename */

struct held {
    char key[PS_PATH_BYTES]; /* "": free */
    uint8_t *data;
    size_t bytes;
};

struct s3 {
    struct ps_s3_bucket bucket; /* the first member, where requests look for it */
    atomic_llong memory;        /* that is left of PART_MEMORY; may be below 0 */
    pthread_mutex_t lock;       /* of what follows */
    struct held held[HELD_MAX];
};

struct ps_store_file {
    struct ps_remote *remote;
    char key[PS_PATH_BYTES];
    /* of one that is being written: */
    bool is_new, is_held, is_complete;
    bool stays; /* what has gone up is left there for another time */
    uint8_t *part;
    size_t part_bytes, part_room;
    uint64_t written;
    char upload[S3_UPLOAD_ID_BYTES]; /* "": no part has gone up */
    struct s3_part *parts;
    uint32_t part_count;
    struct ps_part_sender *sender; /* NULL: no part has gone up */
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
    for (uint32_t i = 0; i < PAGES_MAX; i++) {
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

/* Uploads that were begun and not ended, by key. */
static int list_uploads(struct ps_remote *r, const char *prefix,
                        void (*visit)(void *arg, const char *key, const char *upload), void *arg)
{
    char query[PS_HTTP_URL_BYTES] = "prefix=", *xml;
    if (!ps_store_url_escape(query, sizeof(query), prefix, false) ||
        !ps_store_url_append(query, sizeof(query), "&uploads="))
        return -ENAMETOOLONG;
    struct ps_s3_call c = {.method = "GET", .key = "", .query = query};
    const int error = ps_s3_ask(r, &c, &xml);
    if (error == 0)
        s3_xml_uploads(xml, visit, arg);
    free(xml);
    return error;
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
        (void)list_uploads(self, l.prefix, take_upload, &left);
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

static void abort_upload(const struct ps_remote *r, const char *key, const char *upload)
{
    struct ps_http_answer answer;
    char query[S3_UPLOAD_ID_BYTES * 3 + 16] = "uploadId=";
    const struct ps_s3_call c = {.method = "DELETE", .key = key, .query = query};
    if (ps_store_url_escape(query, sizeof(query), upload, false))
        (void)ps_s3_perform(r, &c, &answer);
}

static void sweep_upload(void *arg, const char *key, const char *upload)
{
    abort_upload(arg, key, upload);
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
    (void)list_uploads(r, key, sweep_upload, r); /* all that is left of the directory */
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
        held->data = f->part;
        held->bytes = f->part_bytes;
        f->part = NULL;
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

/* For servers that refuse conditions: they are asked first. */
static int put_if_absent(struct ps_remote *r, const char *key, const struct held *held)
{
    uint64_t bytes;
    int64_t written_s;
    const int error = ps_s3_head(r, key, &bytes, &written_s);
    if (error == 0)
        return -EEXIST;
    return error == -ENOENT ? ps_s3_put(r, key, held->data, held->bytes, NULL) : error;
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
    int error = ps_s3_put(r, key, held.data, held.bytes, "If-None-Match: *");
    if (error == -EOPNOTSUPP)
        error = put_if_absent(r, key, &held);
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

static atomic_llong *memory_of(const struct ps_store_file *f)
{
    return &((struct s3 *)f->remote->kind)->memory;
}

static int s3_create(void *self, const char *path, bool direct, struct ps_store_file **file)
{
    (void)direct;
    struct ps_store_file *f = file_new(self, path);
    if (!f)
        return -ENOMEM;
    f->is_new = true;
    f->is_held = is_manifest(f->key) && is_in_temporary(path);
    f->part_room = f->is_held ? PS_MANIFEST_BYTES_MAX : PART_BYTES_MIN;
    f->part = malloc(f->part_room);
    if (!f->part) {
        free(f);
        return -ENOMEM;
    }
    atomic_fetch_sub(memory_of(f), (long long)f->part_room);
    *file = f;
    return 0;
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

/* Room that was announced: parts are as long as their number asks for. */
static int s3_reserve(struct ps_store_file *f, uint64_t bytes)
{
    const uint64_t wanted = bytes / PARTS_MAX + 1;
    if (wanted > PART_BYTES_MAX) {
        ps_store_explain(EFBIG, "a file of a core may have at most %llu GiB in S3: use more cores",
                         (unsigned long long)PART_BYTES_MAX * PARTS_MAX >> 30);
        return -EFBIG;
    }
    if (f->is_held || f->written > 0 || wanted <= f->part_room)
        return 0;
    uint8_t *part = realloc(f->part, PART_BYTES_MAX);
    if (!part)
        return -ENOMEM;
    f->part = part;
    atomic_fetch_sub(memory_of(f), (long long)(PART_BYTES_MAX - f->part_room));
    f->part_room = PART_BYTES_MAX;
    return 0;
}

static int set_nothing(struct ps_store_file *f, uint64_t bytes)
{
    (void)f;
    (void)bytes;
    return 0;
}

static int begin_upload(struct ps_store_file *f)
{
    char *xml;
    struct ps_s3_call c = {.method = "POST", .key = f->key, .query = "uploads=", .has_body = true};
    int error = ps_s3_ask(f->remote, &c, &xml);
    if (error == 0 && !s3_xml_text(xml, "UploadId", f->upload, sizeof(f->upload))) {
        ps_store_explain(EPROTO, "the store does not begin an upload in parts; is it S3?");
        error = -EPROTO;
    }
    free(xml);
    return error;
}

static int send_part(void *arg, uint32_t number, const uint8_t *data, size_t bytes)
{
    struct ps_store_file *f = arg;
    struct ps_http_answer answer;
    char query[S3_UPLOAD_ID_BYTES * 3 + 48];
    (void)snprintf(query, sizeof(query), "partNumber=%u&uploadId=", number);
    if (!ps_store_url_escape(query, sizeof(query), f->upload, false))
        return -ENAMETOOLONG;
    const struct ps_s3_call c = {
        .method = "PUT", .key = f->key, .query = query, .body = data, .body_bytes = bytes, .has_body = true};
    const int error = ps_s3_perform(f->remote, &c, &answer);
    if (error == 0)
        (void)snprintf(f->parts[number - 1].etag, sizeof(f->parts->etag), "%s", answer.etag);
    return error;
}

/* For the parts after the first `sent`. */
static int make_sender(struct ps_store_file *f, uint32_t sent)
{
    const struct ps_part_sender_options options = {
        .send = send_part, .arg = f, .room = f->part_room, .sent = sent, .memory = memory_of(f)};
    if (!f->parts)
        f->parts = calloc(PARTS_MAX + 1, sizeof(*f->parts));
    f->sender = f->parts ? ps_part_sender_create(&options) : NULL;
    return f->sender ? 0 : -ENOMEM;
}

/* Puts the part that is full, or the last one, among those that are sent. */
static int put_part(struct ps_store_file *f)
{
    int error = f->sender ? 0 : make_sender(f, 0);
    if (error == 0 && f->upload[0] == '\0')
        error = begin_upload(f);
    if (error == 0 && f->part_count == PARTS_MAX)
        error = -EFBIG;
    if (error != 0)
        return error;
    f->part_count++;
    error = ps_part_sender_put(f->sender, &f->part, f->part_bytes);
    f->part_bytes = 0;
    return error;
}

static int64_t s3_write(struct ps_store_file *f, const void *data, size_t bytes, uint64_t offset)
{
    if (offset != f->written)
        return -ESPIPE;
    if (f->part_bytes == f->part_room) {
        const int error = f->is_held ? -EFBIG : put_part(f);
        if (error != 0)
            return error;
    }
    const size_t room = f->part_room - f->part_bytes, taken = bytes < room ? bytes : room;
    memcpy(f->part + f->part_bytes, data, taken);
    f->part_bytes += taken;
    f->written += taken;
    return (int64_t)taken;
}

/* An upload whose end was answered, but not heard, is gone when it is ended again: the object is there. */
static int complete(struct ps_store_file *f)
{
    char query[S3_UPLOAD_ID_BYTES * 3 + 16] = "uploadId=", *xml, code[64];
    uint64_t bytes;
    int64_t written_s;
    char *body = s3_xml_parts(f->parts, f->part_count);
    if (!body || !ps_store_url_escape(query, sizeof(query), f->upload, false)) {
        free(body);
        return -ENOMEM;
    }
    struct ps_s3_call c = {.method = "POST",
                           .key = f->key,
                           .query = query,
                           .body = body,
                           .body_bytes = strlen(body),
                           .has_body = true,
                           .header = "Content-Type: application/xml"};
    int error = ps_s3_ask(f->remote, &c, &xml);
    if (error == 0 &&
        s3_xml_text(xml, "Code", code, sizeof(code))) { /* an error in an answer of status 200 */
        ps_store_explain(EIO, "the upload could not be ended: %s", code);
        error = -EIO;
    }
    free(xml);
    free(body);
    if (error == -ENOENT && ps_s3_head(f->remote, f->key, &bytes, &written_s) == 0 && bytes == f->written)
        return 0;
    return error;
}

static int s3_sync(struct ps_store_file *f)
{
    int error = 0;
    if (!f->is_new || f->is_complete)
        return 0;
    if (f->is_held)
        error = hold(f);
    else if (!f->sender)
        error = ps_s3_put(f->remote, f->key, f->part, f->part_bytes, NULL);
    else
        error = f->part_bytes > 0 ? put_part(f) : 0;
    if (error == 0 && f->sender)
        error = ps_part_sender_finish(f->sender);
    if (error == 0 && f->sender)
        error = complete(f);
    f->is_complete = error == 0;
    return error;
}

static int s3_close(struct ps_store_file *f)
{
    ps_part_sender_destroy(f->sender); /* none of them comes after the abort */
    if (f->upload[0] != '\0' && !f->is_complete && !f->stays)
        abort_upload(f->remote, f->key, f->upload);
    if (f->is_new)
        atomic_fetch_add(memory_of(f), (long long)f->part_room);
    free(f->parts);
    free(f->part);
    free(f);
    return 0;
}

/* ---- going on ---- */

/* A hash of the ETags of the first parts. Answers differ in whether they quote them. */
static XXH128_hash_t hash_parts(const struct s3_part *parts, uint32_t count)
{
    XXH128_hash_t hash = {0, 0};
    for (uint32_t i = 0; i < count; i++) {
        const char *etag = parts[i].etag + (parts[i].etag[0] == '"');
        const XXH128_hash_t one = XXH3_128bits(etag, strcspn(etag, "\""));
        const uint64_t both[] = {hash.low64, hash.high64, one.low64, one.high64};
        hash = XXH3_128bits(both, sizeof(both));
    }
    return hash;
}

/* What a mark says of an upload in parts: that many, all of that length. */
struct upload_mark {
    uint32_t count;
    size_t part_bytes;
    XXH128_hash_t hash; /* see hash_parts() */
    char upload[S3_UPLOAD_ID_BYTES];
};

static int s3_mark(struct ps_store_file *f, struct ps_store_mark *mark)
{
    if (f->is_complete && !f->is_held)
        return ps_s3_head_mark(f->remote, f->key, mark);
    uint32_t count = f->sender ? ps_part_sender_sent(f->sender) : 0;
    if (count > f->written / f->part_room) /* the last part, which is shorter */
        count--;
    const XXH128_hash_t hash = hash_parts(f->parts, count);
    mark->bytes = (uint64_t)count * f->part_room;
    f->stays = f->stays || count > 0;
    (void)snprintf(mark->text, sizeof(mark->text), "%u %zu %016llx %016llx %s", count, f->part_room,
                   (unsigned long long)hash.low64, (unsigned long long)hash.high64, f->upload);
    return 0;
}

static bool read_mark(const struct ps_store_mark *mark, struct upload_mark *out)
{
    unsigned long long low, high;
    int at = 0;
    if (mark->bytes == 0 ||
        sscanf(mark->text, "%u %zu %llx %llx %n", &out->count, &out->part_bytes, &low, &high, &at) != 4)
        return false;
    out->hash = (XXH128_hash_t){.low64 = low, .high64 = high};
    (void)snprintf(out->upload, sizeof(out->upload), "%s", mark->text + at);
    return out->upload[0] != '\0' && out->count <= PARTS_MAX &&
           (out->part_bytes == PART_BYTES_MIN || out->part_bytes == PART_BYTES_MAX) &&
           mark->bytes == (uint64_t)out->count * out->part_bytes;
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

/* Parts that are there, of those that are wanted. */
struct part_check {
    const struct upload_mark *wanted;
    struct s3_part *parts;
    uint32_t found;
};

static void check_part(void *arg, uint32_t number, uint64_t bytes, const char *etag)
{
    struct part_check *check = arg;
    if (number != check->found + 1 || number > check->wanted->count || bytes != check->wanted->part_bytes)
        return;
    (void)snprintf(check->parts[check->found++].etag, sizeof(check->parts->etag), "%s", etag);
}

/* 0: all parts of the mark are there as they were sent, and in f->parts; -ESTALE: they are not. */
static int find_parts(struct ps_store_file *f, const struct upload_mark *wanted)
{
    struct part_check check = {.wanted = wanted, .parts = f->parts};
    struct s3_part_page page = {0};
    do {
        char query[S3_UPLOAD_ID_BYTES * 3 + 64] = "", *xml;
        if (page.next > 0) /* in the order of their names, as signatures want them */
            (void)snprintf(query, sizeof(query), "part-number-marker=%u&", page.next);
        if (!ps_store_url_append(query, sizeof(query), "uploadId=") ||
            !ps_store_url_escape(query, sizeof(query), wanted->upload, false))
            return -ENAMETOOLONG;
        struct ps_s3_call c = {.method = "GET", .key = f->key, .query = query};
        const uint32_t before = page.next;
        const int error = ps_s3_ask(f->remote, &c, &xml);
        page = error == 0 ? s3_xml_listed_parts(xml, check_part, &check) : (struct s3_part_page){0};
        free(xml);
        if (error == -ENOENT || error == -EACCES) /* who may not see the parts sends them again */
            return -ESTALE;
        if (error != 0 || !page.is_good)
            return error != 0 ? error : -ESTALE;
        if (page.next <= before)
            break;
    } while (check.found < wanted->count);
    const XXH128_hash_t hash = hash_parts(f->parts, check.found);
    return check.found == wanted->count && XXH128_isEqual(hash, wanted->hash) ? 0 : -ESTALE;
}

/* Takes the upload up again where it was. */
static int take_up(struct ps_store_file *f, const struct upload_mark *wanted)
{
    f->parts = calloc(PARTS_MAX + 1, sizeof(*f->parts));
    if (!f->parts)
        return -ENOMEM;
    int error = find_parts(f, wanted);
    uint8_t *part = error == 0 ? realloc(f->part, wanted->part_bytes) : NULL;
    if (error == 0 && !part)
        error = -ENOMEM;
    if (error != 0) {
        free(f->parts);
        f->parts = NULL;
        return error;
    }
    f->part = part;
    atomic_fetch_sub(memory_of(f), (long long)wanted->part_bytes - (long long)f->part_room);
    f->part_room = wanted->part_bytes;
    error = make_sender(f, wanted->count);
    if (error != 0)
        return error;
    f->part_count = wanted->count;
    f->written = (uint64_t)wanted->count * wanted->part_bytes;
    f->stays = true;
    memcpy(f->upload, wanted->upload, sizeof(f->upload));
    return 0;
}

static void sweep_other_upload(void *arg, const char *key, const char *upload)
{
    const struct ps_store_file *f = arg;
    if (strcmp(key, f->key) == 0 && strcmp(upload, f->upload) != 0)
        abort_upload(f->remote, key, upload);
}

static int s3_resume(void *self, const char *path, struct ps_store_mark *mark, struct ps_store_file **file)
{
    struct upload_mark wanted;
    struct ps_store_file *f = NULL;
    int error = s3_create(self, path, false, &f);
    if (error != 0)
        return error;
    error = read_mark(mark, &wanted) ? take_up(f, &wanted) : -ESTALE;
    if (error != 0 && error != -ESTALE) {
        (void)s3_close(f);
        return error;
    }
    mark->bytes = f->written;
    (void)list_uploads(self, f->key, sweep_other_upload, f);
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
static bool set_base(struct s3 *s, const struct ps_store_url *u, const char *region)
{
    char amazon[160];
    (void)snprintf(amazon, sizeof(amazon), "https://s3.%s.amazonaws.com", region);
    const char *endpoint =
        u->endpoint[0] != '\0' ? u->endpoint : environment("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", amazon);
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
    char sigv4[128];
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
    atomic_init(&s->memory, PART_MEMORY);
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
