/* What only S3 has: signatures, conditions, and errors in XML. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "remote_fixture.h"
#include "tests/test.h"

static int set_up(void **state)
{
    static struct remote_fixture x;
    remote_fixture_start(&x, PS_STORE_S3, 2);
    *state = &x;
    return 0;
}

static int tear_down(void **state)
{
    return remote_fixture_stop(*state);
}

/* The examples of AWS's documentation: what judges the store's signatures judges these right. */
TEST(the_fake_knows_signatures, set_up, tear_down)
{
    static const struct http_server_request requests[] = {
        {.method = "GET",
         .target = "/test.txt",
         .headers =
             "Host: examplebucket.s3.amazonaws.com\r\nRange: bytes=0-9\r\n"
             "x-amz-content-sha256: e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855\r\n"
             "x-amz-date: 20130524T000000Z\r\n"
             "Authorization: AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/"
             "aws4_request,SignedHeaders=host;range;x-amz-content-sha256;x-amz-date,"
             "Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41\r\n"},
        {.method = "GET",
         .target = "/?max-keys=2&prefix=J",
         .headers =
             "Host: examplebucket.s3.amazonaws.com\r\n"
             "x-amz-content-sha256: e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855\r\n"
             "x-amz-date: 20130524T000000Z\r\n"
             "Authorization: AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/"
             "aws4_request,SignedHeaders=host;x-amz-content-sha256;x-amz-date,"
             "Signature=34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7\r\n"},
    };
    for (size_t i = 0; i < sizeof(requests) / sizeof(*requests); i++) {
        assert_true(fake_s3_is_signed(&requests[i], FAKE_S3_SECRET_KEY));
        assert_false(fake_s3_is_signed(&requests[i], "another"));
    }
}

/* Such a store is asked first whether it has a MANIFEST. */
TEST(a_store_without_conditions_publishes, set_up, tear_down)
{
    struct remote_fixture *x = *state;
    const struct ps_store *s = &x->remote->store;
    static const char from[] = "s3://models/ads/.tmp-ckpt-3", to[] = "s3://models/ads/ckpt-3";
    static const char manifest[] = "s3://models/ads/.tmp-ckpt-3/MANIFEST";
    x->s3.knows_no_conditions = true;
    assert_int_equal(remote_fixture_write(s, manifest, "{}", 2), 0);
    assert_int_equal(s->rename(s->self, from, to), 0);
    const struct fake_s3_bytes *object = fake_s3_object(&x->s3, "ads/ckpt-3/MANIFEST");

    assert_non_null(object);
    assert_memory_equal(object->data, "{}", 2);
    assert_int_equal(remote_fixture_write(s, manifest, "{}", 2), 0); /* as after an answer that was lost */
    assert_int_equal(s->rename(s->self, from, to), 0);
    assert_int_equal(remote_fixture_write(s, manifest, "[]", 2), 0);
    assert_int_equal(s->rename(s->self, from, to), -EEXIST);
    assert_memory_equal(fake_s3_object(&x->s3, "ads/ckpt-3/MANIFEST")->data, "{}", 2);
}

TEST(errors_say_what_to_do, set_up, tear_down)
{
    static const struct {
        const char *code, *says;
        int error;
    } errors[] = {
        {"AccessDenied", "PutObject and DeleteObject", EACCES},
        {"InvalidAccessKeyId", "does not know this access key", EACCES},
        {"RequestTimeTooSkewed", "timedatectl", EACCES},
        {"ExpiredToken", "has expired", EACCES},
        {"NoSuchBucket", "make the bucket", ENXIO},
        {"QuotaExceeded", "quota is used up", EDQUOT},
        {"PermanentRedirect", "set region in the URL (it is models.s3.eu-north-1.amazonaws.com)", EXDEV},
        {"AuthorizationHeaderMalformed", "set region in the URL (it is eu-north-1)", EACCES},
        {"Unheard", "Unheard: no (HTTP status 403)", EACCES},
    };
    struct remote_fixture *x = *state;
    const struct ps_store *s = &x->remote->store;

    for (size_t i = 0; i < sizeof(errors) / sizeof(*errors); i++) {
        x->s3.error = errors[i].code;
        assert_int_equal(remote_fixture_write(s, "s3://models/ads/x", "x", 1), -errors[i].error);
        const char *text = ps_store_explanation(errors[i].error);

        if (!text || !strstr(text, errors[i].says))
            fail_msg("%s: \"%s\"", errors[i].code, text ? text : "");
        /* The facts of a file are asked for by HEAD, whose answer says nothing. */
        uint64_t bytes;
        int64_t written_s;
        assert_int_equal(s->facts(s->self, "s3://models/ads/x", &bytes, &written_s), -errors[i].error);
        text = ps_store_explanation(errors[i].error);
        if (!text || !strstr(text, errors[i].says))
            fail_msg("HEAD, %s: \"%s\"", errors[i].code, text ? text : "");
    }
}

/* Only GET is asked why, and only where it may know. */
TEST(a_head_that_alone_is_refused_is_said, set_up, tear_down)
{
    struct remote_fixture *x = *state;
    const struct ps_store *s = &x->remote->store;
    uint64_t bytes;
    int64_t written_s;
    assert_int_equal(remote_fixture_write(s, "s3://models/ads/x", "xyz", 3), 0);
    assert_int_equal(s->facts(s->self, "s3://models/ads/y", &bytes, &written_s), -ENOENT);
    x->s3.refuses_head = true;
    assert_int_equal(s->facts(s->self, "s3://models/ads/x", &bytes, &written_s), -EACCES);
    assert_non_null(strstr(ps_store_explanation(EACCES), "refuses HEAD (HTTP status 403)"));
}

TEST(a_wrong_key_is_found_by_the_signature, set_up, tear_down)
{
    struct remote_fixture *x = *state;
    (void)setenv("AWS_SECRET_ACCESS_KEY", "hunter2", 1);
    remote_fixture_reopen(x, 2);
    assert_int_equal(remote_fixture_write(&x->remote->store, "s3://models/ads/x", "x", 1), -EACCES);
    const char *text = ps_store_explanation(EACCES);

    assert_non_null(strstr(text, "the secret key is wrong, or the region"));
    assert_null(strstr(text, "hunter2"));
}
