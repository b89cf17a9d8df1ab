/* Stores of checkpoints on other machines: struct ps_store over HDFS (webhdfs.c) and S3 (s3.c), so that
 * whatever reads, lists and removes checkpoints on a disk does so there, too (docs/stores.md).
 *
 * Paths are URLs without their query: hdfs://namenode:9870/ads/ckpt-7/MANIFEST. A file is written from its
 * beginning to its end by one thread and is there once sync() has returned 0; closed before that, it is not.
 * There are no claims: one process at a time writes to a directory.
 */
#ifndef PS_REMOTE_STORE_H
#define PS_REMOTE_STORE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include "ps/io/store.h"
#include "ps/store/http.h"
#include "ps/store/store_url.h"

#define PS_REMOTE_PAGES_MAX 100000u /* of one listing: a server that never ends it ends with -EOVERFLOW */

struct ps_remote_options {
    const char *credentials; /* file; NULL or "": from the environment */
    uint32_t tries;          /* of one request; 0: PS_HTTP_TRIES_MAX */
    uint32_t pause_ms_max;   /* between tries; 0: PS_HTTP_PAUSE_MS_MAX */
    const atomic_bool *stop; /* true: calls end with -ECANCELED; NULL: never */
};

struct ps_remote {
    struct ps_store store;
    struct ps_store_url url;
    char directory[PS_STORE_URL_BYTES]; /* of the checkpoints */
    struct ps_http *http;
    void *kind; /* what webhdfs.c or s3.c knows */
};

/* Opens the store of a remote URL; nothing is asked of it yet. MR_INVALID_ARGUMENT, MR_NO_MEMORY: `text`
 * (PS_TEXT_BYTES) says what is wrong with URL or credentials. */
enum mr_status ps_remote_open(const char *url, const struct ps_remote_options *options,
                              struct ps_remote **out, char *text);
void ps_remote_close(struct ps_remote *remote); /* NULL is fine */

/* ---- what a store tells of itself, for those who look for what is wrong with it ---- */

/* Whether a file can be made only where there is none. */
enum ps_condition { PS_CONDITION_HONOURED, PS_CONDITION_IGNORED, PS_CONDITION_REFUSED };

/* The version of HDFS, "" if it does not tell; 0 or -errno. */
int ps_webhdfs_version(const struct ps_remote *remote, char *version, size_t version_bytes);
/* Tries a conditional write to a file of S3 that is there: If-None-Match. 0 or -errno. */
int ps_s3_condition(struct ps_remote *remote, const char *path, enum ps_condition *condition);

/* ---- for ps_remote_open() ---- */

struct ps_credentials;
/* Fill in store, http and kind. */
enum mr_status ps_webhdfs_open(struct ps_remote *remote, const struct ps_remote_options *options,
                               const struct ps_credentials *credentials, char *text);
enum mr_status ps_s3_open(struct ps_remote *remote, const struct ps_remote_options *options,
                          const struct ps_credentials *credentials, char *text);
void ps_webhdfs_close(struct ps_remote *remote);
void ps_s3_close(struct ps_remote *remote);

/* Whether the store is one of HTTPS, which no request leaves. */
bool ps_remote_is_secure(const char *endpoint);
/* The file of certificates that HTTPS trusts: the URL's, else the environment's; NULL: the system's. */
const char *ps_remote_ca(const struct ps_remote *remote);

/* What both do alike: descriptors and claims they have none. */
extern const struct ps_store ps_remote_store_base;

#endif
