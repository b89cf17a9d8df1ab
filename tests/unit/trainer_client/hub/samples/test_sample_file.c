/* Opening sample files: index, split, broken lines, and files that change. */
#include <stdlib.h>
#include <string.h>
#include <inttypes.h>
#include <math.h>
#include "tests/test.h"
#include "tests/unit/temporary_directory.h"
#include "tests/unit/trainer_client/hub/format/formats_fixture.h"
#include "tests/unit/trainer_client/hub/packed.h"
#include "tests/unit/trainer_client/hub/temp_file.h"
#include "trainer_client/hub/samples/permutation.h"
#include "trainer_client/hub/samples/sample_file.h"

#define LINES 1400u

static char error_text[HUB_ERROR_BYTES];
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
    options.distinct_entries = 8192; /* less memory to clear than by default */
    assert_int_equal(hub_sample_file_open(&options, &f, error_text), MR_OK);
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
            assert_int_equal(hub_sample_file_read(f, index++, &sample, error_text), MR_OK);
            assert_int_equal(sample.keys[0], key_of_line(line));
        }
    }
    assert_int_equal(hub_sample_file_info(f)->samples, index);
    /* And in any order. */
    unsigned int random = 1;
    for (int i = 0; i < 300; i++)
        assert_int_equal(hub_sample_file_read(f, (uint64_t)rand_r(&random) % index, &sample, error_text),
                         MR_OK);
    hub_sample_file_close(f);
}

TEST(parts_are_disjoint_and_complete)
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

TEST(broken_lines_are_counted_and_told)
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

TEST(strict_stops_and_says_where)
{
    struct temp_file file = many_lines();
    struct hub_sample_file *f = NULL;
    const struct hub_sample_file_options options = {
        .path = file.path, .formats = formats, .format = "libsvm", .strict = true};
    assert_int_equal(hub_sample_file_open(&options, &f, error_text), MR_BAD_MESSAGE);
    assert_null(f);
    assert_non_null(strstr(error_text, ":100: broken line: "));
    close(file.fd);
}

TEST(a_line_too_long_is_broken)
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

TEST(a_file_that_changes_is_an_error)
{
    struct temp_file file = temp_file_text("1 1:1\n-1 2:1\n1 3:1\n");
    struct hub_sample_file *f = open_file((struct hub_sample_file_options){.path = file.path});
    assert_int_equal(pwrite(file.fd, "xx", 2, 6), 2);
    assert_int_equal(hub_sample_file_read(f, 1, &sample, error_text), MR_IO_ERROR);
    assert_non_null(strstr(error_text, "line 2"));
    assert_int_equal(hub_sample_file_read(f, 0, &sample, error_text), MR_OK);
    assert_int_equal(ftruncate(file.fd, 6), 0);
    hub_sample_file_close(f);
    f = open_file((struct hub_sample_file_options){.path = file.path});
    assert_int_equal(hub_sample_file_info(f)->samples, 1);
    assert_int_equal(ftruncate(file.fd, 0), 0);
    assert_int_equal(hub_sample_file_read(f, 0, &sample, error_text), MR_IO_ERROR);
    hub_sample_file_close(f);
    close(file.fd);
}

TEST(what_cannot_be_opened)
{
    struct hub_sample_file *f = NULL;
    struct hub_sample_file_options options = {
        .path = "/proc/self/no such file", .formats = formats, .format = "libsvm"};
    assert_int_equal(hub_sample_file_open(&options, &f, error_text), MR_INVALID_ARGUMENT);
    assert_non_null(strstr(error_text, "/proc/self/no such file"));
    options.path = "/proc";
    assert_int_equal(hub_sample_file_open(&options, &f, error_text), MR_INVALID_ARGUMENT);
    assert_non_null(strstr(error_text, "regular file"));
    options.format = "parquet";
    assert_int_equal(hub_sample_file_open(&options, &f, error_text), MR_INVALID_ARGUMENT);
    assert_non_null(strstr(error_text, "libsvm, criteo, flights"));
    assert_null(f);
    hub_sample_file_close(NULL);
}

TEST(opening_can_be_stopped)
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
    assert_int_equal(hub_sample_file_open(&options, &f, error_text), MR_CANCELLED);
    free(text);
    close(file.fd);
}

/* A file that is cut short takes nothing from the samples in memory; the check reports it. */
TEST(samples_in_memory_are_not_read_again)
{
    struct temp_file file = many_lines();
    struct hub_sample_file *f =
        open_file((struct hub_sample_file_options){.path = file.path, .memory_bytes = 1u << 20});
    assert_int_equal(ftruncate(file.fd, 10), 0);
    assert_int_equal(hub_sample_file_read(f, hub_sample_file_info(f)->samples - 1, &sample, error_text),
                     MR_OK);
    assert_int_equal(sample.keys[0], key_of_line(LINES - 1));
    assert_int_equal(hub_sample_file_check(f, error_text), MR_IO_ERROR);
    hub_sample_file_close(f);
    close(file.fd);
}

/* Writes a file of `directory`. */
static void write_file(const char *directory, const char *name, const char *data, size_t bytes)
{
    char path[200];
    snprintf(path, sizeof(path), "%s/%s", directory, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, bytes, f), bytes);
    assert_int_equal(fclose(f), 0);
}

static void write_packed(const char *directory, const char *name, struct packed packed)
{
    write_file(directory, name, packed.data, packed.bytes);
    free(packed.data);
}

/* many_lines() as a few files; packed: all but the first. No file ends in a line end. */
static void write_parts(const char *directory, bool is_packed)
{
    static const uint32_t ends[] = {3, 400, 401, LINES};
    struct temp_file file = many_lines();
    static char text[LINES * 20];
    ssize_t bytes = pread(file.fd, text, sizeof(text) - 1, 0);
    assert_true(bytes > 0);
    text[bytes] = '\0';
    char *begin = text, name[20];
    for (uint32_t i = 0, line = 0; i < 4; i++) {
        char *end = begin;
        for (; line < ends[i]; line++)
            end = strchr(end, '\n') + 1;
        size_t part_bytes = (size_t)(end - begin) - 1;
        snprintf(name, sizeof(name), "part%u", i);
        if (!is_packed || i == 0)
            write_file(directory, name, begin, part_bytes);
        else
            write_packed(directory, name,
                         i % 2 == 0 ? packed_gzip(begin, part_bytes) : packed_zstd(begin, part_bytes));
        begin = end;
    }
    close(file.fd);
}

/* Every sample of both parts, in order and then in any order. */
static void check_files(const char *directory, uint32_t index_entries_max, size_t memory_bytes,
                        uint32_t window_samples)
{
    char path[200];
    snprintf(path, sizeof(path), "%s/part*", directory);
    for (int held_out = 0; held_out < 2; held_out++) {
        struct hub_sample_file *f =
            open_file((struct hub_sample_file_options){.path = path,
                                                       .seed = 5,
                                                       .held_out_share = 0.3,
                                                       .held_out = held_out != 0,
                                                       .index_entries_max = index_entries_max,
                                                       .memory_bytes = memory_bytes,
                                                       .window_samples = window_samples});
        uint64_t lines[LINES], count = 0;
        for (uint64_t line = 1; line <= LINES; line++)
            if (is_sample(line) && hub_is_held_out(line, 5, 0.3) == (held_out != 0))
                lines[count++] = line;
        assert_int_equal(hub_sample_file_info(f)->samples, count);
        assert_int_equal(hub_sample_file_info(f)->files, 4);
        assert_int_equal(hub_sample_file_info(f)->broken_lines, LINES / 100);
        unsigned int random = 1;
        for (uint64_t i = 0; i < count + 100; i++) {
            uint64_t index = i < count ? i : (uint64_t)rand_r(&random) % count;
            assert_int_equal(hub_sample_file_read(f, index, &sample, error_text), MR_OK);
            assert_int_equal(sample.keys[0], key_of_line(lines[index]));
        }
        hub_sample_file_close(f);
    }
}

TEST(several_files_are_read_as_one, temporary_directory_setup, temporary_directory_teardown)
{
    write_parts(*state, false);
    check_files(*state, 0, 0, 0);
    check_files(*state, 3, 12000, 0);
    check_files(*state, 64, 0, 100);
}

TEST(packed_files_are_read_in_windows, temporary_directory_setup, temporary_directory_teardown)
{
    write_parts(*state, true);
    check_files(*state, 0, 0, 0);
    check_files(*state, 64, 12000, 100);
    check_files(*state, 2, 0, 7);
}

static void expect_changed(struct hub_sample_file *f, const char *what)
{
    assert_int_equal(hub_sample_file_check(f, error_text), MR_IO_ERROR);
    if (strstr(error_text, what) == NULL)
        fail_msg("\"%s\" does not contain \"%s\"", error_text, what);
    hub_sample_file_close(f);
}

TEST(files_that_come_or_change_are_noticed, temporary_directory_setup, temporary_directory_teardown)
{
    char path[200], name[200];
    write_parts(*state, false);
    snprintf(path, sizeof(path), "%s/part*", (const char *)*state);
    struct hub_sample_file *f = open_file((struct hub_sample_file_options){.path = path});
    uint64_t digest = hub_sample_file_info(f)->digest;
    assert_int_equal(hub_sample_file_check(f, error_text), MR_OK);
    snprintf(name, sizeof(name), "%s/part1", (const char *)*state);
    assert_int_equal(unlink(name), 0); /* it can be read all the same */
    assert_int_equal(hub_sample_file_check(f, error_text), MR_OK);
    write_file(*state, "part1", "1 1:1\n", 6);
    assert_int_equal(hub_sample_file_check_some(f, error_text), MR_IO_ERROR);
    expect_changed(f, "part1 has changed since its plan began: another file has its name");
    f = open_file((struct hub_sample_file_options){.path = path});
    assert_int_not_equal(hub_sample_file_info(f)->digest, digest);
    write_file(*state, "part15", "1 1:1\n", 6);
    assert_int_equal(hub_sample_file_check_some(f, error_text), MR_OK);
    expect_changed(f, "part15 has come in");
}

TEST(a_damaged_file_is_an_error)
{
    struct packed p = packed_gzip("1 1:1\n-1 2:1\n", 13);
    struct temp_file file = temp_file_make(p.data, p.bytes - 4);
    struct hub_sample_file *f = NULL;
    const struct hub_sample_file_options options = {
        .path = file.path, .formats = formats, .format = "libsvm"};
    assert_int_equal(hub_sample_file_open(&options, &f, error_text), MR_IO_ERROR);
    assert_non_null(strstr(error_text, "its packed data end too early"));
    free(p.data);
    close(file.fd);
}

TEST(files_without_lines_are_refused_by_their_kind)
{
    static const struct {
        const char *begin, *says;
    } cases[] = {{"\xfd"
                  "7zXZ",
                  "is packed with xz; unpack it, or pack it with gzip or zstd"},
                 {"BZh91AY&SYxx", "is packed with bzip2; unpack it"},
                 {"PK\x03\x04xx", "is a zip archive; unpack it"},
                 {"\x04\x22\x4d\x18xx", "is packed with lz4; unpack it"},
                 {"ORC\nxx", "is an ORC file; read it in Python, and feed it with millrace.feed()"},
                 {"Obj\x01xx", "is an Avro file; read it in Python"},
                 {"\xff\xfe#", "is text in UTF-16; convert it: iconv -f UTF-16 -t UTF-8"},
                 {"\xfe\xff 1", "is text in UTF-16; convert it"},
                 {"PAR1\x15xx", "is a Parquet file; millrace.read_parquet()"}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct temp_file file = temp_file_make(cases[i].begin, strlen(cases[i].begin));
        struct hub_sample_file *f = NULL;
        const struct hub_sample_file_options options = {
            .path = file.path, .formats = formats, .format = "libsvm"};
        assert_int_equal(hub_sample_file_open(&options, &f, error_text), MR_BAD_MESSAGE);
        assert_non_null(strstr(error_text, cases[i].says));
        close(file.fd);
    }
}

/* Files to be scored have all of their samples in the held-out part; there is nothing to train on. */
TEST(samples_without_labels_are_scored, temporary_directory_setup, temporary_directory_teardown)
{
    static const char description[] = "[format]\nname = unlabelled\nlayout = libsvm\nlabel = none\n";
    char path[200];
    write_file(*state, "unlabelled.ini", description, sizeof(description) - 1);
    write_file(*state, "score.txt", "0 1:1\n2:1\n3:1 4:1\n", 18);
    struct hub_formats *own = hub_formats_create();
    snprintf(path, sizeof(path), "%s/unlabelled.ini", (const char *)*state);
    assert_int_equal(hub_formats_add(own, path, error_text), MR_OK);
    snprintf(path, sizeof(path), "%s/score.txt", (const char *)*state);
    struct hub_sample_file *f = NULL;
    struct hub_sample_file_options options = {
        .path = path, .formats = own, .format = "unlabelled", .seed = 7};
    assert_int_equal(hub_sample_file_open(&options, &f, error_text), MR_INVALID_ARGUMENT);
    assert_non_null(strstr(error_text, "format unlabelled: it has no labels to train on: score its samples"));
    options.held_out = true;
    assert_int_equal(hub_sample_file_open(&options, &f, error_text), MR_OK);
    assert_int_equal(hub_sample_file_info(f)->samples, 3);
    struct hub_sample *scored = malloc(sizeof(*scored));
    assert_non_null(scored);
    for (uint64_t i = 0; i < 3; i++) {
        assert_int_equal(hub_sample_file_read(f, i, scored, error_text), MR_OK);
        assert_true(isnan(scored->label));
        assert_int_equal(scored->key_count, i == 2 ? 2 : 1);
    }
    free(scored);
    hub_sample_file_close(f);
    hub_formats_destroy(own);
}

/* Each file has its columns where its own first line says. */
TEST(columns_are_those_of_each_file, temporary_directory_setup, temporary_directory_teardown)
{
    static const char description[] = "[format]\nname = own\nlabel = y\n[columns]\ny = flag\nu = text\n"
                                      "[slots]\nu = u\n";
    char path[200];
    write_file(*state, "own.ini", description, sizeof(description) - 1);
    write_file(*state, "a.csv", "u,y\nanna,1\nbert,0\n", 18);
    write_file(*state, "b.csv", "\xef\xbb\xbfy,x,u\n1,7,anna\n", 19); /* with a byte order mark */
    snprintf(path, sizeof(path), "%s/own.ini", (const char *)*state);
    char why[HUB_FORMAT_ERROR_BYTES];
    struct hub_formats *all = hub_formats_create();
    assert_int_equal(hub_formats_add(all, path, why), MR_OK);
    snprintf(path, sizeof(path), "%s/*.csv", (const char *)*state);
    const struct hub_sample_file_options options = {.path = path, .formats = all, .format = "own"};
    struct hub_sample_file *f = NULL;
    assert_int_equal(hub_sample_file_open(&options, &f, error_text), MR_OK);
    assert_int_equal(hub_sample_file_info(f)->samples, 3);
    assert_int_equal(hub_sample_file_info(f)->keys, 2);
    assert_int_equal(hub_sample_file_read(f, 0, &sample, error_text), MR_OK);
    uint64_t anna = sample.keys[0], digest = hub_sample_file_info(f)->digest;
    assert_int_equal(hub_sample_file_read(f, 2, &sample, error_text), MR_OK);
    assert_int_equal(sample.keys[0], anna);
    hub_sample_file_close(f);
    all->all[3]->digest++; /* as of another description */
    assert_int_equal(hub_sample_file_open(&options, &f, error_text), MR_OK);
    assert_int_not_equal(hub_sample_file_info(f)->digest, digest);
    hub_sample_file_close(f);
    write_file(*state, "c.csv", "u,label\nanna,1\n", 15);
    assert_int_equal(hub_sample_file_open(&options, &f, error_text), MR_BAD_MESSAGE);
    assert_non_null(strstr(
        error_text, "c.csv is not in the format own: the first line has no column \"y\", it begins with "
                    "\"u,label\": correct [columns] or format.separator"));
    hub_formats_destroy(all);
}

int main(void)
{
    return tests_run(make_formats, free_formats);
}
