/* Lines from any offset, long ones, and files that end in odd ways. */
#include <stdlib.h>
#include <string.h>
#include "tests/test.h"
#include "tests/unit/trainer_client/hub/temp_file.h"
#include "trainer_client/hub/format/sample.h"
#include "trainer_client/hub/samples/lines.h"

static struct hub_file_bytes *input_of(int fd)
{
    struct hub_file_bytes *input = hub_file_bytes_create(fd);
    assert_non_null(input);
    return input;
}

static void free_lines(struct hub_lines *l)
{
    hub_file_bytes_destroy(l->bytes);
    hub_lines_free(l);
}

static void assert_line(struct hub_lines *l, const char *text, uint64_t number, uint64_t offset)
{
    struct hub_line line;
    assert_true(hub_lines_next(l, &line));
    assert_false(line.too_long);
    assert_int_equal(line.bytes, strlen(text));
    assert_memory_equal(line.text, text, line.bytes);
    assert_int_equal(line.number, number);
    assert_int_equal(line.offset, offset);
}

TEST(line_ends)
{
    static const size_t read_sizes[] = {1, 2, 3, 7, 4096};
    struct temp_file file = temp_file_text("a\nbc\r\n\n\r\nlast");
    for (size_t i = 0; i < sizeof(read_sizes) / sizeof(read_sizes[0]); i++) {
        struct hub_lines l;
        struct hub_line line;
        assert_true(hub_lines_init(&l, input_of(file.fd), read_sizes[i]));
        assert_line(&l, "a", 1, 0);
        assert_line(&l, "bc", 2, 2);
        assert_line(&l, "", 3, 6);
        assert_line(&l, "", 4, 7);
        assert_line(&l, "last", 5, 9);
        assert_false(hub_lines_next(&l, &line));
        assert_false(hub_lines_next(&l, &line));
        free_lines(&l);
    }
    close(file.fd);
}

TEST(an_empty_file_has_no_line)
{
    struct temp_file file = temp_file_text("");
    struct hub_lines l;
    struct hub_line line;
    assert_true(hub_lines_init(&l, input_of(file.fd), 16));
    assert_false(hub_lines_next(&l, &line));
    assert_false(l.has_failed);
    free_lines(&l);
    close(file.fd);
}

TEST(seeking)
{
    struct temp_file file = temp_file_text("a\nbc\ndef\nghij\n");
    struct hub_lines l;
    assert_true(hub_lines_init(&l, input_of(file.fd), 4));
    hub_lines_seek(&l, 9, 4);
    assert_line(&l, "ghij", 4, 9);
    hub_lines_seek(&l, 2, 2);
    assert_line(&l, "bc", 2, 2);
    hub_lines_seek(&l, 5, 3); /* often in what has been read */
    assert_line(&l, "def", 3, 5);
    assert_line(&l, "ghij", 4, 9);
    hub_lines_seek(&l, 0, 1); /* also from the end */
    assert_line(&l, "a", 1, 0);
    free_lines(&l);
    close(file.fd);
}

TEST(long_lines_are_skipped)
{
    static const size_t read_sizes[] = {1000, 4096, 1u << 20};
    const size_t most = HUB_LINE_BYTES_MAX;
    char *text = malloc(10 * most);
    assert_non_null(text);
    memset(text, 'x', 10 * most);
    text[most] = '\n';         /* just fits */
    text[2 * most + 2] = '\n'; /* one byte too long */
    text[8 * most] = '\n';     /* far too long */
    snprintf(text + 8 * most + 1, 5, "end\n");
    struct temp_file file = temp_file_make(text, 8 * most + 5);
    for (size_t i = 0; i < sizeof(read_sizes) / sizeof(read_sizes[0]); i++) {
        struct hub_lines l;
        struct hub_line line;
        assert_true(hub_lines_init(&l, input_of(file.fd), read_sizes[i]));
        assert_true(hub_lines_next(&l, &line));
        assert_false(line.too_long);
        assert_int_equal(line.bytes, most);
        assert_true(hub_lines_next(&l, &line));
        assert_true(line.too_long);
        assert_true(hub_lines_next(&l, &line));
        assert_true(line.too_long);
        assert_line(&l, "end", 4, 8 * most + 1);
        assert_false(hub_lines_next(&l, &line));
        free_lines(&l);
    }
    free(text);
    close(file.fd);
}

TEST(a_read_error_is_told)
{
    struct hub_lines l;
    struct hub_line line;
    assert_true(hub_lines_init(&l, input_of(-1), 16));
    assert_false(hub_lines_next(&l, &line));
    assert_true(l.has_failed);
    free_lines(&l);
}
