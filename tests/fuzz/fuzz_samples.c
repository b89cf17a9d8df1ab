/* Sample files: the first byte picks the format, the rest is the file, read through and then sample by
 * sample. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "tests/fuzz/fuzz_assert.h"
#include "trainer_client/hub/samples/sample_file.h"

static void read_all(struct hub_sample_file *f)
{
    static struct hub_sample sample;
    char error[HUB_ERROR_BYTES];
    const struct hub_sample_file_info *info = hub_sample_file_info(f);
    for (uint64_t i = 0; i < info->samples; i++) {
        FUZZ_ASSERT(hub_sample_file_read(f, i, &sample, error) == MR_OK);
        FUZZ_ASSERT(sample.key_count <= info->sample_keys_max);
        FUZZ_ASSERT(sample.bag_end[info->format->slots - 1] == sample.key_count);
    }
}

static void count_broken(void *arg, const char *path, uint64_t line_number, const char *reason)
{
    (void)path;
    FUZZ_ASSERT(line_number > 0 && reason[0] != '\0');
    ++*(uint32_t *)arg;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static struct hub_formats *formats;
    struct hub_sample_file *f = NULL;
    char path[64], error[HUB_ERROR_BYTES];
    uint32_t broken = 0;
    if (bytes == 0)
        return 0;
    if (formats == NULL)
        formats = hub_formats_create();
    FUZZ_ASSERT(formats != NULL && formats->count == 3);
    int fd = memfd_create("samples", MFD_CLOEXEC);
    FUZZ_ASSERT(fd >= 0 && write(fd, data + 1, bytes - 1) == (ssize_t)(bytes - 1));
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    const struct hub_sample_file_options options = {.path = path,
                                                    .formats = formats,
                                                    .format = formats->all[data[0] % 3]->name,
                                                    .seed = 1,
                                                    .held_out_share = 0.25,
                                                    .held_out = (data[0] & 4) != 0,
                                                    .strict = (data[0] & 8) != 0,
                                                    .on_broken_line = count_broken,
                                                    .arg = &broken,
                                                    .memory_bytes = (data[0] & 16) != 0 ? 2048 : 0,
                                                    .index_entries_max = 16,
                                                    .window_samples = (data[0] & 32) != 0 ? 7 : 0,
                                                    .distinct_entries = 64};
    enum mr_status status = hub_sample_file_open(&options, &f, error);
    /* Without `strict`, a file is refused when most of its lines are broken. A packed one may be damaged. */
    FUZZ_ASSERT(status == MR_OK || (status == MR_BAD_MESSAGE && broken > 0) || status == MR_IO_ERROR);
    FUZZ_ASSERT(!options.strict || status == MR_IO_ERROR || (status == MR_BAD_MESSAGE) == (broken > 0));
    if (status == MR_OK)
        read_all(f);
    hub_sample_file_close(f);
    close(fd);
    return 0;
}
