/* What --check-format shows. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "tests/unit/trainer_client/hub/format/formats_fixture.h"
#include "tests/unit/trainer_client/hub/temp_file.h"
#include "trainer_client/hub/check_format.h"
#include "trainer_client/hub/sample_file.h"

static char error_text[HUB_ERROR_BYTES];

/* What is shown of lines of flights; to be freed. */
static char *show(const char *lines, enum mr_status wanted)
{
    struct temp_file file = temp_file_text(lines);
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    assert_non_null(out);
    assert_int_equal(
        hub_check_format(formats, hub_formats_find(formats, "flights"), file.path, out, error_text), wanted);
    fclose(out);
    close(file.fd);
    return text;
}

static void expect(const char *text, const char *what)
{
    if (strstr(text, what) == NULL)
        fail_msg("\"%s\" does not contain \"%s\"", text, what);
}

static void samples_and_what_they_hold(void **state)
{
    char *text =
        show("01010001,16,405,MCI,MDW\n01010001,14,405,LAX,MDW\n01010101,14,405,X,MDW\nbroken\n", MR_OK);
    expect(text, "format flights: 13 slots, 0 dense values\n");
    expect(text, ":4: broken line: 1 field, not 5\n");
    expect(text, ": 1 file, 3 samples, 1 broken line, ");
    expect(text, "\nsample 1: label 1\n  origin                   ");
    expect(text, "  label                         0.33333            0            1\n");
    expect(text, "  origin                              1            3            0\n");
    expect(text, "  destination                         1            1            0\n");
    expect(text, "  hour                                1            2            0\n");
    free(text);
}

static void no_samples(void **state)
{
    char *text = show("", MR_OK);
    expect(text, ": 1 file, 0 samples, 0 broken lines, 0 distinct keys\n");
    free(text);
}

static void data_of_another_format(void **state)
{
    free(show("1\t2\n", MR_BAD_MESSAGE));
    expect(error_text, "is not in the format flights");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(samples_and_what_they_hold),
        cmocka_unit_test(no_samples),
        cmocka_unit_test(data_of_another_format),
    };
    return cmocka_run_group_tests(tests, make_formats, free_formats);
}
