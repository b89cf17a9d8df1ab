/* Which paths a hub opens for trainers. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "tests/test.h"
#include "tests/unit/temporary_directory.h"
#include "trainer_client/hub/samples/allowed.h"
#include "trainer_client/hub/samples/paths.h"
#include "trainer_client/hub/samples/sample_file.h"

static char error_text[HUB_ERROR_BYTES];
static struct hub_allowed *allowed;

static void touch(const char *name)
{
    FILE *f = fopen(name, "w");
    assert_non_null(f);
    assert_int_equal(fclose(f), 0);
}

/* data and more are allowed, database and secret are not. */
static int set_up(void **state)
{
    static const char *const directories[] = {"data", "./more/../more"};
    *state = temporary_directory_make();
    assert_int_equal(chdir(*state), 0);
    assert_true(mkdir("data", 0700) == 0 && mkdir("more", 0700) == 0 && mkdir("database", 0700) == 0);
    assert_true(mkdir("secret", 0700) == 0 && mkdir("data/deep", 0700) == 0);
    touch("data/a.csv");
    touch("data/deep/b.csv");
    touch("more/c.csv");
    touch("database/d.csv");
    touch("secret/e.csv");
    assert_int_equal(symlink("../secret", "data/out"), 0);
    assert_int_equal(symlink("../secret/e.csv", "data/e.csv"), 0);
    assert_int_equal(symlink("deep", "data/in"), 0);
    char whole[PATH_MAX];
    snprintf(whole, sizeof(whole), "%s/more", (const char *)*state);
    assert_int_equal(symlink(whole, "data/other"), 0);
    allowed = hub_allowed_create(directories, 2, error_text);
    assert_non_null(allowed);
    return 0;
}

static int tear_down(void **state)
{
    hub_allowed_destroy(allowed);
    assert_int_equal(chdir("/"), 0);
    return temporary_directory_remove(*state);
}

static bool opens(const char *path)
{
    errno = 0;
    const int fd = hub_allowed_open(allowed, path, O_RDONLY);
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

TEST(what_is_below_opens, set_up, tear_down)
{
    char whole[PATH_MAX];
    snprintf(whole, sizeof(whole), "%s/data/a.csv", (const char *)*state);
    assert_true(opens("data/a.csv") && opens("data/deep/b.csv") && opens("more/c.csv") && opens(whole));
    assert_true(opens("data/../more/./c.csv") && opens("data//a.csv"));
    assert_true(opens("data/in/b.csv")); /* links within, and from one directory to another */
    assert_true(opens("data/other/c.csv"));
    assert_false(opens("data/nowhere"));
    assert_int_equal(errno, ENOENT);
}

TEST(what_leads_out_is_refused, set_up, tear_down)
{
    static const char *const paths[] = {"secret/e.csv",
                                        "database/d.csv",
                                        "data/../secret/e.csv",
                                        "data/out/e.csv",
                                        "data/e.csv",
                                        "/etc/passwd",
                                        "/proc/self/environ",
                                        "nowhere",
                                        "data/in/../../secret/e.csv",
                                        "/",
                                        "..",
                                        ""};
    for (size_t i = 0; i < sizeof(paths) / sizeof(*paths); i++) {
        assert_false(opens(paths[i]));
        assert_int_equal(errno, EACCES);
    }
}

TEST(patterns_see_only_what_is_below, set_up, tear_down)
{
    struct hub_paths paths = {0};
    assert_int_equal(hub_paths_expand("data/*.csv,more/*", allowed, &paths, error_text), MR_OK);
    assert_int_equal(paths.count, 3); /* e.csv has a name there, and is refused when it is opened */
    hub_paths_free(&paths);
    assert_int_equal(hub_paths_expand("data/out/*", allowed, &paths, error_text), MR_INVALID_ARGUMENT);
    static const char *const refused[] = {"secret/*", "data/a.csv,secret/e.csv", "/etc/pass*",
                                          "secret/e.csv"};
    for (size_t i = 0; i < sizeof(refused) / sizeof(*refused); i++) {
        assert_int_equal(hub_paths_expand(refused[i], allowed, &paths, error_text), MR_UNAUTHORIZED);
        assert_non_null(strstr(error_text, "only below the directories of its --allow"));
    }
}

TEST(without_directories_nothing_opens, set_up, tear_down)
{
    struct hub_allowed *none = hub_allowed_create(NULL, 0, error_text);
    assert_non_null(none);
    assert_int_equal(hub_allowed_open(none, "data/a.csv", O_RDONLY), -1);
    assert_int_equal(hub_allowed_check(none, "data/a.csv", error_text), MR_UNAUTHORIZED);
    assert_non_null(strstr(error_text, "start it with --allow DIR"));
    hub_allowed_destroy(none);
    const int fd = hub_allowed_open(NULL, "secret/e.csv", O_RDONLY); /* no bounds at all */
    assert_true(fd >= 0);
    close(fd);
}

TEST(all_is_below_the_root, set_up, tear_down)
{
    const char *root = "/";
    struct hub_allowed *all = hub_allowed_create(&root, 1, error_text);
    const int fd = hub_allowed_open(all, "secret/e.csv", O_RDONLY);
    assert_true(fd >= 0);
    close(fd);
    hub_allowed_destroy(all);
}

TEST(what_is_no_directory_is_named, set_up, tear_down)
{
    static const char *const wrong[] = {"data/a.csv", "nowhere"};
    for (size_t i = 0; i < 2; i++) {
        assert_null(hub_allowed_create(&wrong[i], 1, error_text));
        assert_non_null(strstr(error_text, wrong[i]));
    }
}
