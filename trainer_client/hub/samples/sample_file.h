/* The sample files of one plan: which samples belong to its part, where they are, and any of them on demand.
 *
 * Opening reads the files once from end to end: it checks every line, counts the distinct keys and remembers
 * where samples begin. The index is bounded: when it is full, it keeps every second place, and reading walks
 * on from the place before. The first samples, as many as memory_bytes hold, stay in memory; the others are
 * read from their files each time. Of packed files a window of samples is unpacked at once, as they cannot be
 * read in any order. One thread at a time.
 */
#ifndef HUB_SAMPLE_FILE_H
#define HUB_SAMPLE_FILE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include "dataplane/wire/format/mr_status.h"
#include "trainer_client/hub/samples/allowed.h"
#include "trainer_client/hub/format/format.h"
#include "trainer_client/hub/format/sample.h"

#define HUB_INDEX_ENTRIES_MAX (1u << 23) /* 128 MiB */
#define HUB_WINDOW_SAMPLES    65536u
#define HUB_BROKEN_SHOWN_MAX  10u /* broken lines that are reported one by one */
#define HUB_BROKEN_LINES_OF                                                                                  \
    16u /* of an input without an end: from so many on, more broken lines than good
                                     ones mean another format */
#define HUB_ERROR_BYTES 640u

struct hub_sample_file;

struct hub_sample_file_options {
    const char *path;                  /* of a file, or of several: see paths.h */
    const struct hub_allowed *allowed; /* outlives the file; NULL: any path */
    const struct hub_formats *formats; /* outlive the file */
    const char *format;                /* name of one of them */
    uint64_t seed;
    double held_out_share; /* 0..0.9 */
    bool held_out;         /* which part */
    bool strict;           /* the first broken line fails the opening */
    /* 0 = defaults; distinct_entries is a power of two */
    uint32_t index_entries_max, distinct_entries, window_samples;
    size_t memory_bytes;     /* for samples that stay in memory; 0 = none do */
    const atomic_bool *stop; /* NULL, or gives up with MR_CANCELLED once it is true */
    /* Told of the first HUB_BROKEN_SHOWN_MAX broken lines; may be NULL. */
    void (*on_broken_line)(void *arg, const char *path, uint64_t line_number, const char *reason);
    void *arg;
};

struct hub_sample_file_info {
    const struct hub_format *format;
    uint64_t samples; /* of this part */
    uint64_t keys;    /* distinct, in all parts */
    bool keys_exact;
    uint64_t broken_lines;    /* in all parts */
    uint32_t sample_keys_max; /* most keys in one sample */
    uint64_t digest;          /* of all their lines, and of a format that is not built in */
    uint32_t files;
    uint64_t window_samples; /* so many, one after the other, are shuffled among themselves; 0: all of them */
};

/* MR_INVALID_ARGUMENT (path, format), MR_BAD_MESSAGE (a broken line in strict mode, or more broken lines than
 * good ones: it is of another format), MR_NO_MEMORY, MR_IO_ERROR, MR_CANCELLED; `error` (HUB_ERROR_BYTES)
 * says what, where and how to fix it. */
enum mr_status hub_sample_file_open(const struct hub_sample_file_options *options,
                                    struct hub_sample_file **out, char *error);
void hub_sample_file_close(struct hub_sample_file *f); /* NULL is fine */
const struct hub_sample_file_info *hub_sample_file_info(const struct hub_sample_file *f);
/* MR_OK: the path still stands for the files that were opened (or for some of them no more), and each has
 * its size and its time of change from then. MR_IO_ERROR: not so; `error` says what differs. */
enum mr_status hub_sample_file_check(const struct hub_sample_file *f, char *error);
/* The same for the next few files, going round: quick, for each batch. */
enum mr_status hub_sample_file_check_some(struct hub_sample_file *f, char *error);
/* As hub_sample_store_prefetch(), of samples in memory. */
void hub_sample_file_prefetch(const struct hub_sample_file *f, uint64_t next, uint64_t later);
/* Sample `index` < samples, in file order. MR_IO_ERROR when it turns out that a file has changed since it
 * was opened; of samples in memory only hub_sample_file_check() finds that out. MR_NO_MEMORY. */
enum mr_status hub_sample_file_read(struct hub_sample_file *f, uint64_t index, struct hub_sample *sample,
                                    char *error);

#endif
