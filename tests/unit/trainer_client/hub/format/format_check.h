/* Parsing a line from a block of exactly its size, so that the sanitizers see every byte read beyond it. The
 * test defines FORMAT, the name of one that is built in. */
#ifndef TESTS_FORMAT_CHECK_H
#define TESTS_FORMAT_CHECK_H

#include <stdlib.h>
#include <string.h>
#include "tests/unit/trainer_client/hub/format/formats_fixture.h"

static const struct hub_format *format; /* the one that is tested */
static struct hub_sample sample;
static char reason[HUB_REASON_BYTES];

static inline int make_formats_and_find(void **state)
{
    if (make_formats(state) != 0)
        return -1;
    format = hub_formats_find(formats, FORMAT);
    return format != NULL ? 0 : -1;
}

static inline enum hub_parse parse_bytes(const char *line, size_t bytes, uint64_t line_number)
{
    char *exact = malloc(bytes > 0 ? bytes : 1);
    assert_non_null(exact);
    memcpy(exact, line, bytes);
    reason[0] = '\0';
    memset(&sample, 0xa5, sizeof(sample));
    enum hub_parse parsed = hub_format_parse(format, exact, bytes, line_number, &sample, reason);
    free(exact);
    if (parsed == HUB_PARSED) {
        uint32_t end = 0;
        for (uint32_t slot = 0; slot < format->slots; slot++) {
            assert_true(sample.bag_end[slot] >= end);
            end = sample.bag_end[slot];
        }
        assert_int_equal(end, sample.key_count);
        assert_true(sample.key_count <= HUB_SAMPLE_KEYS_MAX);
    } else if (parsed == HUB_BROKEN) {
        assert_true(strlen(reason) > 0);
    }
    return parsed;
}

static inline enum hub_parse parse_line(const char *line)
{
    return parse_bytes(line, strlen(line), 2);
}

/* Any bytes whatever: lines made of pieces that look like the format's, by a seed. */
static inline void parse_garbage(const char *const *pieces, uint32_t count)
{
    unsigned int random = 1;
    char line[400];
    uint32_t broken = 0;
    for (int i = 0; i < 20000; i++) {
        size_t bytes = 0;
        while (bytes < 300 && rand_r(&random) % 12 != 0) {
            const char *piece = pieces[(uint32_t)rand_r(&random) % count];
            for (size_t c = 0; piece[c] != '\0'; c++)
                line[bytes++] = piece[c];
            if (rand_r(&random) % 20 == 0)
                line[bytes++] = (char)rand_r(&random);
        }
        enum hub_parse result = parse_bytes(line, bytes, 2);
        broken += result == HUB_BROKEN;
    }
    assert_true(broken > 1000); /* and none of it did harm */
}

#endif
