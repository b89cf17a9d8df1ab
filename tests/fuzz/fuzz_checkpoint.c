/* The checkpoint reader on any bytes: an error, or a restore in which every record is well-formed and belongs
 * to a feature of the manifest. The files live in memory. The first byte says what the rest is:
 *
 *   bit 0 clear  the MANIFEST, as it is
 *   bit 0 set    the beginning of the only block of core-000.mrc, under a manifest that names it
 *   bit 1 set    the block's fixed fields and hash are made right, so that the checks after it are reached
 *   bit 2 set    it is that of checkpoint 2, beside a whole checkpoint 1; a block is then a delta on it
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "fuzz_assert.h"
#include "memory_checkpoint.h"
#include "tests/unit/ps/reader_each.h"

#define LINKS 2u /* checkpoints 1 and 2 */

struct memory_store {
    struct memory_checkpoint links[LINKS];
};

static int open_file(void *self, const char *path, struct ps_store_file **file, uint64_t *file_bytes)
{
    const struct memory_store *links = self;
    return memory_open(&links->links[strncmp(path, "/ckpt-2/", 8) == 0], strrchr(path, '/') + 1, file,
                       file_bytes);
}

static int list_names(void *self, const char *path, void (*visit)(void *arg, const char *name), void *arg)
{
    const struct memory_store *links = self;
    uint64_t id = ps_name_published(path + 1);
    if (id < 1 || id > LINKS || !links->links[id - 1].manifest.data)
        return -ENOENT;
    visit(arg, PS_MANIFEST_NAME);
    return 0;
}

static enum mr_status checkpoint_visit(void *arg, const struct ps_record *record, const uint8_t *bytes)
{
    uint64_t *records = arg;
    ++*records;
    memory_check_record(record, bytes);
    return MR_OK;
}

static void read_checkpoint(struct memory_store *links, uint64_t id)
{
    struct ps_store store = {
        .self = links, .open = open_file, .read = memory_read, .close = memory_close, .list = list_names};
    struct ps_reader *r = NULL;
    char text[PS_TEXT_BYTES] = "";
    enum mr_status status = ps_reader_open(&store, "", id, &r, text);
    FUZZ_ASSERT((status == MR_OK) == (r != NULL) && (status == MR_OK) == (text[0] == '\0'));
    if (!r)
        return;
    uint64_t records = 0;
    FUZZ_ASSERT(ps_reader_manifest(r)->id == id && ps_reader_chain(r)->count <= id);
    FUZZ_ASSERT(reader_each(r, checkpoint_visit, &records, text) == MR_OK);
    ps_reader_close(r);
}

/* Checkpoint `id` of this block; gives the manifest's text, which is to be freed. */
static char *put_link(struct memory_store *links, uint64_t id, const uint8_t *block,
                      const struct ps_manifest *parent)
{
    struct ps_manifest m = memory_manifest(block, id, 4);
    if (parent) {
        m.parent = parent->id;
        m.parent_hash = parent->hash;
    }
    char *json = ps_manifest_print(&m);
    FUZZ_ASSERT(json != NULL);
    links->links[id - 1] =
        (struct memory_checkpoint){.manifest = {.data = (const uint8_t *)json, .bytes = strlen(json)},
                                   .core = {.data = block, .bytes = PS_BLOCK_BYTES}};
    return json;
}

/* Checkpoint 1, whole and without a record. */
static char *put_full(struct memory_store *links, struct ps_manifest *manifest)
{
    static _Alignas(64) uint8_t block[PS_BLOCK_BYTES];
    char text[PS_TEXT_BYTES];
    memset(block, 0, sizeof(struct ps_block_header));
    ps_block_seal(block, PS_FORMAT_VERSION, 1, 0, 0);
    char *json = put_link(links, 1, block, NULL);
    FUZZ_ASSERT(ps_manifest_parse(json, strlen(json), manifest, text));
    return json;
}

static void repair(uint8_t *block, uint64_t id)
{
    struct ps_block_header *header = (struct ps_block_header *)(void *)block;
    header->magic = PS_BLOCK_MAGIC;
    header->version = PS_FORMAT_VERSION;
    header->checkpoint_id = id;
    header->core = 0;
    header->number = 0;
    header->hash = memory_block_hash(block);
}

static void read_block(const uint8_t *data, size_t bytes, bool repaired, bool is_delta)
{
    static _Alignas(64) uint8_t block[PS_BLOCK_BYTES];
    struct memory_store links = {0};
    struct ps_manifest parent = {0};
    const uint64_t id = is_delta ? 2 : 1;
    char *full = is_delta ? put_full(&links, &parent) : NULL;
    memset(block, 0, sizeof(block));
    memcpy(block, data, bytes < sizeof(block) ? bytes : sizeof(block));
    if (repaired)
        repair(block, id);
    char *json = put_link(&links, id, block, is_delta ? &parent : NULL);
    read_checkpoint(&links, id);
    ps_manifest_clear(&parent);
    free(json);
    free(full);
}

static void read_manifest(const uint8_t *data, size_t bytes, bool is_second)
{
    struct memory_store links = {0};
    struct ps_manifest parent = {0};
    char *full = is_second ? put_full(&links, &parent) : NULL;
    links.links[is_second].manifest = (struct ps_store_file){.data = data, .bytes = bytes};
    links.links[is_second].core = links.links[0].core;
    read_checkpoint(&links, is_second ? 2 : 1);
    ps_manifest_clear(&parent);
    free(full);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    if (bytes == 0)
        return 0;
    const bool is_second = (data[0] & 4) != 0;
    if (data[0] & 1)
        read_block(data + 1, bytes - 1, (data[0] & 2) != 0, is_second);
    else
        read_manifest(data + 1, bytes - 1, is_second);
    return 0;
}
