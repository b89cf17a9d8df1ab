#include "trainer_client/examples/fm_client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define CALL_DEADLINE_MS 5000u
#define CONNECT_MS       1000u
#define REPLAY_BYTES     (256u << 20) /* some thousand pushes */
#define PAUSE_US         20000u
#define START_MS         600000u /* the hub may read a large file through first */

uint64_t fm_now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

void fm_sleep_us(uint64_t us)
{
    struct timespec t = {.tv_sec = (time_t)(us / 1000000), .tv_nsec = (long)(us % 1000000) * 1000};
    nanosleep(&t, NULL);
}

bool fm_is_passing(enum mr_status status)
{
    switch (status) {
    case MR_DEADLINE_EXCEEDED:
    case MR_UNKNOWN_OUTCOME:
    case MR_UNREACHABLE:
    case MR_BUSY:
    case MR_UNKNOWN_BATCH:
    case MR_BATCH_EXPIRED:
    case MR_ALREADY_LEARNT:
    case MR_UNKNOWN_TABLE:
    case MR_UNKNOWN_VARIABLE:
    case MR_CHECKPOINT_RUNNING:
    case MR_NOT_STARTED:
    case MR_NOT_READY:
    case MR_ALREADY_STARTED: /* another plan comes first */
    case MR_SHUTTING_DOWN:
        return true;
    default:
        return false;
    }
}

void fm_made_progress(struct fm_client *c)
{
    uint64_t now_us = fm_now_us();
    if (now_us - c->progress_us > FM_AWAY_US)
        c->away_us += now_us - c->progress_us;
    c->progress_us = now_us;
}

bool fm_may_go_on(struct fm_client *c, enum mr_status status, const char *what)
{
    uint64_t silent_us = fm_now_us() - c->progress_us;
    const char *where = mr_last_error()[0] != '\0' ? mr_last_error() : mr_status_text(status);
    if (!fm_is_passing(status)) {
        fprintf(stderr, "fm: %s: %s\n", what, where);
        return false;
    }
    if (silent_us > (uint64_t)c->options->give_up_s * 1000000) {
        fprintf(stderr, "fm: no progress for %u s, giving up: %s: %s\n", c->options->give_up_s, what, where);
        return false;
    }
    fm_sleep_us(PAUSE_US);
    return true;
}

static bool connect_to(struct fm_client *c, const char *address, bool replay, struct mr_client **client)
{
    const struct mr_client_options options = {.server = address,
                                              .key_file = c->options->key_file,
                                              .connect_ms = CONNECT_MS,
                                              .deadline_ms = CALL_DEADLINE_MS,
                                              .replay = replay,
                                              .replay_bytes = REPLAY_BYTES};
    char error[400];
    for (;;) {
        enum mr_status status = mr_client_create(&options, client, error, sizeof(error));
        if (status == MR_OK)
            return true;
        bool late = fm_now_us() - c->progress_us > (uint64_t)c->options->give_up_s * 1000000;
        if (status != MR_UNREACHABLE || late) {
            fprintf(stderr, "fm: %s\n", error);
            *client = NULL;
            return false;
        }
    }
}

bool fm_connect_hub(struct fm_client *c, const struct fm_options *options)
{
    *c = (struct fm_client){.options = options, .progress_us = fm_now_us()};
    if (!connect_to(c, options->hub, false, &c->hub))
        return false;
    c->progress_us = fm_now_us();
    return true;
}

bool fm_connect(struct fm_client *c, const struct fm_options *options)
{
    if (!fm_connect_hub(c, options))
        return false;
    if (!connect_to(c, options->server, options->replay, &c->server)) {
        mr_client_destroy(c->hub);
        return false;
    }
    c->progress_us = fm_now_us();
    return true;
}

void fm_disconnect(struct fm_client *c)
{
    mr_client_destroy(c->hub);
    mr_client_destroy(c->server);
}

bool fm_start(struct fm_client *c, uint32_t part)
{
    struct mr_sample_plan plan = c->options->plan;
    const struct mr_options options = {.deadline_ms = START_MS};
    plan.part = part;
    plan.epochs = part == MR_PART_HELD_OUT ? 1 : plan.epochs;
    enum mr_status status;
    while ((status = mr_start_sample(c->hub, &options, &plan, &c->info)) != MR_OK)
        if (!fm_may_go_on(c, status, "StartSample"))
            return false;
    fm_made_progress(c);
    return true;
}
