/* Packets that a core receives and sends, for whoever captures them (dataplane/wire/format/capture.h). */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include "dataplane/wire/base/printable.h"
#include "dataplane/capture/capture.h"
#include "dataplane/udp/address.h"
#include "ps/ops/ops.h"

#define ABOUT_BYTES 1024u

static bool is_within(uint64_t value, uint64_t min, uint64_t max)
{
    return value >= min && value <= max;
}

/* ---- start and end ---- */

void ps_capture_end(struct ps_core *core)
{
    dp_core_set_capture(core->dp_core, NULL);
    dp_capture_destroy(core->capture);
    core->capture = NULL;
}

void ps_capture_poll(struct ps_core *core, uint64_t now_us)
{
    if (dp_capture_is_forgotten(core->capture, now_us))
        ps_capture_end(core);
}

static void config_of(const struct ps_op *op, const uint64_t *ask, struct dp_capture_config *config)
{
    const struct ps_node *node = op->core->node;
    const uint16_t first_port = (uint16_t)node->config->port_udp_port;
    *config = (struct dp_capture_config){.id = ask[MR_CAPTURE_ASK_ID],
                                         .port = (uint16_t)ask[MR_CAPTURE_ASK_PORT],
                                         .snap_bytes = (uint32_t)ask[MR_CAPTURE_ASK_SNAP_BYTES],
                                         .ring_bytes = ask[MR_CAPTURE_ASK_KIB] << 10,
                                         .idle_us = ask[MR_CAPTURE_ASK_IDLE_MS] * 1000,
                                         .own_port = (uint16_t)(first_port + op->core->index),
                                         .first_port = first_port,
                                         .port_count = (uint16_t)node->core_count};
    memcpy(config->ip, ask + MR_CAPTURE_ASK_IP, sizeof(config->ip));
    memcpy(config->ops, ask + MR_CAPTURE_ASK_OPS, sizeof(config->ops));
    (void)mr_call_ref_address(op->ep, op->request->ref, &config->reader);
    (void)mr_printable(config->who, sizeof(config->who), op->tensors[1].data, op->tensors[1].bytes);
}

static bool check_start(const struct ps_op *op, const uint64_t *ask)
{
    if (!ps_check_tensor(op, 1, MR_U8, 1, "who"))
        return false;
    if (ask[MR_CAPTURE_ASK_ID] == 0 || op->tensors[1].bytes >= MR_CAPTURE_WHO_BYTES ||
        ask[MR_CAPTURE_ASK_PORT] > UINT16_MAX ||
        !is_within(ask[MR_CAPTURE_ASK_SNAP_BYTES], MR_CAPTURE_SNAP_MIN, MR_CAPTURE_SNAP_MAX) ||
        !is_within(ask[MR_CAPTURE_ASK_KIB], MR_CAPTURE_KIB_MIN, MR_CAPTURE_KIB_MAX) ||
        !is_within(ask[MR_CAPTURE_ASK_IDLE_MS], MR_CAPTURE_IDLE_MS_MIN, MR_CAPTURE_IDLE_MS_MAX))
        return ps_refuse(op, MR_INVALID_ARGUMENT,
                         "capture: a packet's bytes must be %u..%u, the ring's KiB %u..%u, the milliseconds "
                         "without a reader %u..%u, the id not 0, and the holder's name shorter than %u bytes",
                         MR_CAPTURE_SNAP_MIN, MR_CAPTURE_SNAP_MAX, MR_CAPTURE_KIB_MIN, MR_CAPTURE_KIB_MAX,
                         MR_CAPTURE_IDLE_MS_MIN, MR_CAPTURE_IDLE_MS_MAX, MR_CAPTURE_WHO_BYTES);
    return true;
}

/* Refuses a call that is not of the capture that the core has. */
static void refuse_other(const struct ps_op *op)
{
    const struct dp_capture *capture = op->core->capture;
    char address[MR_ADDRESS_TEXT_BYTES];
    if (capture == NULL) {
        ps_refuse(
            op, MR_INVALID_ARGUMENT,
            "core %u has no such capture: it has ended, or was not read for too long, or the server was "
            "restarted",
            op->core->index);
        return;
    }
    mr_address_text(&capture->config.reader, address);
    ps_refuse(op, MR_ALREADY_STARTED,
              "core %u captures packets for %s at %s already, since %" PRIu64 " s; try again when that has "
              "ended, which it does by itself %" PRIu64 " ms after its reader is gone",
              op->core->index, capture->config.who[0] != '\0' ? capture->config.who : "somebody", address,
              (op->now_us - capture->started_us) / 1000000, capture->config.idle_us / 1000);
}

static struct mr_tensor words_of(const struct ps_op *op, uint64_t block_bytes,
                                 uint64_t words[MR_CAPTURE_WORDS])
{
    const struct dp_capture *capture = op->core->capture;
    memset(words, 0, MR_CAPTURE_WORDS * sizeof(*words));
    words[MR_CAPTURE_LINK_TYPE] = dp_link_type(op->core->node->dp);
    words[MR_CAPTURE_LEFT] = dp_capture_unread(capture) - block_bytes;
    words[MR_CAPTURE_SEEN] = capture->seen;
    words[MR_CAPTURE_WANTED] = capture->wanted;
    words[MR_CAPTURE_LOST] = capture->lost;
    words[MR_CAPTURE_SNAP] = capture->config.snap_bytes;
    return mr_body_tensor(MR_BODY_CAPTURE, words);
}

/* The machine, its system, the program, the port: a line each. */
static uint32_t describe(const struct ps_op *op, char text[ABOUT_BYTES])
{
    const struct ps_node *node = op->core->node;
    const char *device = node->config->port_device;
    struct utsname system = {.sysname = ""};
    (void)uname(&system);
    const int bytes = snprintf(text, ABOUT_BYTES, "%s, %s\n%s %s %s\nmillraced %s\n%s%s%s\n", system.nodename,
                               system.machine, system.sysname, system.release, system.version, MR_VERSION,
                               dp_driver_name(node->dp), device[0] != '\0' ? " " : "", device);
    return bytes < (int)ABOUT_BYTES ? (uint32_t)bytes : ABOUT_BYTES - 1;
}

static void answer_start(const struct ps_op *op)
{
    uint64_t words[MR_CAPTURE_WORDS];
    char text[ABOUT_BYTES];
    struct mr_tensor tensors[2] = {words_of(op, 0, words), mr_tensor_1d(MR_U8, describe(op, text), text)};
    ps_reply(op->ep, op->request, tensors, 2);
}

static void ops_capture_start(const struct ps_op *op, const uint64_t *ask)
{
    struct ps_core *core = op->core;
    struct dp_capture_config config;
    if (!check_start(op, ask))
        return;
    config_of(op, ask, &config);
    if (core->capture == NULL) {
        core->capture = dp_capture_create(&config, op->now_us);
        if (core->capture == NULL) {
            ps_refuse(op, MR_NO_MEMORY, "core %u has no memory for a ring of %" PRIu64 " KiB: ask for less",
                      core->index, config.ring_bytes >> 10);
            return;
        }
        dp_core_set_capture(core->dp_core, core->capture);
    } else if (core->capture->config.id != config.id) {
        refuse_other(op);
        return;
    }
    answer_start(op);
}

/* ---- read ---- */

static void read_records(const struct ps_op *op, uint64_t position, bool is_last)
{
    struct dp_capture *capture = op->core->capture;
    uint64_t words[MR_CAPTURE_WORDS];
    /* The client may have another address by now. */
    (void)mr_call_ref_address(op->ep, op->request->ref, &capture->config.reader);
    if (!dp_capture_was_read(capture, position, op->now_us)) {
        ps_refuse(op, MR_INVALID_ARGUMENT, "core %u: %" PRIu64 " is not a position of what it has captured",
                  op->core->index, position);
        return;
    }
    capture->is_halted |= is_last;
    const uint64_t unread = dp_capture_unread(capture);
    const uint32_t bytes = unread < MR_CAPTURE_BLOCK_BYTES ? (uint32_t)unread : MR_CAPTURE_BLOCK_BYTES;
    struct mr_tensor tensors[2] = {words_of(op, bytes, words), mr_tensor_1d(MR_U8, bytes, NULL)};
    if (!ps_reply_begin(op->ep, op->request, tensors, 2))
        return;
    dp_ring_peek(&capture->ring, tensors[1].data, bytes);
    mr_reply_end(op->ep, op->request->ref);
}

void ps_op_capture(void *core_app, struct mr_endpoint *ep, const struct mr_request *request)
{
    const struct ps_op op = ps_op_of(core_app, ep, request);
    uint64_t ask[MR_CAPTURE_ASK_WORDS];
    if (!ps_check_body(&op, 0, MR_BODY_CAPTURE_ASK, ask))
        return;
    const struct dp_capture *capture = op.core->capture;
    const bool is_its = capture != NULL && capture->config.id == ask[MR_CAPTURE_ASK_ID];
    const uint64_t kind = ask[MR_CAPTURE_ASK_KIND];
    if (kind == MR_CAPTURE_START) {
        ops_capture_start(&op, ask);
    } else if (kind == MR_CAPTURE_END) {
        if (is_its)
            ps_capture_end(op.core);
        mr_reply_status(ep, request->ref, MR_OK);
    } else if (kind != MR_CAPTURE_READ && kind != MR_CAPTURE_HALT) {
        ps_refuse(&op, MR_INVALID_ARGUMENT, "capture: %" PRIu64 " is none of 1 start, 2 read, 3 halt, 4 end",
                  kind);
    } else if (!is_its) {
        refuse_other(&op);
    } else {
        read_records(&op, ask[MR_CAPTURE_ASK_POSITION], kind == MR_CAPTURE_HALT);
    }
}
