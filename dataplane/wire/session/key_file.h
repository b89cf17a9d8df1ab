/* Reads key files: one pre-shared key as 64 hex digits, with white space around them allowed. The server, the
 * client and the hub use this. Any thread.
 */
#ifndef MR_KEY_FILE_H
#define MR_KEY_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "dataplane/wire/format/mr_status.h"
#include "dataplane/wire/format/packet.h"

/* Parses a key from `text` (text_bytes long, no NUL needed). On failure returns MR_INVALID_ARGUMENT, leaves
 * `key` untouched, and points *why (may be NULL) to what is wrong, such as "it is empty". The all-zero key is
 * refused: it stands for no key. */
enum mr_status mr_key_parse(const char *text, size_t text_bytes, uint8_t key[MR_PSK_BYTES], const char **why);

/* Reads and parses a file. On failure returns MR_INVALID_ARGUMENT, leaves `key` untouched, and writes one
 * line to `error`: what is wrong, where, and how to fix it. */
enum mr_status mr_key_file_read(const char *path, uint8_t key[MR_PSK_BYTES], char *error, size_t error_bytes);

/* Whether others than the file's owner and the groups of this process can read it, or others than its owner
 * can write to it. For a warning: who can read a key has it. False if the file cannot be looked at. */
bool mr_key_file_is_exposed(const char *path);

#endif
