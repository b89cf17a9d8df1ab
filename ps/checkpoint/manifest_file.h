/* The MANIFEST of a published checkpoint, read from a store. Any thread.
 */
#ifndef PS_MANIFEST_FILE_H
#define PS_MANIFEST_FILE_H

#include <stdint.h>
#include "dataplane/wire/format/mr_status.h"
#include "ps/checkpoint/checkpoint_manifest.h"
#include "ps/checkpoint/checkpoint_store.h"

/* Fills `*out` (ps_manifest_clear it) from DIR/ckpt-<id>/MANIFEST; its blocks are not looked at.
 * MR_CHECKPOINT_NOT_FOUND when there is no such directory, MR_CHECKPOINT_CORRUPT, MR_CHECKPOINT_NEWER (of a
 * later format version: not damage), MR_IO_ERROR, MR_NO_MEMORY: `*out` is untouched and `text`
 * (PS_TEXT_BYTES) says what and where. */
enum mr_status ps_manifest_read(const struct ps_store *store, const char *directory, uint64_t id,
                                struct ps_manifest *out, char *text);

#endif
