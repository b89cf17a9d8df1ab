/* The bytes of one file of samples: as they are, or unpacked. gzip and zstd are known by their first bytes,
 * whatever the file is called. A packed file can only be read on: a read further back begins again at its
 * start. One thread.
 */
#ifndef HUB_FILE_BYTES_H
#define HUB_FILE_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct hub_file_bytes;

/* Reads from `fd`, which stays the caller's. NULL: no memory. */
struct hub_file_bytes *hub_file_bytes_create(int fd);
void hub_file_bytes_destroy(struct hub_file_bytes *in); /* NULL is fine */
/* Frees what it takes to unpack a file, until it is read again: from its start then. */
void hub_file_bytes_rest(struct hub_file_bytes *in);
bool hub_file_bytes_is_packed(const struct hub_file_bytes *in);
/* What the file is if its first bytes tell that it holds no lines, and how to have it read: "is packed with
 * xz; unpack it ..."; otherwise NULL. */
const char *hub_file_bytes_refusal(const struct hub_file_bytes *in);
/* Reads up to `bytes` at `offset`, as of what is unpacked. 0: the end. -1: hub_file_bytes_error() says why
 * not. */
ssize_t hub_file_bytes_read(struct hub_file_bytes *in, void *out, size_t bytes, uint64_t offset);
/* Of the read that failed. */
const char *hub_file_bytes_error(const struct hub_file_bytes *in);

#endif
