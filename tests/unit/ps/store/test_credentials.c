/* Credentials of stores: from which file and variables they come, and what is reported of a wrong file. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ps/checkpoint/checkpoint_format.h"
#include "ps/store/credentials.h"
#include "tests/test.h"
#include "tests/unit/temporary_directory.h"

struct fixture {
    char *directory;
    char path[256], text[PS_TEXT_BYTES];
    struct ps_credentials got;
};

static const char *const variables[] = {
    "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY",       "AWS_SESSION_TOKEN",
    "AWS_PROFILE",       "AWS_SHARED_CREDENTIALS_FILE", "MILLRACE_HDFS_TOKEN",
};

static int set_up(void **state)
{
    static struct fixture x;
    memset(&x, 0, sizeof(x));
    x.directory = temporary_directory_make();
    (void)snprintf(x.path, sizeof(x.path), "%s/keys", x.directory);
    for (size_t i = 0; i < sizeof(variables) / sizeof(*variables); i++)
        (void)unsetenv(variables[i]);
    (void)setenv("HOME", x.directory, 1);
    *state = &x;
    return 0;
}

static int tear_down(void **state)
{
    return temporary_directory_remove(((struct fixture *)*state)->directory);
}

static void write_file(const struct fixture *x, const char *content)
{
    FILE *file = fopen(x->path, "w");
    assert_non_null(file);
    assert_true(fputs(content, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void credentials_check(const struct ps_credentials *c, const char *access, const char *secret,
                              const char *token, const char *hdfs)
{
    assert_string_equal(c->access_key, access);
    assert_string_equal(c->secret_key, secret);
    assert_string_equal(c->session_token, token);
    assert_string_equal(c->hdfs_token, hdfs);
}

TEST(a_file_has_sections_of_keys, set_up, tear_down)
{
    struct fixture *x = *state;
    write_file(x, "# keys\n[other]\naws_access_key_id = theirs\n\n[ default ]\r\n"
                  "aws_access_key_id=AK;1\r\n  aws_secret_access_key = se=cr #et \n"
                  "; more\nregion = eu\nhdfs_delegation_token = dt\n[last]\naws_session_token = x");
    assert_true(ps_credentials_read(x->path, &x->got, x->text));
    credentials_check(&x->got, "AK;1", "se=cr #et", "", "dt");
    (void)setenv("AWS_PROFILE", "last", 1);
    assert_true(ps_credentials_read(x->path, &x->got, x->text));
    credentials_check(&x->got, "", "", "x", "");
}

/* Session tokens have more than a thousand characters. */
TEST(long_values_are_read_whole_or_refused, set_up, tear_down)
{
    struct fixture *x = *state;
    char content[3000], token[PS_SECRET_BYTES];
    memset(token, 't', sizeof(token));
    token[PS_SECRET_BYTES - 1] = '\0';
    (void)snprintf(content, sizeof(content), "[default]\naws_session_token = %s\n", token);
    write_file(x, content);
    assert_true(ps_credentials_read(x->path, &x->got, x->text));
    credentials_check(&x->got, "", "", token, "");
    (void)snprintf(content, sizeof(content), "[default]\naws_session_token = %st\n", token);
    write_file(x, content);
    assert_false(ps_credentials_read(x->path, &x->got, x->text));
    assert_non_null(strstr(x->text, "too long"));
    assert_null(strstr(x->text, "ttt"));
    credentials_check(&x->got, "", "", "", "");
}

TEST(the_environment_counts_without_a_file, set_up, tear_down)
{
    struct fixture *x = *state;
    assert_true(ps_credentials_read("", &x->got, x->text));
    credentials_check(&x->got, "", "", "", "");
    (void)setenv("AWS_ACCESS_KEY_ID", "AK", 1);
    (void)setenv("AWS_SECRET_ACCESS_KEY", "secret", 1);
    (void)setenv("AWS_SESSION_TOKEN", "token", 1);
    (void)setenv("MILLRACE_HDFS_TOKEN", "dt", 1);
    assert_true(ps_credentials_read("", &x->got, x->text));
    credentials_check(&x->got, "AK", "secret", "token", "dt");
    write_file(x, "[default]\naws_access_key_id = file\n");
    assert_true(ps_credentials_read(x->path, &x->got, x->text));
    credentials_check(&x->got, "file", "", "", "");
}

TEST(the_usual_file_counts_without_a_key_in_the_environment, set_up, tear_down)
{
    struct fixture *x = *state;
    write_file(x, "[default]\naws_access_key_id = file\n");
    (void)setenv("AWS_SHARED_CREDENTIALS_FILE", x->path, 1);
    assert_true(ps_credentials_read("", &x->got, x->text));
    credentials_check(&x->got, "file", "", "", "");
    (void)setenv("AWS_ACCESS_KEY_ID", "AK", 1);
    assert_true(ps_credentials_read("", &x->got, x->text));
    credentials_check(&x->got, "AK", "", "", "");
}

TEST(mistakes_are_named_and_secrets_are_not, set_up, tear_down)
{
    struct fixture *x = *state;
    char value[PS_SECRET_BYTES + 1];
    assert_false(ps_credentials_read(x->path, &x->got, x->text));
    assert_non_null(strstr(x->text, x->path));
    write_file(x, "[default]\naws_secret_access_key: hunter2\n");
    assert_false(ps_credentials_read(x->path, &x->got, x->text));
    assert_non_null(strstr(x->text, "keys:2: a line of a credentials file is"));
    assert_null(strstr(x->text, "hunter2"));
    write_file(x, "[default\naws_secret_access_key = hunter2\n");
    assert_false(ps_credentials_read(x->path, &x->got, x->text));
    assert_non_null(strstr(x->text, "keys:1:"));
    memset(value, 'v', sizeof(value));
    value[sizeof(value) - 1] = '\0';
    (void)setenv("AWS_SECRET_ACCESS_KEY", value, 1);
    assert_false(ps_credentials_read("", &x->got, x->text));
    assert_non_null(strstr(x->text, "AWS_SECRET_ACCESS_KEY"));
    assert_null(strstr(x->text, "vvv"));
    credentials_check(&x->got, "", "", "", "");
}
