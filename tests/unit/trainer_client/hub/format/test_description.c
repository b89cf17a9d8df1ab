/* Descriptions of one's own: what they make of lines, and what is refused, with its place and what is
 * allowed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <math.h>
#include "tests/test.h"
#include "tests/unit/trainer_client/hub/format/formats_fixture.h"
#include "trainer_client/api/slot_key.h"

static struct hub_sample sample;
static char why[HUB_FORMAT_ERROR_BYTES], reason[HUB_REASON_BYTES];

static struct hub_format *made(const char *text)
{
    struct hub_format *format = read_format(text, why);
    if (format == NULL)
        fail_msg("%s", why);
    return format;
}

static enum hub_parse description_parse(const struct hub_format *format, const char *line)
{
    return hub_format_parse(format, line, strlen(line), 2, &sample, reason);
}

static void expect_key(uint32_t i, uint32_t slot, const char *text)
{
    assert_int_equal(sample.keys[i], mrc_slot_key(slot, text, strlen(text)));
}

#define HEAD "[format]\nname = own\nheader = none\nlabel = y\n[columns]\ny = flag\n"

TEST(columns_are_found_by_their_names)
{
    struct hub_format *format = made("[format]\nname = own\nlabel = clicked\n"
                                     "[columns]\nclicked = flag\nuser id = text\nprice = number or empty\n"
                                     "[dense]\nprice = price\n[slots]\nuser = user id\n");
    static const char header[] = "date,user id,\"price\",clicked,rest";
    assert_true(hub_format_has_names(format));
    struct hub_format *bound = hub_format_bind(format, header, strlen(header), reason);
    assert_non_null(bound);
    assert_int_equal(hub_format_parse(bound, header, strlen(header), 1, &sample, reason), HUB_NO_SAMPLE);
    assert_int_equal(description_parse(bound, "x,anna,2.5,1,"), HUB_PARSED);
    assert_int_equal((int)sample.label, 1);
    assert_true(fabsf(sample.dense[0] - 2.5f) < 1e-6f);
    expect_key(0, 0, "anna");
    assert_int_equal(description_parse(bound, "x,anna,,0,"), HUB_PARSED);
    assert_true(fabsf(sample.dense[0]) < 1e-6f);
    assert_int_equal(description_parse(bound, "x,anna,2.5,1"), HUB_BROKEN);
    assert_string_equal(reason, "4 fields, not 5");
    assert_int_equal(description_parse(bound, "x,,2.5,1,"), HUB_BROKEN);
    assert_string_equal(reason, "field 2 (user id) is empty");
    assert_string_equal(hub_format_slot_name(bound, 0), "user");
    assert_string_equal(hub_format_dense_name(bound, 0), "price");
    hub_format_free(bound);
    assert_null(hub_format_bind(format, "a,b", 3, reason));
    assert_non_null(strstr(reason, "no column \"clicked\""));
    assert_null(hub_format_bind(format, "clicked,price,user id,price", 27, reason));
    assert_non_null(strstr(reason, "more than one column \"price\""));
    hub_format_free(format);
}

/* `text` is refused in line `line`, or for all of it with 0, and the error has `what` in it. */
static void refused(const char *text, uint32_t line, const char *what)
{
    char place[32];
    struct hub_format *format = read_format(text, why);
    assert_null(format);
    snprintf(place, sizeof(place), line > 0 ? "own.ini:%u: " : "own.ini: ", line);
    if (strncmp(why, place, strlen(place)) != 0 || strstr(why, what) == NULL)
        fail_msg("\"%s\" does not start with \"%s\" or does not contain \"%s\"", why, place, what);
}

/* Of libsvm: classes and numbers, and files that are to be scored. */
TEST(labels_of_libsvm)
{
    struct hub_format *format = made("[format]\nname = own\nlayout = libsvm\nlabel = number\n");
    assert_int_equal(description_parse(format, "-2.5 3:1"), HUB_PARSED);
    assert_true(fabsf(sample.label + 2.5f) < 1e-6f && sample.key_count == 1 && !format->has_no_labels);
    assert_int_equal(description_parse(format, "7"), HUB_PARSED);
    assert_int_equal(description_parse(format, "1e39 3:1"), HUB_BROKEN);
    assert_int_equal(description_parse(format, "nan 3:1"), HUB_BROKEN);
    assert_int_equal(description_parse(format, "3:1"), HUB_BROKEN);
    hub_format_free(format);
    format = made("[format]\nname = own\nlayout = libsvm\nlabel = none\n");
    assert_true(format->has_no_labels);
    static const char *const lines[] = {"3:1 5:2", "0 3:1 5:2", "12.5 3:1 5:2"};
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
        assert_int_equal(description_parse(format, lines[i]), HUB_PARSED);
        assert_true(isnan(sample.label) && sample.key_count == 2);
    }
    hub_format_free(format);
    format = made("[format]\nname = own\nlayout = libsvm\n");
    assert_int_equal(description_parse(format, "2 3:1"), HUB_BROKEN);
    assert_non_null(strstr(reason, "label = number takes others"));
    hub_format_free(format);
    refused("[format]\nname = a\nlayout = libsvm\nlabel = y\n", 4, "allowed: sign, number, none");
}

TEST(lines_without_labels)
{
    struct hub_format *format =
        made("[format]\nname = own\nheader = none\nlabel = none\n[columns]\nu = text\n"
             "x = number\n[dense]\nx = x\n[slots]\nu = u\n");
    assert_true(format->has_no_labels);
    assert_int_equal(description_parse(format, "a,2"), HUB_PARSED);
    assert_true(isnan(sample.label) && fabsf(sample.dense[0] - 2) < 1e-6f);
    assert_int_equal(description_parse(format, "1,a,2"), HUB_BROKEN);
    hub_format_free(format);
    format = made("[format]\nname = own\nheader = none\nlabel = none\n[columns]\nnone = flag\nu = text\n"
                  "[slots]\nu = u\n"); /* a column of that name */
    assert_false(format->has_no_labels);
    assert_int_equal(description_parse(format, "1,a"), HUB_PARSED);
    assert_true(sample.label > 0.5f);
    hub_format_free(format);
}

/* What others write for nothing is as good as nothing, in columns that may be empty. */
TEST(missing_values)
{
    struct hub_format *format =
        made("[format]\nname = own\nheader = none\nlabel = y\nmissing = NA, NULL, \\N\n[columns]\ny = flag\n"
             "x = number or empty\nt = time(%Y) or empty\nu = text or empty\ncountry = text\n"
             "[dense]\nx = x\n[slots]\nt = t\nu = u\ncountry = country\nux = cross(u, country)\n");
    assert_int_equal(description_parse(format, "1,NA,NULL,\\N,NA"), HUB_PARSED);
    assert_true(fabsf(sample.dense[0]) < 1e-6f);
    assert_int_equal(sample.key_count, 1);
    expect_key(0, 2, "NA"); /* Namibia */
    assert_int_equal(description_parse(format, "1,\"NA\",\"NULL\",\"\\N\",\"NA\""), HUB_PARSED);
    assert_int_equal(sample.key_count, 1);
    assert_int_equal(description_parse(format, "1,NAN,2026,NAB,DE"), HUB_BROKEN);
    assert_int_equal(description_parse(format, "1,2,2026,NAB,DE"), HUB_PARSED);
    assert_int_equal(sample.key_count, 4);
    assert_int_equal(description_parse(format, "NA,2,2026,a,DE"), HUB_BROKEN); /* a label is there */
    hub_format_free(format);
}

TEST(blanks_around_fields)
{
    struct hub_format *format =
        made("[format]\nname = own\nlabel = y is >50K\ntrim = blanks\nmissing = ?\n[columns]\ny = text\n"
             "x = number\nu = text or empty\n[dense]\nx = x\n[slots]\nu = u\n");
    static const char header[] = "x, \"y\" ,\tu";
    struct hub_format *bound = hub_format_bind(format, header, strlen(header), reason);
    assert_non_null(bound);
    assert_int_equal(description_parse(bound, " 2,  >50K\t, a b "), HUB_PARSED);
    assert_true(sample.label > 0.5f && fabsf(sample.dense[0] - 2) < 1e-6f);
    expect_key(0, 0, "a b");
    assert_int_equal(description_parse(bound, "2 , >50K, \" a, b\" "), HUB_PARSED);
    expect_key(0, 0, " a, b"); /* what stands in marks is as it is */
    assert_int_equal(description_parse(bound, "2,>50K, ?"), HUB_PARSED);
    assert_int_equal(sample.key_count, 0);
    assert_int_equal(description_parse(bound, "2,>50K,\"a\" b"), HUB_BROKEN);
    hub_format_free(bound);
    hub_format_free(format);
    format = made("[format]\nname = own\nlabel = y\nheader = none\nseparator = tab\ntrim = blanks\n"
                  "[columns]\ny = flag\nu = text or empty\nv = text or empty\n[slots]\nu = u\nv = v\n");
    assert_int_equal(description_parse(format, "1 \t\t \"a\" "), HUB_PARSED); /* a tab separates here */
    assert_int_equal(sample.key_count, 1);
    expect_key(0, 1, "a");
    hub_format_free(format);
}

/* A reason says which key would help. */
TEST(what_is_broken_says_its_cure)
{
    struct hub_format *format =
        made(HEAD "x = number\nz = integer or empty\nu = text or empty\n[slots]\nu = u\n");
    static const struct {
        const char *line, *says;
    } cases[] = {
        {"1,NA,1,a",
         "field 2 (x) is not a finite number; with format.missing = NA, and \" or empty\" behind the "
         "column's type, it is a missing value"},
        {"1,1, NULL,a", "field 3 (z) is not an integer; with format.missing = NULL it is a missing value"},
        {"1,1, 2,a", "field 3 (z) is not an integer; there are blanks around it: set format.trim = blanks"},
        {"1,1,b,a", "field 3 (z) is not an integer"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(description_parse(format, cases[i].line), HUB_BROKEN);
        assert_string_equal(reason, cases[i].says);
    }
    hub_format_free(format);
    format = made("[format]\nname = own\nlabel = y\n[columns]\ny = flag\nu = text\n[slots]\nu = u\n");
    assert_null(hub_format_bind(format, "y, u", 4, reason));
    assert_string_equal(reason, "the first line has the column \"u\"; there are blanks around it: set "
                                "format.trim = blanks");
    hub_format_free(format);
}

TEST(fields_in_quotes)
{
    struct hub_format *format = made(HEAD "a = text or empty\nb = text or empty\n[slots]\na = a\nb = b\n");
    assert_int_equal(description_parse(format, "1,\"x, \"\"y\"\"\",\"\""), HUB_PARSED);
    assert_int_equal(sample.key_count, 1);
    expect_key(0, 0, "x, \"y\"");
    assert_int_equal(description_parse(format, "\"0\",a\"b,\"c\""), HUB_PARSED);
    expect_key(0, 0, "a\"b"); /* only where the field begins */
    expect_key(1, 1, "c");
    static const char *const bad[] = {"1,a,\"", "1,a,\"b", "1,\"a\"x,b", "1,\"a,b", "1,a,\"b\"\"", "\"1"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_int_equal(description_parse(format, bad[i]), HUB_BROKEN);
    hub_format_free(format);
}

static void expect_label(const char *label, const char *line, float value)
{
    char text[300];
    snprintf(text, sizeof(text),
             "[format]\nname = own\nheader = none\nlabel = %s\n[columns]\ny = number\nt = text or empty\n"
             "[slots]\nt = t\n",
             label);
    struct hub_format *format = made(text);
    assert_int_equal(description_parse(format, line), HUB_PARSED);
    assert_true(fabsf(sample.label - value) < 1e-6f);
    hub_format_free(format);
}

TEST(labels)
{
    expect_label("y", "2.5,a", 2.5f);
    expect_label("y > 2.5", "2.5,a", 0);
    expect_label("y >= 2.5", "2.5,a", 1);
    expect_label("y < 2.5", "2.5,a", 0);
    expect_label("y <= 2.5", "2.5,a", 1);
    expect_label("y == 2.5", "2.5,a", 1);
    expect_label("y != 2.5", "2.5,a", 0);
    expect_label("y>-1", "-0.5,a", 1);
    expect_label("t is a, b", "2.5,b", 1);
    expect_label("t is >50K", "2.5,>50K", 1);
    expect_label("t is a, b", "2.5,ab", 0);
    expect_label("t is a, b", "2.5,", 0);
}

TEST(dense_values)
{
    struct hub_format *format =
        made(HEAD "x = number or empty\nn = integer(-9..9)\n[dense]\nplain = x\nlog = log(n)\n"
                  "scaled = scale(x, 10, 4)\nclipped = clip(x, -1, 1)\n[slots]\nn = n\n");
    assert_int_equal(description_parse(format, "1,4.5,-3"), HUB_PARSED);
    assert_int_equal(format->dense, 4);
    assert_true(fabsf(sample.dense[0] - 4.5f) < 1e-6f);
    assert_true(fabsf(sample.dense[1] + logf(4)) < 1e-6f);
    assert_true(fabsf(sample.dense[2] + 1.375f) < 1e-6f);
    assert_true(fabsf(sample.dense[3] - 1) < 1e-6f);
    assert_int_equal(description_parse(format, "1,,0"), HUB_PARSED);
    for (uint32_t i = 0; i < 4; i++)
        assert_true(fabsf(sample.dense[i]) < 1e-6f); /* missing: 0, not scaled */
    static const char *const bad[] = {"1,x,0",   "1,1,10",    "1,1,-10", "1,1,",
                                      "1,1,0.5", "1,1e300,0", "1,nan,0"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_int_equal(description_parse(format, bad[i]), HUB_BROKEN);
    hub_format_free(format);
}

TEST(slots)
{
    struct hub_format *format =
        made(HEAD "a = text or empty\nb = text or empty\nx = number or empty\n[slots]\n"
                  "a = a\nab = cross(a, b)\ntags = split(b, pipe)\nx = range(x)\nax = cross(a, range(x))\n");
    assert_int_equal(description_parse(format, "1,u,p||q,-1"), HUB_PARSED);
    assert_int_equal(format->slots, 5);
    assert_int_equal(sample.key_count, 6);
    expect_key(0, 0, "u");
    expect_key(1, 1, "u|p||q|");
    expect_key(2, 2, "p");
    expect_key(3, 2, "q");
    expect_key(4, 3, "-8");
    expect_key(5, 4, "u|-8|");
    assert_int_equal(sample.bag_end[1], 2);
    assert_int_equal(sample.bag_end[2], 4);
    assert_int_equal(description_parse(format, "1,u,,"), HUB_PARSED);
    assert_int_equal(sample.key_count, 1); /* a cross with a missing part has no key */
    assert_int_equal(description_parse(format, "1,seventeen letters,and many more bytes than that,1"),
                     HUB_PARSED);
    expect_key(1, 1, "seventeen letters|and many more bytes than that|");
    hub_format_free(format);
}

/* A sample's keys are bounded: splits leave room for the other slots. */
TEST(pieces_are_bounded)
{
    const uint32_t most = HUB_SAMPLE_KEYS_MAX - HUB_SLOTS_MAX;
    static char line[2 * HUB_SAMPLE_KEYS_MAX + 10];
    struct hub_format *format = made(HEAD "a = text\n[slots]\nfirst = y\na = split(a, pipe)\nlast = y\n");
    (void)snprintf(line, sizeof(line), "1,");
    for (uint32_t i = 0; i < most - 1; i++)
        memcpy(line + 2 + 2 * i, "p|", 3);
    assert_int_equal(description_parse(format, line), HUB_PARSED);
    assert_int_equal(sample.key_count, most + 1);
    assert_int_equal(sample.bag_end[1], most);
    memcpy(line + strlen(line), "q", 2);
    assert_int_equal(description_parse(format, line), HUB_BROKEN);
    assert_string_equal(reason, "more than 3840 keys");
    hub_format_free(format);
}

static void expect_time(const char *pattern, const char *text, const char *keys[4])
{
    char description[400], line[80];
    snprintf(description, sizeof(description),
             HEAD "t = time(%s)\n[slots]\nhour = hour(t)\nweekday = weekday(t)\nday = day(t)\n"
                  "month = month(t)\n",
             pattern);
    struct hub_format *format = made(description);
    snprintf(line, sizeof(line), "1,%s", text);
    assert_int_equal(description_parse(format, line), HUB_PARSED);
    for (uint32_t slot = 0; slot < 4; slot++)
        expect_key(slot, slot, keys[slot]);
    hub_format_free(format);
}

TEST(times_of_day)
{
    expect_time("%Y-%m-%d %H:%M:%S", "2026-11-28 04:05:06", (const char *[]){"04", "6", "1128", "11"});
    expect_time("%Y-%m-%dT%H:%M:%S.%fZ", "2000-02-29T23:59:60.123Z",
                (const char *[]){"23", "2", "0229", "02"});
    expect_time("%s", "0", (const char *[]){"00", "4", "0101", "01"});
    expect_time("%s", "-1", (const char *[]){"23", "3", "1231", "12"});
    expect_time("%Q", "951868799999", (const char *[]){"23", "2", "0229", "02"});
    expect_time("%s", "4102444800", (const char *[]){"00", "5", "0101", "01"});
    struct hub_format *format = made(HEAD "t = time(%H:%M)\n[slots]\nhour = hour(t)\n");
    static const char *const bad[] = {"1,", "1,1:00", "1,01:60", "1,25:00", "1,01:00x", "1,01", "1,-1:00"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_int_equal(description_parse(format, bad[i]), HUB_BROKEN);
    assert_string_equal(reason, "field 2 (t) is not a time of its pattern");
    hub_format_free(format);
}

TEST(weights_of_libsvm)
{
    struct hub_format *format = made("[format]\nname = own\nlayout = libsvm\nslots = 1\nvalues = weights\n");
    assert_int_equal(description_parse(format, "1 7:0.5 8:2 9:0"), HUB_PARSED);
    assert_int_equal(sample.key_count, 2);
    assert_true(fabsf(sample.weights[0] - 0.5f) < 1e-6f && fabsf(sample.weights[1] - 2) < 1e-6f);
    uint64_t key = sample.keys[0];
    assert_int_equal(description_parse(format, "1 7:3"), HUB_PARSED);
    assert_int_equal(sample.keys[0], key); /* whatever the value */
    assert_int_equal(description_parse(format, "1 7:1e300"), HUB_BROKEN);
    hub_format_free(format);
    format = made("[format]\nname = own\nlayout = libsvm\nslots = 1\nvalues = presence\n");
    assert_int_equal(description_parse(format, "1 7:1e300"), HUB_PARSED);
    assert_int_equal(sample.keys[0], key);
    assert_false(format->has_weights);
    hub_format_free(format);
}

TEST(the_digest_is_of_what_it_says)
{
    struct hub_format *a = made(HEAD "u = text\n[slots]\nu = u\n"),
                      *b = made("# Ours\n" HEAD "\n  u  =  text\n[slots]\n# The user\nu = u\n"),
                      *c = made(HEAD "u = text\n[slots]\nu = cross(u)\n");
    assert_int_equal(a->digest, b->digest);
    assert_int_not_equal(a->digest, c->digest);
    hub_format_free(a);
    hub_format_free(b);
    hub_format_free(c);
}

TEST(what_is_wrong_is_said)
{
    refused("", 0, "format.name is missing");
    refused("[format]\nname = a b\n", 2, "format.name = \"a b\": allowed: 1 to 31 letters");
    refused(HEAD "[format]\nmissing = NA\n[slots]\ny = y\n", 8, "no column may be empty");
    refused("[format]\nname = a\nmissing = NA,,b\n", 3, "up to 16 texts of 1 to 31 bytes");
    refused("[format]\nname = a\nmissing = a23456789012345678901234567890123\n", 3, "up to 16 texts");
    refused("[format]\nname = a\ntrim = left\n", 3, "allowed: none, blanks");
    refused("[format]\nname = a\nlayout = libsvm\ntrim = blanks\n", 4, "layout libsvm has no such key");
    refused("[format]\nname = a\nnames = b\n", 3, "there is no such key; there are name, layout");
    refused("name = a\n[format]\n", 1, "\"name\" is in no section: one of [format]");
    refused("[frmat]\nname = a\n", 2, "there is no section [frmat]; there are [format]");
    refused("[format]\nname\n", 2, "expected [section], key = value");
    refused("[format]\nname = a\nname = b\n", 3, "format.name is given twice: see line 2");
    refused("[format]\nname = a\nseparator = ;\n", 3, "allowed: tab, comma, semicolon");
    refused("[format]\nname = a\nquote = yes\n", 3, "allowed: none, double, single");
    refused("[format]\nname = a\nheader = yes\n", 3, "allowed: names, none, optional");
    refused("[format]\nname = a\nlayout = csv\n", 3, "allowed: delimited, libsvm");
    refused("[format]\nname = a\nslots = 3\n", 3, "layout delimited has no such key");
    refused("[format]\nname = a\nlayout = libsvm\nheader = none\n", 4, "layout libsvm has no such key");
    refused("[format]\nname = a\nlayout = libsvm\nslots = 1.5\n", 4, "allowed: 1 to 256");
    refused("[format]\nname = a\nlayout = libsvm\n[slots]\nu = u\n", 5, "has no section [slots]");
    refused("[format]\nname = a\n[columns]\ny = flag\n", 0, "format.label is missing: allowed: COLUMN");
    refused(HEAD "u = text\n", 0, "section [slots] is missing");
}

TEST(wrong_columns_and_labels_are_said)
{
    refused(HEAD "u = string\n", 7, "columns.u = \"string\": allowed: flag, integer");
    refused(HEAD "u = integer(9..1)\n", 7, "\"9..1\" are no bounds");
    refused(HEAD "u = flag(0..1)\n", 7, "allowed: flag");
    refused(HEAD "u = text(9-0)\n", 7, "\"9-0\" are no bytes");
    refused(HEAD "u = time(%Y-%j)\n", 7, "\"%j\" is no part of a time; allowed: %Y");
    refused(HEAD "u = time(noon)\n", 7, "needs one of %Y");
    refused(HEAD "u1..u3 = text\nu2 = text\n", 8, "columns.u2 is given twice: see line 7");
    refused(HEAD "u3..u1 = text\n", 7, "a range of names goes up");
    refused(HEAD "u(v) = text\n", 7, "no comma and no brackets");
    refused("[format]\nname = a\nlabel = z > 1\n[columns]\ny = flag\nu = text\n", 3,
            "there is no column \"z\" in [columns]; there are y, u");
    refused("[format]\nname = a\nlabel = u > 1\n[columns]\nu = text\n", 3, "has no numbers: make it flag");
    refused("[format]\nname = a\nlabel = y > one\n[columns]\ny = integer\n", 3, "allowed: COLUMN, COLUMN >");
    refused("[format]\nname = a\nlabel = y\n[columns]\ny = flag or empty\n", 3, "remove \"or empty\"");
}

TEST(wrong_values_are_said)
{
    refused(HEAD "u = text\n[dense]\nd = exp(y)\n[slots]\nu = u\n", 9, "allowed: COLUMN, log(COLUMN)");
    refused(HEAD "u = text\n[dense]\nd = log(u)\n[slots]\nu = u\n", 9, "has no numbers");
    refused(HEAD "u = text\n[dense]\nd = scale(y, 1, 0)\n[slots]\nu = u\n", 9, "the deviation is 0");
    refused(HEAD "u = text\n[dense]\nd = clip(y, 2, 1)\n[slots]\nu = u\n", 9, "above the highest");
    refused(HEAD "u = text\n[slots]\nv = v\n", 9, "there is no column \"v\" in [columns]; there are y, u");
    refused(HEAD "u = text\n[slots]\nv = hour(u)\n", 9, "has no times: make it time(PATTERN)");
    refused(HEAD "u = time(%H:%M)\n[slots]\nv = weekday(u)\n", 9, "weekday of \"u\" needs %Y, %m and %d");
    refused(HEAD "u = text\n[slots]\nv = cross(u, u)\n", 9, "a part is there twice");
    refused(HEAD "u = text\n[slots]\nv = cross(u\n", 9, "allowed: COLUMN, hour(TIME)");
    refused(HEAD "u = text\n[slots]\nv = split(u, tabs)\n", 9, "allowed: split(COLUMN, SEPARATOR)");
    refused(HEAD "c1..c3 = text\n[slots]\ns1..s2 = c1..c3\n", 9, "has as many names as the key's: 2");
    refused(HEAD "u = text\n[slots]\ns1..s300 = u\n", 9, "there are more than 256 slots");
}

TEST(formats_have_names)
{
    char names[HUB_FORMAT_NAMES_BYTES], path[] = "/tmp/millrace-format-XXXXXX";
    struct hub_formats *all = hub_formats_create();
    int fd = mkstemp(path);
    assert_non_null(all);
    assert_true(fd >= 0);
    assert_string_equal(hub_formats_names(all, names), "libsvm, criteo, flights");
    static const char own[] = HEAD "u = text\n[slots]\nu = u\n";
    assert_int_equal(write(fd, own, sizeof(own) - 1), sizeof(own) - 1);
    assert_int_equal(hub_formats_add(all, path, why), MR_OK);
    assert_string_equal(hub_formats_names(all, names), "libsvm, criteo, flights, own");
    assert_false(hub_formats_find(all, "own")->is_built_in);
    assert_true(hub_formats_find(all, "criteo")->is_built_in);
    assert_null(hub_formats_find(all, "parquet"));
    assert_int_equal(hub_formats_add(all, path, why), MR_INVALID_ARGUMENT);
    assert_non_null(strstr(why, "format.name = \"own\": there is such a format already"));
    close(fd);
    unlink(path);
    assert_int_equal(hub_formats_add(all, path, why), MR_IO_ERROR);
    assert_non_null(strstr(why, path));
    hub_formats_destroy(all);
}
