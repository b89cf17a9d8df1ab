#include "ps/memory/prefault.h"

#include <assert.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include "dataplane/wire/base/list.h"
#include "ps/base/cpu_affinity.h"
#include "ps/memory/huge_pages.h"

struct ps_prefault {
    pthread_t thread;
    sem_t wanted;
    atomic_bool stop;
    pthread_mutex_t lock; /* of the list; held while a huge page is prepared, so that detach waits for it */
    struct ps_huge_pages *first; /* attached ones */
};

static bool prepare_one(struct ps_prefault *p)
{
    bool found = false;
    pthread_mutex_lock(&p->lock);
    for (struct ps_huge_pages *u = p->first; u != NULL && !found; u = u->helper_next)
        found = ps_huge_pages_serve(u);
    pthread_mutex_unlock(&p->lock);
    return found;
}

static void *prefault_run(void *self)
{
    struct ps_prefault *p = self;
    pthread_setname_np(pthread_self(), "mr-prefault");
    while (!atomic_load(&p->stop)) {
        while (sem_wait(&p->wanted) != 0) /* a signal */
            ;
        while (!atomic_load(&p->stop) && prepare_one(p))
            ;
    }
    return NULL;
}

struct ps_prefault *ps_prefault_create(const int *avoid_cpus, uint32_t cpu_count)
{
    struct ps_prefault *p = calloc(1, sizeof(*p));
    if (p == NULL)
        return NULL;
    pthread_mutex_init(&p->lock, NULL);
    sem_init(&p->wanted, 0, 0);
    if (pthread_create(&p->thread, NULL, prefault_run, p) != 0) {
        sem_destroy(&p->wanted);
        pthread_mutex_destroy(&p->lock);
        free(p);
        return NULL;
    }
    ps_cpu_affinity_avoid(p->thread, avoid_cpus, cpu_count);
    return p;
}

void ps_prefault_destroy(struct ps_prefault *p)
{
    if (p == NULL)
        return;
    assert(p->first == NULL);
    atomic_store(&p->stop, true);
    sem_post(&p->wanted);
    pthread_join(p->thread, NULL);
    sem_destroy(&p->wanted);
    pthread_mutex_destroy(&p->lock);
    free(p);
}

void ps_prefault_attach(struct ps_prefault *p, struct ps_huge_pages *huge_pages)
{
    assert(huge_pages->helper_wake == NULL);
    huge_pages->helper_wake = &p->wanted;
    pthread_mutex_lock(&p->lock);
    huge_pages->helper_next = p->first;
    p->first = huge_pages;
    pthread_mutex_unlock(&p->lock);
}

void ps_prefault_detach(struct ps_huge_pages *huge_pages)
{
    if (huge_pages->helper_wake == NULL)
        return;
    struct ps_prefault *p = MR_CONTAINER(huge_pages->helper_wake, struct ps_prefault, wanted);
    pthread_mutex_lock(&p->lock);
    struct ps_huge_pages **at = &p->first;
    while (*at != huge_pages)
        at = &(*at)->helper_next;
    *at = huge_pages->helper_next;
    pthread_mutex_unlock(&p->lock);
    huge_pages->helper_wake = NULL;
}
