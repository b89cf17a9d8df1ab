/* ps/memory/huge_pages.c: a huge page belongs to the owner or to the helper, never to both. The kernel's
 * calls are replaced by writes to one variable for each huge page, so that a race between the two is a
 * data race.
 */
#include "model.h"

#include <semaphore.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "ps/memory/huge_pages.h"

#define PAGES 2u

static struct ps_huge_pages pages;
static uint8_t *const base = (uint8_t *)(16 * PS_HUGE_PAGE_BYTES);
static uint32_t touched[PAGES];

static uint32_t index_of(const void *page)
{
    return (uint32_t)(((uintptr_t)page - (uintptr_t)base) / PS_HUGE_PAGE_BYTES);
}

static int model_madvise(const void *page)
{
    touched[index_of(page)]++;
    return 0;
}

#define madvise(page, bytes, advice) model_madvise(page)
#define sem_post(sem)                ((void)(sem))

#undef PS_HUGE_PAGES_AHEAD_MAX
#undef PS_HUGE_PAGES_OUT_MAX
#define PS_HUGE_PAGES_AHEAD_MAX 1u
#define PS_HUGE_PAGES_OUT_MAX   1u
#include "ps/memory/huge_pages.c" // NOLINT(bugprone-suspicious-include)

static sem_t wake;
static uint64_t used;

static void *help(void *arg)
{
    (void)arg;
    (void)ps_huge_pages_serve(&pages);
    (void)ps_huge_pages_serve(&pages);
    return NULL;
}

static uint8_t *take_one(void)
{
    uint8_t *page = ps_huge_pages_take(&pages, PS_HUGE_PAGE_BYTES, PS_HUGE_PAGE_BYTES);
    if (page != NULL)
        touched[index_of(page)]++;
    return page;
}

static void *own(void *arg)
{
    (void)arg;
    uint8_t *page = take_one(); /* and orders one ahead */
    assert(page != NULL);
    const bool is_given = ps_huge_pages_give(&pages, page, PS_HUGE_PAGE_BYTES);
    assert(is_given);
    page = take_one();
    ps_huge_pages_give_ahead(&pages);
    assert(pages.out_count == 0);
    assert(ps_huge_pages_mapped_bytes(&pages) == (page != NULL ? PS_HUGE_PAGE_BYTES : 0));
    return NULL;
}

static void model_run(void)
{
    for (uint32_t i = 0; i < PAGES; i++)
        touched[i] = 0;
    used = 0;
    pages.is_open = true;
    pages.base = base;
    pages.huge_page_count = PAGES;
    pages.used = &used;
    pages.search_from = 0;
    pages.limit_bytes = PAGES * PS_HUGE_PAGE_BYTES;
    pages.helper_wake = &wake;
    pages.ahead_wanted = 1;
    pages.takes_in_time = pages.out_count = 0;
    pages.given = 0;
    atomic_store(&pages.mapped_bytes, 0);
    atomic_store(&pages.out_bytes, 0);
    atomic_store(&pages.ahead_bytes, 0);
    atomic_store(&pages.ahead[0].state, PS_ORDER_EMPTY);
    atomic_store(&pages.out[0].state, PS_ORDER_EMPTY);
    const pthread_t helper = model_start(help, NULL), owner = model_start(own, NULL);
    pthread_join(owner, NULL);
    pthread_join(helper, NULL);
}
