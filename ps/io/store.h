/* Where checkpoint files live: the few file calls that writing and reading them needs. ps_store_local()
 * implements it with the local file system; an object store or a test's fault shim can do so, too.
 *
 * Every call returns 0 (or a count) or -errno. Paths are those of the store. A file is written by one thread
 * at a time; it may be read by several, and calls on different files may come from different threads.
 *
 * It needs no more than WebHDFS and S3 offer (docs/adr/0021-checkpoint-store-interface.md): a directory is
 * renamed only between a checkpoint's temporary and published names, its MANIFEST is the last file made in
 * it, and where there is no descriptor a file is written from its beginning to its end.
 */
#ifndef PS_IO_STORE_H
#define PS_IO_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PS_PATH_BYTES        1024u      /* longest path, with its NUL */
#define PS_STORE_ENTRIES_MAX (1u << 24) /* of one directory */
#define PS_DIRECTORY_MODE    0750
#define PS_FILE_MODE         0640    /* rows are nobody's business but the node's group's */
#define PS_STORE_NEXT        ".next" /* see `replace` */

struct ps_store_file;

#define PS_STORE_MARK_BYTES 640u

/* How much of a file is in the store for good, and what names these bytes and no others there. */
struct ps_store_mark {
    uint64_t bytes;                 /* from its beginning; 0: none are */
    char text[PS_STORE_MARK_BYTES]; /* the store's own, one line */
};

struct ps_store {
    void *self;
    int (*make_directory)(void *self, const char *path);
    /* A new file for writing. `direct` asks for writes past the page cache; the store may ignore it. */
    int (*create)(void *self, const char *path, bool direct, struct ps_store_file **file);
    /* An existing file for reading, and its length. */
    int (*open)(void *self, const char *path, struct ps_store_file **file, uint64_t *file_bytes);
    /* Bytes moved, which may be fewer than asked for; reading 0 means the end. */
    int64_t (*write)(struct ps_store_file *file, const void *data, size_t bytes, uint64_t offset);
    int64_t (*read)(struct ps_store_file *file, void *data, size_t bytes, uint64_t offset);
    int (*sync)(struct ps_store_file *file);
    /* Reserves room for a file of so many bytes, so that writes need not allocate it. The file has that
     * length until set_length cuts it to what was written. An error only means that there is no such room.
     * Both NULL: the store does not offer that. */
    int (*reserve)(struct ps_store_file *file, uint64_t bytes);
    int (*set_length)(struct ps_store_file *file, uint64_t bytes);
    /* Frees the file also when it fails. */
    int (*close)(struct ps_store_file *file);
    /* A file descriptor that io_uring may write to, or -1: then `write` is used. */
    int (*descriptor)(const struct ps_store_file *file);
    /* Whether the file is read or written past the page cache, and a way to end that. */
    bool (*is_direct)(const struct ps_store_file *file);
    int (*drop_direct)(struct ps_store_file *file);
    /* Reads a file past the page cache from now on, if it can be: memory, offsets and lengths must be
     * multiples of 4096 then. NULL: not offered. */
    int (*take_direct)(struct ps_store_file *file);
    /* A small file with these bytes in place of the one of that name, if there is one: readers find the one
     * or the other, also after a crash. A store that needs several steps for that writes PATH.next first, and
     * in between that alone is there, whole. */
    int (*replace)(void *self, const char *path, const void *data, size_t bytes);
    /* The same, unless there is a file of that name: -EEXIST, also if a writer elsewhere was faster. Its
     * own file, whose answer was lost, is such a file, too. A store that needs several steps writes PATH with
     * ps_store_writer() and an ending first, which a writer that dies leaves there. NULL: not offered, and
     * nothing keeps two writers apart. */
    int (*put_new)(void *self, const char *path, const void *data, size_t bytes);
    /* For writers that go on after an interruption, even in another process. `mark` says how far a file is
     * that is being written; once it has said that some of it is there, close() leaves that there. After
     * sync it names the whole file. All three NULL: not offered. */
    int (*mark)(struct ps_store_file *file, struct ps_store_mark *mark);
    /* 0: the file is still the one that was marked when it was whole; -ESTALE: there is another one, or
     * none. */
    int (*is_marked)(void *self, const char *path, const struct ps_store_mark *mark);
    /* create() that keeps what is there up to the mark, where writing goes on: mark->bytes becomes 0 if it is
     * not there as it was. Whatever else has been begun of this file is removed. */
    int (*resume)(void *self, const char *path, struct ps_store_mark *mark, struct ps_store_file **file);
    int (*rename)(void *self, const char *from, const char *to);
    int (*sync_directory)(void *self, const char *path);
    /* Names in a directory, without "." and "..", in no order; -EOVERFLOW when there are more than
     * PS_STORE_ENTRIES_MAX. */
    int (*list)(void *self, const char *path, void (*visit)(void *arg, const char *name), void *arg);
    /* A file or an empty directory. */
    int (*remove)(void *self, const char *path);
    /* ps_store_remove_tree() that cannot leave the directory: of a link only the link is removed. NULL:
     * `list` and `remove` do it. */
    int (*remove_tree)(void *self, const char *path, const char *first);
    /* A file's length, and when it was written, in seconds since 1970. */
    int (*facts)(void *self, const char *path, uint64_t *file_bytes, int64_t *written_s);
    /* Holds a directory until release or the end of the process: `shared` keeps out those that want it alone,
     * otherwise all others. -EBUSY: another holder keeps us out. A claim survives a rename of the directory.
     * NULL: the store has no claims. */
    int (*claim)(void *self, const char *path, bool shared, int *claim);
    void (*release)(void *self, int claim);
};

/* Returns the store of the local file system. */
const struct ps_store *ps_store_local(void);

/* Keeps a line for this thread's next ps_store_explanation(): what a store knows of an error beyond the
 * -error_number that it returns. 0 as the number drops the line. */
void ps_store_explain(int error_number, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Returns that line, once; NULL: there is none for this error. */
const char *ps_store_explanation(int error_number);

/* claim and release; they do nothing where the store has no claims: then nobody is kept out. */
int ps_store_claim(const struct ps_store *store, const char *path, bool shared, int *claim);
void ps_store_release(const struct ps_store *store, int claim);
/* Write or read all of `bytes`, however short the single calls are. -EIO when a write makes no progress,
 * -ENODATA when the file ends too early. */
int ps_store_write_all(const struct ps_store *store, struct ps_store_file *file, const void *data,
                       size_t bytes, uint64_t offset);
/* After a write has failed with `error` (-errno): some file systems open a file past the page cache, and
 * refuse writes to it. True: it is written through the cache from now on, and the write may be made again. */
bool ps_store_leave_direct(const struct ps_store *store, struct ps_store_file *file, int error);
int ps_store_read_all(const struct ps_store *store, struct ps_store_file *file, void *data, size_t bytes,
                      uint64_t offset);
/* Writes a new file of these bytes; it is there when 0 is returned. */
int ps_store_write_new(const struct ps_store *store, const char *path, const void *data, size_t bytes);
/* A part of a file's name that no other process has: ".", and hexadecimal digits. */
#define PS_STORE_WRITER_BYTES 26u
void ps_store_writer(char out[PS_STORE_WRITER_BYTES]);
/* put_new, and replace where that is not offered. */
int ps_store_put_new(const struct ps_store *store, const char *path, const void *data, size_t bytes);
/* 0 when `path` is a directory that can be listed, else -errno. */
int ps_store_look(const struct ps_store *store, const char *path);
/* Removes a flat directory: the file named `first` before all others (NULL: any order), then the directory.
 * It continues after errors and returns the first; -ENOENT when there is no directory. */
int ps_store_remove_tree(const struct ps_store *store, const char *path, const char *first);

#endif
