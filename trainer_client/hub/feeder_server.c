#include "trainer_client/hub/feeder_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "trainer_client/socket/clock.h"

#define CONNECT_MS         1000u
#define RECORD_INTERVAL_US 200000u /* when nothing waits for it */
#define RECORD_CLAIMED_US  5000u   /* when claims wait for it */

static void end_hub(struct feeder *f, enum mr_status status, const char *error)
{
    pthread_mutex_lock(&f->hub->lock);
    f->hub->fatal = status;
    snprintf(f->hub->error, sizeof(f->hub->error), "%s", error);
    pthread_mutex_unlock(&f->hub->lock);
    atomic_store(&f->hub->stop, true);
}

bool hub_feeder_connect(struct feeder *f)
{
    char error[HUB_ERROR_BYTES];
    if (f->client != NULL)
        return true;
    const struct mr_client_options options = {.server = f->hub->config.server,
                                              .key_file = f->hub->config.key_file,
                                              .connect_ms = CONNECT_MS,
                                              .deadline_ms = HUB_CALL_DEADLINE_MS};
    enum mr_status status = mr_client_create(&options, &f->client, error, sizeof(error));
    if (status != MR_OK) {
        f->client = NULL;
        if (status == MR_INVALID_ARGUMENT) { /* it will not become right by waiting */
            end_hub(f, status, error);
            return false;
        }
        if (!f->said_away)
            hub_log("waiting for the parameter server: %s", error);
        hub_feeder_wait_for(f, "the hub waits for its parameter server: %s", error);
        f->said_away = true;
        f->retry_us = mrc_now_us() + HUB_SERVER_RETRY_US;
        return false;
    }
    hub_feeder_wait_for(f, "%s", "");
    f->said_away = false;
    f->server_start = mr_client_start_id(f->client);
    return true;
}

void hub_feeder_notice_restart(struct feeder *f)
{
    struct hub *hub = f->hub;
    uint64_t start = mr_client_start_id(f->client);
    if (start == f->server_start)
        return;
    hub_log("the parameter server restarted: feeding again what it has not applied");
    f->server_start = start;
    f->table = 0;
    f->next_record_us = 0;
    pthread_mutex_lock(&hub->lock);
    hub_plan_server_restarted(&hub->plan);
    hub_drop_void_feeds(hub);
    pthread_mutex_unlock(&hub->lock);
}

void hub_feeder_server_answered(struct feeder *f, enum mr_status status)
{
    bool away = status == MR_UNREACHABLE || status == MR_DEADLINE_EXCEEDED || status == MR_BUSY;
    if (away && !f->said_away) {
        hub_log("waiting for the parameter server: %s", mr_last_error());
        hub_feeder_wait_for(f, "the hub waits for its parameter server: %s", mr_last_error());
    } else if (!away && f->said_away) {
        hub_log("the parameter server is back");
        hub_feeder_wait_for(f, "%s", "");
    }
    f->said_away = away;
    pthread_mutex_lock(&f->hub->lock);
    f->hub->server_away = away;
    pthread_mutex_unlock(&f->hub->lock);
}

bool hub_feeder_find_table(struct feeder *f)
{
    struct mr_feature_info *infos;
    uint32_t count;
    if (f->table != 0)
        return true;
    enum mr_status status = mr_list(f->client, NULL, &infos, &count);
    hub_feeder_server_answered(f, status);
    if (status == MR_OK) {
        for (uint32_t i = 0; i < count; i++)
            if (infos[i].feature.kind == MR_TABLE &&
                strncmp(infos[i].feature.name, f->request.table, MR_NAME_BYTES) == 0)
                f->table = infos[i].id;
        free(infos);
    }
    if (status == MR_OK && f->table == 0) {
        hub_feeder_wait_for(f,
                            "the parameter server %s has no table '%s': the hub waits for it to be created; "
                            "if its name is wrong, give the plan the right one",
                            f->hub->config.server, f->request.table);
    } else if (status == MR_OK) {
        hub_feeder_wait_for(f, "%s", "");
    }
    if (status == MR_OK && f->table == 0 && !f->said_no_table)
        hub_log("waiting for table '%s' to be created on the parameter server", f->request.table);
    f->said_no_table = status == MR_OK ? f->table == 0 : f->said_no_table;
    return f->table != 0;
}

void hub_feeder_ask_record(struct feeder *f)
{
    struct hub *hub = f->hub;
    uint64_t watermark = 0, *bitmap = NULL;
    uint32_t words = 0;
    pthread_mutex_lock(&hub->lock);
    hub_plan_record_asked(&hub->plan);
    uint32_t generation = hub->plan.generation;
    pthread_mutex_unlock(&hub->lock);
    uint64_t plan[MR_PLAN_WORDS];
    const struct mr_options options = hub_feeder_options(f, plan);
    enum mr_status status = mr_batch_state(f->client, &options, f->stream, &watermark, &bitmap, &words);
    hub_feeder_server_answered(f, status);
    hub_feeder_check_stream(f, status);
    uint64_t now_us = mrc_now_us();
    if (status != MR_OK) {
        f->retry_us = now_us + HUB_SERVER_RETRY_US;
        return;
    }
    hub_feeder_notice_restart(f);
    bool behind = false;
    pthread_mutex_lock(&hub->lock);
    /* An answer from before a restart says nothing about the restarted server. */
    if (generation == hub->plan.generation) {
        behind = hub_plan_record(&hub->plan, watermark, bitmap, words);
        hub_drop_void_feeds(hub);
        f->next_record_us = now_us + RECORD_INTERVAL_US;
        if (hub_plan_at_end(&hub->plan))
            hub->ended_plan = f->plan_number;
    }
    pthread_mutex_unlock(&hub->lock);
    free(bitmap);
    if (behind) {
        f->table = 0;
        hub_log("the parameter server holds an earlier state: continuing after it");
    }
}

bool hub_feeder_record_due(const struct feeder *f, uint64_t now_us)
{
    const struct hub_plan *plan = &f->hub->plan;
    uint64_t early_us = plan->claimed > 0 ? RECORD_INTERVAL_US - RECORD_CLAIMED_US : 0;
    return !plan->read_only && now_us + early_us >= f->next_record_us;
}
