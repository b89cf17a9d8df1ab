#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint_fixture.h"
#include "ps/checkpoint/checkpoint.h"
#include "ps/checkpoint/checkpoint_manifest.h"
#include "tests/test.h"

#define MANY 70000u /* more than a file system lists in a few calls, and than 16 bits count */

static void directory_save(const char *directory, uint64_t id)
{
    assert_int_equal(fixture_save(ps_store_local(), directory, id, 20).status, MR_OK);
}

static void make_directory(const char *directory, const char *name)
{
    char path[PS_PATH_BYTES];
    assert_true(ps_path_join(directory, name, path));
    assert_int_equal(mkdir(path, 0755), 0);
}

/* A directory that never ends, once it is asked for: no disk has room for as many names as are read. */
static struct dirent *endless;

struct dirent *__real_readdir64(DIR *directory);
struct dirent *__wrap_readdir64(DIR *directory);
struct dirent *__wrap_readdir64(DIR *directory)
{
    return endless != NULL ? endless : __real_readdir64(directory);
}

static void count_file(void *arg, const char *name)
{
    *(uint32_t *)arg += name[0] == 'f';
}

TEST(test_more_names_than_are_read_is_an_error, temporary_directory_setup, temporary_directory_teardown)
{
    static struct dirent file = {.d_name = "file"};
    const struct ps_store *store = ps_store_local();
    uint32_t count = 0;
    endless = &file;
    assert_int_equal(store->list(store->self, *state, count_file, &count), -EOVERFLOW);
    endless = NULL;
    assert_int_equal(count, PS_STORE_ENTRIES_MAX);
}

/* Others who can write beside checkpoints make links in the names of what is removed. */
TEST(test_only_the_link_to_another_directory_is_removed, temporary_directory_setup,
     temporary_directory_teardown)
{
    const struct ps_store *store = ps_store_local();
    char victim[PS_PATH_BYTES], file[PS_PATH_BYTES], link[PS_PATH_BYTES];
    make_directory(*state, "victim");
    assert_true(ps_path_join(*state, "victim", victim) && ps_path_join(victim, "MANIFEST", file) &&
                ps_path_temporary(*state, 7, link));
    assert_int_equal(ps_store_write_new(store, file, "x", 1), 0);
    assert_int_equal(symlink(victim, link), 0);
    assert_int_equal(ps_store_remove_tree(store, link, PS_MANIFEST_NAME), 0);
    assert_int_equal(access(file, F_OK), 0);
    struct stat st;
    assert_int_equal(lstat(link, &st), -1);
    assert_int_equal(ps_store_remove_tree(store, link, PS_MANIFEST_NAME), -ENOENT);
    assert_int_equal(ps_store_remove_tree(store, victim, PS_MANIFEST_NAME), 0);
    assert_int_equal(access(victim, F_OK), -1);
}

static mode_t mode_of(const char *path)
{
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    return st.st_mode & 0777;
}

/* Whatever the umask: rows are for the node's user and group. */
TEST(test_other_users_do_not_read_checkpoints, temporary_directory_setup, temporary_directory_teardown)
{
    char directory[PS_PATH_BYTES], text[PS_TEXT_BYTES];
    const mode_t umask_before = umask(0);
    assert_true(ps_path_join(*state, "made", directory));
    int lock;
    assert_int_equal(ps_checkpoint_lock(directory, "a test", &lock, text), MR_OK);
    directory_save(directory, 1);
    (void)umask(umask_before);
    assert_int_equal(mode_of(directory), 0750);
    assert_int_equal(mode_of(fixture_path(directory, 1, "")), 0750);
    assert_int_equal(mode_of(fixture_path(directory, 1, PS_MANIFEST_NAME)), 0640);
    assert_int_equal(mode_of(fixture_path(directory, 1, "core-000.mrc")), 0640);
    ps_checkpoint_unlock(lock);
}

TEST(test_newest_first, temporary_directory_setup, temporary_directory_teardown)
{
    static const uint64_t order[] = {5, 100, 9, 1, 11};
    uint64_t ids[8];
    for (size_t i = 0; i < 5; i++)
        directory_save(*state, order[i]);
    make_directory(*state, "ckpt-007");
    make_directory(*state, "ckpt-x");
    make_directory(*state, "other");
    make_directory(*state, ".tmp-ckpt-200");
    static const uint64_t sorted[] = {100, 11, 9, 5, 1};
    assert_int_equal(ps_checkpoint_list(NULL, *state, ids, 8), 5);
    assert_memory_equal(ids, sorted, sizeof(sorted));
    /* Little room: the newest ones, and how many there are. */
    memset(ids, 0, sizeof(ids));
    assert_int_equal(ps_checkpoint_list(NULL, *state, ids, 2), 5);
    assert_memory_equal(ids, sorted, 2 * sizeof(*sorted));
    assert_int_equal(ids[2], 0);
    assert_int_equal(ps_checkpoint_list(NULL, *state, NULL, 0), 5);
    assert_int_equal(ps_checkpoint_list(NULL, "/nowhere/at/all", ids, 8), 0);
}

static int lists;

/* The first look succeeds. */
static int list_once(void *self, const char *path, void (*visit)(void *arg, const char *name), void *arg)
{
    return lists++ == 0 ? ps_store_local()->list(self, path, visit, arg) : -EIO;
}

TEST(test_where_there_is_none, temporary_directory_setup, temporary_directory_teardown)
{
    const char *directory = *state;
    char text[PS_TEXT_BYTES], path[PS_PATH_BYTES];
    uint64_t *ids;
    uint32_t count;
    assert_int_equal(ps_checkpoint_find(NULL, directory, &ids, &count, text), MR_CHECKPOINT_NOT_FOUND);
    assert_non_null(strstr(text, "there is no checkpoint in this directory"));
    assert_true(ps_path_join(directory, "nowhere", path));
    assert_int_equal(ps_checkpoint_find(NULL, path, &ids, &count, text), MR_CHECKPOINT_NOT_FOUND);
    assert_non_null(strstr(text, "nowhere: there is no such directory"));
    assert_true(ids == NULL && count == 0);
    /* One that cannot be listed may have some. */
    struct ps_store failing = *ps_store_local();
    failing.list = list_once;
    assert_int_equal(ps_checkpoint_find(&failing, directory, &ids, &count, text), MR_IO_ERROR);
    assert_null(ids);
}

TEST(test_retain_keeps_the_newest, temporary_directory_setup, temporary_directory_teardown)
{
    uint64_t ids[8];
    for (uint64_t id = 1; id <= 5; id++)
        directory_save(*state, id);
    make_directory(*state, "other");
    ps_checkpoint_retain(NULL, *state, &(struct ps_retention){.keep = 2});
    assert_int_equal(ps_checkpoint_list(NULL, *state, ids, 8), 2);
    assert_int_equal(ids[0], 5);
    assert_int_equal(ids[1], 4);
    assert_int_equal(fixture_count(*state, ""), 3);
    ps_checkpoint_retain(NULL, *state, &(struct ps_retention){.keep = 0}); /* never all of them */
    assert_int_equal(ps_checkpoint_list(NULL, *state, ids, 8), 1);
    struct ps_reader *r;
    char text[PS_TEXT_BYTES];
    assert_int_equal(ps_reader_open(NULL, *state, 0, &r, text), MR_OK);
    assert_int_equal(ps_reader_manifest(r)->id, 5);
    ps_reader_close(r);
}

TEST(test_retain_removes_what_dead_writers_left, temporary_directory_setup, temporary_directory_teardown)
{
    directory_save(*state, 1);
    make_directory(*state, ".tmp-ckpt-2");
    struct ps_writer *live;
    char text[PS_TEXT_BYTES];
    assert_int_equal(fixture_start(ps_store_local(), *state, 3, &live, text), MR_OK);
    ps_checkpoint_retain(NULL, *state, &(struct ps_retention){.keep = 5});
    assert_int_equal(fixture_count(*state, ".tmp-ckpt-2"), 0);
    assert_int_equal(fixture_count(*state, ".tmp-ckpt-3"), 1);
    fixture_publish(live, FIXTURE_CORES);
    assert_int_equal(fixture_count(*state, "ckpt-"), 2);
}

/* A disk that fails behind the first entries of a directory. */
static int list_less(void *self, const char *path, void (*visit)(void *arg, const char *name), void *arg)
{
    (void)self;
    (void)path;
    visit(arg, "ckpt-1");
    return -EIO;
}

TEST(test_a_list_with_gaps_is_nothing_to_go_by, temporary_directory_setup, temporary_directory_teardown)
{
    struct ps_store gaps = *ps_store_local();
    char text[PS_TEXT_BYTES];
    uint64_t ids[8], id = 0;
    uint32_t count;
    gaps.list = list_less;
    for (uint64_t number = 1; number <= 3; number++)
        directory_save(*state, number);
    assert_int_equal(ps_checkpoint_list_all(&gaps, *state, ids, 8, &count), -EIO);
    assert_int_equal(ps_checkpoint_next_id(&gaps, *state, &id, text), MR_IO_ERROR);
    assert_non_null(strstr(text, "check the disk"));
    ps_checkpoint_retain(&gaps, *state, &(struct ps_retention){.keep = 1});
    assert_int_equal(ps_checkpoint_list(NULL, *state, ids, 8), 3);
}

TEST(test_the_next_number, temporary_directory_setup, temporary_directory_teardown)
{
    char text[PS_TEXT_BYTES], file[PS_PATH_BYTES];
    uint64_t id = 0;
    assert_int_equal(ps_checkpoint_next_id(NULL, "/nowhere/at/all", &id, text), MR_OK);
    assert_int_equal(id, 1);
    directory_save(*state, 7);
    assert_int_equal(ps_checkpoint_next_id(NULL, *state, &id, text), MR_OK);
    assert_int_equal(id, 8);
    assert_true(ps_path_join(*state, "ckpt-7/MANIFEST", file));
    assert_int_equal(ps_checkpoint_next_id(NULL, file, &id, text), MR_IO_ERROR);
    make_directory(*state, "ckpt-9223372036854775807");
    assert_int_equal(ps_checkpoint_next_id(NULL, *state, &id, text), MR_INVALID_ARGUMENT);
    assert_non_null(strstr(text, "highest number"));
}

static void count_name(void *arg, const char *name)
{
    (void)name;
    ++*(uint32_t *)arg;
}

/* A directory that holds other things, too: however many, a checkpoint among them is found. */
TEST(test_a_directory_of_many_entries, temporary_directory_setup, temporary_directory_teardown)
{
    const struct ps_store *store = ps_store_local();
    char path[PS_PATH_BYTES], name[32];
    uint32_t count = 0;
    uint64_t id;
    assert_true(ps_path_join(*state, "many", path));
    assert_int_equal(mkdir(path, 0755), 0);
    int directory = open(path, O_RDONLY | O_DIRECTORY);
    for (uint32_t i = 0; i < MANY; i++) {
        (void)snprintf(name, sizeof(name), "x%u", i);
        assert_int_equal(symlinkat("x", directory, name), 0);
    }
    directory_save(path, 7);
    assert_int_equal(store->list(store->self, path, count_name, &count), 0);
    assert_int_equal(count, MANY + 1);
    assert_int_equal(ps_checkpoint_list(NULL, path, &id, 1), 1);
    assert_int_equal(id, 7);
    close(directory);
}

/* One writer per directory; the other one learns who that is. */
TEST(test_a_directory_has_one_writer, temporary_directory_setup, temporary_directory_teardown)
{
    char text[PS_TEXT_BYTES], pid[32], path[PS_PATH_BYTES], away[PS_PATH_BYTES];
    int first, second;
    assert_true(ps_path_join(*state, "new", path) && ps_path_join(*state, "away", away));
    assert_int_equal(ps_checkpoint_lock(path, "millraced a", &first, text), MR_OK);
    assert_true(ps_checkpoint_lock_is_on(first, path));
    assert_int_equal(ps_checkpoint_lock(path, "millraced b", &second, text), MR_IO_ERROR);
    assert_int_equal(second, PS_NO_LOCK);
    (void)snprintf(pid, sizeof(pid), ", pid %d: give each server", (int)getpid());
    assert_non_null(strstr(text, "/new: in use by millraced a on host "));
    assert_non_null(strstr(text, pid));
    /* Another directory comes in its place. */
    assert_int_equal(rename(path, away), 0);
    assert_false(ps_checkpoint_lock_is_on(first, path));
    assert_int_equal(ps_checkpoint_lock(path, "millraced b", &second, text), MR_OK);
    assert_false(ps_checkpoint_lock_is_on(first, path));
    assert_true(ps_checkpoint_lock_is_on(first, away));
    ps_checkpoint_unlock(second);
    ps_checkpoint_unlock(first);
    assert_int_equal(ps_checkpoint_lock(away, "millraced c", &first, text), MR_OK);
    ps_checkpoint_unlock(first);
}

/* What stands in the lock file may be anybody's: too long, or nothing. */
TEST(test_a_lock_file_of_any_content, temporary_directory_setup, temporary_directory_teardown)
{
    enum { HOLDER = 160 };
    const char *path = "held"; /* a long one would leave no room in the text */
    char text[PS_TEXT_BYTES], junk[2 * HOLDER + 1] = "";
    int first, second;
    assert_int_equal(chdir(*state), 0);
    assert_int_equal(ps_checkpoint_lock(path, "millraced a", &first, text), MR_OK);
    int fd = open("held/lock", O_WRONLY | O_TRUNC);
    assert_true(fd >= 0);
    assert_int_equal(ps_checkpoint_lock(path, "millraced b", &second, text), MR_IO_ERROR);
    assert_non_null(strstr(text, "held: in use by another process: give each server its own directory"));
    memset(junk, 'x', 2 * HOLDER);
    assert_int_equal(write(fd, junk, 2 * HOLDER), 2 * HOLDER);
    assert_int_equal(ps_checkpoint_lock(path, "millraced b", &second, text), MR_IO_ERROR);
    junk[HOLDER - 1] = 0;
    char *said = strstr(text, junk);
    assert_non_null(said);
    assert_string_equal(said + HOLDER - 1, ": give each server its own directory");
    close(fd);
    ps_checkpoint_unlock(first);
    assert_int_equal(ps_checkpoint_lock(path, "millraced b", &second, text), MR_OK);
    ps_checkpoint_unlock(second);
    assert_int_equal(chdir("/"), 0);
}
