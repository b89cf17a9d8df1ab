#include "tools/live.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "dataplane/wire/base/cli.h"
#include "dataplane/wire/base/clock.h"
#include "millrace.h"

#define CLEAR_SCREEN "\033[H\033[J"

static atomic_bool stop_requested; /* any thread may get the signal */

static void on_signal(int number)
{
    atomic_store(&stop_requested, true);
}

void tool_live_begin(void)
{
    const struct sigaction action = {.sa_handler = on_signal};
    (void)sigaction(SIGINT, &action, NULL);
    (void)sigaction(SIGTERM, &action, NULL);
}

bool tool_live_ended(void)
{
    return atomic_load(&stop_requested);
}

void tool_live_wait_until(uint64_t time_us)
{
    for (uint64_t now = mr_clock_us(); now < time_us && !atomic_load(&stop_requested); now = mr_clock_us()) {
        const struct timespec pause = mr_span_us(time_us - now);
        (void)nanosleep(&pause, NULL);
    }
}

void tool_live_draw(const char *text)
{
    struct winsize size = {0};
    const bool is_known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 && size.ws_row > 1;
    uint32_t lines = 0;
    (void)fputs(CLEAR_SCREEN, stdout);
    for (const char *at = text, *end; (end = strchr(at, '\n')) != NULL; at = end + 1, lines++) {
        const size_t bytes = (size_t)(end - at);
        if (is_known && lines + 1 == size.ws_row)
            return;
        (void)printf("%.*s\n", (int)(is_known && bytes > size.ws_col ? size.ws_col : bytes), at);
    }
}

void tool_live_away(const char *command, bool is_terminal, bool *is_away)
{
    if (is_terminal)
        (void)printf(CLEAR_SCREEN);
    (void)fflush(stdout);
    if (!*is_away)
        (void)cli_fail(command, "%s; waiting for it to come back", mr_last_error());
    *is_away = true;
}

void tool_live_back(const char *command, bool *is_away)
{
    if (*is_away)
        (void)cli_fail(command, "the server is back");
    *is_away = false;
}
