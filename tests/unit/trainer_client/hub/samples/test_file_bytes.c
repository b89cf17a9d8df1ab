/* Bytes of files, as they are and unpacked. */
#include <stdlib.h>
#include <string.h>
#include "tests/test.h"
#include "tests/unit/trainer_client/hub/packed.h"
#include "tests/unit/trainer_client/hub/temp_file.h"
#include "trainer_client/hub/samples/file_bytes.h"

#define TEXT_BYTES 700000u /* more than is read of a packed file at once, packed or not */

static char text[TEXT_BYTES];

static int make_text(void **state)
{
    unsigned int random = 1;
    for (size_t i = 0; i < TEXT_BYTES; i++)
        text[i] = (char)('a' + rand_r(&random) % 26);
    return 0;
}

/* The file holds the text; read in pieces of `step` bytes, and from places further on and back. */
static void expect_text(const struct temp_file *file, bool is_packed, size_t step)
{
    char *out = malloc(step);
    struct hub_file_bytes *in = hub_file_bytes_create(file->fd);
    assert_non_null(out);
    assert_non_null(in);
    assert_int_equal(hub_file_bytes_is_packed(in), is_packed);
    size_t at = 0;
    for (ssize_t n; (n = hub_file_bytes_read(in, out, step, at)) != 0; at += (size_t)n) {
        assert_true(n > 0 && at + (size_t)n <= TEXT_BYTES);
        assert_memory_equal(out, text + at, (size_t)n);
    }
    assert_int_equal(at, TEXT_BYTES);
    static const size_t places[] = {0, 300000, 300001, 5, 699999, TEXT_BYTES, TEXT_BYTES + 5, 100};
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        ssize_t n = hub_file_bytes_read(in, out, 1, places[i]);
        assert_int_equal(n, places[i] < TEXT_BYTES);
        if (n > 0)
            assert_int_equal(out[0], text[places[i]]);
        if (i == 3)
            hub_file_bytes_rest(in);
    }
    hub_file_bytes_destroy(in);
    free(out);
}

static void expect_unpacked(struct packed packed)
{
    struct temp_file file = temp_file_make(packed.data, packed.bytes);
    expect_text(&file, true, 1000);
    expect_text(&file, true, TEXT_BYTES);
    close(file.fd);
    free(packed.data);
}

TEST(plain_files)
{
    struct temp_file file = temp_file_make(text, TEXT_BYTES);
    expect_text(&file, false, 1000);
    close(file.fd);
}

TEST(gzip)
{
    expect_unpacked(packed_gzip(text, TEXT_BYTES));
    expect_unpacked(packed_join(packed_gzip(text, 7), packed_gzip(text + 7, TEXT_BYTES - 7)));
}

TEST(zstd)
{
    expect_unpacked(packed_zstd(text, TEXT_BYTES));
    expect_unpacked(packed_join(packed_zstd(text, 7), packed_zstd(text + 7, TEXT_BYTES - 7)));
}

static struct packed copy_of(const void *data, size_t bytes)
{
    struct packed p = {malloc(bytes), bytes};
    assert_non_null(p.data);
    memcpy(p.data, data, bytes);
    return p;
}

/* Blocks of tar, and some stores' parts, are filled up with zeros; so may be each of several files. */
static struct packed zeros(void)
{
    static const char block[10240];
    return copy_of(block, sizeof(block));
}

TEST(zeros_follow)
{
    expect_unpacked(packed_join(packed_gzip(text, TEXT_BYTES), zeros()));
    expect_unpacked(packed_join(packed_zstd(text, TEXT_BYTES), zeros()));
    expect_unpacked(
        packed_join(packed_join(packed_gzip(text, 7), zeros()), packed_gzip(text + 7, TEXT_BYTES - 7)));
    expect_unpacked(
        packed_join(packed_join(packed_zstd(text, 7), zeros()), packed_zstd(text + 7, TEXT_BYTES - 7)));
}

/* A frame that holds no samples: pzstd writes its sizes into them, other tools an index. */
static struct packed skippable(uint8_t number, uint32_t bytes)
{
    struct packed p = {calloc(1, 8 + bytes), 8 + bytes};
    assert_non_null(p.data);
    memcpy(p.data, "\x50\x2a\x4d\x18", 4);
    p.data[0] = (char)(p.data[0] + number);
    memcpy(p.data + 4, &bytes, 4);
    return p;
}

TEST(frames_without_samples)
{
    expect_unpacked(packed_join(skippable(0, 4), packed_zstd(text, TEXT_BYTES)));
    expect_unpacked(
        packed_join(skippable(15, 200000), packed_join(packed_zstd(text, TEXT_BYTES), skippable(7, 300))));
}

static void expect_damage(struct packed packed, const char *what)
{
    struct temp_file file = temp_file_make(packed.data, packed.bytes);
    struct hub_file_bytes *in = hub_file_bytes_create(file.fd);
    char out[4096];
    uint64_t at = 0;
    ssize_t n;
    assert_non_null(in);
    while ((n = hub_file_bytes_read(in, out, sizeof(out), at)) > 0)
        at += (uint64_t)n;
    assert_int_equal(n, -1);
    if (strstr(hub_file_bytes_error(in), what) == NULL)
        fail_msg("\"%s\" does not contain \"%s\"", hub_file_bytes_error(in), what);
    hub_file_bytes_destroy(in);
    close(file.fd);
    free(packed.data);
}

TEST(what_is_damaged_is_said)
{
    struct packed p = packed_gzip(text, TEXT_BYTES);
    p.bytes -= 20;
    expect_damage(p, "end too early");
    p = packed_zstd(text, TEXT_BYTES);
    p.bytes -= 20;
    expect_damage(p, "end too early");
    p = packed_gzip(text, TEXT_BYTES);
    memset(p.data + 50000, 0xff, 100);
    expect_damage(p, "gzip data are damaged");
    p = packed_zstd(text, TEXT_BYTES);
    memset(p.data + 4, 0xff, 100);
    expect_damage(p, "zstd data are damaged");
    p = packed_join(packed_gzip(text, 10), packed_zstd(text, 10));
    expect_damage(p, "gzip data are damaged");
    p = packed_join(packed_join(packed_gzip(text, 10), zeros()), copy_of("x1234", 5));
    expect_damage(p, "gzip data are damaged");
    p = packed_join(packed_join(packed_zstd(text, 10), zeros()), copy_of("x1234", 5));
    expect_damage(p, "zstd data are damaged");
    p = skippable(0, 300);
    p.bytes -= 20;
    expect_damage(p, "end too early");
}

TEST(short_files_are_plain)
{
    static const char *const contents[] = {"", "\x1f", "\x28\xb5\x2f"};
    for (size_t i = 0; i < sizeof(contents) / sizeof(contents[0]); i++) {
        struct temp_file file = temp_file_text(contents[i]);
        struct hub_file_bytes *in = hub_file_bytes_create(file.fd);
        char out[8];
        assert_non_null(in);
        assert_int_equal(hub_file_bytes_read(in, out, sizeof(out), 0), strlen(contents[i]));
        hub_file_bytes_destroy(in);
        close(file.fd);
    }
    hub_file_bytes_destroy(NULL);
}

int main(void)
{
    return tests_run(make_text, NULL);
}
