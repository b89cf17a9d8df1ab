#include "ps/checkpoint/checkpoint_format.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "dataplane/wire/base/printable.h"

#include "dataplane/wire/base/xxh3.h"
#include "dataplane/wire/format/push_number.h"

#define PUBLISHED_PREFIX "ckpt-"
#define TEMPORARY_PREFIX ".tmp-ckpt-"
#define CLUSTER_PREFIX   "CLUSTER-"
#define CLIENT_BYTES     (MR_UUID_BYTES + sizeof(uint64_t))
#define TEXT_PATH_BYTES  110u /* of a path in a text; the beginning of a longer one is left out */

const char *ps_record_check(const struct ps_record *record)
{
    if (record->bytes > PS_RECORD_BYTES_MAX)
        return "a record is longer than a block";
    switch (record->kind) {
    case PS_RECORD_ROWS:
        if (record->count == 0 || record->row_bytes == 0 ||
            record->bytes != (uint64_t)record->count * (sizeof(uint64_t) + record->row_bytes))
            return "a record of rows has a wrong length";
        return NULL;
    case PS_RECORD_VARIABLE:
        if (record->bytes == 0 || record->offset > UINT64_MAX - record->bytes)
            return "a record of a variable has a wrong length";
        return NULL;
    case PS_RECORD_STREAM:
        if (record->bytes < 2 * sizeof(uint64_t) || record->bytes % sizeof(uint64_t) != 0)
            return "a record of a stream has a wrong length";
        return NULL;
    case PS_RECORD_CLIENT:
        if (record->bytes != CLIENT_BYTES)
            return "a record of a client has a wrong length";
        return NULL;
    case PS_RECORD_PUSHES:
        if (record->bytes < sizeof(struct ps_stored_pushes) || record->bytes % sizeof(uint64_t) != 0 ||
            record->bytes > sizeof(struct ps_stored_pushes) + MR_PUSH_WINDOW / 8)
            return "a record of numbered pushes has a wrong length";
        return NULL;
    case PS_RECORD_PUSH_STREAM:
        if (record->bytes < sizeof(struct ps_stored_push_stream) || record->bytes % sizeof(uint64_t) != 0 ||
            record->bytes >
                sizeof(struct ps_stored_push_stream) + MR_PUSH_WINDOW / 8 + MR_PARTITION_COUNT / 8)
            return "a record of a push stream has a wrong length";
        return NULL;
    case PS_RECORD_GONE:
        if (record->count == 0 || record->bytes != (uint64_t)record->count * sizeof(uint64_t))
            return "a record of keys that are gone has a wrong length";
        return NULL;
    case PS_RECORD_OBSERVATIONS:
        if (record->count == 0 || record->bytes != record->count || record->offset >= MR_PARTITION_COUNT)
            return "a record of observations has a wrong length";
        return NULL;
    case PS_RECORD_PARAMETER:
        if (record->count == 0 || record->bytes != record->count)
            return "a record of a parameter has a wrong length";
        return NULL;
    default:
        return "a record is of an unknown kind";
    }
}

uint32_t ps_record_feature_kind(uint32_t record_kind)
{
    switch (record_kind) {
    case PS_RECORD_ROWS:
    case PS_RECORD_GONE:
    case PS_RECORD_OBSERVATIONS:
        return MR_TABLE;
    case PS_RECORD_VARIABLE:
        return MR_VARIABLE;
    default:
        return 0;
    }
}

static struct ps_hash block_hash(const uint8_t *block)
{
    const size_t from = offsetof(struct ps_block_header, checkpoint_id);
    uint64_t hash[2];
    mr_xxh3_128(block + from, PS_BLOCK_BYTES - from, hash);
    return (struct ps_hash){.low = hash[0], .high = hash[1]};
}

void ps_block_seal(uint8_t *block, uint32_t version, uint64_t checkpoint_id, uint32_t core, uint32_t number)
{
    struct ps_block_header *header = (struct ps_block_header *)(void *)block;
    assert(header->payload_bytes <= PS_PAYLOAD_BYTES && header->payload_bytes % 8 == 0);
    const size_t used = sizeof(*header) + header->payload_bytes;
    memset(block + used, 0, PS_BLOCK_BYTES - used);
    memset(header->reserved, 0, sizeof(header->reserved));
    header->magic = PS_BLOCK_MAGIC;
    header->version = version;
    header->checkpoint_id = checkpoint_id;
    header->core = core;
    header->number = number;
    header->hash = block_hash(block);
}

static const char *block_check_records(const uint8_t *payload, uint32_t payload_bytes, uint32_t record_count)
{
    uint64_t at = 0;
    for (uint32_t i = 0; i < record_count; i++) {
        if (payload_bytes - at < sizeof(struct ps_record))
            return "its records reach past its payload";
        const struct ps_record *record = (const struct ps_record *)(const void *)(payload + at);
        const char *wrong = ps_record_check(record);
        if (wrong)
            return wrong;
        if (payload_bytes - at < ps_record_space(record->bytes))
            return "its records reach past its payload";
        at += ps_record_space(record->bytes);
    }
    return at == payload_bytes ? NULL : "its payload continues after its records";
}

const char *ps_block_check(const uint8_t *block, uint32_t version, uint64_t checkpoint_id, uint32_t core,
                           uint32_t number)
{
    const struct ps_block_header *header = (const struct ps_block_header *)(const void *)block;
    if (header->magic != PS_BLOCK_MAGIC)
        return "it is no checkpoint block";
    /* What a core writes may turn out to need a capability when blocks of others are written already. */
    const bool is_before_need = version == PS_FORMAT_VERSION && header->version == PS_FORMAT_VERSION_6;
    if (header->version != version && !is_before_need)
        return "it is of another format version";
    if (!ps_hash_equal(block_hash(block), header->hash))
        return "its hash does not match its bytes";
    if (header->checkpoint_id != checkpoint_id)
        return "it belongs to another checkpoint";
    if (header->core != core || header->number != number)
        return "it belongs in another place";
    if (header->payload_bytes > PS_PAYLOAD_BYTES || header->payload_bytes % 8 != 0)
        return "its payload length is out of range";
    return block_check_records(block + sizeof(*header), header->payload_bytes, header->record_count);
}

void ps_file_name(uint32_t core, char out[PS_FILE_NAME_BYTES])
{
    assert(core < MR_CORE_MAX);
    (void)snprintf(out, PS_FILE_NAME_BYTES, "core-%03u.mrc", core % 1000u);
}

bool ps_path_join(const char *directory, const char *name, char out[PS_PATH_BYTES])
{
    int n = snprintf(out, PS_PATH_BYTES, "%s/%s", directory, name);
    return n > 0 && n < (int)PS_PATH_BYTES;
}

bool ps_path_published(const char *directory, uint64_t id, char out[PS_PATH_BYTES])
{
    int n = snprintf(out, PS_PATH_BYTES, "%s/" PUBLISHED_PREFIX "%" PRIu64, directory, id);
    return n > 0 && n < (int)PS_PATH_BYTES;
}

bool ps_path_temporary(const char *directory, uint64_t id, char out[PS_PATH_BYTES])
{
    int n = snprintf(out, PS_PATH_BYTES, "%s/" TEMPORARY_PREFIX "%" PRIu64, directory, id);
    return n > 0 && n < (int)PS_PATH_BYTES;
}

bool ps_path_cluster(const char *directory, uint64_t id, char out[PS_PATH_BYTES])
{
    int n = snprintf(out, PS_PATH_BYTES, "%s/" CLUSTER_PREFIX "%" PRIu64, directory, id);
    return n > 0 && n < (int)PS_PATH_BYTES;
}

/* Accepts only the spelling that is written, without sign or leading zeros, so that no two names mean the
 * same checkpoint. */
static uint64_t name_id(const char *name, const char *prefix)
{
    const size_t prefix_bytes = strlen(prefix);
    if (strncmp(name, prefix, prefix_bytes) != 0)
        return 0;
    const char *digits = name + prefix_bytes;
    const size_t digit_count = strlen(digits);
    if (digit_count == 0 || digit_count > 19 || strspn(digits, "0123456789") != digit_count ||
        digits[0] == '0')
        return 0;
    errno = 0;
    uint64_t id = strtoull(digits, NULL, 10);
    return errno == 0 && id <= (uint64_t)PS_CHECKPOINT_ID_MAX ? id : 0;
}

uint64_t ps_name_published(const char *name)
{
    return name_id(name, PUBLISHED_PREFIX);
}

uint64_t ps_name_temporary(const char *name)
{
    return name_id(name, TEMPORARY_PREFIX);
}

uint64_t ps_name_cluster(const char *name)
{
    return name_id(name, CLUSTER_PREFIX);
}

uint64_t ps_name_cluster_unfinished(const char *name)
{
    char whole[PS_FILE_NAME_BYTES + sizeof(CLUSTER_PREFIX)];
    const size_t bytes = strcspn(name, ".");
    const size_t digits = PS_STORE_WRITER_BYTES - 2;
    if (name[bytes] == '\0' || bytes >= sizeof(whole) ||
        strspn(name + bytes + 1, "0123456789abcdef") != digits ||
        (strcmp(name + bytes + 1 + digits, ".new") != 0 &&
         strcmp(name + bytes + 1 + digits, PS_STORE_NEXT) != 0))
        return 0;
    (void)snprintf(whole, sizeof(whole), "%.*s", (int)bytes, name);
    return name_id(whole, CLUSTER_PREFIX);
}

const char *ps_text_remedy(int error_number)
{
    switch (error_number) {
    case ENOSPC:
    case EDQUOT:
        return "free space there or save to another directory";
    case EACCES:
    case EPERM:
    case EROFS:
        return "give the server's user access to it";
    case ENOENT:
        return "create the directory above it";
    case ENOTDIR:
        return "name a directory: this is a file, or lies below one";
    case EEXIST:
    case ENOTEMPTY:
        return "save under another id or remove it";
    case EBUSY:
        return "another process writes there: give each server its own directory";
    case EIO:
        return "check the disk (dmesg)";
    case EFBIG:
        return "raise the limit on file sizes (ulimit -f)";
    case EMFILE:
    case ENFILE:
        return "raise the limit on open files (ulimit -n)";
    case ECANCELED:
        return "save again once the server is up";
    default:
        return "try again, or use another directory";
    }
}

static void short_path(const char *path, char out[TEXT_PATH_BYTES + 4])
{
    size_t n = strlen(path);
    if (n <= TEXT_PATH_BYTES)
        (void)snprintf(out, TEXT_PATH_BYTES + 4, "%s", path);
    else
        (void)snprintf(out, TEXT_PATH_BYTES + 4, "...%s", path + n - TEXT_PATH_BYTES);
}

void ps_text_io(char text[PS_TEXT_BYTES], const char *what, const char *path, int error_number)
{
    char shown[TEXT_PATH_BYTES + 4], reason[64];
    short_path(path, shown);
    const char *explained = ps_store_explanation(error_number);
    if (explained) {
        (void)snprintf(text, PS_TEXT_BYTES, "%s %s: %s", what, shown, explained);
    } else {
        (void)snprintf(text, PS_TEXT_BYTES, "%s %s: %s; %s", what, shown,
                       strerror_r(error_number, reason, sizeof(reason)), ps_text_remedy(error_number));
    }
    mr_make_printable(text, PS_TEXT_BYTES);
}

void ps_text_path(char text[PS_TEXT_BYTES], const char *path, const char *what)
{
    char shown[TEXT_PATH_BYTES + 4];
    short_path(path, shown);
    (void)snprintf(text, PS_TEXT_BYTES, "%s: %s", shown, what);
    mr_make_printable(text, PS_TEXT_BYTES); /* it may quote what a file has */
}

static enum mr_status status_of(int error)
{
    switch (-error) {
    case ENOENT:
    case ENOTDIR:
    case EISDIR:
    case ESPIPE: /* no regular file */
    case ENODATA:
        return MR_CHECKPOINT_CORRUPT;
    case ENOMEM:
        return MR_NO_MEMORY;
    default:
        return MR_IO_ERROR;
    }
}

enum mr_status ps_checkpoint_corrupt(char *text, const char *path, const char *why)
{
    ps_text_path(text, path, why);
    return MR_CHECKPOINT_CORRUPT;
}

enum mr_status ps_checkpoint_fail(char *text, const char *what, const char *path, int error)
{
    if (error == -ENOENT)
        return ps_checkpoint_corrupt(text, path, "it is missing");
    if (error == -ENODATA)
        return ps_checkpoint_corrupt(text, path, "it ends too early");
    ps_text_io(text, what, path, -error);
    return status_of(error);
}
