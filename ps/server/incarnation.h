/* By what clients notice that a node was restarted: a number for people, and random bits that never come
 * again. */
#ifndef PS_INCARNATION_H
#define PS_INCARNATION_H

#include <stddef.h>
#include <stdint.h>
#include "dataplane/wire/format/mr_status.h"
#include "ps/base/key_hash.h"
#include "ps/io/store.h"

/* One more than DIRECTORY/incarnation of the store (NULL: the local files) holds, written there and synced
 * before this returns; the directory is made when its last part is missing. With directory "" the time in
 * seconds. It may come again where the directory is wiped, or taken from a backup, or there is none.
 * MR_IO_ERROR, and a line in `error`. */
enum mr_status ps_incarnation_next(const struct ps_store *store, const char *directory, uint32_t *incarnation,
                                   char *error, size_t error_bytes);
/* Random, not 0: another at each start whatever became of the directory. MR_INTERNAL, and a line in
 * `error`. */
enum mr_status ps_incarnation_start_id(uint64_t *start_id, char *error, size_t error_bytes);
/* Random as well, for the hash tables whose keys clients choose: it is stored nowhere, and no call reads it.
 */
enum mr_status ps_incarnation_key_secret(struct ps_key_secret *secret, char *error, size_t error_bytes);

#endif
