/* Key files: one pre-shared key as 64 hex digits, white space around them allowed. Server, client and hub read
 * them through here. Any thread.
 */
#ifndef MR_KEY_FILE_H
#define MR_KEY_FILE_H

#include <stddef.h>
#include <stdint.h>
#include "mr_status.h"
#include "packet.h"

/* `text` (text_bytes long, not NUL-terminated) -> key. On failure MR_INVALID_ARGUMENT, and *why (may be NULL) says what is
 * wrong: "a key is 64 hex digits; this has 12". `key` is untouched then. */
enum mr_status mr_key_parse(const char *text, size_t text_bytes, uint8_t key[MR_PSK_BYTES], const char **why);

/* Read and parse a file. On failure MR_INVALID_ARGUMENT, and `error` gets one line: what, where, how to mend it. A key
 * file that others may read or write is refused likewise. */
enum mr_status mr_key_file_read(const char *path, uint8_t key[MR_PSK_BYTES], char *error, size_t error_bytes);

#endif
