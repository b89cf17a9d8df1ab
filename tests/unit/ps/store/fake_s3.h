/* S3 in memory, on an http_server: objects, ranges, uploads in parts, listings of a few keys a page, and
 * If-None-Match. It refuses a request whose signature (version 4) or hash of the body is wrong. For tests.
 */
#ifndef TESTS_FAKE_S3_H
#define TESTS_FAKE_S3_H

#include "http_server.h"

#define FAKE_S3_ACCESS_KEY "AKIAIOSFODNN7EXAMPLE"
#define FAKE_S3_SECRET_KEY "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
#define FAKE_S3_BUCKET     "models"
#define FAKE_S3_PAGE       3u /* keys, or uploads, of a listing */

enum { FAKE_S3_OBJECTS_MAX = 256, FAKE_S3_UPLOADS_MAX = 16, FAKE_S3_PARTS_MAX = 8 };

struct fake_s3_bytes {
    uint8_t *data;
    size_t bytes;
};

struct fake_s3 {
    struct {
        char key[300]; /* "": free; sorted otherwise */
        struct fake_s3_bytes content;
    } objects[FAKE_S3_OBJECTS_MAX];
    uint32_t object_count;
    struct {
        char key[300], id[32]; /* "": free */
        struct fake_s3_bytes parts[FAKE_S3_PARTS_MAX];
    } uploads[FAKE_S3_UPLOADS_MAX];
    uint32_t next_upload, bad_signatures;
    bool refuses_head;        /* with status 403 */
    bool knows_no_conditions; /* like Swift: If-None-Match is refused */
    const char
        *end_error; /* so many requests that end an upload are answered with this code, with status 200; */
    uint32_t end_errors; /* "": with an empty body */
    const char *error;   /* not NULL: the code that every request is answered with, with status 403 */
};

http_server_handler fake_s3_handle; /* its argument is a struct fake_s3 */
void fake_s3_clear(struct fake_s3 *s3);
/* Returns the object; NULL: there is none. */
const struct fake_s3_bytes *fake_s3_object(const struct fake_s3 *s3, const char *key);
uint32_t fake_s3_upload_count(const struct fake_s3 *s3);
/* Whether the request was signed with the secret key. */
bool fake_s3_is_signed(const struct http_server_request *request, const char *secret);

#endif
