/* The batches of a plan, by number: which samples are in batch n of which epoch, put together on demand. Of a
 * file that was read through, any batch can be built at any time and comes out the same (file_source.h); of
 * an input that is read once, those that have come (live_source.h, kafka/kafka_source.h). Each of these is a
 * table of functions; open_source.h says which one a path stands for. One thread at a time.
 */
#ifndef HUB_BATCH_SOURCE_H
#define HUB_BATCH_SOURCE_H

#include "trainer_client/hub/plan/request.h"
#include "trainer_client/hub/samples/batch.h"
#include "trainer_client/hub/samples/sample_file.h"

struct hub_batch_source_options {
    const struct hub_request *request;
    const struct hub_formats *formats; /* outlive the source */
    const struct hub_allowed *allowed; /* outlives the source; NULL: any path */
    size_t memory_bytes;               /* for samples that stay in memory */
    const atomic_bool *stop;
    bool follow;                              /* files are read once, and followed as they grow */
    bool is_repeated;                         /* standard input is the same at each start */
    const char *kafka_brokers, *kafka_config; /* as of hub_kafka_configure() */
    void (*on_broken_line)(void *arg, const char *path, uint64_t line_number,
                           const char *reason); /* or NULL */
    void (*on_batch)(void *arg); /* a batch has come that could not be built before; any thread; or NULL */
    void *arg;
};

struct hub_batch_source;

/* Of one kind of source; the calls below say what each function does. */
struct hub_batch_source_functions {
    bool is_live; /* it is read once */
    void (*close)(struct hub_batch_source *s);
    const struct hub_sample_file_info *(*info)(struct hub_batch_source *s);
    enum mr_status (*check)(struct hub_batch_source *s, char *error);  /* NULL: MR_OK */
    enum mr_status (*ready)(struct hub_batch_source *s, char *error);  /* NULL: MR_OK */
    bool (*can_repeat)(const struct hub_batch_source *s);              /* NULL: true */
    uint32_t (*parts)(struct hub_batch_source *s);                     /* NULL: 1, which is part 0 */
    uint64_t (*salt)(const struct hub_batch_source *s, uint32_t part); /* NULL: 0 */
    /* NULL: the data word is the info's digest. */
    enum mr_status (*begin)(struct hub_batch_source *s, uint32_t part, const uint64_t *known, uint64_t *data,
                            char *error);
    enum mr_status (*look)(struct hub_batch_source *s, uint32_t part, char *error); /* NULL: MR_OK */
    uint64_t (*batches)(struct hub_batch_source *s, uint32_t part);
    void (*release)(struct hub_batch_source *s, uint32_t part, uint64_t oldest);       /* NULL: nothing */
    uint64_t (*lag)(const struct hub_batch_source *s, uint32_t part, uint64_t oldest); /* NULL: 0 */
    const char *(*trouble)(const struct hub_batch_source *s);                          /* NULL: "" */
    void (*finish)(struct hub_batch_source *s);                                        /* NULL: nothing */
    enum mr_status (*build)(struct hub_batch_source *s, uint32_t part, uint64_t sequence,
                            struct hub_batch *batch, char *error);
};

/* A member of each source, by which MR_CONTAINER finds it. */
struct hub_batch_source {
    const struct hub_batch_source_functions *functions;
};

void hub_batch_source_close(struct hub_batch_source *s); /* NULL is fine */
const struct hub_sample_file_info *hub_batch_source_info(struct hub_batch_source *s);
/* As hub_sample_file_check(). */
enum mr_status hub_batch_source_check(struct hub_batch_source *s, char *error);
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
 * one that the server's record has. MR_NOT_READY: the part has nothing yet. Else the input cannot be read, or
 * is none for a plan, and `error` says why. */
enum mr_status hub_batch_source_begin(struct hub_batch_source *s, uint32_t part, const uint64_t *known,
                                      uint64_t *data, char *error);
/* MR_OK: the part has something, and can begin. MR_NOT_READY: nothing yet. Else the input has failed, and
 * `error` says why. */
enum mr_status hub_batch_source_look(struct hub_batch_source *s, uint32_t part, char *error);
/* Of all epochs. An epoch's last batch may be smaller than the others. HUB_BATCHES_UNKNOWN: its end has not
 * come yet. */
uint64_t hub_batch_source_batches(struct hub_batch_source *s, uint32_t part);
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
