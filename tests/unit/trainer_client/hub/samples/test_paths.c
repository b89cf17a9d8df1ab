/* Lists and patterns of files. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "tests/test.h"
#include "tests/unit/temporary_directory.h"
#include "trainer_client/hub/samples/paths.h"
#include "trainer_client/hub/samples/sample_file.h"

static char error_text[HUB_ERROR_BYTES];

static void touch(const char *name)
{
    FILE *f = fopen(name, "w");
    assert_non_null(f);
    fclose(f);
}

static int enter_directory(void **state)
{
    static const char *const names[] = {"day2.csv",  "day10.csv", "day1.csv",
                                        "other.tsv", "a,b.csv",   "x[1].csv"};
    char *directory = temporary_directory_make();
    if (directory == NULL || chdir(directory) != 0)
        return -1;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        touch(names[i]);
    *state = directory;
    return 0;
}

static int leave_directory(void **state)
{
    int outcome = chdir("/");
    temporary_directory_remove(*state);
    return outcome;
}

/* `path` stands for these, with blanks between them. */
static void expect(const char *path, const char *names)
{
    char found[200] = "";
    struct hub_paths paths = {0};
    assert_int_equal(hub_paths_expand(path, NULL, &paths, error_text), MR_OK);
    for (uint32_t i = 0; i < paths.count; i++)
        snprintf(found + strlen(found), sizeof(found) - strlen(found), "%s%s", i > 0 ? " " : "",
                 paths.all[i]);
    assert_string_equal(found, names);
    hub_paths_free(&paths);
    hub_paths_free(&paths);
}

TEST(lists_and_patterns)
{
    expect("day1.csv", "day1.csv");
    expect("day*.csv", "day1.csv day10.csv day2.csv");
    expect("day2.csv,other.tsv", "day2.csv other.tsv");
    expect("other.tsv,day[12].csv", "other.tsv day1.csv day2.csv");
    expect("day2.csv,day*.csv", "day2.csv day1.csv day10.csv"); /* each once */
    expect("nowhere", "nowhere");                               /* which opening it refuses */
    expect(",", ",");
}

TEST(a_file_of_that_name_comes_first)
{
    expect("a,b.csv", "a,b.csv");
    expect("x[1].csv", "x[1].csv");
}

TEST(what_is_refused)
{
    struct hub_paths paths = {0};
    char list[16000] = "n";
    assert_int_equal(hub_paths_expand("day1.csv,week*.csv", NULL, &paths, error_text), MR_INVALID_ARGUMENT);
    assert_non_null(strstr(error_text, "no file matches week*.csv"));
    assert_null(paths.all);
    for (uint32_t i = 0; i < HUB_FILES_MAX; i++)
        snprintf(list + strlen(list), sizeof(list) - strlen(list), ",n%u", i);
    assert_int_equal(hub_paths_expand(list, NULL, &paths, error_text), MR_INVALID_ARGUMENT);
    assert_non_null(strstr(error_text, "more than 512 files up to n511"));
}

int main(void)
{
    return tests_run(enter_directory, leave_directory);
}
