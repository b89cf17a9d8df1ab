#include "ps/server/watch.h"

#include <inttypes.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "dataplane/wire/base/clock.h"
#include "dataplane/wire/base/log.h"

#ifdef MR_HAVE_SYSTEMD
#include <systemd/sd-daemon.h>
#endif

#define NOTIFY_BYTES     1024u
#define LOOK_US_MAX      1000000u
#define LOOKS_PER_PERIOD 4u /* of the watchdog: one that comes late is not the end */
#define TOLD_PER_PERIOD  2u /* what hangs is logged before systemd ends the node */

/* ---- what systemd is told ---- */

#ifdef MR_HAVE_SYSTEMD
void ps_notify(const char *format, ...)
{
    char state[NOTIFY_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(state, sizeof(state), format, arguments);
    va_end(arguments);
    (void)sd_notify(0, state);
}

static bool notify_is_heard(void)
{
    const char *socket = getenv("NOTIFY_SOCKET");
    return socket != NULL && socket[0] != '\0';
}

static uint64_t notify_watchdog_us(void)
{
    uint64_t us = 0;
    return sd_watchdog_enabled(0, &us) > 0 ? us : 0;
}
#else
void ps_notify(const char *format, ...)
{
    (void)format;
}

static bool notify_is_heard(void)
{
    return false;
}

static uint64_t notify_watchdog_us(void)
{
    return 0;
}
#endif

/* ---- the watch ---- */

struct ps_watch {
    struct ps_node *node;
    uint64_t watchdog_us, look_us;
    _Atomic int phase; /* enum ps_watch_phase */
    pthread_t thread;
    sem_t ended;
    /* the thread's */
    char status[PS_WATCH_STATUS_BYTES]; /* that was told last */
    struct ps_watched cores[DP_CORES_MAX], control;
};

/* ---- what it does ---- */

static void describe_checkpoint(const struct ps_checkpoint_view *view, const char *verb, char *out,
                                size_t out_bytes)
{
    const size_t at = (size_t)snprintf(out, out_bytes, "%s checkpoint %" PRIu64, verb, view->id);
    if (view->bytes_total == 0)
        return;
    const uint64_t done = view->bytes_done < view->bytes_total ? view->bytes_done : view->bytes_total;
    snprintf(out + at, out_bytes - at, ": %u %%", (uint32_t)((double)done * 100 / (double)view->bytes_total));
}

static const char *base_of(enum ps_watch_phase phase, const struct ps_node *node)
{
    const uint32_t state = atomic_load(&node->state);
    if (phase == PS_WATCH_STOPPING)
        return "stopping";
    if (phase == PS_WATCH_STARTING)
        return "starting";
    if (state == MR_NODE_FAILED)
        return "serving nothing";
    if (state == MR_NODE_RESTORING)
        return node->is_member ? "waiting for the cluster" : "not serving";
    return node->is_read_only ? "serving read only" : "serving";
}

void ps_watch_describe(enum ps_watch_phase phase, const struct ps_node *node,
                       const struct ps_checkpoint_view *view, char out[PS_WATCH_STATUS_BYTES])
{
    char why[PS_WHY_BYTES];
    size_t at = (size_t)snprintf(out, PS_WATCH_STATUS_BYTES, "%s", base_of(phase, node));
    if (phase == PS_WATCH_READY && ps_node_state(node, why) == MR_NODE_FAILED)
        at += (size_t)snprintf(out + at, PS_WATCH_STATUS_BYTES - at, ": %s", why);
    if (view->state != PS_VIEW_IDLE) {
        at += (size_t)snprintf(out + at, PS_WATCH_STATUS_BYTES - at, ", ");
        describe_checkpoint(view, view->state == PS_VIEW_SAVING ? "saving" : "restoring", out + at,
                            PS_WATCH_STATUS_BYTES - at);
    } else if (phase == PS_WATCH_READY && node->is_read_only) {
        snprintf(out + at, PS_WATCH_STATUS_BYTES - at, ": %s", node->serves);
    }
}

static void tell_status(struct ps_watch *w)
{
    struct ps_checkpoint_view view;
    char now[PS_WATCH_STATUS_BYTES];
    ps_control_view(w->node->control, &view);
    ps_watch_describe((enum ps_watch_phase)atomic_load(&w->phase), w->node, &view, now);
    if (strcmp(now, w->status) == 0)
        return;
    memcpy(w->status, now, sizeof(now));
    ps_notify("STATUS=%s", now);
}

/* ---- that it lives ---- */

bool ps_watched_moved(struct ps_watched *t, uint64_t turns, uint64_t now_us)
{
    if (turns == t->turns && t->moved_us != 0)
        return false;
    *t = (struct ps_watched){.turns = turns, .moved_us = now_us};
    return true;
}

bool ps_watched_hangs(struct ps_watched *t, uint64_t now_us, uint64_t us_max)
{
    if (t->is_told || now_us - t->moved_us < us_max)
        return false;
    t->is_told = true;
    return true;
}

static bool is_alive(const struct ps_watch *w, struct ps_watched *t, uint64_t turns, const char *name,
                     uint64_t now_us)
{
    if (ps_watched_moved(t, turns, now_us))
        return true;
    if (ps_watched_hangs(t, now_us, w->watchdog_us / TOLD_PER_PERIOD)) {
        mr_log_with(
            MR_LOG_ERROR, MR_LOG_FIELDS({"thread", .text = name}), "thread_hangs",
            "%s has not gone on for %.1f s: systemd ends this node unless it does within %.1f s of its last "
            "turn",
            name, (double)(now_us - t->moved_us) / 1e6, (double)w->watchdog_us / 1e6);
    }
    return false;
}

static bool all_are_alive(struct ps_watch *w)
{
    const struct ps_node *node = w->node;
    const uint64_t now_us = mr_clock_us();
    bool alive = is_alive(w, &w->control, ps_control_turns(node->control), "the control thread", now_us);
    for (uint32_t i = 0; i < node->core_count; i++) {
        char name[32];
        snprintf(name, sizeof(name), "data core %u", i);
        alive &= is_alive(w, &w->cores[i], dp_core_turns(node->cores[i]->dp_core), name, now_us);
    }
    return alive;
}

static void watch_look(struct ps_watch *w)
{
    tell_status(w);
    if (w->watchdog_us == 0 || atomic_load(&w->phase) != PS_WATCH_READY)
        return;
    if (all_are_alive(w))
        ps_notify("WATCHDOG=1");
    ps_node_wake_control(w->node); /* it turns only when it is woken */
}

static void *watch_run(void *arg)
{
    struct ps_watch *w = arg;
    struct timespec until;
    (void)pthread_setname_np(pthread_self(), "mr-watch");
    do {
        watch_look(w);
        until = mr_clock_after_us(w->look_us);
    } while (sem_clockwait(&w->ended, CLOCK_MONOTONIC, &until) != 0);
    return NULL;
}

/* ---- start and end ---- */

bool ps_watch_start(struct ps_node *node, struct ps_watch **out)
{
    *out = NULL;
    if (!notify_is_heard())
        return true;
    struct ps_watch *w = calloc(1, sizeof(*w));
    if (w == NULL)
        return false;
    w->node = node;
    w->watchdog_us = notify_watchdog_us();
    w->look_us = LOOK_US_MAX;
    if (w->watchdog_us != 0 && w->watchdog_us / LOOKS_PER_PERIOD < LOOK_US_MAX)
        w->look_us = w->watchdog_us / LOOKS_PER_PERIOD;
    sem_init(&w->ended, 0, 0);
    if (pthread_create(&w->thread, NULL, watch_run, w) != 0) {
        sem_destroy(&w->ended);
        free(w);
        return false;
    }
    *out = w;
    return true;
}

void ps_watch_ready(struct ps_watch *w)
{
    if (w == NULL)
        return;
    ps_notify("READY=1");
    atomic_store(&w->phase, PS_WATCH_READY);
}

void ps_watch_stopping(struct ps_watch *w)
{
    if (w == NULL)
        return;
    atomic_store(&w->phase, PS_WATCH_STOPPING);
    ps_notify("STOPPING=1");
}

void ps_watch_stop(struct ps_watch *w)
{
    if (w == NULL)
        return;
    sem_post(&w->ended);
    pthread_join(w->thread, NULL);
    sem_destroy(&w->ended);
    free(w);
}
