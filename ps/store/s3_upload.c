#include "ps/store/s3_upload.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

/* ---- those that are there ---- */

/* One page. Parameters in the order in which they are signed. */
static int list_page(const struct ps_remote *r, const char *prefix,
                     void (*visit)(void *arg, const char *key, const char *id), void *arg,
                     struct s3_upload_marker *after)
{
    const bool is_first = after->key[0] == '\0';
    char query[PS_HTTP_URL_BYTES] = "", *xml;
    if ((!is_first && (!ps_store_url_append(query, sizeof(query), "key-marker=") ||
                       !ps_store_url_escape(query, sizeof(query), after->key, false) ||
                       !ps_store_url_append(query, sizeof(query), "&"))) ||
        !ps_store_url_append(query, sizeof(query), "prefix=") ||
        !ps_store_url_escape(query, sizeof(query), prefix, false) ||
        (!is_first && (!ps_store_url_append(query, sizeof(query), "&upload-id-marker=") ||
                       !ps_store_url_escape(query, sizeof(query), after->id, false))) ||
        !ps_store_url_append(query, sizeof(query), "&uploads="))
        return -ENAMETOOLONG;
    struct ps_s3_call c = {.method = "GET", .key = "", .query = query};
    const int error = ps_s3_ask(r, &c, &xml);
    if (error == 0)
        s3_xml_uploads(xml, visit, arg, after);
    free(xml);
    return error;
}

int ps_s3_list_uploads(const struct ps_remote *r, const char *prefix,
                       void (*visit)(void *arg, const char *key, const char *id), void *arg)
{
    struct s3_upload_marker after = {.key = ""};
    for (uint32_t i = 0; i < PS_REMOTE_PAGES_MAX; i++) {
        const struct s3_upload_marker before = after;
        const int error = list_page(r, prefix, visit, arg, &after);
        const bool is_same = strcmp(after.key, before.key) == 0 && strcmp(after.id, before.id) == 0;
        if (error != 0 || after.key[0] == '\0' || is_same)
            return error;
    }
    return -EOVERFLOW;
}

void ps_s3_abort_upload(const struct ps_remote *r, const char *key, const char *id)
{
    struct ps_http_answer answer;
    char query[S3_UPLOAD_ID_BYTES * 3 + 16] = "uploadId=";
    const struct ps_s3_call c = {.method = "DELETE", .key = key, .query = query};
    if (ps_store_url_escape(query, sizeof(query), id, false))
        (void)ps_s3_perform(r, &c, &answer);
}

/* ---- parts ---- */

int ps_s3_upload_open(struct ps_s3_upload *u, size_t part_room)
{
    u->part = malloc(part_room);
    if (!u->part)
        return -ENOMEM;
    u->part_room = part_room;
    atomic_fetch_sub(u->memory, (long long)part_room);
    return 0;
}

int ps_s3_upload_reserve(struct ps_s3_upload *u, uint64_t bytes)
{
    const uint64_t wanted = bytes / PS_S3_PARTS_MAX + 1;
    if (wanted > PS_S3_PART_BYTES_MAX) {
        ps_store_explain(EFBIG, "a file of a core may have at most %llu GiB in S3: use more cores",
                         (unsigned long long)PS_S3_PART_BYTES_MAX * PS_S3_PARTS_MAX >> 30);
        return -EFBIG;
    }
    if (u->written > 0 || wanted <= u->part_room)
        return 0;
    uint8_t *part = realloc(u->part, PS_S3_PART_BYTES_MAX);
    if (!part)
        return -ENOMEM;
    u->part = part;
    atomic_fetch_sub(u->memory, (long long)(PS_S3_PART_BYTES_MAX - u->part_room));
    u->part_room = PS_S3_PART_BYTES_MAX;
    return 0;
}

static int begin_upload(struct ps_s3_upload *u)
{
    char *xml;
    struct ps_s3_call c = {.method = "POST", .key = u->key, .query = "uploads=", .has_body = true};
    int error = ps_s3_ask(u->remote, &c, &xml);
    if (error == 0 && !s3_xml_text(xml, "UploadId", u->id, sizeof(u->id))) {
        ps_store_explain(EPROTO, "the store does not begin an upload in parts; is it S3?");
        error = -EPROTO;
    }
    free(xml);
    return error;
}

static int send_part(void *arg, uint32_t number, const uint8_t *data, size_t bytes)
{
    struct ps_s3_upload *u = arg;
    struct ps_http_answer answer;
    char query[S3_UPLOAD_ID_BYTES * 3 + 48];
    (void)snprintf(query, sizeof(query), "partNumber=%u&uploadId=", number);
    if (!ps_store_url_escape(query, sizeof(query), u->id, false))
        return -ENAMETOOLONG;
    const struct ps_s3_call c = {
        .method = "PUT", .key = u->key, .query = query, .body = data, .body_bytes = bytes, .has_body = true};
    const int error = ps_s3_perform(u->remote, &c, &answer);
    if (error == 0)
        (void)snprintf(u->parts[number - 1].etag, sizeof(u->parts->etag), "%s", answer.etag);
    return error;
}

/* For the parts after the first `sent`. */
static int make_sender(struct ps_s3_upload *u, uint32_t sent)
{
    const struct ps_part_sender_options options = {
        .send = send_part, .arg = u, .room = u->part_room, .sent = sent, .memory = u->memory};
    if (!u->parts)
        u->parts = calloc(PS_S3_PARTS_MAX + 1, sizeof(*u->parts));
    u->sender = u->parts ? ps_part_sender_create(&options) : NULL;
    return u->sender ? 0 : -ENOMEM;
}

/* Puts the part that is full, or the last one, among those that are sent. */
static int put_part(struct ps_s3_upload *u)
{
    int error = u->sender ? 0 : make_sender(u, 0);
    if (error == 0 && u->id[0] == '\0')
        error = begin_upload(u);
    if (error == 0 && u->part_count == PS_S3_PARTS_MAX)
        error = -EFBIG;
    if (error != 0)
        return error;
    u->part_count++;
    error = ps_part_sender_put(u->sender, &u->part, u->part_bytes);
    u->part_bytes = 0;
    return error;
}

int64_t ps_s3_upload_write(struct ps_s3_upload *u, const void *data, size_t bytes)
{
    const int error = u->part_bytes == u->part_room ? put_part(u) : 0;
    if (error != 0)
        return error;
    const size_t room = u->part_room - u->part_bytes, taken = bytes < room ? bytes : room;
    memcpy(u->part + u->part_bytes, data, taken);
    u->part_bytes += taken;
    u->written += taken;
    return (int64_t)taken;
}

/* ---- its end ---- */

/* What an answer of status 200 says: S3 begins it before it knows whether the upload can be ended. Of an
 * error in it, *is_transient is set if the same request may succeed later. */
static int read_end(const char *xml, bool *is_transient)
{
    char code[64], ignored[64];
    if (s3_xml_text(xml, "Code", code, sizeof(code))) {
        *is_transient = strcmp(code, "InternalError") == 0 || strcmp(code, "ServiceUnavailable") == 0 ||
                        strcmp(code, "SlowDown") == 0 || strcmp(code, "RequestTimeout") == 0;
        ps_store_explain(EIO, "the upload could not be ended: %s", code);
        return -EIO;
    }
    if (s3_xml_text(xml, "CompleteMultipartUploadResult", ignored, sizeof(ignored)))
        return 0;
    ps_store_explain(EPROTO, "the store does not say that the upload has ended; is it S3?");
    return -EPROTO;
}

/* An upload whose end was answered, but not heard or not understood, is gone when it is ended again: the
 * object is there. */
static int complete(struct ps_s3_upload *u)
{
    char query[S3_UPLOAD_ID_BYTES * 3 + 16] = "uploadId=", *xml;
    uint64_t bytes;
    int64_t written_s;
    char *body = s3_xml_parts(u->parts, u->part_count);
    if (!body || !ps_store_url_escape(query, sizeof(query), u->id, false)) {
        free(body);
        return -ENOMEM;
    }
    struct ps_s3_call c = {.method = "POST",
                           .key = u->key,
                           .query = query,
                           .body = body,
                           .body_bytes = strlen(body),
                           .has_body = true,
                           .header = "Content-Type: application/xml"};
    bool is_transient = true;
    int error = 0;
    for (uint32_t i = 0; i == 0 || (is_transient && ps_http_try_again(u->remote->http, i)); i++) {
        is_transient = false;
        error = ps_s3_ask(u->remote, &c, &xml);
        if (error == 0)
            error = read_end(xml, &is_transient);
        free(xml);
    }
    free(body);
    if ((error == -ENOENT || error == -EPROTO) && ps_s3_head(u->remote, u->key, &bytes, &written_s) == 0 &&
        bytes == u->written)
        return 0;
    return error;
}

int ps_s3_upload_finish(struct ps_s3_upload *u)
{
    if (!u->sender)
        return ps_s3_put(u->remote, u->key, u->part, u->part_bytes, NULL);
    int error = u->part_bytes > 0 ? put_part(u) : 0;
    if (error == 0)
        error = ps_part_sender_finish(u->sender);
    return error == 0 ? complete(u) : error;
}

void ps_s3_upload_close(struct ps_s3_upload *u, bool is_finished)
{
    ps_part_sender_destroy(u->sender); /* none of them comes after the abort */
    if (u->id[0] != '\0' && !is_finished && !u->stays)
        ps_s3_abort_upload(u->remote, u->key, u->id);
    if (u->part_room > 0)
        atomic_fetch_add(u->memory, (long long)u->part_room);
    free(u->parts);
    free(u->part);
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
    char id[S3_UPLOAD_ID_BYTES];
};

void ps_s3_upload_mark(struct ps_s3_upload *u, struct ps_store_mark *mark)
{
    uint32_t count = u->sender ? ps_part_sender_sent(u->sender) : 0;
    if (count > u->written / u->part_room) /* the last part, which is shorter */
        count--;
    const XXH128_hash_t hash = hash_parts(u->parts, count);
    mark->bytes = (uint64_t)count * u->part_room;
    u->stays = u->stays || count > 0;
    (void)snprintf(mark->text, sizeof(mark->text), "%u %zu %016llx %016llx %s", count, u->part_room,
                   (unsigned long long)hash.low64, (unsigned long long)hash.high64, u->id);
}

static bool read_mark(const struct ps_store_mark *mark, struct upload_mark *out)
{
    unsigned long long low, high;
    int at = 0;
    if (mark->bytes == 0 ||
        sscanf(mark->text, "%u %zu %llx %llx %n", &out->count, &out->part_bytes, &low, &high, &at) != 4)
        return false;
    out->hash = (XXH128_hash_t){.low64 = low, .high64 = high};
    (void)snprintf(out->id, sizeof(out->id), "%s", mark->text + at);
    return out->id[0] != '\0' && out->count <= PS_S3_PARTS_MAX &&
           (out->part_bytes == PS_S3_PART_BYTES_MIN || out->part_bytes == PS_S3_PART_BYTES_MAX) &&
           mark->bytes == (uint64_t)out->count * out->part_bytes;
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

/* 0: all parts of the mark are there as they were sent, and in u->parts; -ESTALE: they are not. */
static int find_parts(struct ps_s3_upload *u, const struct upload_mark *wanted)
{
    struct part_check check = {.wanted = wanted, .parts = u->parts};
    struct s3_part_page page = {0};
    do {
        char query[S3_UPLOAD_ID_BYTES * 3 + 64] = "", *xml;
        if (page.next > 0) /* in the order of their names, as signatures want them */
            (void)snprintf(query, sizeof(query), "part-number-marker=%u&", page.next);
        if (!ps_store_url_append(query, sizeof(query), "uploadId=") ||
            !ps_store_url_escape(query, sizeof(query), wanted->id, false))
            return -ENAMETOOLONG;
        struct ps_s3_call c = {.method = "GET", .key = u->key, .query = query};
        const uint32_t before = page.next;
        const int error = ps_s3_ask(u->remote, &c, &xml);
        page = error == 0 ? s3_xml_listed_parts(xml, check_part, &check) : (struct s3_part_page){0};
        free(xml);
        if (error == -ENOENT || error == -EACCES) /* who may not see the parts sends them again */
            return -ESTALE;
        if (error != 0 || !page.is_good)
            return error != 0 ? error : -ESTALE;
        if (page.next <= before)
            break;
    } while (check.found < wanted->count);
    const XXH128_hash_t hash = hash_parts(u->parts, check.found);
    return check.found == wanted->count && XXH128_isEqual(hash, wanted->hash) ? 0 : -ESTALE;
}

/* Takes the upload up again where it was. */
static int take_up(struct ps_s3_upload *u, const struct upload_mark *wanted)
{
    u->parts = calloc(PS_S3_PARTS_MAX + 1, sizeof(*u->parts));
    if (!u->parts)
        return -ENOMEM;
    int error = find_parts(u, wanted);
    uint8_t *part = error == 0 ? realloc(u->part, wanted->part_bytes) : NULL;
    if (error == 0 && !part)
        error = -ENOMEM;
    if (error != 0) {
        free(u->parts);
        u->parts = NULL;
        return error;
    }
    u->part = part;
    atomic_fetch_sub(u->memory, (long long)wanted->part_bytes - (long long)u->part_room);
    u->part_room = wanted->part_bytes;
    error = make_sender(u, wanted->count);
    if (error != 0)
        return error;
    u->part_count = wanted->count;
    u->written = (uint64_t)wanted->count * wanted->part_bytes;
    u->stays = true;
    memcpy(u->id, wanted->id, sizeof(u->id));
    return 0;
}

int ps_s3_upload_resume(struct ps_s3_upload *u, const struct ps_store_mark *mark)
{
    struct upload_mark wanted;
    return read_mark(mark, &wanted) ? take_up(u, &wanted) : -ESTALE;
}
