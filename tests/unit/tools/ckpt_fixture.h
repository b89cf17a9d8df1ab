/* What the tests of `millrace ckpt` share: checkpoints that are written record by record. */
#ifndef TESTS_CKPT_FIXTURE_H
#define TESTS_CKPT_FIXTURE_H

#include <stdint.h>
#include "ps/checkpoint/checkpoint.h"
#include "tests/unit/temporary_directory.h"

struct ckpt_fixture_writer {
    struct ps_writer *writer;
};

/* Features get the ids 1, 2, .. Fails the test on any error. */
void ckpt_fixture_start(struct ckpt_fixture_writer *w, const char *directory, uint64_t id, uint64_t parent,
                        const struct mr_feature *features, uint32_t feature_count, uint32_t cores);
void ckpt_fixture_rows(struct ckpt_fixture_writer *w, uint32_t core, uint32_t feature, const uint64_t *keys,
                       const void *rows, uint32_t row_bytes, uint32_t count);
void ckpt_fixture_gone(struct ckpt_fixture_writer *w, uint32_t core, uint32_t feature, const uint64_t *keys,
                       uint32_t count);
/* Any other record; bytes follow from record->bytes. */
void ckpt_fixture_record(struct ckpt_fixture_writer *w, uint32_t core, const struct ps_record *record,
                         const void *bytes);
/* All cores are done: published. */
void ckpt_fixture_publish(struct ckpt_fixture_writer *w, uint32_t cores);

#endif
