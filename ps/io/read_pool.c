#include "ps/io/read_pool.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include "dataplane/wire/base/list.h"

/* The n-th read of the order is in slot n % buffer_count. */
struct read_slot {
    struct ps_io_job job;
    struct ps_read_pool *pool;
    struct ps_read read;
    bool is_done;
};

struct ps_read_pool {
    struct ps_read_pool_options options;
    struct ps_io_threads *threads;
    pthread_mutex_t direct; /* a file's way past the page cache */
    struct read_slot *slots;
    uint64_t put, taken, released; /* reads */
};

/* Some file systems accept O_DIRECT and then refuse the reads. */
static int read_slot_read(struct ps_read_pool *p, const struct ps_read *r)
{
    const struct ps_store *store = p->options.store;
    int error = ps_store_read_all(store, r->file, r->data, r->bytes, r->offset);
    if (error == -EINVAL && store->take_direct) {
        pthread_mutex_lock(&p->direct);
        if (store->is_direct(r->file))
            (void)store->drop_direct(r->file);
        pthread_mutex_unlock(&p->direct);
        error = ps_store_read_all(store, r->file, r->data, r->bytes, r->offset);
    }
    return error;
}

static int read_slot_run(struct ps_io_job *job)
{
    struct read_slot *slot = MR_CONTAINER(job, struct read_slot, job);
    const struct ps_read_pool_options *o = &slot->pool->options;
    const int error = read_slot_read(slot->pool, &slot->read);
    slot->read.wrong = error == 0 && o->check ? o->check(o->arg, &slot->read) : NULL;
    return slot->read.wrong ? -EBADMSG : error;
}

static void read_pool_fill(struct ps_read_pool *p)
{
    while (p->put - p->released < p->options.buffer_count) {
        struct read_slot *slot = &p->slots[p->put % p->options.buffer_count];
        if (!p->options.next(p->options.arg, &slot->read))
            return;
        slot->is_done = false;
        p->put++;
        ps_io_threads_put(p->threads, &slot->job);
    }
}

int ps_read_pool_open(const struct ps_read_pool_options *options, struct ps_read_pool **out)
{
    struct ps_read_pool *p = calloc(1, sizeof(*p));
    if (!p)
        return -ENOMEM;
    p->options = *options;
    pthread_mutex_init(&p->direct, NULL);
    p->slots = calloc(options->buffer_count + 1u, sizeof(*p->slots));
    bool is_made = p->slots != NULL;
    for (uint32_t i = 0; i < options->buffer_count && is_made; i++) {
        struct read_slot *slot = &p->slots[i];
        slot->job = (struct ps_io_job){.run = read_slot_run, .queue = PS_IO_NO_QUEUE};
        slot->pool = p;
        slot->read.data = aligned_alloc(PS_READ_ALIGN, options->buffer_bytes);
        is_made = slot->read.data != NULL;
    }
    if (!is_made || ps_io_threads_create(options->thread_name, options->thread_count, &p->threads) != 0) {
        ps_read_pool_close(p);
        return -ENOMEM;
    }
    read_pool_fill(p);
    *out = p;
    return 0;
}

int ps_read_pool_take(struct ps_read_pool *p, const struct ps_read **read)
{
    *read = NULL;
    if (p->taken == p->put)
        return 0;
    struct read_slot *slot = &p->slots[p->taken++ % p->options.buffer_count];
    while (!slot->is_done)
        MR_CONTAINER(ps_io_threads_take(p->threads, PS_IO_FOREVER), struct read_slot, job)->is_done = true;
    *read = &slot->read;
    return ps_io_job_error(&slot->job);
}

void ps_read_pool_release(struct ps_read_pool *p, uint64_t count)
{
    assert(p->released + count <= p->taken);
    p->released += count;
    read_pool_fill(p);
}

void ps_read_pool_close(struct ps_read_pool *p)
{
    if (!p)
        return;
    ps_io_threads_destroy(p->threads);
    for (uint32_t i = 0; i < p->options.buffer_count && p->slots; i++)
        free(p->slots[i].read.data);
    free(p->slots);
    pthread_mutex_destroy(&p->direct);
    free(p);
}
