/* The log as a whole: levels, bursts of places, threads that wait for their lines and one that does not,
 * and a reader that takes none. Standard error is a pipe to the test. */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "dataplane/wire/base/clock.h"
#include "dataplane/wire/base/log.h"
#include "dataplane/wire/base/log_queue.h"
#include "tests/test.h"
#include "tests/wait.h"

#define THREADS 4u
#define LINES   50u
#define MANY    1000u

struct captured {
    int pipe[2], before;
    char text[1 << 20];
    size_t bytes;
};

static struct captured captured;

static void configure(enum mr_log_level level, uint32_t rate_per_s)
{
    const struct mr_log_options options = {.program = "test",
                                           .node = "n",
                                           .level = level,
                                           .format = MR_LOG_LOGFMT,
                                           .journal = MR_LOG_JOURNAL_NO,
                                           .rate_per_s = rate_per_s};
    assert_true(mr_log_configure(&options, NULL));
}

static int set_up(void **state)
{
    captured.bytes = 0;
    captured.before = dup(STDERR_FILENO);
    if (pipe2(captured.pipe, O_CLOEXEC) != 0 || dup2(captured.pipe[1], STDERR_FILENO) < 0)
        return -1;
    configure(MR_LOG_INFO, 0);
    return 0;
}

static int tear_down(void **state)
{
    dup2(captured.before, STDERR_FILENO);
    close(captured.before);
    close(captured.pipe[0]);
    close(captured.pipe[1]);
    return 0;
}

/* Takes what is there, and waits for the first of it so long. */
static void log_take(int wait_ms)
{
    struct pollfd fd = {.fd = captured.pipe[0], .events = POLLIN};
    while (poll(&fd, 1, wait_ms) > 0 && captured.bytes + 1 < sizeof(captured.text)) {
        const ssize_t got = read(captured.pipe[0], captured.text + captured.bytes,
                                 sizeof(captured.text) - 1 - captured.bytes);
        assert_true(got > 0);
        captured.bytes += (size_t)got;
        wait_ms = 0;
    }
    captured.text[captured.bytes] = '\0';
}

static uint32_t log_count(const char *what)
{
    uint32_t found = 0;
    for (const char *at = strstr(captured.text, what); at != NULL; at = strstr(at + 1, what))
        found++;
    return found;
}

/* Until so many lines have it. */
static void wait_for(const char *what, uint32_t times)
{
    if (!WAIT_WITHIN(WAIT_LIMIT_S, log_take(log_count(what) < times ? 10 : 0), log_count(what) >= times))
        fail_msg("%u times \"%s\", not %u, in:\n%s", log_count(what), what, times, captured.text);
}

TEST(levels_are_thresholds, set_up, tear_down)
{
    for (int level = MR_LOG_ERROR; level <= MR_LOG_DEBUG; level++) {
        captured.bytes = 0;
        configure((enum mr_log_level)level, 0);
        mr_log_error("e", "of level %d", level);
        mr_log_warning("w", "of level %d", level);
        mr_log_info("i", "of level %d", level);
        mr_log_debug("d", "of level %d", level);
        log_take(0);
        assert_int_equal(log_count("event="), level + 1);
        assert_int_equal(log_count("event=e "), 1);
        assert_int_equal(log_count("event=d "), level == MR_LOG_DEBUG);
    }
}

/* Neither in its text nor in a field. */
TEST(a_line_gives_a_terminal_no_commands, set_up, tear_down)
{
    configure(MR_LOG_INFO, 0);
    captured.bytes = 0;
    mr_log_with(MR_LOG_INFO,
                MR_LOG_FIELDS({"who", .text = "\xc2\x9b"
                                              "1m"}),
                "said", "a store says \033[2J\xff");
    log_take(0);
    assert_int_equal(log_count("\033"), 0);
    assert_int_equal(log_count("\xc2"), 0);
    assert_int_equal(log_count("\xff"), 0);
    assert_int_equal(log_count("x1b[2J"), 1);
    assert_int_equal(log_count("xc2"), 1);
}

TEST(a_line_is_written_when_the_call_returns, set_up, tear_down)
{
    assert_true(mr_log_start());
    for (uint32_t i = 0; i < LINES; i++) {
        mr_log_with(MR_LOG_INFO, MR_LOG_FIELDS({"i", .number = i}), "numbered", "line %u", i);
        log_take(0);
        assert_int_equal(log_count("event=numbered"), i + 1);
    }
    mr_log_stop();
}

static void *log_lines(void *arg)
{
    const uint32_t who = *(const uint32_t *)arg;
    for (uint32_t i = 0; i < LINES; i++)
        mr_log_with(MR_LOG_INFO, MR_LOG_FIELDS({"who", .number = who}, {"i", .number = i}), "threads", "a");
    return NULL;
}

struct heard {
    uint32_t count;
    char event[64], message[64];
};

static void hear(void *arg, const char *event, const char *message)
{
    struct heard *heard = arg;
    heard->count++;
    snprintf(heard->event, sizeof(heard->event), "%s", event);
    snprintf(heard->message, sizeof(heard->message), "%s", message);
}

/* Also to lines that are not written; debug is for people who debug. */
TEST(a_listener_is_told_of_lines_from_info_on, set_up, tear_down)
{
    struct heard heard = {0};
    configure(MR_LOG_ERROR, 0);
    mr_log_listen(hear, &heard);
    mr_log_info("saved", "checkpoint %u", 7);
    assert_int_equal(heard.count, 1);
    assert_string_equal(heard.event, "saved");
    assert_string_equal(heard.message, "checkpoint 7");
    mr_log_debug("detail", "below info");
    mr_log_error("failed", "this is written, too");
    assert_int_equal(heard.count, 2);
    mr_log_listen(NULL, NULL);
    mr_log_error("failed", "nobody listens");
    assert_int_equal(heard.count, 2);
    log_take(0);
    assert_null(strstr(captured.text, "checkpoint 7"));
    assert_non_null(strstr(captured.text, "this is written, too"));
}

TEST(lines_of_threads_do_not_mix, set_up, tear_down)
{
    pthread_t threads[THREADS];
    uint32_t numbers[THREADS];
    assert_true(mr_log_start());
    for (uint32_t t = 0; t < THREADS; t++) {
        numbers[t] = t;
        assert_int_equal(pthread_create(&threads[t], NULL, log_lines, &numbers[t]), 0);
    }
    wait_for("\n", THREADS * LINES);
    for (uint32_t t = 0; t < THREADS; t++)
        pthread_join(threads[t], NULL);
    mr_log_stop();
    uint32_t next[THREADS] = {0};
    for (const char *line = strtok(captured.text, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        uint32_t who, i;
        const char *fields = strstr(line, "msg=\"a\" who=");
        assert_true(fields != NULL && sscanf(fields, "msg=\"a\" who=%u i=%u", &who, &i) == 2);
        assert_int_equal(i, next[who]++);
    }
}

static void one_place(uint32_t times)
{
    for (uint32_t i = 0; i < times; i++)
        mr_log_error("burst", "again");
}

/* What is beyond a burst is counted and told; other places are not affected. */
TEST(bursts_are_told, set_up, tear_down)
{
    configure(MR_LOG_INFO, 10);
    assert_true(mr_log_start());
    one_place(MANY);
    for (uint32_t i = 0; i < 5; i++)
        mr_log_error("other", "once more");
    log_take(0);
    assert_true(log_count("msg=\"again\"") >= 10 && log_count("msg=\"again\"") < MANY / 2);
    assert_int_equal(log_count("event=other"), 5);
    wait_for("suppressed=", 1);
    const char *told = strstr(captured.text, "suppressed=");
    assert_int_equal(strtoul(told + strlen("suppressed="), NULL, 10) + log_count("msg=\"again\""), MANY);
    assert_non_null(strstr(captured.text, "more lines like the last one of test_log.c:"));
    mr_log_stop();
}

TEST(the_end_tells_what_was_suppressed, set_up, tear_down)
{
    configure(MR_LOG_INFO, 10);
    assert_true(mr_log_start());
    one_place(MANY);
    mr_log_stop();
    log_take(0);
    assert_int_equal(log_count("suppressed="), 1);
}

static void fill_pipe(void)
{
    const int flags = fcntl(captured.pipe[1], F_GETFL);
    static const char nothing[4096];
    assert_int_equal(fcntl(captured.pipe[1], F_SETFL, flags | O_NONBLOCK), 0);
    while (write(captured.pipe[1], nothing, sizeof(nothing)) > 0) {
    }
    assert_int_equal(fcntl(captured.pipe[1], F_SETFL, flags), 0);
}

/* Takes the zeros that fill the pipe, too. */
static void drain_pipe(void)
{
    log_take(0);
    size_t kept = 0;
    for (size_t i = 0; i < captured.bytes; i++)
        if (captured.text[i] != '\0')
            captured.text[kept++] = captured.text[i];
    captured.bytes = kept;
    captured.text[kept] = '\0';
}

/* As a data core does: more lines than the queue holds, and none is waited for. */
static void *never_wait(void *arg)
{
    uint64_t *us = arg;
    mr_log_never_wait();
    const uint64_t began_us = mr_clock_us();
    for (uint32_t i = 0; i < 4 * MR_LOG_QUEUE_RECORDS; i++)
        mr_log_info("core", "line");
    *us = mr_clock_us() - began_us;
    return NULL;
}

/* A thread waits a tenth of a second once, and not again while nothing is taken; what is lost is reported. */
TEST(nobody_reads, set_up, tear_down)
{
    pthread_t core;
    uint64_t us = UINT64_MAX;
    assert_true(mr_log_start());
    fill_pipe();
    mr_log_info("first", "waits a little");
    assert_int_equal(pthread_create(&core, NULL, never_wait, &us), 0);
    pthread_join(core, NULL); /* it comes to its end although nobody reads */
    for (uint32_t i = 0; i < LINES; i++)
        mr_log_info("others", "wait no more");
    WAIT_UNTIL(drain_pipe(), log_count("event=log_lost") > 0);
    assert_int_equal(log_count("event=first"), 1);
    const char *lost = strstr(captured.text, "lost=");
    assert_non_null(lost);
    assert_int_equal(log_count("event=first") + log_count("event=core") + log_count("event=others") +
                         strtoul(lost + strlen("lost="), NULL, 10),
                     1 + 4 * MR_LOG_QUEUE_RECORDS + LINES);
    mr_log_stop();
}

TEST(a_journal_that_is_not_there_is_refused, set_up, tear_down)
{
    const struct mr_log_options options = {
        .program = "test", .node = "", .level = MR_LOG_ERROR, .journal = MR_LOG_JOURNAL_YES};
    const char *why = NULL;
    if (access("/run/systemd/journal/socket", F_OK) == 0)
        skip();
    assert_false(mr_log_configure(&options, &why));
    assert_non_null(why);
    mr_log_info("still", "as before");
    log_take(0);
    assert_int_equal(log_count("level=info"), 1);
}
