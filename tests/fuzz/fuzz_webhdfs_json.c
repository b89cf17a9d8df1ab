/* The readers of WebHDFS's answers on any bytes: what they find fits its buffer, and what is no answer leaves
 * no mark. */
#include <string.h>
#include "ps/store/webhdfs_json.h"
#include "tests/fuzz/fuzz_assert.h"

static void check_name(void *arg, const char *name)
{
    FUZZ_ASSERT(strlen(name) < WEBHDFS_NAME_BYTES);
    (void)snprintf(arg, WEBHDFS_NAME_BYTES, "%s", name);
}

static void check_listing(const char *json, size_t bytes)
{
    char last[WEBHDFS_NAME_BYTES] = "", seen[WEBHDFS_NAME_BYTES] = "";
    bool is_last = false;
    if (!webhdfs_json_listing(json, bytes, check_name, seen, last, &is_last))
        FUZZ_ASSERT(!is_last && seen[0] == '\0');
    FUZZ_ASSERT(strcmp(last, seen) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    const struct webhdfs_status before = {.bytes = UINT64_MAX, .written_ms = 1};
    struct webhdfs_status status = before;
    char *json = malloc(bytes + 1), exception[WEBHDFS_WORD_BYTES], message[WEBHDFS_MESSAGE_BYTES];
    bool is_done;
    FUZZ_ASSERT(json != NULL);
    memcpy(json, data, bytes);
    json[bytes] = '\0';
    (void)webhdfs_json_boolean(json, bytes, &is_done);
    if (webhdfs_json_status(json, bytes, &status))
        FUZZ_ASSERT(status.bytes <= INT64_MAX);
    else
        FUZZ_ASSERT(status.bytes == before.bytes && status.written_ms == before.written_ms);
    check_listing(json, bytes);
    if (webhdfs_json_error(json, exception, message))
        FUZZ_ASSERT(strlen(exception) < sizeof(exception) && !strpbrk(message, "\r\n"));
    free(json);
    return 0;
}
