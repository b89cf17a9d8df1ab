/* Threads for calls that block: reads, writes and requests of one owner, several at a time.
 *
 * The owner is one thread: it creates, puts, takes, cancels and destroys. A job runs once, on a thread of
 * the pool; where there are none, on the owner's, within ps_io_threads_put(). Jobs begin in the order in
 * which they were put. After the first error, or once it is cancelled, those that have not begun come back
 * with -ECANCELED. The threads run on the processors that the owner may run on, and handle no signals.
 */
#ifndef PS_IO_THREADS_H
#define PS_IO_THREADS_H

#include <stdbool.h>
#include <stdint.h>

#define PS_IO_THREADS_MAX 16u
#define PS_IO_NO_QUEUE    UINT32_MAX
#define PS_IO_FOREVER     UINT32_MAX
#define PS_IO_LINE_BYTES  256u

/* Memory of the owner's, the pool's from the put until it is taken back. */
struct ps_io_job {
    int (*run)(struct ps_io_job *job); /* 0 or -errno, with ps_store_explain()'s line */
    uint32_t queue;                    /* jobs of one queue run one after the other */
    int error;                         /* what run returned, or -ECANCELED */
    char line[PS_IO_LINE_BYTES];       /* what the store said about the error; "": nothing */
    struct ps_io_job *next;            /* the pool's */
};

struct ps_io_threads;

/* Starts as many threads of that name (15 bytes, static) as are wanted and can be had. 0 or -ENOMEM. */
int ps_io_threads_create(const char *name, uint32_t wanted, struct ps_io_threads **out);
/* Waits for the jobs that have begun; others never run. NULL is fine. */
void ps_io_threads_destroy(struct ps_io_threads *t);
void ps_io_threads_put(struct ps_io_threads *t, struct ps_io_job *job);
/* Takes back one job that is over, first over first out; waits for it at most wait_us, without end if that is
 * PS_IO_FOREVER. NULL: there is none. */
struct ps_io_job *ps_io_threads_take(struct ps_io_threads *t, uint32_t wait_us);
void ps_io_threads_cancel(struct ps_io_threads *t);
/* Returns job->error, for which the caller's next ps_store_explanation() is the job's line. */
int ps_io_job_error(const struct ps_io_job *job);

#endif
