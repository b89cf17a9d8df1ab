/* What a power_store's disk holds: files and directories by number, made by a list of changes. Contents are
 * shared with the changes that wrote them where whole pieces can be, so that a disk is quickly made. For one
 * thread. */
#ifndef TESTS_POWER_DISK_H
#define TESTS_POWER_DISK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define POWER_NAME_BYTES  64u
#define POWER_PIECE_BYTES (64u << 10)
#define POWER_NO_NODE     UINT32_MAX

enum power_change_kind {
    POWER_NODE, /* an empty file or directory comes to be; it has no name yet */
    POWER_NAME,
    POWER_REMOVE, /* of a name */
    POWER_MOVE,   /* within a directory, onto what has that name */
    POWER_WRITE,
    POWER_LENGTH, /* a file becomes `bytes` long: zeros come, or its end goes */
    POWER_SYNC,
    POWER_SYNC_DIRECTORY,
};

struct power_change {
    enum power_change_kind kind;
    uint32_t node;
    uint32_t directory; /* that has the name */
    bool is_directory;  /* POWER_NODE */
    char name[POWER_NAME_BYTES], to[POWER_NAME_BYTES];
    uint8_t *data; /* POWER_WRITE: the list's */
    uint64_t bytes, offset;
};

struct power_entry {
    char name[POWER_NAME_BYTES];
    uint32_t node;
};

#define POWER_CLAIMED_ALONE (-1)

struct power_node {
    bool is_directory;
    int claims; /* how many share it, or POWER_CLAIMED_ALONE */
    struct power_entry *entries;
    uint32_t entry_count;
    uint64_t bytes;
    const uint8_t **pieces; /* NULL: zeros */
    uint8_t **own;          /* the same piece, if it is this disk's own */
    uint32_t piece_count;
};

/* Node 0 is the root. */
struct power_disk {
    struct power_node *nodes;
    uint32_t node_count;
};

/* Where a path leads: its last name, in which directory, and the node, or POWER_NO_NODE. */
struct power_place {
    uint32_t directory, node;
    char name[POWER_NAME_BYTES];
};

void power_disk_init(struct power_disk *disk);
void power_disk_clear(struct power_disk *disk);
/* Shares contents with `from`, which must outlive it; nobody holds a claim on it. */
void power_disk_copy(struct power_disk *disk, const struct power_disk *from);
void power_disk_apply(struct power_disk *disk, const struct power_change *change);
/* What is left of `before` and these changes, see enum power_seed. Shares contents with both. */
void power_disk_fail(struct power_disk *disk, const struct power_disk *before,
                     const struct power_change *changes, uint32_t count, uint64_t seed);

/* -ENOENT, -ENOTDIR: no way leads there. */
int power_disk_find(const struct power_disk *disk, const char *path, struct power_place *at);
/* Bytes read; fewer at the end. */
size_t power_disk_read(const struct power_disk *disk, uint32_t number, void *data, size_t bytes,
                       uint64_t offset);

/* An array that doubles when `count` is a power of two; never NULL. */
void *power_array_grow(void *array, uint32_t count, size_t element_bytes);

#endif
