#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "tests/test.h"
#include "tests/unit/temporary_directory.h"
#include "tools/capture/capture_files.h"

enum { MIB = 1 << 20, PACKET_BYTES = 9000 };

static uint8_t content[8 * MIB];

static void capture_files_begin(void *arg, struct pcapng *out)
{
    pcapng_add_section(out, &(struct pcapng_section){.program = "test"});
    pcapng_add_interface(out, &(struct pcapng_interface){.link_type = 1, .name = arg});
}

static void capture_files_end(void *arg, struct pcapng *out)
{
    (void)arg;
    pcapng_add_statistics(out, &(struct pcapng_statistics){.interface = 0});
}

static struct capture_files files_of(const char *path)
{
    static char name[] = "core 0";
    return (struct capture_files){
        .path = path, .begin = capture_files_begin, .end = capture_files_end, .arg = name};
}

/* Counts the packets of a whole file: a section, an interface, packets, statistics; -1: there is none. */
static int32_t read_file(const char *directory, const char *name, uint32_t *first_time)
{
    char path[256];
    (void)snprintf(path, sizeof(path), "%s/%s", directory, name);
    FILE *file = fopen(path, "r");
    if (file == NULL)
        return -1;
    const size_t bytes = fread(content, 1, sizeof(content), file);
    (void)fclose(file);
    int32_t packets = 0;
    uint32_t number = 0, last = 0;
    for (size_t at = 0; at < bytes; number++) {
        uint32_t type, length, again;
        memcpy(&type, content + at, 4);
        memcpy(&length, content + at + 4, 4);
        assert_true(length >= 12 && length <= bytes - at);
        memcpy(&again, content + at + length - 4, 4);
        assert_int_equal(length, again);
        if (number == 0)
            assert_int_equal(type, 0x0a0d0d0a);
        if (type == 6 && packets++ == 0 && first_time != NULL)
            memcpy(first_time, content + at + 16, 4);
        last = type;
        at += length;
    }
    assert_int_equal(last, 5);
    return packets;
}

static void add_packets(struct capture_files *files, uint32_t first, uint32_t count)
{
    static const uint8_t data[PACKET_BYTES];
    char error[CAPTURE_ERROR_BYTES];
    for (uint32_t i = 0; i < count; i++)
        assert_true(capture_files_add(
            files,
            &(struct pcapng_packet){.time_ns = first + i, .bytes = data, .captured_bytes = sizeof(data)},
            error));
}

TEST(names_are_numbered_before_their_ending)
{
    static const struct {
        const char *path, *numbered;
    } names[] = {
        {"x.pcapng", "x-00007.pcapng"}, {"x", "x-00007"},
        {"/a.b/x", "/a.b/x-00007"},     {"./a/x.y.z", "./a/x.y-00007.z"},
        {".hidden", ".hidden-00007"},   {"/a/.hidden", "/a/.hidden-00007"},
    };
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        char name[64];
        capture_file_name(names[i].path, 7, name, sizeof(name));
        assert_string_equal(name, names[i].numbered);
    }
}

TEST(one_file_holds_everything, temporary_directory_setup, temporary_directory_teardown)
{
    char path[256], error[CAPTURE_ERROR_BYTES];
    (void)snprintf(path, sizeof(path), "%s/x.pcapng", (char *)*state);
    struct capture_files files = files_of(path);
    assert_true(capture_files_open(&files, error));
    add_packets(&files, 0, 300);
    assert_true(capture_files_close(&files, error));
    assert_int_equal(read_file(*state, "x.pcapng", NULL), 300);
}

/* Each file is whole, and as long as it may be; only the last ones are kept. */
TEST(the_last_files_are_kept, temporary_directory_setup, temporary_directory_teardown)
{
    char path[256], error[CAPTURE_ERROR_BYTES];
    uint32_t first = 0;
    struct stat about;
    (void)snprintf(path, sizeof(path), "%s/x.pcapng", (char *)*state);
    struct capture_files files = files_of(path);
    files.file_bytes = MIB;
    files.files_max = 2;
    assert_true(capture_files_open(&files, error));
    add_packets(&files, 0, 500); /* 115 in each */
    assert_true(capture_files_close(&files, error));
    assert_int_equal(files.number, 5);
    assert_int_equal(read_file(*state, "x.pcapng", NULL), -1);
    for (uint32_t i = 1; i <= 3; i++) {
        (void)snprintf(path, sizeof(path), "x-%05u.pcapng", i);
        assert_int_equal(read_file(*state, path, NULL), -1);
    }
    assert_int_equal(read_file(*state, "x-00004.pcapng", &first), 115);
    assert_int_equal(first, 3 * 115);
    assert_int_equal(read_file(*state, "x-00005.pcapng", &first), 500 - 4 * 115);
    (void)snprintf(path, sizeof(path), "%s/x-00004.pcapng", (char *)*state);
    assert_int_equal(stat(path, &about), 0);
    assert_int_in_range(about.st_size, MIB - PACKET_BYTES - 100, MIB);
}

/* As a reader finds it that looks in between, or after the program was killed. */
TEST(what_was_flushed_is_whole_blocks, temporary_directory_setup, temporary_directory_teardown)
{
    char path[256], error[CAPTURE_ERROR_BYTES];
    struct stat about;
    (void)snprintf(path, sizeof(path), "%s/x.pcapng", (char *)*state);
    struct capture_files files = files_of(path);
    assert_true(capture_files_open(&files, error));
    add_packets(&files, 0, 3);
    assert_true(capture_files_flush(&files, error));
    const struct pcapng_packet packet = {.captured_bytes = PACKET_BYTES};
    assert_int_equal(stat(path, &about), 0);
    assert_int_equal(about.st_size, files.written);
    assert_true(files.written > 3 * pcapng_packet_bytes(&packet));
    assert_true(capture_files_close(&files, error));
}

TEST(what_cannot_be_written_is_said, temporary_directory_setup, temporary_directory_teardown)
{
    char path[256], error[CAPTURE_ERROR_BYTES] = "";
    (void)snprintf(path, sizeof(path), "%s/none/x.pcapng", (char *)*state);
    struct capture_files files = files_of(path);
    assert_false(capture_files_open(&files, error));
    assert_non_null(strstr(error, "none/x.pcapng cannot be made: No such file"));
    assert_false(capture_files_close(&files, error));
    files = files_of("/dev/full");
    assert_false(capture_files_open(&files, error));
    assert_non_null(strstr(error, "/dev/full cannot be written: No space left"));
    (void)capture_files_close(&files, error);
}

/* Packets have keys of rows and gradients: only their user reads them, whatever the umask. */
TEST(files_are_their_users_alone, temporary_directory_setup, temporary_directory_teardown)
{
    char path[256], error[CAPTURE_ERROR_BYTES];
    struct stat st;
    (void)snprintf(path, sizeof(path), "%s/own.pcapng", (const char *)*state);
    struct capture_files files = files_of(path);
    const mode_t umask_before = umask(0);
    assert_true(capture_files_open(&files, error));
    (void)umask(umask_before);
    assert_true(capture_files_close(&files, error));
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
}
