#include "ps/log/log_format.h"

#include <string.h>
#include <xxhash.h>
#include "dataplane/wire/format/mr_feature.h"

#define LOG_MESSAGE_BYTES_MIN 32u /* a preamble */

static struct ps_hash log_hash(const void *bytes, size_t count)
{
    const XXH128_hash_t hash = XXH3_128bits(bytes, count);
    struct ps_hash out;
    static_assert(sizeof(out) == sizeof(hash), "128 bits");
    memcpy(&out, &hash, sizeof(out));
    return out;
}

static bool log_hash_is(const struct ps_hash *a, const void *bytes, size_t count)
{
    const struct ps_hash is = log_hash(bytes, count);
    return memcmp(a, &is, sizeof(is)) == 0;
}

/* ---- header ---- */

static const size_t header_hashed_at = offsetof(struct ps_log_header, number);

void ps_log_header_seal(struct ps_log_header *header)
{
    header->magic = PS_LOG_MAGIC;
    header->version = PS_LOG_VERSION;
    header->hash = log_hash((const uint8_t *)header + header_hashed_at, sizeof(*header) - header_hashed_at);
}

const char *ps_log_header_check(const struct ps_log_header *header)
{
    if (header->magic != PS_LOG_MAGIC)
        return "not a segment of a log";
    if (header->version != PS_LOG_VERSION)
        return "a segment of another version: use the version of Millrace that wrote it";
    if (!log_hash_is(&header->hash, (const uint8_t *)header + header_hashed_at,
                     sizeof(*header) - header_hashed_at))
        return "its header does not have its hash";
    if (header->number == 0 || header->is_first > 1 || header->core >= header->core_count ||
        memchr(header->base_directory, '\0', sizeof(header->base_directory)) == NULL)
        return "its header has values that no node writes";
    return NULL;
}

/* ---- blocks ---- */

static const size_t block_hashed_at = offsetof(struct ps_log_block, nonce);

static size_t block_hashed_bytes(const struct ps_log_block *block)
{
    return sizeof(*block) - block_hashed_at + block->bytes;
}

void ps_log_block_seal(struct ps_log_block *block, uint64_t nonce, uint64_t number, bool is_last)
{
    block->magic = PS_LOG_BLOCK_MAGIC;
    block->nonce = nonce;
    block->number = number;
    block->is_last = is_last;
    memset(block->reserved, 0, sizeof(block->reserved));
    block->hash = log_hash((const uint8_t *)block + block_hashed_at, block_hashed_bytes(block));
}

bool ps_log_block_is_header(const struct ps_log_block *block, uint64_t nonce, uint64_t number,
                            uint64_t bytes_max)
{
    return block->magic == PS_LOG_BLOCK_MAGIC && block->nonce == nonce && block->number >= number &&
           (block->bytes > 0 || block->is_last == 1) && block->bytes % PS_LOG_RECORD_ALIGN == 0 &&
           block->bytes <= bytes_max;
}

uint64_t ps_log_batch_part_space(const struct ps_log_batch_part *part)
{
    const uint64_t keys = part->key_count, bags = (uint64_t)part->samples * part->slots;
    return sizeof(*part) + keys * sizeof(uint64_t) + ps_log_padded((bags + 1) * sizeof(uint32_t), 8) +
           (part->has_weights ? ps_log_padded(keys * sizeof(float), 8) : 0) +
           (part->has_divisors ? ps_log_padded(bags * sizeof(float), 8) : 0);
}

/* What follows the message of a push, from `at` on. */
static bool push_is_whole(const struct ps_log_record *record, const uint8_t *content)
{
    uint64_t at = ps_log_padded(record->message_bytes, PS_LOG_RECORD_ALIGN);
    if (record->message_bytes < LOG_MESSAGE_BYTES_MIN || record->message_bytes > record->bytes ||
        at > record->bytes)
        return false;
    if (record->left_out_count > 0)
        at += record->left_out_count * sizeof(uint64_t) +
              ps_log_padded(record->part_count * sizeof(uint32_t), 8);
    for (uint32_t i = 0; i < record->batch_parts; i++) {
        struct ps_log_batch_part part;
        if (at > record->bytes || record->bytes - at < sizeof(part))
            return false;
        memcpy(&part, content + at, sizeof(part));
        if ((uint64_t)part.samples * part.slots > UINT32_MAX)
            return false;
        at += ps_log_batch_part_space(&part);
    }
    return at == record->bytes;
}

static bool record_is_good(const struct ps_log_record *record, const uint8_t *content)
{
    switch (record->kind) {
    case PS_LOG_PUSH:
        return push_is_whole(record, content);
    case PS_LOG_NUMBERS:
        return record->bytes == PS_LOG_NUMBERS_BYTES;
    case PS_LOG_EVICTED:
    case PS_LOG_FORGET:
        return record->bytes > 0 && record->bytes % sizeof(uint64_t) == 0;
    case PS_LOG_PLAN:
        return record->bytes == PS_LOG_PLAN_BYTES;
    case PS_LOG_CREATE:
    case PS_LOG_ALTER:
        return record->bytes == sizeof(struct mr_feature);
    case PS_LOG_DROP:
        return record->bytes == 0;
    default:
        return false;
    }
}

const char *ps_log_block_check(const struct ps_log_block *block)
{
    const uint8_t *at = (const uint8_t *)(block + 1);
    uint64_t left = block->bytes;
    if (!log_hash_is(&block->hash, (const uint8_t *)block + block_hashed_at, block_hashed_bytes(block)))
        return "a block does not have its hash";
    for (uint32_t i = 0; i < block->record_count; i++) {
        const struct ps_log_record *record = (const struct ps_log_record *)(const void *)at;
        if (left < sizeof(*record) || record->bytes > left - sizeof(*record) ||
            ps_log_record_space(record->bytes) > left || !record_is_good(record, at + sizeof(*record)))
            return "a block has a record that no node writes";
        at += ps_log_record_space(record->bytes);
        left -= ps_log_record_space(record->bytes);
    }
    return left == 0 ? NULL : "a block has more bytes than records";
}
