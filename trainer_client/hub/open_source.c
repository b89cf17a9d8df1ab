#include "trainer_client/hub/open_source.h"

#include <stdio.h>
#include <string.h>
#include "trainer_client/hub/kafka/kafka_path.h"
#include "trainer_client/hub/kafka/kafka_source.h"
#include "trainer_client/hub/samples/file_source.h"
#include "trainer_client/hub/samples/live_input.h"
#include "trainer_client/hub/samples/live_source.h"

/* What is read once has one order, and one part: whether it is the one for training, its samples tell. */
static enum mr_status check_live(const struct hub_request *request, char *error)
{
    if (request->epochs == 1 && request->shuffle_seed == 0 && request->held_out_ppm == 0)
        return MR_OK;
    snprintf(
        error, HUB_ERROR_BYTES,
        "%.200s is read once, in its order: its plan has epochs = 1, shuffle_seed = 0 and held_out_share = 0",
        request->path);
    return MR_INVALID_ARGUMENT;
}

enum mr_status hub_batch_source_open(const struct hub_batch_source_options *options,
                                     struct hub_batch_source **out, char *error)
{
    const char *path = options->request->path;
    const bool is_kafka = hub_kafka_path_is(path);
    if (!is_kafka && !options->follow && strcmp(path, HUB_STANDARD_INPUT) != 0)
        return hub_file_source_open(options, out, error);
    const enum mr_status status = check_live(options->request, error);
    if (status != MR_OK)
        return status;
    return is_kafka ? hub_kafka_source_open(options, out, error) : hub_live_source_open(options, out, error);
}
