#include "trainer_client/hub/plan/request.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>
#include "dataplane/wire/format/bodies.h"

static bool copy_text(const struct mr_tensor *t, char *out, size_t out_bytes)
{
    if (t->dtype != MR_U8 || t->rank != 1 || t->bytes == 0 || t->bytes >= out_bytes ||
        memchr(t->data, '\0', t->bytes) != NULL)
        return false;
    memcpy(out, t->data, t->bytes);
    return true;
}

static const char *check_fields(const uint64_t f[MR_SAMPLE_PLAN_WORDS])
{
    if (f[MR_SAMPLE_PLAN_BATCH_SAMPLES] < 1 || f[MR_SAMPLE_PLAN_BATCH_SAMPLES] > HUB_BATCH_SAMPLES_MAX)
        return "batch_samples is not in 1..65536";
    if (f[MR_SAMPLE_PLAN_EPOCHS] < 1 || f[MR_SAMPLE_PLAN_EPOCHS] > HUB_EPOCHS_MAX)
        return "epochs is not in 1..1000000";
    if (f[MR_SAMPLE_PLAN_HELD_OUT_PPM] > HUB_HELD_OUT_PPM_MAX)
        return "held_out_share is not in 0..0.9";
    if (f[MR_SAMPLE_PLAN_PART] > 1)
        return "part is neither MR_PART_TRAIN nor MR_PART_HELD_OUT";
    return NULL;
}

enum mr_status hub_request_parse(const struct mr_message *message, struct hub_request *out, const char **why)
{
    const struct mr_tensor *t = message->tensors;
    uint64_t f[MR_SAMPLE_PLAN_WORDS];
    if (message->preamble.tensor_count != 4 || !mr_body_read(MR_BODY_SAMPLE_PLAN, &t[2], f)) {
        *why = "START_SAMPLE takes u8 path, u8 format, u64[8], u8 table name";
        return MR_BAD_MESSAGE;
    }
    struct hub_request r = {0};
    if (!copy_text(&t[0], r.path, sizeof(r.path))) {
        *why = "the path is empty or longer than 1023 bytes";
        return MR_INVALID_ARGUMENT;
    }
    if (!copy_text(&t[1], r.format, sizeof(r.format))) {
        *why = "the format's name is empty or too long";
        return MR_INVALID_ARGUMENT;
    }
    if (!copy_text(&t[3], r.table, sizeof(r.table))) {
        *why = "the table's name is empty or longer than 63 bytes";
        return MR_INVALID_ARGUMENT;
    }
    *why = check_fields(f);
    if (*why != NULL)
        return MR_INVALID_ARGUMENT;
    r.batch_samples = (uint32_t)f[MR_SAMPLE_PLAN_BATCH_SAMPLES];
    r.epochs = (uint32_t)f[MR_SAMPLE_PLAN_EPOCHS];
    r.shuffle_seed = f[MR_SAMPLE_PLAN_SHUFFLE_SEED];
    r.held_out_ppm = (uint32_t)f[MR_SAMPLE_PLAN_HELD_OUT_PPM];
    r.held_out = f[MR_SAMPLE_PLAN_PART] == 1;
    r.strict = f[MR_SAMPLE_PLAN_STRICT] != 0;
    r.run = f[MR_SAMPLE_PLAN_RUN];
    *out = r;
    return MR_OK;
}

bool hub_request_differs(const struct hub_request *taken, const struct hub_request *wanted, char *text,
                         size_t text_bytes)
{
    const struct {
        const char *name, *taken, *wanted;
    } texts[] = {
        {"path", taken->path, wanted->path},
        {"format", taken->format, wanted->format},
        {"table", taken->table, wanted->table},
        {"part", taken->held_out ? "held-out" : "training", wanted->held_out ? "held-out" : "training"},
    };
    const struct {
        const char *name;
        uint64_t taken, wanted;
    } numbers[] = {
        {"batch_samples", taken->batch_samples, wanted->batch_samples},
        {"epochs", taken->epochs, wanted->epochs},
        {"shuffle_seed", taken->shuffle_seed, wanted->shuffle_seed},
        {"held-out millionths", taken->held_out_ppm, wanted->held_out_ppm},
        {"strict", taken->strict, wanted->strict},
        {"run", taken->run, wanted->run},
    };
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        if (strcmp(texts[i].taken, texts[i].wanted) != 0) {
            snprintf(text, text_bytes, "%s %.130s, not %.130s", texts[i].name, texts[i].taken,
                     texts[i].wanted);
            return true;
        }
    }
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        if (numbers[i].taken != numbers[i].wanted) {
            snprintf(text, text_bytes, "%s %" PRIu64 ", not %" PRIu64, numbers[i].name, numbers[i].taken,
                     numbers[i].wanted);
            return true;
        }
    }
    return false;
}

/* What makes a plan what it is; strictness changes nothing of what is applied. */
struct numbers {
    uint64_t of[7];
};

static struct numbers numbers_of(const struct hub_request *r, uint64_t salt)
{
    return (struct numbers){
        {r->batch_samples, r->epochs, r->shuffle_seed, r->held_out_ppm, r->held_out, r->run, salt}};
}

struct mr_plan hub_request_plan(const struct hub_request *r, uint64_t data, uint64_t salt)
{
    const struct numbers numbers = numbers_of(r, salt);
    const char *const texts[] = {r->path, r->format, r->table};
    XXH128_hash_t hash = XXH3_128bits(&numbers, sizeof(numbers));
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        /* With the hash before it and its NUL: where a text ends counts. */
        uint8_t bytes[sizeof(hash) + HUB_PATH_BYTES];
        size_t text_bytes = strlen(texts[i]) + 1;
        memcpy(bytes, &hash, sizeof(hash));
        memcpy(bytes + sizeof(hash), texts[i], text_bytes);
        hash = XXH3_128bits(bytes, sizeof(hash) + text_bytes);
    }
    return (struct mr_plan){{hash.low64, hash.high64}, data};
}

/* As versions before this one named a plan, so that theirs are found. */
uint32_t hub_request_stream(const struct hub_request *r, uint64_t salt)
{
    const struct numbers numbers = numbers_of(r, salt);
    uint64_t hash = XXH3_64bits(&numbers, sizeof(numbers));
    hash = XXH3_64bits_withSeed(r->path, strlen(r->path), hash);
    hash = XXH3_64bits_withSeed(r->format, strlen(r->format), hash);
    hash = XXH3_64bits_withSeed(r->table, strlen(r->table), hash);
    return (uint32_t)(hash & 0xffff);
}
