/* The reader of chains on a directory of checkpoints that refer to each other in any way: an error, or a
 * chain in which each link is a delta on the one before, and all records that are shown are well-formed and
 * belong to their link. The files live in memory.
 *
 * The input is a script. Its first byte is the id asked for (0: the newest). Then each checkpoint has five
 * bytes: its id, its parent's, what is wrong with it (enum wrong), and how many bytes follow, low one first:
 * the beginning of its only block behind the fixed fields of the header, which are made right, as is the
 * hash. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "fuzz_assert.h"
#include "memory_checkpoint.h"
#include "tests/unit/ps/reader_each.h"

#define LINKS_MAX 6u
#define IDS       8u /* ids are 1..7 */

enum wrong {
    WRONG_PARENT_HASH = 1,
    WRONG_MANIFEST = 2, /* a byte of it, which the first byte of the block tells */
    WRONG_FEATURE = 4,  /* the table has another dim */
    WRONG_BLOCK = 8,    /* its hash */
    NO_CORE_FILE = 16,
    OLD_VERSION = 32, /* the one before */
};

struct link {
    uint64_t id;
    struct memory_checkpoint files;
    struct ps_hash hash;
    uint8_t *block;
    char *json;
};

struct directory {
    struct link links[LINKS_MAX];
    uint32_t count;
};

static const struct link *link_of(const struct directory *d, uint64_t id)
{
    for (uint32_t i = 0; i < d->count; i++)
        if (d->links[i].id == id)
            return &d->links[i];
    return NULL;
}

/* "/ckpt-N" or "/ckpt-N/NAME". */
static const struct link *link_at(const struct directory *d, const char *path, const char **name)
{
    char first[16];
    const char *end = strchr(path + 1, '/');
    const size_t n = end ? (size_t)(end - path - 1) : strlen(path + 1);
    if (n >= sizeof(first))
        return NULL;
    memcpy(first, path + 1, n);
    first[n] = '\0';
    *name = end ? end + 1 : "";
    return link_of(d, ps_name_published(first));
}

static int open_file(void *self, const char *path, struct ps_store_file **file, uint64_t *file_bytes)
{
    const char *name = "";
    const struct link *link = link_at(self, path, &name);
    return memory_open(link ? &link->files : NULL, name, file, file_bytes);
}

static int list_names(void *self, const char *path, void (*visit)(void *arg, const char *name), void *arg)
{
    const struct directory *d = self;
    const char *name;
    if (path[0] != '\0') {
        const struct link *link = link_at(d, path, &name);
        if (link)
            visit(arg, PS_MANIFEST_NAME);
        return link ? 0 : -ENOENT;
    }
    for (uint32_t i = 0; i < d->count; i++) {
        char published[PS_PATH_BYTES];
        FUZZ_ASSERT(ps_path_published("", d->links[i].id, published));
        visit(arg, published + 1);
    }
    return 0;
}

static enum mr_status chain_visit(void *arg, const struct ps_record *record, const uint8_t *bytes)
{
    const struct ps_reader *r = arg;
    memory_check_record(record, bytes);
    FUZZ_ASSERT(record->kind != PS_RECORD_GONE || ps_reader_chain(r)->count > 1);
    return MR_OK;
}

/* Any chain that is opened is one. */
static void check_chain(const struct directory *d, const struct ps_reader *r)
{
    const uint32_t count = ps_reader_chain(r)->count;
    FUZZ_ASSERT(count >= 1 && count <= d->count);
    for (uint32_t i = 0; i < count; i++) {
        const struct ps_manifest *m = &ps_reader_chain(r)->links[i]->manifest;
        FUZZ_ASSERT(m->parent == (i == 0 ? 0 : ps_reader_chain(r)->links[i - 1]->manifest.id));
        FUZZ_ASSERT(m->parent < m->id);
        const struct ps_hash *hash =
            i == 0 ? &m->parent_hash : &ps_reader_chain(r)->links[i - 1]->manifest.hash;
        FUZZ_ASSERT(m->parent_hash.low == hash->low && m->parent_hash.high == hash->high);
    }
}

static void read_chain(struct directory *d, uint64_t id)
{
    struct ps_store store = {
        .self = d, .open = open_file, .read = memory_read, .close = memory_close, .list = list_names};
    struct ps_reader *r = NULL;
    char text[PS_TEXT_BYTES] = "";
    enum mr_status status = ps_reader_open(&store, "", id, &r, text);
    FUZZ_ASSERT((status == MR_OK) == (r != NULL));
    FUZZ_ASSERT(status == MR_OK || text[0] != '\0');
    if (!r)
        return;
    FUZZ_ASSERT(id == 0 || (ps_reader_manifest(r)->id == id && text[0] == '\0'));
    check_chain(d, r);
    FUZZ_ASSERT(reader_each(r, chain_visit, r, text) == MR_OK);
    ps_reader_close(r);
}

static void make_manifest(const struct directory *d, struct link *link, uint64_t parent, uint32_t wrong)
{
    struct ps_manifest m = memory_manifest(link->block, link->id, wrong & WRONG_FEATURE ? 5 : 4);
    m.version = ((const struct ps_block_header *)(const void *)link->block)->version;
    m.parent = parent;
    const struct link *below = link_of(d, parent);
    if (below && !(wrong & WRONG_PARENT_HASH))
        m.parent_hash = below->hash;
    else if (parent != 0)
        m.parent_hash.low = 1;
    link->json = ps_manifest_print(&m);
    FUZZ_ASSERT(link->json != NULL);
    struct ps_manifest parsed = {0};
    char text[PS_TEXT_BYTES];
    if (ps_manifest_parse(link->json, strlen(link->json), &parsed, text)) {
        link->hash = parsed.hash;
        ps_manifest_clear(&parsed);
    }
}

static void make_block(struct link *link, uint32_t number, const uint8_t *data, size_t bytes, uint32_t wrong)
{
    static _Alignas(64) uint8_t blocks[LINKS_MAX][PS_BLOCK_BYTES];
    link->block = blocks[number];
    memset(link->block, 0, PS_BLOCK_BYTES);
    const size_t from = offsetof(struct ps_block_header, payload_bytes);
    memcpy(link->block + from, data, bytes < PS_BLOCK_BYTES - from ? bytes : PS_BLOCK_BYTES - from);
    struct ps_block_header *header = (struct ps_block_header *)(void *)link->block;
    header->magic = PS_BLOCK_MAGIC;
    header->version = PS_FORMAT_VERSION - (wrong & OLD_VERSION ? 1 : 0);
    header->checkpoint_id = link->id;
    header->hash = memory_block_hash(link->block);
    header->hash.low ^= wrong & WRONG_BLOCK ? 1 : 0;
}

static void add_link(struct directory *d, uint64_t id, uint64_t parent, uint32_t wrong, const uint8_t *data,
                     size_t bytes)
{
    struct link *link = &d->links[d->count];
    link->id = id;
    make_block(link, d->count, data, bytes, wrong);
    make_manifest(d, link, parent, wrong);
    if (link->json == NULL)
        abort();
    const size_t length = strlen(link->json);
    if (wrong & WRONG_MANIFEST)
        link->json[(bytes > 0 ? data[0] * 7u : 0u) % length] ^= 1;
    link->files.manifest = (struct ps_store_file){.data = (const uint8_t *)link->json, .bytes = length};
    if (!(wrong & NO_CORE_FILE))
        link->files.core = (struct ps_store_file){.data = link->block, .bytes = PS_BLOCK_BYTES};
    d->count++;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct directory d = {.count = 0};
    if (bytes == 0)
        return 0;
    const uint64_t asked = data[0] % IDS;
    for (size_t at = 1; at + 5 <= bytes && d.count < LINKS_MAX;) {
        const uint64_t id = 1 + data[at] % (IDS - 1);
        size_t length = data[at + 3] | (size_t)data[at + 4] << 8;
        const size_t left = bytes - at - 5;
        length = length < left ? length : left;
        if (!link_of(&d, id))
            add_link(&d, id, data[at + 1] % IDS, data[at + 2], data + at + 5, length);
        at += 5 + length;
    }
    read_chain(&d, asked);
    for (uint32_t i = 0; i < d.count; i++)
        free(d.links[i].json);
    return 0;
}
