/* Partly applied batches are remembered until they are applied. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "ps/exactly_once/partial.h"

static void are_found_until_they_are_applied(void **state)
{
    struct ps_partial entries[3] = {{.batch_id = 5}, {.batch_id = 6}, {.batch_id = 7}};
    struct ps_partials p = {0};
    (void)state;
    assert_null(ps_partials_find(&p, 5));
    assert_true(ps_partials_set(&p, entries, 3));
    ps_partials_remove(&p, 5);
    ps_partials_remove(&p, 8);
    assert_null(ps_partials_find(&p, 5));
    assert_int_equal(ps_partials_find(&p, 6)->batch_id, 6);
    assert_int_equal(ps_partials_find(&p, 7)->batch_id, 7);
    assert_int_equal(p.count, 2);
    assert_true(ps_partials_set(&p, entries, 1));
    assert_int_equal(p.count, 1);
    ps_partials_clear(&p);
    assert_null(ps_partials_find(&p, 5));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(are_found_until_they_are_applied),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
