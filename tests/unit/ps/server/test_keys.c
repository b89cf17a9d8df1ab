/* A node's keys: which files are read, with which roles, and what is refused. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "ps/server/keys.h"
#include "tests/test.h"
#include "tests/unit/temporary_directory.h"

static char *directory;
static struct ps_config config;
static struct ps_keys keys;
static char error_text[PS_KEYS_ERROR_BYTES];

static int make_directory(void **state)
{
    directory = temporary_directory_make();
    return 0;
}

static int remove_directory(void **state)
{
    return temporary_directory_remove(directory);
}

static int keys_begin(void **state)
{
    ps_config_default(&config);
    return 0;
}

/* A file with a key of this digit, 64 times; its path is good until the next call but one. */
static const char *key_file(const char *name, char digit)
{
    static char paths[2][128];
    static int turn;
    char *path = paths[turn++ % 2], text[65];
    snprintf(path, sizeof(paths[0]), "%s/%s", directory, name);
    memset(text, digit, 64);
    text[64] = '\0';
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
    return path;
}

static void keys_set(const char *key, const char *role, const char *path)
{
    char text[192];
    snprintf(text, sizeof(text), "node.%s=%s%s", key, role, path);
    assert_int_equal(ps_config_set(&config, text, error_text), MR_OK);
}

static void has(uint32_t i, uint8_t byte, enum mr_role role)
{
    assert_int_equal(keys.psks[i][0], byte);
    assert_int_equal(keys.roles[i], role);
}

TEST(no_file_is_no_key, keys_begin)
{
    assert_int_equal(ps_keys_read(&config, &keys, error_text), MR_OK);
    assert_int_equal(keys.count, 0);
}

TEST(keys_have_roles, keys_begin)
{
    char text[96];
    keys_set("key_file", "", key_file("operator", '1'));
    keys_set("key_file_next", "", "/nonexistent/next"); /* not there yet */
    keys_set("key", "trainer:", key_file("trainer", '2'));
    keys_set("key", "read_only:", key_file("reader", '3'));
    assert_int_equal(ps_keys_read(&config, &keys, error_text), MR_OK);
    assert_int_equal(keys.count, 3);
    has(0, 0x11, MR_ROLE_OPERATOR);
    has(1, 0x22, MR_ROLE_TRAINER);
    has(2, 0x33, MR_ROLE_READ_ONLY);
    ps_keys_describe(&keys, text, sizeof(text));
    assert_string_equal(text, "3 keys: 1 operator, 1 trainer, 1 read_only");
    key_file("trainer.next", '4'); /* follows, with the same role */
    assert_int_equal(ps_keys_read(&config, &keys, error_text), MR_OK);
    assert_int_equal(keys.count, 4);
    has(2, 0x44, MR_ROLE_TRAINER);
    has(3, 0x33, MR_ROLE_READ_ONLY);
    config.rpc_world_size = 2; /* then its own calls are under the workers' key */
    assert_int_equal(ps_keys_read(&config, &keys, error_text), MR_OK);
    has(0, 0x22, MR_ROLE_TRAINER);
    has(1, 0x11, MR_ROLE_OPERATOR);
}

static void refused(const char *says)
{
    memset(&keys, 0xff, sizeof(keys));
    assert_int_equal(ps_keys_read(&config, &keys, error_text), MR_INVALID_ARGUMENT);
    assert_says(error_text, says);
    assert_int_equal(keys.count, 0); /* and nothing of a key is left in it */
    for (size_t i = 0; i < sizeof(keys.psks); i++)
        assert_int_equal(((const uint8_t *)keys.psks)[i], 0);
}

TEST(what_cannot_be_meant_is_refused, keys_begin)
{
    keys_set("key", "trainer:", key_file("a", '5'));
    keys_set("key", "operator:", key_file("b", '5'));
    refused("hold the same key, with the roles trainer and operator");
    keys_begin(state);
    keys_set("key", "trainer:", key_file("a", '5'));
    keys_set("key", "trainer:", key_file("b", '5')); /* one takes the other's place */
    assert_int_equal(ps_keys_read(&config, &keys, error_text), MR_OK);
    keys_set("key", "trainer:", "/nonexistent/key");
    refused("/nonexistent/key: No such file or directory; make one with: (umask 077;");
    keys_begin(state);
    for (uint32_t i = 0; i < PS_CONFIG_LIST_MAX; i++) {
        const char name[] = {(char)('a' + i), '\0'};
        keys_set("key", "trainer:", key_file(name, "123456789abcdef1"[i]));
    }
    assert_int_equal(ps_keys_read(&config, &keys, error_text), MR_OK);
    keys_set("key_file", "", key_file("operator", '1'));
    refused("hold the same key");
    snprintf(config.node_key.values[0], sizeof(config.node_key.values[0]), "trainer:%s/f", directory);
    snprintf(config.node_key.values[15], sizeof(config.node_key.values[15]), "trainer:%s/f", directory);
    refused("a node takes at most 16 keys at once");
}

TEST(the_configuration_says_what_a_role_is, keys_begin)
{
    const char *const wrong[] = {"node.key=/etc/key", "node.key=trainer:", "node.key=root:/etc/key",
                                 "node.key=:/k"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        assert_int_equal(ps_config_set(&config, wrong[i], error_text), MR_INVALID_ARGUMENT);
        assert_non_null(strstr(error_text, "allowed: operator:FILE, trainer:FILE or read_only:FILE"));
    }
}

TEST(a_reload_ends_keys_whose_files_are_missing, keys_begin)
{
    char wanted[256];
    keys_set("key_file", "", key_file("operator", '1'));
    keys_set("key", "trainer:", key_file("trainer", '2'));
    keys_set("key", "read_only:", key_file("reader", '3'));
    snprintf(wanted, sizeof(wanted), "%s/trainer (trainer)", directory);
    assert_int_equal(unlink(key_file("trainer", '2')), 0);
    (void)unlink(key_file("trainer.next", '2'));                                     /* of an earlier test */
    assert_int_equal(ps_keys_read(&config, &keys, error_text), MR_INVALID_ARGUMENT); /* not so at start */
    assert_int_equal(ps_keys_read_again(&config, true, &keys, error_text), MR_OK);
    assert_string_equal(keys.missing, wanted);
    assert_int_equal(keys.count, 2);
    has(0, 0x11, MR_ROLE_OPERATOR);
    has(1, 0x33, MR_ROLE_READ_ONLY);
    assert_int_equal(unlink(key_file("operator", '1')), 0);
    assert_int_equal(unlink(key_file("reader", '3')), 0);
    assert_int_equal(ps_keys_read_again(&config, true, &keys, error_text), MR_INVALID_ARGUMENT);
    assert_non_null(strstr(error_text, "no key would be left"));
    assert_non_null(strstr(error_text, wanted));
}

TEST(a_reload_leaves_no_node_without_a_key, keys_begin)
{
    assert_int_equal(ps_keys_read_again(&config, false, &keys, error_text), MR_OK); /* it had none */
    assert_int_equal(keys.count, 0);
    assert_int_equal(ps_keys_read_again(&config, true, &keys, error_text), MR_INVALID_ARGUMENT);
    assert_non_null(strstr(error_text, "no key would be left"));
}

int main(void)
{
    return tests_run(make_directory, remove_directory);
}
