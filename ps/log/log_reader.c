#include "ps/log/log_reader.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct ps_log_reader {
    const struct ps_store *store;
    struct ps_store_file *file;
    char path[PS_PATH_BYTES];
    struct ps_log_header header;
    uint64_t file_bytes;
    uint64_t offset; /* of the next block */
    uint64_t number; /* its number */
    uint64_t torn_bytes;
    bool is_closed;     /* the block before was the last */
    bool has_no_header; /* blocks of any segment count */
    struct ps_log_block *block;
    uint64_t capacity_bytes;
    uint32_t records_left; /* of the block */
    uint8_t *next;         /* record */
};

static enum ps_log_read reader_fail(const struct ps_log_reader *r, const char *what, int error,
                                    char text[PS_TEXT_BYTES])
{
    ps_text_io(text, what, r->path, -error);
    return PS_LOG_READ_FAILED;
}

static enum ps_log_read reader_damaged(const struct ps_log_reader *r, const char *why, uint64_t offset,
                                       char text[PS_TEXT_BYTES])
{
    char line[PS_TEXT_BYTES];
    snprintf(line, sizeof(line), "at byte %" PRIu64 ": %s", offset, why);
    ps_text_path(text, r->path, line);
    return PS_LOG_READ_DAMAGED;
}

/* The whole block at this offset, if it is one of the segment with this number or a higher one, into the
 * reader's memory. *why is NULL then, else what is wrong. Returns 0, -errno or -ENOMEM. */
static int block_read(struct ps_log_reader *r, uint64_t offset, uint64_t number, const char **why)
{
    struct ps_log_block head;
    const uint64_t left = r->file_bytes - offset;
    *why = "not a block of this segment";
    r->torn_bytes = left < sizeof(head) ? left : 0;
    if (left < sizeof(head))
        return 0;
    int error = ps_store_read_all(r->store, r->file, &head, sizeof(head), offset);
    if (r->has_no_header)
        r->header.nonce = head.nonce;
    if (error != 0 || head.magic != PS_LOG_BLOCK_MAGIC || head.nonce != r->header.nonce)
        return error == -ENODATA ? 0 : error;
    const uint64_t bytes = sizeof(head) + head.bytes;
    r->torn_bytes = bytes < left ? bytes : left;
    if (!ps_log_block_is_header(&head, r->header.nonce, number, left - sizeof(head)))
        return 0;
    if (bytes > r->capacity_bytes) {
        free(r->block);
        r->capacity_bytes = ps_log_padded(bytes, PS_LOG_ALIGN);
        r->block = aligned_alloc(PS_LOG_ALIGN, r->capacity_bytes);
        if (r->block == NULL) {
            r->capacity_bytes = 0;
            return -ENOMEM;
        }
    }
    error = ps_store_read_all(r->store, r->file, r->block, bytes, offset);
    if (error != 0)
        return error == -ENODATA ? 0 : error;
    *why = ps_log_block_check(r->block);
    return 0;
}

/* Whether a whole block of the segment lies behind this offset. 0 or -errno. */
static int find_later(struct ps_log_reader *r, uint64_t offset, bool *is_there)
{
    const char *why;
    *is_there = false;
    for (offset += PS_LOG_ALIGN; offset < r->file_bytes && !*is_there; offset += PS_LOG_ALIGN) {
        const int error = block_read(r, offset, r->number, &why);
        if (error != 0)
            return error;
        *is_there = why == NULL;
    }
    return 0;
}

static enum ps_log_read reader_judge(struct ps_log_reader *r, const char *why, char text[PS_TEXT_BYTES])
{
    const uint64_t torn_bytes = r->torn_bytes;
    bool is_there;
    const int error = find_later(r, r->offset, &is_there);
    if (error != 0)
        return reader_fail(r, "cannot read", error, text);
    if (is_there)
        return reader_damaged(r, why, r->offset, text);
    r->torn_bytes = torn_bytes;
    return torn_bytes > 0 ? PS_LOG_READ_TORN : PS_LOG_READ_END;
}

enum ps_log_read ps_log_reader_next(struct ps_log_reader *r, const struct ps_log_record **record,
                                    uint8_t **content, char text[PS_TEXT_BYTES])
{
    const char *why;
    while (r->records_left == 0) {
        if (r->offset >= r->file_bytes || r->is_closed)
            return PS_LOG_READ_END;
        const int error = block_read(r, r->offset, r->number, &why);
        if (error != 0)
            return reader_fail(r, "cannot read", error, text);
        if (why == NULL && r->block->number != r->number)
            return reader_damaged(r, "a block is missing before this one", r->offset, text);
        if (why != NULL)
            return reader_judge(r, why, text);
        r->is_closed = r->block->is_last != 0;
        r->records_left = r->block->record_count;
        r->next = (uint8_t *)(r->block + 1);
        r->offset += ps_log_padded(sizeof(*r->block) + r->block->bytes, PS_LOG_ALIGN);
        r->number++;
    }
    *record = (const struct ps_log_record *)(void *)r->next;
    *content = r->next + sizeof(**record);
    r->next += ps_log_record_space((*record)->bytes);
    r->records_left--;
    return PS_LOG_READ_RECORD;
}

uint64_t ps_log_reader_good_bytes(const struct ps_log_reader *r)
{
    return r->offset;
}

uint64_t ps_log_reader_torn_bytes(const struct ps_log_reader *r)
{
    return r->torn_bytes;
}

bool ps_log_reader_is_closed(const struct ps_log_reader *r)
{
    return r->is_closed;
}

int ps_log_reader_sync(const struct ps_log_reader *r)
{
    return r->store->sync(r->file);
}

const struct ps_log_header *ps_log_reader_header(const struct ps_log_reader *r)
{
    return &r->header;
}

/* ---- life ---- */

static enum ps_log_read header_read(struct ps_log_reader *r, uint64_t limit_bytes, char text[PS_TEXT_BYTES])
{
    r->offset = PS_LOG_ALIGN;
    if (limit_bytes != 0 && limit_bytes < r->file_bytes)
        r->file_bytes = limit_bytes;
    if (r->file_bytes < sizeof(r->header))
        return PS_LOG_READ_TORN;
    const int error = ps_store_read_all(r->store, r->file, &r->header, sizeof(r->header), 0);
    if (error != 0)
        return reader_fail(r, "cannot read", error, text);
    const char *why = ps_log_header_check(&r->header);
    if (why == NULL)
        return PS_LOG_READ_RECORD;
    /* Blocks only follow a header that was durable. */
    bool has_block;
    r->has_no_header = true;
    const int failed = find_later(r, 0, &has_block);
    if (failed != 0)
        return reader_fail(r, "cannot read", failed, text);
    return has_block ? reader_damaged(r, why, 0, text) : PS_LOG_READ_TORN;
}

enum ps_log_read ps_log_reader_open(const struct ps_store *store, const char *path, uint64_t limit_bytes,
                                    struct ps_log_reader **out, int *error, char text[PS_TEXT_BYTES])
{
    struct ps_log_reader *r = calloc(1, sizeof(*r));
    *error = -ENOMEM;
    if (r == NULL) {
        snprintf(text, PS_TEXT_BYTES, "no memory left");
        return PS_LOG_READ_FAILED;
    }
    r->store = store;
    snprintf(r->path, sizeof(r->path), "%s", path);
    *error = store->open(store->self, path, &r->file, &r->file_bytes);
    enum ps_log_read read =
        *error == 0 ? header_read(r, limit_bytes, text) : reader_fail(r, "cannot open", *error, text);
    if (read == PS_LOG_READ_RECORD)
        *out = r;
    else
        ps_log_reader_close(r);
    return read;
}

void ps_log_reader_close(struct ps_log_reader *r)
{
    if (r == NULL)
        return;
    if (r->file != NULL)
        (void)r->store->close(r->file);
    free(r->block);
    free(r);
}
