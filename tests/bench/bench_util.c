#include "tests/bench/bench_util.h"
#include <stdio.h>
#include <stdlib.h>

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

    options->busy_poll_us = UINT32_MAX;
    if (mr_client_create(options, &client, error, sizeof(error)) == MR_OK)
        return client;
    fprintf(stderr, "bench: %s\n", error);
    exit(1);
}
