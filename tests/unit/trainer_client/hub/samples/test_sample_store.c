/* Samples in memory: as many as fit, each as it was added. */
#include <stdlib.h>
#include <string.h>
#include "tests/test.h"
#include "tests/unit/trainer_client/hub/format/formats_fixture.h"
#include "trainer_client/hub/samples/sample_store.h"

#define SAMPLES 500u

/* With 0 to 12 keys, all from `number`. */
static void sample_store_make(const struct hub_format *format, uint32_t number, struct hub_sample *sample)
{
    memset(sample, 0, sizeof(*sample));
    sample->label = (float)(number % 2);
    for (uint32_t i = 0; i < format->dense; i++)
        sample->dense[i] = (float)(number * 100 + i);
    sample->key_count = number % 13;
    for (uint32_t i = 0; i < format->slots; i++)
        sample->bag_end[i] = i + 1 < format->slots ? number % (sample->key_count + 1) : sample->key_count;
    for (uint32_t i = 0; i < sample->key_count; i++)
        sample->keys[i] = UINT64_C(0x100000000) * number + i;
    for (uint32_t i = 0; format->has_weights && i < sample->key_count; i++)
        sample->weights[i] = (float)(number + i);
}

/* Adds SAMPLES and returns how many are there; the first ones, with what they had. */
static uint64_t sample_store_fill(const struct hub_format *format, size_t bytes_max)
{
    struct hub_sample *added = malloc(sizeof(*added)), *got = malloc(sizeof(*got));
    struct hub_sample_store *s = hub_sample_store_create(format, bytes_max);
    uint64_t held = 0;
    assert_non_null(added);
    assert_non_null(got);
    assert_non_null(s);
    for (uint32_t i = 0; i < SAMPLES; i++) {
        sample_store_make(format, i, added);
        hub_sample_store_add(s, added);
    }
    memset(got, 0, sizeof(*got));
    while (hub_sample_store_get(s, held, got)) {
        sample_store_make(format, (uint32_t)held, added);
        memset(got->keys + got->key_count, 0, (HUB_SAMPLE_KEYS_MAX - got->key_count) * sizeof(*got->keys));
        memset(got->weights + got->key_count, 0,
               (HUB_SAMPLE_KEYS_MAX - got->key_count) * sizeof(*got->weights));
        assert_memory_equal(got, added, sizeof(*got));
        held++;
    }
    for (uint64_t i = held; i < SAMPLES + 2; i++)
        assert_false(hub_sample_store_get(s, i, got));
    hub_sample_store_destroy(s);
    free(added);
    free(got);
    return held;
}

TEST(samples_come_back_as_they_were)
{
    for (uint32_t i = 0; i < formats->count; i++)
        assert_int_equal(sample_store_fill(formats->all[i], 1u << 20), SAMPLES);
}

TEST(weights_come_back)
{
    char why[HUB_FORMAT_ERROR_BYTES];
    struct hub_format *format = read_format("[format]\nname = w\nlayout = libsvm\nvalues = weights\n", why);
    assert_non_null(format);
    assert_true(format->has_weights);
    assert_int_equal(sample_store_fill(format, 1u << 20), SAMPLES);
    hub_format_free(format);
}

TEST(the_bound_leaves_out_the_last)
{
    for (uint32_t i = 0; i < formats->count; i++) {
        uint64_t before = 0;
        for (size_t bytes_max = 1; bytes_max <= 1u << 16; bytes_max = bytes_max * 3 + 1) {
            uint64_t held = sample_store_fill(formats->all[i], bytes_max);
            assert_true(held >= before && held < SAMPLES && held * 16 <= bytes_max);
            before = held;
        }
        assert_true(before > 50);
    }
    hub_sample_store_destroy(NULL);
}

int main(void)
{
    return tests_run(make_formats, free_formats);
}
