#include "trainer_client/hub/hub.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>
#include "trainer_client/socket/socket_server.h"

bool hub_init(struct hub *hub, const struct hub_config *config)
{
    *hub = (struct hub){.config = *config, .started_us = mr_clock_us(), .incarnation = (uint32_t)time(NULL)};
    pthread_condattr_t attributes;
    bool ok = getrandom(&hub->start_id, sizeof(hub->start_id), 0) == sizeof(hub->start_id) &&
              pthread_condattr_init(&attributes) == 0 &&
              pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC) == 0 &&
              pthread_cond_init(&hub->changed, &attributes) == 0 && hub_parts_make(&hub->parts, 1);
    pthread_condattr_destroy(&attributes);
    return ok && pthread_mutex_init(&hub->lock, NULL) == 0;
}

void hub_free(struct hub *hub)
{
    for (uint32_t i = 0; i < HUB_PREFETCH_MAX; i++)
        hub_batch_free(&hub->feeds[i].batch);
    hub_parts_free(&hub->parts);
    pthread_cond_destroy(&hub->changed);
    pthread_mutex_destroy(&hub->lock);
}

void hub_nudge(struct hub *hub)
{
    hub->nudged = true;
    pthread_cond_signal(&hub->changed);
}

void hub_drop_void_feeds(struct hub *hub)
{
    for (uint32_t i = 0; i < HUB_PREFETCH_MAX; i++) {
        struct hub_feed *feed = &hub->feeds[i];
        if (!feed->ready)
            continue;
        const struct hub_plan *plan = &hub->parts.all[feed->part].plan;
        if (feed->generation != plan->generation ||
            hub_plan_state(plan, feed->batch.sequence) != HUB_BATCH_READY)
            feed->used = feed->ready = false;
    }
}
