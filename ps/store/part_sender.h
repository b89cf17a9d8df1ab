/* Sends the parts of a file, several at a time (ps/io/io_threads.h): a store that answers each part after a
 * while, or gives each connection only so much, takes them faster so. One thread at a time creates, puts and
 * finishes.
 */
#ifndef PS_PART_SENDER_H
#define PS_PART_SENDER_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define PS_PART_SENDER_MAX 2u /* parts of a file that are being sent */

struct ps_part_sender;

struct ps_part_sender_options {
    /* Sends part number 1, 2, ...; returns 0 or -errno, with ps_store_explain()'s line. Any thread. */
    int (*send)(void *arg, uint32_t number, const uint8_t *data, size_t bytes);
    void *arg;
    size_t room;   /* of each part's buffer */
    uint32_t sent; /* parts that were sent before: the first one has the number after them */
    /* Bytes that are left for buffers, of all senders together; may be below 0. With less than a buffer's
     * worth and nothing under way, the put waits until the part is sent. */
    atomic_llong *memory;
};

/* NULL: no memory. */
struct ps_part_sender *ps_part_sender_create(const struct ps_part_sender_options *options);
/* Sends *part, a buffer from malloc(), and puts an empty one in its place, which may be the same; all
 * parts but the last have the same length. Waits while PS_PART_SENDER_MAX parts are being sent, or there
 * is no memory for another buffer. Returns 0, or the error of this or an earlier part, with its
 * explanation. */
int ps_part_sender_put(struct ps_part_sender *s, uint8_t **part, size_t bytes);
/* Returns how many parts, from the first on, are known to be sent. */
uint32_t ps_part_sender_sent(struct ps_part_sender *s);
/* Waits until all parts are sent, and returns the first error. */
int ps_part_sender_finish(struct ps_part_sender *s);
/* Waits for what is being sent. NULL is fine. */
void ps_part_sender_destroy(struct ps_part_sender *s);

#endif
