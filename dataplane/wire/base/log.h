/* The log of a program: one line per event to standard error, or to systemd's journal. Each line has a
 * level, the name of its event, a sentence for people, and fields for programs.
 *
 * Every place in the code that logs has a burst of its own (log_burst.h): what is beyond it is counted,
 * and one line says how many there were when it is over. Lines of other places are not affected.
 *
 * A thread that logs waits until its line is written, but for a tenth of a second at most: then the line
 * stays queued, and nobody waits until the reader of the log takes lines again. When the queue is full,
 * lines are lost, and counted. Data cores never wait (mr_log_never_wait). Any thread may log.
 *
 * Until mr_log_configure() is called, lines of level info go to standard error as text. Until
 * mr_log_start(), and after mr_log_stop(), the thread that logs writes its line itself.
 */
#ifndef MR_LOG_H
#define MR_LOG_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "dataplane/wire/base/log_burst.h"

enum mr_log_level { MR_LOG_ERROR, MR_LOG_WARNING, MR_LOG_INFO, MR_LOG_DEBUG };
enum mr_log_format { MR_LOG_TEXT, MR_LOG_LOGFMT, MR_LOG_JSON };
enum mr_log_journal { MR_LOG_JOURNAL_AUTO, MR_LOG_JOURNAL_NO, MR_LOG_JOURNAL_YES };

/* False: there is no such level or format. */
bool mr_log_level_parse(const char *name, enum mr_log_level *out);
bool mr_log_format_parse(const char *name, enum mr_log_format *out);

#define MR_LOG_FIELDS_MAX 8u

/* A field of a line. Names are of lower-case letters, digits and underscores, and none of ts, level, node,
 * component, event and msg. */
struct mr_log_field {
    const char *name;
    const char *text; /* NULL: the number */
    uint64_t number;
};

/* A place in the code that logs. */
struct mr_log_site {
    enum mr_log_level level;
    const char *event; /* a name as that of a field; a program looks for it */
    const char *file;  /* its folder is the line's component */
    int line;
    struct mr_log_burst burst;
    struct mr_log_site *next; /* of those with lines that were left out */
    _Atomic bool is_listed;
};

struct mr_log_options {
    const char *program; /* "millraced"; stays valid */
    const char *node;    /* "": none; copied */
    enum mr_log_level level;
    enum mr_log_format format;
    enum mr_log_journal journal;
    uint32_t rate_per_s; /* of each place; 0: no limit */
    bool has_progress;   /* the program shows a line of progress on a terminal, which a line overwrites */
};

/* Sets the options, at any time; the bursts that have begun go on. False, and nothing is changed: the
 * journal is asked for, and `why` says why there is none. */
bool mr_log_configure(const struct mr_log_options *options, const char **why);
/* From now on a thread writes the lines; it has the caller's affinity. False: there can be no thread, and
 * it stays as it was. */
bool mr_log_start(void);
/* Writes what is queued, unless nobody takes it for a second, says what was left out, and ends the thread. */
void mr_log_stop(void);
/* The calling thread does not wait for its lines from now on, whatever becomes of them. */
void mr_log_never_wait(void);
/* Calls `hear` for each line of level info and above, on the thread that logs, whatever the options' level
 * is. It must not log. NULL: no more calls; those that have begun have ended when this returns. */
void mr_log_listen(void (*hear)(void *arg, const char *event, const char *message), void *arg);
/* True if lines go to standard error as text. */
bool mr_log_is_text(void);

/* mr_log_info("event", format, ...): one line. The event is a literal. */
#define mr_log_error(...)   MR_LOG_AT(MR_LOG_ERROR, MR_LOG_NO_FIELDS, __VA_ARGS__)
#define mr_log_warning(...) MR_LOG_AT(MR_LOG_WARNING, MR_LOG_NO_FIELDS, __VA_ARGS__)
#define mr_log_info(...)    MR_LOG_AT(MR_LOG_INFO, MR_LOG_NO_FIELDS, __VA_ARGS__)
#define mr_log_debug(...)   MR_LOG_AT(MR_LOG_DEBUG, MR_LOG_NO_FIELDS, __VA_ARGS__)
/* mr_log_with(MR_LOG_INFO, MR_LOG_FIELDS({"ms", .number = ms}, {"directory", .text = path}), "event",
 * format, ...) */
#define mr_log_with MR_LOG_AT

#define MR_LOG_NO_FIELDS NULL, 0
#define MR_LOG_FIELDS(...)                                                                                   \
    (const struct mr_log_field[]){__VA_ARGS__},                                                              \
        sizeof((const struct mr_log_field[]){__VA_ARGS__}) / sizeof(struct mr_log_field)

#define MR_LOG_AT(level_, fields_, event_, ...)                                                              \
    do {                                                                                                     \
        static struct mr_log_site mr_log_site_ = {                                                           \
            .level = (level_), .event = (event_), .file = __FILE__, .line = __LINE__};                       \
        mr_log_write(&mr_log_site_, fields_, __VA_ARGS__);                                                   \
    } while (0)

/* What the macros call. */
void mr_log_write(struct mr_log_site *site, const struct mr_log_field *fields, size_t field_count,
                  const char *format, ...) __attribute__((format(printf, 4, 5)));

#endif
