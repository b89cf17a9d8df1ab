#include "trainer_client/hub/samples/lines.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>
#include "trainer_client/hub/format/sample.h"

bool hub_lines_init(struct hub_lines *l, struct hub_file_bytes *bytes, size_t read_bytes)
{
    *l = (struct hub_lines){.bytes = bytes, .read_bytes = read_bytes, .line_number = 1};
    l->capacity = HUB_LINE_BYTES_MAX + 2 + read_bytes; /* the longest line with "\r\n", and one more read */
    l->buffer = malloc(l->capacity);
    return l->buffer != NULL;
}

void hub_lines_free(struct hub_lines *l)
{
    free(l->buffer);
    l->buffer = NULL;
}

void hub_lines_change(struct hub_lines *l, struct hub_file_bytes *bytes)
{
    l->bytes = bytes;
    l->begin = l->end = 0;
    l->offset = 0;
    l->line_number = 1;
    l->at_end = l->has_failed = false;
}

void hub_lines_seek(struct hub_lines *l, uint64_t offset, uint64_t line_number)
{
    /* Often the next sample lies in what has been read. */
    if (offset >= l->offset && offset - l->offset < l->end - l->begin) {
        l->begin += offset - l->offset;
    } else {
        l->begin = l->end = 0;
        l->at_end = false;
    }
    l->offset = offset;
    l->line_number = line_number;
}

/* Reads more bytes after those in the buffer. False: there are none, or no room for them. */
static bool lines_fill(struct hub_lines *l)
{
    if (l->at_end || l->has_failed)
        return false;
    if (l->capacity - l->end < l->read_bytes) {
        memmove(l->buffer, l->buffer + l->begin, l->end - l->begin);
        l->end -= l->begin;
        l->begin = 0;
    }
    if (l->capacity - l->end < l->read_bytes)
        return false;
    ssize_t n =
        hub_file_bytes_read(l->bytes, l->buffer + l->end, l->read_bytes, l->offset + (l->end - l->begin));
    if (n <= 0) {
        l->has_failed = n < 0;
        l->at_end = true;
        return false;
    }
    if (l->digest != NULL)
        XXH3_64bits_update(l->digest, l->buffer + l->end, (size_t)n);
    l->end += (size_t)n;
    return true;
}

static void lines_take(struct hub_lines *l, size_t bytes)
{
    l->begin += bytes;
    l->offset += bytes;
}

/* Drop the rest of a line that does not fit: up to and with its line end. */
static void skip_line(struct hub_lines *l)
{
    for (;;) {
        char *line_end = memchr(l->buffer + l->begin, '\n', l->end - l->begin);
        if (line_end != NULL) {
            lines_take(l, (size_t)(line_end - (l->buffer + l->begin)) + 1);
            return;
        }
        lines_take(l, l->end - l->begin);
        l->begin = l->end = 0;
        if (!lines_fill(l))
            return;
    }
}

bool hub_line_find(const char *text, size_t bytes, size_t looked, size_t *line_bytes, bool *is_whole)
{
    const char *line_end = bytes > looked ? memchr(text + looked, '\n', bytes - looked) : NULL;
    *is_whole = line_end != NULL;
    *line_bytes = line_end != NULL ? (size_t)(line_end - text) : bytes;
    return *is_whole || bytes > HUB_LINE_BYTES_MAX + 1;
}

size_t hub_line_trim(const char *text, size_t bytes)
{
    return bytes - (bytes > 0 && text[bytes - 1] == '\r');
}

bool hub_lines_next(struct hub_lines *l, struct hub_line *line)
{
    size_t bytes, looked = 0;
    bool is_whole;
    while (!hub_line_find(l->buffer + l->begin, l->end - l->begin, looked, &bytes, &is_whole)) {
        looked = l->end - l->begin;
        if (!lines_fill(l))
            break;
    }
    if ((!is_whole && bytes == 0) || l->has_failed)
        return false;
    line->text = l->buffer + l->begin;
    line->number = l->line_number++;
    line->offset = l->offset;
    line->bytes = hub_line_trim(line->text, bytes);
    line->too_long = line->bytes > HUB_LINE_BYTES_MAX;
    if (is_whole)
        lines_take(l, bytes + 1);
    else if (bytes > HUB_LINE_BYTES_MAX + 1)
        skip_line(l); /* overwrites the text, of which nothing is needed any more */
    else
        lines_take(l, bytes);
    return true;
}
