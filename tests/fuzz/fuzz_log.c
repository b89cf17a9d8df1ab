/* The reader of a log's segments on any bytes: an end, damage that is named, or records that are
 * well-formed. The file lives in memory. The first byte says what the rest is:
 *
 *   bit 0 clear  the file, as it is
 *   bit 0 set    records behind a right header and block, but for the number of records, which is the
 *                next byte; bit 1: and another block of them follows */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "fuzz_assert.h"
#include "ps/log/log_reader.h"

#define FILE_BYTES_MAX (1u << 20)

struct ps_store_file {
    const uint8_t *data;
    size_t bytes;
};

static int log_open(void *self, const char *path, struct ps_store_file **file, uint64_t *file_bytes)
{
    *file = self;
    *file_bytes = (*file)->bytes;
    return 0;
}

static int64_t log_read(struct ps_store_file *file, void *data, size_t bytes, uint64_t offset)
{
    const size_t left = offset < file->bytes ? file->bytes - offset : 0;
    const size_t count = bytes < left ? bytes : left;
    if (count > 0)
        memcpy(data, file->data + offset, count);
    return (int64_t)count;
}

static int log_close(struct ps_store_file *file)
{
    return 0;
}

/* Touches all of it. */
static void check_record(const struct ps_log_record *record, const uint8_t *content)
{
    uint64_t sum = 0;
    FUZZ_ASSERT(record->kind >= PS_LOG_PUSH && record->kind < PS_LOG_KINDS);
    FUZZ_ASSERT((uintptr_t)content % PS_LOG_RECORD_ALIGN == 0);
    FUZZ_ASSERT(record->kind != PS_LOG_PUSH || record->message_bytes <= record->bytes);
    for (uint64_t i = 0; i < record->bytes; i++)
        sum += content[i];
    FUZZ_ASSERT(sum <= record->bytes * UINT8_MAX);
}

static void read_segment(const uint8_t *data, size_t bytes)
{
    struct ps_store_file file = {data, bytes};
    const struct ps_store store = {.self = &file, .open = log_open, .read = log_read, .close = log_close};
    struct ps_log_reader *r = NULL;
    char text[PS_TEXT_BYTES] = "";
    int error;
    enum ps_log_read read = ps_log_reader_open(&store, "/segment-1.000", 0, &r, &error, text);
    FUZZ_ASSERT((read == PS_LOG_READ_RECORD) == (r != NULL));
    FUZZ_ASSERT(read != PS_LOG_READ_DAMAGED || text[0] != '\0');
    while (read == PS_LOG_READ_RECORD) {
        const struct ps_log_record *record;
        uint8_t *content;
        read = ps_log_reader_next(r, &record, &content, text);
        if (read == PS_LOG_READ_RECORD)
            check_record(record, content);
    }
    FUZZ_ASSERT(read != PS_LOG_READ_FAILED && (read != PS_LOG_READ_DAMAGED || text[0] != '\0'));
    FUZZ_ASSERT(r == NULL || ps_log_reader_good_bytes(r) <= bytes + PS_LOG_ALIGN);
    ps_log_reader_close(r);
}

/* A block of these records at its place; the place behind it. */
static size_t put_block(uint8_t *file, size_t at, uint64_t number, const uint8_t *records, size_t bytes,
                        uint32_t count)
{
    struct ps_log_block *block = (struct ps_log_block *)(void *)(file + at);
    *block = (struct ps_log_block){.record_count = count, .bytes = bytes};
    memcpy(block + 1, records, bytes);
    ps_log_block_seal(block, 7, number, number == 1);
    return at + ps_log_padded(sizeof(*block) + bytes, PS_LOG_ALIGN);
}

static void read_records(const uint8_t *data, size_t bytes, bool twice)
{
    static _Alignas(PS_LOG_ALIGN) uint8_t file[FILE_BYTES_MAX];
    struct ps_log_header *header = (struct ps_log_header *)(void *)file;
    const uint32_t count = bytes > 0 ? data[0] : 0;
    bytes = bytes > 1 ? (bytes - 1) & ~(size_t)(PS_LOG_RECORD_ALIGN - 1) : 0;
    if (bytes == 0 || bytes > FILE_BYTES_MAX / 4)
        return;
    memset(file, 0, sizeof(file));
    *header = (struct ps_log_header){.number = 1, .nonce = 7, .core_count = 1};
    ps_log_header_seal(header);
    size_t at = put_block(file, PS_LOG_ALIGN, 0, data + 1, bytes, count);
    if (twice)
        at = put_block(file, at, 1, data + 1, bytes, count);
    read_segment(file, at);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    if (bytes == 0)
        return 0;
    if (data[0] & 1)
        read_records(data + 1, bytes - 1, (data[0] & 2) != 0);
    else
        read_segment(data + 1, bytes - 1);
    return 0;
}
