#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "dataplane/rpc/base/functions.h"
#include "tests/test.h"

static enum mr_status nothing(struct mr_rpc_call *call, const struct mr_value *arguments,
                              uint32_t argument_count)
{
    return MR_OK;
}

static int setup(void **state)
{
    struct mr_functions *functions = malloc(sizeof(*functions));
    mr_functions_init(functions);
    *state = functions;
    return 0;
}

static int teardown(void **state)
{
    mr_functions_fini(*state);
    free(*state);
    return 0;
}

TEST(what_was_added_is_found, setup, teardown)
{
    char error[512] = "";
    int user;
    struct mr_rpc_function add = {.name = "add",
                                  .arguments = "f32[?], f32[?]",
                                  .results = "f32[?]",
                                  .run = nothing,
                                  .user = &user,
                                  .flags = MR_RPC_INLINE};
    assert_null(mr_functions_find(*state, "add"));
    assert_int_equal(mr_functions_add(*state, &add, false, error, sizeof(error)), MR_OK);
    const struct mr_function *found = mr_functions_find(*state, "add");
    assert_non_null(found);
    assert_string_equal(found->name, "add");
    assert_string_equal(found->arguments_text, "f32[?], f32[?]");
    assert_int_equal(found->arguments.count, 2);
    assert_int_equal(found->results.count, 1);
    assert_ptr_equal(found->run, nothing);
    assert_ptr_equal(found->user, &user);
    assert_int_equal(found->flags, MR_RPC_INLINE);
    assert_null(mr_functions_find(*state, "ad"));
    assert_null(mr_functions_find(*state, ""));
}

static void expect_refusal(struct mr_functions *functions, struct mr_rpc_function function, bool own,
                           const char *why)
{
    char error[512] = "";
    assert_int_equal(mr_functions_add(functions, &function, own, error, sizeof(error)), MR_INVALID_ARGUMENT);
    assert_says(error, why);
}

TEST(what_is_wrong_is_said, setup, teardown)
{
    char long_name[MR_RPC_NAME_BYTES + 1];
    char error[512];
    memset(long_name, 'x', sizeof(long_name));
    long_name[MR_RPC_NAME_BYTES] = 0;
    struct mr_rpc_function good = {.name = "f", .run = nothing};
    assert_int_equal(mr_functions_add(*state, &good, false, error, sizeof(error)), MR_OK);
    expect_refusal(*state, good, false, "registered already");
    expect_refusal(*state, (struct mr_rpc_function){.run = nothing}, false, "no name");
    expect_refusal(*state, (struct mr_rpc_function){.name = "", .run = nothing}, false, "no name");
    expect_refusal(*state, (struct mr_rpc_function){.name = long_name, .run = nothing}, false, "63 bytes");
    expect_refusal(*state, (struct mr_rpc_function){.name = "g"}, false, "run is NULL");
    expect_refusal(*state, (struct mr_rpc_function){.name = "mr.x", .run = nothing}, false,
                   "the library's own");
    expect_refusal(*state, (struct mr_rpc_function){.name = "x", .run = nothing}, true, "the library's own");
    expect_refusal(*state, (struct mr_rpc_function){.name = "g", .run = nothing, .flags = 8}, false, "flags");
    expect_refusal(*state, (struct mr_rpc_function){.name = "g", .run = nothing, .arguments = "f33"}, false,
                   "function \"g\": the signature \"f33\"");
    expect_refusal(*state, (struct mr_rpc_function){.name = "g", .run = nothing, .results = "z"}, false,
                   "\"z\"");
    assert_null(mr_functions_find(*state, "g"));
    long_name[MR_RPC_NAME_BYTES - 1] = 0;
    struct mr_rpc_function longest = {.name = long_name, .run = nothing};
    assert_int_equal(mr_functions_add(*state, &longest, false, error, sizeof(error)), MR_OK);
    assert_non_null(mr_functions_find(*state, long_name));
}

TEST(the_table_is_full_at_its_limit, setup, teardown)
{
    char name[16], error[512] = "";
    struct mr_rpc_function function = {.name = name, .run = nothing};
    for (uint32_t i = 0; i < MR_FUNCTIONS_MAX; i++) {
        snprintf(name, sizeof(name), "f%u", i);
        assert_int_equal(mr_functions_add(*state, &function, false, error, sizeof(error)), MR_OK);
    }
    snprintf(name, sizeof(name), "one too many");
    expect_refusal(*state, function, false, "4096");
    assert_null(mr_functions_find(*state, "one too many"));
    assert_non_null(mr_functions_find(*state, "f0"));
    assert_non_null(mr_functions_find(*state, "f4095"));
}

struct adder {
    struct mr_functions *functions;
    uint32_t first;
};

static void *add_some(void *arg)
{
    struct adder *adder = arg;
    char name[16], error[512];
    struct mr_rpc_function function = {.name = name, .run = nothing};
    for (uint32_t i = 0; i < 200; i++) {
        snprintf(name, sizeof(name), "f%u", adder->first + i);
        if (mr_functions_add(adder->functions, &function, false, error, sizeof(error)) != MR_OK ||
            mr_functions_find(adder->functions, name) == NULL)
            return adder;
    }
    return NULL;
}

TEST(many_threads_add, setup, teardown)
{
    pthread_t threads[4];
    struct adder adders[4];
    for (uint32_t i = 0; i < 4; i++) {
        adders[i] = (struct adder){.functions = *state, .first = i * 200};
        assert_int_equal(pthread_create(&threads[i], NULL, add_some, &adders[i]), 0);
    }
    for (uint32_t i = 0; i < 4; i++) {
        void *failed;
        pthread_join(threads[i], &failed);
        assert_null(failed);
    }
    for (uint32_t i = 0; i < 800; i++) {
        char name[16];
        snprintf(name, sizeof(name), "f%u", i);
        assert_non_null(mr_functions_find(*state, name));
    }
}

static void mark(void *arg, const struct mr_function *function)
{
    bool *seen = arg;
    unsigned i = (unsigned)strtoul(function->name + 1, NULL, 10);
    assert_false(seen[i]);
    seen[i] = true;
}

TEST(each_is_visited_once, setup, teardown)
{
    struct mr_rpc_function function = {.run = nothing};
    bool seen[100] = {false};
    for (uint32_t i = 0; i < 100; i++) {
        char name[16], error[256];
        snprintf(name, sizeof(name), "f%u", i);
        function.name = name;
        assert_int_equal(mr_functions_add(*state, &function, false, error, sizeof(error)), MR_OK);
    }
    mr_functions_each(*state, mark, seen);
    for (uint32_t i = 0; i < 100; i++)
        assert_true(seen[i]);
}
