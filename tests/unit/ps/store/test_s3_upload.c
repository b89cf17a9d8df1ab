/* Files that go to S3 in parts. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ps/store/s3_upload.h"
#include "remote_fixture.h"
#include "tests/test.h"

enum { FILE_BYTES = 9 << 20 }; /* two parts */

static uint8_t *content;

static int set_up(void **state)
{
    static struct remote_fixture x;
    remote_fixture_start(&x, PS_STORE_S3, 2);
    content = malloc(FILE_BYTES);
    assert_non_null(content);
    for (size_t i = 0; i < FILE_BYTES; i++)
        content[i] = (uint8_t)(i * i >> 9);
    *state = &x;
    return 0;
}

static int tear_down(void **state)
{
    free(content);
    return remote_fixture_stop(*state);
}

TEST(a_large_file_goes_up_in_parts, set_up, tear_down)
{
    struct remote_fixture *x = *state;
    const struct ps_store *s = &x->remote->store;
    http_server_fail(x->server, HTTP_FAULT_503, 0, 0);
    assert_int_equal(remote_fixture_write(s, "s3://models/ads/.tmp-ckpt-1/core-000.mrc", content, FILE_BYTES),
                     0);
    const struct fake_s3_bytes *object = fake_s3_object(&x->s3, "ads/ckpt-1/core-000.mrc");

    assert_non_null(object);
    assert_int_equal(object->bytes, FILE_BYTES);
    assert_memory_equal(object->data, content, FILE_BYTES);
    assert_int_equal(http_server_count(x->server), 4); /* begin, two parts, end */
    assert_int_equal(fake_s3_upload_count(&x->s3), 0);
    assert_int_equal(x->s3.bad_signatures, 0);
}

/* At each request of the upload, in each way: with a second try it succeeds, and bytes are right. */
TEST(an_upload_survives_a_fault_at_each_request, set_up, tear_down)
{
    struct remote_fixture *x = *state;
    const struct ps_store *s = &x->remote->store;
    for (uint32_t fault = HTTP_FAULT_503; fault <= HTTP_FAULT_CUT_ANSWER; fault++) {
        for (uint32_t at = 1; at <= 4; at++) {
            http_server_fail(x->server, fault, at, at);
            assert_int_equal(
                remote_fixture_write(s, "s3://models/ads/.tmp-ckpt-1/core-000.mrc", content, FILE_BYTES), 0);
            const struct fake_s3_bytes *object = fake_s3_object(&x->s3, "ads/ckpt-1/core-000.mrc");

            assert_int_equal(object->bytes, FILE_BYTES);
            assert_memory_equal(object->data, content, FILE_BYTES);
            fake_s3_clear(&x->s3);
        }
    }
}

/* S3 may notice only after it has begun its answer of status 200 that it cannot end an upload. */
TEST(an_error_in_a_good_answer_is_one, set_up, tear_down)
{
    static const struct {
        const char *code;
        uint32_t count;
        int error;
    } ends[] = {{"InternalError", 1, 0},
                {"SlowDown", 1, 0},
                {"InternalError", 2, -EIO},
                {"InvalidPart", 1, -EIO},
                {"", 1, -EPROTO}};
    struct remote_fixture *x = *state;
    const struct ps_store *s = &x->remote->store;
    for (size_t i = 0; i < sizeof(ends) / sizeof(*ends); i++) {
        x->s3.end_error = ends[i].code;
        x->s3.end_errors = ends[i].count;
        assert_int_equal(
            remote_fixture_write(s, "s3://models/ads/.tmp-ckpt-1/core-000.mrc", content, FILE_BYTES),
            ends[i].error);
        assert_int_equal(x->s3.end_errors, 0);
        assert_int_equal(fake_s3_object(&x->s3, "ads/ckpt-1/core-000.mrc") != NULL, ends[i].error == 0);
        assert_int_equal(fake_s3_upload_count(&x->s3), 0);
        fake_s3_clear(&x->s3);
    }
}

TEST(an_upload_that_is_given_up_leaves_nothing, set_up, tear_down)
{
    struct remote_fixture *x = *state;
    const struct ps_store *s = &x->remote->store;
    http_server_fail(x->server, HTTP_FAULT_503, 3, 4); /* both tries of the second part */
    assert_int_equal(remote_fixture_write(s, "s3://models/ads/.tmp-ckpt-1/core-000.mrc", content, FILE_BYTES),
                     -EIO);
    assert_null(fake_s3_object(&x->s3, "ads/ckpt-1/core-000.mrc"));
    assert_int_equal(fake_s3_upload_count(&x->s3), 0);
}

/* A process that dies leaves uploads, more than a listing has in a page: they are seen as a temporary
 * checkpoint, and removed with it. */
TEST(uploads_that_were_left_are_swept, set_up, tear_down)
{
    struct remote_fixture *x = *state;
    const struct ps_store *s = &x->remote->store;
    for (uint32_t core = 0; core < 2 * FAKE_S3_PAGE + 1; core++) {
        char path[64];
        (void)snprintf(path, sizeof(path), "s3://models/ads/.tmp-ckpt-1/core-%03u.mrc", core % 4);
        http_server_fail(x->server, HTTP_FAULT_503, 3, UINT32_MAX); /* also the request that would abort it */
        assert_int_equal(remote_fixture_write(s, path, content, FILE_BYTES), -EIO);
    }
    http_server_fail(x->server, HTTP_FAULT_503, 0, 0);
    assert_int_equal(fake_s3_upload_count(&x->s3), 2 * FAKE_S3_PAGE + 1);
    assert_string_equal(remote_fixture_names(s, "s3://models/ads"), ".tmp-ckpt-1 ");
    (void)ps_store_remove_tree(s, "s3://models/ads/.tmp-ckpt-1", "MANIFEST");
    assert_int_equal(fake_s3_upload_count(&x->s3), 0);
    assert_string_equal(remote_fixture_names(s, "s3://models/ads"), "");
}

/* As many as S3 allows, of one of two lengths, and their memory is given back. */
TEST(parts_are_as_long_as_their_number_asks_for)
{
    const uint64_t gib = 1 << 30;
    atomic_llong memory = PS_S3_PART_MEMORY;
    struct ps_s3_upload u = {.key = "core-000.mrc", .memory = &memory};
    assert_int_equal(ps_s3_upload_open(&u, PS_S3_PART_BYTES_MIN), 0);
    assert_int_equal(ps_s3_upload_reserve(&u, 70 * gib), 0);
    assert_int_equal(u.part_room, PS_S3_PART_BYTES_MIN);
    assert_int_equal(ps_s3_upload_reserve(&u, 71 * gib), 0);
    assert_int_equal(u.part_room, PS_S3_PART_BYTES_MAX);
    assert_int_equal(atomic_load(&memory), PS_S3_PART_MEMORY - PS_S3_PART_BYTES_MAX);
    assert_int_equal(ps_s3_upload_reserve(&u, 141 * gib), -EFBIG);
    ps_s3_upload_close(&u, false);
    assert_int_equal(atomic_load(&memory), PS_S3_PART_MEMORY);
}

/* Nothing is asked of the store: there is none. */
TEST(a_mark_that_makes_no_sense_starts_over)
{
    static const struct ps_store_mark marks[] = {
        {.bytes = 0, .text = "1 8388608 1 2 upload"},
        {.bytes = 8388608, .text = ""},
        {.bytes = 8388608, .text = "1 8388608 1 2 "},
        {.bytes = 8388607, .text = "1 8388608 1 2 upload"},
        {.bytes = 4194304, .text = "1 4194304 1 2 upload"},
        {.bytes = 8388608, .text = "2 8388608 1 2 upload"},
    };
    atomic_llong memory = PS_S3_PART_MEMORY;
    for (size_t i = 0; i < sizeof(marks) / sizeof(*marks); i++) {
        struct ps_s3_upload u = {.key = "core-000.mrc", .memory = &memory};
        assert_int_equal(ps_s3_upload_open(&u, PS_S3_PART_BYTES_MIN), 0);
        assert_int_equal(ps_s3_upload_resume(&u, &marks[i]), -ESTALE);
        assert_int_equal(u.written, 0);
        ps_s3_upload_close(&u, false);
    }
}
