/* What a trainer asked for with START_SAMPLE: checked, comparable, and with a fingerprint of its own. Pure,
 * any thread. */
#ifndef HUB_REQUEST_H
#define HUB_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "dataplane/wire/format/message.h"
#include "dataplane/wire/format/mr_feature.h"
#include "dataplane/wire/format/mr_status.h"
#include "dataplane/wire/format/op.h"
#include "trainer_client/hub/format/format.h"

#define HUB_PATH_BYTES        1024u
#define HUB_DIFFERENCE_BYTES  320u /* room for what sets two apart */
#define HUB_BATCH_SAMPLES_MAX 65536u
#define HUB_EPOCHS_MAX        1000000u
#define HUB_HELD_OUT_PPM_MAX  900000u

struct hub_request {
    char path[HUB_PATH_BYTES];
    char format[HUB_FORMAT_BYTES];
    char table[MR_NAME_BYTES];
    uint32_t batch_samples, epochs;
    uint64_t shuffle_seed;
    uint32_t held_out_ppm;
    bool held_out, strict;
    uint64_t run;
};

/* MR_INVALID_ARGUMENT, MR_BAD_MESSAGE: `why` is one line. `out` is untouched then. */
enum mr_status hub_request_parse(const struct mr_message *message, struct hub_request *out, const char **why);
/* Writes the first thing that sets `wanted` apart from what is `taken` up, "batch_samples 512, not 256";
 * false: they are equal. */
bool hub_request_differs(const struct hub_request *taken, const struct hub_request *wanted, char *text,
                         size_t text_bytes);
/* What tells the plan and the run apart from all others: the same after a restart of the hub, so that the
 * server's record still fits. `data` is a digest of the samples; `salt` is 0, or makes it another plan. */
struct mr_plan hub_request_plan(const struct hub_request *r, uint64_t data, uint64_t salt);
/* The stream that the plan's batches go by unless another plan has it. */
uint32_t hub_request_stream(const struct hub_request *r, uint64_t salt);

#endif
