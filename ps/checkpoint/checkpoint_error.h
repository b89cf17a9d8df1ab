/* What an error of a store means for the checkpoint that is being read, and how it is told. Pure functions,
 * any thread. */
#ifndef PS_CHECKPOINT_ERROR_H
#define PS_CHECKPOINT_ERROR_H

#include "dataplane/wire/format/mr_status.h"

#define PS_WRONG_LENGTH "its length is not that which the MANIFEST tells"

/* MR_CHECKPOINT_CORRUPT; "<path>: <why>" in `text` (PS_TEXT_BYTES). */
enum mr_status ps_checkpoint_corrupt(char *text, const char *path, const char *why);
/* `error` is a -errno: a missing or cut file condemns the checkpoint (MR_CHECKPOINT_CORRUPT); others are this
 * process's or the machine's (MR_NO_MEMORY, MR_IO_ERROR): what a disk or a mount does not give now it may
 * give later. */
enum mr_status ps_checkpoint_fail(char *text, const char *what, const char *path, int error);

#endif
