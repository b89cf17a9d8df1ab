/* Text packed as users' tools pack it. */
#ifndef TESTS_PACKED_H
#define TESTS_PACKED_H

#include <stdlib.h>
#include <zlib.h>
#include <zstd.h>

struct packed {
    char *data; /* to be freed */
    size_t bytes;
};

/* One member of gzip. */
static inline struct packed packed_gzip(const char *text, size_t bytes)
{
    z_stream z = {0};
    assert_int_equal(deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
    struct packed p = {.bytes = deflateBound(&z, bytes) + 32};
    p.data = malloc(p.bytes);
    assert_non_null(p.data);
    z.next_in = (Bytef *)(uintptr_t)text;
    z.avail_in = (uInt)bytes;
    z.next_out = (Bytef *)p.data;
    z.avail_out = (uInt)p.bytes;
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    p.bytes -= z.avail_out;
    deflateEnd(&z);
    return p;
}

/* One frame of zstd. */
static inline struct packed packed_zstd(const char *text, size_t bytes)
{
    struct packed p = {.bytes = ZSTD_compressBound(bytes)};
    p.data = malloc(p.bytes);
    assert_non_null(p.data);
    p.bytes = ZSTD_compress(p.data, p.bytes, text, bytes, 3);
    assert_false(ZSTD_isError(p.bytes));
    return p;
}

/* The first followed by the second; frees both. */
static inline struct packed packed_join(struct packed a, struct packed b)
{
    struct packed p = {malloc(a.bytes + b.bytes), a.bytes + b.bytes};
    assert_non_null(p.data);
    memcpy(p.data, a.data, a.bytes);
    memcpy(p.data + a.bytes, b.data, b.bytes);
    free(a.data);
    free(b.data);
    return p;
}

#endif
