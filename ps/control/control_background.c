/* Stores on other machines may stall. What the control thread asks of one, another thread asks, so that no
 * other call waits for that store, and no trainer that is held at a step. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "dataplane/wire/base/clock.h"
#include "ps/control/control_internal.h"
#include "ps/store/copier.h"
#include "ps/store/store_url.h"

#define LOOK_US 10000u /* at what may become due meanwhile */

/* ---- commands ---- */

static void defer(struct ps_control *c, struct ps_command *command)
{
    struct ps_command **at = &c->deferred;
    while (*at != NULL)
        at = &(*at)->next;
    command->next = NULL;
    *at = command;
}

struct ps_command *ps_control_take(struct ps_control *c)
{
    uintptr_t item;
    struct ps_command *command = c->deferred;
    if (command != NULL)
        c->deferred = command->next;
    else if (ps_ring_take(&c->commands, &item))
        command = (struct ps_command *)item;
    return command;
}

/* ---- while the thread waits ---- */

struct awaited {
    struct ps_control *control;
    void (*work)(void *arg);
    void *arg;
    _Atomic bool is_done;
};

static void *run_awaited(void *arg)
{
    struct awaited *a = arg;
    (void)pthread_setname_np(pthread_self(), "mr-store");
    a->work(a->arg);
    sem_t *wake = &a->control->wake;
    atomic_store(&a->is_done, true);
    sem_post(wake);
    return NULL;
}

/* What must not wait for the store. A node that stops waits for it only so long. */
static void attend(struct ps_control *c, const struct ps_place *place)
{
    uintptr_t item;
    if (atomic_load(&c->stop) && dp_now_us() > c->stop_by_us)
        atomic_store(place->stop, true);
    if (c->writer != NULL)
        ps_writer_watch(c->writer, dp_now_us());
    if (c->saves.cut.is_armed)
        (void)ps_cut_look(c);
    if (c->saves.cut.is_armed && ps_cut_is_late(c))
        ps_cut_disarm(c); /* whoever is held goes on; the save comes later */
    while (ps_ring_take(&c->commands, &item)) {
        struct ps_command *command = (struct ps_command *)item;
        if (command->op != MR_OP_LIST) {
            defer(c, command);
            continue;
        }
        ps_control_list(c, command);
        ps_command_send_back(c, command);
    }
}

void ps_control_await(struct ps_control *c, const struct ps_place *place, void (*work)(void *arg), void *arg)
{
    struct awaited a = {.control = c, .work = work, .arg = arg};
    pthread_t thread;
    if (place->stop == NULL || !c->is_in_thread || pthread_create(&thread, NULL, run_awaited, &a) != 0) {
        work(arg);
        return;
    }
    while (!atomic_load(&a.is_done)) {
        const struct timespec until = mr_clock_after_us(LOOK_US);
        (void)sem_clockwait(&c->wake, CLOCK_MONOTONIC, &until);
        ps_node_note_turn(c->node);
        attend(c, place);
    }
    pthread_join(thread, NULL);
    atomic_store(place->stop, false);
    sem_post(&c->wake); /* others have woken it meanwhile */
}

/* ---- while the thread loads ---- */

struct ps_store_watch {
    struct ps_control *control;
    const struct ps_place *place;
    pthread_t thread;
    sem_t ended;
    pthread_mutex_t lock; /* of what follows */
    uint64_t loaded, moved_us;
    bool gives_up, gave_up;
};

static void look_at_load(struct ps_store_watch *w)
{
    struct ps_control *c = w->control;
    const uint64_t now_us = dp_now_us(), loaded = atomic_load(&c->load_progress);
    pthread_mutex_lock(&w->lock);
    if (loaded != w->loaded || !w->gives_up)
        w->moved_us = now_us;
    w->loaded = loaded;
    w->gave_up |= now_us - w->moved_us > c->node->config->checkpoint_store_wait_ms * UINT64_C(1000);
    if ((w->gives_up && w->gave_up) || (atomic_load(&c->stop) && now_us > c->stop_by_us))
        atomic_store(w->place->stop, true);
    pthread_mutex_unlock(&w->lock);
}

static void *run_watch(void *arg)
{
    struct ps_store_watch *w = arg;
    struct timespec until = mr_clock_after_us(LOOK_US);
    (void)pthread_setname_np(pthread_self(), "mr-store-watch");
    while (sem_clockwait(&w->ended, CLOCK_MONOTONIC, &until) != 0) {
        look_at_load(w);
        until = mr_clock_after_us(LOOK_US);
    }
    return NULL;
}

static void watch_free(struct ps_store_watch *w)
{
    sem_destroy(&w->ended);
    pthread_mutex_destroy(&w->lock);
    free(w);
}

struct ps_store_watch *ps_control_watch_store(struct ps_control *c, const struct ps_place *place)
{
    struct ps_store_watch *w =
        place->stop != NULL && c->is_in_thread ? calloc(1, sizeof(struct ps_store_watch)) : NULL;
    if (w == NULL)
        return NULL;
    w->control = c;
    w->place = place;
    sem_init(&w->ended, 0, 0);
    pthread_mutex_init(&w->lock, NULL);
    if (pthread_create(&w->thread, NULL, run_watch, w) == 0)
        return w;
    watch_free(w);
    return NULL;
}

void ps_control_watch_gives_up(struct ps_store_watch *w)
{
    if (w == NULL)
        return;
    pthread_mutex_lock(&w->lock);
    w->moved_us = dp_now_us();
    w->gives_up = true;
    pthread_mutex_unlock(&w->lock);
}

bool ps_control_watch_gave_up(struct ps_store_watch *w)
{
    if (w == NULL)
        return false;
    pthread_mutex_lock(&w->lock);
    w->gives_up = false;
    atomic_store(w->place->stop, false); /* for what is asked of the store next */
    const bool gave_up = w->gave_up;
    pthread_mutex_unlock(&w->lock);
    return gave_up;
}

void ps_control_unwatch_store(struct ps_store_watch *w)
{
    if (w == NULL)
        return;
    sem_post(&w->ended);
    pthread_join(w->thread, NULL);
    atomic_store(w->place->stop, false);
    watch_free(w);
}

/* ---- jobs ---- */

struct ps_job {
    struct ps_job *next;
    struct ps_control *control;
    pthread_t thread;
    _Atomic bool is_done;
    char directory[PS_DIRECTORY_BYTES];
    struct ps_place place;
    bool asks;                  /* for the newest checkpoint; otherwise old ones are removed */
    struct ps_command *command; /* the save that waits for the answer; NULL: none */
    struct ps_retention retention;
    bool is_wanted_again; /* another save ended meanwhile */
    /* the answer */
    enum mr_status status;
    uint64_t next_id;
    char text[PS_CONTROL_TEXT_BYTES];
};

static void *run_job(void *arg)
{
    struct ps_job *j = arg;
    (void)pthread_setname_np(pthread_self(), "mr-store-job");
    sem_t *wake = &j->control->wake;
    if (j->asks)
        j->status = ps_checkpoint_next_id(j->place.store, j->place.path, &j->next_id, j->text);
    else
        ps_checkpoint_retain(j->place.store, j->place.path, &j->retention);
    atomic_store(&j->is_done, true);
    sem_post(wake);
    return NULL;
}

static enum mr_status begin_job(struct ps_control *c, const char *directory, bool asks,
                                struct ps_command *command, struct ps_retention retention, char *text)
{
    struct ps_job *j = calloc(1, sizeof(*j));
    enum mr_status status = MR_NO_MEMORY;
    snprintf(text, PS_CONTROL_TEXT_BYTES, "no memory left");
    if (j == NULL)
        return status;
    j->control = c;
    j->asks = asks;
    j->command = command;
    j->retention = retention;
    snprintf(j->directory, sizeof(j->directory), "%s", directory);
    status = ps_stores_place(c->stores, directory, PS_PLACE_ASIDE, &j->place, text);
    if (status == MR_OK)
        atomic_store(j->place.stop, false);
    if (status == MR_OK && pthread_create(&j->thread, NULL, run_job, j) != 0) {
        status = MR_NO_MEMORY;
        snprintf(text, PS_CONTROL_TEXT_BYTES, "no thread to ask the store: raise the limit of threads");
    }
    if (status != MR_OK) {
        free(j);
        return status;
    }
    j->next = c->jobs;
    c->jobs = j;
    return MR_OK;
}

/* Takes one that is done; NULL: there is none. */
static struct ps_job *take_done(struct ps_control *c)
{
    struct ps_job **at = &c->jobs;
    while (*at != NULL && !atomic_load(&(*at)->is_done))
        at = &(*at)->next;
    struct ps_job *j = *at;
    if (j != NULL) {
        *at = j->next;
        pthread_join(j->thread, NULL);
    }
    return j;
}

/* ---- retention ---- */

struct ps_retention ps_control_retention(const struct ps_config *config)
{
    const bool has_trainers = ps_config_has_role(config, MR_ROLE_TRAINER);
    return (struct ps_retention){.keep = (uint32_t)config->checkpoint_keep,
                                 .keep_trainers = (uint32_t)config->checkpoint_keep_trainers,
                                 .least_age_s = has_trainers ? (uint32_t)config->checkpoint_least_age_s : 0};
}

void ps_control_retain(struct ps_control *c, const char *directory, bool trainers_only)
{
    char ignored[PS_CONTROL_TEXT_BYTES];
    struct ps_retention retention = ps_control_retention(c->node->config);
    retention.trainers_only = trainers_only;
    if (!ps_store_url_is_remote(directory)) {
        ps_checkpoint_retain(NULL, directory, &retention);
        return;
    }
    for (struct ps_job *j = c->jobs; j != NULL; j = j->next) {
        if (!j->asks && strcmp(j->directory, directory) == 0) {
            j->is_wanted_again = true;
            return;
        }
    }
    (void)begin_job(c, directory, false, NULL, retention, ignored); /* otherwise the next save removes them */
}

/* ---- numbers of checkpoints ---- */

/* The node's own directory was asked at the start, and is the node's alone. */
bool ps_control_look_first(struct ps_control *c, struct ps_command *save)
{
    char directory[PS_DIRECTORY_BYTES];
    save->status = ps_control_check_directory(c->node->config, save->save.directory, directory, save->text);
    if (save->status != MR_OK || !ps_store_url_is_remote(directory) ||
        strcmp(directory, c->node->config->checkpoint_directory) == 0)
        return false;
    save->status = begin_job(c, directory, true, save, (struct ps_retention){0}, save->text);
    return save->status == MR_OK;
}

void ps_control_ask_ids(struct ps_control *c, const char *directory)
{
    char ignored[PS_CONTROL_TEXT_BYTES];
    for (const struct ps_job *j = c->jobs; j != NULL; j = j->next)
        if (j->asks && strcmp(j->directory, directory) == 0)
            return;
    (void)begin_job(c, directory, true, NULL, (struct ps_retention){0},
                    ignored); /* otherwise the next save asks */
}

/* The save that a job was for; NULL: none. */
static struct ps_command *end_job(struct ps_control *c, struct ps_job *j)
{
    struct ps_command *save = j->command;
    if (j->asks && j->status == MR_OK)
        ps_control_note_id(c, j->directory, j->next_id - 1);
    else if (save != NULL)
        ps_command_fail(save, j->status, "%s", j->text);
    if (j->is_wanted_again && !atomic_load(&c->stop))
        ps_control_retain(c, j->directory, j->retention.trainers_only);
    free(j);
    return save;
}

struct ps_command *ps_control_looked(struct ps_control *c)
{
    struct ps_command *save = NULL;
    for (struct ps_job *j = take_done(c); j != NULL; j = take_done(c)) {
        save = end_job(c, j);
        if (save != NULL)
            return save;
    }
    return NULL;
}

static void cut_off(const struct ps_control *c)
{
    for (const struct ps_job *j = c->jobs; j != NULL; j = j->next)
        atomic_store(j->place.stop, true);
}

void ps_control_jobs_stop(struct ps_control *c)
{
    while (c->jobs != NULL) {
        struct ps_job *j = take_done(c);
        struct ps_command *save = j != NULL ? end_job(c, j) : NULL;
        if (save != NULL) {
            ps_command_fail(save, MR_SHUTTING_DOWN, "the node is stopping");
            ps_command_send_back(c, save);
        }
        if (j == NULL && dp_now_us() > c->stop_by_us)
            cut_off(c);
        if (j == NULL)
            nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
}

/* ---- the configured directory ---- */

struct history_write {
    struct ps_control *control;
    const struct ps_history *history;
    char error[PS_CONTROL_TEXT_BYTES];
    enum mr_status status;
};

static void write_history(void *arg)
{
    struct history_write *w = arg;
    const struct ps_place *own = &w->control->own;
    w->status = ps_history_write(own->store, own->path, w->history, w->error, sizeof(w->error));
}

enum mr_status ps_control_write_history(struct ps_control *c, const struct ps_history *history, char *error)
{
    struct history_write w = {.control = c, .history = history};
    struct ps_copier *copier = atomic_load(&c->node->copier);
    ps_control_await(c, &c->own, write_history, &w);
    memcpy(error, w.error, sizeof(w.error));
    if (w.status == MR_OK && copier != NULL)
        ps_copier_wake(copier);
    return w.status;
}

struct newest {
    const struct ps_place *place;
    uint64_t id;
};

static void find_newest(void *arg)
{
    struct newest *n = arg;
    (void)ps_checkpoint_list(n->place->store, n->place->path, &n->id, 1);
}

uint64_t ps_control_own_newest(struct ps_control *c)
{
    struct newest n = {.place = &c->own};
    ps_control_await(c, &c->own, find_newest, &n);
    return n.id;
}
