/* Descriptions of formats: up to the first NUL byte the input is one. What follows are lines that a format
 * which was described is to read; the first may be a header. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tests/fuzz/fuzz_assert.h"
#include "trainer_client/hub/format/format.h"

static void read_lines(const struct hub_format *format, const char *text, size_t bytes)
{
    static struct hub_sample sample;
    char reason[HUB_REASON_BYTES];
    for (uint64_t number = 1; bytes > 0; number++) {
        const char *line_end = memchr(text, '\n', bytes);
        size_t line_bytes = line_end != NULL ? (size_t)(line_end - text) : bytes;
        char *line = malloc(line_bytes + 1); /* of its size, so that reads beyond it are found */
        FUZZ_ASSERT(line != NULL);
        memcpy(line, text, line_bytes);
        reason[0] = '\0';
        enum hub_parse parsed = line_bytes <= HUB_LINE_BYTES_MAX
                                    ? hub_format_parse(format, line, line_bytes, number, &sample, reason)
                                    : HUB_NO_SAMPLE;
        free(line);
        FUZZ_ASSERT((parsed == HUB_BROKEN) == (reason[0] != '\0'));
        FUZZ_ASSERT(parsed != HUB_PARSED || sample.bag_end[format->slots - 1] == sample.key_count);
        text += line_bytes;
        bytes -= line_bytes;
        if (bytes > 0) {
            text++;
            bytes--;
        }
    }
}

static void read_samples(const struct hub_format *format, const char *text, size_t bytes)
{
    char reason[HUB_REASON_BYTES];
    FUZZ_ASSERT(format->slots >= 1 && format->slots <= HUB_SLOTS_MAX && format->dense <= HUB_DENSE_MAX);
    if (!hub_format_has_names(format)) {
        read_lines(format, text, bytes);
        return;
    }
    const char *line_end = memchr(text, '\n', bytes);
    size_t line_bytes = line_end != NULL ? (size_t)(line_end - text) : bytes;
    if (line_bytes > HUB_LINE_BYTES_MAX)
        return;
    struct hub_format *bound = hub_format_bind(format, text, line_bytes, reason);
    if (bound != NULL)
        read_lines(bound, text, bytes);
    hub_format_free(bound);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    char error[HUB_FORMAT_ERROR_BYTES];
    const uint8_t *text_end = memchr(data, 0, bytes);
    size_t text_bytes = text_end != NULL ? (size_t)(text_end - data) : bytes;
    struct hub_format *format = NULL;
    if (text_bytes == 0)
        return 0;
    FILE *file = fmemopen((void *)(uintptr_t)data, text_bytes, "r");
    FUZZ_ASSERT(file != NULL);
    enum mr_status status = hub_format_read(file, "fuzz.ini", &format, error);
    (void)fclose(file);
    FUZZ_ASSERT(status == MR_OK || (status == MR_INVALID_ARGUMENT && strncmp(error, "fuzz.ini:", 9) == 0));
    if (status == MR_OK && text_end != NULL)
        read_samples(format, (const char *)text_end + 1, bytes - text_bytes - 1);
    hub_format_free(format);
    return 0;
}
