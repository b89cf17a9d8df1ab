#include "tools/ckpt/ckpt_progress.h"

#include <stdio.h>
#include <unistd.h>
#include "dataplane/wire/base/clock.h"

#define SHOW_EVERY_US 200000u

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
                                .shown_us = mr_clock_us(),
                                .is_on = isatty(STDERR_FILENO) == 1};
}

void ckpt_progress_add(struct ckpt_progress *p, uint64_t bytes)
{
    if (!p)
        return;
    p->done_bytes += bytes;
    if (p->done_bytes > p->total_bytes)
        p->total_bytes = p->done_bytes;
    if (!p->is_on || mr_clock_us() - p->shown_us < SHOW_EVERY_US)
        return;
    char done[16], total[16];
    ckpt_size_text(p->done_bytes, done);
    ckpt_size_text(p->total_bytes, total);
    (void)fprintf(stderr, "\r%s: %s of %s, %.0f %%\033[K", p->what, done, total,
                  100 * (double)p->done_bytes / (double)p->total_bytes);
    (void)fflush(stderr);
    p->is_shown = true;
    p->shown_us = mr_clock_us();
}

void ckpt_progress_end(struct ckpt_progress *p)
{
    if (p->is_shown)
        (void)fputs("\r\033[K", stderr);
    p->is_shown = false;
}
