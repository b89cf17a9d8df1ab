#include "tools/bench/key_law.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "dataplane/wire/base/cli.h"
#include "tools/bench/random.h"

#define WORDS_MAX    4
#define TEXT_BYTES   128
#define EXPONENT_MAX 20.0

static const struct {
    const char *name, *form;
    uint32_t words;
} kinds[] = {
    [TOOL_KEYS_UNIFORM] = {"uniform", "uniform:N", 2},
    [TOOL_KEYS_ZIPF] = {"zipf", "zipf:N:S", 3},
    [TOOL_KEYS_SEQUENTIAL] = {"sequential", "sequential:N", 2},
    [TOOL_KEYS_HOT] = {"hot", "hot:N:P:H", 4},
};
#define KINDS (sizeof(kinds) / sizeof(*kinds))

/* Cuts at the colons, and returns how many words there are, of which WORDS_MAX are kept. */
static uint32_t key_law_split(char *text, const char *words[WORDS_MAX])
{
    uint32_t count = 0;
    for (char *at = text; at != NULL; count++) {
        char *colon = strchr(at, ':');
        if (colon != NULL)
            *colon++ = '\0';
        if (count < WORDS_MAX)
            words[count] = at;
        at = colon;
    }
    return count;
}

static bool take_count(const char *what, const char *word, uint64_t max, uint64_t *out, char *error,
                       size_t error_bytes)
{
    if (cli_u64(word, max, out) && *out > 0)
        return true;
    (void)snprintf(error, error_bytes, "--keys: %s must be a whole number from 1 to %" PRIu64 ", not \"%s\"",
                   what, max, word);
    return false;
}

static bool read_number(const char *word, double *out)
{
    char *end;
    *out = strtod(word, &end);
    return end != word && *end == '\0' && isfinite(*out);
}

static bool take_exponent(const char *word, double *out, char *error, size_t error_bytes)
{
    if (read_number(word, out) && *out > 0 && *out <= EXPONENT_MAX)
        return true;
    (void)snprintf(error, error_bytes, "--keys: S must be a number above 0, up to %g, not \"%s\"",
                   EXPONENT_MAX, word);
    return false;
}

static bool take_hot(const char *share, const char *keys, struct tool_key_law *law, char *error,
                     size_t error_bytes)
{
    if (!read_number(share, &law->hot_share) || law->hot_share <= 0 || law->hot_share >= 1) {
        (void)snprintf(error, error_bytes,
                       "--keys: P, the share of the hot keys, must be above 0 and below 1, not \"%s\"",
                       share);
        return false;
    }
    if (law->count < 2) {
        (void)snprintf(error, error_bytes, "--keys: hot needs at least 2 keys, hot and other ones");
        return false;
    }
    return take_count("H", keys, law->count - 1, &law->hot_count, error, error_bytes);
}

bool tool_key_law_parse(const char *text, struct tool_key_law *law, char *error, size_t error_bytes)
{
    char copy[TEXT_BYTES];
    const char *words[WORDS_MAX] = {"", "", "", ""};
    uint32_t kind = 0;
    (void)snprintf(copy, sizeof(copy), "%s", text);
    const uint32_t count = key_law_split(copy, words);
    while (kind < KINDS && strcmp(words[0], kinds[kind].name) != 0)
        kind++;
    if (kind == KINDS || strlen(text) >= sizeof(copy)) {
        (void)snprintf(error, error_bytes,
                       "--keys must be uniform:N, zipf:N:S, sequential:N or hot:N:P:H, not \"%s\"", text);
        return false;
    }
    if (count != kinds[kind].words) {
        (void)snprintf(error, error_bytes, "--keys: \"%s\" must have the form %s", text, kinds[kind].form);
        return false;
    }
    struct tool_key_law l = {.kind = (enum tool_key_kind)kind};
    if (!take_count("N", words[1], TOOL_KEYS_MAX, &l.count, error, error_bytes) ||
        (l.kind == TOOL_KEYS_ZIPF && !take_exponent(words[2], &l.exponent, error, error_bytes)) ||
        (l.kind == TOOL_KEYS_HOT && !take_hot(words[2], words[3], &l, error, error_bytes)))
        return false;
    *law = l;
    return true;
}

void tool_key_source_init(struct tool_key_source *s, const struct tool_key_law *law, uint64_t seed,
                          uint32_t client, uint32_t client_count)
{
    uint64_t own = seed + client;
    *s = (struct tool_key_source){.law = *law, .random = tool_random_next(&own)};
    s->next = (uint64_t)((unsigned __int128)law->count * client / client_count);
    if (law->kind == TOOL_KEYS_ZIPF)
        tool_zipf_init(&s->zipf, law->count, law->exponent);
}

static uint64_t draw_hot(struct tool_key_source *s)
{
    const struct tool_key_law *l = &s->law;
    if (tool_random_unit(&s->random) < l->hot_share)
        return tool_random_below(&s->random, l->hot_count);
    return l->hot_count + tool_random_below(&s->random, l->count - l->hot_count);
}

static uint64_t draw_next(struct tool_key_source *s)
{
    const uint64_t key = s->next;
    s->next = key + 1 == s->law.count ? 0 : key + 1;
    return key;
}

void tool_key_source_draw(struct tool_key_source *s, uint64_t *out, uint32_t count)
{
    switch (s->law.kind) {
    case TOOL_KEYS_UNIFORM:
        for (uint32_t i = 0; i < count; i++)
            out[i] = tool_random_below(&s->random, s->law.count);
        return;
    case TOOL_KEYS_ZIPF:
        for (uint32_t i = 0; i < count; i++)
            out[i] = tool_zipf_draw(&s->zipf, &s->random);
        return;
    case TOOL_KEYS_SEQUENTIAL:
        for (uint32_t i = 0; i < count; i++)
            out[i] = draw_next(s);
        return;
    case TOOL_KEYS_HOT:
        for (uint32_t i = 0; i < count; i++)
            out[i] = draw_hot(s);
        return;
    }
}
