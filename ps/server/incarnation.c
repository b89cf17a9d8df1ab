#include "ps/server/incarnation.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include "ps/checkpoint/state_file.h"

#define FILE_NAME  "incarnation"
#define TEXT_BYTES 32

/* 0 when there is no such file. */
static enum mr_status read_last(const struct ps_store *store, const char *directory, uint32_t *last,
                                char *error, size_t error_bytes)
{
    char text[TEXT_BYTES], *end;
    bool is_there;
    enum mr_status status =
        ps_state_file_read(store, directory, FILE_NAME, text, sizeof(text), &is_there, error, error_bytes);
    *last = 0;
    if (status != MR_OK || !is_there)
        return status;
    unsigned long value = strtoul(text, &end, 10);
    if (end == text || strcmp(end, "\n") != 0 || value >= UINT32_MAX) {
        snprintf(error, error_bytes,
                 "%s/" FILE_NAME ": expected a number; write the last incarnation there, or remove the file",
                 directory);
        return MR_IO_ERROR;
    }
    *last = (uint32_t)value;
    return MR_OK;
}

enum mr_status ps_incarnation_next(const struct ps_store *store, const char *directory, uint32_t *incarnation,
                                   char *error, size_t error_bytes)
{
    char text[TEXT_BYTES];
    uint32_t last;
    if (directory[0] == '\0') {
        *incarnation = (uint32_t)time(NULL);
        return MR_OK;
    }
    enum mr_status status = ps_state_directory(store, directory, error, error_bytes);
    if (status == MR_OK)
        status = read_last(store, directory, &last, error, error_bytes);
    if (status != MR_OK)
        return status;
    snprintf(text, sizeof(text), "%" PRIu32 "\n", last + 1);
    status = ps_state_file_write(store, directory, FILE_NAME, text, error, error_bytes);
    if (status == MR_OK)
        *incarnation = last + 1;
    return status;
}

static enum mr_status random_draw(void *out, size_t bytes, char *error, size_t error_bytes)
{
    if (getrandom(out, bytes, 0) == (ssize_t)bytes)
        return MR_OK;
    snprintf(error, error_bytes, "no random numbers from the kernel: %s", strerror(errno));
    return MR_INTERNAL;
}

enum mr_status ps_incarnation_start_id(uint64_t *start_id, char *error, size_t error_bytes)
{
    const enum mr_status status = random_draw(start_id, sizeof(*start_id), error, error_bytes);
    *start_id |= 1;
    return status;
}

enum mr_status ps_incarnation_key_secret(struct ps_key_secret *secret, char *error, size_t error_bytes)
{
    return random_draw(secret, sizeof(*secret), error, error_bytes);
}
