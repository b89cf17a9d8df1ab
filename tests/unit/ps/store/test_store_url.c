/* URLs of stores: what they name, and what is reported of each wrong one. */
#include <stdio.h>
#include <string.h>

#include "ps/store/store_url.h"
#include "tests/test.h"

static struct ps_store_url store_url_parse(const char *url)
{
    struct ps_store_url u;
    char text[PS_TEXT_BYTES] = "";
    if (!ps_store_url_parse(url, &u, text))
        fail_msg("%s: %s", url, text);
    return u;
}

TEST(a_path_is_of_this_machine)
{
    const struct ps_store_url u = store_url_parse("/data/ckpt");
    assert_int_equal(u.kind, PS_STORE_LOCAL);
    assert_string_equal(u.directory, "/data/ckpt");
    assert_false(ps_store_url_is_remote("/data/ckpt"));
    assert_true(ps_store_url_is_remote("s3://bucket"));
}

TEST(hdfs_names_host_port_and_path)
{
    struct ps_store_url u = store_url_parse("hdfs://namenode:9870/millrace/ads/?user.name=ads");
    assert_int_equal(u.kind, PS_STORE_HDFS);
    assert_string_equal(u.directory, "hdfs://namenode:9870/millrace/ads");
    assert_string_equal(u.directory + u.root_bytes, "/millrace/ads");
    assert_string_equal(u.endpoint, "http://namenode:9870");
    assert_string_equal(u.user, "ads");
    assert_false(u.negotiate);
    u = store_url_parse("swebhdfs://[::1]:9871?auth=negotiate&ca=/etc/ca.pem");
    assert_string_equal(u.ca, "/etc/ca.pem");
    assert_string_equal(u.endpoint, "https://[::1]:9871");
    assert_string_equal(u.directory + u.root_bytes, "");
    assert_true(u.negotiate);
}

TEST(s3_names_bucket_and_prefix)
{
    struct ps_store_url u = store_url_parse("s3://models/ads");
    assert_int_equal(u.kind, PS_STORE_S3);
    assert_string_equal(u.bucket, "models");
    assert_string_equal(u.directory, "s3://models/ads");
    assert_string_equal(u.directory + u.root_bytes, "/ads");
    assert_string_equal(u.endpoint, "");
    assert_int_equal(u.path_style, -1);
    assert_string_equal(u.ca, "");
    u = store_url_parse(
        "s3://models?endpoint=http://127.0.0.1:9000/&region=eu-west-1&path_style=0&ca=/ca.pem");
    assert_string_equal(u.ca, "/ca.pem");
    assert_string_equal(u.endpoint, "http://127.0.0.1:9000");
    assert_string_equal(u.region, "eu-west-1");
    assert_int_equal(u.path_style, 0);
}

TEST(wrong_ones_are_refused_with_a_reason)
{
    static const char *const wrong[][2] = {
        {"", "1 to 511 bytes"},
        {"ftp://host/x", "stores are hdfs://"},
        {"hdfs://namenode/x", "name the port"},
        {"hdfs://:9870/x", "name the port"},
        {"hdfs://namenode:/x", "name the port"},
        {"hdfs://namenode:http/x", "name the port"},
        {"hdfs://name node:9870/x", "write hdfs://NAMENODE:PORT/PATH"},
        {"hdfs://namenode:9870/a/../b", "parts other than . and .."},
        {"hdfs://namenode:9870/a/./b", "parts other than . and .."},
        {"hdfs://namenode:9870/a//b", "parts other than . and .."},
        {"hdfs://namenode:9870/a%2f..", "parts other than . and .."},
        {"hdfs://namenode:9870/a?user=x", "user.name=NAME"},
        {"hdfs://namenode:9870/a?auth=basic", "user.name=NAME"},
        {"hdfs://namenode:9870/a?", "user.name=NAME"},
        {"s3://ab/x", "3 to 63 small letters"},
        {"s3://Models/x", "3 to 63 small letters"},
        {"s3:///x", "3 to 63 small letters"},
        {"s3://models/../other", "parts other than . and .."},
        {"s3://models?region", "region=R"},
        {"s3://models?region=eu/west", "region=R"},
        {"s3://models?endpoint=127.0.0.1:9000", "region=R"},
        {"s3://models?endpoint=http://", "region=R"},
        {"s3://models?endpoint=https:///", "region=R"},
        {"s3://models?endpoint=http://host/path", "region=R"},
        {"s3://models?endpoint=http://key:secret@host", "region=R"},
        {"s3://models?path_style=2", "region=R"},
        {"s3://models?ca=ca.pem", "ca=/FILE"},
        {"swebhdfs://namenode:9871/a?ca=", "ca=/FILE"},
        {"s3://models?aws_secret_access_key=x", "region=R"},
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
        struct ps_store_url u = {.region = "untouched"};
        char text[PS_TEXT_BYTES] = "";
        if (ps_store_url_parse(wrong[i][0], &u, text) || !strstr(text, wrong[i][1]) || strchr(text, '\n'))
            fail_msg("%s: \"%s\" instead of \"%s\"", wrong[i][0], text, wrong[i][1]);
        assert_string_equal(u.region, "untouched");
    }
}

TEST(what_is_too_long_is_refused)
{
    static const char *const beginnings[] = {"/", "s3://models/", "hdfs://namenode:9870/",
                                             "s3://models?region="};
    for (size_t i = 0; i < sizeof(beginnings) / sizeof(*beginnings); i++) {
        struct ps_store_url u;
        char text[PS_TEXT_BYTES], url[2000];
        memset(url, 'a', sizeof(url));
        memcpy(url, beginnings[i], strlen(beginnings[i]));
        url[sizeof(url) - 1] = '\0';
        assert_false(ps_store_url_parse(url, &u, text));
        assert_true(strlen(text) < PS_TEXT_BYTES);
    }
}

/* Somebody may have written a password into it. */
TEST(refusals_show_no_secret)
{
    static const char *const urls[] = {"hdfs://ads:hunter2@namenode:9870/x", "s3://key:hunter2@bucket/x",
                                       "s3://models/x?secret=hunter2", "ftp://ads:hunter2@host/x"};
    for (size_t i = 0; i < sizeof(urls) / sizeof(*urls); i++) {
        struct ps_store_url u;
        char text[PS_TEXT_BYTES];
        assert_false(ps_store_url_parse(urls[i], &u, text));
        assert_null(strstr(text, "hunter2"));
    }
}

TEST(escapes_all_but_plain_characters)
{
    char url[24] = "http://h/";
    assert_true(ps_store_url_escape(url, sizeof(url), "a/b c+", true));
    assert_string_equal(url, "http://h/a/b%20c%2B");
    assert_false(ps_store_url_escape(url, sizeof(url), "/////", false));
    url[0] = '\0';
    assert_true(ps_store_url_escape(url, sizeof(url), "a/\xff", false));
    assert_string_equal(url, "a%2F%FF");
}

TEST(what_is_in_a_directory_comes_before_the_query)
{
    char out[64];
    assert_true(ps_store_url_join("/data/ckpt", "partial", out, sizeof(out)));
    assert_string_equal(out, "/data/ckpt/partial");
    assert_true(ps_store_url_join("hdfs://n:1/a/?user.name=me", "partial", out, sizeof(out)));
    assert_string_equal(out, "hdfs://n:1/a/partial?user.name=me");
    assert_false(ps_store_url_join("hdfs://n:1/a?user.name=me", "partial", out, 20));
}

TEST(a_url_allows_itself_and_what_is_below)
{
    static const char allowed[] = "s3://models/ads?region=r&endpoint=http://h:1";
    static const char *const others[] = {"s3://models",
                                         "s3://models/adsx",
                                         "s3://models/ads/../x",
                                         "s3://models/ads/%2e%2e/x",
                                         "s3://models/ads//x",
                                         "s3://other/ads",
                                         "hdfs://models:1/ads",
                                         "/models/ads",
                                         "s3://models/ads?region=r",
                                         "s3://models/ads?region=r&endpoint=http://h:2",
                                         "s3://models/ads?region=r&endpoint=http://h:1&ca=/x"};
    char out[128];
    assert_true(ps_store_url_allows(allowed, "s3://models/ads", out, sizeof(out)));
    assert_string_equal(out, allowed);
    assert_true(ps_store_url_allows(allowed, "s3://models/ads/x/", out, sizeof(out)));
    assert_string_equal(out, "s3://models/ads/x?region=r&endpoint=http://h:1");
    assert_true(
        ps_store_url_allows(allowed, "s3://models/ads/x?endpoint=http://h:1&region=r", out, sizeof(out)));
    assert_string_equal(out, "s3://models/ads/x?region=r&endpoint=http://h:1");
    for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++)
        if (ps_store_url_allows(allowed, others[i], out, sizeof(out)))
            fail_msg("%s is allowed", others[i]);
    assert_false(ps_store_url_allows("/data", "/data", out, sizeof(out)));
    assert_false(ps_store_url_allows("", "s3://models/ads", out, sizeof(out)));
    assert_false(ps_store_url_allows(allowed, "s3://models/ads", out, 20));
}

static void check_path(const char *path, const char *directory, uint64_t id)
{
    char got[64];
    uint64_t got_id = 99;
    assert_true(ps_store_url_split(path, got, sizeof(got), &got_id));
    assert_string_equal(got, directory);
    assert_int_equal(got_id, id);
}

TEST(paths_name_a_checkpoint_or_a_directory)
{
    char got[8];
    uint64_t id;
    check_path("/data/ckpt-7", "/data", 7);
    check_path("/data/ckpt-7//", "/data", 7);
    check_path("/ckpt-12", "/", 12);
    check_path("/data/CLUSTER-7", "/data", 7);
    check_path("s3://models/ads/CLUSTER-7?region=r", "s3://models/ads?region=r", 7);
    check_path("ckpt-3", ".", 3);
    check_path("./ckpt-3", ".", 3);
    check_path("/data", "/data", 0);
    check_path("/data/", "/data", 0);
    check_path("data/ckpt-07", "data/ckpt-07", 0);
    check_path("data/ckpt-x", "data/ckpt-x", 0);
    check_path("/", "/", 0);
    check_path("s3://models/ads/ckpt-7?endpoint=http://h:1", "s3://models/ads?endpoint=http://h:1", 7);
    check_path("s3://models/ckpt-7/", "s3://models", 7);
    check_path("s3://ckpt-7?region=x/ckpt-8", "s3://ckpt-7?region=x/ckpt-8", 0);
    check_path("hdfs://h:1/ads?user.name=me", "hdfs://h:1/ads?user.name=me", 0);
    assert_false(ps_store_url_split("", got, sizeof(got), &id));
    assert_false(ps_store_url_split("1234567", got, sizeof(got), &id));
    assert_true(ps_store_url_split("123456", got, sizeof(got), &id));
    assert_false(ps_store_url_split("s3://b?", got, sizeof(got), &id));
    assert_true(ps_store_url_split("s3://b", got, sizeof(got), &id));
}
