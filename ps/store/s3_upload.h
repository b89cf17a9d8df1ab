/* A file on its way to S3: in one request, or in parts that are sent side by side, and that another time
 * can go on with. Functions return 0 or a negative errno, and ps_store_explanation() says more. One thread
 * at a time works on an upload; it sends its parts on threads of its own. */
#ifndef PS_STORE_S3_UPLOAD_H
#define PS_STORE_S3_UPLOAD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ps/store/part_sender.h"
#include "ps/store/s3_request.h"
#include "ps/store/s3_xml.h"

#define PS_S3_PART_BYTES_MIN (8u << 20)  /* S3 wants 5 MiB */
#define PS_S3_PART_BYTES_MAX (16u << 20) /* so that memory has a bound */
#define PS_S3_PARTS_MAX      9000u       /* S3 allows 10000 */
#define PS_S3_PART_MEMORY    (24u << 20) /* of all files together; each has one part at least */

struct ps_s3_upload {
    const struct ps_remote *remote;
    const char *key;      /* the caller's, as long as the upload */
    atomic_llong *memory; /* that is left of PS_S3_PART_MEMORY; may be below 0 */
    uint8_t *part;        /* being filled */
    size_t part_bytes, part_room;
    uint64_t written;
    bool stays;                  /* what has gone up is left there for another time */
    char id[S3_UPLOAD_ID_BYTES]; /* "": no part has gone up */
    struct s3_part *parts;
    uint32_t part_count;
    struct ps_part_sender *sender; /* NULL: no part has gone up */
};

/* Begins an upload with remote, key and memory set and all else 0; nothing is sent yet. */
int ps_s3_upload_open(struct ps_s3_upload *u, size_t part_room);
/* Announces how long the file is going to be: parts are as long as their number asks for. */
int ps_s3_upload_reserve(struct ps_s3_upload *u, uint64_t bytes);
/* Returns how many bytes, at least one, were taken. */
int64_t ps_s3_upload_write(struct ps_s3_upload *u, const void *data, size_t bytes);
/* Waits until the object is there. */
int ps_s3_upload_finish(struct ps_s3_upload *u);
/* Frees what ps_s3_upload_open() took; aborts an upload in parts that is not finished, unless it stays. */
void ps_s3_upload_close(struct ps_s3_upload *u, bool is_finished);

/* Says what is there for good, as ps_s3_upload_resume() wants it; from then on that stays. */
void ps_s3_upload_mark(struct ps_s3_upload *u, struct ps_store_mark *mark);
/* Goes on after u->written bytes, with an upload that was just opened. -ESTALE: what the mark says is not
 * there, and it starts over. */
int ps_s3_upload_resume(struct ps_s3_upload *u, const struct ps_store_mark *mark);

/* Names the uploads that were begun and not ended, of keys with a prefix. */
int ps_s3_list_uploads(const struct ps_remote *r, const char *prefix,
                       void (*visit)(void *arg, const char *key, const char *id), void *arg);
void ps_s3_abort_upload(const struct ps_remote *r, const char *key, const char *id);

#endif
