/* The incarnation rises at every start and survives what may be in its way. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>
#include "ps/incarnation.h"

static char directory[64];
static char path[128];

static int make(void **state)
{
    (void)state;
    snprintf(directory, sizeof(directory), "/tmp/millrace-incarnation-XXXXXX");
    return mkdtemp(directory) == NULL || snprintf(path, sizeof(path), "%s/incarnation", directory) < 0;
}

static int destroy(void **state)
{
    (void)state;
    (void)unlink(path);
    return rmdir(directory);
}

static void write_file(const char *text)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static void rises_from_1(void **state)
{
    char error[256];
    (void)state;
    for (uint32_t expected = 1; expected <= 3; expected++) {
        uint32_t incarnation = 0;
        assert_int_equal(ps_incarnation_next(directory, &incarnation, error, sizeof(error)), MR_OK);
        assert_int_equal(incarnation, expected);
    }
    write_file("41\n");
    uint32_t incarnation;
    assert_int_equal(ps_incarnation_next(directory, &incarnation, error, sizeof(error)), MR_OK);
    assert_int_equal(incarnation, 42);
}

static void makes_the_directory(void **state)
{
    char error[256], below[80];
    uint32_t incarnation;
    (void)state;
    snprintf(below, sizeof(below), "%s/below", directory);
    assert_int_equal(ps_incarnation_next(below, &incarnation, error, sizeof(error)), MR_OK);
    snprintf(path, sizeof(path), "%s/incarnation", below);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(below), 0);
    snprintf(below, sizeof(below), "%s/no/where", directory);
    assert_int_equal(ps_incarnation_next(below, &incarnation, error, sizeof(error)), MR_IO_ERROR);
    assert_non_null(strstr(error, below));
}

static void refuses_a_file_that_is_no_number(void **state)
{
    const char *const texts[] = {"", "\n", "x\n", "12", "12x\n", "4294967295\n", "99999999999999999999\n"};
    char error[256];
    (void)state;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        uint32_t incarnation = 7;
        write_file(texts[i]);
        assert_int_equal(ps_incarnation_next(directory, &incarnation, error, sizeof(error)), MR_IO_ERROR);
        assert_non_null(strstr(error, path));
        assert_int_equal(incarnation, 7);
    }
}

static void without_a_directory_it_is_the_time(void **state)
{
    char error[256];
    uint32_t incarnation = 0;
    (void)state;
    assert_int_equal(ps_incarnation_next("", &incarnation, error, sizeof(error)), MR_OK);
    assert_true(incarnation > 1600000000);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, make, destroy)
    const struct CMUnitTest tests[] = {
        TEST(rises_from_1),
        TEST(makes_the_directory),
        TEST(refuses_a_file_that_is_no_number),
        TEST(without_a_directory_it_is_the_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
