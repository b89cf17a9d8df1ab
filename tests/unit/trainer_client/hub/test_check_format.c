/* What --check-format shows. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tests/test.h"
#include "tests/unit/trainer_client/hub/format/formats_fixture.h"
#include "tests/unit/trainer_client/hub/temp_file.h"
#include "trainer_client/hub/check_format.h"
#include "trainer_client/hub/samples/sample_file.h"

static char error_text[HUB_ERROR_BYTES];

/* What is shown of lines of a format; to be freed. */
static char *show_of(const struct hub_formats *all, const char *name, const char *lines,
                     enum mr_status wanted)
{
    struct temp_file file = temp_file_text(lines);
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    assert_non_null(out);
    assert_int_equal(hub_check_format(all, hub_formats_find(all, name), file.path, out, error_text), wanted);
    fclose(out);
    close(file.fd);
    return text;
}

static char *check_format_show(const char *lines, enum mr_status wanted)
{
    return show_of(formats, "flights", lines, wanted);
}

static void expect(const char *text, const char *what)
{
    if (strstr(text, what) == NULL)
        fail_msg("\"%s\" does not contain \"%s\"", text, what);
}

TEST(samples_and_what_they_hold)
{
    char *text = check_format_show(
        "01010001,16,405,MCI,MDW\n01010001,14,405,LAX,MDW\n01010101,14,405,X,MDW\nbroken\n", MR_OK);
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

TEST(no_samples)
{
    char *text = check_format_show("", MR_OK);
    expect(text, ": 1 file, 0 samples, 0 broken lines, 0 distinct keys\n");
    free(text);
}

TEST(data_of_another_format)
{
    free(check_format_show("1\t2\n", MR_BAD_MESSAGE));
    expect(error_text, "is not in the format flights");
}

/* What the description lacks is put together, also where it makes all lines broken. */
TEST(missing_values_and_blanks_are_proposed)
{
    static const char description[] = "[format]\nname = own\nlabel = y\n[columns]\ny = flag\nx = number\n"
                                      "z = integer\nu = text\n[slots]\nu = u\n";
    struct hub_formats *own = hub_formats_create();
    struct temp_file file = temp_file_text(description);
    assert_non_null(own);
    assert_int_equal(hub_formats_add(own, file.path, error_text), MR_OK);
    char *text =
        show_of(own, "own", "y,x,z,u\n1,NA,2,a\n0,1,2,\\N\n1,1, 2,b\n0,1,1,c\n1,null,1,c\n0,1,1,d\n", MR_OK);
    expect(text, "\nproposed for [format]:\n  missing = NA, null, \\N\n  # and \" or empty\" behind");
    expect(text, "  trim = blanks\n");
    free(text);
    text = show_of(own, "own", "y,x,z,u\n1,NA,2,a\n", MR_BAD_MESSAGE);
    expect(text, "\nproposed for [format]:\n  missing = NA\n");
    free(text);
    text = show_of(own, "own", "y, x,z,u\n1,1,2,a\n", MR_BAD_MESSAGE);
    assert_string_equal(strstr(text, "\nproposed"), "\nproposed for [format]:\n  trim = blanks\n");
    free(text);
    text = show_of(own, "own", "y,x,z,u\n1,1,2,a\n", MR_OK);
    assert_null(strstr(text, "proposed"));
    free(text);
    hub_formats_destroy(own);
    close(file.fd);
}

int main(void)
{
    return tests_run(make_formats, free_formats);
}
