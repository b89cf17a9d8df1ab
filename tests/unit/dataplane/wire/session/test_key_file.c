#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "dataplane/wire/session/key_file.h"
#include "tests/test.h"

#define HEX "00112233445566778899aabbccddeeff0123456789ABCDEFfedcba9876543210"
static const uint8_t expected[MR_PSK_BYTES] = {
    0x00, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff,
    0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef, 0xfe, 0xdc, 0xba, 0x98, 0x76, 0x54, 0x32, 0x10};

TEST(keys_are_taken_with_white_space_around)
{
    static const char *const good[] = {(HEX), (HEX "\n"), ("  " HEX "\r\n\n"), ("\n\t" HEX)};
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        uint8_t key[MR_PSK_BYTES] = {0};
        assert_int_equal(mr_key_parse(good[i], strlen(good[i]), key, NULL), MR_OK);
        assert_memory_equal(key, expected, sizeof(key));
    }
}

TEST(anything_else_is_refused_with_the_reason)
{
    static const char zeros[] = "0000000000000000000000000000000000000000000000000000000000000000";
    static const struct {
        const char *text, *why;
    } bad[] = {
        {"", "empty"},
        {" \n", "empty"},
        {"abcd", "fewer"},
        {HEX "0", "more"},
        {HEX "\n" HEX, "more"},
        {"g0112233445566778899aabbccddeeff0123456789ABCDEFfedcba9876543210", "not a hex digit"},
        {"00112233445566778899aabbccddeeff 0123456789ABCDEFfedcba987654321", "not a hex digit"},
        {"00112233445566778899aabbccddeeff0123456789ABCDEFfedcba987654321z", "not a hex digit"},
        {zeros, "all zeros"},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        uint8_t key[MR_PSK_BYTES];
        const char *why = NULL;
        memset(key, 0x77, sizeof(key));
        assert_int_equal(mr_key_parse(bad[i].text, strlen(bad[i].text), key, &why), MR_INVALID_ARGUMENT);
        assert_non_null(why);
        assert_non_null(strstr(why, bad[i].why));
        assert_null(memchr(key, 0x00, sizeof(key))); /* untouched */
        assert_int_equal(mr_key_parse(bad[i].text, strlen(bad[i].text), key, NULL), MR_INVALID_ARGUMENT);
    }
}

static void key_file_put(char path[32], const void *text, size_t n)
{
    memcpy(path, "/tmp/mr_key_XXXXXX", sizeof("/tmp/mr_key_XXXXXX"));
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, n), (ssize_t)n);
    close(fd);
}

TEST(files_are_read)
{
    char path[32], error[256] = "";
    uint8_t key[MR_PSK_BYTES] = {0};
    key_file_put(path, HEX "\n", 65);
    assert_int_equal(mr_key_file_read(path, key, error, sizeof(error)), MR_OK);
    assert_memory_equal(key, expected, sizeof(key));
    assert_string_equal(error, "");
    unlink(path);
}

TEST(errors_are_one_line_with_path_and_reason)
{
    char path[32], error[256] = "";
    uint8_t key[MR_PSK_BYTES];
    key_file_put(path, "abc\n", 4);
    assert_int_equal(mr_key_file_read(path, key, error, sizeof(error)), MR_INVALID_ARGUMENT);
    assert_non_null(strstr(error, path));
    assert_non_null(strstr(error, "64 hex digits"));
    assert_null(strchr(error, '\n'));
    unlink(path);

    assert_int_equal(mr_key_file_read(path, key, error, sizeof(error)), MR_INVALID_ARGUMENT);
    assert_non_null(strstr(error, path));
    assert_non_null(strstr(error, "No such file"));
    assert_non_null(strstr(error, "openssl rand -hex 32"));

    assert_int_equal(mr_key_file_read("/", key, error, sizeof(error)), MR_INVALID_ARGUMENT);
    assert_non_null(strstr(error, "directory"));
}

TEST(a_file_of_any_size_or_content_is_only_refused)
{
    static char big[1 << 16];
    char path[32], error[64] = "";
    uint8_t key[MR_PSK_BYTES];
    key_file_put(path, big, sizeof(big)); /* zeros, and longer than what is read of it */
    assert_int_equal(mr_key_file_read(path, key, error, sizeof(error)), MR_INVALID_ARGUMENT);
    unlink(path);
    memset(big, ' ', sizeof(big));
    for (size_t i = 0; i < 64; i++)
        big[i] = HEX[i];
    big[5000] = 'x'; /* behind the part that looks like a key */
    key_file_put(path, big, sizeof(big));
    assert_int_equal(mr_key_file_read(path, key, error, sizeof(error)), MR_INVALID_ARGUMENT);
    unlink(path);
}

TEST(files_that_others_reach_are_exposed)
{
    static const struct {
        mode_t mode;
        bool is_exposed;
    } modes[] = {{0600, false}, {0400, false}, {0640, false}, {0644, true},
                 {0604, true},  {0660, true},  {0602, true}};
    char path[32];
    key_file_put(path, HEX, strlen(HEX));
    for (size_t i = 0; i < sizeof(modes) / sizeof(*modes); i++) {
        assert_int_equal(chmod(path, modes[i].mode), 0);
        assert_true(mr_key_file_is_exposed(path) == modes[i].is_exposed);
    }
    if (geteuid() == 0) { /* the group may read it, and is not the reader's */
        assert_int_equal(chmod(path, 0640), 0);
        assert_int_equal(chown(path, 0, 65533), 0);
        assert_true(mr_key_file_is_exposed(path));
    }
    unlink(path);
    assert_false(mr_key_file_is_exposed(path));
}
