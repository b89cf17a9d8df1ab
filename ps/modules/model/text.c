#include "ps/modules/model/text.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STATEMENT_BYTES 128u
#define WORDS_MAX       8u

static const char convnet[] =
    "input 1 28 28; conv2d 1 32 3; relu; conv2d 32 64 3; relu; max_pool2d 2; dropout 0.25; flatten; "
    "linear 9216 128; relu; dropout 0.5; linear 128 10; log_softmax";

struct statement {
    char text[STATEMENT_BYTES];
    char *words[WORDS_MAX];
    uint32_t word_count,
        numbers[WORDS_MAX]; /* of words[1..] that are whole numbers; others are checked where they are read */
    bool is_number[WORDS_MAX];
};

static void read_words(struct statement *s)
{
    char *rest = s->text, *word;
    s->word_count = 0;
    while ((word = strtok_r(rest, " \t\r\n", &rest)) != NULL && s->word_count < WORDS_MAX) {
        char *end;
        errno = 0;
        unsigned long number = strtoul(word, &end, 10);
        s->is_number[s->word_count] =
            *word >= '0' && *word <= '9' && *end == 0 && errno == 0 && number <= PS_LAYER_SIZE_MAX;
        s->numbers[s->word_count] = (uint32_t)number;
        s->words[s->word_count++] = word;
    }
    if (word != NULL)
        s->word_count = WORDS_MAX + 1; /* more than any statement has */
}

/* `count` numbers from words[first] on. */
static bool has_numbers(const struct statement *s, uint32_t first, uint32_t count)
{
    for (uint32_t i = first; i < first + count; i++)
        if (i >= s->word_count || !s->is_number[i])
            return false;
    return true;
}

/* [stride N] [pad N] from words[first] to the end. */
static bool read_window(const struct statement *s, uint32_t first, struct ps_layer *layer)
{
    for (uint32_t i = first; i < s->word_count; i += 2) {
        uint32_t *where = strcmp(s->words[i], "stride") == 0 ? layer->stride
                          : strcmp(s->words[i], "pad") == 0  ? layer->pad
                                                             : NULL;
        if (where == NULL || !has_numbers(s, i + 1, 1))
            return false;
        where[0] = where[1] = s->numbers[i + 1];
    }
    return true;
}

static bool read_dropout(const struct statement *s, struct ps_layer *layer)
{
    char *end;
    float probability = s->word_count == 2 ? strtof(s->words[1], &end) : 0;
    if (s->word_count != 2 || *end != 0 || !(probability >= 0 && probability <= 1))
        return false;
    *layer = ps_dropout(probability);
    return true;
}

/* How it is written; NULL: it was read. */
static const char *read_layer(const struct statement *s, struct ps_layer *layer)
{
    const char *name = s->words[0];
    if (strcmp(name, "conv2d") == 0) {
        if (!has_numbers(s, 1, 3) || s->word_count > WORDS_MAX)
            return "conv2d IN OUT KERNEL [stride N] [pad N]";
        *layer = ps_conv2d(s->numbers[1], s->numbers[2], s->numbers[3]);
        return read_window(s, 4, layer) ? NULL : "conv2d IN OUT KERNEL [stride N] [pad N]";
    }
    if (strcmp(name, "max_pool2d") == 0) {
        if (!has_numbers(s, 1, 1) || s->word_count > WORDS_MAX)
            return "max_pool2d KERNEL [stride N] [pad N]";
        *layer = ps_max_pool2d(s->numbers[1]);
        return read_window(s, 2, layer) ? NULL : "max_pool2d KERNEL [stride N] [pad N]";
    }
    if (strcmp(name, "linear") == 0) {
        *layer = ps_linear(s->numbers[1], s->numbers[2]);
        return has_numbers(s, 1, 2) && s->word_count == 3 ? NULL : "linear IN OUT";
    }
    if (strcmp(name, "dropout") == 0)
        return read_dropout(s, layer) ? NULL : "dropout PROBABILITY, from 0 to 1";
    *layer = strcmp(name, "relu") == 0      ? ps_relu()
             : strcmp(name, "flatten") == 0 ? ps_flatten()
                                            : ps_log_softmax();
    if (strcmp(name, ps_layer_name(layer->kind)) != 0)
        return "conv2d, linear, relu, max_pool2d, dropout, flatten or log_softmax";
    return s->word_count == 1 ? NULL : "a name and nothing else";
}

/* The first statement, and the one after it if it is no layer. True: this was one of them. */
static const char *read_head(const struct statement *s, uint32_t index, struct ps_model_text *out,
                             bool *is_head)
{
    *is_head = index == 0;
    if (index == 0) {
        uint32_t rank = s->word_count - 1; /* of no word: too large */
        if (strcmp(s->words[0], "input") != 0 || rank < 1 || rank > PS_SAMPLE_RANK_MAX ||
            !has_numbers(s, 1, rank))
            return "input with one to three numbers, the shape of a sample";
        out->sample.rank = rank;
        for (uint32_t d = 0; d < rank; d++)
            out->sample.dims[d] = s->numbers[d + 1];
    } else if (index == 1 && strcmp(s->words[0], "number") == 0) {
        *is_head = true;
        if (s->word_count != 2 || !has_numbers(s, 1, 1))
            return "number N";
        out->first_number = s->numbers[1];
    }
    return NULL;
}

static enum mr_status refuse(char *error, size_t error_bytes, uint32_t index, const char *text, size_t bytes,
                             const char *wanted)
{
    snprintf(error, error_bytes, "statement %u of the network, \"%.*s\": expected %s", index + 1,
             bytes > 60 ? 60 : (int)bytes, text, wanted);
    return MR_INVALID_ARGUMENT;
}

static enum mr_status read_statement(const char *text, size_t bytes, uint32_t index,
                                     struct ps_model_text *out, char *error, size_t error_bytes)
{
    struct statement s = {0};
    bool is_head;
    if (bytes >= STATEMENT_BYTES)
        return refuse(error, error_bytes, index, text, bytes, "fewer characters");
    memcpy(s.text, text, bytes);
    read_words(&s);
    if (s.word_count == 0)
        s.words[0] = s.text; /* "" */
    const char *wanted = read_head(&s, index, out, &is_head);
    if (wanted == NULL && !is_head) {
        if (out->layer_count == PS_NETWORK_LAYERS_MAX)
            wanted = "fewer layers";
        else
            wanted = read_layer(&s, &out->layers[out->layer_count++]);
    }
    return wanted == NULL ? MR_OK : refuse(error, error_bytes, index, text, bytes, wanted);
}

enum mr_status ps_model_read(const char *text, struct ps_model_text *out, char *error, size_t error_bytes)
{
    const char *at = strcmp(text, "convnet") == 0 ? convnet : text;
    enum mr_status status = MR_OK;
    memset(out, 0, sizeof(*out));
    for (uint32_t index = 0; status == MR_OK && at != NULL; index++) {
        const char *end = strchrnul(at, ';');
        size_t blank = strspn(at, " \t\r\n");
        if (*end == 0 && at + blank >= end && index > 0)
            break; /* nothing after the last ';' */
        at += blank;
        status = read_statement(at, (size_t)(end - at), index, out, error, error_bytes);
        at = *end == 0 ? NULL : end + 1;
    }
    return status;
}
