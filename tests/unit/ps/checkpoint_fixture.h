/* What the tests of checkpoints share: a small checkpoint with known content, and the check that what was
 * read is exactly what was written. */
#ifndef TESTS_CHECKPOINT_FIXTURE_H
#define TESTS_CHECKPOINT_FIXTURE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include "ps/checkpoint/checkpoint.h"
#include "ps/checkpoint/checkpoint_manifest.h"
#include "ps/io/store.h"
#include "tests/unit/temporary_directory.h"

#define FIXTURE_CORES     2u
#define FIXTURE_TABLE     3u
#define FIXTURE_VARIABLE  9u
#define FIXTURE_DIM       4u
#define FIXTURE_ROW_BYTES (2u * FIXTURE_DIM * (uint32_t)sizeof(float))

void fixture_features(struct mr_feature features[2], uint32_t ids[2]);
/* Of a checkpoint of these two features on FIXTURE_CORES cores. The next call changes the features, too. */
struct ps_writer_options fixture_options(const char *directory, uint64_t id);
/* Starts a writer with these options. */
enum mr_status fixture_start(const struct ps_store *store, const char *directory, uint64_t id,
                             struct ps_writer **out, char *text);
/* Appends rows key 0..rows-1 (key % cores == core), in records of 100, and one of each other kind. False when
 * it failed. */
bool fixture_fill(struct ps_writer *w, uint64_t id, uint32_t core, uint32_t rows);
/* Waits until there is room for a record. Returns NULL once the writer has failed. */
uint8_t *fixture_append(struct ps_writer *w, uint32_t core, const struct ps_record *record);
/* Waits until the writer is done, and finishes it. */
struct ps_writer_status fixture_finish(struct ps_writer *w);
/* The same, when all cores are done: it must be a good one. */
void fixture_publish(struct ps_writer *w, uint32_t cores);
/* A whole checkpoint, cores one after the other on this thread. */
struct ps_writer_status fixture_save(const struct ps_store *store, const char *directory, uint64_t id,
                                     uint32_t rows);
/* Every record of the reader is that of fixture_fill(id, rows), none is missing, none is there twice. Fails
 * the test if not. */
void fixture_check(struct ps_reader *r, uint64_t id, uint32_t rows);
/* Path of a file in a checkpoint, in a static buffer. */
const char *fixture_path(const char *directory, uint64_t id, const char *file);
/* Inverts these bits of the byte at this place. */
void fixture_flip(const char *path, off_t at, uint8_t mask);
/* A later format version wrote it, by what its MANIFEST says. */
void fixture_make_newer(const char *directory, uint64_t id);
/* Changes one value of a MANIFEST or a CLUSTER file as a version that knows it would have written it: its
 * hash is right. `where` is "" or a list, of which the first entry is changed; NULL: the value is removed. */
void fixture_rewrite(const char *path, const char *where, const char *key, json_t *value);
/* Names in the directory that begin with `prefix`. */
uint32_t fixture_count(const char *directory, const char *prefix);
uint32_t fixture_count_on(const struct ps_store *store, const char *directory, const char *prefix);

#endif
