/* The client's pre-shared key. It is read again from its file when the server may have changed to another
 * one: while a core does not answer, and only when the file has changed. Under the client's lock. */
#ifndef MRC_KEYS_H
#define MRC_KEYS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>
#include "dataplane/wire/format/mr_status.h"
#include "dataplane/wire/format/packet.h"

struct mr_client;

struct mrc_keys {
    char *path;           /* NULL: no key */
    struct timespec time; /* of the file's last change, when it was read */
    ino_t inode;
    uint64_t check_us; /* when the file may be checked next */
};

/* Reads the file for the first time. `path` is copied. MR_INVALID_ARGUMENT with one line in `error`,
 * MR_NO_MEMORY. */
enum mr_status mrc_keys_open(struct mrc_keys *keys, const char *path, uint8_t key[MR_PSK_BYTES], char *error,
                             size_t error_bytes);
void mrc_keys_close(struct mrc_keys *keys);

/* Checks the file when that is due. */
void mrc_keys_poll(struct mr_client *client);
/* Returns when mrc_keys_poll() is due. */
uint64_t mrc_keys_next_us(const struct mr_client *client);

#endif
