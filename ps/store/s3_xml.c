#include "ps/store/s3_xml.h"

#include <expat.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_BYTES 4096u /* of an element that we read: keys have at most 1024 */

struct reading {
    XML_Parser parser;
    char text[TEXT_BYTES];
    size_t bytes;
    bool is_too_long, is_root_seen;
    char root[64];
    void (*ended)(struct reading *r, const char *element);
    /* what is asked for */
    const char *element;
    char *out;
    size_t out_bytes;
    bool is_found;
    /* listings */
    void (*visit_key)(void *arg, const char *key);
    void (*visit_upload)(void *arg, const char *key, const char *upload);
    void *arg;
    char key[TEXT_BYTES], next[S3_TOKEN_BYTES];
    struct s3_upload_marker next_upload;
    void (*visit_part)(void *arg, uint32_t number, uint64_t bytes, const char *etag);
    struct {
        uint32_t number;
        uint64_t bytes;
        char etag[sizeof(((struct s3_part *)0)->etag)];
    } part;
    uint32_t next_part;
    bool is_truncated;
};

static void begin_element(void *arg, const char *name, const char **attributes)
{
    struct reading *r = arg;
    (void)attributes;
    if (!r->is_root_seen)
        (void)snprintf(r->root, sizeof(r->root), "%s", name);
    r->is_root_seen = true;
    r->bytes = 0;
    r->is_too_long = false;
}

static void take_text(void *arg, const char *text, int bytes)
{
    struct reading *r = arg;
    r->is_too_long = r->is_too_long || (size_t)bytes >= sizeof(r->text) - r->bytes;
    if (r->is_too_long)
        return;
    memcpy(r->text + r->bytes, text, (size_t)bytes);
    r->bytes += (size_t)bytes;
}

static void end_element(void *arg, const char *name)
{
    struct reading *r = arg;
    r->text[r->bytes] = '\0';
    if (!r->is_too_long)
        r->ended(r, name);
    r->bytes = 0;
}

/* An answer declares no entities: one that does is not read any further. */
static void refuse_declarations(void *arg, const char *name, const char *system_id, const char *public_id,
                                int has_subset)
{
    struct reading *r = arg;
    (void)name, (void)system_id, (void)public_id, (void)has_subset;
    (void)XML_StopParser(r->parser, XML_FALSE);
}

static bool read_xml(const char *xml, struct reading *r)
{
    r->parser = XML_ParserCreate(NULL);
    if (!r->parser)
        return false;
    XML_SetUserData(r->parser, r);
    XML_SetElementHandler(r->parser, begin_element, end_element);
    XML_SetCharacterDataHandler(r->parser, take_text);
    XML_SetStartDoctypeDeclHandler(r->parser, refuse_declarations);
    const bool is_good = XML_Parse(r->parser, xml, (int)strlen(xml), 1) == XML_STATUS_OK;
    XML_ParserFree(r->parser);
    return is_good;
}

static void end_text(struct reading *r, const char *element)
{
    if (r->is_found || strcmp(element, r->element) != 0 || r->bytes >= r->out_bytes)
        return;
    memcpy(r->out, r->text, r->bytes + 1);
    r->is_found = true;
}

bool s3_xml_text(const char *xml, const char *element, char *out, size_t out_bytes)
{
    struct reading r = {.ended = end_text, .element = element, .out_bytes = out_bytes};
    r.out = out;
    (void)read_xml(xml, &r); /* of a text that is cut off, the beginning counts */
    return r.is_found;
}

static void end_listing(struct reading *r, const char *element)
{
    if (strcmp(element, "Key") == 0)
        r->visit_key(r->arg, r->text);
    else if (strcmp(element, "NextContinuationToken") == 0 && r->bytes < sizeof(r->next))
        memcpy(r->next, r->text, r->bytes + 1);
}

bool s3_xml_listing(const char *xml, void (*visit)(void *arg, const char *key), void *arg,
                    char next[S3_TOKEN_BYTES])
{
    struct reading r = {.ended = end_listing, .visit_key = visit, .arg = arg};
    const bool is_good = read_xml(xml, &r) && strcmp(r.root, "ListBucketResult") == 0;
    memcpy(next, r.next, sizeof(r.next));
    return is_good;
}

static void end_uploads(struct reading *r, const char *element)
{
    if (strcmp(element, "Key") == 0)
        memcpy(r->key, r->text, r->bytes + 1);
    else if (strcmp(element, "UploadId") == 0 && r->bytes > 0 && r->bytes < S3_UPLOAD_ID_BYTES)
        r->visit_upload(r->arg, r->key, r->text);
    else if (strcmp(element, "NextKeyMarker") == 0 && r->bytes < S3_KEY_BYTES)
        memcpy(r->next_upload.key, r->text, r->bytes + 1);
    else if (strcmp(element, "NextUploadIdMarker") == 0 && r->bytes < S3_UPLOAD_ID_BYTES)
        memcpy(r->next_upload.id, r->text, r->bytes + 1);
    else if (strcmp(element, "IsTruncated") == 0)
        r->is_truncated = strcmp(r->text, "true") == 0;
}

void s3_xml_uploads(const char *xml, void (*visit)(void *arg, const char *key, const char *upload), void *arg,
                    struct s3_upload_marker *next)
{
    struct reading r = {.ended = end_uploads, .visit_upload = visit, .arg = arg};
    const bool is_whole = read_xml(xml, &r);
    *next = is_whole && r.is_truncated ? r.next_upload : (struct s3_upload_marker){.key = ""};
}

static void end_part(struct reading *r, const char *element)
{
    if (strcmp(element, "PartNumber") == 0)
        r->part.number = (uint32_t)strtoul(r->text, NULL, 10);
    else if (strcmp(element, "Size") == 0)
        r->part.bytes = strtoull(r->text, NULL, 10);
    else if (strcmp(element, "ETag") == 0 && r->bytes < sizeof(r->part.etag))
        memcpy(r->part.etag, r->text, r->bytes + 1);
    else if (strcmp(element, "Part") == 0) {
        r->visit_part(r->arg, r->part.number, r->part.bytes, r->part.etag);
        memset(&r->part, 0, sizeof(r->part));
    } else if (strcmp(element, "NextPartNumberMarker") == 0)
        r->next_part = (uint32_t)strtoul(r->text, NULL, 10);
    else if (strcmp(element, "IsTruncated") == 0)
        r->is_truncated = strcmp(r->text, "true") == 0;
}

struct s3_part_page
s3_xml_listed_parts(const char *xml,
                    void (*visit)(void *arg, uint32_t number, uint64_t bytes, const char *etag), void *arg)
{
    struct reading r = {.ended = end_part, .visit_part = visit, .arg = arg};
    const bool is_good = read_xml(xml, &r) && strcmp(r.root, "ListPartsResult") == 0;
    return (struct s3_part_page){.next = r.is_truncated ? r.next_part : 0, .is_good = is_good};
}

/* ---- writing ---- */

/* Text of an element: an ETag has quotes. */
static int print_escaped(FILE *out, const char *text)
{
    for (; *text; text++) {
        const char *as = *text == '&' ? "&amp;" : *text == '<' ? "&lt;" : *text == '"' ? "&quot;" : NULL;
        if ((as ? fputs(as, out) : fputc(*text, out)) == EOF)
            return -1;
    }
    return 0;
}

char *s3_xml_parts(const struct s3_part *parts, uint32_t count)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    if (!out)
        return NULL;
    bool is_good = fputs("<CompleteMultipartUpload>", out) >= 0;
    for (uint32_t i = 0; i < count && is_good; i++)
        is_good = fprintf(out, "<Part><PartNumber>%u</PartNumber><ETag>", i + 1) > 0 &&
                  print_escaped(out, parts[i].etag) == 0 && fputs("</ETag></Part>", out) >= 0;
    is_good = is_good && fputs("</CompleteMultipartUpload>", out) >= 0;
    if (fclose(out) != 0 || !is_good) {
        free(text);
        return NULL;
    }
    return text;
}
