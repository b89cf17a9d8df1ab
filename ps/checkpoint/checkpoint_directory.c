/* A directory of checkpoints: which ones it holds, who writes to it, and which of them go. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "ps/checkpoint/checkpoint.h"
#include "ps/checkpoint/checkpoint_manifest.h"
#include "ps/checkpoint/cluster_manifest.h"

#define CHECKPOINTS_MAX 4096u /* looked at when searching for the newest that is whole */
#define LOCK_NAME       "lock"
#define HOST_BYTES      65u
#define HOLDER_BYTES    160u

/* ---- which checkpoints it holds ---- */

/* The `limit` largest ids seen, in descending order. */
struct id_list {
    uint64_t (*id_of)(const char *name);
    uint64_t *ids;
    uint32_t limit, kept, seen;
};

static void collect(void *arg, const char *name)
{
    struct id_list *list = arg;
    uint64_t id = list->id_of(name);
    if (id == 0)
        return;
    list->seen++;
    uint32_t at = list->kept;
    while (at > 0 && list->ids[at - 1] < id)
        at--;
    if (at == list->limit)
        return;
    uint32_t tail = list->kept < list->limit ? list->kept - at : list->limit - 1 - at;
    memmove(&list->ids[at + 1], &list->ids[at], tail * sizeof(*list->ids));
    list->ids[at] = id;
    if (list->kept < list->limit)
        list->kept++;
}

/* A checkpoint of this node, or of a cluster. */
static uint64_t id_of_any(const char *name)
{
    const uint64_t id = ps_name_published(name);
    return id != 0 ? id : ps_name_cluster(name);
}

static int list_by(const struct ps_store *store, const char *directory, uint64_t (*id_of)(const char *name),
                   uint64_t *ids, uint32_t ids_max, uint32_t *count)
{
    struct id_list list = {.id_of = id_of, .limit = ids_max};
    list.ids = ids;
    store = store ? store : ps_store_local();
    int error = store->list(store->self, directory, collect, &list);
    *count = list.seen;
    return error == -ENOENT ? 0 : error;
}

int ps_checkpoint_list_all(const struct ps_store *store, const char *directory, uint64_t *ids,
                           uint32_t ids_max, uint32_t *count)
{
    return list_by(store, directory, id_of_any, ids, ids_max, count);
}

int ps_checkpoint_list_clusters(const struct ps_store *store, const char *directory, uint64_t *ids,
                                uint32_t ids_max, uint32_t *count)
{
    return list_by(store, directory, ps_name_cluster, ids, ids_max, count);
}

uint32_t ps_checkpoint_list(const struct ps_store *store, const char *directory, uint64_t *ids,
                            uint32_t ids_max)
{
    uint32_t count;
    (void)ps_checkpoint_list_all(store, directory, ids, ids_max, &count);
    return count;
}

enum mr_status ps_checkpoint_next_id(const struct ps_store *store, const char *directory, uint64_t *id,
                                     char *text)
{
    uint64_t newest = 0;
    uint32_t count;
    int error = ps_checkpoint_list_all(store, directory, &newest, 1, &count);
    if (error != 0) {
        ps_text_io(text, "open", directory, -error);
        return MR_IO_ERROR;
    }
    if (newest == (uint64_t)PS_CHECKPOINT_ID_MAX) {
        ps_text_path(text, directory,
                     "it has the checkpoint of the highest number: save to another directory");
        return MR_INVALID_ARGUMENT;
    }
    *id = newest + 1;
    return MR_OK;
}

/* Checks that the directory can be listed. */
static enum mr_status look_at(const struct ps_store *store, const char *directory, char *text)
{
    int error = ps_store_look(store, directory);
    if (error == 0)
        return MR_OK;
    if (error == -ENOENT) {
        ps_text_path(text, directory, "there is no such directory");
        return MR_CHECKPOINT_NOT_FOUND;
    }
    ps_text_io(text, "open", directory, -error);
    return MR_IO_ERROR;
}

enum mr_status ps_checkpoint_try(const uint64_t *ids, uint32_t count, ps_try_checkpoint attempt, void *arg,
                                 char *text)
{
    char why[PS_TEXT_BYTES], passed_over[PS_TEXT_BYTES] = "";
    enum mr_status status = MR_CHECKPOINT_NOT_FOUND;
    for (uint32_t i = 0; i < count; i++) {
        bool is_damaged = false;
        why[0] = '\0';
        status = attempt(arg, ids[i], &is_damaged, why);
        if (status == MR_OK)
            break;
        /* Only a broken checkpoint may be passed over: an older one lacks training that a newer one holds. */
        if (!is_damaged) {
            memcpy(passed_over, why, sizeof(why));
            break;
        }
        if (passed_over[0] == '\0')
            memcpy(passed_over, why, sizeof(why));
    }
    memcpy(text, passed_over, sizeof(passed_over));
    return status;
}

bool ps_checkpoint_is_there(const struct ps_store *store, const char *directory, uint64_t id)
{
    char path[PS_PATH_BYTES];
    store = store ? store : ps_store_local();
    return (ps_path_published(directory, id, path) && ps_store_look(store, path) == 0) ||
           ps_cluster_manifest_is_there(store, directory, id);
}

enum mr_status ps_checkpoint_find(const struct ps_store *store, const char *directory, uint64_t **ids,
                                  uint32_t *count, char *text)
{
    store = store ? store : ps_store_local();
    *ids = NULL;
    *count = 0;
    enum mr_status status = look_at(store, directory, text);
    if (status != MR_OK)
        return status;
    *ids = calloc(CHECKPOINTS_MAX, sizeof(**ids));
    if (!*ids)
        return ps_checkpoint_fail(text, "open", directory, -ENOMEM);
    const int error = ps_checkpoint_list_all(store, directory, *ids, CHECKPOINTS_MAX, count);
    *count = *count < CHECKPOINTS_MAX ? *count : CHECKPOINTS_MAX;
    if (error != 0)
        status = ps_checkpoint_fail(text, "list", directory, error);
    else if (*count == 0)
        status = MR_CHECKPOINT_NOT_FOUND;
    if (status == MR_OK)
        return status;
    if (error == 0)
        ps_text_path(text, directory, "there is no checkpoint in this directory");
    free(*ids);
    *ids = NULL;
    *count = 0;
    return status;
}

/* ---- one writer at a time ---- */

static enum mr_status lock_failed(char *text, const char *what, const char *path, int error)
{
    ps_text_io(text, what, path, error);
    return MR_IO_ERROR;
}

static void write_holder(int fd, const char *who)
{
    char host[HOST_BYTES] = "?", line[HOLDER_BYTES];
    (void)gethostname(host, sizeof(host) - 1);
    int n = snprintf(line, sizeof(line), "%.48s on host %s, pid %d\n", who, host, (int)getpid());
    /* The text is for people: a full disk must not prevent the lock. */
    if (ftruncate(fd, 0) == 0 && n > 0)
        (void)!pwrite(fd, line, (size_t)n, 0);
}

/* Reads the line that describes the holder, if there is one. */
static void read_holder(int fd, char holder[HOLDER_BYTES])
{
    ssize_t n = pread(fd, holder, HOLDER_BYTES - 1, 0);
    holder[n > 0 ? n : 0] = '\0';
    holder[strcspn(holder, "\n")] = '\0';
    if (holder[0] == '\0')
        (void)snprintf(holder, HOLDER_BYTES, "another process");
}

static enum mr_status refuse_lock(int fd, const char *directory, int error, char *text)
{
    char holder[HOLDER_BYTES], why[PS_TEXT_BYTES];
    if (error == EWOULDBLOCK) {
        read_holder(fd, holder);
        (void)snprintf(why, sizeof(why), "in use by %s: give each server its own directory", holder);
    } else {
        (void)snprintf(why, sizeof(why),
                       "cannot be locked: %s; mount it with locks (NFS: version 4, or local_lock=flock if no "
                       "other machine writes there)",
                       strerror(error));
    }
    ps_text_path(text, directory, why);
    return MR_IO_ERROR;
}

enum mr_status ps_checkpoint_lock(const char *directory, const char *who, int *lock, char *text)
{
    char path[PS_PATH_BYTES];
    *lock = PS_NO_LOCK;
    if (!ps_path_join(directory, LOCK_NAME, path))
        return lock_failed(text, "lock", directory, ENAMETOOLONG);
    if (mkdir(directory, PS_DIRECTORY_MODE) != 0 && errno != EEXIST)
        return lock_failed(text, "make directory", directory, errno);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, PS_FILE_MODE);
    if (fd < 0)
        return lock_failed(text, "open", path, errno);
    enum mr_status status =
        flock(fd, LOCK_EX | LOCK_NB) == 0 ? MR_OK : refuse_lock(fd, directory, errno, text);
    if (status != MR_OK) {
        close(fd);
        return status;
    }
    write_holder(fd, who);
    *lock = fd;
    return MR_OK;
}

bool ps_checkpoint_lock_is_on(int lock, const char *directory)
{
    char path[PS_PATH_BYTES];
    struct stat held, found;
    return lock != PS_NO_LOCK && ps_path_join(directory, LOCK_NAME, path) && fstat(lock, &held) == 0 &&
           stat(path, &found) == 0 && held.st_dev == found.st_dev && held.st_ino == found.st_ino;
}

void ps_checkpoint_unlock(int lock)
{
    if (lock != PS_NO_LOCK)
        close(lock);
}

/* ---- retention ---- */

/* A published checkpoint. Entries are in ascending order of ids, so a parent comes before its deltas. */
struct entry {
    uint64_t id, parent;
    struct ps_hash hash, parent_hash;
    bool is_newer; /* of a later format version: it is unknown what it is based on */
    bool is_by_trainer;
    uint32_t root; /* index of its chain's first entry */
    /* of a root: */
    bool is_broken; /* nothing of the chain can be restored */
    bool stays;
    bool has_own;    /* a link that no trainer asked for */
    bool is_listed;  /* among those of its kind */
    uint64_t newest; /* id */
};

struct directory {
    const struct ps_store *store;
    const char *path;
    struct entry *entries;
    uint32_t count;
};

/* Removes the directory of a writer that has died: a live one holds a claim on it. */
static void remove_temporary(const struct ps_store *store, const char *directory, uint64_t id)
{
    char path[PS_PATH_BYTES];
    int claim;
    if (!ps_path_temporary(directory, id, path) || ps_store_claim(store, path, false, &claim) != 0)
        return;
    (void)ps_store_remove_tree(store, path, PS_MANIFEST_NAME);
    ps_store_release(store, claim);
}

struct temporary_list {
    uint64_t *ids; /* NULL: they are only counted */
    uint32_t count, room;
    uint64_t highest; /* of those that are wanted */
};

static void collect_temporary(void *arg, const char *name)
{
    struct temporary_list *list = arg;
    const uint64_t id = ps_name_temporary(name);
    if (id == 0 || id > list->highest || (list->ids && list->count == list->room))
        return;
    if (list->ids)
        list->ids[list->count] = id;
    list->count++;
}

/* Where there are no claims, the next save may be writing: numbers beyond the newest checkpoint stay. */
static void remove_temporaries(const struct ps_store *store, const char *directory)
{
    uint64_t newest = UINT64_MAX;
    uint32_t ignored;
    if (!store->claim && ps_checkpoint_list_all(store, directory, &newest, 1, &ignored) != 0)
        return;
    struct temporary_list counted = {.highest = newest}, list = counted;
    if (store->list(store->self, directory, collect_temporary, &counted) != 0 || counted.count == 0)
        return;
    list.room = counted.count;
    list.ids = calloc(list.room, sizeof(*list.ids));
    if (list.ids && store->list(store->self, directory, collect_temporary, &list) == 0)
        for (uint32_t i = 0; i < list.count; i++)
            remove_temporary(store, directory, list.ids[i]);
    free(list.ids);
}

/* Renames a checkpoint to its temporary name, and syncs that before anything else is done. */
static bool hide(const struct directory *d, uint64_t id)
{
    char from[PS_PATH_BYTES], to[PS_PATH_BYTES];
    return ps_path_published(d->path, id, from) && ps_path_temporary(d->path, id, to) &&
           d->store->rename(d->store->self, from, to) == 0 &&
           d->store->sync_directory(d->store->self, d->path) == 0;
}

/* Removes the newest link first: wherever that is interrupted, no delta lacks its parent. A chain that is
 * being read stays. */
static void remove_chain(const struct directory *d, uint32_t root)
{
    char path[PS_PATH_BYTES];
    int claim;
    if (!ps_path_published(d->path, d->entries[root].id, path) ||
        ps_store_claim(d->store, path, false, &claim) != 0)
        return;
    uint32_t at = d->count;
    bool hidden = true;
    while (hidden && at > root)
        if (d->entries[--at].root == root)
            hidden = hide(d, d->entries[at].id);
    for (uint32_t i = d->count; i > at; i--)
        if (d->entries[i - 1].root == root && ps_path_temporary(d->path, d->entries[i - 1].id, path))
            (void)ps_store_remove_tree(d->store, path, PS_MANIFEST_NAME);
    ps_store_release(d->store, claim);
}

static struct entry *checkpoint_directory_find(const struct directory *d, uint64_t id, uint32_t count)
{
    for (uint32_t i = count; i > 0; i--)
        if (d->entries[i - 1].id == id)
            return &d->entries[i - 1];
    return NULL;
}

int ps_checkpoint_is_by_trainer(const struct ps_store *store, const char *directory, uint64_t id, bool *is)
{
    char base[PS_PATH_BYTES], path[PS_PATH_BYTES];
    uint64_t bytes;
    int64_t written_s;
    store = store ? store : ps_store_local();
    *is = false;
    if (!ps_path_published(directory, id, base) || !ps_path_join(base, PS_BY_TRAINER_NAME, path))
        return -ENAMETOOLONG;
    const int error = store->facts(store->self, path, &bytes, &written_s);
    *is = error == 0;
    return error == -ENOENT ? 0 : error;
}

/* Reads its MANIFEST. False when an error of the machine leaves the checkpoint unknown. */
static bool read_entry(const struct directory *d, struct entry *e)
{
    struct ps_manifest m;
    char ignored[PS_TEXT_BYTES];
    enum mr_status status = ps_manifest_read(d->store, d->path, e->id, &m, ignored);
    e->is_broken = status != MR_OK;
    e->is_newer = status == MR_CHECKPOINT_NEWER;
    if (status == MR_OK) {
        e->parent = m.parent;
        e->hash = m.hash;
        e->parent_hash = m.parent_hash;
        ps_manifest_clear(&m);
        if (ps_checkpoint_is_by_trainer(d->store, d->path, e->id, &e->is_by_trainer) != 0)
            return false;
    }
    return status == MR_OK || status == MR_CHECKPOINT_CORRUPT || status == MR_CHECKPOINT_NOT_FOUND ||
           status == MR_CHECKPOINT_NEWER;
}

/* Adds the entry to the chain of its parent; the entries before it are in theirs. */
static void join_chain(const struct directory *d, uint32_t at)
{
    struct entry *e = &d->entries[at];
    e->root = at;
    e->newest = e->id;
    e->has_own = !e->is_by_trainer;
    if (e->is_broken || e->parent == 0)
        return;
    const struct entry *parent = checkpoint_directory_find(d, e->parent, at);
    e->is_broken = !parent || !ps_hash_equal(parent->hash, e->parent_hash);
    if (e->is_broken)
        return;
    e->root = parent->root;
    d->entries[e->root].newest = e->id;
    d->entries[e->root].has_own |= !e->is_by_trainer;
}

static bool read_entries(struct directory *d)
{
    uint32_t room = 0, count = 0;
    /* With a list that is incomplete, one cannot know what is still needed. */
    bool is_known = list_by(d->store, d->path, ps_name_published, NULL, 0, &room) == 0;
    uint64_t *ids = calloc(room + 1u, sizeof(*ids));
    is_known = is_known && ids && list_by(d->store, d->path, ps_name_published, ids, room, &count) == 0;
    is_known = is_known && count <= room;
    count = count < room ? count : room;
    d->entries = calloc(count + 1u, sizeof(*d->entries));
    is_known = is_known && d->entries;
    for (uint32_t i = 0; i < count && is_known; i++) {
        d->entries[i].id = ids[count - 1 - i];
        is_known = read_entry(d, &d->entries[i]);
        join_chain(d, i);
    }
    d->count = count;
    free(ids);
    return is_known;
}

/* The chains of a kind that can be restored, by the indices of their first entries, the newest first. */
struct chain_list {
    uint32_t *roots;
    uint32_t count;
};

static void list_chains(const struct directory *d, bool has_own, struct chain_list *list)
{
    list->count = 0;
    for (uint32_t i = d->count; i > 0; i--) {
        struct entry *root = &d->entries[d->entries[i - 1].root];
        if (root->is_broken || root->is_listed || root->has_own != has_own)
            continue;
        root->is_listed = true;
        list->roots[list->count++] = d->entries[i - 1].root;
    }
}

/* Whether a chain may be displaced by now. A time that is to come says nothing. False in *is_known: the store
 * does not say when it was written. */
static bool has_age(const struct directory *d, uint32_t root, uint32_t least_age_s, bool *is_known)
{
    char base[PS_PATH_BYTES], path[PS_PATH_BYTES];
    uint64_t bytes;
    int64_t written_s = 0;
    if (least_age_s == 0)
        return true;
    *is_known = *is_known && ps_path_published(d->path, d->entries[root].newest, base) &&
                ps_path_join(base, PS_MANIFEST_NAME, path) &&
                d->store->facts(d->store->self, path, &bytes, &written_s) == 0;
    const int64_t age_s = (int64_t)time(NULL) - written_s;
    return age_s < 0 || age_s >= (int64_t)least_age_s;
}

/* Marks `keep` chains of the list as staying, the newest among them. */
static void retain_kind(const struct directory *d, struct chain_list *list, uint32_t keep,
                        uint32_t least_age_s, bool *is_known)
{
    keep = keep > 0 ? keep : 1;
    while (list->count > keep && *is_known) {
        const bool oldest_goes = has_age(d, list->roots[list->count - 1], least_age_s, is_known);
        const uint32_t at = oldest_goes ? list->count - 1 : 1;
        list->count--;
        memmove(&list->roots[at], &list->roots[at + 1], (list->count - at) * sizeof(*list->roots));
    }
    for (uint32_t i = 0; i < list->count; i++)
        d->entries[list->roots[i]].stays = true;
}

/* Marks the chains that stay. False: that is not known. */
static bool retain_choose(const struct directory *d, const struct ps_retention *r)
{
    struct chain_list list = {.roots = calloc(d->count + 1u, sizeof(*list.roots))};
    bool is_known = list.roots != NULL;
    if (is_known) {
        list_chains(d, true, &list);
        retain_kind(d, &list, r->trainers_only ? UINT32_MAX : r->keep, r->least_age_s, &is_known);
        list_chains(d, false, &list);
        retain_kind(d, &list, r->keep_trainers, r->least_age_s, &is_known);
    }
    free(list.roots);
    return is_known;
}

/* The lowest id among chains that stay; 0 when there are none. */
static uint64_t lowest_staying(const struct directory *d)
{
    for (uint32_t i = 0; i < d->count; i++)
        if (d->entries[i].root == i && d->entries[i].stays)
            return d->entries[i].id;
    return 0;
}

/* Returns the first entry that may be removed: one of a later format version may be based on all before
 * it. */
static uint32_t first_to_go(const struct directory *d)
{
    uint32_t i = d->count;
    while (i > 0 && !d->entries[i - 1].is_newer)
        i--;
    return i;
}

void ps_checkpoint_retain(const struct ps_store *store, const char *directory,
                          const struct ps_retention *retention)
{
    struct directory d = {.store = store ? store : ps_store_local(), .path = directory};
    remove_temporaries(d.store, directory);
    if (read_entries(&d) && retain_choose(&d, retention)) {
        const uint64_t lowest = retention->trainers_only ? 0 : lowest_staying(&d);
        for (uint32_t i = first_to_go(&d); i < d.count; i++) {
            const struct entry *e = &d.entries[i];
            if (e->root == i && !e->stays && (!e->is_broken || e->newest < lowest))
                remove_chain(&d, i);
        }
    }
    free(d.entries);
}

static bool is_among(uint64_t id, const uint64_t *ids, uint32_t count)
{
    uint32_t i = 0;
    while (i < count && ids[i] != id)
        i++;
    return i < count;
}

void ps_checkpoint_retain_parts(const struct ps_store *store, const char *directory, const uint64_t *ids,
                                uint32_t count, uint64_t newest)
{
    struct directory d = {.store = store, .path = directory};
    remove_temporaries(d.store, directory);
    if (read_entries(&d)) {
        for (uint32_t i = 0; i < d.count; i++)
            if (d.entries[i].id > newest || is_among(d.entries[i].id, ids, count))
                d.entries[d.entries[i].root].stays = true;
        for (uint32_t i = first_to_go(&d); i < d.count; i++)
            if (d.entries[i].root == i && !d.entries[i].stays)
                remove_chain(&d, i);
    }
    free(d.entries);
}
