#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "ps/checkpoint/checkpoint_format.h"
#include "tests/test.h"

#define ID   7u
#define CORE 2u
#define NUM  5u

static uint8_t *new_block(void)
{
    uint8_t *block = aligned_alloc(64, PS_BLOCK_BYTES);
    assert_non_null(block);
    memset(block, 0xA5, PS_BLOCK_BYTES); /* what a reused buffer holds */
    return block;
}

static struct ps_block_header *header_of(uint8_t *block)
{
    return (struct ps_block_header *)(void *)block;
}

/* One client's record in an otherwise empty block. */
static uint8_t *sealed_block(void)
{
    uint8_t *block = new_block();
    struct ps_record record = {.kind = PS_RECORD_CLIENT, .bytes = 24};
    memcpy(block + sizeof(struct ps_block_header), &record, sizeof(record));
    header_of(block)->payload_bytes = (uint32_t)ps_record_space(record.bytes);
    header_of(block)->record_count = 1;
    ps_block_seal(block, PS_FORMAT_VERSION, ID, CORE, NUM);
    return block;
}

/* Make the hash right again, as somebody who forges a block would. */
static void rehash(uint8_t *block)
{
    XXH128_hash_t hash = XXH3_128bits(block + 24, PS_BLOCK_BYTES - 24);
    header_of(block)->hash = (struct ps_hash){.low = hash.low64, .high = hash.high64};
}

TEST(test_sealed_block_verifies)
{
    uint8_t *block = sealed_block();
    assert_null(ps_block_check(block, PS_FORMAT_VERSION, ID, CORE, NUM));
    for (size_t i = sizeof(struct ps_block_header) + ps_record_space(24); i < PS_BLOCK_BYTES; i++)
        assert_int_equal(block[i], 0);
    free(block);
}

TEST(test_each_flipped_byte_is_found)
{
    uint8_t *block = sealed_block();
    /* All of header and records, then samples of the zeros behind them. */
    for (size_t i = 0; i < PS_BLOCK_BYTES; i += i < 256 ? 1 : 65521) {
        block[i] ^= 0x10;
        assert_non_null(ps_block_check(block, PS_FORMAT_VERSION, ID, CORE, NUM));
        block[i] ^= 0x10;
    }
    block[PS_BLOCK_BYTES - 1] ^= 1;
    assert_non_null(ps_block_check(block, PS_FORMAT_VERSION, ID, CORE, NUM));
    free(block);
}

TEST(test_a_block_in_another_place_is_refused)
{
    uint8_t *block = sealed_block();
    assert_non_null(ps_block_check(block, PS_FORMAT_VERSION_1, ID, CORE, NUM)); /* its manifest is older */
    assert_non_null(ps_block_check(block, PS_FORMAT_VERSION, ID + 1, CORE, NUM));
    assert_non_null(ps_block_check(block, PS_FORMAT_VERSION, ID, CORE + 1, NUM));
    assert_non_null(ps_block_check(block, PS_FORMAT_VERSION, ID, CORE, NUM + 1));
    free(block);
}

/* Sizes inside the block that lie, under a hash that does not. */
static void check_forged(uint32_t payload_bytes, uint32_t record_count, struct ps_record record)
{
    uint8_t *block = sealed_block();
    header_of(block)->payload_bytes = payload_bytes;
    header_of(block)->record_count = record_count;
    memcpy(block + sizeof(struct ps_block_header), &record, sizeof(record));
    rehash(block);
    assert_non_null(ps_block_check(block, PS_FORMAT_VERSION, ID, CORE, NUM));
    free(block);
}

TEST(test_forged_lengths_are_refused)
{
    const struct ps_record client = {.kind = PS_RECORD_CLIENT, .bytes = 24};
    check_forged(PS_PAYLOAD_BYTES + 8, 1, client);
    check_forged(UINT32_MAX - 7, 1, client);
    check_forged(57, 1, client);
    check_forged(48, 1, client); /* the record's content does not fit */
    check_forged(24, 1, client); /* not even its header */
    check_forged(56, 2, client); /* a record too many */
    check_forged(56, UINT32_MAX, client);
    check_forged(56, 0, client); /* a payload without records */
    check_forged(64, 1, client); /* bytes behind the last one */
    check_forged(56, 1, (struct ps_record){.kind = PS_RECORD_CLIENT, .bytes = UINT64_MAX - 3});
    check_forged(56, 1, (struct ps_record){.kind = PS_RECORD_CLIENT, .bytes = 16});
    check_forged(56, 1, (struct ps_record){.kind = 0, .bytes = 24});
    check_forged(56, 1, (struct ps_record){.kind = 77, .bytes = 24});
}

TEST(test_record_sizes)
{
    const uint32_t most = PS_RECORD_BYTES_MAX;
    struct ps_record rows = {.kind = PS_RECORD_ROWS, .count = 3, .row_bytes = 16, .bytes = 72};
    assert_null(ps_record_check(&rows));
    rows.bytes++;
    assert_non_null(ps_record_check(&rows));
    rows = (struct ps_record){.kind = PS_RECORD_ROWS, .count = 0, .row_bytes = 16, .bytes = 0};
    assert_non_null(ps_record_check(&rows));
    rows = (struct ps_record){.kind = PS_RECORD_ROWS, .count = 1, .row_bytes = 0, .bytes = 8};
    assert_non_null(ps_record_check(&rows));
    /* count * row bytes beyond 32 bits must not wrap into range */
    rows = (struct ps_record){.kind = PS_RECORD_ROWS, .count = 0x10000000, .row_bytes = 8, .bytes = 0};
    assert_non_null(ps_record_check(&rows));

    struct ps_record variable = {.kind = PS_RECORD_VARIABLE, .bytes = most};
    assert_null(ps_record_check(&variable));
    variable.bytes = (uint64_t)most + 1;
    assert_non_null(ps_record_check(&variable));
    variable.bytes = 0;
    assert_non_null(ps_record_check(&variable));
    variable = (struct ps_record){.kind = PS_RECORD_VARIABLE, .bytes = 8, .offset = UINT64_MAX - 7};
    assert_non_null(ps_record_check(&variable));

    struct ps_record stream = {.kind = PS_RECORD_STREAM, .bytes = 16};
    assert_null(ps_record_check(&stream));
    stream.bytes = 20;
    assert_non_null(ps_record_check(&stream));
    stream.bytes = 8;
    assert_non_null(ps_record_check(&stream));

    struct ps_record pushes = {.kind = PS_RECORD_PUSHES, .bytes = 32};
    assert_null(ps_record_check(&pushes));
    pushes.bytes = 160;
    assert_null(ps_record_check(&pushes));
    pushes.bytes = 168;
    assert_non_null(ps_record_check(&pushes));
    pushes.bytes = 36;
    assert_non_null(ps_record_check(&pushes));
    pushes.bytes = 24;
    assert_non_null(ps_record_check(&pushes));

    struct ps_record gone = {.kind = PS_RECORD_GONE, .count = 3, .bytes = 24};
    assert_null(ps_record_check(&gone));
    gone.bytes = 32;
    assert_non_null(ps_record_check(&gone));
    gone = (struct ps_record){.kind = PS_RECORD_GONE};
    assert_non_null(ps_record_check(&gone));

    struct ps_record observations = {
        .kind = PS_RECORD_OBSERVATIONS, .count = 64, .bytes = 64, .offset = MR_PARTITION_COUNT - 1};
    assert_null(ps_record_check(&observations));
    observations.bytes = 72;
    assert_non_null(ps_record_check(&observations));
    observations.bytes = 64;
    observations.offset = MR_PARTITION_COUNT;
    assert_non_null(ps_record_check(&observations));
    observations = (struct ps_record){.kind = PS_RECORD_OBSERVATIONS};
    assert_non_null(ps_record_check(&observations));
}

TEST(test_names)
{
    char path[PS_PATH_BYTES], file[PS_FILE_NAME_BYTES], longest[PS_PATH_BYTES];
    assert_true(ps_path_published("/d", 42, path));
    assert_string_equal(path, "/d/ckpt-42");
    assert_true(ps_path_temporary("/d", 42, path));
    assert_string_equal(path, "/d/.tmp-ckpt-42");
    ps_file_name(63, file);
    assert_string_equal(file, "core-063.mrc");
    memset(longest, 'x', sizeof(longest) - 1);
    longest[sizeof(longest) - 1] = '\0';
    assert_false(ps_path_published(longest, 1, path));
    assert_false(ps_path_join(longest, "a", path));

    assert_int_equal(ps_name_published("ckpt-42"), 42);
    assert_int_equal(ps_name_published("ckpt-9223372036854775807"), INT64_MAX);
    const char *const others[] = {"ckpt-",
                                  "ckpt-0",
                                  "ckpt-07",
                                  "ckpt-7x",
                                  "ckpt--7",
                                  "ckpt- 7",
                                  "ckpt-+7",
                                  "CKPT-7",
                                  "ckpt-9223372036854775808",
                                  "ckpt-99999999999999999999",
                                  ".tmp-ckpt-7",
                                  ""};
    for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++)
        assert_int_equal(ps_name_published(others[i]), 0);
    assert_int_equal(ps_name_temporary(".tmp-ckpt-7"), 7);
    assert_int_equal(ps_name_temporary("ckpt-7"), 0);
}

TEST(test_texts_name_path_reason_and_mend)
{
    char text[PS_TEXT_BYTES], longest[400];
    ps_text_io(text, "fsync of", "/ckpt/core-000.mrc", ENOSPC);
    assert_string_equal(text,
                        "fsync of /ckpt/core-000.mrc: No space left on device; free space there or save to "
                        "another directory");
    memset(longest, 'y', sizeof(longest) - 1);
    memcpy(longest + sizeof(longest) - 10, "/MANIFEST", 10);
    ps_text_io(text, "read", longest, EIO);
    assert_non_null(strstr(text, "/MANIFEST: Input/output error; check the disk"));
    ps_text_path(text, longest, "it is empty");
    assert_non_null(strstr(text, "/MANIFEST: it is empty"));
}

/* Once, and of that error alone. */
TEST(test_a_text_has_what_the_store_explained)
{
    char text[PS_TEXT_BYTES];
    ps_store_explain(EIO, "the server answered with HTTP status %d", 503);
    ps_text_io(text, "read", "/a", ENOENT);
    assert_null(strstr(text, "HTTP"));
    ps_text_io(text, "read", "/a", EIO);
    assert_string_equal(text, "read /a: the server answered with HTTP status 503");
    ps_text_io(text, "read", "/a", EIO);
    assert_null(strstr(text, "HTTP"));
    ps_store_explain(EIO, "no longer true");
    ps_store_explain(0, "%s", "");
    assert_null(ps_store_explanation(EIO));
}
