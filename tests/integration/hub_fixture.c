#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>
#include "tests/test.h"
#include "tests/integration/hub_fixture.h"

#define COMMAND_BYTES 1024
#define TEXT_BYTES    16

const char *hub_fixture_program;

static void run_hub(struct hub_fixture *f)
{
    char command[COMMAND_BYTES];
    snprintf(command, sizeof(command),
             "exec %s --listen " HUB_ADDRESS " --without-key --allow / --server %s %s 2>>%s",
             hub_fixture_program, f->node->address, f->options != NULL ? f->options : "", f->log);
    netns_spawn(&f->node->net, NETNS_CLIENT, (char *[]){"/bin/sh", "-c", command, NULL}, &f->process);
}

void hub_fixture_start(struct hub_fixture *f, const struct node_fixture *node, const char *options)
{
    *f = (struct hub_fixture){.node = node, .options = options};
    snprintf(f->samples, sizeof(f->samples), "%.40s/samples.tsv", node->directory);
    snprintf(f->log, sizeof(f->log), "%.40s/hub.log", node->directory);
    run_hub(f);
}

void hub_fixture_kill(struct hub_fixture *f)
{
    assert_int_equal(netns_end(&f->process, SIGKILL), 128 + SIGKILL);
}

void hub_fixture_restart(struct hub_fixture *f)
{
    run_hub(f);
}

void hub_fixture_stop(struct hub_fixture *f)
{
    assert_int_equal(netns_end(&f->process, SIGTERM), 0);
}

struct mr_client *hub_fixture_connect(void)
{
    struct mr_client_options options = {
        .server = HUB_ADDRESS, .connect_ms = NODE_READY_MS, .deadline_ms = NODE_READY_MS};
    struct mr_client *client = NULL;
    char error[512] = "";
    if (mr_client_create(&options, &client, error, sizeof(error)) != MR_OK)
        fail_msg("%s", error);
    return client;
}

bool hub_fixture_logged(const struct hub_fixture *f, const char *text)
{
    char line[COMMAND_BYTES];
    bool found = false;
    FILE *log = fopen(f->log, "r");
    assert_non_null(log);
    while (!found && fgets(line, sizeof(line), log) != NULL)
        found = strstr(line, text) != NULL;
    (void)fclose(log);
    return found;
}

/* ---- samples ---- */

static bool is_positive(uint32_t sample)
{
    return sample % 3 == 0;
}

/* Few values in the first slots, many in the last ones. */
static void category(uint32_t sample, uint32_t slot, char text[TEXT_BYTES])
{
    snprintf(text, TEXT_BYTES, "%08x", sample * (slot + 1) % (7 + slot * slot));
}

static void write_sample(FILE *file, uint32_t sample)
{
    char text[TEXT_BYTES];
    (void)fprintf(file, "%d", is_positive(sample));
    for (uint32_t i = 0; i < HUB_DENSE; i++)
        (void)fprintf(file, "\t%u", sample + i);
    for (uint32_t slot = 0; slot < HUB_SLOTS; slot++) {
        category(sample, slot, text);
        (void)fprintf(file, "\t%s", text);
    }
    (void)fputc('\n', file);
}

void hub_fixture_write_samples(const struct hub_fixture *f, uint32_t count, uint32_t broken_behind)
{
    FILE *file = fopen(f->samples, "w");
    assert_non_null(file);
    for (uint32_t i = 0; i < count; i++) {
        write_sample(file, i);
        if (i == broken_behind)
            (void)fputs("1\tseven\t8\n", file);
    }
    assert_int_equal(fclose(file), 0);
}

struct mr_sample_plan hub_fixture_plan(const struct hub_fixture *f, uint32_t batch_samples)
{
    return (struct mr_sample_plan){.path = f->samples,
                                   .format = "criteo",
                                   .batch_samples = batch_samples,
                                   .epochs = 1,
                                   .table = "clicks"};
}

uint32_t hub_fixture_sample(const struct mr_batch *batch, uint32_t index)
{
    const float *dense = batch->dense + (size_t)index * HUB_DENSE;
    double number = round(expm1((double)dense[0]));
    for (uint32_t i = 0; i < HUB_DENSE; i++) /* log(1 + x), as the format is described */
        assert_true(fabs((double)dense[i] - log1p(number + i)) < 1e-5);
    assert_true(number >= 0 && batch->labels[index] == (is_positive((uint32_t)number) ? 1.0f : 0.0f));
    return (uint32_t)number;
}

uint64_t hub_fixture_key(uint32_t sample, uint32_t slot)
{
    char text[TEXT_BYTES];
    category(sample, slot, text);
    return XXH3_64bits_withSeed(text, strlen(text), slot);
}
