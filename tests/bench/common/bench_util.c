#include "tests/bench/common/bench_util.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void bench_check(enum mr_status status, const char *what)
{
    if (status == MR_OK)
        return;
    fprintf(stderr, "bench: %s: %s (%s)\n", what, mr_status_text(status), mr_last_error());
    exit(1);
}

struct mr_client *bench_connect(struct mr_client_options *options)
{
    struct mr_client *client;
    char error[256];
    if (options->busy_poll_us == 0)
        options->busy_poll_us = UINT32_MAX;
    if (mr_client_create(options, &client, error, sizeof(error)) == MR_OK)
        return client;
    fprintf(stderr, "bench: %s\n", error);
    exit(1);
}

double bench_resident_bytes(unsigned long pid)
{
    char path[64], line[256];
    double kib = 0;
    (void)snprintf(path, sizeof(path), "/proc/%lu/status", pid);
    FILE *status = fopen(path, "r");
    if (status == NULL)
        bench_give_up("the server's process is not there");
    while (fgets(line, sizeof(line), status) != NULL)
        if (strncmp(line, "VmRSS:", 6) == 0)
            kib = strtod(line + 6, NULL);
    (void)fclose(status);
    return kib * 1024;
}
