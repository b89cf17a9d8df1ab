/* Every set of vector instructions gives the library's own hashes. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "dataplane/wire/base/vector.h"
#include "dataplane/wire/base/xxh3.h"
#include "dataplane/wire/base/xxh3_set.h"
#include "tests/test.h"

#define BYTES_MAX (1u << 20)

static uint8_t *some_bytes(void)
{
    uint8_t *bytes = malloc(BYTES_MAX + 1);
    uint64_t seed = 0x9E3779B97F4A7C15u;
    assert_non_null(bytes);
    for (uint32_t i = 0; i <= BYTES_MAX; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        bytes[i] = (uint8_t)(seed >> 56);
    }
    return bytes;
}

static void expect_the_library_s(const struct mr_xxh3_set *set, const uint8_t *data, size_t bytes)
{
    static uint8_t copy[1 + BYTES_MAX + 1];
    XXH128_hash_t expected = XXH3_128bits(data, bytes);
    uint64_t got[2];
    set->hash_128(data, bytes, got);
    assert_int_equal(set->hash_64(data, bytes), XXH3_64bits(data, bytes));
    memset(copy, 0xa5, bytes + 2);
    assert_int_equal(set->hash_64_copy(copy + 1, data, bytes), XXH3_64bits(data, bytes));
    assert_memory_equal(copy + 1, data, bytes);
    assert_true(copy[0] == 0xa5 && copy[1 + bytes] == 0xa5); /* and nothing beside them */
    assert_int_equal(got[0], expected.low64);
    assert_int_equal(got[1], expected.high64);
}

TEST(each_set_agrees_with_the_library)
{
    const struct mr_xxh3_set *const sets[] = {&mr_xxh3_baseline,
#ifdef __x86_64__
                                              &mr_xxh3_avx2, &mr_xxh3_avx512
#endif
    };
    static const size_t long_ones[] = {1023, 1024, 1025, 1472, 3440, 8944, 65535, BYTES_MAX - 8, BYTES_MAX};
    uint8_t *bytes = some_bytes();
    for (uint32_t s = 0; s <= (uint32_t)mr_vector_widest(); s++)
        for (size_t shift = 0; shift <= 1; shift++) { /* data need no alignment */
            for (size_t n = 0; n <= 600; n++)
                expect_the_library_s(sets[s], bytes + shift, n);
            for (size_t i = 0; i < sizeof(long_ones) / sizeof(long_ones[0]); i++)
                expect_the_library_s(sets[s], bytes + shift, long_ones[i]);
        }
    free(bytes);
}

TEST(the_widest_set_is_used)
{
    static const uint8_t data[5000] = {1, 2, 3};
    uint8_t copy[sizeof(data)];
    XXH128_hash_t expected = XXH3_128bits(data, sizeof(data));
    uint64_t got[2];
    mr_xxh3_128(data, sizeof(data), got);
    assert_int_equal(mr_xxh3_64(data, sizeof(data)), XXH3_64bits(data, sizeof(data)));
    assert_int_equal(mr_xxh3_64_copy(copy, data, sizeof(data)), XXH3_64bits(data, sizeof(data)));
    assert_memory_equal(copy, data, sizeof(data));
    assert_int_equal(mr_xxh3_64_copy(copy, NULL, 0), XXH3_64bits(NULL, 0));
    assert_true(got[0] == expected.low64 && got[1] == expected.high64);
}

#define CHANGED_BYTES 3440

struct changing {
    _Alignas(64) _Atomic uint8_t bytes[CHANGED_BYTES];
    atomic_uint rounds;
    atomic_bool over;
};

static void *change(void *arg)
{
    struct changing *c = arg;
    for (uint8_t value = 1; !atomic_load_explicit(&c->over, memory_order_relaxed); value++) {
        for (size_t i = CHANGED_BYTES; i-- > 0;)
            atomic_store_explicit(&c->bytes[i], value, memory_order_relaxed);
        atomic_fetch_add(&c->rounds, 1);
    }
    return NULL;
}

/* As a caller's array is while it is sent, if another of its threads changes it. */
TEST(the_hash_is_that_of_the_copy)
{
    static struct changing c;
    static uint8_t copy[CHANGED_BYTES];
    static const size_t lengths[] = {100, 240, 241, 300, 1024, 1025, 3439, CHANGED_BYTES};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, change, &c), 0);
    bool same = true;
    for (size_t n = 0; n < 20000 || atomic_load(&c.rounds) < 2000; n++) {
        size_t bytes = lengths[n % (sizeof(lengths) / sizeof(lengths[0]))];
        const uint8_t *end = (const uint8_t *)c.bytes + CHANGED_BYTES;
        same &= mr_xxh3_64_copy(copy, end - bytes, bytes) == XXH3_64bits(copy, bytes);
    }
    atomic_store(&c.over, true);
    pthread_join(thread, NULL);
    assert_true(same);
}
