#include "power_disk.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "power_store.h"

void *power_array_grow(void *array, uint32_t count, size_t element_bytes)
{
    if ((count & (count - 1)) != 0)
        return array;
    void *grown = realloc(array, (count == 0 ? 1 : 2 * (size_t)count) * element_bytes);
    assert(grown);
    return grown;
}

/* ---- nodes ---- */

static void add_node(struct power_disk *disk, bool is_directory)
{
    disk->nodes = power_array_grow(disk->nodes, disk->node_count, sizeof(*disk->nodes));
    disk->nodes[disk->node_count++] = (struct power_node){.is_directory = is_directory};
}

void power_disk_init(struct power_disk *disk)
{
    *disk = (struct power_disk){0};
    add_node(disk, true);
}

void power_disk_clear(struct power_disk *disk)
{
    for (uint32_t n = 0; n < disk->node_count; n++) {
        struct power_node *node = &disk->nodes[n];
        for (uint32_t i = 0; i < node->piece_count; i++)
            free(node->own[i]);
        free((void *)node->pieces);
        free((void *)node->own);
        free(node->entries);
    }
    free(disk->nodes);
    *disk = (struct power_disk){0};
}

static void name_node(struct power_node *directory, const char *name, uint32_t node)
{
    for (uint32_t i = 0; i < directory->entry_count; i++)
        if (strcmp(directory->entries[i].name, name) == 0) {
            directory->entries[i].node = node;
            return;
        }
    directory->entries =
        power_array_grow(directory->entries, directory->entry_count, sizeof(*directory->entries));
    struct power_entry *entry = &directory->entries[directory->entry_count++];
    memcpy(entry->name, name, sizeof(entry->name));
    entry->node = node;
}

static void unname(struct power_node *directory, const char *name)
{
    for (uint32_t i = 0; i < directory->entry_count; i++)
        if (strcmp(directory->entries[i].name, name) == 0) {
            directory->entries[i] = directory->entries[--directory->entry_count];
            return;
        }
}

/* ---- contents ---- */

static void make_pieces(struct power_node *node, uint64_t bytes)
{
    while ((uint64_t)node->piece_count * POWER_PIECE_BYTES < bytes) {
        node->pieces = power_array_grow((void *)node->pieces, node->piece_count, sizeof(*node->pieces));
        node->own = power_array_grow((void *)node->own, node->piece_count, sizeof(*node->own));
        node->pieces[node->piece_count] = NULL;
        node->own[node->piece_count++] = NULL;
    }
    if (node->bytes < bytes)
        node->bytes = bytes;
}

/* A multiple of whole pieces, where it becomes shorter. */
static void set_length(struct power_node *node, uint64_t bytes)
{
    make_pieces(node, bytes);
    if (bytes == node->bytes)
        return;
    assert(bytes % POWER_PIECE_BYTES == 0);
    for (; node->piece_count > bytes / POWER_PIECE_BYTES; node->piece_count--)
        free(node->own[node->piece_count - 1]);
    node->bytes = bytes;
}

static uint8_t *own_piece(struct power_node *node, uint32_t i)
{
    if (!node->own[i]) {
        node->own[i] = calloc(1, POWER_PIECE_BYTES);
        assert(node->own[i]);
        if (node->pieces[i])
            memcpy(node->own[i], node->pieces[i], POWER_PIECE_BYTES);
        node->pieces[i] = node->own[i];
    }
    return node->own[i];
}

/* With `share` whole pieces stay where they are: at `data`. */
static void power_disk_put(struct power_node *node, const uint8_t *data, uint64_t bytes, uint64_t offset,
                           bool share)
{
    make_pieces(node, offset + bytes);
    while (bytes > 0) {
        const uint32_t i = (uint32_t)(offset / POWER_PIECE_BYTES);
        const uint64_t in = offset % POWER_PIECE_BYTES;
        const uint64_t n = bytes < POWER_PIECE_BYTES - in ? bytes : POWER_PIECE_BYTES - in;
        if (share && n == POWER_PIECE_BYTES) {
            free(node->own[i]);
            node->own[i] = NULL;
            node->pieces[i] = data;
        } else {
            memcpy(own_piece(node, i) + in, data, n);
        }
        data += n;
        offset += n;
        bytes -= n;
    }
}

size_t power_disk_read(const struct power_disk *disk, uint32_t number, void *data, size_t bytes,
                       uint64_t offset)
{
    const struct power_node *node = &disk->nodes[number];
    size_t done = 0;
    while (done < bytes && offset + done < node->bytes) {
        const uint64_t at = offset + done, in = at % POWER_PIECE_BYTES;
        uint64_t n = POWER_PIECE_BYTES - in;
        n = n < bytes - done ? n : bytes - done;
        n = n < node->bytes - at ? n : node->bytes - at;
        const uint8_t *piece = node->pieces[at / POWER_PIECE_BYTES];
        if (piece)
            memcpy((uint8_t *)data + done, piece + in, n);
        else
            memset((uint8_t *)data + done, 0, n);
        done += n;
    }
    return done;
}

void power_disk_copy(struct power_disk *disk, const struct power_disk *from)
{
    *disk = (struct power_disk){0};
    for (uint32_t n = 0; n < from->node_count; n++) {
        const struct power_node *node = &from->nodes[n];
        add_node(disk, node->is_directory);
        for (uint32_t i = 0; i < node->entry_count; i++)
            name_node(&disk->nodes[n], node->entries[i].name, node->entries[i].node);
        make_pieces(&disk->nodes[n], node->bytes);
        for (uint32_t i = 0; i < disk->nodes[n].piece_count; i++)
            disk->nodes[n].pieces[i] = node->pieces[i];
    }
}

void power_disk_apply(struct power_disk *disk, const struct power_change *c)
{
    switch (c->kind) {
    case POWER_NODE:
        assert(c->node == disk->node_count);
        add_node(disk, c->is_directory);
        break;
    case POWER_NAME:
        name_node(&disk->nodes[c->directory], c->name, c->node);
        break;
    case POWER_REMOVE:
        unname(&disk->nodes[c->directory], c->name);
        break;
    case POWER_MOVE:
        unname(&disk->nodes[c->directory], c->name);
        name_node(&disk->nodes[c->directory], c->to, c->node);
        break;
    case POWER_WRITE:
        power_disk_put(&disk->nodes[c->node], c->data, c->bytes, c->offset, true);
        break;
    case POWER_LENGTH:
        set_length(&disk->nodes[c->node], c->bytes);
        break;
    case POWER_SYNC:
    case POWER_SYNC_DIRECTORY:
        break;
    }
}

/* ---- the power fails ---- */

struct dice {
    uint64_t state;
};

/* Steele, Lea and Flood's SplitMix64. */
static uint64_t draw(struct dice *dice)
{
    uint64_t z = dice->state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static void put_sector(struct power_node *node, const struct power_change *c, uint64_t at, bool garble,
                       struct dice *dice)
{
    uint8_t sector[POWER_SECTOR_BYTES];
    const uint64_t n = c->bytes - at < sizeof(sector) ? c->bytes - at : sizeof(sector);
    memcpy(sector, c->data + at, n);
    const uint64_t r = draw(dice);
    if (garble && r % 4 == 0)
        sector[r / 4 % n] ^= (uint8_t)(1u << r / 4096 % 8);
    for (uint64_t i = 0; garble && r % 4 != 0 && i < n; i++)
        sector[i] = (uint8_t)draw(dice);
    power_disk_put(node, sector, n, c->offset + at, false);
}

static void put_sectors(struct power_node *node, const struct power_change *c, struct dice *dice)
{
    const bool may_garble = draw(dice) % 2 == 0;
    make_pieces(node, c->offset + c->bytes);
    for (uint64_t at = 0; at < c->bytes; at += POWER_SECTOR_BYTES) {
        const uint64_t fate = draw(dice) % 8;
        if (fate >= 2 || (fate == 1 && may_garble))
            put_sector(node, c, at, fate == 1, dice);
    }
}

static void write_unsynced(struct power_disk *disk, const struct power_change *c, uint64_t seed,
                           struct dice *dice)
{
    struct power_node *node = &disk->nodes[c->node];
    struct power_change part = *c;
    const uint64_t fate = seed < POWER_DRAWN ? 0 : 1 + draw(dice) % 7;
    switch (fate) {
    case 0:
        if (seed == POWER_ALL_KEPT)
            power_disk_apply(disk, c);
        break;
    case 1:
    case 2:
        power_disk_apply(disk, c);
        break;
    case 3: /* lost */
        break;
    case 4: /* the file's length came, and no content */
        make_pieces(node, c->offset + c->bytes);
        break;
    case 5: /* torn */
        part.bytes = draw(dice) % (c->bytes / POWER_SECTOR_BYTES + 1) * POWER_SECTOR_BYTES;
        power_disk_put(node, part.data, part.bytes, part.offset, false);
        break;
    case 6: /* one bit */
        part.bytes = c->bytes < POWER_SECTOR_BYTES ? c->bytes : POWER_SECTOR_BYTES;
        power_disk_put(node, c->data, c->bytes, c->offset, false);
        put_sector(node, &part, 0, true, dice);
        break;
    default:
        put_sectors(node, c, dice);
    }
}

static bool is_synced(const struct power_change *changes, uint32_t i, uint32_t count)
{
    const bool is_write = changes[i].kind == POWER_WRITE || changes[i].kind == POWER_LENGTH;
    const enum power_change_kind by = is_write ? POWER_SYNC : POWER_SYNC_DIRECTORY;
    const uint32_t node = is_write ? changes[i].node : changes[i].directory;
    for (uint32_t j = i + 1; j < count; j++)
        if (changes[j].kind == by && changes[j].node == node)
            return true;
    return false;
}

void power_disk_fail(struct power_disk *disk, const struct power_disk *before,
                     const struct power_change *changes, uint32_t count, uint64_t seed)
{
    struct dice dice = {.state = seed * UINT64_C(1000003) + count};
    /* Names reach the disk in order, as with a journal, or in any. */
    const bool in_order = draw(&dice) % 2 == 0;
    uint64_t names_left = draw(&dice) % 8;
    power_disk_copy(disk, before);
    for (uint32_t i = 0; i < count; i++) {
        const struct power_change *c = &changes[i];
        if (c->kind == POWER_NODE || ((c->kind < POWER_SYNC) && is_synced(changes, i, count))) {
            power_disk_apply(disk, c);
        } else if (c->kind == POWER_WRITE) {
            write_unsynced(disk, c, seed, &dice);
        } else if (c->kind == POWER_LENGTH) {
            if (seed == POWER_ALL_KEPT || (seed >= POWER_DRAWN && draw(&dice) % 2 == 0))
                power_disk_apply(disk, c);
        } else if (c->kind < POWER_WRITE) {
            bool kept = seed >= POWER_DRAWN ? draw(&dice) % 2 == 0 : seed != POWER_ALL_LOST;
            if (seed >= POWER_DRAWN && in_order)
                kept = names_left > 0;
            names_left -= names_left > 0;
            if (kept)
                power_disk_apply(disk, c);
        }
    }
}

/* ---- paths ---- */

static uint32_t lookup(const struct power_node *directory, const char *name)
{
    for (uint32_t i = 0; i < directory->entry_count; i++)
        if (strcmp(directory->entries[i].name, name) == 0)
            return directory->entries[i].node;
    return POWER_NO_NODE;
}

int power_disk_find(const struct power_disk *disk, const char *path, struct power_place *at)
{
    *at = (struct power_place){0};
    while (*path == '/')
        path++;
    while (*path != '\0') {
        const size_t n = strcspn(path, "/");
        if (at->node == POWER_NO_NODE)
            return -ENOENT;
        if (!disk->nodes[at->node].is_directory)
            return -ENOTDIR;
        assert(n < sizeof(at->name));
        at->directory = at->node;
        memset(at->name, 0, sizeof(at->name));
        memcpy(at->name, path, n);
        at->node = lookup(&disk->nodes[at->directory], at->name);
        path += n;
        while (*path == '/')
            path++;
    }
    return 0;
}
