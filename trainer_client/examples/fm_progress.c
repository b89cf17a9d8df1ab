#include "trainer_client/examples/fm_progress.h"

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#define TERMINAL_INTERVAL_US 250000u
#define LOG_INTERVAL_US      1000000u
#define HEARTBEAT_MS         200u

void fm_progress_add(struct fm_progress *p, uint32_t samples, double loss)
{
    p->samples += samples;
    p->loss += loss;
}

static void ask_server(struct fm_client *c, double *busy_share, uint64_t *cached_batches)
{
    struct mr_core_state states[256];
    const struct mr_options options = {.deadline_ms = HEARTBEAT_MS, .priority = 7};
    uint32_t cores = mr_client_core_count(c->server);
    if (cores > sizeof(states) / sizeof(states[0]) || mr_heartbeat(c->server, &options, states) != MR_OK) {
        return;
    }
    *busy_share = 0;
    *cached_batches = 0;
    for (uint32_t i = 0; i < cores; i++) {
        *busy_share += states[i].busy_share / cores;
        /* Every core keeps its share of every batch. */
        *cached_batches =
            states[i].cached_batches > *cached_batches ? states[i].cached_batches : *cached_batches;
    }
}

void fm_progress_show(struct fm_progress *p, struct fm_client *c, uint64_t samples_total)
{
    bool terminal = isatty(STDERR_FILENO) != 0;
    uint64_t now_us = fm_now_us(), interval_us = terminal ? TERMINAL_INTERVAL_US : LOG_INTERVAL_US;
    if (p->shown_us == 0) {
        p->shown_us = now_us;
    }
    if (c->options->quiet || now_us - p->shown_us < interval_us) {
        return;
    }
    double busy_share = -1, seconds = (double)(now_us - p->shown_us) / 1e6;
    uint64_t cached = 0;
    char server[80] = "server away", loss[40] = "-";
    ask_server(c, &busy_share, &cached);
    if (busy_share >= 0) {
        snprintf(server, sizeof(server), "server busy %.0f %%, %" PRIu64 " cached batches", busy_share * 100,
                 cached);
    }
    if (p->samples > 0) {
        snprintf(loss, sizeof(loss), "%.4f", p->loss / (double)p->samples);
    }
    fprintf(stderr, "%strain: %9" PRIu64 " samples, %7.0f/s, log loss %s, %s%s", terminal ? "\r\033[K" : "",
            samples_total, (double)p->samples / seconds, loss, server, terminal ? "" : "\n");
    fflush(stderr);
    *p = (struct fm_progress){.shown_us = now_us, .shown = terminal};
}

void fm_progress_end(struct fm_progress *p)
{
    if (p->shown) {
        fputc('\n', stderr);
    }
}
