#include "trainer_client/hub/samples/file_bytes.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#define PACKED_BYTES     (128u << 10)
#define GZIP_WINDOW_BITS (15 + 16) /* gzip's header and trailer, and the longest window */
#define SKIP_BYTES       4096u

enum packing { PLAIN, GZIP, ZSTD };

struct hub_file_bytes {
    int fd;
    enum packing packing;
    const char *error;
    const char *refusal;
    /* Of a packed file: */
    uint8_t *packed; /* [PACKED_BYTES] bytes read, of which [begin, end) are not unpacked yet */
    size_t begin, end;
    uint64_t packed_offset; /* in the file, of `end` */
    uint64_t offset;        /* of what is unpacked next */
    bool in_frame;          /* a member or frame has begun, and its end has not come */
    bool has_gzip;
    z_stream gzip;
    ZSTD_DStream *zstd;
};

static ssize_t read_at(int fd, void *out, size_t bytes, uint64_t offset)
{
    ssize_t n;
    do {
        n = pread(fd, out, bytes, (off_t)offset);
    } while (n < 0 && errno == EINTR);
    return n;
}

#define FIRST_BYTES 16u /* of a file, which show its kind; a shorter file is filled up with zeros */

static enum packing packing_of(const char first[FIRST_BYTES])
{
    static const uint8_t gzip[] = {0x1f, 0x8b}, zstd[] = {0x28, 0xb5, 0x2f, 0xfd};
    static const uint8_t skippable[] = {0x2a, 0x4d, 0x18}; /* a frame without samples: after 0x50 to 0x5f */
    if (memcmp(first, gzip, sizeof(gzip)) == 0)
        return GZIP;
    return memcmp(first, zstd, sizeof(zstd)) == 0 ||
                   ((first[0] & 0xf0) == 0x50 && memcmp(first + 1, skippable, sizeof(skippable)) == 0)
               ? ZSTD
               : PLAIN;
}

#define FEED_IT   "; read it in Python, and feed it with millrace.feed()"
#define UNPACK_IT "; unpack it, or pack it with gzip or zstd"

static const char *refusal_of(const char first[FIRST_BYTES])
{
    static const struct {
        const char *begin, *refusal;
    } kinds[] = {{"\xfd"
                  "7zXZ",
                  "is packed with xz" UNPACK_IT},
                 {"BZh91AY&SY", "is packed with bzip2" UNPACK_IT},
                 {"PK\x03\x04", "is a zip archive" UNPACK_IT},
                 {"\x04\x22\x4d\x18", "is packed with lz4" UNPACK_IT},
                 {"ORC\x0a", "is an ORC file" FEED_IT},
                 {"Obj\x01", "is an Avro file" FEED_IT},
                 {"\xff\xfe", "is text in UTF-16; convert it: iconv -f UTF-16 -t UTF-8"},
                 {"\xfe\xff", "is text in UTF-16; convert it: iconv -f UTF-16 -t UTF-8"},
                 {"PAR1\x15", "is a Parquet file; millrace.read_parquet() feeds it from Python"}};
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        if (strncmp(first, kinds[i].begin, strlen(kinds[i].begin)) == 0)
            return kinds[i].refusal;
    return NULL;
}

struct hub_file_bytes *hub_file_bytes_create(int fd)
{
    struct hub_file_bytes *in = calloc(1, sizeof(*in));
    char first[FIRST_BYTES] = {0};
    if (in == NULL)
        return NULL;
    in->fd = fd;
    (void)read_at(fd, first, sizeof(first), 0);
    in->packing = packing_of(first);
    in->refusal = refusal_of(first);
    return in;
}

void hub_file_bytes_destroy(struct hub_file_bytes *in)
{
    if (in == NULL)
        return;
    hub_file_bytes_rest(in);
    free(in);
}

void hub_file_bytes_rest(struct hub_file_bytes *in)
{
    if (in->has_gzip)
        (void)inflateEnd(&in->gzip);
    ZSTD_freeDStream(in->zstd);
    free(in->packed);
    in->has_gzip = false;
    in->zstd = NULL;
    in->packed = NULL;
}

bool hub_file_bytes_is_packed(const struct hub_file_bytes *in)
{
    return in->packing != PLAIN;
}

const char *hub_file_bytes_refusal(const struct hub_file_bytes *in)
{
    return in->refusal;
}

const char *hub_file_bytes_error(const struct hub_file_bytes *in)
{
    return in->error;
}

static ssize_t bytes_fail(struct hub_file_bytes *in, const char *error)
{
    in->error = error;
    return -1;
}

/* Makes what unpacks, at the start of the file. */
static bool begin_packed(struct hub_file_bytes *in)
{
    hub_file_bytes_rest(in);
    in->packed = malloc(PACKED_BYTES);
    if (in->packing == GZIP) {
        in->gzip = (z_stream){0};
        in->has_gzip = inflateInit2(&in->gzip, GZIP_WINDOW_BITS) == Z_OK;
    } else {
        in->zstd = ZSTD_createDStream();
    }
    in->begin = in->end = 0;
    in->packed_offset = in->offset = 0;
    in->in_frame = false;
    if (in->packed != NULL && (in->has_gzip || in->zstd != NULL))
        return true;
    in->error = "no memory to unpack it";
    return false;
}

/* Reads more packed bytes if there are none. False: the end, or an error. */
static bool file_bytes_fill(struct hub_file_bytes *in)
{
    if (in->begin < in->end)
        return true;
    ssize_t n = read_at(in->fd, in->packed, PACKED_BYTES, in->packed_offset);
    if (n < 0)
        in->error = strerror(errno);
    if (n <= 0)
        return false;
    in->begin = 0;
    in->end = (size_t)n;
    in->packed_offset += (size_t)n;
    return true;
}

/* Both take packed bytes and make up to `bytes`, maybe none yet. Returns how many, or -1. */
static ssize_t unpack_gzip(struct hub_file_bytes *in, void *out, size_t bytes)
{
    in->gzip.next_in = in->packed + in->begin;
    in->gzip.avail_in = (uInt)(in->end - in->begin);
    in->gzip.next_out = out;
    in->gzip.avail_out = (uInt)bytes;
    int status = inflate(&in->gzip, Z_NO_FLUSH);
    in->begin = in->end - in->gzip.avail_in;
    in->in_frame = status != Z_STREAM_END;
    if (status == Z_STREAM_END)
        (void)inflateReset(&in->gzip); /* another member may follow */
    else if (status != Z_OK && status != Z_BUF_ERROR)
        return bytes_fail(in, status == Z_MEM_ERROR ? "no memory to unpack it" : "its gzip data are damaged");
    return (ssize_t)(bytes - in->gzip.avail_out);
}

static ssize_t unpack_zstd(struct hub_file_bytes *in, void *out, size_t bytes)
{
    ZSTD_inBuffer from = {in->packed, in->end, in->begin};
    ZSTD_outBuffer to = {out, bytes, 0};
    size_t left = ZSTD_decompressStream(in->zstd, &to, &from);
    if (ZSTD_isError(left))
        return bytes_fail(in, "its zstd data are damaged, or need too much memory");
    in->begin = from.pos;
    in->in_frame = left != 0;
    return (ssize_t)to.pos;
}

/* Passes over zeros between members and frames, and after the last: tar and some stores fill up blocks. */
static bool fill_after_zeros(struct hub_file_bytes *in)
{
    while (file_bytes_fill(in)) {
        if (in->in_frame)
            return true;
        while (in->begin < in->end && in->packed[in->begin] == 0)
            in->begin++;
        if (in->begin < in->end)
            return true;
    }
    return false;
}

static ssize_t unpack(struct hub_file_bytes *in, void *out, size_t bytes)
{
    for (;;) {
        bool more = fill_after_zeros(in);
        if (!more && in->error != NULL)
            return -1;
        if (!more && !in->in_frame)
            return 0;
        /* Without more packed bytes what had no room before may still come. */
        ssize_t n = in->packing == GZIP ? unpack_gzip(in, out, bytes) : unpack_zstd(in, out, bytes);
        if (n == 0 && !more)
            return bytes_fail(in, "its packed data end too early");
        if (n != 0) {
            in->offset += n > 0 ? (uint64_t)n : 0;
            return n;
        }
    }
}

/* Goes to `offset` by unpacking what is before it. */
static bool seek_packed(struct hub_file_bytes *in, uint64_t offset)
{
    uint8_t skipped[SKIP_BYTES];
    if ((in->packed == NULL || offset < in->offset) && !begin_packed(in))
        return false;
    while (in->offset < offset) {
        uint64_t left = offset - in->offset;
        if (unpack(in, skipped, left < SKIP_BYTES ? (size_t)left : SKIP_BYTES) <= 0)
            return false;
    }
    return true;
}

ssize_t hub_file_bytes_read(struct hub_file_bytes *in, void *out, size_t bytes, uint64_t offset)
{
    ssize_t n;
    in->error = NULL;
    if (in->packing != PLAIN)
        return seek_packed(in, offset) ? unpack(in, out, bytes) : in->error != NULL ? -1 : 0;
    n = read_at(in->fd, out, bytes, offset);
    return n < 0 ? bytes_fail(in, strerror(errno)) : n;
}
