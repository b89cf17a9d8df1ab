/* Blocks that go to a disk: by io_uring, and by plain writes where there is none or the kernel refuses it;
 * errors, short writes and a refused O_DIRECT. */
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "checkpoint_fixture.h"
#include "fault_store.h"
#include "ps/io/write_pool.h"
#include "tests/test.h"
#include "tests/unit/ps/uring_there.h"

#define BUFFER_BYTES (64u << 10)
#define BUFFERS      (PS_WRITE_DEPTH + 4u)

static uint8_t *new_buffers(void)
{
    uint8_t *buffers = aligned_alloc(4096, BUFFERS * BUFFER_BYTES);
    assert_non_null(buffers);
    for (uint32_t i = 0; i < BUFFERS; i++)
        memset(buffers + i * BUFFER_BYTES, (int)i + 1, BUFFER_BYTES);
    return buffers;
}

/* Of the pool that a test used last. */
static struct ps_uring_counters counted;

static struct ps_write_pool *new_pool(const struct ps_store *store, struct ps_store_file **file,
                                      uint8_t *buffers, const char **note)
{
    struct ps_write_pool *w = NULL;
    const struct ps_write_pool_options options = {.store = store,
                                                  .files = file,
                                                  .file_count = 1,
                                                  .buffers = buffers,
                                                  .buffer_count = BUFFERS,
                                                  .buffer_bytes = BUFFER_BYTES,
                                                  .counters = &counted};
    counted = (struct ps_uring_counters){0};
    assert_int_equal(ps_write_pool_create(&options, &w, note), 0);
    return w;
}

static void check_content(const char *path, uint32_t blocks)
{
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    for (uint32_t i = 0; i < blocks * BUFFER_BYTES; i++)
        assert_int_equal(getc_unlocked(f), i / BUFFER_BYTES % BUFFERS + 1);
    assert_int_equal(getc_unlocked(f), EOF);
    fclose(f);
}

/* Writes 3 * BUFFERS blocks, as many at once as the writer takes. */
static void write_many(const struct ps_store *store, const char *directory, const char *name)
{
    char path[PS_PATH_BYTES];
    struct ps_store_file *file;
    struct ps_write_pool *w;
    struct ps_write_done done;
    const char *note;
    uint8_t *buffers = new_buffers();
    assert_true(ps_path_join(directory, "file", path));
    assert_int_equal(store->create(store->self, path, true, &file), 0);
    w = new_pool(store, &file, buffers, &note);
    assert_null(note);
    assert_string_equal(ps_write_pool_name(w), name);
    assert_false(ps_write_pool_take(w, 1000, &done));
    bool busy[BUFFERS] = {false};
    for (uint32_t put = 0, reaped = 0; reaped < 3 * BUFFERS;) {
        while (put < 3 * BUFFERS && ps_write_pool_ready(w) && !busy[put % BUFFERS]) {
            busy[put % BUFFERS] = true;
            ps_write_pool_put(w, 0, put % BUFFERS, (uint64_t)put * BUFFER_BYTES);
            put++;
        }
        assert_true(ps_write_pool_pending(w) <= PS_WRITE_DEPTH);
        if (!ps_write_pool_take(w, 1000, &done))
            continue;
        assert_int_equal(done.error, 0);
        assert_true(busy[done.buffer]);
        busy[done.buffer] = false;
        reaped++;
    }
    assert_int_equal(ps_write_pool_pending(w), 0);
    const bool is_plain = strcmp(name, "io_uring") != 0;
    assert_int_equal(counted.writes, is_plain ? 0 : 3 * BUFFERS);
    assert_int_equal(counted.writes_plain, is_plain ? 3 * BUFFERS : 0);
    assert_int_equal(counted.in_flight_max, is_plain                   ? 0
                                            : BUFFERS < PS_WRITE_DEPTH ? BUFFERS
                                                                       : PS_WRITE_DEPTH);
    assert_int_equal(counted.in_flight + counted.writes_failed, 0);
    assert_true(counted.write_us > 0);
    ps_write_pool_destroy(w);
    assert_int_equal(store->close(file), 0);
    check_content(path, 3 * BUFFERS);
    free(buffers);
}

TEST(test_writes_through_io_uring, temporary_directory_setup, temporary_directory_teardown)
{
    if (!uring_there())
        skip();
    write_many(ps_store_local(), *state, "io_uring");
}

TEST(test_writes_without_io_uring, temporary_directory_setup, temporary_directory_teardown)
{
    struct fault_store f;
    fault_store_init(&f);
    write_many(&f.store, *state, "plain writes");
}

/* One write to a file opened by the test; returns its error. */
static int write_one(const struct ps_store *store, struct ps_store_file *file, uint64_t offset)
{
    struct ps_write_pool *w;
    struct ps_write_done done = {.error = 1};
    const char *note;
    uint8_t *buffers = new_buffers();
    w = new_pool(store, &file, buffers, &note);
    ps_write_pool_put(w, 0, 2, offset);
    while (!ps_write_pool_take(w, 10000, &done))
        ;
    assert_int_equal(done.buffer, 2);
    assert_int_equal(done.offset, offset);
    ps_write_pool_destroy(w);
    free(buffers);
    return done.error;
}

/* A store whose files are whatever descriptor the test wants io_uring to write to. */
static int given_descriptor;
static int descriptor_given(const struct ps_store_file *file)
{
    (void)file;
    return given_descriptor;
}
static bool never_direct(const struct ps_store_file *file)
{
    (void)file;
    return false;
}

TEST(test_errors_of_the_kernel_come_back, temporary_directory_setup, temporary_directory_teardown)
{
    if (!uring_there())
        skip();
    struct ps_store store = *ps_store_local();
    store.descriptor = descriptor_given;
    store.is_direct = never_direct;
    given_descriptor = open("/dev/full", O_WRONLY);
    assert_true(given_descriptor >= 0);
    assert_int_equal(write_one(&store, NULL, 0), -ENOSPC);
    close(given_descriptor);
    given_descriptor = open("/dev/null", O_RDONLY);
    assert_int_equal(write_one(&store, NULL, 0), -EBADF);
    close(given_descriptor);
}

/* The limit on file sizes lies in the middle of a block: the kernel writes half of it, then refuses. */
TEST(test_a_short_write_is_continued_until_it_fails, temporary_directory_setup, temporary_directory_teardown)
{
    char path[PS_PATH_BYTES];
    struct ps_store_file *file;
    const struct ps_store *store = ps_store_local();
    if (!uring_there())
        skip();
    assert_true(ps_path_join(*state, "short", path));
    assert_int_equal(store->create(NULL, path, false, &file), 0);
    struct rlimit before, limit = {.rlim_cur = BUFFER_BYTES / 2, .rlim_max = RLIM_INFINITY};
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit.rlim_max = before.rlim_max;
    (void)signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    int error = write_one(store, file, 0);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(error, -EFBIG);
    assert_int_equal(counted.writes, 1);
    assert_int_equal(counted.writes_failed, 1);
    assert_int_equal(counted.writes_continued, 1);
    assert_int_equal(store->close(file), 0);
    assert_int_equal(truncate(path, BUFFER_BYTES / 2), 0); /* not shorter before */
    FILE *f = fopen(path, "r");
    for (uint32_t i = 0; i < BUFFER_BYTES / 2; i++)
        assert_int_equal(getc_unlocked(f), 3);
    fclose(f);
}

/* No bytes are no error, whatever call was interrupted before. */
TEST(test_what_errno_was_does_not_matter, temporary_directory_setup, temporary_directory_teardown)
{
    char path[PS_PATH_BYTES], byte = 1;
    struct ps_store_file *file;
    const struct ps_store *store = ps_store_local();
    uint64_t file_bytes;
    assert_true(ps_path_join(*state, "empty", path));
    assert_int_equal(store->create(NULL, path, false, &file), 0);
    errno = EINTR;
    assert_int_equal(store->write(file, &byte, 0, 0), 0);
    assert_int_equal(store->close(file), 0);
    assert_int_equal(store->open(NULL, path, &file, &file_bytes), 0);
    errno = EINTR;
    assert_int_equal(store->read(file, &byte, 1, 0), 0);
    assert_int_equal(store->close(file), 0);
}

/* O_DIRECT refuses an odd offset with EINVAL; the writer then goes through the page cache. */
static void refused_direct(const struct ps_store *store, const char *directory)
{
    char path[PS_PATH_BYTES];
    struct ps_store_file *file;
    assert_true(ps_path_join(directory, "odd", path));
    assert_int_equal(store->create(store->self, path, true, &file), 0);
    const bool was_direct = store->is_direct(file);
    assert_int_equal(write_one(store, file, 1), 0);
    assert_false(was_direct && store->is_direct(file));
    assert_int_equal(store->close(file), 0);
    FILE *f = fopen(path, "r");
    assert_int_equal(getc_unlocked(f), 0);
    for (uint32_t i = 0; i < BUFFER_BYTES; i++)
        assert_int_equal(getc_unlocked(f), 3);
    fclose(f);
}

/* Several are in flight when the first is refused: each of them goes through the page cache then. */
TEST(test_o_direct_refused_by_several_writes, temporary_directory_setup, temporary_directory_teardown)
{
    const struct ps_store *store = ps_store_local();
    char path[PS_PATH_BYTES];
    const char *note;
    struct ps_store_file *file;
    struct ps_write_pool *w;
    struct ps_write_done done;
    uint8_t *buffers = aligned_alloc(4096, BUFFERS * BUFFER_BYTES);
    assert_non_null(buffers);
    memset(buffers, 3, BUFFERS * BUFFER_BYTES);
    assert_true(ps_path_join(*state, "odd", path));
    assert_int_equal(store->create(store->self, path, true, &file), 0);
    w = new_pool(store, &file, buffers, &note);
    for (uint32_t i = 0; i < PS_WRITE_DEPTH; i++)
        ps_write_pool_put(w, 0, i, 1 + (uint64_t)i * BUFFER_BYTES);
    for (uint32_t i = 0; i < PS_WRITE_DEPTH; i++) {
        while (!ps_write_pool_take(w, 1000, &done))
            ;
        assert_int_equal(done.error, 0);
    }
    ps_write_pool_destroy(w);
    assert_int_equal(store->close(file), 0);
    free(buffers);
}

TEST(test_o_direct_refused_by_the_write, temporary_directory_setup, temporary_directory_teardown)
{
    refused_direct(ps_store_local(), *state);
}

TEST(test_o_direct_refused_by_a_plain_write, temporary_directory_setup, temporary_directory_teardown)
{
    struct fault_store f;
    fault_store_init(&f);
    refused_direct(&f.store, *state);
}

/* As a container's seccomp profile does it, for the calling thread alone. */
static bool forbid(uint32_t call, int error)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (uint32_t)error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = sizeof(filter) / sizeof(*filter), .filter = filter};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

struct forbidden {
    uint32_t call;
    int error;
    uint32_t before; /* so many blocks are written before it is forbidden */
    const char *says;
    struct ps_store_file *file;
    uint8_t *buffers;
    bool is_forbidden;
    const char *note, *name;
    uint32_t blocks, failed;
};

static void reap_all(struct forbidden *f, struct ps_write_pool *w)
{
    struct ps_write_done done;
    while (ps_write_pool_pending(w) > 0)
        if (ps_write_pool_take(w, 1000, &done))
            f->failed += done.error != 0;
}

/* Puts four blocks at a time: the kernel may have some when it refuses the next. */
static void *write_forbidden(void *arg)
{
    struct forbidden *f = arg;
    struct ps_write_pool *w;
    f->is_forbidden = f->before > 0 || forbid(f->call, f->error);
    w = new_pool(ps_store_local(), &f->file, f->buffers, &f->note);
    for (; f->blocks < 12; f->blocks++) {
        if (f->blocks > 0 && f->blocks == f->before)
            f->is_forbidden = forbid(f->call, f->error);
        ps_write_pool_put(w, 0, f->blocks, (uint64_t)f->blocks * BUFFER_BYTES);
        if (f->blocks % 4 == 3)
            reap_all(f, w);
    }
    reap_all(f, w);
    f->name = ps_write_pool_name(w);
    ps_write_pool_destroy(w);
    return NULL;
}

TEST(test_plain_writes_where_io_uring_is_forbidden, temporary_directory_setup, temporary_directory_teardown)
{
    static const struct forbidden cases[] = {
        {.call = SYS_io_uring_setup, .error = EPERM, .says = "seccomp"},
        {.call = SYS_io_uring_setup, .error = ENOSYS, .says = "this kernel has no io_uring"},
        {.call = SYS_io_uring_setup, .error = ENOMEM, .says = "no memory for io_uring"},
        {.call = SYS_io_uring_setup, .error = EMFILE, .says = "no file descriptor left"},
        {.call = SYS_io_uring_enter, .error = EPERM, .says = "seccomp"},
        {.call = SYS_io_uring_enter, .error = ENOSYS, .says = "this kernel has no io_uring"},
        {.call = SYS_io_uring_enter, .error = EPERM, .before = 4},
        {.call = SYS_io_uring_enter, .error = EPERM, .before = 6},
        {.call = SYS_io_uring_enter, .error = EAGAIN, .before = 8},
    };
    char path[PS_PATH_BYTES];
    if (!uring_there())
        skip();
    assert_true(ps_path_join(*state, "file", path));
    for (uint32_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct forbidden f = cases[i];
        pthread_t thread;
        f.buffers = new_buffers();
        assert_int_equal(ps_store_local()->create(NULL, path, true, &f.file), 0);
        assert_int_equal(pthread_create(&thread, NULL, write_forbidden, &f), 0);
        assert_int_equal(pthread_join(thread, NULL), 0);
        assert_true(f.is_forbidden);
        assert_string_equal(f.name, "plain writes");
        if (f.says == NULL)
            assert_null(f.note);
        else if (f.note == NULL || strstr(f.note, f.says) == NULL)
            fail_msg("\"%s\" does not say \"%s\"", f.note == NULL ? "" : f.note, f.says);
        assert_int_equal(f.blocks, 12);
        assert_int_equal(f.failed, 0);
        assert_int_equal(ps_store_local()->close(f.file), 0);
        check_content(path, f.blocks);
        free(f.buffers);
        assert_int_equal(unlink(path), 0);
    }
}
