#include "tools/arrays/npy.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAGIC        "\x93NUMPY"
#define MAGIC_BYTES  6u
#define ALIGNMENT    64u
#define GROWTH_CHARS 21 /* numpy leaves room for the first dimension to grow to so many digits */

static const struct {
    enum mr_dtype dtype;
    const char *text;
} types[] = {
    {MR_U8, "|u1"},  {MR_I8, "|i1"},  {MR_U16, "<u2"}, {MR_F16, "<f2"}, {MR_U32, "<u4"},
    {MR_I32, "<i4"}, {MR_F32, "<f4"}, {MR_U64, "<u8"}, {MR_I64, "<i8"}, {MR_F64, "<f8"},
};

/* ---- reading ---- */

struct parse {
    const char *at, *end;
    char *error;
};

static bool parse_fail(const struct parse *p, const char *format, ...) __attribute__((format(printf, 2, 3)));
static bool parse_fail(const struct parse *p, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)vsnprintf(p->error, TOOL_NPY_ERROR_BYTES, format, args);
    va_end(args);
    return false;
}

static void skip_spaces(struct parse *p)
{
    while (p->at < p->end && (*p->at == ' ' || *p->at == '\t' || *p->at == '\n'))
        p->at++;
}

/* The character, with spaces before it. */
static bool npy_take(struct parse *p, char c)
{
    skip_spaces(p);
    if (p->at == p->end || *p->at != c)
        return false;
    p->at++;
    return true;
}

static bool take_word(struct parse *p, const char *word)
{
    const size_t bytes = strlen(word);
    skip_spaces(p);
    if ((size_t)(p->end - p->at) < bytes || memcmp(p->at, word, bytes) != 0)
        return false;
    p->at += bytes;
    return true;
}

/* A string literal without escapes, at most out_bytes - 1 characters. */
static bool take_string(struct parse *p, char *out, size_t out_bytes)
{
    skip_spaces(p);
    if (p->at == p->end || (*p->at != '\'' && *p->at != '"'))
        return false;
    const char quote = *p->at++;
    size_t n = 0;
    while (p->at < p->end && *p->at != quote) {
        if (*p->at == '\\' || *p->at < ' ' || *p->at > '~' || n + 1 == out_bytes)
            return false;
        out[n++] = *p->at++;
    }
    out[n] = '\0';
    return p->at++ < p->end;
}

static bool take_number(struct parse *p, uint64_t *out)
{
    uint64_t n = 0;
    skip_spaces(p);
    const char *first = p->at;
    for (; p->at < p->end && *p->at >= '0' && *p->at <= '9'; p->at++) {
        const uint64_t digit = (uint64_t)(*p->at - '0');
        if (n > (UINT64_MAX - digit) / 10)
            return false;
        n = n * 10 + digit;
    }
    *out = n;
    return p->at > first;
}

static bool parse_descr(struct parse *p, struct tool_npy *out)
{
    char text[16];
    skip_spaces(p);
    if (p->at < p->end && *p->at == '[')
        return parse_fail(p, "its elements are records; save one field of it by itself");
    if (!take_string(p, text, sizeof(text)))
        return parse_fail(p, "its descr cannot be read");
    for (size_t i = 0; i < sizeof(types) / sizeof(*types); i++) {
        /* "<u1" is the same as "|u1". */
        if (strcmp(text, types[i].text) == 0 ||
            (types[i].text[0] == '|' && text[0] == '<' && strcmp(text + 1, types[i].text + 1) == 0)) {
            out->dtype = types[i].dtype;
            return true;
        }
    }
    if (text[0] == '>')
        return parse_fail(p, "its numbers are big-endian ('%s'); save a.astype('<%s')", text, text + 1);
    return parse_fail(p, "its elements are '%s'; whole numbers and floats of up to 8 bytes are read", text);
}

static bool parse_shape(struct parse *p, struct tool_npy *out)
{
    out->rank = 0;
    if (!npy_take(p, '('))
        return parse_fail(p, "its shape cannot be read");
    bool comma = true;
    while (!npy_take(p, ')')) {
        uint64_t n;
        if (!comma || !take_number(p, &n))
            return parse_fail(p, "its shape cannot be read");
        if (out->rank == TOOL_NPY_RANK_MAX)
            return parse_fail(p, "it has more than %u dimensions", TOOL_NPY_RANK_MAX);
        out->shape[out->rank++] = n;
        comma = npy_take(p, ',');
    }
    /* (3) is a number in Python; (3,) is a tuple. */
    return out->rank != 1 || comma ? true : parse_fail(p, "its shape cannot be read");
}

enum { SEEN_DESCR = 1, SEEN_ORDER = 2, SEEN_SHAPE = 4, SEEN_ALL = 7 };

static bool parse_entry(struct parse *p, uint32_t *seen, bool *column_major, struct tool_npy *out)
{
    char key[16];
    uint32_t bit;
    if (!take_string(p, key, sizeof(key)) || !npy_take(p, ':'))
        return parse_fail(p, "its header is no dictionary of descr, fortran_order and shape");
    if (strcmp(key, "descr") == 0)
        bit = SEEN_DESCR;
    else if (strcmp(key, "fortran_order") == 0)
        bit = SEEN_ORDER;
    else if (strcmp(key, "shape") == 0)
        bit = SEEN_SHAPE;
    else
        return parse_fail(p, "its header has a key '%s', which no version of the format has", key);
    if ((*seen & bit) != 0)
        return parse_fail(p, "its header has the key '%s' twice", key);
    *seen |= bit;
    if (bit == SEEN_DESCR)
        return parse_descr(p, out);
    if (bit == SEEN_SHAPE)
        return parse_shape(p, out);
    *column_major = take_word(p, "True");
    return *column_major || take_word(p, "False") ? true : parse_fail(p, "its fortran_order cannot be read");
}

static bool parse_dictionary(struct parse *p, struct tool_npy *out)
{
    uint32_t seen = 0;
    bool column_major = false, comma = true;
    if (!npy_take(p, '{'))
        return parse_fail(p, "its header is no dictionary of descr, fortran_order and shape");
    while (!npy_take(p, '}')) {
        if (!comma)
            return parse_fail(p, "its header is no dictionary of descr, fortran_order and shape");
        if (!parse_entry(p, &seen, &column_major, out))
            return false;
        comma = npy_take(p, ',');
    }
    skip_spaces(p);
    if (seen != SEEN_ALL || p->at != p->end)
        return parse_fail(p, "its header is no dictionary of descr, fortran_order and shape");
    if (column_major && out->rank > 1)
        return parse_fail(p, "it is in column-major order; save numpy.ascontiguousarray(a)");
    return true;
}

/* The elements are what is left of the file. */
static bool check_length(const struct parse *p, uint64_t file_bytes, struct tool_npy *out)
{
    uint64_t bytes = mr_dtype_bytes(out->dtype);
    for (uint32_t i = 0; i < out->rank; i++)
        if (__builtin_mul_overflow(bytes, out->shape[i], &bytes) || bytes > INT64_MAX)
            return parse_fail(p, "its shape is larger than any file");
    out->data_bytes = bytes;
    const uint64_t have = file_bytes - out->data_offset;
    if (have != bytes)
        return parse_fail(p, "%s: %" PRIu64 " bytes of elements, and its shape asks for %" PRIu64,
                          have < bytes ? "it is cut short" : "something follows its elements", have, bytes);
    return true;
}

bool tool_npy_parse(
    const uint8_t *head, size_t head_bytes, uint64_t file_bytes, struct tool_npy *out,
    char error[TOOL_NPY_ERROR_BYTES]) /* NOLINT(readability-non-const-parameter): p writes it */
{
    struct parse p = {.error = error};
    if (head_bytes < MAGIC_BYTES + 2 || memcmp(head, MAGIC, MAGIC_BYTES) != 0)
        return parse_fail(&p, "it is no .npy file; numpy.save() writes them");
    const uint8_t major = head[MAGIC_BYTES];
    if (major < 1 || major > 3 || head[MAGIC_BYTES + 1] != 0)
        return parse_fail(&p, "it is of version %u.%u of the format; 1.0, 2.0 and 3.0 are read", major,
                          head[MAGIC_BYTES + 1]);
    const size_t length_bytes = major == 1 ? 2 : 4, dictionary = MAGIC_BYTES + 2 + length_bytes;
    uint64_t header_bytes = 0;
    if (head_bytes < dictionary)
        return parse_fail(&p, "it is cut short in its header");
    for (size_t i = 0; i < length_bytes; i++)
        header_bytes |= (uint64_t)head[MAGIC_BYTES + 2 + i] << 8 * i;
    if (dictionary + header_bytes > TOOL_NPY_HEADER_BYTES_MAX)
        return parse_fail(&p, "its header is longer than any array of numbers needs");
    if (dictionary + header_bytes > head_bytes)
        return parse_fail(&p, "it is cut short in its header");
    p.at = (const char *)head + dictionary;
    p.end = p.at + header_bytes;
    struct tool_npy found = {.data_offset = dictionary + header_bytes};
    if (!parse_dictionary(&p, &found) || !check_length(&p, file_bytes, &found))
        return false;
    *out = found;
    return true;
}

/* ---- writing ---- */

struct text {
    char *out;
    size_t bytes, at; /* `at` counts beyond the end as well */
};

static void npy_add(struct text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void npy_add(struct text *t, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const size_t room = t->at < t->bytes ? t->bytes - t->at : 0;
    t->at += (size_t)vsnprintf(room > 0 ? t->out + t->at : NULL, room, format, args);
    va_end(args);
}

static const char *type_text(enum mr_dtype dtype)
{
    const enum mr_dtype stored = dtype == MR_BF16 ? MR_U16 : dtype;
    for (size_t i = 0; i < sizeof(types) / sizeof(*types); i++)
        if (types[i].dtype == stored)
            return types[i].text;
    return "?";
}

static void add_descr(struct text *t, const struct tool_npy_field *fields, uint32_t field_count)
{
    if (!fields[0].name) {
        npy_add(t, "'%s'", type_text(fields[0].dtype));
        return;
    }
    for (uint32_t i = 0; i < field_count; i++) {
        npy_add(t, "%s('%s', '%s'", i == 0 ? "[" : ", ", fields[i].name, type_text(fields[i].dtype));
        if (fields[i].columns > 0)
            npy_add(t, ", (%" PRIu32 ",)", fields[i].columns);
        npy_add(t, ")");
    }
    npy_add(t, "]");
}

size_t tool_npy_header(const struct tool_npy_field *fields, uint32_t field_count, uint64_t rows, uint8_t *out,
                       size_t out_bytes)
{
    const size_t dictionary = MAGIC_BYTES + 4;
    if (out_bytes < dictionary)
        return 0;
    char *text = (char *)out + dictionary;
    struct text t = {.out = text, .bytes = out_bytes - dictionary};
    npy_add(&t, "{'descr': ");
    add_descr(&t, fields, field_count);
    npy_add(&t, ", 'fortran_order': False, 'shape': (%" PRIu64 ",", rows);
    if (!fields[0].name && fields[0].columns > 0)
        npy_add(&t, " %" PRIu32, fields[0].columns);
    for (uint32_t i = 0; !fields[0].name && i < 2 && fields[0].more[i] > 0; i++)
        npy_add(&t, ", %" PRIu32, fields[0].more[i]);
    npy_add(&t, "), }");
    const int digits = snprintf(NULL, 0, "%" PRIu64, rows);
    npy_add(&t, "%*s", GROWTH_CHARS - digits, "");
    /* With the newline; as numpy does it, a whole line of spaces where none were needed. */
    const size_t used = dictionary + t.at + 1;
    const size_t total = used + (ALIGNMENT - used % ALIGNMENT);
    if (total > out_bytes || total - dictionary > UINT16_MAX)
        return 0;
    memset(text + t.at, ' ', total - dictionary - t.at);
    out[total - 1] = '\n';
    memcpy(out, MAGIC "\x01\x00", MAGIC_BYTES + 2);
    out[MAGIC_BYTES + 2] = (uint8_t)((total - dictionary) & 0xff);
    out[MAGIC_BYTES + 3] = (uint8_t)((total - dictionary) >> 8);
    return total;
}

/* ---- a file ---- */

static bool file_failed(const char *path, const char *what, char *text)
{
    (void)snprintf(text, TOOL_NPY_TEXT_BYTES, "%s: %s", path, what);
    return false;
}

/* 0, or an errno; the file's end is EIO. */
static int read_all(int fd, void *out, size_t bytes, uint64_t offset)
{
    uint8_t *to = out;
    while (bytes > 0) {
        const ssize_t n = pread(fd, to, bytes, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? errno : EIO;
        to += n;
        offset += (uint64_t)n;
        bytes -= (size_t)n;
    }
    return 0;
}

static bool read_header(struct tool_npy_file *f, char *text)
{
    struct stat st;
    char error[TOOL_NPY_ERROR_BYTES];
    if (fstat(f->fd, &st) != 0)
        return file_failed(f->path, strerror(errno), text);
    if (!S_ISREG(st.st_mode))
        return file_failed(f->path, "it is no regular file", text);
    const uint64_t file_bytes = (uint64_t)st.st_size;
    const size_t head_bytes = file_bytes < TOOL_NPY_HEADER_BYTES_MAX ? file_bytes : TOOL_NPY_HEADER_BYTES_MAX;
    uint8_t *head = malloc(TOOL_NPY_HEADER_BYTES_MAX);
    if (!head)
        return file_failed(f->path, strerror(ENOMEM), text);
    const int failed = read_all(f->fd, head, head_bytes, 0);
    bool good = failed == 0;
    if (!good)
        (void)file_failed(f->path, strerror(failed), text);
    else if (!tool_npy_parse(head, head_bytes, file_bytes, &f->array, error))
        good = file_failed(f->path, error, text);
    free(head);
    return good;
}

bool tool_npy_open(struct tool_npy_file *f, const char *path, char *text)
{
    *f = (struct tool_npy_file){.path = path};
    f->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (f->fd < 0)
        return file_failed(path, strerror(errno), text);
    if (read_header(f, text))
        return true;
    tool_npy_close(f);
    return false;
}

uint64_t tool_npy_row_bytes(const struct tool_npy *array)
{
    uint64_t bytes = mr_dtype_bytes(array->dtype);
    for (uint32_t i = 1; i < array->rank; i++)
        bytes *= array->shape[i];
    return bytes;
}

bool tool_npy_read(const struct tool_npy_file *f, uint64_t first, uint64_t count, void *out, char *text)
{
    const uint64_t row = tool_npy_row_bytes(&f->array);
    const int failed = read_all(f->fd, out, count * row, f->array.data_offset + first * row);
    return failed == 0 ? true : file_failed(f->path, strerror(failed), text);
}

void tool_npy_close(struct tool_npy_file *f)
{
    if (f->fd >= 0)
        (void)close(f->fd);
    f->fd = -1;
}
