#include "ps/store/s3_request.h"

#include <errno.h>
#include <openssl/sha.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "ps/store/s3_xml.h"

#define ANSWER_BYTES      (4u << 20) /* of XML: a page of a listing */
#define HASH_HEADER_BYTES 96u

static void hash_header(const struct ps_s3_bucket *bucket, const struct ps_s3_call *c,
                        char out[HASH_HEADER_BYTES])
{
    unsigned char hash[SHA256_DIGEST_LENGTH];
    char hex[2 * sizeof(hash) + 1] = "UNSIGNED-PAYLOAD";
    if (bucket->is_payload_signed || c->body_bytes == 0) {
        (void)SHA256(c->body, c->body_bytes, hash);
        (void)sodium_bin2hex(hex, sizeof(hex), hash, sizeof(hash));
    }
    (void)snprintf(out, HASH_HEADER_BYTES, "x-amz-content-sha256: %.64s", hex);
}

int ps_s3_perform(const struct ps_remote *r, const struct ps_s3_call *c, struct ps_http_answer *answer)
{
    const struct ps_s3_bucket *bucket = r->kind;
    char url[PS_HTTP_URL_BYTES], hash[HASH_HEADER_BYTES];
    url[0] = '\0';
    if (!ps_store_url_append(url, sizeof(url), bucket->base) || !ps_store_url_append(url, sizeof(url), "/") ||
        !ps_store_url_escape(url, sizeof(url), c->key, true))
        return -ENAMETOOLONG;
    if (c->query &&
        (!ps_store_url_append(url, sizeof(url), "?") || !ps_store_url_append(url, sizeof(url), c->query)))
        return -ENAMETOOLONG;
    hash_header(bucket, c, hash);
    const struct ps_http_request request = {
        .method = c->method,
        .url = url,
        .headers = {hash, bucket->token_header[0] != '\0' ? bucket->token_header : NULL, c->header, NULL},
        .body = c->body,
        .body_bytes = c->body_bytes,
        .has_body = c->has_body,
        .into = c->into,
        .into_bytes = c->into_bytes};
    return ps_http_perform(r->http, &request, answer);
}

int ps_s3_ask(const struct ps_remote *r, struct ps_s3_call *c, char **xml)
{
    struct ps_http_answer answer;
    *xml = malloc(ANSWER_BYTES);
    if (!*xml)
        return -ENOMEM;
    c->into = *xml;
    c->into_bytes = ANSWER_BYTES - 1;
    const int error = ps_s3_perform(r, c, &answer);
    (*xml)[error == 0 ? answer.body_bytes : 0] = '\0';
    if (error != -ENOENT || answer.error_body[0] == '<')
        return error;
    ps_store_explain(EPROTO, "this is not S3 (HTTP status 404); is the endpoint right?");
    return -EPROTO;
}

/* An answer to HEAD has no body, which is where S3 says why: a GET of one byte is refused with the reason. */
static int s3_head(const struct ps_remote *r, const char *key, struct ps_http_answer *answer)
{
    struct ps_http_answer told;
    uint8_t byte;
    const struct ps_s3_call head = {.method = "HEAD", .key = key};
    const struct ps_s3_call get = {
        .method = "GET", .key = key, .header = "Range: bytes=0-0", .into = &byte, .into_bytes = 1};
    answer->status = 0; /* a name that is too long is not asked for */
    const int error = ps_s3_perform(r, &head, answer);
    if (error == 0 || error == -ENOENT || answer->status < 300 || answer->status >= 500)
        return error;
    const int said = ps_s3_perform(r, &get, &told);
    if (said != 0 && said != -EMSGSIZE && said != -ENOENT)
        return said;
    ps_store_explain(-error, "the store refuses HEAD (HTTP status %ld) and allows GET: is it S3?",
                     answer->status);
    return error;
}

int ps_s3_head(const struct ps_remote *r, const char *key, uint64_t *bytes, int64_t *written_s)
{
    struct ps_http_answer answer;
    const int error = s3_head(r, key, &answer);
    if (error == 0) {
        *bytes = answer.length;
        *written_s = answer.modified_s;
    }
    return error;
}

int ps_s3_head_mark(const struct ps_remote *r, const char *key, struct ps_store_mark *mark)
{
    struct ps_http_answer answer;
    const int error = s3_head(r, key, &answer);
    mark->bytes = error == 0 && answer.etag[0] != '\0' ? answer.length : 0;
    (void)snprintf(mark->text, sizeof(mark->text), "%s", error == 0 ? answer.etag : "");
    return error;
}

int ps_s3_delete(const struct ps_remote *r, const char *key)
{
    struct ps_http_answer answer;
    const struct ps_s3_call c = {.method = "DELETE", .key = key};
    return ps_s3_perform(r, &c, &answer);
}

int ps_s3_put(const struct ps_remote *r, const char *key, const void *data, size_t bytes, const char *header)
{
    struct ps_http_answer answer;
    const struct ps_s3_call c = {
        .method = "PUT", .key = key, .body = data, .body_bytes = bytes, .has_body = true, .header = header};
    return ps_s3_perform(r, &c, &answer);
}

/* ---- what errors mean ---- */

static const struct ps_http_meaning meanings[] = {
    {"NoSuchBucket", ENXIO, false, "make the bucket, or name another one"},
    {"NoSuchKey", ENOENT, false, "there is no such object"},
    {"InvalidAccessKeyId", EACCES, false, "the store does not know this access key: check the credentials"},
    {"SignatureDoesNotMatch", EACCES, false, "the secret key is wrong, or the region: check both"},
    {"AccessDenied", EACCES, false, "allow this key s3:ListBucket, GetObject, PutObject and DeleteObject"},
    {"ExpiredToken", EACCES, false, "the session token has expired: get another one"},
    {"RequestTimeTooSkewed", EACCES, false,
     "the clocks of this machine and of the store differ too much: sudo timedatectl set-ntp true"},
    {"AuthorizationHeaderMalformed", EACCES, false, "the region is wrong: set region in the URL"},
    {"PermanentRedirect", EXDEV, false, "the bucket is in another region: set region in the URL"},
    {"TemporaryRedirect", EAGAIN, true, "the bucket is new, and its name not known everywhere yet"},
    {"QuotaExceeded", EDQUOT, false, "the bucket's quota is used up"},
    {"RequestTimeout", EIO, true, "the store has waited for our bytes in vain"},
    {"NotImplemented", EOPNOTSUPP, false, "the store does not know this kind of request"},
    {"SlowDown", EAGAIN, true, "the store asks to slow down: lower checkpoint.remote_rate_mib_s"},
};

int ps_s3_explain(const struct ps_http_answer *answer, int error_number, bool *is_transient, char *text,
                  size_t text_bytes)
{
    char code[64] = "", message[128] = "", where[96] = "";
    s3_xml_text(answer->error_body, "Code", code, sizeof(code));
    s3_xml_text(answer->error_body, "Message", message, sizeof(message));
    s3_xml_text(answer->error_body, "Region", where, sizeof(where));
    if (where[0] == '\0')
        s3_xml_text(answer->error_body, "Endpoint", where, sizeof(where));
    if (ps_http_mean(meanings, sizeof(meanings) / sizeof(*meanings), code, &error_number, is_transient, text,
                     text_bytes)) {
        const size_t used = strlen(text);
        if (where[0] != '\0' && error_number != EAGAIN)
            (void)snprintf(text + used, text_bytes - used, " (it is %s)", where);
        return error_number;
    }
    if (code[0] != '\0')
        (void)snprintf(text, text_bytes, "%s: %s (HTTP status %ld)", code, message, answer->status);
    else if (error_number == EACCES)
        (void)snprintf(text, text_bytes,
                       "not let in (HTTP status %ld); check the credentials, and what they may do",
                       answer->status);
    return error_number;
}
