/* One line per event to standard error: time, what happened. Never on the way of a data call. Any thread. */
#ifndef PS_LOG_H
#define PS_LOG_H

void ps_log(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
