#include "dataplane/wire/base/log.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "dataplane/wire/base/clock.h"
#include "dataplane/wire/base/journal.h"
#include "dataplane/wire/base/log_line.h"
#include "dataplane/wire/base/log_queue.h"
#include "dataplane/wire/base/plural.h"
#include "dataplane/wire/base/printable.h"

#define WAIT_US      100000u  /* for a line to be written */
#define STOP_WAIT_US 1000000u /* for all of them, at the end */
#define LOOK_US      500000u  /* between two looks at bursts */
#define RATE_DEFAULT 50u

/* How lines are written. */
struct target {
    enum mr_log_format format;
    bool to_journal, has_progress;
    struct mr_log_identity who;
};

static struct {
    _Atomic int level;
    _Atomic uint32_t rate_per_s;
    pthread_mutex_t lock; /* of the target */
    struct target target;
    _Atomic bool is_heard;
    pthread_mutex_t hear_lock; /* of the listener */
    void (*hear)(void *arg, const char *event, const char *message);
    void *hear_arg;
    pthread_mutex_t write_lock;   /* of the line, and of standard error */
    char line[MR_LOG_LINE_BYTES]; /* being written */
    /* The thread, and what it is given. */
    _Atomic bool runs, stop;
    pthread_t thread;
    sem_t wake;
    struct mr_log_queue queue;
    pthread_mutex_t written_lock;
    pthread_cond_t written_more;
    uint64_t written;                   /* records of the queue that are; written_lock */
    _Atomic bool is_stuck;              /* nobody takes what is written: a line came too late */
    _Atomic uint32_t lost;              /* lines for which the queue had no room */
    struct mr_log_site *_Atomic bursts; /* sites with lines that were left out */
} logger = {.level = MR_LOG_INFO,
            .rate_per_s = RATE_DEFAULT,
            .lock = PTHREAD_MUTEX_INITIALIZER,
            .target = {.who = {.program = "millraced"}},
            .hear_lock = PTHREAD_MUTEX_INITIALIZER,
            .write_lock = PTHREAD_MUTEX_INITIALIZER,
            .written_lock = PTHREAD_MUTEX_INITIALIZER};

static _Thread_local bool never_waits;

/* ---- one line ---- */

__attribute__((format(printf, 5, 0))) static void fill(struct mr_log_record *r,
                                                       const struct mr_log_site *site,
                                                       const struct mr_log_field *fields, size_t field_count,
                                                       const char *format, va_list arguments)
{
    r->site = site;
    clock_gettime(CLOCK_REALTIME, &r->time);
    vsnprintf(r->message, sizeof(r->message), format, arguments);
    mr_make_printable(r->message, sizeof(r->message));
    mr_log_record_fields(r, fields, field_count);
}

static void write_all(int fd, const char *bytes, size_t count)
{
    while (count > 0) {
        const ssize_t done = write(fd, bytes, count);
        if (done <= 0)
            return; /* there is nobody to say it to */
        bytes += done;
        count -= (size_t)done;
    }
}

static struct target read_target(void)
{
    pthread_mutex_lock(&logger.lock);
    const struct target target = logger.target;
    pthread_mutex_unlock(&logger.lock);
    return target;
}

static void write_to_stderr(const struct mr_log_record *r, const struct target *to)
{
    static const char clear_line[] = "\r\033[K";
    pthread_mutex_lock(&logger.write_lock);
    const size_t bytes = mr_log_line(r, to->format, &to->who, logger.line);
    if (to->has_progress && isatty(STDERR_FILENO))
        write_all(STDERR_FILENO, clear_line, sizeof(clear_line) - 1);
    write_all(STDERR_FILENO, logger.line, bytes);
    pthread_mutex_unlock(&logger.write_lock);
}

static void write_record(const struct mr_log_record *r)
{
    const struct target to = read_target();
    if (!to.to_journal || !mr_journal_send(r, &to.who))
        write_to_stderr(r, &to);
}

/* What the log says of itself, by whoever writes. */
__attribute__((format(printf, 3, 4))) static void
write_own(const struct mr_log_site *site, const struct mr_log_field *field, const char *format, ...)
{
    struct mr_log_record record;
    va_list arguments;
    va_start(arguments, format);
    fill(&record, site, field, 1, format, arguments);
    va_end(arguments);
    write_record(&record);
}

/* ---- bursts ---- */

static void list_site(struct mr_log_site *site)
{
    if (atomic_exchange(&site->is_listed, true))
        return;
    site->next = atomic_load(&logger.bursts);
    while (!atomic_compare_exchange_weak(&logger.bursts, &site->next, site)) {
    }
}

/* Says what was left out at places whose bursts are over. */
static void tell_bursts(bool is_last)
{
    const uint64_t now_ms = mr_clock_us() / 1000;
    for (struct mr_log_site *s = atomic_load(&logger.bursts); s != NULL; s = s->next) {
        uint64_t lasted_ms;
        const uint32_t count = mr_log_burst_over(&s->burst, now_ms, is_last, &lasted_ms);
        if (count == 0)
            continue;
        const struct mr_log_site told = {
            .level = s->level, .event = s->event, .file = s->file, .line = s->line};
        const char *file = strrchr(s->file, '/');
        write_own(&told, &(struct mr_log_field){"suppressed", .number = count},
                  "%u more line%s like the last one of %s:%d within %.1f s (event %s; log.rate_per_s)", count,
                  mr_plural(count), file != NULL ? file + 1 : s->file, s->line, (double)lasted_ms / 1000,
                  s->event);
    }
}

static void tell_lost(void)
{
    static const struct mr_log_site site = {
        .level = MR_LOG_ERROR, .event = "log_lost", .file = __FILE__, .line = __LINE__};
    const uint32_t count = atomic_exchange(&logger.lost, 0);
    if (count > 0) {
        write_own(&site, &(struct mr_log_field){"lost", .number = count},
                  "%u line%s of the log %s lost: nobody took what was written", count, mr_plural(count),
                  count == 1 ? "is" : "are");
    }
}

/* ---- the thread ---- */

static void note_written(void)
{
    pthread_mutex_lock(&logger.written_lock);
    logger.written++;
    pthread_cond_broadcast(&logger.written_more);
    pthread_mutex_unlock(&logger.written_lock);
}

static void write_queued(void)
{
    for (const struct mr_log_record *r = mr_log_queue_first(&logger.queue); r != NULL;
         r = mr_log_queue_first(&logger.queue)) {
        write_record(r);
        mr_log_queue_release(&logger.queue);
        atomic_store(&logger.is_stuck, false);
        note_written();
    }
    tell_lost();
}

static void *log_run(void *arg)
{
    (void)arg;
    (void)pthread_setname_np(pthread_self(), "mr-log");
    while (!atomic_load(&logger.stop)) {
        const struct timespec until = mr_clock_after_us(LOOK_US);
        (void)sem_clockwait(&logger.wake, CLOCK_MONOTONIC, &until);
        write_queued();
        tell_bursts(false);
    }
    write_queued();
    return NULL;
}

/* Until all records below `number` are written. False: it takes too long. */
static bool wait_written(uint64_t number, uint64_t us)
{
    const struct timespec until = mr_clock_after_us(us);
    int error = 0;
    pthread_mutex_lock(&logger.written_lock);
    while (logger.written < number && error == 0)
        error = pthread_cond_clockwait(&logger.written_more, &logger.written_lock, CLOCK_MONOTONIC, &until);
    const bool is_written = logger.written >= number;
    pthread_mutex_unlock(&logger.written_lock);
    return is_written;
}

bool mr_log_start(void)
{
    if (atomic_load(&logger.runs))
        return true;
    mr_log_queue_init(&logger.queue);
    logger.written = 0;
    atomic_store(&logger.stop, false);
    pthread_cond_init(&logger.written_more, NULL);
    sem_init(&logger.wake, 0, 0);
    const bool runs = pthread_create(&logger.thread, NULL, log_run, NULL) == 0;
    atomic_store(&logger.runs, runs);
    return runs;
}

void mr_log_stop(void)
{
    if (!atomic_exchange(&logger.runs, false)) {
        tell_bursts(true);
        return;
    }
    atomic_store(&logger.stop, true);
    sem_post(&logger.wake);
    const bool is_written = wait_written(atomic_load(&logger.queue.put), STOP_WAIT_US);
    if (!is_written) {
        pthread_detach(logger.thread); /* it may never come back */
        return;
    }
    pthread_join(logger.thread, NULL);
    tell_bursts(true);
    sem_destroy(&logger.wake);
    pthread_cond_destroy(&logger.written_more);
}

void mr_log_never_wait(void)
{
    never_waits = true;
}

/* ---- lines ---- */

/* The thread writes the line, or it is lost. */
__attribute__((format(printf, 4, 0))) static void queue_line(const struct mr_log_site *site,
                                                             const struct mr_log_field *fields,
                                                             size_t field_count, const char *format,
                                                             va_list arguments)
{
    uint64_t number;
    struct mr_log_record *record = mr_log_queue_claim(&logger.queue, &number);
    if (record == NULL) {
        atomic_fetch_add(&logger.lost, 1);
        return;
    }
    fill(record, site, fields, field_count, format, arguments);
    mr_log_queue_publish(&logger.queue, number);
    sem_post(&logger.wake);
    if (!never_waits && !atomic_load(&logger.is_stuck) && !wait_written(number + 1, WAIT_US))
        atomic_store(&logger.is_stuck, true);
}

void mr_log_listen(void (*hear)(void *arg, const char *event, const char *message), void *arg)
{
    pthread_mutex_lock(&logger.hear_lock);
    logger.hear = hear;
    logger.hear_arg = arg;
    atomic_store(&logger.is_heard, hear != NULL);
    pthread_mutex_unlock(&logger.hear_lock);
}

__attribute__((format(printf, 2, 0))) static void tell_listener(const struct mr_log_site *site,
                                                                const char *format, va_list arguments)
{
    char message[MR_LOG_MESSAGE_BYTES];
    vsnprintf(message, sizeof(message), format, arguments);
    pthread_mutex_lock(&logger.hear_lock);
    if (logger.hear != NULL)
        logger.hear(logger.hear_arg, site->event, message);
    pthread_mutex_unlock(&logger.hear_lock);
}

void mr_log_write(struct mr_log_site *site, const struct mr_log_field *fields, size_t field_count,
                  const char *format, ...)
{
    const uint64_t now_ms = mr_clock_us() / 1000;
    va_list arguments;
    const bool is_heard =
        site->level <= MR_LOG_INFO && atomic_load_explicit(&logger.is_heard, memory_order_relaxed);
    const bool is_written = (int)site->level <= atomic_load_explicit(&logger.level, memory_order_relaxed);
    if (!is_written && !is_heard)
        return;
    if (!mr_log_burst_admits(&site->burst, now_ms,
                             atomic_load_explicit(&logger.rate_per_s, memory_order_relaxed))) {
        list_site(site);
        return;
    }
    if (is_heard) {
        va_start(arguments, format);
        tell_listener(site, format, arguments);
        va_end(arguments);
    }
    if (!is_written)
        return;
    va_start(arguments, format);
    if (atomic_load(&logger.runs)) {
        queue_line(site, fields, field_count, format, arguments);
    } else {
        struct mr_log_record record;
        tell_bursts(false);
        fill(&record, site, fields, field_count, format, arguments);
        write_record(&record);
    }
    va_end(arguments);
}

/* ---- options ---- */

bool mr_log_is_text(void)
{
    const struct target to = read_target();
    return !to.to_journal && to.format == MR_LOG_TEXT;
}

bool mr_log_configure(const struct mr_log_options *options, const char **why)
{
    const char *missing = options->journal == MR_LOG_JOURNAL_NO ? NULL : mr_journal_missing();
    struct target to = {.format = options->format,
                        .has_progress = options->has_progress,
                        .who = {.program = options->program}};
    if (options->journal == MR_LOG_JOURNAL_YES && missing != NULL) {
        *why = missing;
        return false;
    }
    snprintf(to.who.node, sizeof(to.who.node), "%s", options->node);
    to.to_journal = options->journal == MR_LOG_JOURNAL_YES ||
                    (options->journal == MR_LOG_JOURNAL_AUTO && missing == NULL &&
                     mr_journal_has(STDERR_FILENO, getenv("JOURNAL_STREAM")));
    pthread_mutex_lock(&logger.lock);
    logger.target = to;
    pthread_mutex_unlock(&logger.lock);
    atomic_store(&logger.level, (int)options->level);
    atomic_store(&logger.rate_per_s, options->rate_per_s);
    return true;
}
