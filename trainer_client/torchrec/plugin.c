/* The functions that TorchRec calls: interface.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "trainer_client/torchrec/instance.h"
#include "trainer_client/torchrec/report.h"

const char *IO_type = "millrace";

void *IO_Initialize(const char *configuration)
{
    char error[768] = "";
    struct tde_instance *t = tde_instance_create(configuration, error, sizeof(error));
    if (t == NULL)
        tde_line("millrace://%.200s: %s", configuration, error);
    return t;
}

void IO_Finalize(void *instance)
{
    if (instance != NULL)
        tde_instance_destroy(instance);
}

/* TorchRec does not check whether an instance could be made. */
static struct tde_instance *made(void *instance, const char *what, const char *table)
{
    if (instance == NULL) {
        tde_line(
            "%s of table %s without an instance: IO_Initialize() failed, and said why. Ending the process",
            what, table);
        abort();
    }
    return instance;
}

/* Copies to *at, and moves it to the end of the copy. */
static void *plugin_copy(uint8_t **at, const void *from, size_t bytes)
{
    void *to = *at;
    if (bytes > 0)
        memcpy(to, from, bytes);
    *at += bytes;
    return to;
}

static struct tde_job *job_with(size_t bytes, const char *what, const char *table)
{
    struct tde_job *job = malloc(sizeof(*job) + bytes);
    if (job == NULL) {
        tde_line("%s of table %s: no memory. Ending the process", what, table);
        abort();
    }
    *job = (struct tde_job){0};
    return job;
}

void IO_Fetch(void *instance, struct tde_fetch fetch)
{
    struct tde_instance *t = made(instance, "fetch", fetch.table);
    size_t ids_bytes = fetch.id_count * sizeof(*fetch.ids),
           columns_bytes = fetch.column_count * sizeof(*fetch.columns);
    size_t name_bytes = strlen(fetch.table) + 1;
    struct tde_job *job = job_with(ids_bytes + columns_bytes + name_bytes, "fetch", fetch.table);
    uint8_t *at = (uint8_t *)(job + 1);
    job->fetch = fetch;
    job->fetch.ids = plugin_copy(&at, fetch.ids, ids_bytes);
    job->fetch.columns = plugin_copy(&at, fetch.columns, columns_bytes);
    job->fetch.table = plugin_copy(&at, fetch.table, name_bytes);
    tde_instance_add(t, job);
}

void IO_Pull(void *instance, struct tde_fetch fetch)
{
    IO_Fetch(instance, fetch);
}

/* Whether the offsets are those of blocks that a row could have. If not, the job is refused before it looks
 * at data. */
static bool is_sane(const struct tde_push *p)
{
    uint64_t columns = p->column_count == 0 ? 1 : p->column_count;
    if (p->id_count == 0 || p->offset_count != p->id_count * columns * p->state_count + 1)
        return false;
    for (uint32_t i = 0; i + 1 < p->offset_count; i++)
        if (p->offsets[i + 1] < p->offsets[i] ||
            p->offsets[i + 1] - p->offsets[i] > MR_DIM_MAX * sizeof(float))
            return false;
    return true;
}

void IO_Push(void *instance, struct tde_push push)
{
    struct tde_instance *t = made(instance, "push", push.table);
    bool has_data = is_sane(&push);
    size_t ids_bytes = push.id_count * sizeof(*push.ids),
           columns_bytes = push.column_count * sizeof(*push.columns);
    size_t offsets_bytes = push.offset_count * sizeof(*push.offsets),
           states_bytes = push.state_count * sizeof(*push.states), name_bytes = strlen(push.table) + 1;
    size_t data_bytes = has_data ? push.offsets[push.offset_count - 1] - push.offsets[0] : 0;
    struct tde_job *job =
        job_with(ids_bytes + columns_bytes + offsets_bytes + states_bytes + data_bytes + name_bytes, "push",
                 push.table);
    uint8_t *at = (uint8_t *)(job + 1);
    job->is_push = true;
    job->push = push;
    job->push.ids = plugin_copy(&at, push.ids, ids_bytes);
    job->push.columns = plugin_copy(&at, push.columns, columns_bytes);
    uint64_t *offsets = plugin_copy(&at, push.offsets, offsets_bytes);
    job->push.offsets = offsets;
    job->push.states = plugin_copy(&at, push.states, states_bytes);
    job->push.data =
        has_data ? plugin_copy(&at, (const uint8_t *)push.data + push.offsets[0], data_bytes) : NULL;
    for (uint32_t i = 0; has_data && i < push.offset_count; i++)
        offsets[i] -= push.offsets[0];
    job->push.table = plugin_copy(&at, push.table, name_bytes);
    tde_instance_add(t, job);
}
