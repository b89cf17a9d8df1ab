/* The readers of S3's answers on any bytes: what they find is text of the answer that fits its buffer. */
#include <string.h>
#include "ps/store/s3_xml.h"
#include "tests/fuzz/fuzz_assert.h"

static void check_key(void *arg, const char *key)
{
    FUZZ_ASSERT(strlen(key) < *(const size_t *)arg);
}

static void check_upload(void *arg, const char *key, const char *upload)
{
    check_key(arg, key);
    FUZZ_ASSERT(upload[0] != '\0' && strlen(upload) < S3_UPLOAD_ID_BYTES);
}

static void check_part(void *arg, uint32_t number, uint64_t part_bytes, const char *etag)
{
    (void)number, (void)part_bytes;
    check_key(arg, etag);
    FUZZ_ASSERT(strlen(etag) < sizeof(((struct s3_part *)0)->etag));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    char *xml = malloc(bytes + 1), code[16] = "before", next[S3_TOKEN_BYTES];
    FUZZ_ASSERT(xml != NULL);
    memcpy(xml, data, bytes);
    xml[bytes] = '\0';
    bytes = 4 * bytes + 1; /* there are no entities that grow, but other encodings than UTF-8 */
    const bool is_found = s3_xml_text(xml, "Code", code, sizeof(code));
    FUZZ_ASSERT(is_found ? strlen(code) < sizeof(code) : strcmp(code, "before") == 0);
    (void)s3_xml_listing(xml, check_key, &bytes, next);
    FUZZ_ASSERT(strlen(next) < sizeof(next));
    struct s3_upload_marker after;
    s3_xml_uploads(xml, check_upload, &bytes, &after);
    FUZZ_ASSERT(strlen(after.key) < sizeof(after.key) && strlen(after.id) < sizeof(after.id));
    (void)s3_xml_listed_parts(xml, check_part, &bytes);
    free(xml);
    return 0;
}
