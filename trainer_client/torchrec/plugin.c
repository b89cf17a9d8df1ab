/* The functions that TorchRec calls: interface.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "trainer_client/torchrec/instance.h"
#include "trainer_client/torchrec/line.h"

const char *IO_type = "millrace";

void *IO_Initialize(const char *configuration)
{
    char error[768] = "";
    struct tde_instance *t = tde_instance_create(configuration, error, sizeof error);
    if (t == NULL)
        tde_line("millrace://%.200s: %s", configuration, error);
    return t;
}

void IO_Finalize(void *instance)
{
    if (instance != NULL)
        tde_instance_destroy(instance);
}

/* TorchRec does not look whether an instance could be made. */
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

/* Where what is copied goes, one behind the other. */
static void *copy(uint8_t **at, const void *from, size_t bytes)
{
    void *to = *at;
    if (bytes > 0)
        memcpy(to, from, bytes);
    *at += bytes;
    return to;
}

static struct tde_job *job_with(size_t bytes, const char *what, const char *table)
{
    struct tde_job *job = calloc(1, sizeof *job + bytes);
    if (job == NULL) {
        tde_line("%s of table %s: no memory. Ending the process", what, table);
        abort();
    }
    return job;
}

void IO_Fetch(void *instance, struct tde_fetch fetch)
{
    struct tde_instance *t = made(instance, "fetch", fetch.table);
    size_t ids_bytes = fetch.id_count * sizeof *fetch.ids,
           columns_bytes = fetch.column_count * sizeof *fetch.columns;
    size_t name_bytes = strlen(fetch.table) + 1;
    struct tde_job *job = job_with(ids_bytes + columns_bytes + name_bytes, "fetch", fetch.table);
    uint8_t *at = (uint8_t *)(job + 1);
    job->fetch = fetch;
    job->fetch.ids = copy(&at, fetch.ids, ids_bytes);
    job->fetch.columns = copy(&at, fetch.columns, columns_bytes);
    job->fetch.table = copy(&at, fetch.table, name_bytes);
    tde_instance_add(t, job);
}

void IO_Pull(void *instance, struct tde_fetch fetch)
{
    IO_Fetch(instance, fetch);
}

void IO_Push(void *instance, struct tde_push push)
{
    struct tde_instance *t = made(instance, "push", push.table);
    size_t columns_bytes = push.column_count * sizeof *push.columns, name_bytes = strlen(push.table) + 1;
    struct tde_job *job = job_with(columns_bytes + name_bytes, "push", push.table);
    uint8_t *at = (uint8_t *)(job + 1);
    job->is_push = true;
    job->push = push;
    job->push.columns = copy(&at, push.columns, columns_bytes);
    job->push.table = copy(&at, push.table, name_bytes);
    tde_instance_add(t, job);
}
