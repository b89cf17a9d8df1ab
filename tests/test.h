/* What each test begins with: cmocka, the headers that it wants before it, and TEST(), which defines a test
 * and adds it to those of its program:
 *
 *     TEST(a_lost_packet_is_sent_again, pair_setup, pair_teardown)     or, without a fixture, the name alone
 *     {
 *         struct pair *pair = *state;
 *
 * With MILLRACE_TEST="a_lost*" in its environment a program runs the tests of such names only.
 * tests/test_main.c is main() for programs that take no arguments; others have one that calls tests_run(). */
#ifndef MR_TEST_TEST_H
#define MR_TEST_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

/* Tests run by the lines of their definitions, before main() added. */
void test_add(unsigned line, struct CMUnitTest test);

/* Runs all tests, between `set_up` and `tear_down`, which may be NULL. Returns how many failed. */
int tests_run(CMFixtureFunction set_up, CMFixtureFunction tear_down);

/* The text has that part. */
void assert_says(const char *text, const char *part);

/* With a fixture, or one whose *state is `initial` at first: TEST(name, set_up, tear_down[, initial]). */
#define TEST(...) TEST_DEFINE_(__VA_ARGS__, NULL, NULL, NULL, )
#define TEST_DEFINE_(name, set_up, tear_down, initial, ...)                                                  \
    static void name(void **state);                                                                          \
    TEST_ADD_(__LINE__, name, set_up, tear_down, initial)                                                    \
    static void name(void **state)

/* Adds a test that is defined already once more, with another fixture. */
#define TEST_AGAIN(...) TEST_AGAIN_(__LINE__, __VA_ARGS__, NULL, NULL, NULL, )
#define TEST_AGAIN_(line, name, set_up, tear_down, initial, ...)                                             \
    TEST_ADD_(line, name, set_up, tear_down, initial)

#define TEST_ADD_(line, name, set_up, tear_down, initial) TEST_ADD_AT_(line, name, set_up, tear_down, initial)
#define TEST_ADD_AT_(line, name, set_up, tear_down, initial)                                                 \
    __attribute__((constructor)) static void add_test_##line(void)                                           \
    {                                                                                                        \
        test_add(line, (struct CMUnitTest){#name, name, set_up, tear_down, initial});                        \
    }

#endif
