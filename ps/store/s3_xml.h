/* The XML of S3: what answers say, by expat, and what ends an upload in parts. Pure functions, any thread. */
#ifndef PS_S3_XML_H
#define PS_S3_XML_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define S3_UPLOAD_ID_BYTES 512u
#define S3_TOKEN_BYTES     2048u
#define S3_KEY_BYTES       1025u

struct s3_part {
    char etag[128];
};

/* The text of the first element of that name; false: there is none that fits, and `out` is untouched. */
bool s3_xml_text(const char *xml, const char *element, char *out, size_t out_bytes);
/* Visits the keys of a ListObjectsV2; `next` gets the token of the next page, "": this is the last one.
 * False: it is none; keys may have been visited. */
bool s3_xml_listing(const char *xml, void (*visit)(void *arg, const char *key), void *arg,
                    char next[S3_TOKEN_BYTES]);
/* The last upload of a page; key "": there are no further pages. */
struct s3_upload_marker {
    char key[S3_KEY_BYTES], id[S3_UPLOAD_ID_BYTES];
};
/* Visits the uploads of a ListMultipartUploads; `next` gets the place after which the next page begins. */
void s3_xml_uploads(const char *xml, void (*visit)(void *arg, const char *key, const char *upload), void *arg,
                    struct s3_upload_marker *next);
struct s3_part_page {
    uint32_t next; /* after which the next page begins; 0: this is the last one */
    bool is_good;  /* it is a ListParts */
};
/* Visits the parts of a ListParts. */
struct s3_part_page
s3_xml_listed_parts(const char *xml,
                    void (*visit)(void *arg, uint32_t number, uint64_t bytes, const char *etag), void *arg);
/* CompleteMultipartUpload, to be freed; NULL: no memory. */
char *s3_xml_parts(const struct s3_part *parts, uint32_t count);

#endif
