/* What is said of the place of a log. */
#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>
#include "ps/log/log_disk.h"
#include "tests/test.h"
#include "tests/unit/temporary_directory.h"

TEST(a_directory_is_measured_and_left_as_it_was)
{
    struct ps_log_disk disk;
    char *directory = temporary_directory_make();
    assert_int_equal(ps_log_disk_measure(directory, &disk), 0);
    assert_true(disk.flush_us > 0);
    assert_true(disk.bytes >= disk.free_bytes && disk.free_bytes > 0);
    assert_int_equal(rmdir(directory), 0); /* it is empty */
    assert_int_equal(ps_log_disk_look(directory, &disk), -ENOENT);
    assert_int_equal(ps_log_disk_measure(directory, &disk), -ENOENT);
    assert_int_equal(mkdir(directory, 0700), 0);
    assert_int_equal(temporary_directory_remove(directory), 0);
}

TEST(memory_is_no_disk)
{
    struct ps_log_disk disk;
    if (ps_log_disk_look("/dev/shm", &disk) != 0)
        skip();
    assert_int_equal(disk.kind, PS_LOG_DISK_MEMORY);
    assert_string_equal(disk.name, "tmpfs");
    assert_non_null(ps_log_disk_risk(&disk));
}

TEST(little_room_is_a_twentieth_of_a_disk_that_is_not_huge)
{
    struct ps_log_disk disk = {.bytes = 1000ull << 20, .free_bytes = 51ull << 20};
    assert_false(ps_log_disk_is_nearly_full(&disk));
    disk.free_bytes = 49ull << 20;
    assert_true(ps_log_disk_is_nearly_full(&disk));
    disk = (struct ps_log_disk){.bytes = 1000ull << 30, .free_bytes = 17ull << 30};
    assert_false(ps_log_disk_is_nearly_full(&disk));
}
