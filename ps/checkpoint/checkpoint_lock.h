/* Who writes to a directory of checkpoints: one process at a time. Two would take each other's numbers,
 * remove each other's checkpoints, and load each other's tables. The lock is on the file `lock` in the
 * directory, which names its holder, and ends with the process, however that ends. Any thread, one at a time
 * per lock.
 *
 * Between machines it holds where the file system has locks between machines: NFS version 4, or 3 with its
 * lock daemon.
 */
#ifndef PS_CHECKPOINT_LOCK_H
#define PS_CHECKPOINT_LOCK_H

#include <stdbool.h>
#include "dataplane/wire/format/mr_status.h"

#define PS_NO_LOCK (-1)

/* Makes the directory when only its last part is missing. `who` is what others are told of this process,
 * beside host and pid. MR_IO_ERROR: another one has it, or it cannot be locked; `text` (256 bytes) says who
 * or why, and *lock is PS_NO_LOCK. */
enum mr_status ps_checkpoint_lock(const char *directory, const char *who, int *lock, char *text);
/* Whether that lock is on this directory, however it is spelled: another one may have come in its place. */
bool ps_checkpoint_lock_is_on(int lock, const char *directory);
void ps_checkpoint_unlock(int lock);

#endif
