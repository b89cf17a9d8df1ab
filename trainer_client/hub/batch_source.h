/* The batches of a plan, by number: which samples are in batch n of which epoch, put together on demand. Any
 * batch can be built at any time and comes out the same. One thread at a time.
 */
#ifndef HUB_BATCH_SOURCE_H
#define HUB_BATCH_SOURCE_H

#include "trainer_client/hub/request.h"
#include "trainer_client/hub/sample_file.h"

#define HUB_BATCH_KEY_BYTES_MAX                                                                              \
    (16u << 20) /* of one batch's keys: two such feeds fit into a client's memory */

/* Its arrays grow as needed and are used again. Start with all zero. */
struct hub_batch {
    uint64_t sequence;
    uint32_t epoch;
    uint64_t first_sample; /* of the epoch's order */
    uint32_t samples, slots, dense_count, key_count;
    float *dense;  /* [samples, dense_count] */
    float *labels; /* [samples] */
    uint64_t *keys;
    uint32_t *offsets; /* [samples * slots + 1] */
    uint32_t samples_size, keys_size;
};
void hub_batch_free(struct hub_batch *b);

struct hub_batch_source;

/* Errors as of hub_sample_file_open(); memory_bytes, for samples, as there. on_broken_line may be NULL. */
enum mr_status hub_batch_source_open(const struct hub_request *request, size_t memory_bytes,
                                     const atomic_bool *stop,
                                     void (*on_broken_line)(void *arg, const char *path, uint64_t line_number,
                                                            const char *reason),
                                     void *arg, struct hub_batch_source **out, char *error);
void hub_batch_source_close(struct hub_batch_source *s); /* NULL is fine */
const struct hub_sample_file_info *hub_batch_source_info(const struct hub_batch_source *s);
/* As hub_sample_file_check(). */
enum mr_status hub_batch_source_check(const struct hub_batch_source *s, char *error);
/* Of all epochs. An epoch's last batch may be smaller than the others. */
uint64_t hub_batch_source_batches(const struct hub_batch_source *s);
/* sequence < batches. MR_NO_MEMORY, MR_IO_ERROR (the file has changed). */
enum mr_status hub_batch_source_build(struct hub_batch_source *s, uint64_t sequence, struct hub_batch *batch,
                                      char *error);

#endif
