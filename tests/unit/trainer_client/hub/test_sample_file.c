/* Opening sample files: index, split, broken lines, and files that change. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <inttypes.h>
#include "tests/unit/trainer_client/hub/formats_fixture.h"
#include "tests/unit/trainer_client/hub/temp_file.h"
#include "trainer_client/hub/permutation.h"
#include "trainer_client/hub/sample_file.h"

#define LINES 1400u

static char error[HUB_ERROR_BYTES];
static struct hub_sample sample;

/* LINES lines "label index:1", each index once; every 100th line is broken, every 70th blank. */
static struct temp_file many_lines(void)
{
    char *text = malloc(LINES * 20);
    size_t bytes = 0;
    assert_non_null(text);
    for (uint32_t i = 1; i <= LINES; i++)
        if (i % 100 == 0)
            bytes += (size_t)sprintf(text + bytes, "1 broken\n");
        else if (i % 70 == 0)
            text[bytes++] = '\n';
        else
            bytes += (size_t)sprintf(text + bytes, "-1 %u:1\n", i);
    struct temp_file file = temp_file_make(text, bytes);
    free(text);
    return file;
}

static bool is_sample(uint64_t line_number)
{
    return line_number % 100 != 0 && line_number % 70 != 0;
}

static struct hub_sample_file *open_file(struct hub_sample_file_options options)
{
    struct hub_sample_file *f = NULL;
    options.formats = formats;
    options.format = "libsvm";
    assert_int_equal(hub_sample_file_open(&options, &f, error), MR_OK);
    return f;
}

static uint64_t key_of_line(uint64_t line_number)
{
    char line[40], reason[HUB_REASON_BYTES];
    struct hub_sample *s = malloc(sizeof(*s));
    assert_non_null(s);
    int bytes = snprintf(line, sizeof(line), "-1 %" PRIu64 ":1", line_number);
    assert_int_equal(hub_format_parse(formats->all[0], line, (size_t)bytes, line_number, s, reason),
                     HUB_PARSED);
    uint64_t key = s->keys[0];
    free(s);
    return key;
}

/* Every sample of the part, in file order, whatever the size of the index and of the memory. */
static void check_part(const struct temp_file *file, bool held_out, uint32_t index_entries_max,
                       size_t memory_bytes)
{
    struct hub_sample_file *f =
        open_file((struct hub_sample_file_options){.path = file->path,
                                                   .seed = 5,
                                                   .held_out_share = 0.3,
                                                   .held_out = held_out,
                                                   .index_entries_max = index_entries_max,
                                                   .memory_bytes = memory_bytes});
    uint64_t index = 0;
    for (uint64_t line = 1; line <= LINES; line++) {
        if (is_sample(line) && hub_is_held_out(line, 5, 0.3) == held_out) {
            assert_int_equal(hub_sample_file_read(f, index++, &sample, error), MR_OK);
            assert_int_equal(sample.keys[0], key_of_line(line));
        }
    }
    assert_int_equal(hub_sample_file_info(f)->samples, index);
    /* And in any order. */
    unsigned int random = 1;
    for (int i = 0; i < 300; i++)
        assert_int_equal(hub_sample_file_read(f, (uint64_t)rand_r(&random) % index, &sample, error), MR_OK);
    hub_sample_file_close(f);
}

static void parts_are_disjoint_and_complete(void **state)
{
    static const uint32_t index_sizes[] = {0, 2, 3, 64, 600};
    struct temp_file file = many_lines();
    for (size_t i = 0; i < sizeof(index_sizes) / sizeof(index_sizes[0]); i++) {
        size_t memory_bytes = i % 3 * 12000; /* for none of the samples, or for some */
        check_part(&file, false, index_sizes[i], memory_bytes);
        check_part(&file, true, index_sizes[i], memory_bytes);
    }
    close(file.fd);
}

struct seen {
    uint32_t count;
    uint64_t first_line;
    char reason[HUB_REASON_BYTES];
};

static void see(void *arg, const char *path, uint64_t line_number, const char *reason)
{
    struct seen *seen = arg;
    if (seen->count++ == 0) {
        seen->first_line = line_number;
        snprintf(seen->reason, sizeof(seen->reason), "%s", reason);
    }
}

static void broken_lines_are_counted_and_told(void **state)
{
    struct temp_file file = many_lines();
    struct seen seen = {0};
    struct hub_sample_file *f =
        open_file((struct hub_sample_file_options){.path = file.path, .on_broken_line = see, .arg = &seen});
    const struct hub_sample_file_info *info = hub_sample_file_info(f);
    uint64_t samples = 0;
    for (uint64_t line = 1; line <= LINES; line++)
        samples += is_sample(line);
    assert_int_equal(info->broken_lines, LINES / 100);
    assert_int_equal(info->samples, samples);
    assert_int_equal(info->keys, samples);
    assert_true(info->keys_exact);
    assert_int_equal(info->sample_keys_max, 1);
    assert_int_equal(seen.count, HUB_BROKEN_SHOWN_MAX);
    assert_int_equal(seen.first_line, 100);
    assert_non_null(strstr(seen.reason, "':'"));
    hub_sample_file_close(f);
    close(file.fd);
}

static void strict_stops_and_says_where(void **state)
{
    struct temp_file file = many_lines();
    struct hub_sample_file *f = NULL;
    const struct hub_sample_file_options options = {
        .path = file.path, .formats = formats, .format = "libsvm", .strict = true};
    assert_int_equal(hub_sample_file_open(&options, &f, error), MR_BAD_MESSAGE);
    assert_null(f);
    assert_non_null(strstr(error, ":100: broken line: "));
    close(file.fd);
}

static void a_line_too_long_is_broken(void **state)
{
    char *text = malloc(HUB_LINE_BYTES_MAX + 20);
    assert_non_null(text);
    memset(text, '1', HUB_LINE_BYTES_MAX + 20);
    text[HUB_LINE_BYTES_MAX + 1] = '\n';
    snprintf(text + HUB_LINE_BYTES_MAX + 2, 7, "1 7:1\n");
    struct temp_file file = temp_file_make(text, HUB_LINE_BYTES_MAX + 8);
    struct hub_sample_file *f = open_file((struct hub_sample_file_options){.path = file.path});
    assert_int_equal(hub_sample_file_info(f)->broken_lines, 1);
    assert_int_equal(hub_sample_file_info(f)->samples, 1);
    hub_sample_file_close(f);
    free(text);
    close(file.fd);
}

static void a_file_that_changes_is_an_error(void **state)
{
    struct temp_file file = temp_file_text("1 1:1\n-1 2:1\n1 3:1\n");
    struct hub_sample_file *f = open_file((struct hub_sample_file_options){.path = file.path});
    assert_int_equal(pwrite(file.fd, "xx", 2, 6), 2);
    assert_int_equal(hub_sample_file_read(f, 1, &sample, error), MR_IO_ERROR);
    assert_non_null(strstr(error, "line 2"));
    assert_int_equal(hub_sample_file_read(f, 0, &sample, error), MR_OK);
    assert_int_equal(ftruncate(file.fd, 6), 0);
    hub_sample_file_close(f);
    f = open_file((struct hub_sample_file_options){.path = file.path});
    assert_int_equal(hub_sample_file_info(f)->samples, 1);
    assert_int_equal(ftruncate(file.fd, 0), 0);
    assert_int_equal(hub_sample_file_read(f, 0, &sample, error), MR_IO_ERROR);
    hub_sample_file_close(f);
    close(file.fd);
}

static void what_cannot_be_opened(void **state)
{
    struct hub_sample_file *f = NULL;
    struct hub_sample_file_options options = {
        .path = "/proc/self/no such file", .formats = formats, .format = "libsvm"};
    assert_int_equal(hub_sample_file_open(&options, &f, error), MR_INVALID_ARGUMENT);
    assert_non_null(strstr(error, "/proc/self/no such file"));
    options.path = "/proc";
    assert_int_equal(hub_sample_file_open(&options, &f, error), MR_INVALID_ARGUMENT);
    assert_non_null(strstr(error, "regular file"));
    options.format = "parquet";
    assert_int_equal(hub_sample_file_open(&options, &f, error), MR_INVALID_ARGUMENT);
    assert_non_null(strstr(error, "libsvm, criteo, flights"));
    assert_null(f);
    hub_sample_file_close(NULL);
}

static void opening_can_be_stopped(void **state)
{
    char *text = malloc(5000 * 6 + 1);
    assert_non_null(text);
    for (uint32_t i = 0; i < 5000; i++)
        snprintf(text + (size_t)i * 6, 7, "1 1:1\n");
    struct temp_file file = temp_file_make(text, 5000 * 6);
    struct hub_sample_file *f = NULL;
    atomic_bool stop = true;
    const struct hub_sample_file_options options = {
        .path = file.path, .formats = formats, .format = "libsvm", .stop = &stop};
    assert_int_equal(hub_sample_file_open(&options, &f, error), MR_CANCELLED);
    free(text);
    close(file.fd);
}

/* A file that is cut short takes nothing from the samples in memory; the check reports it. */
static void samples_in_memory_are_not_read_again(void **state)
{
    struct temp_file file = many_lines();
    struct hub_sample_file *f =
        open_file((struct hub_sample_file_options){.path = file.path, .memory_bytes = 1u << 20});
    assert_int_equal(ftruncate(file.fd, 10), 0);
    assert_int_equal(hub_sample_file_read(f, hub_sample_file_info(f)->samples - 1, &sample, error), MR_OK);
    assert_int_equal(sample.keys[0], key_of_line(LINES - 1));
    assert_int_equal(hub_sample_file_check(f, error), MR_IO_ERROR);
    hub_sample_file_close(f);
    close(file.fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_are_disjoint_and_complete),
        cmocka_unit_test(samples_in_memory_are_not_read_again),
        cmocka_unit_test(broken_lines_are_counted_and_told),
        cmocka_unit_test(strict_stops_and_says_where),
        cmocka_unit_test(a_line_too_long_is_broken),
        cmocka_unit_test(a_file_that_changes_is_an_error),
        cmocka_unit_test(what_cannot_be_opened),
        cmocka_unit_test(opening_can_be_stopped),
    };
    return cmocka_run_group_tests(tests, make_formats, free_formats);
}
