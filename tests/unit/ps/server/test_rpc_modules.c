/* Lines of modules; how they load is tests/integration/rpc/test_rpc_node.c's. */
#include <string.h>
#include "ps/server/rpc_modules.h"
#include "tests/test.h"

static void splits(const char *value, const char *path, const char *arguments)
{
    char found[64];
    const char *rest;
    assert_true(ps_rpc_module_split(value, found, sizeof(found), &rest));
    assert_string_equal(found, path);
    assert_string_equal(rest, arguments);
}

TEST(a_line_is_a_path_and_arguments)
{
    splits("/a/b.so", "/a/b.so", "");
    splits("./b.so \t x=1  y ", "./b.so", "x=1  y ");
    splits("b.so", MR_MODULE_DIR "/b.so", "");
    splits("b.so /etc/b.conf", MR_MODULE_DIR "/b.so", "/etc/b.conf");
}

TEST(a_long_path_is_refused)
{
    char path[64];
    const char *arguments;
    char value[80];
    memset(value, 'a', sizeof(value) - 1);
    value[0] = '/';
    value[79] = '\0';
    assert_false(ps_rpc_module_split(value, path, sizeof(path), &arguments));
    value[63] = '\0';
    assert_true(ps_rpc_module_split(value, path, sizeof(path), &arguments));
}
