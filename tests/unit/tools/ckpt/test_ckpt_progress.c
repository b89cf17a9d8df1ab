/* The line that says how far a command has come. */
#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "dataplane/wire/base/bytes.h"
#include "tools/ckpt/ckpt_progress.h"
#include "tests/test.h"

#define S UINT64_C(1000000)

static void ckpt_progress_check(const struct ckpt_progress *p, const char *expected)
{
    char line[CKPT_PROGRESS_BYTES];
    ckpt_progress_text(p, line);
    assert_string_equal(line, expected);
}

TEST(it_says_how_fast_and_how_long_yet)
{
    struct ckpt_progress p = {.what = "copy", .total_bytes = 4000 * MR_MIB, .noted_us = 5 * S};
    ckpt_progress_check(&p, "copy: 0 B of 3.9 GiB, 0 %");
    p.done_bytes = 200 * MR_MIB;
    ckpt_progress_note(&p, 6 * S);
    ckpt_progress_check(&p, "copy: 200.0 MiB of 3.9 GiB, 5 %, 200.0 MiB/s, 19 s left");
    p.done_bytes = 3900 * MR_MIB;
    ckpt_progress_check(&p, "copy: 3.8 GiB of 3.9 GiB, 98 %, 200.0 MiB/s, 0 s left");
    p.bytes_per_s = (double)MR_MIB / 10;
    ckpt_progress_check(&p, "copy: 3.8 GiB of 3.9 GiB, 98 %, 102.4 KiB/s, 17 min left");
    p.bytes_per_s = (double)MR_MIB / 200;
    ckpt_progress_check(&p, "copy: 3.8 GiB of 3.9 GiB, 98 %, 5.1 KiB/s, 5.6 h left");
    p.bytes_per_s = 1;
    p.total_bytes = UINT64_MAX;
    ckpt_progress_check(&p, "copy: 3.8 GiB of 16.0 EiB, 0 %, 1 B/s, years left");
}

/* Half a minute at another rate, and that is the rate; one moment is not. */
TEST(the_last_seconds_count_most)
{
    struct ckpt_progress p = {.what = "copy", .total_bytes = 4000 * MR_MIB};
    p.done_bytes = 100 * MR_MIB;
    ckpt_progress_note(&p, S);
    ckpt_progress_note(&p, S + S / 5); /* nothing came */
    assert_true(p.bytes_per_s > 90 * MR_MIB && p.bytes_per_s < 100 * MR_MIB);
    ckpt_progress_note(&p, S + S / 5); /* at the same time */
    assert_true(p.bytes_per_s > 90 * MR_MIB);
    for (uint64_t i = 1; i <= 30; i++) {
        p.done_bytes += 10 * MR_MIB;
        ckpt_progress_note(&p, 2 * S + i * S);
    }
    assert_true(p.bytes_per_s > 9 * MR_MIB && p.bytes_per_s < 11 * MR_MIB);
}

/* Runs with `fd` as standard error, which is put back. */
static void begin_on(struct ckpt_progress *p, int fd, int *saved)
{
    *saved = dup(STDERR_FILENO);
    assert_true(*saved >= 0 && dup2(fd, STDERR_FILENO) == STDERR_FILENO);
    ckpt_progress_begin(p, "verify", 100 * MR_MIB);
}

TEST(a_terminal_shows_it_and_a_pipe_does_not)
{
    struct ckpt_progress p;
    int ours, terminal, saved, ends[2];
    char said[256] = "";
    assert_int_equal(openpty(&ours, &terminal, NULL, NULL, NULL), 0);
    begin_on(&p, terminal, &saved);
    struct pollfd ready = {.fd = ours, .events = POLLIN};
    while (poll(&ready, 1, 1) == 0)
        ckpt_progress_add(&p, 1024);
    ckpt_progress_end(&p);
    assert_int_equal(dup2(saved, STDERR_FILENO), STDERR_FILENO);
    assert_true(read(ours, said, sizeof(said) - 1) > 0);
    assert_non_null(strstr(said, "verify: "));
    assert_non_null(strstr(said, "iB/s, "));
    assert_non_null(strstr(said, " left"));
    (void)close(saved);
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    begin_on(&p, ends[1], &saved);
    p.noted_us = 0; /* long ago */
    ckpt_progress_add(&p, 1024);
    ckpt_progress_end(&p);
    assert_int_equal(dup2(saved, STDERR_FILENO), STDERR_FILENO);
    ready.fd = ends[0];
    assert_int_equal(poll(&ready, 1, 0), 0);
    for (int *fd = (int[]){ours, terminal, saved, ends[0], ends[1], -1}; *fd >= 0; fd++)
        (void)close(*fd);
}
