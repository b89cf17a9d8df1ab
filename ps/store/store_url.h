/* Where a store of checkpoints is, as a URL:
 *
 *   /data/ckpt                                 a directory of this machine
 *   hdfs://NAMENODE:PORT/PATH?user.name=NAME   HDFS through WebHDFS or HttpFS; also webhdfs://, and
 *                                              swebhdfs:// for HTTPS; ?auth=negotiate for Kerberos
 *   s3://BUCKET/PREFIX?endpoint=URL&region=R   S3, and what speaks it; ?path_style=0 or 1
 *
 * ?ca=FILE: certificates that HTTPS trusts.
 *
 * A URL holds no secret (ps/store/credentials.h). Pure functions, any thread.
 */
#ifndef PS_STORE_URL_H
#define PS_STORE_URL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ps/checkpoint/checkpoint_format.h"

#define PS_STORE_URL_BYTES 512u

enum ps_store_kind { PS_STORE_LOCAL, PS_STORE_HDFS, PS_STORE_S3 };

struct ps_store_url {
    enum ps_store_kind kind;
    /* The URL without its query and without slashes at its end: what paths in the store begin with, and what
     * messages name. */
    char directory[PS_STORE_URL_BYTES];
    size_t root_bytes;  /* of `directory`: what names the host, or the bucket; a slash or the end follows */
    char bucket[64];    /* of S3 */
    char region[64];    /* "": the environment's, else us-east-1 */
    char endpoint[256]; /* "http://HOST:PORT" without a path; "" for S3: the environment's, else Amazon's */
    char user[64];      /* of HDFS: user.name; "": none is named */
    bool negotiate;     /* HDFS: by Kerberos */
    int path_style;     /* S3: the bucket is part of the path (1) or of the host (0); -1: as the endpoint
                            * suggests */
    /* File of certificates that HTTPS trusts; "": the environment's, else the system's. */
    char ca[256];
};

/* Whether the text has a scheme: if not it is a path of this machine. */
bool ps_store_url_is_remote(const char *text);
/* False: `*out` is untouched, and `text` (PS_TEXT_BYTES) says what is wrong with the URL, and what is
 * allowed. */
bool ps_store_url_parse(const char *url, struct ps_store_url *out, char *text);
/* Writes the URL or path of what is directly in a directory to `out`: NAME goes before the query. False:
 * there is no room. */
bool ps_store_url_join(const char *directory, const char *name, char *out, size_t out_bytes);
/* "DIR/ckpt-7" is checkpoint 7 of DIR, and so is "DIR/CLUSTER-7", of a cluster; any other path is a directory
 * of checkpoints (*id 0). Slashes at the end mean nothing. Of a URL, `directory` keeps the query. False:
 * there is no room. */
bool ps_store_url_split(const char *path, char *directory, size_t directory_bytes, uint64_t *id);
/* Whether `url` is a directory that an operator's `allowed` URL covers: it, or one below it, in the same
 * store by the same user. `url` may leave the query out; `out` has it. */
bool ps_store_url_allows(const char *allowed, const char *url, char *out, size_t out_bytes);
/* Appends `from` to a URL, with all but letters, digits, "-._~" and, if `keep_slash`, "/" as %XX. False:
 * there is no room. */
bool ps_store_url_escape(char *url, size_t url_bytes, const char *from, bool keep_slash);
/* Appends `from` as it is. False: there is no room, and `url` is as it was. */
bool ps_store_url_append(char *url, size_t url_bytes, const char *from);

#endif
