/* Requests to S3, and what its errors mean. They return 0 or a negative errno, and ps_store_explanation()
 * says more. Any thread. */
#ifndef PS_STORE_S3_REQUEST_H
#define PS_STORE_S3_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ps/store/credentials.h"
#include "ps/store/http.h"
#include "ps/store/remote_store.h"

/* Where requests go. The `kind` of the remote store that they are made by begins with it. */
struct ps_s3_bucket {
    char base[PS_HTTP_URL_BYTES];            /* "https://host" or "https://host/bucket" */
    char token_header[PS_SECRET_BYTES + 32]; /* of a session; "": none */
    bool is_payload_signed;                  /* what HTTPS does not protect */
};

struct ps_s3_call {
    const char *method, *key, *query; /* without "?"; NULL: none */
    const void *body;
    size_t body_bytes;
    bool has_body;
    const char *header; /* NULL: none further */
    void *into;
    size_t into_bytes;
};

int ps_s3_perform(const struct ps_remote *r, const struct ps_s3_call *c, struct ps_http_answer *answer);
/* A request whose answer is XML: *xml is to be freed, also after an error. */
int ps_s3_ask(const struct ps_remote *r, struct ps_s3_call *c, char **xml);
int ps_s3_head(const struct ps_remote *r, const char *key, uint64_t *bytes, int64_t *written_s);
/* Its length, and the ETag that it has as long as nobody writes it again. */
int ps_s3_head_mark(const struct ps_remote *r, const char *key, struct ps_store_mark *mark);
int ps_s3_delete(const struct ps_remote *r, const char *key);
int ps_s3_put(const struct ps_remote *r, const char *key, const void *data, size_t bytes, const char *header);
/* For struct ps_remote. */
int ps_s3_explain(const struct ps_http_answer *answer, int error_number, bool *is_transient, char *text,
                  size_t text_bytes);

#endif
