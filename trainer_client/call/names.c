#include "trainer_client/call/names.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "dataplane/wire/base/clock.h"

#define NAMES_MAX 1024u    /* known at once; the one that was asked for longest ago goes */
#define FRESH_US  1000000u /* a name is not looked up again for so long, found or not */
#define WHY_BYTES 384u

struct name {
    struct name *next;
    char text[MR_HOST_BYTES + 8u];
    bool is_busy;          /* a thread looks it up, and frees the name if it has left the list */
    bool is_left;          /* the list */
    uint64_t ended_us;     /* the last look-up; 0: none has */
    enum mr_status status; /* of that one */
    char why[WHY_BYTES];
    struct mrc_addresses addresses; /* of the last that succeeded */
};

struct mrc_names {
    atomic_uint holders; /* the client, and threads that look up */
    atomic_uint ended;
    int wake_fd;
    pthread_mutex_t lock; /* of everything below */
    struct name *first;   /* the last that was asked for */
};

struct look_up {
    struct mrc_names *names;
    struct name *name;
};

struct mrc_names *mrc_names_create(int wake_fd)
{
    struct mrc_names *names = calloc(1, sizeof(*names));
    if (names == NULL)
        return NULL;
    names->wake_fd = fcntl(wake_fd, F_DUPFD_CLOEXEC, 0);
    if (names->wake_fd < 0) {
        free(names);
        return NULL;
    }
    atomic_init(&names->holders, 1);
    atomic_init(&names->ended, 0);
    pthread_mutex_init(&names->lock, NULL);
    return names;
}

void mrc_names_release(struct mrc_names *names)
{
    if (names == NULL || atomic_fetch_sub_explicit(&names->holders, 1, memory_order_acq_rel) > 1)
        return;
    while (names->first != NULL) {
        struct name *name = names->first;
        names->first = name->next;
        free(name);
    }
    close(names->wake_fd);
    pthread_mutex_destroy(&names->lock);
    free(names);
}

uint32_t mrc_names_ended(const struct mrc_names *names)
{
    return atomic_load_explicit(&names->ended, memory_order_acquire);
}

/* ---- looking up ---- */

static void look_up_ended(struct mrc_names *names, struct name *name, enum mr_status status,
                          const struct mrc_addresses *addresses, const char *why)
{
    const uint64_t one = 1;
    pthread_mutex_lock(&names->lock);
    name->is_busy = false;
    name->ended_us = mr_clock_us();
    name->status = status;
    if (status == MR_OK)
        name->addresses = *addresses;
    (void)snprintf(name->why, sizeof(name->why), "%s", why);
    if (name->is_left)
        free(name);
    pthread_mutex_unlock(&names->lock);
    atomic_fetch_add_explicit(&names->ended, 1, memory_order_release);
    (void)!write(names->wake_fd, &one, sizeof(one));
}

static void *look_up_main(void *arg)
{
    struct look_up *look_up = arg;
    struct mrc_addresses addresses = {.count = 0};
    char why[WHY_BYTES] = "";
    const enum mr_status status = mr_address_resolve_candidates(
        look_up->name->text, addresses.list, MRC_ADDRESSES_MAX, &addresses.count, why, sizeof(why));
    look_up_ended(look_up->names, look_up->name, status, &addresses, why);
    mrc_names_release(look_up->names);
    free(look_up);
    return NULL;
}

/* Has a thread look the name up. Under the lock. */
static void look_up_begin(struct mrc_names *names, struct name *name)
{
    struct look_up *look_up = malloc(sizeof(*look_up));
    pthread_attr_t attributes;
    pthread_t thread;
    bool begun = false;
    name->is_busy = true;
    atomic_fetch_add_explicit(&names->holders, 1, memory_order_relaxed);
    if (look_up != NULL && pthread_attr_init(&attributes) == 0) {
        *look_up = (struct look_up){.names = names, .name = name};
        begun = pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED) == 0 &&
                pthread_create(&thread, &attributes, look_up_main, look_up) == 0;
        (void)pthread_attr_destroy(&attributes);
    }
    if (begun)
        return;
    free(look_up);
    atomic_fetch_sub_explicit(&names->holders, 1, memory_order_relaxed);
    name->is_busy = false;
    name->ended_us = mr_clock_us();
    name->status = MR_NO_MEMORY;
    (void)snprintf(name->why, sizeof(name->why), "%s: no thread could be made to look it up", name->text);
}

/* ---- asking ---- */

/* Takes the name out of the list. Returns NULL: it is not there. */
static struct name *name_take_out(struct mrc_names *names, const char *text)
{
    uint32_t count = 0;
    for (struct name **at = &names->first; *at != NULL; at = &(*at)->next) {
        struct name *name = *at;
        count++;
        if (strcmp(name->text, text) != 0 && !(name->next == NULL && count == NAMES_MAX))
            continue;
        *at = name->next;
        if (strcmp(name->text, text) == 0)
            return name;
        name->is_left = true;
        if (!name->is_busy)
            free(name);
        break;
    }
    return NULL;
}

static struct name *name_create(const char *text)
{
    struct name *name = calloc(1, sizeof(*name));
    if (name != NULL)
        (void)snprintf(name->text, sizeof(name->text), "%s", text);
    return name;
}

static struct name *name_find(struct mrc_names *names, const char *text)
{
    struct name *name = name_take_out(names, text);
    if (name == NULL)
        name = name_create(text);
    if (name == NULL)
        return NULL;
    name->next = names->first;
    names->first = name;
    return name;
}

static bool is_due(const struct name *name)
{
    return !name->is_busy && (name->ended_us == 0 || mr_clock_us() - name->ended_us >= FRESH_US);
}

enum mr_status mrc_names_find(struct mrc_names *names, const char *text, struct mrc_addresses *out,
                              char *error, size_t error_bytes)
{
    enum mr_status status = MR_OK;
    if (!mr_address_is_name(text))
        return mr_address_resolve_candidates(text, out->list, MRC_ADDRESSES_MAX, &out->count, error,
                                             error_bytes);
    pthread_mutex_lock(&names->lock);
    struct name *name = name_find(names, text);
    if (name != NULL && is_due(name))
        look_up_begin(names, name);
    if (name == NULL) {
        status = MR_NO_MEMORY;
        (void)snprintf(error, error_bytes, "%s: no memory to look it up", text);
    } else if (name->addresses.count > 0) {
        *out = name->addresses;
    } else if (name->is_busy && name->ended_us == 0) {
        status = MR_BUSY;
        (void)snprintf(
            error, error_bytes,
            "%s: the name server has not answered yet: look at /etc/resolv.conf, or use its address", text);
    } else {
        status = name->status;
        (void)snprintf(error, error_bytes, "%s", name->why);
    }
    pthread_mutex_unlock(&names->lock);
    return status;
}
