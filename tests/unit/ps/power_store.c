#include "power_store.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "power_disk.h"

struct ps_store_file {
    struct power_store *power;
    uint32_t node;
    bool direct;
};

struct power_store {
    struct ps_store store;
    pthread_mutex_t lock;
    struct power_disk found; /* before the first change */
    struct power_disk now;
    struct power_change *changes;
    uint32_t change_count;
};

static void power_store_note(struct power_store *p, const struct power_change *change)
{
    p->changes = power_array_grow(p->changes, p->change_count, sizeof(*p->changes));
    p->changes[p->change_count++] = *change;
    power_disk_apply(&p->now, &p->changes[p->change_count - 1]);
}

static void note_name(struct power_store *p, enum power_change_kind kind, const struct power_place *at,
                      uint32_t node)
{
    struct power_change change = {.kind = kind, .node = node, .directory = at->directory};
    memcpy(change.name, at->name, sizeof(change.name));
    power_store_note(p, &change);
}

/* A new file or directory; returns its number, or -errno. */
static int power_store_make(struct power_store *p, const char *path, bool is_directory)
{
    struct power_place at;
    int error = power_disk_find(&p->now, path, &at);
    if (error != 0)
        return error;
    if (at.node != POWER_NO_NODE)
        return -EEXIST;
    uint32_t node = p->now.node_count;
    struct power_change change = {.kind = POWER_NODE, .node = node, .is_directory = is_directory};
    power_store_note(p, &change);
    note_name(p, POWER_NAME, &at, node);
    return (int)node;
}

static int power_make_directory(void *self, const char *path)
{
    struct power_store *p = self;
    pthread_mutex_lock(&p->lock);
    int node = power_store_make(p, path, true);
    pthread_mutex_unlock(&p->lock);
    return node < 0 ? node : 0;
}

static struct ps_store_file *file_new(struct power_store *p, uint32_t node, bool direct)
{
    struct ps_store_file *file = malloc(sizeof(*file));
    assert(file);
    *file = (struct ps_store_file){.power = p, .node = node, .direct = direct};
    return file;
}

static int power_create(void *self, const char *path, bool direct, struct ps_store_file **file)
{
    struct power_store *p = self;
    pthread_mutex_lock(&p->lock);
    int node = power_store_make(p, path, false);
    pthread_mutex_unlock(&p->lock);
    if (node < 0)
        return node;
    *file = file_new(p, (uint32_t)node, direct);
    return 0;
}

/* What a path leads to, or -errno. */
static int existing(struct power_store *p, const char *path, struct power_place *at)
{
    int error = power_disk_find(&p->now, path, at);
    return error != 0 ? error : at->node == POWER_NO_NODE ? -ENOENT : 0;
}

static int power_open(void *self, const char *path, struct ps_store_file **file, uint64_t *file_bytes)
{
    struct power_store *p = self;
    struct power_place at;
    pthread_mutex_lock(&p->lock);
    int error = existing(p, path, &at);
    if (error == 0 && p->now.nodes[at.node].is_directory)
        error = -EISDIR;
    if (error == 0) {
        *file = file_new(p, at.node, false);
        *file_bytes = p->now.nodes[at.node].bytes;
    }
    pthread_mutex_unlock(&p->lock);
    return error;
}

static int power_facts(void *self, const char *path, uint64_t *file_bytes, int64_t *written_s)
{
    struct power_store *p = self;
    struct power_place at;
    pthread_mutex_lock(&p->lock);
    int error = existing(p, path, &at);
    *file_bytes = error == 0 ? p->now.nodes[at.node].bytes : 0;
    *written_s = 0;
    pthread_mutex_unlock(&p->lock);
    return error;
}

static int64_t power_write(struct ps_store_file *file, const void *data, size_t bytes, uint64_t offset)
{
    struct power_store *p = file->power;
    uint8_t *copy = malloc(bytes + 1);
    assert(copy);
    memcpy(copy, data, bytes);
    struct power_change change = {
        .kind = POWER_WRITE, .node = file->node, .data = copy, .bytes = bytes, .offset = offset};
    pthread_mutex_lock(&p->lock);
    power_store_note(p, &change);
    pthread_mutex_unlock(&p->lock);
    return (int64_t)bytes;
}

static int64_t power_read(struct ps_store_file *file, void *data, size_t bytes, uint64_t offset)
{
    struct power_store *p = file->power;
    pthread_mutex_lock(&p->lock);
    size_t n = power_disk_read(&p->now, file->node, data, bytes, offset);
    pthread_mutex_unlock(&p->lock);
    return (int64_t)n;
}

static int power_sync(struct ps_store_file *file)
{
    struct power_store *p = file->power;
    struct power_change change = {.kind = POWER_SYNC, .node = file->node};
    pthread_mutex_lock(&p->lock);
    power_store_note(p, &change);
    pthread_mutex_unlock(&p->lock);
    return 0;
}

static int power_set_length(struct ps_store_file *file, uint64_t bytes)
{
    struct power_store *p = file->power;
    struct power_change change = {.kind = POWER_LENGTH, .node = file->node, .bytes = bytes};
    pthread_mutex_lock(&p->lock);
    power_store_note(p, &change);
    pthread_mutex_unlock(&p->lock);
    return 0;
}

static int power_close(struct ps_store_file *file)
{
    free(file);
    return 0;
}

static int power_descriptor(const struct ps_store_file *file)
{
    (void)file;
    return -1;
}

static bool power_is_direct(const struct ps_store_file *file)
{
    return file->direct;
}

static int power_drop_direct(struct ps_store_file *file)
{
    file->direct = false;
    return 0;
}

static int power_store_move(struct power_store *p, const char *from, const char *to)
{
    struct power_place source, target;
    int error = existing(p, from, &source);
    if (error == 0)
        error = power_disk_find(&p->now, to, &target);
    if (error != 0)
        return error;
    assert(source.directory == target.directory); /* a move between directories is two changes */
    if (target.node != POWER_NO_NODE && p->now.nodes[target.node].entry_count > 0)
        return -ENOTEMPTY;
    struct power_change change = {.kind = POWER_MOVE, .node = source.node, .directory = source.directory};
    memcpy(change.name, source.name, sizeof(change.name));
    memcpy(change.to, target.name, sizeof(change.to));
    power_store_note(p, &change);
    return 0;
}

static int power_rename(void *self, const char *from, const char *to)
{
    struct power_store *p = self;
    pthread_mutex_lock(&p->lock);
    int error = power_store_move(p, from, to);
    pthread_mutex_unlock(&p->lock);
    return error;
}

static int existing_directory(struct power_store *p, const char *path, struct power_place *at)
{
    int error = existing(p, path, at);
    return error == 0 && !p->now.nodes[at->node].is_directory ? -ENOTDIR : error;
}

static int power_sync_directory(void *self, const char *path)
{
    struct power_store *p = self;
    struct power_place at;
    pthread_mutex_lock(&p->lock);
    int error = existing_directory(p, path, &at);
    if (error == 0) {
        struct power_change change = {.kind = POWER_SYNC_DIRECTORY, .node = at.node};
        power_store_note(p, &change);
    }
    pthread_mutex_unlock(&p->lock);
    return error;
}

/* The visitor may remove what it is shown. */
static int power_list(void *self, const char *path, void (*visit)(void *arg, const char *name), void *arg)
{
    struct power_store *p = self;
    struct power_place at;
    struct power_entry *entries = NULL;
    uint32_t count = 0;
    pthread_mutex_lock(&p->lock);
    int error = existing_directory(p, path, &at);
    if (error == 0) {
        const struct power_node *node = &p->now.nodes[at.node];
        count = node->entry_count;
        entries = malloc((count + 1) * sizeof(*entries));
        assert(entries);
        if (count > 0)
            memcpy(entries, node->entries, count * sizeof(*entries));
    }
    pthread_mutex_unlock(&p->lock);
    for (uint32_t i = 0; i < count; i++)
        visit(arg, entries[i].name);
    free(entries);
    return error;
}

static int power_remove(void *self, const char *path)
{
    struct power_store *p = self;
    struct power_place at;
    pthread_mutex_lock(&p->lock);
    int error = existing(p, path, &at);
    if (error == 0 && p->now.nodes[at.node].entry_count > 0)
        error = -ENOTEMPTY;
    if (error == 0)
        note_name(p, POWER_REMOVE, &at, at.node);
    pthread_mutex_unlock(&p->lock);
    return error;
}

/* As the local store does it. */
static int power_replace(void *self, const char *path, const void *data, size_t bytes)
{
    struct power_store *p = self;
    char temporary[PS_PATH_BYTES + 8], directory[PS_PATH_BYTES];
    const char *slash = strrchr(path, '/');
    (void)snprintf(temporary, sizeof(temporary), "%s.new", path);
    (void)snprintf(directory, sizeof(directory), "%.*s", slash > path ? (int)(slash - path) : 1, path);
    (void)p->store.remove(p, temporary);
    int error = ps_store_write_new(&p->store, temporary, data, bytes);
    if (error == 0)
        error = p->store.rename(p, temporary, path);
    return error != 0 ? error : p->store.sync_directory(p, directory);
}

static int power_claim(void *self, const char *path, bool shared, int *claim)
{
    struct power_store *p = self;
    struct power_place at;
    pthread_mutex_lock(&p->lock);
    int error = existing_directory(p, path, &at);
    int *claims = error == 0 ? &p->now.nodes[at.node].claims : NULL;
    if (error == 0 && (*claims == POWER_CLAIMED_ALONE || (*claims > 0 && !shared)))
        error = -EBUSY;
    if (error == 0) {
        *claims = shared ? *claims + 1 : POWER_CLAIMED_ALONE;
        *claim = (int)at.node;
    }
    pthread_mutex_unlock(&p->lock);
    return error;
}

static void power_release(void *self, int claim)
{
    struct power_store *p = self;
    pthread_mutex_lock(&p->lock);
    int *claims = &p->now.nodes[claim].claims;
    *claims = *claims == POWER_CLAIMED_ALONE ? 0 : *claims - 1;
    pthread_mutex_unlock(&p->lock);
}

static struct power_store *store_new(void)
{
    struct power_store *p = calloc(1, sizeof(*p));
    assert(p);
    pthread_mutex_init(&p->lock, NULL);
    p->store = (struct ps_store){
        .self = p,
        .make_directory = power_make_directory,
        .create = power_create,
        .open = power_open,
        .write = power_write,
        .read = power_read,
        .sync = power_sync,
        .reserve = power_set_length,
        .set_length = power_set_length,
        .close = power_close,
        .descriptor = power_descriptor,
        .is_direct = power_is_direct,
        .drop_direct = power_drop_direct,
        .replace = power_replace,
        .rename = power_rename,
        .sync_directory = power_sync_directory,
        .list = power_list,
        .facts = power_facts,
        .remove = power_remove,
        .claim = power_claim,
        .release = power_release,
    };
    return p;
}

struct power_store *power_store_create(void)
{
    struct power_store *p = store_new();
    power_disk_init(&p->found);
    power_disk_copy(&p->now, &p->found);
    return p;
}

struct power_store *power_store_after_failure(const struct power_store *p, uint32_t changes, uint64_t seed)
{
    assert(changes <= p->change_count);
    struct power_store *after = store_new();
    power_disk_fail(&after->found, &p->found, p->changes, changes, seed);
    power_disk_copy(&after->now, &after->found);
    return after;
}

void power_store_destroy(struct power_store *p)
{
    power_disk_clear(&p->now);
    power_disk_clear(&p->found);
    for (uint32_t i = 0; i < p->change_count; i++)
        free(p->changes[i].data);
    free(p->changes);
    pthread_mutex_destroy(&p->lock);
    free(p);
}

const struct ps_store *power_store_calls(struct power_store *p)
{
    return &p->store;
}

uint32_t power_store_changes(const struct power_store *p)
{
    return p->change_count;
}

const char *power_store_change(const struct power_store *p, uint32_t number)
{
    static const char *const kinds[] = {
        [POWER_NODE] = "new file",     [POWER_NAME] = "name",
        [POWER_REMOVE] = "removal of", [POWER_MOVE] = "move of",
        [POWER_WRITE] = "write to",    [POWER_LENGTH] = "length of",
        [POWER_SYNC] = "fsync of",     [POWER_SYNC_DIRECTORY] = "fsync of directory"};
    static char text[2 * POWER_NAME_BYTES + 64];
    const struct power_change *change = &p->changes[number];
    (void)snprintf(text, sizeof(text), "%s %s %s (file %u)", kinds[change->kind], change->name, change->to,
                   (unsigned)change->node);
    return text;
}
