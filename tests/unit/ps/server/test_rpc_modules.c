/* Lines of modules; how they load is tests/integration/rpc/test_rpc_node.c's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>
#include "ps/server/rpc_modules.h"

static void splits(const char *value, const char *path, const char *arguments)
{
    char found[64];
    const char *rest;
    assert_true(ps_rpc_module_split(value, found, sizeof(found), &rest));
    assert_string_equal(found, path);
    assert_string_equal(rest, arguments);
}

static void a_line_is_a_path_and_arguments(void **state)
{
    (void)state;
    splits("/a/b.so", "/a/b.so", "");
    splits("./b.so \t x=1  y ", "./b.so", "x=1  y ");
    splits("b.so", MR_MODULE_DIR "/b.so", "");
    splits("b.so /etc/b.conf", MR_MODULE_DIR "/b.so", "/etc/b.conf");
}

static void a_long_path_is_refused(void **state)
{
    char path[64];
    const char *arguments;
    char value[80];
    (void)state;
    memset(value, 'a', sizeof(value) - 1);
    value[0] = '/';
    value[79] = '\0';
    assert_false(ps_rpc_module_split(value, path, sizeof(path), &arguments));
    value[63] = '\0';
    assert_true(ps_rpc_module_split(value, path, sizeof(path), &arguments));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_line_is_a_path_and_arguments),
        cmocka_unit_test(a_long_path_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
