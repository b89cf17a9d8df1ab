/* Batches of a plan: every sample once an epoch, the same at every building. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "tests/test.h"
#include "tests/unit/trainer_client/hub/format/formats_fixture.h"
#include "tests/unit/trainer_client/hub/packed.h"
#include "tests/unit/trainer_client/hub/temp_file.h"
#include "trainer_client/hub/open_source.h"

static char error_text[HUB_ERROR_BYTES];

/* 1000 Criteo lines; integer 1 of line i is i, category 1 too, categories 3..26 are missing in odd lines. */
static struct temp_file make_file(void)
{
    char *text = malloc(1000 * 200);
    size_t bytes = 0;
    assert_non_null(text);
    for (uint32_t i = 0; i < 1000; i++) {
        bytes += (size_t)sprintf(text + bytes, "%u\t%u\t\t\t\t\t\t\t\t\t\t\t\t\t%u\t%x", i % 2, i, i, i / 10);
        for (uint32_t category = 2; category < 26; category++)
            bytes += (size_t)sprintf(text + bytes, i % 2 == 0 ? "\tv" : "\t");
        text[bytes++] = '\n';
    }
    struct temp_file file = temp_file_make(text, bytes);
    free(text);
    return file;
}

static struct hub_request request_of(const struct temp_file *file, uint32_t batch_samples, uint64_t seed)
{
    struct hub_request r = {
        .format = "criteo", .table = "t", .batch_samples = batch_samples, .epochs = 3, .shuffle_seed = seed};
    snprintf(r.path, sizeof(r.path), "%s", file->path);
    return r;
}

static struct hub_batch_source *open_in_memory(struct hub_request request, size_t memory_bytes)
{
    struct hub_batch_source *s = NULL;
    const struct hub_batch_source_options options = {
        .request = &request, .formats = formats, .memory_bytes = memory_bytes};
    assert_int_equal(hub_batch_source_open(&options, &s, error_text), MR_OK);
    return s;
}

static struct hub_batch_source *open_source(struct hub_request request)
{
    return open_in_memory(request, 0);
}

static void check_shape(const struct hub_batch *b)
{
    assert_int_equal(b->slots, 26);
    assert_int_equal(b->dense_count, 13);
    assert_int_equal(b->offsets[0], 0);
    for (uint32_t bag = 0; bag < b->samples * b->slots; bag++)
        assert_true(b->offsets[bag] <= b->offsets[bag + 1]);
    assert_int_equal(b->offsets[b->samples * b->slots], b->key_count);
    for (uint32_t s = 0; s < b->samples; s++) {
        bool odd = b->labels[s] > 0.5f;
        assert_int_equal(b->offsets[(s + 1) * 26] - b->offsets[s * 26], odd ? 2 : 26);
    }
}

TEST(every_epoch_has_every_sample_once)
{
    struct temp_file file = make_file();
    struct hub_batch_source *s = open_source(request_of(&file, 64, 9));
    struct hub_batch b = {0};
    assert_int_equal(hub_batch_source_batches(s, 0), 3 * 16);
    for (uint32_t epoch = 0; epoch < 3; epoch++) {
        bool met[1000] = {false};
        for (uint64_t n = 0; n < 16; n++) {
            assert_int_equal(hub_batch_source_build(s, 0, epoch * 16 + n, &b, error_text), MR_OK);
            assert_int_equal(b.epoch, epoch);
            assert_int_equal(b.first_sample, n * 64);
            assert_int_equal(b.samples, n < 15 ? 64 : 1000 - 15 * 64);
            check_shape(&b);
            for (uint32_t i = 0; i < b.samples; i++) {
                uint32_t line = (uint32_t)(expm1((double)b.dense[i * 13]) + 0.5);
                assert_true(line < 1000);
                assert_false(met[line]);
                met[line] = true;
            }
        }
    }
    hub_batch_free(&b);
    hub_batch_source_close(s);
    close(file.fd);
}

/* `memory_bytes`: of the second of two sources, whose batches are the same. */
static void check_equal(size_t memory_bytes)
{
    struct temp_file file = make_file();
    struct hub_batch_source *s = open_source(request_of(&file, 100, 3)),
                            *t = open_in_memory(request_of(&file, 100, 3), memory_bytes);
    struct hub_batch a = {0}, b = {0};
    for (uint64_t n = 30; n-- > 0;) {
        assert_int_equal(hub_batch_source_build(s, 0, n, &a, error_text), MR_OK);
        assert_int_equal(hub_batch_source_build(t, 0, n, &b, error_text), MR_OK);
        assert_int_equal(a.samples, b.samples);
        assert_int_equal(a.key_count, b.key_count);
        assert_memory_equal(a.keys, b.keys, a.key_count * sizeof(*a.keys));
        assert_memory_equal(a.labels, b.labels, a.samples * sizeof(*a.labels));
        assert_memory_equal(a.dense, b.dense, a.samples * 13 * sizeof(*a.dense));
        assert_memory_equal(a.offsets, b.offsets, (a.samples * 26 + 1) * sizeof(*a.offsets));
    }
    hub_batch_free(&a);
    hub_batch_free(&b);
    hub_batch_source_close(s);
    hub_batch_source_close(t);
    close(file.fd);
}

TEST(a_batch_is_the_same_at_every_building)
{
    check_equal(0);
}

TEST(samples_in_memory_change_no_batch)
{
    check_equal(1u << 20);
    check_equal(1u << 16); /* holds some of them */
}

TEST(file_order_with_seed_zero)
{
    struct temp_file file = make_file();
    struct hub_batch_source *s = open_source(request_of(&file, 10, 0));
    struct hub_batch b = {0};
    assert_int_equal(hub_batch_source_build(s, 0, 107, &b, error_text), MR_OK);
    assert_int_equal((int)(expm1((double)b.dense[0]) + 0.5), 70);
    hub_batch_free(&b);
    hub_batch_source_close(s);
    close(file.fd);
}

TEST(a_buffer_serves_sources_of_other_shapes)
{
    struct temp_file criteo = make_file(), libsvm = temp_file_text("1 1:1 2:1\n-1 3:1\n");
    struct hub_request other = {.format = "libsvm", .table = "t", .batch_samples = 5, .epochs = 1};
    struct hub_batch_source *s = open_source(request_of(&criteo, 50, 1));
    snprintf(other.path, sizeof(other.path), "%s", libsvm.path);
    struct hub_batch_source *t = open_source(other);
    struct hub_batch b = {0};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(hub_batch_source_build(t, 0, 0, &b, error_text), MR_OK);
        assert_int_equal(b.samples, 2);
        assert_int_equal(b.key_count, 3);
        assert_int_equal(b.dense_count, 0);
        assert_int_equal(hub_batch_source_build(s, 0, 1, &b, error_text), MR_OK);
        check_shape(&b);
    }
    hub_batch_free(&b);
    hub_batch_source_close(s);
    hub_batch_source_close(t);
    close(criteo.fd);
    close(libsvm.fd);
}

TEST(a_batch_that_no_message_holds_is_refused)
{
    char *text = malloc(100000);
    size_t bytes = 1;
    assert_non_null(text);
    text[0] = '1';
    for (uint32_t i = 0; i < 4000; i++)
        bytes += (size_t)sprintf(text + bytes, " %u:1", i);
    struct temp_file file = temp_file_make(text, bytes);
    struct hub_request r = {.format = "libsvm", .table = "t", .batch_samples = 2000, .epochs = 1};
    struct hub_batch_source *s = NULL;
    snprintf(r.path, sizeof(r.path), "%s", file.path);
    const struct hub_batch_source_options options = {.request = &r, .formats = formats};
    assert_int_equal(hub_batch_source_open(&options, &s, error_text), MR_INVALID_ARGUMENT);
    assert_non_null(strstr(error_text, "take at most 524"));
    free(text);
    close(file.fd);
}

TEST(what_is_read_once_has_one_order)
{
    struct temp_file file = make_file();
    for (int what = 0; what < 4; what++) {
        struct hub_request r = request_of(&file, 10, what == 0 ? 7 : 0);
        struct hub_batch_source *s = NULL;
        const struct hub_batch_source_options options = {.request = &r, .formats = formats, .follow = true};
        r.epochs = what == 1 ? 2 : 1;
        r.held_out_ppm = what == 2 ? 1000 : 0;
        r.held_out = what == 3; /* of a format with labels */
        assert_int_equal(hub_batch_source_open(&options, &s, error_text), MR_INVALID_ARGUMENT);
        assert_non_null(
            strstr(error_text, what == 3 ? "format criteo: it has labels" : "epochs = 1, shuffle_seed = 0"));
    }
    close(file.fd);
}

TEST(no_samples_no_batches)
{
    struct temp_file file = temp_file_text("\n");
    struct hub_batch_source *s = open_source(request_of(&file, 10, 1));
    assert_int_equal(hub_batch_source_batches(s, 0), 0);
    hub_batch_source_close(s);
    hub_batch_source_close(NULL);
    close(file.fd);
}

TEST(a_file_cut_short_is_an_error)
{
    struct temp_file file = make_file();
    struct hub_batch_source *s = open_source(request_of(&file, 10, 0));
    struct hub_batch b = {0};
    assert_int_equal(ftruncate(file.fd, 2000), 0);
    assert_int_equal(hub_batch_source_build(s, 0, 99, &b, error_text), MR_IO_ERROR);
    hub_batch_free(&b);
    hub_batch_source_close(s);
    close(file.fd);
}

/* Of a packed file the samples of a window come before those of the next; each once, in an order of its own
 * in each epoch. */
TEST(packed_samples_are_shuffled_in_windows)
{
    enum { SAMPLES = 2 * HUB_WINDOW_SAMPLES + 5000, BATCH = 50000 };
    char *text = malloc((size_t)SAMPLES * 12);
    bool *met = malloc(2 * SAMPLES);
    size_t bytes = 0;
    assert_non_null(text);
    assert_non_null(met);
    memset(met, 0, 2 * SAMPLES);
    for (uint32_t i = 0; i < SAMPLES; i++)
        bytes += (size_t)sprintf(text + bytes, "%u 1:%u\n", i % 2, i + 1);
    struct packed packed = packed_zstd(text, bytes);
    struct temp_file file = temp_file_make(packed.data, packed.bytes);
    struct hub_format *format =
        read_format("[format]\nname = own\nlayout = libsvm\nslots = 1\nvalues = weights\n", error_text);
    struct hub_formats all = {.all = {format}, .count = 1};
    struct hub_request r = {
        .format = "own", .table = "t", .batch_samples = BATCH, .epochs = 2, .shuffle_seed = 7};
    struct hub_batch_source *s = NULL;
    struct hub_batch b = {0};
    snprintf(r.path, sizeof(r.path), "%s", file.path);
    const struct hub_batch_source_options options = {.request = &r, .formats = &all};
    assert_int_equal(hub_batch_source_open(&options, &s, error_text), MR_OK);
    const uint64_t batches = hub_batch_source_batches(s, 0) / 2;
    uint32_t in_order = 0, same = 0;
    for (uint64_t n = 0; n < 2 * batches; n++) {
        assert_int_equal(hub_batch_source_build(s, 0, n, &b, error_text), MR_OK);
        for (uint32_t i = 0; i < b.samples; i++) {
            uint64_t place = b.first_sample + i, sample = (uint64_t)lroundf(b.weights[i]) - 1;
            assert_int_equal(place / HUB_WINDOW_SAMPLES, sample / HUB_WINDOW_SAMPLES);
            assert_false(met[b.epoch * SAMPLES + sample]);
            met[b.epoch * SAMPLES + sample] = true;
            in_order += place == sample;
            same += place % HUB_WINDOW_SAMPLES == 0 && place == sample;
        }
    }
    assert_true(in_order < 100 && same < 4);
    hub_batch_free(&b);
    hub_batch_source_close(s);
    hub_format_free(format);
    close(file.fd);
    free(packed.data);
    free(text);
    free(met);
}

int main(void)
{
    return tests_run(make_formats, free_formats);
}
