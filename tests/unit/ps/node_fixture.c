#include "node_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>
#include "dataplane/wire/format/push_number.h"
#include "fake_dp.h"
#include "ps/core/core.h"
#include "ps/core/node.h"
#include "tests/test.h"
#include "tests/unit/temporary_directory.h"
#include "tests/wait.h"

#define CALL_LIMIT_US                                                                                        \
    60000000 /* a call that takes this long has failed; nothing waits for it in a good run */
#define FIXTURE_IO_MIB 64
#define NEVER_MS       600000

static struct node_call last;
static uint32_t answer_count;

void node_call_end(struct node_call *call)
{
    for (uint32_t i = 0; i < call->reply.tensor_count; i++)
        free(call->reply.tensors[i].data);
    memset(call, 0, sizeof(*call));
}

static void on_reply(void *app, struct mr_call *call, void *user, enum mr_status status,
                     const struct mr_message *reply)
{
    struct node_fixture *n = app;
    struct node_call *mine = user;
    struct node_reply *out = &mine->reply;
    out->status = status;
    out->sequence = reply != NULL ? reply->preamble.sequence : 0;
    out->checkpoint = reply != NULL ? reply->preamble.checkpoint : 0;
    if (reply != NULL && status != MR_OK && reply->preamble.tensor_count == 1) {
        snprintf(out->text, sizeof(out->text), "%.*s", (int)reply->tensors[0].bytes,
                 (const char *)reply->tensors[0].data);
    } else if (reply != NULL && status == MR_OK) {
        out->tensor_count = reply->preamble.tensor_count;
        assert_int_in_range(out->tensor_count, 0, NODE_REPLY_TENSORS_MAX);
        for (uint32_t i = 0; i < out->tensor_count; i++) {
            out->tensors[i] = reply->tensors[i];
            out->tensors[i].data = malloc(reply->tensors[i].bytes + 1);
            memcpy(out->tensors[i].data, reply->tensors[i].data, reply->tensors[i].bytes);
        }
    }
    mine->is_answered = true;
    mine->order = ++answer_count;
    mr_call_free(n->client, call);
}

static void fill_random(void *self, void *out, size_t bytes)
{
    (void)self;
    assert_int_equal(getrandom(out, bytes, 0), bytes);
}

/* ---- life ---- */

static void connect_client(struct node_fixture *n)
{
    struct mr_endpoint_config config;
    mr_endpoint_config_default(&config);
    config.io = (struct mr_endpoint_io){n, fake_dp_client_tx_begin, fake_dp_client_tx_end, fill_random};
    config.app = n;
    config.on_reply = on_reply;
    config.udp_bytes_max = MR_UDP_BYTES_MAX;
    memset(config.client_uuid, 7, sizeof(config.client_uuid));
    assert_int_equal(mr_endpoint_create(&config, &n->client), MR_OK);
    for (uint32_t i = 0; i < n->core_count; i++)
        node_join(n, i);
}

void node_start(struct node_fixture *n, uint32_t core_count)
{
    char error[DP_ERROR_BYTES];
    n->core_count = core_count;
    n->config.cores_count = core_count;
    enum mr_status status = ps_server_start(&n->config, &n->server, error);
    if (status != MR_OK)
        fail_msg("the node does not start: %s", error);
    n->passed_on = n->config;
    connect_client(n);
}

void node_pass_config_on(struct node_fixture *n)
{
    const struct ps_core *core = fake_dp_app(0);
    const uint8_t *now = (const uint8_t *)&n->config;
    uint8_t *before = (uint8_t *)&n->passed_on;
    if (memcmp(now, before, sizeof(n->config)) == 0)
        return;
    for (size_t i = 0; i < sizeof(n->config); i++) /* the node's threads read the rest meanwhile */
        if (now[i] != before[i])
            ((uint8_t *)core->node->config)[i] = before[i] = now[i];
}

void node_stop(struct node_fixture *n)
{
    node_pass_config_on(n);
    mr_endpoint_destroy(n->client);
    n->client = NULL;
    assert_int_equal(ps_server_stop(n->server), MR_OK);
    n->server = NULL;
}

void node_restart(struct node_fixture *n, uint32_t core_count)
{
    node_stop(n);
    node_start(n, core_count);
}

static int setup(void **state, uint32_t core_count)
{
    struct node_fixture *n = calloc(1, sizeof(*n));
    assert_non_null(n);
    ps_config_default(&n->config);
    n->directory = temporary_directory_make();
    snprintf(n->config.checkpoint_directory, sizeof(n->config.checkpoint_directory), "%s/ckpt", n->directory);
    n->config.checkpoint_every_s = 0;
    n->config.checkpoint_save_on_stop = false;
    n->config.checkpoint_step_wait_ms = NEVER_MS; /* a disk may stall for seconds */
    n->config.checkpoint_allow.count = 1;
    snprintf(n->config.checkpoint_allow.values[0], PS_CONFIG_VALUE_MAX, "%s", n->directory);
    n->config.memory_messages_mib = FIXTURE_IO_MIB;
    n->config.transport_message_mib_max = 16;
    n->config.memory_limit_mib = 512;
    n->config.batches_memory_mib = 64;
    node_start(n, core_count);
    *state = n;
    return 0;
}

int node_setup(void **state)
{
    return setup(state, 1);
}

int node_setup_3_cores(void **state)
{
    return setup(state, 3);
}

int node_teardown(void **state)
{
    struct node_fixture *n = *state;
    if (n->server != NULL)
        node_stop(n);
    node_call_end(&last);
    int status = temporary_directory_remove(n->directory);
    free(n);
    return status;
}

/* ---- calls ---- */

void node_post(struct node_fixture *n, uint32_t core, struct node_call *call,
               const struct mr_call_options *options, const struct mr_tensor *tensors, uint32_t tensor_count)
{
    node_pass_config_on(n);
    struct mr_tensor copies[MR_TENSORS_MAX];
    struct mr_call_options mine = *options;
    struct mr_call *handle;
    node_call_end(call);
    mine.user = call;
    mine.sequence = n->sequence;
    if (tensor_count > 0)
        memcpy(copies, tensors, tensor_count * sizeof(*tensors));
    assert_int_equal(mr_call_begin(n->client, n->sessions[core], &mine, copies, tensor_count, &handle),
                     MR_OK);
    mr_call_send(n->client, handle, dp_now_us());
    mr_endpoint_poll(n->client, dp_now_us(), 64);
}

void node_look(struct node_fixture *n)
{
    do {
        mr_endpoint_poll(n->client, dp_now_us(), 64);
    } while (fake_dp_client_receive(n->client));
    mr_endpoint_flush(n->client, dp_now_us());
}

const struct node_reply *node_wait(struct node_fixture *n, struct node_call *call)
{
    while (!call->is_answered) {
        mr_endpoint_poll(n->client, dp_now_us(), 64);
        fake_dp_client_receive(n->client);
    }
    mr_endpoint_flush(n->client, dp_now_us());
    return &call->reply;
}

void node_leave(struct node_fixture *n, uint32_t core)
{
    mr_client_session_close(n->client, n->sessions[core], dp_now_us());
    mr_endpoint_flush(n->client, dp_now_us());
}

void node_join(struct node_fixture *n, uint32_t core)
{
    struct mr_address to = fake_dp_address(core);
    assert_int_equal(mr_client_session_open(n->client, &to, (uint16_t)core, NULL, &n->sessions[core]), MR_OK);
}

static void node_fixture_begin(struct node_fixture *n, uint32_t core, const struct mr_call_options *options,
                               const struct mr_tensor *tensors, uint32_t tensor_count)
{
    node_post(n, core, &last, options, tensors, tensor_count);
}

const struct node_reply *node_end(struct node_fixture *n)
{
    return node_wait(n, &last);
}

void node_begin(struct node_fixture *n, uint32_t core, uint8_t op, uint16_t table,
                const struct mr_tensor *tensors, uint32_t tensor_count)
{
    struct mr_call_options options = {.op = op, .table = table, .deadline_us = dp_now_us() + CALL_LIMIT_US};
    node_fixture_begin(n, core, &options, tensors, tensor_count);
}

const struct node_reply *node_call_step(struct node_fixture *n, uint32_t core, uint8_t op, uint16_t table,
                                        uint64_t step, uint16_t flags, const struct mr_tensor *tensors,
                                        uint32_t tensor_count)
{
    struct mr_call_options options = {
        .op = op, .table = table, .flags = flags, .step = step, .deadline_us = dp_now_us() + CALL_LIMIT_US};
    node_fixture_begin(n, core, &options, tensors, tensor_count);
    return node_end(n);
}

const struct node_reply *node_call(struct node_fixture *n, uint32_t core, uint8_t op, uint16_t table,
                                   const struct mr_tensor *tensors, uint32_t tensor_count)
{
    return node_call_step(n, core, op, table, 0, 0, tensors, tensor_count);
}

void node_check(const struct node_reply *reply, enum mr_status status, const char *text)
{
    if (reply->status != status || (text != NULL && strstr(reply->text, text) == NULL)) {
        fail_msg("answered %s \"%s\", not %s \"%s\"", mr_status_name(reply->status), reply->text,
                 mr_status_name(status), text != NULL ? text : "");
    }
}

struct mr_feature node_table(const char *name, float init)
{
    struct mr_feature f = mr_feature_table(name, NODE_DIM);
    f.initializer = MR_INIT_CONSTANT;
    f.init_a = init;
    f.optimizer = MR_OPT_SGD;
    f.learning_rate = 1;
    return f;
}

struct mr_feature node_variable(const char *name, uint32_t elements)
{
    struct mr_feature f = mr_feature_variable(name, 1, &elements);
    f.optimizer = MR_OPT_SGD;
    f.learning_rate = 1;
    return f;
}

uint32_t node_create(struct node_fixture *n, const struct mr_feature *feature)
{
    struct mr_tensor t = mr_tensor_2d(MR_U8, 1, sizeof(*feature), feature);
    const struct node_reply *reply = node_call(n, 0, MR_OP_CREATE, 0, &t, 1);
    node_check(reply, MR_OK, NULL);
    return *(const uint32_t *)reply->tensors[0].data;
}

uint32_t node_core_of_key(const struct node_fixture *n, uint64_t key, uint64_t seed)
{
    return mr_partition_of(mr_key_hash(key, seed)) * n->core_count / MR_PARTITION_COUNT;
}

uint32_t node_core_of_variable(const struct node_fixture *n, const char *name)
{
    return mr_variable_partition(name) * n->core_count / MR_PARTITION_COUNT;
}

void node_feed(struct node_fixture *n, uint64_t batch_id, uint32_t table, const uint64_t *keys,
               uint32_t key_count)
{
    uint64_t *mine = calloc(key_count + 1, sizeof(*mine));
    uint32_t *offsets = calloc(key_count + 1, sizeof(*offsets));
    for (uint32_t core = 0; core < n->core_count; core++) {
        uint32_t count = 0;
        for (uint32_t i = 0; i < key_count; i++) {
            if (node_core_of_key(n, keys[i], 0) == core)
                mine[count++] = keys[i];
            offsets[i + 1] = count;
        }
        uint32_t head[4] = {table, key_count, 1, 0};
        struct mr_tensor tensors[4] = {mr_tensor_1d(MR_U64, 1, &batch_id), mr_tensor_1d(MR_U32, 4, head),
                                       mr_tensor_1d(MR_U64, count, mine),
                                       mr_tensor_1d(MR_U32, key_count + 1, offsets)};
        node_check(node_call(n, core, MR_OP_FEED_SAMPLE, 0, tensors, 4), MR_OK, NULL);
    }
    free(offsets);
    free(mine);
}

uint32_t node_push_batch(struct node_fixture *n, uint32_t core, uint64_t batch_id, uint32_t table,
                         uint32_t samples, float value)
{
    float *gradient = malloc(samples * NODE_DIM * sizeof(*gradient));
    uint32_t head[4] = {table, 0};
    for (uint32_t i = 0; i < samples * NODE_DIM; i++)
        gradient[i] = value;
    struct mr_tensor tensors[3] = {mr_tensor_1d(MR_U64, 1, &batch_id), mr_tensor_1d(MR_U32, 4, head),
                                   mr_tensor_3d(MR_F32, samples, 1, NODE_DIM, gradient)};
    const struct node_reply *reply =
        node_call_step(n, core, MR_OP_PUSH_GRAD_BATCH, 0, batch_id + 1, 0, tensors, 3);
    node_check(reply, MR_OK, NULL);
    free(gradient);
    return *(const uint32_t *)reply->tensors[0].data;
}

void node_save_row(struct node_fixture *n, uint64_t number, uint64_t out[MR_SAVE_ROW_WORDS])
{
    const struct mr_tensor t = mr_tensor_1d(MR_U64, 1, &number);
    const struct node_reply *reply = node_call(n, 0, MR_OP_CHECKPOINT_STATUS, 0, &t, 1);
    node_check(reply, MR_OK, NULL);
    assert_int_equal(reply->tensors[3].dims[0], 1);
    mr_body_read_row(MR_BODY_SAVE_ROW, &reply->tensors[3], 0, out);
    assert_int_equal(out[MR_SAVE_ROW_NUMBER], number);
}

float node_value(struct node_fixture *n, uint32_t table, uint64_t key)
{
    struct mr_tensor t = mr_tensor_1d(MR_U64, 1, &key);
    const struct node_reply *reply = node_call_step(n, node_core_of_key(n, key, 0), MR_OP_LOOKUP,
                                                    (uint16_t)table, 0, MR_FEED_READ_ONLY, &t, 1);
    node_check(reply, MR_OK, NULL);
    return *(const float *)reply->tensors[0].data;
}

uint64_t node_counter(struct node_fixture *n, uint32_t core, const char *name)
{
    const struct node_reply *reply = node_call(n, core, MR_OP_STATS, 0, NULL, 0);
    node_check(reply, MR_OK, NULL);
    const char *at = reply->tensors[0].data, *end = at + reply->tensors[0].bytes;
    for (uint32_t i = 0; at < end; i++) {
        size_t length = (size_t)((const char *)memchr(at, '\n', (size_t)(end - at)) - at);
        if (length == strlen(name) && memcmp(at, name, length) == 0)
            return ((const uint64_t *)reply->tensors[1].data)[i];
        at += length + 1;
    }
    fail_msg("there is no counter %s", name);
    return 0;
}

static const uint64_t *save_view(struct node_fixture *n)
{
    const struct node_reply *reply = node_call(n, 0, MR_OP_CHECKPOINT_STATUS, 0, NULL, 0);
    node_check(reply, MR_OK, NULL);
    return reply->tensors[0].data;
}

const uint64_t *node_wait_saved(struct node_fixture *n)
{
    const uint64_t *view;
    WAIT_UNTIL((view = save_view(n))[MR_PROGRESS_STATE] == 0);
    return view;
}

void node_drop(struct node_fixture *n, const char *name)
{
    char names[MR_NAME_BYTES] = {0};
    (void)snprintf(names, sizeof(names), "%s", name);
    const struct mr_tensor t = mr_tensor_2d(MR_U8, 1, MR_NAME_BYTES, names);
    node_check(node_call(n, 0, MR_OP_DROP, 0, &t, 1), MR_OK, NULL);
}

uint64_t node_save(struct node_fixture *n)
{
    struct mr_tensor t = mr_tensor_1d(MR_U8, 0, NULL);
    const struct node_reply *reply = node_call(n, 0, MR_OP_SAVE, 0, &t, 1);
    node_check(reply, MR_OK, NULL);
    uint64_t id = *(const uint64_t *)reply->tensors[0].data;
    const uint64_t *view = node_wait_saved(n);
    assert_int_equal(view[MR_PROGRESS_STATUS], MR_OK);
    assert_int_equal(view[MR_PROGRESS_LAST_GOOD_ID], id);
    return id;
}

uint64_t node_durable_in(struct node_fixture *n, uint64_t number)
{
    n->sequence = mr_push_sequence(0, number);
    const struct node_reply *reply = node_call_step(n, 0, MR_OP_PUSH_GRAD, 0, number, 0, NULL, 0);
    n->sequence = 0;
    node_check(reply, MR_OK, NULL);
    return reply->checkpoint;
}

const struct node_reply *node_restore(struct node_fixture *n, uint64_t id)
{
    struct mr_tensor tensors[2] = {mr_tensor_1d(MR_U8, 0, NULL), mr_tensor_1d(MR_U64, 1, &id)};
    return node_call(n, 0, MR_OP_RESTORE, 0, tensors, 2);
}
