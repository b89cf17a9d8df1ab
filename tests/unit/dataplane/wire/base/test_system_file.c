/* Files as the kernel shows them, below a directory of the test's own. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "dataplane/wire/base/system_file.h"
#include "tests/test.h"
#include "tests/unit/temporary_directory.h"

static void write_file(const char *directory, const char *name, const char *content)
{
    char path[200];
    (void)snprintf(path, sizeof(path), "%s/%s", directory, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(content, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

TEST(files_are_read_as_far_as_there_is_room)
{
    char *directory = temporary_directory_make(), text[8], long_path[8192];
    write_file(directory, "list", "0-3,8\nmore\n");
    assert_string_equal(mr_system_read(directory, "/list", text, sizeof(text)), "0-3,8\nm");
    assert_string_equal(mr_system_read_line(directory, "/list", text, sizeof(text)), "0-3,8");
    assert_string_equal(mr_system_read_line(directory, "/list", text, 4), "0-3");
    assert_ptr_equal(mr_system_read(directory, "/absent", text, sizeof(text)), text);
    assert_string_equal(text, "");
    memset(long_path, '/', sizeof(long_path) - 1);
    long_path[sizeof(long_path) - 1] = '\0';
    assert_string_equal(mr_system_read_line(directory, long_path, text, sizeof(text)), "");
    assert_int_equal(temporary_directory_remove(directory), 0);
}

TEST(fields_begin_a_line)
{
    static const char meminfo[] = "MemTotal:  49 kB\nHugePages_Total:    1024\nHugepagesize:  2048 kB\n";
    assert_ptr_equal(mr_system_field(meminfo, "MemTotal:"), meminfo + 9);
    assert_ptr_equal(mr_system_field(meminfo, MR_SYSTEM_HUGE_PAGES),
                     strchr(meminfo, '\n') + 1 + strlen(MR_SYSTEM_HUGE_PAGES));
    assert_null(mr_system_field(meminfo, "Total:"));
    assert_null(mr_system_field("", "MemTotal:"));
}

TEST(the_machine_itself)
{
    static char text[65536];
    assert_non_null(mr_system_field(mr_system_read("", MR_SYSTEM_MEMINFO, text, sizeof(text)), "MemTotal:"));
}
