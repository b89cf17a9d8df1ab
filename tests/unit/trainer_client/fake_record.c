/* The fake node's memory of numbered pushes, and its checkpoints. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "dataplane/wire/format/push_number.h"
#include "tests/unit/trainer_client/fake_node.h"

static uint32_t lane_of(const struct fake_core *core, uint64_t sequence)
{
    uint32_t lane = mr_push_lane(sequence);
    return lane != 0 ? lane : mr_push_lane_of(core->node->core_count, core->index);
}

static uint64_t number_of(const struct mr_request *request)
{
    return mr_push_number(request->message->preamble.sequence);
}

static struct fake_lane *find(struct fake_lane *lanes, const uint8_t *uuid, uint32_t lane)
{
    for (uint32_t i = 0; i < FAKE_LANES_MAX; i++) {
        struct fake_lane *l = &lanes[i];
        if (l->used && l->lane == lane && memcmp(l->uuid, uuid, MR_UUID_BYTES) == 0)
            return l;
        if (!l->used) {
            *l = (struct fake_lane){.used = true, .lane = lane};
            memcpy(l->uuid, uuid, MR_UUID_BYTES);
            return l;
        }
    }
    abort();
}

static struct fake_lane *lane_for(struct fake_core *core, const struct mr_request *request)
{
    return find(core->lanes, request->client_uuid, lane_of(core, request->message->preamble.sequence));
}

bool fake_record_has(struct fake_core *core, const struct mr_request *request)
{
    uint64_t number = number_of(request);
    return number != 0 && lane_for(core, request)->has[number % FAKE_NUMBERS_MAX];
}

void fake_record_add(struct fake_core *core, const struct mr_request *request)
{
    uint64_t number = number_of(request);
    if (number != 0)
        lane_for(core, request)->has[number % FAKE_NUMBERS_MAX] = true;
}

void fake_record_skip(struct fake_core *core, const struct mr_request *request, uint64_t from)
{
    struct fake_lane *lane = lane_for(core, request);
    for (uint64_t number = from; number <= number_of(request); number++)
        lane->has[number % FAKE_NUMBERS_MAX] = true;
}

void fake_record_tell(struct fake_core *core, struct mr_endpoint *ep, const struct mr_request *request)
{
    mr_endpoint_set_checkpoint(ep, core->node->origin.checkpoint);
    if (number_of(request) != 0)
        mr_reply_set_sequence(ep, request->ref, lane_for(core, request)->durable);
}

static void note_durable(struct fake_lane *lane)
{
    lane->durable = 0;
    while (lane->durable + 1 < FAKE_NUMBERS_MAX && lane->has[lane->durable + 1])
        lane->durable++;
}

/* The record does not know of which keys it speaks: what not all cores have that know the lane, nobody
 * has. */
static void save_lane(struct fake_node *node, const struct fake_lane *lane)
{
    struct fake_lane *saved = find(node->saved_lanes, lane->uuid, lane->lane);
    const bool is_first = !saved->is_saved;
    for (uint32_t n = 0; n < FAKE_NUMBERS_MAX; n++)
        saved->has[n] = lane->has[n] && (is_first || saved->has[n]);
    saved->durable = is_first || lane->durable < saved->durable ? lane->durable : saved->durable;
    saved->is_saved = true;
}

void fake_record_hand_over(struct fake_lane *from[FAKE_CORES_MAX], struct fake_node *to)
{
    struct fake_node *all = calloc(1, sizeof(*all));
    assert_non_null(all);
    all->saved_lanes = calloc(FAKE_LANES_MAX, sizeof(*all->saved_lanes));
    for (uint32_t c = 0; c < FAKE_CORES_MAX && from[c] != NULL; c++) {
        for (uint32_t i = 0; i < FAKE_LANES_MAX && from[c][i].used; i++)
            save_lane(all, &from[c][i]);
        free(from[c]);
    }
    for (uint32_t c = 0; c < to->core_count; c++)
        memcpy(to->cores[c].lanes, all->saved_lanes, FAKE_LANES_MAX * sizeof(*all->saved_lanes));
    free(all->saved_lanes);
    free(all);
}

void fake_record_save(struct fake_node *node)
{
    memcpy(node->saved, node->features, FAKE_FEATURES_MAX * sizeof(*node->saved));
    node->saved_feature_count = node->feature_count;
    node->origin.checkpoint = ++node->saves;
    node->saved_origin = node->origin;
    memset(node->saved_lanes, 0, FAKE_LANES_MAX * sizeof(*node->saved_lanes));
    for (uint32_t c = 0; c < node->core_count; c++) {
        for (uint32_t i = 0; i < FAKE_LANES_MAX && node->cores[c].lanes[i].used; i++) {
            struct fake_lane *lane = &node->cores[c].lanes[i];
            note_durable(lane);
            save_lane(node, lane);
        }
    }
}

void fake_record_restore(struct fake_node *node)
{
    memcpy(node->features, node->saved, FAKE_FEATURES_MAX * sizeof(*node->saved));
    node->feature_count = node->saved_feature_count;
    node->origin = node->saved_origin;
    for (uint32_t c = 0; c < FAKE_CORES_MAX; c++)
        memcpy(node->cores[c].lanes, node->saved_lanes, FAKE_LANES_MAX * sizeof(*node->saved_lanes));
}
