/* The JSON of WebHDFS: what answers say. Pure functions, any thread. They return false, with their outputs
 * untouched, for what is no such answer. */
#ifndef PS_WEBHDFS_JSON_H
#define PS_WEBHDFS_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WEBHDFS_NAME_BYTES    512u /* of an entry; no name of a checkpoint is longer */
#define WEBHDFS_WORD_BYTES    128u
#define WEBHDFS_MESSAGE_BYTES 256u
#define WEBHDFS_JMX_BYTES     8192u /* of one attribute */

struct webhdfs_status {
    uint64_t bytes;
    int64_t written_ms; /* since 1970 */
    bool is_directory, is_link;
};

/* Whether something was done. */
bool webhdfs_json_boolean(const char *json, size_t bytes, bool *value);
bool webhdfs_json_status(const char *json, size_t bytes, struct webhdfs_status *status);
/* Visits the names of a page of LISTSTATUS_BATCH; `last` becomes the last of them, if there is any. On false,
 * names may have been visited. */
bool webhdfs_json_listing(const char *json, size_t bytes, void (*visit)(void *arg, const char *name),
                          void *arg, char last[WEBHDFS_NAME_BYTES], bool *is_last);
/* The NameNode's version, of its JMX. */
bool webhdfs_json_version(const char *json, size_t bytes, char *version, size_t version_bytes);
/* The class of an error, and the first line of what it says. */
bool webhdfs_json_error(const char *json, char exception[WEBHDFS_WORD_BYTES],
                        char message[WEBHDFS_MESSAGE_BYTES]);

#endif
