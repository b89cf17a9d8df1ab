#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint_fixture.h"
#include "fault_store.h"
#include "ps/base/byte_rate.h"
#include "ps/checkpoint/checkpoint_chain.h"
#include "tests/test.h"
#include "tests/unit/ps/uring_there.h"
#include "tests/wait.h"

#define ROWS 200000u

struct core_job {
    struct ps_writer *writer;
    uint32_t core;
};

static void *core_thread(void *arg)
{
    struct core_job *job = arg;
    (void)fixture_fill(job->writer, 4, job->core, ROWS);
    ps_writer_core_done(job->writer, job->core);
    return NULL;
}

TEST(test_cores_write_at_the_same_time, temporary_directory_setup, temporary_directory_teardown)
{
    const char *directory = *state;
    struct ps_writer *w;
    char text[PS_TEXT_BYTES];
    assert_int_equal(fixture_start(ps_store_local(), directory, 4, &w, text), MR_OK);
    if (uring_there())
        assert_non_null(strstr(ps_writer_method(w), "io_uring"));
    struct core_job jobs[FIXTURE_CORES];
    pthread_t threads[FIXTURE_CORES];
    for (uint32_t core = 0; core < FIXTURE_CORES; core++) {
        jobs[core] = (struct core_job){.writer = w, .core = core};
        assert_int_equal(pthread_create(&threads[core], NULL, core_thread, &jobs[core]), 0);
    }
    for (uint32_t core = 0; core < FIXTURE_CORES; core++)
        pthread_join(threads[core], NULL);
    struct ps_writer_status status = fixture_finish(w);
    assert_int_equal(status.status, MR_OK);
    assert_true(status.bytes_written >= (uint64_t)ROWS * (8 + FIXTURE_ROW_BYTES));
    assert_int_equal(status.bytes_written % PS_BLOCK_BYTES, 0);

    struct ps_reader *r;
    assert_int_equal(ps_reader_open(NULL, directory, 4, &r, text), MR_OK);
    assert_string_equal(text, "");
    assert_int_equal(ps_reader_chain(r)->links[0]->manifest.incarnation, 5);
    assert_int_equal(ps_reader_manifest(r)->file_count, FIXTURE_CORES);
    struct mr_feature features[2];
    uint32_t ids[2];
    const struct ps_manifest *m = ps_reader_manifest(r);
    fixture_features(features, ids);
    assert_int_equal(m->feature_count, 2);
    for (uint32_t i = 0; i < 2; i++) {
        assert_memory_equal(&m->features[i], &features[i], sizeof(features[i]));
        assert_int_equal(m->feature_ids[i], ids[i]);
    }
    fixture_check(r, 4, ROWS);
    ps_reader_close(r);
    assert_int_equal(fixture_count(directory, ".tmp-"), 0);
}

TEST(test_a_full_ring_refuses_and_never_blocks, temporary_directory_setup, temporary_directory_teardown)
{
    struct fault_store f;
    fault_store_init(&f);
    atomic_store(&f.hold_writes, true);
    struct ps_writer *w;
    char text[PS_TEXT_BYTES];
    assert_int_equal(fixture_start(&f.store, *state, 1, &w, text), MR_OK);
    const struct ps_record record = {
        .kind = PS_RECORD_VARIABLE, .feature = FIXTURE_VARIABLE, .bytes = PS_RECORD_BYTES_MAX};
    assert_int_equal(ps_writer_free_bytes(w, 0), 2 * PS_PAYLOAD_BYTES);
    for (int value = 1; value <= 2; value++)
        assert_non_null(memset(ps_writer_append(w, 0, &record), value, record.bytes));
    assert_null(ps_writer_append(w, 0, &record));
    assert_int_equal(ps_writer_free_bytes(w, 0), 0);
    assert_int_equal(ps_writer_free_bytes(w, 1), 2 * PS_PAYLOAD_BYTES); /* the other core has its own */

    atomic_store(&f.hold_writes, false);
    WAIT_UNTIL(ps_writer_free_bytes(w, 0) >= PS_PAYLOAD_BYTES);
    assert_non_null(memset(ps_writer_append(w, 0, &record), 3, record.bytes));
    fixture_publish(w, FIXTURE_CORES);
}

/* The thread of this process that writes; 0 when there is none. */
static pid_t writer_thread(void)
{
    char path[300], name[32] = "";
    pid_t found = 0;
    DIR *tasks = opendir("/proc/self/task");
    assert_non_null(tasks);
    for (const struct dirent *entry; found == 0 && (entry = readdir(tasks)) != NULL;) {
        (void)snprintf(path, sizeof(path), "/proc/self/task/%s/comm", entry->d_name);
        FILE *in = fopen(path, "r");
        if (!in)
            continue;
        if (fgets(name, sizeof(name), in) && strcmp(name, "checkpoint\n") == 0)
            found = (pid_t)strtol(entry->d_name, NULL, 10);
        (void)fclose(in);
    }
    (void)closedir(tasks);
    return found;
}

TEST(test_the_thread_keeps_off_the_data_cores, temporary_directory_setup, temporary_directory_teardown)
{
    struct ps_writer_options options = fixture_options(*state, 1);
    options.core_count = 1;
    struct ps_writer *w;
    char text[PS_TEXT_BYTES];
    cpu_set_t before, after;
    assert_int_equal(sched_getaffinity(0, sizeof(before), &before), 0);
    int cpus[CPU_SETSIZE + 1] = {-1}, count = 1; /* all that there are, the last one at first left out */
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET((size_t)cpu, &before))
            cpus[count++] = cpu;
    for (int left_out = 1; left_out >= 0; left_out--, options.id++) {
        options.avoid_cpus = cpus;
        options.avoid_cpu_count = (uint32_t)(count - left_out);
        assert_int_equal(ps_writer_start(NULL, &options, &w, text), MR_OK);
        assert_int_equal(sched_getaffinity(writer_thread(), sizeof(after), &after), 0);
        fixture_publish(w, 1);
        assert_true(CPU_ISSET((size_t)cpus[count - 1], &after));
        /* With none left, it goes where it may. */
        assert_int_equal(CPU_COUNT(&after), left_out ? 1 : count - 1);
    }
}

/* The signals that the writer's thread has blocked, a bit each from signal 1 on. */
static uint64_t writer_blocked_signals(void)
{
    char path[64], line[128];
    uint64_t blocked = 0;
    (void)snprintf(path, sizeof(path), "/proc/self/task/%d/status", writer_thread());
    FILE *in = fopen(path, "r");
    assert_non_null(in);
    while (fgets(line, sizeof(line), in) != NULL)
        (void)sscanf(line, "SigBlk: %" SCNx64, &blocked);
    (void)fclose(in);
    return blocked;
}

TEST(test_signals_are_for_others, temporary_directory_setup, temporary_directory_teardown)
{
    const uint64_t wanted = UINT64_C(1) << (SIGTERM - 1) | UINT64_C(1) << (SIGINT - 1);
    struct ps_writer *w;
    char text[PS_TEXT_BYTES];
    sigset_t before, after;
    assert_int_equal(pthread_sigmask(SIG_BLOCK, NULL, &before), 0);
    assert_int_equal(fixture_start(ps_store_local(), *state, 1, &w, text), MR_OK);
    assert_int_equal(pthread_sigmask(SIG_BLOCK, NULL, &after), 0);
    for (int signal = 1; signal < SIGRTMIN; signal++)
        assert_int_equal(sigismember(&after, signal), sigismember(&before, signal));
    assert_int_equal(writer_blocked_signals() & wanted, wanted);
    fixture_publish(w, FIXTURE_CORES);
}

TEST(test_small_records_share_a_block, temporary_directory_setup, temporary_directory_teardown)
{
    struct ps_writer *w;
    char text[PS_TEXT_BYTES];
    assert_int_equal(fixture_start(ps_store_local(), *state, 1, &w, text), MR_OK);
    assert_true(fixture_fill(w, 1, 0, 10));
    assert_true(fixture_fill(w, 1, 1, 10));
    for (uint32_t core = 0; core < FIXTURE_CORES; core++)
        ps_writer_core_done(w, core);
    struct ps_writer_status status = fixture_finish(w);
    assert_int_equal(status.bytes_written, FIXTURE_CORES * PS_BLOCK_BYTES);
}

/* A small checkpoint of many cores must not need a large free disk: where it is known what comes, no more is
 * set aside. */
static uint64_t most_reserved_bytes;
static int note_reserve(struct ps_store_file *file, uint64_t bytes)
{
    most_reserved_bytes = bytes > most_reserved_bytes ? bytes : most_reserved_bytes;
    return ps_store_local()->reserve(file, bytes);
}

TEST(test_no_more_room_is_set_aside_than_expected, temporary_directory_setup, temporary_directory_teardown)
{
    struct ps_store store = *ps_store_local();
    struct ps_writer *w;
    char text[PS_TEXT_BYTES];
    store.reserve = note_reserve;
    most_reserved_bytes = 0;
    assert_int_equal(fixture_start(&store, *state, 1, &w, text), MR_OK);
    for (uint32_t core = 0; core < FIXTURE_CORES; core++) {
        ps_writer_expect(w, core, 1000);
        assert_true(fixture_fill(w, 1, core, 10));
        ps_writer_core_done(w, core);
    }
    assert_int_equal(fixture_finish(w).status, MR_OK);
    assert_int_in_range(most_reserved_bytes, 0,
                        2 * PS_BLOCK_BYTES); /* 0: the file system has no direct writes */
}

/* However much was expected, files are as long as what was written, and take no more of the disk. */
TEST(test_room_set_aside_goes_back, temporary_directory_setup, temporary_directory_teardown)
{
    static const uint64_t expected_bytes[] = {0, 1, PS_BLOCK_BYTES, 1u << 30};
    for (uint64_t id = 1; id <= sizeof(expected_bytes) / sizeof(*expected_bytes); id++) {
        struct ps_writer *w;
        struct ps_reader *r;
        char text[PS_TEXT_BYTES];
        assert_int_equal(fixture_start(ps_store_local(), *state, id, &w, text), MR_OK);
        for (uint32_t core = 0; core < FIXTURE_CORES; core++) {
            ps_writer_expect(w, core, expected_bytes[id - 1]);
            assert_true(fixture_fill(w, id, core, ROWS));
            ps_writer_core_done(w, core);
        }
        uint64_t written = fixture_finish(w).bytes_written, lengths = 0;
        for (uint32_t core = 0; core < FIXTURE_CORES; core++) {
            struct stat st;
            char name[PS_FILE_NAME_BYTES];
            ps_file_name(core, name);
            assert_int_equal(stat(fixture_path(*state, id, name), &st), 0);
            assert_true((uint64_t)st.st_blocks * 512 <= (uint64_t)st.st_size + PS_BLOCK_BYTES);
            lengths += (uint64_t)st.st_size;
        }
        assert_int_equal(lengths, written);
        assert_int_equal(ps_reader_open(NULL, *state, id, &r, text), MR_OK);
        fixture_check(r, id, ROWS);
        ps_reader_close(r);
    }
}

TEST(test_a_core_may_have_nothing_to_write, temporary_directory_setup, temporary_directory_teardown)
{
    struct ps_writer *w;
    struct ps_reader *r;
    char text[PS_TEXT_BYTES];
    assert_int_equal(fixture_start(ps_store_local(), *state, 1, &w, text), MR_OK);
    fixture_publish(w, FIXTURE_CORES);
    assert_int_equal(ps_reader_open(NULL, *state, 0, &r, text), MR_OK);
    assert_int_equal(ps_chain_bytes(ps_reader_chain(r)), 0);
    ps_reader_close(r);
}

TEST(test_abort_leaves_nothing_behind, temporary_directory_setup, temporary_directory_teardown)
{
    struct ps_writer *w;
    char text[PS_TEXT_BYTES];
    assert_int_equal(fixture_start(ps_store_local(), *state, 1, &w, text), MR_OK);
    assert_true(fixture_fill(w, 1, 0, 100));
    ps_writer_abort(w);
    struct ps_writer_status status;
    do {
        ps_writer_status(w, &status);
    } while (!status.done);
    assert_int_equal(status.status, MR_IO_ERROR);
    assert_int_equal(status.error_number, ECANCELED);
    assert_true(ps_writer_failed(w));
    assert_int_equal(ps_writer_free_bytes(w, 1), 0);
    assert_null(ps_writer_append(w, 1, &(struct ps_record){.kind = PS_RECORD_CLIENT, .bytes = 24}));
    ps_writer_finish(w);
    assert_int_equal(fixture_count(*state, ""), 0);
}

TEST(test_an_existing_id_is_refused, temporary_directory_setup, temporary_directory_teardown)
{
    struct ps_writer *w = NULL;
    char text[PS_TEXT_BYTES];
    assert_int_equal(fixture_save(ps_store_local(), *state, 1, 50).status, MR_OK);
    assert_int_equal(fixture_start(ps_store_local(), *state, 1, &w, text), MR_IO_ERROR);
    assert_null(w);
    assert_non_null(strstr(text, "ckpt-1: File exists"));
    struct ps_reader *r;
    assert_int_equal(ps_reader_open(NULL, *state, 1, &r, text), MR_OK);
    ps_reader_close(r);
}

TEST(test_what_a_dead_writer_left_is_replaced, temporary_directory_setup, temporary_directory_teardown)
{
    char path[PS_PATH_BYTES], file[PS_PATH_BYTES];
    assert_true(ps_path_temporary(*state, 1, path));
    assert_int_equal(mkdir(path, 0755), 0);
    assert_true(ps_path_join(path, "core-001.mrc", file));
    FILE *f = fopen(file, "w");
    assert_non_null(f);
    fputs("half a block", f);
    fclose(f);
    assert_int_equal(fixture_save(ps_store_local(), *state, 1, 50).status, MR_OK);
    assert_int_equal(fixture_count(*state, ".tmp-"), 0);
}

TEST(test_a_live_writer_is_left_alone, temporary_directory_setup, temporary_directory_teardown)
{
    struct ps_writer *first, *second = NULL;
    char text[PS_TEXT_BYTES];
    assert_int_equal(fixture_start(ps_store_local(), *state, 1, &first, text), MR_OK);
    assert_int_equal(fixture_start(ps_store_local(), *state, 1, &second, text), MR_IO_ERROR);
    assert_non_null(strstr(text, "another process writes there"));
    for (uint32_t core = 0; core < FIXTURE_CORES; core++) {
        assert_true(fixture_fill(first, 1, core, 50));
        ps_writer_core_done(first, core);
    }
    assert_int_equal(fixture_finish(first).status, MR_OK);
}

TEST(test_wrong_directories_are_named, temporary_directory_setup, temporary_directory_teardown)
{
    const char *directory = *state;
    struct ps_writer *w = NULL;
    char text[PS_TEXT_BYTES], path[PS_PATH_BYTES], longest[PS_PATH_BYTES + 10];
    assert_true(ps_path_join(directory, "no/such", path));
    assert_int_equal(fixture_start(ps_store_local(), path, 1, &w, text), MR_IO_ERROR);
    assert_non_null(strstr(text, "no/such: No such file or directory; create the directory above it"));
    assert_true(ps_path_join(directory, "file", path));
    fclose(fopen(path, "w"));
    assert_int_equal(fixture_start(ps_store_local(), path, 1, &w, text), MR_IO_ERROR);
    assert_non_null(strstr(text, "Not a directory"));
    memset(longest, 'x', sizeof(longest) - 1);
    longest[sizeof(longest) - 1] = '\0';
    assert_int_equal(fixture_start(ps_store_local(), longest, 1, &w, text), MR_IO_ERROR);
    assert_non_null(strstr(text, "File name too long"));
    assert_int_equal(fixture_start(ps_store_local(), "", 1, &w, text), MR_IO_ERROR);
    assert_null(w);
    /* Only the last part is missing: it is made. */
    assert_true(ps_path_join(directory, "new", path));
    assert_int_equal(fixture_save(ps_store_local(), path, 1, 50).status, MR_OK);
    assert_int_equal(fixture_count(path, "ckpt-1"), 1);
}

TEST(test_what_the_manifest_cannot_hold_is_refused_at_once, temporary_directory_setup,
     temporary_directory_teardown)
{
    struct mr_feature features[2];
    uint32_t ids[2];
    struct ps_writer *w = NULL;
    char text[PS_TEXT_BYTES];
    fixture_features(features, ids);
    features[0].init_a = __builtin_nanf("");
    struct ps_writer_options options = fixture_options(*state, 1);
    options.features = features;
    options.core_count = 1;
    assert_int_equal(ps_writer_start(NULL, &options, &w, text), MR_INVALID_ARGUMENT);
    assert_null(w);
    assert_int_equal(fixture_count(*state, ""), 0);
}

static struct ps_writer *start_limited(const char *directory, uint64_t bytes_per_s_max, uint32_t buffers)
{
    struct ps_writer *w = NULL;
    char text[PS_TEXT_BYTES];
    struct ps_writer_options options = fixture_options(directory, 1);
    options.bytes_per_s_max = bytes_per_s_max;
    options.buffers_per_core = buffers;
    assert_int_equal(ps_writer_start(NULL, &options, &w, text), MR_OK);
    return w;
}

static void append_block(struct ps_writer *w, uint32_t core)
{
    const struct ps_record record = {
        .kind = PS_RECORD_VARIABLE, .feature = FIXTURE_VARIABLE, .bytes = PS_RECORD_BYTES_MAX};
    uint8_t *at = ps_writer_append(w, core, &record);
    assert_non_null(at);
    memset(at, 1, record.bytes);
}

TEST(test_the_rate_limit_holds, temporary_directory_setup, temporary_directory_teardown)
{
    struct ps_writer *w = start_limited(*state, 40u << 20, 4);
    for (uint32_t core = 0; core < FIXTURE_CORES; core++) {
        for (uint32_t i = 0; i < 4; i++)
            append_block(w, core);
        ps_writer_core_done(w, core);
    }
    struct ps_writer_status status = fixture_finish(w);
    assert_int_equal(status.status, MR_OK);
    assert_int_equal(status.bytes_written, 8u << 20);
    /* 8 blocks are worth 200 ms, less those of a pause and the last. */
    assert_true(status.duration_us >= 200000 - PS_BYTE_RATE_PAUSE_US - 25000);
}

/* A block in twelve days: who waits for it would not come back. */
TEST(test_a_limited_writer_is_aborted_at_once, temporary_directory_setup, temporary_directory_teardown)
{
    struct ps_writer *w = start_limited(*state, 1, 4);
    append_block(w, 0);
    append_block(w, 1);
    for (uint32_t core = 0; core < FIXTURE_CORES; core++)
        ps_writer_core_done(w, core);
    ps_writer_abort(w);
    struct ps_writer_status status = fixture_finish(w);
    assert_int_equal(status.status, MR_IO_ERROR);
    assert_int_equal(status.error_number, ECANCELED);
    assert_int_equal(fixture_count(*state, ""), 0);
}

static enum mr_status start_delta(const char *directory, uint64_t id, uint64_t parent_id,
                                  const struct ps_hash *parent_hash, struct ps_writer **out, char *text)
{
    struct ps_writer_options options = fixture_options(directory, id);
    options.parent_id = parent_id;
    options.parent_hash = parent_hash;
    options.step = 70;
    options.is_at_step = true;
    return ps_writer_start(NULL, &options, out, text);
}

TEST(test_a_delta_is_tied_to_its_parent, temporary_directory_setup, temporary_directory_teardown)
{
    const char *directory = *state;
    struct ps_writer *w = NULL;
    struct ps_manifest parent, m;
    char text[PS_TEXT_BYTES];
    assert_int_equal(fixture_save(ps_store_local(), directory, 1, 50).status, MR_OK);
    assert_int_equal(start_delta(directory, 2, 1, NULL, &w, text), MR_OK);
    const struct ps_record gone = {.kind = PS_RECORD_GONE, .feature = FIXTURE_TABLE, .count = 2, .bytes = 16};
    assert_non_null(memset(ps_writer_append(w, 0, &gone), 1, 16));
    fixture_publish(w, FIXTURE_CORES);
    assert_int_equal(ps_manifest_read(ps_store_local(), directory, 1, &parent, text), MR_OK);
    assert_int_equal(ps_manifest_read(ps_store_local(), directory, 2, &m, text), MR_OK);
    assert_int_equal(m.parent, 1);
    assert_memory_equal(&m.parent_hash, &parent.hash, sizeof(m.parent_hash));
    assert_int_equal(m.step, 70);
    assert_true(m.is_at_step);
    ps_manifest_clear(&parent);
    ps_manifest_clear(&m);
}

TEST(test_a_delta_without_a_whole_parent_is_not_begun, temporary_directory_setup,
     temporary_directory_teardown)
{
    const char *directory = *state;
    struct ps_writer *w = NULL;
    char text[PS_TEXT_BYTES];
    assert_int_equal(fixture_save(ps_store_local(), directory, 2, 50).status, MR_OK);
    assert_int_equal(start_delta(directory, 3, 1, NULL, &w, text), MR_CHECKPOINT_NOT_FOUND);
    assert_non_null(strstr(text, "a delta on checkpoint 1: "));
    assert_int_equal(truncate(fixture_path(directory, 2, "MANIFEST"), 100), 0);
    assert_int_equal(start_delta(directory, 3, 2, NULL, &w, text), MR_CHECKPOINT_CORRUPT);
    assert_non_null(strstr(text, "a delta on checkpoint 2: "));
    assert_null(w);
    assert_int_equal(fixture_count(directory, ""), 1);
}

/* The same number is not enough: it must be the one whose rows the delta is about. */
TEST(test_a_delta_on_another_checkpoint_of_that_number_is_not_begun, temporary_directory_setup,
     temporary_directory_teardown)
{
    const char *directory = *state;
    struct ps_writer *w = NULL;
    struct ps_manifest m;
    char text[PS_TEXT_BYTES];
    const struct ps_writer_status saved = fixture_save(ps_store_local(), directory, 1, 50);
    assert_int_equal(saved.status, MR_OK);
    assert_int_equal(ps_manifest_read(ps_store_local(), directory, 1, &m, text), MR_OK);
    assert_memory_equal(&saved.manifest_hash, &m.hash, sizeof(m.hash));
    ps_manifest_clear(&m);
    assert_int_equal(start_delta(directory, 2, 1, &saved.manifest_hash, &w, text), MR_OK);
    ps_writer_abort(w);
    assert_int_not_equal(fixture_finish(w).status, MR_OK);
    assert_int_equal(ps_store_remove_tree(ps_store_local(), fixture_path(directory, 1, ""), NULL), 0);
    assert_int_equal(fixture_save(ps_store_local(), directory, 1, 51).status, MR_OK);
    w = NULL;
    assert_int_equal(start_delta(directory, 2, 1, &saved.manifest_hash, &w, text), MR_CHECKPOINT_CORRUPT);
    assert_null(w);
    assert_non_null(strstr(text, "a delta on checkpoint 1: another checkpoint has come in the place"));
    assert_int_equal(fixture_count(directory, ""), 1);
}
