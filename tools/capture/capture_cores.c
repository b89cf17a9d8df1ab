#include "tools/capture/capture_cores.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include "millrace_observe.h"

#define WAIT_MS         50u   /* between two looks at whether the user wants an end */
#define WAIT_STOPPED_MS 1000u /* for a server that may be gone */
#define END_MS          1000u

static uint64_t time_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static uint64_t random_id(void)
{
    uint64_t id = 0;
    while (id == 0)
        if (getrandom(&id, sizeof(id), 0) != sizeof(id))
            id = 0;
    return id;
}

static bool make_list(struct capture_cores *cores, uint32_t only)
{
    cores->count = only == UINT32_MAX ? mr_client_core_count(cores->client) : 1;
    cores->list = calloc(cores->count, sizeof(*cores->list));
    for (uint32_t i = 0; i < cores->count && cores->list != NULL; i++) {
        struct capture_core *core = &cores->list[i];
        core->all = cores;
        core->index = i;
        core->number = only == UINT32_MAX ? i : only;
        (void)mr_client_core_place(cores->client, core->number, &core->place);
    }
    return cores->list != NULL;
}

static void end_some(struct capture_cores *cores, uint32_t count)
{
    const struct mr_capture_request request = {.kind = MR_REQUEST_CAPTURE_END, .id = cores->id};
    const struct mr_options options = {.deadline_ms = END_MS};
    for (uint32_t i = 0; i < count; i++)
        (void)mr_capture(cores->client, &options, cores->list[i].number, &request, NULL, NULL, NULL);
}

/* One after the other, so that of two callers one gets them all. */
enum mr_status capture_cores_start(struct capture_cores *cores, struct mr_client *client, uint32_t only,
                                   const struct mr_capture_request *request)
{
    struct mr_capture_request start = *request;
    cores->client = client;
    cores->id = start.id = random_id();
    start.kind = MR_REQUEST_CAPTURE_START;
    if (!make_list(cores, only))
        return MR_NO_MEMORY;
    cores->start_ns = time_ns();
    for (uint32_t i = 0; i < cores->count; i++) {
        struct capture_core *core = &cores->list[i];
        const enum mr_status status =
            mr_capture(client, NULL, core->number, &start, &core->start, NULL, NULL);
        if (status != MR_OK) {
            const uint32_t started = i;
            cores->count = 0;
            end_some(cores, started);
            /* Once more, for its text: that of the last call that failed. */
            return started == 0 ? status : mr_capture(client, NULL, core->number, &start, NULL, NULL, NULL);
        }
    }
    return MR_OK;
}

static void capture_cores_visit(void *arg, const struct mr_captured *packet)
{
    const struct capture_core *core = arg;
    core->all->visit(core->all->arg, core, packet);
}

static enum mr_status begin_read(struct capture_core *core, bool is_last)
{
    const struct mr_options options = {.future = &core->future};
    const struct mr_capture_request request = {.kind = is_last ? MR_REQUEST_CAPTURE_HALT
                                                               : MR_REQUEST_CAPTURE_READ,
                                               .id = core->all->id,
                                               .position = core->now.next};
    return mr_capture(core->all->client, &options, core->number, &request, &core->now, capture_cores_visit,
                      core);
}

static enum mr_status end_read(struct capture_core *core)
{
    enum mr_status status = MR_CANCELLED;
    uint32_t waited_ms = 0;
    while (waited_ms < WAIT_STOPPED_MS && !mr_future_wait_for(core->future, WAIT_MS))
        waited_ms += core->all->is_stopped() ? WAIT_MS : 0;
    if (mr_future_done(core->future))
        status = mr_future_wait(core->future, NULL);
    mr_future_destroy(core->future);
    core->future = NULL;
    return status;
}

enum mr_status capture_cores_read(struct capture_cores *cores, bool is_last, uint64_t *left_bytes)
{
    enum mr_status status = MR_OK;
    uint32_t begun = 0;
    *left_bytes = 0;
    while (begun < cores->count && (status = begin_read(&cores->list[begun], is_last)) == MR_OK)
        begun++;
    for (uint32_t i = 0; i < begun; i++) {
        struct capture_core *core = &cores->list[i];
        const enum mr_status one = end_read(core);
        status = status == MR_OK ? one : status;
        if (core->now.left_bytes > *left_bytes)
            *left_bytes = core->now.left_bytes;
    }
    cores->end_ns = time_ns();
    return status;
}

void capture_cores_end(struct capture_cores *cores)
{
    end_some(cores, cores->count);
}

void capture_cores_free(struct capture_cores *cores)
{
    free(cores->list);
    cores->list = NULL;
}
