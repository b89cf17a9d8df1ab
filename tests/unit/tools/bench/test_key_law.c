/* The texts that name a distribution of keys, and draws against the probabilities that they stand for. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tools/bench/key_law.h"
#include "tests/test.h"

#define KEYS  500u
#define DRAWS 400000u

static struct tool_key_law law;
static char error_text[256];

static void expect(const char *text, struct tool_key_law wanted)
{
    if (!tool_key_law_parse(text, &law, error_text, sizeof(error_text)))
        fail_msg("%s: %s", text, error_text);
    assert_int_equal(law.kind, wanted.kind);
    assert_int_equal(law.count, wanted.count);
    assert_true(law.exponent == wanted.exponent && law.hot_share == wanted.hot_share);
    assert_int_equal(law.hot_count, wanted.hot_count);
}

static void expect_refused(const char *text, const char *says)
{
    struct tool_key_law before = law;
    assert_false(tool_key_law_parse(text, &law, error_text, sizeof(error_text)));
    if (strstr(error_text, says) == NULL || strchr(error_text, '\n') != NULL)
        fail_msg("%s: \"%s\" does not say \"%s\"", text, error_text, says);
    assert_memory_equal(&law, &before, sizeof(law));
}

TEST(test_texts)
{
    expect("uniform:1", (struct tool_key_law){.kind = TOOL_KEYS_UNIFORM, .count = 1});
    expect("uniform:281474976710656",
           (struct tool_key_law){.kind = TOOL_KEYS_UNIFORM, .count = TOOL_KEYS_MAX});
    expect("zipf:1000:1.05", (struct tool_key_law){.kind = TOOL_KEYS_ZIPF, .count = 1000, .exponent = 1.05});
    expect("zipf:7:1", (struct tool_key_law){.kind = TOOL_KEYS_ZIPF, .count = 7, .exponent = 1});
    expect("sequential:0x10", (struct tool_key_law){.kind = TOOL_KEYS_SEQUENTIAL, .count = 16});
    expect("hot:100:0.9:3",
           (struct tool_key_law){.kind = TOOL_KEYS_HOT, .count = 100, .hot_share = 0.9, .hot_count = 3});
}

TEST(test_mistakes)
{
    expect_refused("", "must be uniform:N, zipf:N:S, sequential:N or hot:N:P:H, not \"\"");
    expect_refused("gauss:5", "not \"gauss:5\"");
    expect_refused("Uniform:5", "not \"Uniform:5\"");
    expect_refused("uniform", "must have the form uniform:N");
    expect_refused("uniform:5:6", "must have the form uniform:N");
    expect_refused("zipf:5", "must have the form zipf:N:S");
    expect_refused("zipf:5:1:2", "must have the form zipf:N:S");
    expect_refused("zipf:5:1:2:3:4", "must have the form zipf:N:S");
    expect_refused("hot:5:0.5", "must have the form hot:N:P:H");
    expect_refused("sequential:", "N must be a whole number from 1");
    expect_refused("uniform:0", "N must be a whole number from 1");
    expect_refused("uniform:-1", "not \"-1\"");
    expect_refused("uniform:1.5", "not \"1.5\"");
    expect_refused("uniform:281474976710657", "to 281474976710656");
    expect_refused("zipf:5:0", "S must be a number above 0, up to 20, not \"0\"");
    expect_refused("zipf:5:-1", "S must be");
    expect_refused("zipf:5:21", "S must be");
    expect_refused("zipf:5:nan", "S must be");
    expect_refused("zipf:5:1x", "not \"1x\"");
    expect_refused("zipf:5:", "not \"\"");
    expect_refused("hot:5:0:1", "above 0 and below 1, not \"0\"");
    expect_refused("hot:5:1:1", "above 0 and below 1, not \"1\"");
    expect_refused("hot:5:x:1", "not \"x\"");
    expect_refused("hot:5:0.5:0", "H must be a whole number from 1 to 4");
    expect_refused("hot:5:0.5:5", "H must be a whole number from 1 to 4, not \"5\"");
    expect_refused("hot:1:0.5:1", "at least 2 keys");
    expect_refused(
        "uniform:00000000000000000000000000000000000000000000000000000000000000000000000000000000000000"
        "00000000000000000000000000000000000000000000001",
        "--keys must be");
}

/* ---- draws against theory ---- */

static uint64_t counts[KEYS];

static void draw_all(const char *text, uint64_t seed)
{
    static uint64_t keys[DRAWS];
    struct tool_key_source source;
    assert_true(tool_key_law_parse(text, &law, error_text, sizeof(error_text)));
    assert_int_equal(law.count, KEYS);
    tool_key_source_init(&source, &law, seed, 0, 1);
    tool_key_source_draw(&source, keys, DRAWS);
    memset(counts, 0, sizeof(counts));
    for (uint32_t i = 0; i < DRAWS; i++) {
        assert_true(keys[i] < KEYS);
        counts[keys[i]]++;
    }
}

static double chi_square(const double probabilities[KEYS])
{
    double sum = 0;
    for (uint32_t i = 0; i < KEYS; i++) {
        const double expected = probabilities[i] * DRAWS, off = (double)counts[i] - expected;
        assert_true(expected >= 5); /* where the approximation holds */
        sum += off * off / expected;
    }
    return sum;
}

/* What a chi-square of KEYS - 1 degrees exceeds once in a thousand times (Wilson and Hilferty). */
static double limit(void)
{
    const double degrees = KEYS - 1, part = 2 / (9 * degrees);
    return degrees * pow(1 - part + 3.0902 * sqrt(part), 3);
}

static void zipf_probabilities(double out[KEYS], double exponent)
{
    double sum = 0;
    for (uint32_t i = 0; i < KEYS; i++)
        sum += out[i] = pow(i + 1.0, -exponent);
    for (uint32_t i = 0; i < KEYS; i++)
        out[i] /= sum;
}

static void hot_probabilities(double out[KEYS], double share, uint32_t hot)
{
    for (uint32_t i = 0; i < KEYS; i++)
        out[i] = i < hot ? share / hot : (1 - share) / (KEYS - hot);
}

TEST(test_uniform_keys)
{
    double wanted[KEYS];
    hot_probabilities(wanted, 0.5, KEYS / 2);
    draw_all("uniform:500", 1);
    assert_true(chi_square(wanted) < limit());
    hot_probabilities(wanted, 0.51, KEYS / 2); /* notices a difference */
    assert_true(chi_square(wanted) > limit());
}

TEST(test_zipf_keys)
{
    static const double exponents[] = {0.5, 0.99, 1, 1.05, 1.3};
    double wanted[KEYS];
    for (uint32_t i = 0; i < sizeof(exponents) / sizeof(*exponents); i++) {
        char text[32];
        snprintf(text, sizeof(text), "zipf:500:%g", exponents[i]);
        draw_all(text, i + 1);
        zipf_probabilities(wanted, exponents[i]);
        if (chi_square(wanted) >= limit())
            fail_msg("%s: %g, above %g", text, chi_square(wanted), limit());
        zipf_probabilities(wanted, exponents[i] + 0.03);
        assert_true(chi_square(wanted) > limit());
    }
}

TEST(test_hot_keys)
{
    double wanted[KEYS];
    hot_probabilities(wanted, 0.9, 10);
    draw_all("hot:500:0.9:10", 3);
    assert_true(chi_square(wanted) < limit());
    hot_probabilities(wanted, 0.89, 10);
    assert_true(chi_square(wanted) > limit());
}

TEST(test_extreme_zipf_laws)
{
    static const char *const texts[] = {"zipf:1:1", "zipf:2:20", "zipf:281474976710656:0.01",
                                        "zipf:281474976710656:1", "zipf:281474976710656:20"};
    for (uint32_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
        struct tool_key_source source;
        uint64_t keys[1000];
        assert_true(tool_key_law_parse(texts[i], &law, error_text, sizeof(error_text)));
        tool_key_source_init(&source, &law, 1, 0, 1);
        tool_key_source_draw(&source, keys, 1000);
        for (uint32_t k = 0; k < 1000; k++)
            assert_true(keys[k] < law.count);
    }
}

/* Each client begins at its own part, and comes to all keys. */
TEST(test_sequential_keys)
{
    struct tool_key_source source;
    uint64_t keys[12];
    assert_true(tool_key_law_parse("sequential:10", &law, error_text, sizeof(error_text)));
    for (uint32_t client = 0; client < 3; client++) {
        tool_key_source_init(&source, &law, 5, client, 3);
        tool_key_source_draw(&source, keys, 12);
        for (uint32_t i = 0; i < 12; i++)
            assert_int_equal(keys[i], (client * 10 / 3 + i) % 10);
    }
}

TEST(test_seeds)
{
    static const char *const texts[] = {"uniform:1000000", "zipf:1000000:1.05", "hot:1000000:0.5:1000"};
    for (uint32_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
        struct tool_key_source a, b, other_client, other_seed;
        uint64_t of_a[100], of_b[100], of_client[100], of_seed[100];
        assert_true(tool_key_law_parse(texts[i], &law, error_text, sizeof(error_text)));
        tool_key_source_init(&a, &law, 9, 1, 4);
        tool_key_source_init(&b, &law, 9, 1, 4);
        tool_key_source_init(&other_client, &law, 9, 2, 4);
        tool_key_source_init(&other_seed, &law, 109, 1, 4);
        tool_key_source_draw(&a, of_a, 100);
        tool_key_source_draw(&b, of_b, 40);
        tool_key_source_draw(&b, of_b + 40, 60);
        tool_key_source_draw(&other_client, of_client, 100);
        tool_key_source_draw(&other_seed, of_seed, 100);
        assert_memory_equal(of_a, of_b, sizeof(of_a));
        assert_memory_not_equal(of_a, of_client, sizeof(of_a));
        assert_memory_not_equal(of_a, of_seed, sizeof(of_a));
    }
}
