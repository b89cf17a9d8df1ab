/* What a node tells systemd (sd_notify(3)). Nothing happens when systemd has not started it as a service that
 * notifies, or when it was built without libsystemd. Any thread. */
#ifndef PS_NOTIFY_H
#define PS_NOTIFY_H

#include <stdbool.h>
#include <stdint.h>

/* Lines of "VARIABLE=value". */
void ps_notify(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Somebody is there to be told. */
bool ps_notify_is_heard(void);
/* Microseconds after which systemd ends a node that has not sent WATCHDOG=1; 0: it does not watch. */
uint64_t ps_notify_watchdog_us(void);

#endif
