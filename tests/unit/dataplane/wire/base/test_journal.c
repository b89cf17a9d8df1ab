/* Which fields a line has in systemd's journal, and when lines go there. */
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include "dataplane/wire/base/journal.h"
#include "tests/test.h"

static const struct mr_log_identity who = {.program = "millraced", .node = "node-1"};

static void journal_make(enum mr_log_level level, struct mr_journal_entry *out)
{
    static struct mr_log_site site = {.event = "saved", .file = "../ps/control/control.c", .line = 12};
    const struct mr_log_field fields[] = {{.name = "checkpoint", .number = 7},
                                          {.name = "directory", .text = "/a b\nc"}};
    struct mr_log_record r = {.site = &site, .message = "one\ntwo"};
    site.level = level;
    mr_log_record_fields(&r, fields, 2);
    mr_journal_entry_make(&r, &who, out);
}

TEST(an_entry_has_every_field)
{
    static const char *const expected[] = {"MESSAGE=one\ntwo",
                                           "PRIORITY=6",
                                           "SYSLOG_IDENTIFIER=millraced",
                                           "CODE_FILE=../ps/control/control.c",
                                           "CODE_LINE=12",
                                           "MILLRACE_NODE=node-1",
                                           "MILLRACE_COMPONENT=control",
                                           "MILLRACE_EVENT=saved",
                                           "MILLRACE_CHECKPOINT=7",
                                           "MILLRACE_DIRECTORY=/a b\\x0ac"};
    static struct mr_journal_entry e;
    journal_make(MR_LOG_INFO, &e);
    assert_int_equal(e.count, sizeof(expected) / sizeof(*expected));
    for (size_t i = 0; i < e.count; i++) {
        assert_int_equal(e.lengths[i], strlen(expected[i]));
        assert_memory_equal(e.fields[i], expected[i], e.lengths[i]);
    }
}

TEST(levels_are_priorities)
{
    static const char *const priorities[] = {"PRIORITY=3", "PRIORITY=4", "PRIORITY=6", "PRIORITY=7"};
    static struct mr_journal_entry e;
    for (int level = MR_LOG_ERROR; level <= MR_LOG_DEBUG; level++) {
        journal_make((enum mr_log_level)level, &e);
        assert_memory_equal(e.fields[1], priorities[level], e.lengths[1]);
    }
}

TEST(all_of_the_longest_fit)
{
    static struct mr_log_site site = {.event = "saved", .file = "ps/control/control.c", .line = 1};
    static struct mr_log_record r = {.site = &site};
    static char much[2048];
    struct mr_log_field fields[MR_LOG_FIELDS_MAX];
    static struct mr_journal_entry e;
    memset(much, 'x', sizeof(much) - 1);
    memset(r.message, 'x', sizeof(r.message) - 1);
    for (size_t i = 0; i < MR_LOG_FIELDS_MAX; i++)
        fields[i] = (struct mr_log_field){.name = "a_name", .text = much};
    mr_log_record_fields(&r, fields, MR_LOG_FIELDS_MAX);
    mr_journal_entry_make(&r, &who, &e);
    assert_int_equal(e.count, MR_JOURNAL_FIELDS_MAX);
    assert_int_equal(e.lengths[8], strlen("MILLRACE_A_NAME=") + MR_LOG_TEXTS_BYTES - 1);
}

/* systemd names the socket by its device and inode; a shell that started the program may have put a file
 * in its place. */
TEST(the_stream_is_compared)
{
    int pair[2], other[2];
    char stream[64], longer[80];
    struct stat at;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, other), 0);
    assert_int_equal(fstat(pair[0], &at), 0);
    snprintf(stream, sizeof(stream), "%ju:%ju", (uintmax_t)at.st_dev, (uintmax_t)at.st_ino);
    snprintf(longer, sizeof(longer), "%s0", stream);
    assert_true(mr_journal_has(pair[0], stream));
    assert_false(mr_journal_has(other[0], stream));
    assert_false(mr_journal_has(pair[0], longer));
    assert_false(mr_journal_has(pair[0], NULL));
    assert_false(mr_journal_has(pair[0], ""));
    assert_false(mr_journal_has(pair[0], "12"));
    assert_false(mr_journal_has(-1, stream));
    for (int i = 0; i < 2; i++) {
        close(pair[i]);
        close(other[i]);
    }
}
