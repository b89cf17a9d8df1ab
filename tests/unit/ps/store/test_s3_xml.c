/* S3's XML: what is read from answers, and what hostile ones do not do. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ps/store/s3_xml.h"
#include "tests/test.h"

enum { FOUND_BYTES = 200 };

static void collect(void *arg, const char *key)
{
    char *found = arg;
    const size_t at = strlen(found);
    (void)snprintf(found + at, FOUND_BYTES - at, "%s ", key);
}

static void collect_upload(void *arg, const char *key, const char *upload)
{
    char *found = arg;
    const size_t at = strlen(found);
    (void)snprintf(found + at, FOUND_BYTES - at, "%s=%s ", key, upload);
}

TEST(a_text_is_found_by_its_element)
{
    char out[16] = "untouched";
    assert_true(s3_xml_text("<?xml version=\"1.0\"?>\n<Error><Code>Slow&lt;Down</Code></Error>", "Code", out,
                            sizeof(out)));
    assert_string_equal(out, "Slow<Down");
    assert_false(
        s3_xml_text("<Error><Code>longer than there is room</Code></Error>", "Code", out, sizeof(out)));
    assert_false(s3_xml_text("<Error/>", "Code", out, sizeof(out)));
    assert_string_equal(out, "Slow<Down");
    assert_true(s3_xml_text("<Error><Code>A</Code><Mess", "Code", out, sizeof(out))); /* cut off */
    assert_string_equal(out, "A");
}

TEST(a_listing_has_keys_and_perhaps_more_pages)
{
    char keys[FOUND_BYTES] = "", next[S3_TOKEN_BYTES] = "old";
    assert_true(
        s3_xml_listing("<ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">"
                       "<Contents><Key>a/b</Key><Size>1</Size></Contents><Contents><Key>c&amp;d</Key>"
                       "</Contents><NextContinuationToken>t/1=</NextContinuationToken></ListBucketResult>",
                       collect, keys, next));
    assert_string_equal(keys, "a/b c&d ");
    assert_string_equal(next, "t/1=");
    assert_true(s3_xml_listing("<ListBucketResult></ListBucketResult>", collect, keys, next));
    assert_string_equal(next, "");
}

TEST(what_is_no_listing_is_refused)
{
    static const char *const wrong[] = {
        "",
        "<html><body>Welcome</body></html>",
        "<Error><Key>a</Key></Error>",
        "<ListBucketResult><Contents><Key>a</Key></Contents>",
        "<ListBucketResult><Contents></ListBucketResult>",
        "{\"keys\":[]}",
        "<!DOCTYPE x [<!ENTITY a \"aaaaaaaa\">]><ListBucketResult><Key>&a;&a;</Key></ListBucketResult>",
        "<!DOCTYPE x SYSTEM \"file:///etc/passwd\"><ListBucketResult></ListBucketResult>",
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
        char keys[FOUND_BYTES] = "", next[S3_TOKEN_BYTES];
        if (s3_xml_listing(wrong[i], collect, keys, next))
            fail_msg("taken for a listing: %s", wrong[i]);
        assert_null(strstr(keys, "aaaa"));
    }
}

/* Keys have at most 1,024 bytes: one that is longer is not shortened to another one. */
TEST(a_key_that_is_too_long_is_left_out)
{
    char xml[6000] = "<ListBucketResult><Key>", keys[FOUND_BYTES] = "", next[S3_TOKEN_BYTES];
    const size_t at = strlen(xml);
    memset(xml + at, 'k', 5000);
    (void)snprintf(xml + at + 5000, sizeof(xml) - at - 5000, "</Key><Key>short</Key></ListBucketResult>");
    assert_true(s3_xml_listing(xml, collect, keys, next));
    assert_string_equal(keys, "short ");
}

TEST(uploads_have_key_and_id)
{
    char uploads[FOUND_BYTES] = "";
    struct s3_upload_marker next;
    s3_xml_uploads("<ListMultipartUploadsResult><Upload><Key>a</Key><UploadId>1</UploadId></Upload><Upload>"
                   "<Key>b</Key><UploadId/></Upload><NextKeyMarker>b</NextKeyMarker>"
                   "<IsTruncated>false</IsTruncated></ListMultipartUploadsResult>",
                   collect_upload, uploads, &next);
    assert_string_equal(uploads, "a=1 ");
    assert_string_equal(next.key, "");
}

TEST(a_page_of_uploads_says_where_the_next_begins)
{
    char uploads[FOUND_BYTES] = "", xml[6000] = "<ListMultipartUploadsResult><NextKeyMarker>";
    struct s3_upload_marker next;
    s3_xml_uploads("<ListMultipartUploadsResult><KeyMarker>a</KeyMarker><NextKeyMarker>b c</NextKeyMarker>"
                   "<NextUploadIdMarker>2</NextUploadIdMarker><IsTruncated>true</IsTruncated>"
                   "</ListMultipartUploadsResult>",
                   collect_upload, uploads, &next);
    assert_string_equal(next.key, "b c");
    assert_string_equal(next.id, "2");
    const size_t at = strlen(xml);
    memset(xml + at, 'k', 1025);
    (void)snprintf(xml + at + 1025, sizeof(xml) - at - 1025,
                   "</NextKeyMarker><IsTruncated>true</IsTruncated></ListMultipartUploadsResult>");
    s3_xml_uploads(xml, collect_upload, uploads, &next);
    assert_string_equal(next.key, ""); /* too long for a key */
}

static void collect_part(void *arg, uint32_t number, uint64_t bytes, const char *etag)
{
    char *parts = arg;
    const size_t at = strlen(parts);
    (void)snprintf(parts + at, 200 - at, "%u:%llu:%s ", number, (unsigned long long)bytes, etag);
}

TEST(parts_that_are_there_are_read)
{
    char parts[200] = "";
    struct s3_part_page page = s3_xml_listed_parts(
        "<ListPartsResult><PartNumberMarker>4</PartNumberMarker><NextPartNumberMarker>6"
        "</NextPartNumberMarker><IsTruncated>true</IsTruncated><Part><PartNumber>5</PartNumber>"
        "<ETag>&quot;a&quot;</ETag><Size>8388608</Size></Part><Part><Size>9</Size><ETag>b</ETag>"
        "<PartNumber>6</PartNumber></Part></ListPartsResult>",
        collect_part, parts);
    assert_string_equal(parts, "5:8388608:\"a\" 6:9:b ");
    assert_true(page.is_good);
    assert_int_equal(page.next, 6);
    page = s3_xml_listed_parts("<ListPartsResult><NextPartNumberMarker>6</NextPartNumberMarker>"
                               "<IsTruncated>false</IsTruncated></ListPartsResult>",
                               collect_part, parts);
    assert_true(page.is_good);
    assert_int_equal(page.next, 0);
    assert_false(s3_xml_listed_parts("<Error/>", collect_part, parts).is_good);
}

TEST(parts_are_listed_with_their_etags)
{
    const struct s3_part parts[2] = {{"\"a<&\""}, {"b"}};
    char *xml = s3_xml_parts(parts, 2);
    assert_string_equal(xml, "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>&quot;a&lt;&amp;"
                             "&quot;</ETag></Part><Part><PartNumber>2</PartNumber><ETag>b</ETag></Part>"
                             "</CompleteMultipartUpload>");
    free(xml);
}
