#include "ps/modules/model/crew.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

struct work {
    struct work *next; /* of those with parts that nobody has taken */
    ps_crew_part run;
    void *context;
    uint32_t count, taken, done;
    pthread_cond_t is_done;
};

struct ps_crew {
    pthread_mutex_t lock; /* of all that is below, and of works */
    pthread_cond_t is_wanted;
    bool stopping;
    struct work *first;
    uint32_t thread_count;
    pthread_t threads[];
};

/* The lock is held, but while the part runs; the work has one that is not taken. */
static void run_next(struct ps_crew *crew, struct work *work)
{
    uint32_t index = work->taken++;
    if (work->taken == work->count) {
        struct work **at = &crew->first;
        while (*at != work)
            at = &(*at)->next;
        *at = work->next;
    }
    pthread_mutex_unlock(&crew->lock);
    work->run(work->context, index);
    pthread_mutex_lock(&crew->lock);
    if (++work->done == work->count)
        pthread_cond_signal(&work->is_done);
}

static void *run_thread(void *arg)
{
    struct ps_crew *crew = arg;
    pthread_mutex_lock(&crew->lock);
    while (!crew->stopping) {
        if (crew->first != NULL)
            run_next(crew, crew->first);
        else
            pthread_cond_wait(&crew->is_wanted, &crew->lock);
    }
    pthread_mutex_unlock(&crew->lock);
    return NULL;
}

struct ps_crew *ps_crew_create(uint32_t threads)
{
    struct ps_crew *crew = calloc(1, sizeof(*crew) + threads * sizeof(crew->threads[0]));
    if (crew == NULL)
        return NULL;
    pthread_mutex_init(&crew->lock, NULL);
    pthread_cond_init(&crew->is_wanted, NULL);
    while (crew->thread_count < threads &&
           pthread_create(&crew->threads[crew->thread_count], NULL, run_thread, crew) == 0)
        crew->thread_count++;
    return crew;
}

void ps_crew_destroy(struct ps_crew *crew)
{
    if (crew == NULL)
        return;
    pthread_mutex_lock(&crew->lock);
    crew->stopping = true;
    pthread_cond_broadcast(&crew->is_wanted);
    pthread_mutex_unlock(&crew->lock);
    for (uint32_t i = 0; i < crew->thread_count; i++)
        (void)pthread_join(crew->threads[i], NULL);
    pthread_cond_destroy(&crew->is_wanted);
    pthread_mutex_destroy(&crew->lock);
    free(crew);
}

void ps_crew_run(struct ps_crew *crew, ps_crew_part run, void *context, uint32_t count)
{
    struct work work = {.run = run, .context = context, .count = count};
    if (count == 0)
        return;
    pthread_cond_init(&work.is_done, NULL);
    pthread_mutex_lock(&crew->lock);
    work.next = crew->first;
    crew->first = &work; // cppcheck-suppress autoVariables ; out of the list before this returns
    for (uint32_t i = 1; i < count; i++)
        pthread_cond_signal(&crew->is_wanted);
    while (work.taken < count)
        run_next(crew, &work);
    while (work.done < count)
        pthread_cond_wait(&work.is_done, &crew->lock);
    pthread_mutex_unlock(&crew->lock);
    pthread_cond_destroy(&work.is_done);
}
