/* Loading a checkpoint onto this node's cores, however many wrote it: each row goes to the core that owns its partition now.
 *
 * The checkpoint's features must have been made on all cores, empty. Called on the control thread; cores take part through
 * tasks. On failure the cores hold a part of the checkpoint and must not serve it.
 */
#ifndef PS_RESTORE_H
#define PS_RESTORE_H

#include <stdatomic.h>
#include <stdint.h>
#include "dataplane/wire/mr_status.h"
#include "ps/checkpoint.h"
#include "ps/node.h"

#define PS_RESTORE_TEXT_BYTES 256

/* `progress` rises to ps_reader_bytes(), about. MR_CHECKPOINT_CORRUPT, MR_OUT_OF_MEMORY, MR_IO_ERROR; `text`
 * (PS_RESTORE_TEXT_BYTES) says what. */
enum mr_status ps_restore_load(struct ps_node *node, struct ps_reader *reader, _Atomic uint64_t *progress,
                               char *text);

#endif
