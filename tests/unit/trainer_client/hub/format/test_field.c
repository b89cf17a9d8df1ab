/* Fields and numbers of a line: nothing past the end is read, nothing odd is taken. */
#include <string.h>
#include "trainer_client/hub/format/field.h"
#include "tests/test.h"

static struct hub_field of(const char *text)
{
    return (struct hub_field){text, strlen(text)};
}

static void assert_field(struct hub_field field, const char *text)
{
    assert_int_equal(field.bytes, strlen(text));
    assert_memory_equal(field.text, text, field.bytes);
}

TEST(fields_end_at_separators)
{
    struct hub_field rest = of("a,,bc,"), field;
    assert_true(hub_field_next(&rest, ',', &field));
    assert_field(field, "a");
    assert_true(hub_field_next(&rest, ',', &field));
    assert_field(field, "");
    assert_true(hub_field_next(&rest, ',', &field));
    assert_field(field, "bc");
    assert_true(hub_field_next(&rest, ',', &field));
    assert_field(field, "");
    assert_false(hub_field_next(&rest, ',', &field));
}

TEST(words_are_never_empty)
{
    struct hub_field rest = of("  a \t bc  "), field;
    assert_true(hub_field_next_word(&rest, &field));
    assert_field(field, "a");
    assert_true(hub_field_next_word(&rest, &field));
    assert_field(field, "bc");
    assert_false(hub_field_next_word(&rest, &field));
    rest = of("");
    assert_false(hub_field_next_word(&rest, &field));
}

TEST(integers_keep_their_range)
{
    static const struct {
        const char *text;
        int64_t value;
    } good[] = {{"0", 0},
                {"-0", 0},
                {"+7", 7},
                {"-11", -11},
                {"9223372036854775807", INT64_MAX},
                {"-9223372036854775808", INT64_MIN}};
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        int64_t value = 99;
        assert_true(hub_field_integer(of(good[i].text), &value));
        assert_int_equal(value, good[i].value);
    }
    static const char *const bad[] = {"",
                                      "-",
                                      "+",
                                      "1.0",
                                      "1e3",
                                      " 1",
                                      "1 ",
                                      "0x10",
                                      "--1",
                                      "1-",
                                      "a1",
                                      "9223372036854775808",
                                      "-9223372036854775809",
                                      "99999999999999999999999999"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        int64_t value = 99;
        assert_false(hub_field_integer(of(bad[i]), &value));
        assert_int_equal(value, 99);
    }
}

TEST(numbers_are_finite_and_decimal)
{
    double value = 0;
    assert_true(hub_field_number(of("-1.25e2"), &value));
    assert_true(value > -125.1 && value < -124.9);
    assert_true(hub_field_number(of("1"), &value));
    static const char *const bad[] = {"",   "nan", "inf", "-inf", "0x1p3", "1e999", "1,5",
                                      "1 ", " 1",  "1..", "e",    "+-1",   "1e+",   "infinity"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        value = 99;
        assert_false(hub_field_number(of(bad[i]), &value));
        assert_true(value > 98);
    }
    char long_text[200];
    memset(long_text, '1', sizeof(long_text));
    assert_false(hub_field_number((struct hub_field){long_text, sizeof(long_text)}, &value));
    assert_false(hub_field_number((struct hub_field){"1\0002", 3}, &value));
}

TEST(a_number_ends_with_its_field)
{
    int64_t integer = 0;
    double number = 0;
    assert_true(hub_field_integer((struct hub_field){"123456", 3}, &integer));
    assert_int_equal(integer, 123);
    assert_true(hub_field_number((struct hub_field){"1.5e9", 3}, &number));
    assert_true(number > 1.4 && number < 1.6);
}
