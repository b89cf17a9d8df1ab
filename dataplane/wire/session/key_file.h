/* Key files: one pre-shared key as 64 hex digits, white space around them allowed. Server, client and hub
 * read them through here. Any thread.
 */
#ifndef MR_KEY_FILE_H
#define MR_KEY_FILE_H

#include <stddef.h>
#include <stdint.h>
#include "dataplane/wire/format/mr_status.h"
#include "dataplane/wire/format/packet.h"

/* `text` (text_bytes long, no NUL needed) -> key. On failure MR_INVALID_ARGUMENT, `key` is untouched, and
 * *why (may be NULL) points at what is wrong with it, as "it is empty". The all-zero key is refused: it
 * stands for no key. */
enum mr_status mr_key_parse(const char *text, size_t text_bytes, uint8_t key[MR_PSK_BYTES], const char **why);

/* Read and parse a file. On failure MR_INVALID_ARGUMENT, `key` is untouched, and `error` gets one line: what,
 * where, how to fix it. */
enum mr_status mr_key_file_read(const char *path, uint8_t key[MR_PSK_BYTES], char *error, size_t error_bytes);

#endif
