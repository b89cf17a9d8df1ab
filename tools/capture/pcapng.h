/* Blocks of a pcapng file (draft-ietf-opsawg-pcapng), written into memory. A file is a sequence of whole
 * blocks: whoever appends whole blocks to it leaves it readable at any time. Pure. */
#ifndef CAPTURE_PCAPNG_H
#define CAPTURE_PCAPNG_H

#include <stdbool.h>
#include <stdint.h>

struct pcapng {
    uint8_t *bytes; /* blocks so far; freed by pcapng_free() */
    uint32_t count, room;
    bool no_memory; /* something is missing */
};

/* Texts may be NULL or "". */
struct pcapng_section {
    const char *hardware, *system, *program, *comment;
};
struct pcapng_interface {
    uint16_t link_type;
    uint32_t snap_bytes;
    const char *name, *description, *filter;
};
struct pcapng_packet {
    uint32_t interface;
    uint64_t time_ns; /* since 1970 */
    const uint8_t *bytes;
    uint32_t captured_bytes, packet_bytes;
    uint32_t lost; /* since the one before on this interface */
    bool is_sent;
};
struct pcapng_statistics {
    uint32_t interface;
    uint64_t start_ns, end_ns; /* of the capture; the end is also the block's time */
    uint64_t received, lost;
    uint64_t wanted;  /* that a filter let through */
    uint64_t written; /* to this file, or to one before it */
};

void pcapng_add_section(struct pcapng *out, const struct pcapng_section *section);
/* Interfaces are numbered from 0 in each section. */
void pcapng_add_interface(struct pcapng *out, const struct pcapng_interface *interface);
void pcapng_add_packet(struct pcapng *out, const struct pcapng_packet *packet);
void pcapng_add_statistics(struct pcapng *out, const struct pcapng_statistics *statistics);

/* Bytes of a packet's block. */
uint32_t pcapng_packet_bytes(const struct pcapng_packet *packet);
void pcapng_clear(struct pcapng *out);
void pcapng_free(struct pcapng *out);

#endif
