#include "tools/ckpt/ckpt_progress.h"

#include <stdio.h>
#include <unistd.h>
#include "dataplane/wire/base/clock.h"

#define SHOW_EVERY_US 200000u
#define RATE_S        3.0 /* the rate follows a change within some such times */
#define LEFT_BYTES    24u

void ckpt_size_text(uint64_t bytes, char out[16])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    uint32_t unit = 0;
    double n = (double)bytes;
    for (; n >= 1000 && unit < 6; unit++)
        n /= 1024;
    (void)snprintf(out, 16, unit == 0 ? "%.0f %s" : "%.1f %s", n, units[unit]);
}

void ckpt_progress_begin(struct ckpt_progress *p, const char *what, uint64_t total_bytes)
{
    *p = (struct ckpt_progress){.what = what,
                                .total_bytes = total_bytes,
                                .noted_us = mr_clock_us(),
                                .is_on = isatty(STDERR_FILENO) == 1};
}

void ckpt_progress_note(struct ckpt_progress *p, uint64_t now_us)
{
    const double seconds = (double)(now_us - p->noted_us) / 1e6;
    if (seconds <= 0)
        return;
    const double now_per_s = (double)(p->done_bytes - p->noted_bytes) / seconds;
    const double weight = p->bytes_per_s > 0 ? seconds / (seconds + RATE_S) : 1;
    p->bytes_per_s += weight * (now_per_s - p->bytes_per_s);
    p->noted_us = now_us;
    p->noted_bytes = p->done_bytes;
}

static void time_text(double seconds, char out[LEFT_BYTES])
{
    const double minutes = seconds / 60;
    if (seconds < 99.5)
        (void)snprintf(out, LEFT_BYTES, "%.0f s", seconds);
    else if (minutes < 99.5)
        (void)snprintf(out, LEFT_BYTES, "%.0f min", minutes);
    else if (minutes < 1e6)
        (void)snprintf(out, LEFT_BYTES, "%.1f h", minutes / 60);
    else
        (void)snprintf(out, LEFT_BYTES, "years");
}

void ckpt_progress_text(const struct ckpt_progress *p, char out[CKPT_PROGRESS_BYTES])
{
    char done[16], total[16], rate[16], left[LEFT_BYTES];
    const double part = p->total_bytes > 0 ? (double)p->done_bytes / (double)p->total_bytes : 1;
    ckpt_size_text(p->done_bytes, done);
    ckpt_size_text(p->total_bytes, total);
    const int at =
        snprintf(out, CKPT_PROGRESS_BYTES, "%.16s: %s of %s, %.0f %%", p->what, done, total, 100 * part);
    if (p->bytes_per_s < 1)
        return;
    ckpt_size_text((uint64_t)p->bytes_per_s, rate);
    time_text((double)(p->total_bytes - p->done_bytes) / p->bytes_per_s, left);
    (void)snprintf(out + at, CKPT_PROGRESS_BYTES - (size_t)at, ", %s/s, %s left", rate, left);
}

void ckpt_progress_add(struct ckpt_progress *p, uint64_t bytes)
{
    if (!p)
        return;
    p->done_bytes += bytes;
    if (p->done_bytes > p->total_bytes)
        p->total_bytes = p->done_bytes;
    const uint64_t now_us = p->is_on ? mr_clock_us() : 0;
    if (!p->is_on || now_us - p->noted_us < SHOW_EVERY_US)
        return;
    char line[CKPT_PROGRESS_BYTES];
    ckpt_progress_note(p, now_us);
    ckpt_progress_text(p, line);
    (void)fprintf(stderr, "\r%s\033[K", line);
    (void)fflush(stderr);
    p->is_shown = true;
}

void ckpt_progress_end(struct ckpt_progress *p)
{
    if (p->is_shown)
        (void)fputs("\r\033[K", stderr);
    p->is_shown = false;
}
