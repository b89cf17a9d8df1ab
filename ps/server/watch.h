/* Watches over a node for systemd, on a thread of its own: says what the node does (STATUS=), and that it is
 * alive (WATCHDOG=1), which it is only if every data core and the control thread have gone on since the last
 * look. */
#ifndef PS_WATCH_H
#define PS_WATCH_H

#include <stdbool.h>
#include <stddef.h>
#include "ps/control/control.h"

/* What a node tells systemd (sd_notify(3)): lines of "VARIABLE=value". Nothing happens when systemd has not
 * started it as a service that notifies, or when it was built without libsystemd. Any thread. */
void ps_notify(const char *format, ...) __attribute__((format(printf, 1, 2)));

struct ps_watch;

/* Starts the thread, unless nobody hears it: then *out is NULL, which the others take. The node needs its
 * control thread's state by now, and cores once ps_watch_ready() is called. False: there can be no thread. */
bool ps_watch_start(struct ps_node *node, struct ps_watch **out);
/* The node is up: READY=1, and from now on the watchdog. */
void ps_watch_ready(struct ps_watch *w);
/* The node stops: STOPPING=1, and the watchdog ends. */
void ps_watch_stopping(struct ps_watch *w);
void ps_watch_stop(struct ps_watch *w);

enum ps_watch_phase { PS_WATCH_STARTING, PS_WATCH_READY, PS_WATCH_STOPPING };

/* What a node does, in a few words: "serving, saving checkpoint 7: 40 %". */
#define PS_WATCH_STATUS_BYTES 384u
void ps_watch_describe(enum ps_watch_phase phase, const struct ps_node *node,
                       const struct ps_checkpoint_view *view, char out[PS_WATCH_STATUS_BYTES]);

/* A thread that is to go on, as its turns are counted. */
struct ps_watched {
    uint64_t turns;
    uint64_t moved_us; /* when they were seen to have grown */
    bool is_told;      /* that it hangs */
};
/* True: it has gone on since the last look. */
bool ps_watched_moved(struct ps_watched *t, uint64_t turns, uint64_t now_us);
/* True once for each time that it hangs: it has not gone on for so long. */
bool ps_watched_hangs(struct ps_watched *t, uint64_t now_us, uint64_t us_max);

#endif
