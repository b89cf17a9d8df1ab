#include "tools/capture/pcapng.h"

#include <stdlib.h>
#include <string.h>

enum block_type { SECTION = 0x0a0d0d0a, INTERFACE = 1, STATISTICS = 5, PACKET = 6 };

enum option {
    OPT_END = 0,
    OPT_COMMENT = 1,
    SECTION_HARDWARE = 2,
    SECTION_SYSTEM = 3,
    SECTION_PROGRAM = 4,
    INTERFACE_NAME = 2,
    INTERFACE_DESCRIPTION = 3,
    INTERFACE_TIME_RESOLUTION = 9,
    INTERFACE_FILTER = 11,
    PACKET_FLAGS = 2,
    PACKET_LOST = 4,
    STATISTICS_START = 2,
    STATISTICS_END = 3,
    STATISTICS_RECEIVED = 4,
    STATISTICS_LOST = 5,
    STATISTICS_WANTED = 6,
    STATISTICS_WRITTEN = 8,
};

#define BYTE_ORDER_MAGIC    0x1a2b3c4du
#define VERSION_MAJOR       1u
#define VERSION_MINOR       0u
#define SECTION_LENGTH_OPEN UINT64_MAX /* not known: the file grows */
#define NANOSECONDS         9u         /* 10^-9 */
#define FILTER_TEXT         0u
#define DIRECTION_RECEIVED  1u
#define DIRECTION_SENT      2u
#define PACKET_FIXED_BYTES  32u /* with both lengths of the block */
#define FLAGS_OPTION_BYTES  8u
#define LOST_OPTION_BYTES   12u
#define OPTIONS_END_BYTES   4u

/* ---- bytes ---- */

static uint32_t padded(uint32_t bytes)
{
    return (bytes + 3u) & ~3u;
}

static bool make_room(struct pcapng *out, uint32_t bytes)
{
    uint32_t room = out->room == 0 ? 65536u : out->room;
    if (out->no_memory)
        return false;
    while (room - out->count < bytes && room < UINT32_MAX / 2)
        room *= 2;
    if (room != out->room) {
        uint8_t *grown = realloc(out->bytes, room);
        if (grown != NULL) {
            out->bytes = grown;
            out->room = room;
        }
    }
    out->no_memory = out->room - out->count < bytes;
    return !out->no_memory;
}

static void pcapng_add(struct pcapng *out, const void *bytes, uint32_t count)
{
    if (count == 0 || !make_room(out, padded(count)))
        return;
    memcpy(out->bytes + out->count, bytes, count);
    memset(out->bytes + out->count + count, 0, padded(count) - count);
    out->count += padded(count);
}

static void add_u32(struct pcapng *out, uint32_t value)
{
    pcapng_add(out, &value, sizeof(value));
}

static void add_two_u16(struct pcapng *out, uint16_t first, uint16_t second)
{
    const uint16_t both[2] = {first, second};
    pcapng_add(out, both, sizeof(both));
}

/* Times are written with their upper half first. */
static void add_time(struct pcapng *out, uint64_t time_ns)
{
    add_u32(out, (uint32_t)(time_ns >> 32));
    add_u32(out, (uint32_t)time_ns);
}

/* ---- options ---- */

static void add_option(struct pcapng *out, enum option code, const void *value, uint16_t bytes)
{
    add_two_u16(out, (uint16_t)code, bytes);
    pcapng_add(out, value, bytes);
}

static void add_text(struct pcapng *out, enum option code, const char *text)
{
    if (text != NULL && text[0] != '\0')
        add_option(out, code, text, (uint16_t)strlen(text));
}

static void add_u64_option(struct pcapng *out, enum option code, uint64_t value)
{
    add_option(out, code, &value, sizeof(value));
}

static void add_time_option(struct pcapng *out, enum option code, uint64_t time_ns)
{
    add_two_u16(out, (uint16_t)code, sizeof(time_ns));
    add_time(out, time_ns);
}

static void end_options(struct pcapng *out)
{
    add_two_u16(out, OPT_END, 0);
}

/* ---- blocks ---- */

/* Returns where the block begins. */
static uint32_t begin_block(struct pcapng *out, enum block_type type)
{
    const uint32_t at = out->count;
    add_u32(out, type);
    add_u32(out, 0); /* its length, at the end */
    return at;
}

static void end_block(struct pcapng *out, uint32_t at)
{
    const uint32_t bytes = out->count - at + (uint32_t)sizeof(uint32_t);
    add_u32(out, bytes);
    if (!out->no_memory)
        memcpy(out->bytes + at + sizeof(uint32_t), &bytes, sizeof(bytes));
}

void pcapng_add_section(struct pcapng *out, const struct pcapng_section *section)
{
    const uint64_t length = SECTION_LENGTH_OPEN;
    const uint32_t block = begin_block(out, SECTION);
    add_u32(out, BYTE_ORDER_MAGIC);
    add_two_u16(out, VERSION_MAJOR, VERSION_MINOR);
    pcapng_add(out, &length, sizeof(length));
    add_text(out, SECTION_HARDWARE, section->hardware);
    add_text(out, SECTION_SYSTEM, section->system);
    add_text(out, SECTION_PROGRAM, section->program);
    add_text(out, OPT_COMMENT, section->comment);
    end_options(out);
    end_block(out, block);
}

static void add_filter(struct pcapng *out, const char *filter)
{
    char text[512] = {FILTER_TEXT};
    if (filter == NULL || filter[0] == '\0')
        return;
    const size_t bytes = strnlen(filter, sizeof(text) - 1);
    memcpy(text + 1, filter, bytes);
    add_option(out, INTERFACE_FILTER, text, (uint16_t)(bytes + 1));
}

void pcapng_add_interface(struct pcapng *out, const struct pcapng_interface *interface)
{
    const uint8_t resolution = NANOSECONDS;
    const uint32_t block = begin_block(out, INTERFACE);
    add_two_u16(out, interface->link_type, 0);
    add_u32(out, interface->snap_bytes);
    add_text(out, INTERFACE_NAME, interface->name);
    add_text(out, INTERFACE_DESCRIPTION, interface->description);
    add_option(out, INTERFACE_TIME_RESOLUTION, &resolution, sizeof(resolution));
    add_filter(out, interface->filter);
    end_options(out);
    end_block(out, block);
}

void pcapng_add_packet(struct pcapng *out, const struct pcapng_packet *packet)
{
    const uint32_t flags = packet->is_sent ? DIRECTION_SENT : DIRECTION_RECEIVED;
    const uint32_t block = begin_block(out, PACKET);
    add_u32(out, packet->interface);
    add_time(out, packet->time_ns);
    add_u32(out, packet->captured_bytes);
    add_u32(out, packet->packet_bytes);
    pcapng_add(out, packet->bytes, packet->captured_bytes);
    add_option(out, PACKET_FLAGS, &flags, sizeof(flags));
    if (packet->lost != 0)
        add_u64_option(out, PACKET_LOST, packet->lost);
    end_options(out);
    end_block(out, block);
}

uint32_t pcapng_packet_bytes(const struct pcapng_packet *packet)
{
    return PACKET_FIXED_BYTES + padded(packet->captured_bytes) + FLAGS_OPTION_BYTES +
           (packet->lost != 0 ? LOST_OPTION_BYTES : 0) + OPTIONS_END_BYTES;
}

void pcapng_add_statistics(struct pcapng *out, const struct pcapng_statistics *statistics)
{
    const uint32_t block = begin_block(out, STATISTICS);
    add_u32(out, statistics->interface);
    add_time(out, statistics->end_ns);
    add_time_option(out, STATISTICS_START, statistics->start_ns);
    add_time_option(out, STATISTICS_END, statistics->end_ns);
    add_u64_option(out, STATISTICS_RECEIVED, statistics->received);
    add_u64_option(out, STATISTICS_LOST, statistics->lost);
    add_u64_option(out, STATISTICS_WANTED, statistics->wanted);
    add_u64_option(out, STATISTICS_WRITTEN, statistics->written);
    end_options(out);
    end_block(out, block);
}

void pcapng_clear(struct pcapng *out)
{
    out->count = 0;
}

void pcapng_free(struct pcapng *out)
{
    free(out->bytes);
    *out = (struct pcapng){.bytes = NULL};
}
