/* The directory of DPDK's sockets: only one that no other user can write to, and only DPDK's names are
 * removed from it. */
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#include "dataplane/dpdk/runtime_directory.h"
#include "tests/test.h"
#include "tests/unit/temporary_directory.h"

#define NAME   "node-a"
#define NOBODY 65534

static char place[PATH_MAX]; /* the last that path_of() made */

static const char *path_of(void **state, const char *name)
{
    snprintf(place, sizeof(place), "%s/%s", (const char *)*state, name);
    return place;
}

static void make_directory(void **state, const char *name, mode_t mode)
{
    assert_int_equal(mkdir(path_of(state, name), 0700), 0);
    assert_int_equal(chmod(place, mode), 0);
}

static void make_file(void **state, const char *name)
{
    int fd = open(path_of(state, name), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    close(fd);
}

static bool is_there(void **state, const char *name)
{
    struct stat st;
    return lstat(path_of(state, name), &st) == 0;
}

static int listen_at(void **state, const char *name)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    const char *path = path_of(state, name);
    assert_int_in_range(strlen(path), 1, sizeof(address.sun_path) - 1);
    memcpy(address.sun_path, path, strlen(path));
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(listen(fd, 4), 0);
    return fd;
}

static bool open_directory(void **state, struct dp_runtime_directory *d, const char *base)
{
    char shared[PATH_MAX], error[DP_ERROR_BYTES] = "";
    assert_int_equal(setenv("RUNTIME_DIRECTORY", path_of(state, base), 1), 0);
    snprintf(shared, sizeof(shared), "%s", path_of(state, "shared"));
    bool is_open = dp_runtime_directory_open(d, NAME, shared, error);
    assert_true(is_open == (error[0] == '\0'));
    if (!is_open)
        assert_non_null(strstr(error, "RUNTIME_DIRECTORY"));
    return is_open;
}

/* The directory is below "shared", under this user's number. */
static void assert_fallback(void **state, const struct dp_runtime_directory *d)
{
    char wanted[64];
    snprintf(wanted, sizeof(wanted), "shared/millrace-%u", (unsigned)geteuid());
    assert_string_equal(d->base, path_of(state, wanted));
    assert_string_equal(getenv("RUNTIME_DIRECTORY"), d->base);
    assert_true(d->is_fallback);
}

static int make_places(void **state)
{
    int failed = temporary_directory_setup(state);
    make_directory(state, "own", 0700);
    make_directory(state, "shared", 01777);
    return failed;
}

TEST(a_private_base_is_kept, make_places, temporary_directory_teardown)
{
    struct dp_runtime_directory d;
    assert_true(open_directory(state, &d, "own"));
    assert_string_equal(getenv("RUNTIME_DIRECTORY"), path_of(state, "own"));
    assert_false(d.is_fallback);
    close(listen_at(state, "own/dpdk/" NAME "/dpdk_telemetry.v2"));
    dp_runtime_directory_remove(&d);
    assert_false(is_there(state, "own/dpdk/" NAME));
    dp_runtime_directory_remove(&d); /* nothing is left to do */
}

TEST(a_link_is_not_followed, make_places, temporary_directory_teardown)
{
    struct dp_runtime_directory d;
    char victim[PATH_MAX];
    make_directory(state, "victim", 0700);
    make_file(state, "victim/file");
    close(listen_at(state, "victim/dpdk_telemetry.v2"));
    make_directory(state, "own/dpdk", 0700);
    snprintf(victim, sizeof(victim), "%s", path_of(state, "victim"));
    assert_int_equal(symlink(victim, path_of(state, "own/dpdk/" NAME)), 0);
    assert_true(open_directory(state, &d, "own"));
    assert_fallback(state, &d);
    dp_runtime_directory_remove(&d);
    assert_true(is_there(state, "victim/file"));
    assert_true(is_there(state, "victim/dpdk_telemetry.v2"));
    assert_true(is_there(state, "own/dpdk/" NAME));
}

TEST(what_others_can_write_to_is_not_used, make_places, temporary_directory_teardown)
{
    static const char *const open_to_others[] = {"own", "own/dpdk", "own/dpdk/" NAME};
    struct dp_runtime_directory d;
    make_directory(state, "own/dpdk", 0700);
    make_directory(state, "own/dpdk/" NAME, 0700);
    make_file(state, "own/dpdk/" NAME "/file");
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(chmod(path_of(state, open_to_others[i]), i == 1 ? 0770 : 01777), 0);
        assert_true(open_directory(state, &d, "own"));
        assert_fallback(state, &d);
        dp_runtime_directory_remove(&d);
        assert_true(is_there(state, "own/dpdk/" NAME "/file"));
        assert_int_equal(chmod(path_of(state, open_to_others[i]), 0700), 0);
    }
    assert_true(open_directory(state, &d, "own"));
    assert_false(d.is_fallback);
    dp_runtime_directory_remove(&d);
}

TEST(what_others_own_is_not_used, make_places, temporary_directory_teardown)
{
    static const char *const of_others[] = {"own", "own/dpdk", "own/dpdk/" NAME};
    struct dp_runtime_directory d;
    if (geteuid() != 0)
        skip();
    make_directory(state, "own/dpdk", 0700);
    make_directory(state, "own/dpdk/" NAME, 0700);
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(chown(path_of(state, of_others[i]), NOBODY, NOBODY), 0);
        assert_true(open_directory(state, &d, "own"));
        assert_fallback(state, &d);
        dp_runtime_directory_remove(&d);
        assert_int_equal(chown(path_of(state, of_others[i]), 0, 0), 0);
    }
}

TEST(a_taken_name_gives_way_to_a_random_one, make_places, temporary_directory_teardown)
{
    struct dp_runtime_directory d;
    char name[64], base[PATH_MAX];
    snprintf(name, sizeof(name), "shared/millrace-%u", (unsigned)geteuid());
    make_directory(state, name, 0777);
    assert_true(open_directory(state, &d, "shared"));
    assert_string_not_equal(d.base, path_of(state, name));
    assert_string_not_equal(d.base, path_of(state, "shared"));
    assert_int_equal(strncmp(d.base, place, strlen(place)), 0); /* below it */
    snprintf(base, sizeof(base), "%s", d.base);
    dp_runtime_directory_remove(&d);
    assert_int_equal(access(base, F_OK), -1);
}

TEST(without_a_safe_place_it_says_what_to_do, make_places, temporary_directory_teardown)
{
    struct dp_runtime_directory d;
    assert_int_equal(chmod(path_of(state, "shared"), 0777), 0); /* others may rename what is in it */
    assert_false(open_directory(state, &d, "shared"));
    assert_false(open_directory(state, &d, "missing"));
    dp_runtime_directory_remove(&d);
}

TEST(only_sockets_of_dpdk_are_removed, make_places, temporary_directory_teardown)
{
    static const char *const kept[] = {"own/dpdk/" NAME "/config", "own/dpdk/" NAME "/dpdk_telemetry.v3"};
    struct dp_runtime_directory d;
    assert_true(open_directory(state, &d, "own"));
    for (unsigned i = 0; i < 2; i++)
        make_file(state, kept[i]);
    close(listen_at(state, "own/dpdk/" NAME "/dpdk_telemetry.v2"));
    close(listen_at(state, "own/dpdk/" NAME "/dpdk_telemetry.v2:1"));
    dp_runtime_directory_remove(&d);
    assert_true(is_there(state, kept[0]) && is_there(state, kept[1]));
    assert_false(is_there(state, "own/dpdk/" NAME "/dpdk_telemetry.v2"));
    assert_false(is_there(state, "own/dpdk/" NAME "/dpdk_telemetry.v2:1"));
}

TEST(a_socket_of_another_process_stays, make_places, temporary_directory_teardown)
{
    struct dp_runtime_directory d;
    assert_true(open_directory(state, &d, "own"));
    int ready[2], status;
    char byte;
    assert_int_equal(pipe(ready), 0);
    const pid_t child = fork();
    if (child == 0) {
        (void)listen_at(state, "own/dpdk/" NAME "/dpdk_telemetry.v2");
        (void)!write(ready[1], "", 1);
        pause();
        _exit(0);
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    dp_runtime_directory_remove(&d);
    assert_true(is_there(state, "own/dpdk/" NAME "/dpdk_telemetry.v2"));
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, &status, 0), child);
    close(ready[0]);
    close(ready[1]);
}
