/* The batches of a plan, by number: which samples are in batch n of which epoch, put together on demand. Of a
 * file that was read through, any batch can be built at any time and comes out the same; of an input that is
 * read once (live_source.h), those that have come. One thread at a time.
 */
#ifndef HUB_BATCH_SOURCE_H
#define HUB_BATCH_SOURCE_H

#include "trainer_client/hub/plan/request.h"
#include "trainer_client/hub/format/sample_block.h"
#include "trainer_client/hub/samples/sample_file.h"

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
    bool has_weights;
    float *weights; /* of the keys, if it has any */
    uint32_t samples_size, keys_size;
};
void hub_batch_free(struct hub_batch *b);
/* Makes room in the arrays for the batch's `samples`, and for more keys. False: no memory. */
bool hub_batch_make_room(struct hub_batch *b, uint32_t keys_more);
/* Sample `place` < samples, after the one before it. False: no memory. */
bool hub_batch_append(struct hub_batch *b, uint32_t place, const struct hub_sample *sample);

/* Samples [from, from + count) of a block of the batch's shape, after `place` that are there. There is room.
 */
void hub_batch_place_block(struct hub_batch *b, uint32_t place, const struct hub_block *block, uint32_t from,
                           uint32_t count);
/* The format of an input that is read once, and may also bring blocks (`*out` NULL). MR_INVALID_ARGUMENT:
 * there is none of that name, and `error` (HUB_ERROR_BYTES) has those there are; or its samples are not for
 * this part. */
enum mr_status hub_find_format(const struct hub_formats *formats, const char *name, bool held_out,
                               const struct hub_format **out, char *error);
/* Whether so many broken lines of an input without an end, beside the good ones, mean another format. */
bool hub_is_other_format(uint64_t broken, uint64_t good);

struct hub_batch_source;

struct hub_batch_source_options {
    const struct hub_request *request;
    const struct hub_formats *formats; /* outlive the source */
    const struct hub_allowed *allowed; /* outlives the source; NULL: any path */
    size_t memory_bytes;               /* for samples that stay in memory */
    const atomic_bool *stop;
    bool follow;                              /* files are read once, and followed as they grow */
    bool is_repeated;                         /* standard input is the same at each start */
    const char *kafka_brokers, *kafka_config; /* as of hub_kafka_open() */
    void (*on_broken_line)(void *arg, const char *path, uint64_t line_number,
                           const char *reason); /* or NULL */
    void (*on_batch)(void *arg); /* a batch has come that could not be built before; any thread; or NULL */
    void *arg;
};

/* Errors as of hub_sample_file_open(), hub_live_source_open() or hub_kafka_source_open(); MR_INVALID_ARGUMENT
 * also for a plan that an input that is read once cannot have. */
enum mr_status hub_batch_source_open(const struct hub_batch_source_options *options,
                                     struct hub_batch_source **out, char *error);
void hub_batch_source_close(struct hub_batch_source *s); /* NULL is fine */
const struct hub_sample_file_info *hub_batch_source_info(const struct hub_batch_source *s);
/* As hub_sample_file_check(). */
enum mr_status hub_batch_source_check(const struct hub_batch_source *s, char *error);
/* MR_OK: hub_batch_source_info() has the slots. MR_NOT_READY: not yet. Else the input has failed, and `error`
 * says why. */
enum mr_status hub_batch_source_ready(struct hub_batch_source *s, char *error);
/* Whether it is read once, and whether a later start gets the same batches again. */
bool hub_batch_source_is_live(const struct hub_batch_source *s);
bool hub_batch_source_can_repeat(const struct hub_batch_source *s);
/* A topic has a part for each of its partitions, any other input is one part. Each has batches of its own.
 * There may be more of them, never fewer, than before: as hub_kafka_partitions(), which may wait briefly. */
uint32_t hub_batch_source_parts(struct hub_batch_source *s);
/* Tells a part apart from other parts and other inputs of the same path; 0: nothing has to. */
uint64_t hub_batch_source_salt(const struct hub_batch_source *s, uint32_t part);
/* Before anything else of a part: `*data` becomes the data word of its plan, where `known` (or NULL) is the
 * one that the server's record has. MR_NOT_READY: the part has nothing yet. Else as hub_kafka_source_begin().
 */
enum mr_status hub_batch_source_begin(struct hub_batch_source *s, uint32_t part, const uint64_t *known,
                                      uint64_t *data, char *error);
/* MR_OK: the part has something, and can begin. MR_NOT_READY: nothing yet. Else the input has failed, and
 * `error` says why. */
enum mr_status hub_batch_source_look(struct hub_batch_source *s, uint32_t part, char *error);
/* Of all epochs. An epoch's last batch may be smaller than the others. HUB_BATCHES_UNKNOWN: its end has not
 * come yet. */
uint64_t hub_batch_source_batches(const struct hub_batch_source *s, uint32_t part);
/* Batches below `oldest` are applied, and may leave the memory. */
void hub_batch_source_release(struct hub_batch_source *s, uint32_t part, uint64_t oldest);
/* Messages of a partition from batch `oldest` on; 0 for other inputs. */
uint64_t hub_batch_source_lag(const struct hub_batch_source *s, uint32_t part, uint64_t oldest);
/* Why nothing comes, one line; "": nothing is known to be wrong. */
const char *hub_batch_source_trouble(const struct hub_batch_source *s);
/* What has come is all that there is, for an input that is read once. */
void hub_batch_source_finish(struct hub_batch_source *s);
/* sequence < batches; the batch of a partition may have no samples. MR_NOT_READY: it has not come yet;
 * `on_batch` is called when it has. MR_NO_MEMORY, MR_IO_ERROR (the file has changed, or batches are gone),
 * MR_BAD_MESSAGE. */
enum mr_status hub_batch_source_build(struct hub_batch_source *s, uint32_t part, uint64_t sequence,
                                      struct hub_batch *batch, char *error);

#endif
