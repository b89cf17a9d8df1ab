/* Lines of the log in each format, whatever is in them. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "dataplane/wire/base/log_line.h"
#include "tests/test.h"

static struct mr_log_site site = {
    .level = MR_LOG_INFO, .event = "saved", .file = "../ps/control/control_saves.c", .line = 12};
static const struct mr_log_identity who = {.program = "millraced", .node = "node-1"};
static char line[MR_LOG_LINE_BYTES + 1];

static struct mr_log_record record_of(enum mr_log_level level, const char *message)
{
    struct mr_log_record r = {.site = &site, .time = {.tv_sec = 1700000000, .tv_nsec = 7999999}};
    site.level = level;
    snprintf(r.message, sizeof(r.message), "%s", message);
    return r;
}

static const char *line_of(const struct mr_log_record *r, enum mr_log_format format)
{
    const size_t length = mr_log_line(r, format, &who, line);
    assert_true(length > 0 && length <= MR_LOG_LINE_BYTES && line[length - 1] == '\n');
    line[length - 1] = '\0';
    assert_int_equal(strlen(line), length - 1);
    assert_null(strchr(line, '\n'));
    return line;
}

TEST(text_is_a_sentence)
{
    struct mr_log_record r = record_of(MR_LOG_INFO, "saved checkpoint 7: \"x\"\n\ttwice \x7f");
    mr_log_record_fields(&r, &(struct mr_log_field){.name = "ms", .number = 3}, 1);
    assert_string_equal(line_of(&r, MR_LOG_TEXT),
                        "2023-11-14T22:13:20.007Z millraced: saved checkpoint 7: \"x\"  twice  ");
    r = record_of(MR_LOG_ERROR, "no room");
    assert_string_equal(line_of(&r, MR_LOG_TEXT), "2023-11-14T22:13:20.007Z millraced: error: no room");
    r = record_of(MR_LOG_WARNING, "na\xc3\xafve");
    assert_string_equal(line_of(&r, MR_LOG_TEXT),
                        "2023-11-14T22:13:20.007Z millraced: warning: na\xc3\xafve");
    r = record_of(MR_LOG_DEBUG, "x");
    assert_string_equal(line_of(&r, MR_LOG_TEXT), "2023-11-14T22:13:20.007Z millraced: debug: x");
}

TEST(logfmt_quotes_what_it_must)
{
    const struct mr_log_field fields[] = {{.name = "checkpoint", .number = UINT64_MAX},
                                          {.name = "directory", .text = "/a"},
                                          {.name = "empty", .text = ""},
                                          {.name = "odd", .text = "a=\"b\" \\ \x01\xff\xe2\x82\xac"}};
    struct mr_log_record r = record_of(MR_LOG_WARNING, "plain");
    mr_log_record_fields(&r, fields, 4);
    assert_string_equal(line_of(&r, MR_LOG_LOGFMT),
                        "ts=2023-11-14T22:13:20.007Z level=warning node=node-1 component=control event=saved "
                        "msg=\"plain\" checkpoint=18446744073709551615 directory=/a empty=\"\" "
                        "odd=\"a=\\\"b\\\" \\\\ \\\\x01\\\\xff\xe2\x82\xac\"");
}

TEST(a_program_without_a_name_has_no_node)
{
    const struct mr_log_identity nobody = {.program = "millrace-hub"};
    struct mr_log_record r = record_of(MR_LOG_INFO, "a");
    const size_t length = mr_log_line(&r, MR_LOG_LOGFMT, &nobody, line);
    line[length - 1] = '\0';
    assert_string_equal(line,
                        "ts=2023-11-14T22:13:20.007Z level=info component=control event=saved msg=\"a\"");
}

TEST(the_component_is_the_folder)
{
    static const struct {
        const char *file, *folder;
    } cases[] = {{"../ps/control/control.c", "control"},
                 {"ps/main.c", "ps"},
                 {"main.c", ""},
                 {"/a/b/hub/serve.c", "hub"}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        const char *start;
        const size_t length = mr_log_component(cases[i].file, &start);
        assert_int_equal(length, strlen(cases[i].folder));
        assert_memory_equal(start, cases[i].folder, length);
    }
}

TEST(names_are_parsed)
{
    enum mr_log_level level = MR_LOG_ERROR;
    enum mr_log_format format = MR_LOG_TEXT;
    for (int i = MR_LOG_ERROR; i <= MR_LOG_DEBUG; i++) {
        assert_true(mr_log_level_parse(mr_log_level_name((enum mr_log_level)i), &level));
        assert_int_equal(level, i);
    }
    assert_false(mr_log_level_parse("loud", &level));
    assert_false(mr_log_level_parse("", &level));
    assert_true(mr_log_format_parse("json", &format) && format == MR_LOG_JSON);
    assert_true(mr_log_format_parse("logfmt", &format) && format == MR_LOG_LOGFMT);
    assert_true(mr_log_format_parse("text", &format) && format == MR_LOG_TEXT);
    assert_false(mr_log_format_parse("js", &format));
}

/* ---- JSON ---- */

/* The value of a key of the line, which must be JSON; with what jansson makes of its text. */
static json_t *log_line_parse(const struct mr_log_record *r)
{
    json_error_t error;
    const size_t length = mr_log_line(r, MR_LOG_JSON, &who, line);
    json_t *o = json_loadb(line, length, JSON_REJECT_DUPLICATES, &error);
    if (o == NULL)
        fail_msg("%s in %.*s", error.text, (int)length, line);
    assert_null(memchr(line, '\n', length - 1));
    return o;
}

static const char *text_of(const json_t *o, const char *name)
{
    return json_string_value(json_object_get(o, name));
}

TEST(json_has_every_part)
{
    const struct mr_log_field fields[] = {{.name = "checkpoint", .number = 7},
                                          {.name = "directory", .text = "/var/lib/\"x\""}};
    struct mr_log_record r = record_of(MR_LOG_ERROR, "one\ntwo\\ \"three\"");
    mr_log_record_fields(&r, fields, 2);
    json_t *o = log_line_parse(&r);
    assert_string_equal(text_of(o, "ts"), "2023-11-14T22:13:20.007Z");
    assert_string_equal(text_of(o, "level"), "error");
    assert_string_equal(text_of(o, "node"), "node-1");
    assert_string_equal(text_of(o, "component"), "control");
    assert_string_equal(text_of(o, "event"), "saved");
    assert_string_equal(text_of(o, "msg"), "one\ntwo\\ \"three\"");
    assert_int_equal(json_integer_value(json_object_get(o, "checkpoint")), 7);
    assert_string_equal(text_of(o, "directory"), "/var/lib/\"x\"");
    assert_int_equal(json_object_size(o), 8);
    json_decref(o);
}

/* What is no UTF-8 becomes U+FFFD; what is stays. */
TEST(json_takes_any_bytes)
{
    static const struct {
        const char *in, *out;
    } cases[] = {{"\xff", "\xef\xbf\xbd"},
                 {"\xc3\xa9", "\xc3\xa9"},
                 {"\xc3", "\xef\xbf\xbd"},
                 {"\xc0\xaf", "\xef\xbf\xbd\xef\xbf\xbd"},                 /* too long a form */
                 {"\xe0\x80\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"}, /* likewise */
                 {"\xe0\xa0\x80", "\xe0\xa0\x80"},
                 {"\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"}, /* half of a pair */
                 {"\xed\x9f\xbf", "\xed\x9f\xbf"},
                 {"\xef\xbf\xbf", "\xef\xbf\xbf"},
                 {"\xf0\x9f\x98\x80", "\xf0\x9f\x98\x80"},
                 {"\xf0\x80\x80\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
                 {"\xf4\x8f\xbf\xbf", "\xf4\x8f\xbf\xbf"},
                 {"\xf4\x90\x80\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
                 {"\xe2\x82", "\xef\xbf\xbd\xef\xbf\xbd"},
                 {"\x01\x1f\x7f\t\r", "\x01\x1f\x7f\t\r"}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct mr_log_record r = record_of(MR_LOG_INFO, cases[i].in);
        json_t *o = log_line_parse(&r);
        assert_string_equal(text_of(o, "msg"), cases[i].out);
        json_decref(o);
    }
}

TEST(random_bytes_are_json)
{
    unsigned short seed[3] = {1, 2, 3};
    for (int i = 0; i < 2000; i++) {
        struct mr_log_record r = record_of(MR_LOG_INFO, "");
        char text[64];
        for (size_t b = 0; b + 1 < sizeof(text); b++)
            text[b] = r.message[b] = (char)(1 + nrand48(seed) % 255);
        text[sizeof(text) - 1] = r.message[sizeof(text) - 1] = '\0';
        mr_log_record_fields(&r, &(struct mr_log_field){.name = "odd", .text = text}, 1);
        json_decref(log_line_parse(&r));
    }
}

/* The longest of everything, of bytes that take most room. */
TEST(every_line_fits)
{
    static struct mr_log_record r;
    struct mr_log_field fields[MR_LOG_FIELDS_MAX + 1];
    static char much[4096];
    memset(much, 1, sizeof(much) - 1);
    r = record_of(MR_LOG_WARNING, much);
    for (size_t i = 0; i <= MR_LOG_FIELDS_MAX; i++)
        fields[i] = (struct mr_log_field){.name = "abcdefgh" + (i % 8), .text = much};
    mr_log_record_fields(&r, fields, MR_LOG_FIELDS_MAX + 1);
    assert_int_equal(r.field_count, MR_LOG_FIELDS_MAX);
    json_t *o = log_line_parse(&r);
    assert_int_equal(strlen(text_of(o, "msg")), MR_LOG_MESSAGE_BYTES - 1);
    assert_int_equal(strlen(text_of(o, "abcdefgh")), MR_LOG_TEXTS_BYTES - 1);
    assert_string_equal(text_of(o, "h"), ""); /* no room was left */
    json_decref(o);
}
