/* A text in a file: whole, and nothing beside it. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "dataplane/metrics/metrics_file.h"
#include "tests/test.h"
#include "tests/unit/temporary_directory.h"

static const char *directory;

static uint32_t files(void)
{
    DIR *dir = opendir(directory);
    uint32_t count = 0;
    assert_non_null(dir);
    for (const struct dirent *entry = readdir(dir); entry != NULL; entry = readdir(dir))
        count += entry->d_name[0] != '.';
    closedir(dir);
    return count;
}

TEST(a_file_is_replaced_at_once)
{
    char path[256], got[64];
    struct stat info;
    snprintf(path, sizeof(path), "%s/a.prom", directory);
    for (uint32_t i = 0; i < 2; i++) {
        struct mr_metrics_text text = {.data = i == 0 ? "the first, longer text\n" : "second\n"};
        text.bytes = strlen(text.data);
        assert_true(mr_metrics_write_file(&text, path));
        FILE *file = fopen(path, "r");
        assert_non_null(file);
        got[fread(got, 1, sizeof(got) - 1, file)] = '\0';
        fclose(file);
        assert_string_equal(got, text.data);
        assert_int_equal(files(), 1);
    }
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0644); /* the collector is another user */
}

TEST(what_fails_leaves_nothing)
{
    char path[5000];
    const struct mr_metrics_text text = {.data = "x\n", .bytes = 2};
    const uint32_t before = files();
    snprintf(path, sizeof(path), "%s/nowhere/a.prom", directory);
    assert_false(mr_metrics_write_file(&text, path));
    assert_int_equal(errno, ENOENT);
    snprintf(path, sizeof(path), "%s/folder", directory);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_false(mr_metrics_write_file(&text, path)); /* no file can take its place */
    assert_int_equal(errno, EISDIR);
    assert_int_equal(rmdir(path), 0);
    memset(path, 'x', sizeof(path) - 1);
    path[sizeof(path) - 1] = '\0';
    assert_false(mr_metrics_write_file(&text, path));
    assert_int_equal(errno, ENAMETOOLONG);
    assert_int_equal(files(), before);
}

static int set_up(void **state)
{
    int result = temporary_directory_setup(state);
    directory = *state;
    return result;
}

int main(void)
{
    return tests_run(set_up, temporary_directory_teardown);
}
