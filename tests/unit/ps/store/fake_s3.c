#include "fake_s3.h"

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

/* ---- signatures: docs.aws.amazon.com, "Signature Version 4 for API requests" ---- */

static void hmac(const void *key, size_t key_bytes, const char *text, uint8_t out[32])
{
    crypto_auth_hmacsha256_state state;
    (void)crypto_auth_hmacsha256_init(&state, key, key_bytes);
    (void)crypto_auth_hmacsha256_update(&state, (const uint8_t *)text, strlen(text));
    (void)crypto_auth_hmacsha256_final(&state, out);
}

static void sha256_hex(const void *data, size_t bytes, char hex[65])
{
    uint8_t hash[32];
    (void)crypto_hash_sha256(hash, data, bytes);
    (void)sodium_bin2hex(hex, 65, hash, sizeof(hash));
}

static int compare_pairs(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Sorted, and "=" behind each name. */
static void canonical_query(const struct http_server_request *r, char *out, size_t out_bytes)
{
    char query[4096], *rest = query, *pair, *pairs[16] = {NULL};
    const char *mark = strchr(r->target, '?');
    uint32_t count = 0;
    size_t at = 0;
    out[0] = '\0';
    (void)snprintf(query, sizeof(query), "%s", mark ? mark + 1 : "");
    while ((pair = strsep(&rest, "&")) != NULL && count < 16)
        if (*pair != '\0')
            pairs[count++] = pair;
    qsort(pairs, count, sizeof(*pairs), compare_pairs);
    for (uint32_t i = 0; i < count && at < out_bytes; i++)
        at += (size_t)snprintf(out + at, out_bytes - at, "%s%s%s", i > 0 ? "&" : "", pairs[i],
                               strchr(pairs[i], '=') ? "" : "=");
}

/* False: a header is signed that the request does not have. */
static bool canonical_request(const struct http_server_request *r, const char *signed_headers, char *out,
                              size_t out_bytes)
{
    char query[4096], names[512], value[1024], *rest = names, *name;
    size_t at;
    canonical_query(r, query, sizeof(query));
    at = (size_t)snprintf(out, out_bytes, "%s\n%.*s\n%s\n", r->method, (int)strcspn(r->target, "?"),
                          r->target, query);
    (void)snprintf(names, sizeof(names), "%s", signed_headers);
    while ((name = strsep(&rest, ";")) != NULL && at < out_bytes) {
        http_server_header(r, name, value, sizeof(value));
        if (value[0] == '\0')
            return false;
        at += (size_t)snprintf(out + at, out_bytes - at, "%s:%s\n", name, value);
    }
    http_server_header(r, "x-amz-content-sha256", value, sizeof(value));
    (void)snprintf(out + at, out_bytes - at, "\n%s\n%s", signed_headers, value);
    return true;
}

bool fake_s3_is_signed(const struct http_server_request *r, const char *secret)
{
    char authorization[1024], date[32], day[16], region[32], headers[512], signature[80], key[128];
    char canonical[8192], hash[65], text[256], expected[65];
    uint8_t k[32];
    http_server_header(r, "Authorization", authorization, sizeof(authorization));
    http_server_header(r, "x-amz-date", date, sizeof(date));
    if (sscanf(authorization,
               "AWS4-HMAC-SHA256 Credential=%*[^/]/%15[^/]/%31[^/]/s3/aws4_request, "
               "SignedHeaders=%511[^,], Signature=%79s",
               day, region, headers, signature) != 4 &&
        sscanf(authorization,
               "AWS4-HMAC-SHA256 Credential=%*[^/]/%15[^/]/%31[^/]/s3/aws4_request,"
               "SignedHeaders=%511[^,],Signature=%79s",
               day, region, headers, signature) != 4)
        return false;
    if (!canonical_request(r, headers, canonical, sizeof(canonical)))
        return false;
    sha256_hex(canonical, strlen(canonical), hash);
    (void)snprintf(text, sizeof(text), "AWS4-HMAC-SHA256\n%s\n%s/%s/s3/aws4_request\n%s", date, day, region,
                   hash);
    (void)snprintf(key, sizeof(key), "AWS4%s", secret);
    hmac(key, strlen(key), day, k);
    hmac(k, sizeof(k), region, k);
    hmac(k, sizeof(k), "s3", k);
    hmac(k, sizeof(k), "aws4_request", k);
    hmac(k, sizeof(k), text, k);
    (void)sodium_bin2hex(expected, sizeof(expected), k, sizeof(k));
    return strcmp(expected, signature) == 0;
}

static bool is_body_signed(const struct http_server_request *r)
{
    char said[80], hash[65];
    http_server_header(r, "x-amz-content-sha256", said, sizeof(said));
    sha256_hex(r->body, r->body_bytes, hash);
    return strcmp(said, hash) == 0;
}

/* ---- objects ---- */

static struct fake_s3_bytes copy_of(const void *data, size_t bytes)
{
    struct fake_s3_bytes b = {.data = malloc(bytes + 1), .bytes = bytes};
    if (!b.data)
        abort();
    if (bytes > 0)
        memcpy(b.data, data, bytes);
    return b;
}

static uint32_t place_of(const struct fake_s3 *s, const char *key)
{
    uint32_t i = 0;
    while (i < s->object_count && strcmp(s->objects[i].key, key) < 0)
        i++;
    return i;
}

static bool is_at(const struct fake_s3 *s, uint32_t i, const char *key)
{
    return i < s->object_count && strcmp(s->objects[i].key, key) == 0;
}

const struct fake_s3_bytes *fake_s3_object(const struct fake_s3 *s, const char *key)
{
    const uint32_t i = place_of(s, key);
    return is_at(s, i, key) ? &s->objects[i].content : NULL;
}

static void set_object(struct fake_s3 *s, const char *key, struct fake_s3_bytes content)
{
    const uint32_t i = place_of(s, key);
    if (is_at(s, i, key)) {
        free(s->objects[i].content.data);
    } else {
        if (s->object_count == FAKE_S3_OBJECTS_MAX)
            abort();
        memmove(&s->objects[i + 1], &s->objects[i], (s->object_count - i) * sizeof(s->objects[0]));
        s->object_count++;
        (void)snprintf(s->objects[i].key, sizeof(s->objects[i].key), "%s", key);
    }
    s->objects[i].content = content;
}

static void delete_object(struct fake_s3 *s, const char *key)
{
    const uint32_t i = place_of(s, key);
    if (!is_at(s, i, key))
        return;
    free(s->objects[i].content.data);
    s->object_count--;
    memmove(&s->objects[i], &s->objects[i + 1], (s->object_count - i) * sizeof(s->objects[0]));
}

static void answer_error(struct http_server_answer *a, int status, const char *code)
{
    const char *where = "";
    if (strcmp(code, "AuthorizationHeaderMalformed") == 0)
        where = "<Region>eu-north-1</Region>";
    if (strcmp(code, "PermanentRedirect") == 0)
        where = "<Endpoint>models.s3.eu-north-1.amazonaws.com</Endpoint>";
    http_server_say(a, status, "<?xml version=\"1.0\"?><Error><Code>%s</Code><Message>no</Message>%s</Error>",
                    code, where);
}

struct etag {
    char text[2 * sizeof(uint64_t) + 8];
};

/* A hash of the content. */
static struct etag etag_of(const struct fake_s3_bytes *content)
{
    struct etag etag;
    (void)snprintf(etag.text, sizeof(etag.text), "%016llx-x",
                   (unsigned long long)XXH3_64bits(content->data, content->bytes));
    return etag;
}

static void get(const struct fake_s3 *s, const struct http_server_request *r, const char *key,
                struct http_server_answer *a)
{
    const struct fake_s3_bytes *object = fake_s3_object(s, key);
    char range[64];
    size_t first = 0, last;
    if (!object) {
        answer_error(a, 404, "NoSuchKey");
        return;
    }
    http_server_header(r, "Range", range, sizeof(range));
    last = object->bytes - 1;
    a->status = sscanf(range, "bytes=%zu-%zu", &first, &last) == 2 ? 206 : 200;
    if (last >= object->bytes)
        last = object->bytes - 1;
    const struct fake_s3_bytes part = copy_of(object->data + first, object->bytes > 0 ? last - first + 1 : 0);

    a->body = part.data;
    a->body_bytes = part.bytes;
    const size_t at = strlen(a->headers);
    (void)snprintf(a->headers + at, sizeof(a->headers) - at,
                   "Last-Modified: Thu, 01 Jan 1970 00:01:40 GMT\r\nETag: \"%s\"\r\n", etag_of(object).text);
}

static void fake_s3_put(struct fake_s3 *s, const struct http_server_request *r, const char *key,
                        struct http_server_answer *a)
{
    char condition[8];
    http_server_header(r, "If-None-Match", condition, sizeof(condition));
    if (condition[0] == '*' && s->knows_no_conditions) {
        answer_error(a, 501, "NotImplemented");
        return;
    }
    if (condition[0] == '*' && fake_s3_object(s, key)) {
        answer_error(a, 412, "PreconditionFailed");
        return;
    }
    set_object(s, key, copy_of(r->body, r->body_bytes));
    a->status = 200;
}

/* ---- uploads ---- */

static uint32_t find_upload(const struct fake_s3 *s, const char *id)
{
    uint32_t i = 0;
    while (i < FAKE_S3_UPLOADS_MAX && strcmp(s->uploads[i].id, id) != 0)
        i++;
    return i;
}

static void end_upload(struct fake_s3 *s, uint32_t i)
{
    for (uint32_t p = 0; p < FAKE_S3_PARTS_MAX; p++)
        free(s->uploads[i].parts[p].data);
    memset(&s->uploads[i], 0, sizeof(s->uploads[i]));
}

static void begin_upload(struct fake_s3 *s, const char *key, struct http_server_answer *a)
{
    const uint32_t i = find_upload(s, "");
    if (i == FAKE_S3_UPLOADS_MAX)
        abort();
    (void)snprintf(s->uploads[i].key, sizeof(s->uploads[i].key), "%s", key);
    (void)snprintf(s->uploads[i].id, sizeof(s->uploads[i].id), "up load/%u", ++s->next_upload);
    http_server_say(a, 200,
                    "<InitiateMultipartUploadResult><UploadId>%s</UploadId></InitiateMultipartUploadResult>",
                    s->uploads[i].id);
}

static void put_part(struct fake_s3 *s, uint32_t i, const struct http_server_request *r,
                     struct http_server_answer *a)
{
    char text[16];
    const int number = http_server_parameter(r, "partNumber", text, sizeof(text)) ? atoi(text) : 0;
    if (number < 1 || number > FAKE_S3_PARTS_MAX)
        abort();
    free(s->uploads[i].parts[number - 1].data);
    s->uploads[i].parts[number - 1] = copy_of(r->body, r->body_bytes);
    (void)snprintf(a->headers, sizeof(a->headers), "ETag: \"%s\"\r\n",
                   etag_of(&s->uploads[i].parts[number - 1]).text);
    a->status = 200;
}

/* Every part that was put must be listed, with its ETag. */
static void complete(struct fake_s3 *s, uint32_t i, const struct http_server_request *r,
                     struct http_server_answer *a)
{
    if (s->end_errors > 0) {
        s->end_errors--;
        if (s->end_error[0] != '\0')
            answer_error(a, 200, s->end_error);
        else
            a->status = 200;
        return;
    }
    struct fake_s3_bytes all = copy_of(NULL, 0);
    char expected[2048] = "<CompleteMultipartUpload>";
    for (uint32_t p = 0; p < FAKE_S3_PARTS_MAX && s->uploads[i].parts[p].data; p++) {
        const struct fake_s3_bytes *part = &s->uploads[i].parts[p];
        const size_t at = strlen(expected);
        (void)snprintf(expected + at, sizeof(expected) - at,
                       "<Part><PartNumber>%u</PartNumber><ETag>&quot;%s&quot;</ETag></Part>", p + 1,
                       etag_of(part).text);
        all.data = realloc(all.data, all.bytes + part->bytes + 1);
        if (!all.data)
            abort();
        memcpy(all.data + all.bytes, part->data, part->bytes);
        all.bytes += part->bytes;
    }
    const size_t at = strlen(expected);
    (void)snprintf(expected + at, sizeof(expected) - at, "</CompleteMultipartUpload>");
    if (r->body_bytes != strlen(expected) || memcmp(r->body, expected, r->body_bytes) != 0) {
        free(all.data);
        answer_error(a, 200, "InvalidPart");
        return;
    }
    set_object(s, s->uploads[i].key, all);
    end_upload(s, i);
    http_server_say(a, 200, "<CompleteMultipartUploadResult><Key>x</Key></CompleteMultipartUploadResult>");
}

/* One part a page. */
static void list_parts(const struct fake_s3 *s, uint32_t i, const struct http_server_request *r,
                       struct http_server_answer *a)
{
    char marker[16];
    uint32_t p = http_server_parameter(r, "part-number-marker", marker, sizeof(marker))
                     ? (uint32_t)strtoul(marker, NULL, 10)
                     : 0;
    while (p < FAKE_S3_PARTS_MAX && !s->uploads[i].parts[p].data)
        p++;
    const struct fake_s3_bytes *part = p < FAKE_S3_PARTS_MAX ? &s->uploads[i].parts[p] : NULL;

    if (!part)
        http_server_say(a, 200, "<ListPartsResult><IsTruncated>false</IsTruncated></ListPartsResult>");
    else
        http_server_say(a, 200,
                        "<ListPartsResult><NextPartNumberMarker>%u</NextPartNumberMarker>"
                        "<IsTruncated>true</IsTruncated><Part><PartNumber>%u</PartNumber>"
                        "<ETag>&quot;%s&quot;</ETag><Size>%zu</Size></Part></ListPartsResult>",
                        p + 1, p + 1, etag_of(part).text, part->bytes);
}

static void handle_upload(struct fake_s3 *s, const char *id, const struct http_server_request *r,
                          struct http_server_answer *a)
{
    const uint32_t i = find_upload(s, id);
    if (i == FAKE_S3_UPLOADS_MAX)
        answer_error(a, 404, "NoSuchUpload");
    else if (strcmp(r->method, "PUT") == 0)
        put_part(s, i, r, a);
    else if (strcmp(r->method, "POST") == 0)
        complete(s, i, r, a);
    else if (strcmp(r->method, "GET") == 0)
        list_parts(s, i, r, a);
    else {
        end_upload(s, i);
        a->status = 204;
    }
}

/* ---- listings ---- */

static void list_objects(const struct fake_s3 *s, const struct http_server_request *r,
                         struct http_server_answer *a)
{
    char prefix[300] = "", token[300] = "", xml[16384] = "<ListBucketResult>";
    uint32_t count = 0, i = 0;
    size_t at = strlen(xml);
    (void)http_server_parameter(r, "prefix", prefix, sizeof(prefix));
    (void)http_server_parameter(r, "continuation-token", token, sizeof(token));
    for (; i < s->object_count && count < FAKE_S3_PAGE; i++) {
        if (strncmp(s->objects[i].key, prefix, strlen(prefix)) != 0 || strcmp(s->objects[i].key, token) <= 0)
            continue;
        at += (size_t)snprintf(xml + at, sizeof(xml) - at, "<Contents><Key>%s</Key></Contents>",
                               s->objects[i].key);
        count++;
    }
    if (count == FAKE_S3_PAGE)
        (void)snprintf(xml + at, sizeof(xml) - at, "<NextContinuationToken>%s</NextContinuationToken>",
                       s->objects[i - 1].key);
    http_server_say(a, 200, "%s</ListBucketResult>", xml);
}

static int compare_upload(const struct fake_s3 *s, uint32_t i, const char *key, const char *id)
{
    const int order = strcmp(s->uploads[i].key, key);
    return order != 0 ? order : strcmp(s->uploads[i].id, id);
}

/* The first upload after that place, by key and id; FAKE_S3_UPLOADS_MAX: there is none. */
static uint32_t next_upload(const struct fake_s3 *s, const char *prefix, const char *key, const char *id)
{
    uint32_t next = FAKE_S3_UPLOADS_MAX;
    for (uint32_t i = 0; i < FAKE_S3_UPLOADS_MAX; i++)
        if (s->uploads[i].id[0] != '\0' && strncmp(s->uploads[i].key, prefix, strlen(prefix)) == 0 &&
            compare_upload(s, i, key, id) > 0 &&
            (next == FAKE_S3_UPLOADS_MAX ||
             compare_upload(s, i, s->uploads[next].key, s->uploads[next].id) < 0))
            next = i;
    return next;
}

static void list_uploads(const struct fake_s3 *s, const struct http_server_request *r,
                         struct http_server_answer *a)
{
    char prefix[300] = "", key[300] = "", id[32] = "", xml[16384] = "<ListMultipartUploadsResult>";
    size_t at = strlen(xml);
    (void)http_server_parameter(r, "prefix", prefix, sizeof(prefix));
    (void)http_server_parameter(r, "key-marker", key, sizeof(key));
    (void)http_server_parameter(r, "upload-id-marker", id, sizeof(id));
    uint32_t i = next_upload(s, prefix, key, id);
    for (uint32_t count = 0; i < FAKE_S3_UPLOADS_MAX && count < FAKE_S3_PAGE; count++) {
        at += (size_t)snprintf(xml + at, sizeof(xml) - at,
                               "<Upload><Key>%s</Key><UploadId>%s</UploadId></Upload>", s->uploads[i].key,
                               s->uploads[i].id);
        memcpy(key, s->uploads[i].key, sizeof(key));
        memcpy(id, s->uploads[i].id, sizeof(id));
        i = next_upload(s, prefix, key, id);
    }
    if (i < FAKE_S3_UPLOADS_MAX)
        (void)snprintf(xml + at, sizeof(xml) - at,
                       "<NextKeyMarker>%s</NextKeyMarker><NextUploadIdMarker>%s</NextUploadIdMarker>"
                       "<IsTruncated>true</IsTruncated>",
                       key, id);
    http_server_say(a, 200, "%s</ListMultipartUploadsResult>", xml);
}

/* ---- the server ---- */

void fake_s3_handle(void *arg, const struct http_server_request *r, struct http_server_answer *a)
{
    static const char bucket[] = "/" FAKE_S3_BUCKET "/";
    struct fake_s3 *s = arg;
    char path[300], id[64];
    http_server_path(r, path, sizeof(path));
    if (!fake_s3_is_signed(r, FAKE_S3_SECRET_KEY) || !is_body_signed(r)) {
        s->bad_signatures++;
        answer_error(a, 403, "SignatureDoesNotMatch");
    } else if (s->refuses_head && strcmp(r->method, "HEAD") == 0) {
        answer_error(a, 403, "AccessDenied");
    } else if (s->error) {
        answer_error(a, strcmp(s->error, "PermanentRedirect") == 0 ? 301 : 403, s->error);
    } else if (strncmp(path, bucket, strlen(bucket)) != 0) {
        answer_error(a, 404, "NoSuchBucket");
    } else if (http_server_parameter(r, "uploadId", id, sizeof(id))) {
        handle_upload(s, id, r, a);
    } else if (http_server_parameter(r, "uploads", id, sizeof(id))) {
        if (strcmp(r->method, "POST") == 0)
            begin_upload(s, path + strlen(bucket), a);
        else
            list_uploads(s, r, a);
    } else if (http_server_parameter(r, "list-type", id, sizeof(id))) {
        list_objects(s, r, a);
    } else if (strcmp(r->method, "PUT") == 0) {
        fake_s3_put(s, r, path + strlen(bucket), a);
    } else if (strcmp(r->method, "DELETE") == 0) {
        delete_object(s, path + strlen(bucket));
        a->status = 204;
    } else {
        get(s, r, path + strlen(bucket), a);
    }
}

void fake_s3_clear(struct fake_s3 *s)
{
    for (uint32_t i = 0; i < s->object_count; i++)
        free(s->objects[i].content.data);
    for (uint32_t i = 0; i < FAKE_S3_UPLOADS_MAX; i++)
        end_upload(s, i);
    memset(s, 0, sizeof(*s));
}

uint32_t fake_s3_upload_count(const struct fake_s3 *s)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < FAKE_S3_UPLOADS_MAX; i++)
        count += s->uploads[i].id[0] != '\0';
    return count;
}
