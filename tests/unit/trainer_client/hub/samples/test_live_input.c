/* The bytes of an input that is read once: of pipes, files, and files that grow. */
#include <pthread.h>
#include "tests/test.h"
#include "tests/unit/trainer_client/hub/named_file.h"
#include "trainer_client/hub/samples/live_input.h"
#include "trainer_client/hub/samples/sample_file.h"

static char error_text[HUB_ERROR_BYTES];

/* Standard input is the reading end of a pipe, or what `fd` is. Returns the writing end. */
static int standard_input(int fd)
{
    int ends[2] = {fd, -1};
    if (fd < 0)
        assert_int_equal(pipe(ends), 0);
    assert_int_equal(dup2(ends[0], STDIN_FILENO), STDIN_FILENO);
    close(ends[0]);
    return ends[1];
}

TEST(a_pipe_until_its_end)
{
    struct hub_live_input in;
    int to = standard_input(-1);
    assert_int_equal(hub_live_input_open(&in, "-", NULL, false, error_text), MR_OK);
    assert_int_equal(hub_live_input_identity(&in), 0);
    assert_int_equal(write(to, "abcdef", 6), 6);
    assert_int_equal(hub_live_input_wait(&in, 4, error_text), HUB_LIVE_INPUT_BYTES);
    assert_memory_equal(in.buffer + in.begin, "abcd", 4);
    in.begin += 4;
    close(to);
    assert_int_equal(hub_live_input_wait(&in, 3, error_text), HUB_LIVE_INPUT_END);
    assert_int_equal(in.end - in.begin, 2);
    hub_live_input_close(&in);
}

static void *input_stop(void *in)
{
    hub_live_input_stop(in);
    return NULL;
}

TEST(waiting_is_stopped_by_another_thread)
{
    struct hub_live_input in;
    pthread_t thread;
    int to = standard_input(-1);
    assert_int_equal(hub_live_input_open(&in, "-", NULL, false, error_text), MR_OK);
    assert_int_equal(write(to, "ab", 2), 2);
    assert_int_equal(hub_live_input_wait(&in, 2, error_text), HUB_LIVE_INPUT_BYTES);
    assert_int_equal(pthread_create(&thread, NULL, input_stop, &in), 0);
    assert_int_equal(hub_live_input_wait(&in, 3, error_text), HUB_LIVE_INPUT_STOPPED);
    pthread_join(thread, NULL);
    assert_int_equal(hub_live_input_wait(&in, 2, error_text),
                     HUB_LIVE_INPUT_BYTES); /* what is there already */
    hub_live_input_close(&in);
    close(to);
}

TEST(a_file_is_read_to_its_end_and_again)
{
    struct named_file file = named_file_make();
    struct hub_live_input in;
    named_file_write(&file, "12345");
    assert_int_equal(hub_live_input_open(&in, file.path, NULL, false, error_text), MR_OK);
    for (int reading = 0; reading < 2; reading++) {
        assert_int_equal(hub_live_input_wait(&in, 6, error_text), HUB_LIVE_INPUT_END);
        assert_memory_equal(in.buffer + in.begin, "12345", 5);
        hub_live_input_stop(&in);
        hub_live_input_rewind(&in);
    }
    hub_live_input_close(&in);
    named_file_remove(&file);
}

TEST(standard_input_from_within_a_file)
{
    struct named_file file = named_file_make();
    struct hub_live_input in;
    named_file_write(&file, "12345");
    int fd = open(file.path, O_RDONLY | O_CLOEXEC);
    assert_int_equal(lseek(fd, 2, SEEK_SET), 2);
    standard_input(fd);
    assert_int_equal(hub_live_input_open(&in, "-", NULL, false, error_text), MR_OK);
    assert_int_equal(hub_live_input_wait(&in, 6, error_text), HUB_LIVE_INPUT_END);
    assert_int_equal(in.end - in.begin, 3);
    assert_memory_equal(in.buffer + in.begin, "345", 3);
    hub_live_input_close(&in);
    named_file_remove(&file);
}

static void *append(void *file)
{
    named_file_write(file, "678");
    return NULL;
}

TEST(a_followed_file_ends_when_it_is_renamed)
{
    struct named_file file = named_file_make();
    struct hub_live_input in;
    pthread_t thread;
    named_file_write(&file, "12345");
    assert_int_equal(hub_live_input_open(&in, file.path, NULL, true, error_text), MR_OK);
    const uint64_t identity = hub_live_input_identity(&in);
    assert_int_not_equal(identity, 0);
    assert_int_equal(hub_live_input_wait(&in, 5, error_text), HUB_LIVE_INPUT_BYTES);
    assert_int_equal(pthread_create(&thread, NULL, append, &file), 0);
    assert_int_equal(hub_live_input_wait(&in, 8, error_text), HUB_LIVE_INPUT_BYTES);
    pthread_join(thread, NULL);
    assert_memory_equal(in.buffer + in.begin, "12345678", 8);
    assert_int_equal(rename(file.path, file.other_path), 0);
    named_file_write(&file, "9");
    assert_int_equal(hub_live_input_wait(&in, 10, error_text), HUB_LIVE_INPUT_END);
    assert_int_equal(in.end - in.begin, 9);
    assert_int_equal(hub_live_input_identity(&in), identity);
    hub_live_input_close(&in);
    named_file_remove(&file);
}

TEST(a_followed_file_that_shrinks_is_an_error)
{
    struct named_file file = named_file_make();
    struct hub_live_input in;
    named_file_write(&file, "12345");
    assert_int_equal(hub_live_input_open(&in, file.path, NULL, true, error_text), MR_OK);
    assert_int_equal(hub_live_input_wait(&in, 5, error_text), HUB_LIVE_INPUT_BYTES);
    assert_int_equal(ftruncate(file.fd, 2), 0);
    assert_int_equal(hub_live_input_wait(&in, 6, error_text), HUB_LIVE_INPUT_FAILED);
    assert_non_null(strstr(error_text, "it has shrunk"));
    assert_non_null(strstr(error_text, file.path));
    hub_live_input_close(&in);
    named_file_remove(&file);
}

TEST(what_is_no_input_is_refused)
{
    struct hub_live_input in;
    assert_int_equal(hub_live_input_open(&in, "/nowhere/samples", NULL, true, error_text),
                     MR_INVALID_ARGUMENT);
    assert_non_null(strstr(error_text, "/nowhere/samples: No such file"));
    hub_live_input_close(&in);
    assert_int_equal(hub_live_input_open(&in, "/dev/null", NULL, true, error_text), MR_INVALID_ARGUMENT);
    assert_non_null(strstr(error_text, "standard input"));
    hub_live_input_close(&in);
}
