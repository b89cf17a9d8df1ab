/* `millrace ckpt` on URLs: a chain is pushed to a store, looked at there, and pulled back. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/test.h"
#include "tests/unit/ps/checkpoint_fixture.h"
#include "tests/unit/ps/store/remote_fixture.h"
#include "tests/unit/tools/ckpt_chain_fixture.h"
#include "tests/unit/tools/ckpt_program.h"

enum { LINKS = 2, LAST = CHAIN_FIRST + LINKS - 1 };

static int set_up(void **state)
{
    static struct remote_fixture x;
    remote_fixture_start(&x, *(const enum ps_store_kind *)*state, 1);
    remote_fixture_make_directories(&x);
    chain_write(x.here, LINKS);
    *state = &x;
    return 0;
}

static int tear_down(void **state)
{
    return remote_fixture_stop(*state);
}

/* The URL of the newest checkpoint there: ".../ads/ckpt-N?...". */
static const char *url_of_last(const struct remote_fixture *x)
{
    static char url[400];
    const char *query = strchr(x->url, '?');
    (void)snprintf(url, sizeof(url), "%.*s/ckpt-%d%s", (int)(query - x->url), x->url, LAST, query);
    return url;
}

TEST(a_chain_is_pushed_looked_at_and_pulled, set_up, tear_down, &remote_hdfs)
{
    struct remote_fixture *x = *state;
    assert_int_equal(ckpt_run("push %s '%s'", x->here, x->url), 0);
    ckpt_expect("copied");
    assert_int_equal(ckpt_run("list '%s' --json", x->url), 0);
    json_t *list_there = ckpt_json();

    assert_int_equal(json_array_size(list_there), LINKS);
    assert_true(ckpt_number(json_array_get(list_there, 0), "bytes") > 2 << 20);
    json_decref(list_there);
    assert_int_equal(ckpt_run("verify '%s'", x->url), 0);
    ckpt_expect(": ok, ");
    assert_int_equal(ckpt_run("info '%s'", url_of_last(x)), 0);
    assert_int_equal(ckpt_run("diff '%s' %s/ckpt-%d", url_of_last(x), x->here, LAST), 0);
    assert_int_equal(ckpt_run("pull '%s' %s", x->url, x->back), 0);
    assert_int_equal(ckpt_run("verify %s", x->back), 0);
    assert_int_equal(ckpt_run("diff %s/ckpt-%d %s/ckpt-%d", x->here, LAST, x->back, LAST), 0);
    assert_int_equal(ckpt_run("push %s/ckpt-%d '%s'", x->here, LAST, x->url), 0);
    ckpt_expect(": 0 B copied");
}
TEST_AGAIN(a_chain_is_pushed_looked_at_and_pulled, set_up, tear_down, &remote_s3)

TEST(mistakes_are_one_line, set_up, tear_down, &remote_hdfs)
{
    struct remote_fixture *x = *state;
    assert_int_equal(ckpt_run("pull '%s' %s", x->url, x->back), 1);
    ckpt_expect("there is no checkpoint here");
    assert_int_equal(ckpt_run("pull %s '%s'", x->here, x->url), 1);
    ckpt_expect("millrace ckpt push copies to a store");
    assert_int_equal(ckpt_run("push %s '%s'", x->here, url_of_last(x)), 1);
    ckpt_expect("name the directory that checkpoints are to be in");
    assert_int_equal(ckpt_run("list s3://Models"), 1);
    ckpt_expect("3 to 63 small letters");
    assert_int_equal(ckpt_run("compact %s/ckpt-%d --out '%s'", x->here, LAST, x->url), 1);
    ckpt_expect("made on this machine's disk");
}
TEST_AGAIN(mistakes_are_one_line, set_up, tear_down, &remote_s3)

int main(int argc, char **argv)
{
    if (argc != 2)
        return EXIT_FAILURE;
    ckpt_program = argv[1];
    return tests_run(NULL, NULL);
}
