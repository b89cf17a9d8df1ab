#include "trainer_client/examples/common/mnist_data.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define PATH_BYTES 1024u
#define MEAN       0.1307f
#define DEVIATION  0.3081f

static const char what_to_do[] = "scripts/fetch-mnist.sh DIR brings MNIST's files";

static uint32_t big_endian(const uint8_t *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

/* An idx file of bytes: 0, 0, 8, its rank; the dims; the bytes, which are the caller's to free. dims[1..]
 * must be as they are. */
static uint8_t *read_idx(const char *path, uint32_t rank, uint32_t dims[3], char *error, size_t error_bytes)
{
    uint8_t head[16], *bytes = NULL;
    FILE *file = fopen(path, "rb");
    struct stat st;
    if (file == NULL || fstat(fileno(file), &st) != 0) {
        snprintf(error, error_bytes, "cannot read %s: %s", path, what_to_do);
        goto out;
    }
    size_t head_bytes = 4 + 4 * (size_t)rank, item = 1;
    if (fread(head, 1, head_bytes, file) != head_bytes || big_endian(head) != 0x800 + rank) {
        snprintf(error, error_bytes, "%s is no idx file of bytes in %u dimensions: %s", path, rank,
                 what_to_do);
        goto out;
    }
    dims[0] = big_endian(head + 4);
    for (uint32_t d = 1; d < rank; d++) {
        if (big_endian(head + 4 + 4 * (size_t)d) != dims[d]) {
            snprintf(error, error_bytes, "%s has pictures of another size than %u x %u", path, dims[1],
                     dims[2]);
            goto out;
        }
        item *= dims[d];
    }
    if (dims[0] == 0 || (uint64_t)st.st_size != head_bytes + (uint64_t)dims[0] * item) {
        snprintf(error, error_bytes, "%s has %lld bytes, and says that it has %u items: it is damaged", path,
                 (long long)st.st_size, dims[0]);
        goto out;
    }
    bytes = malloc(dims[0] * item);
    if (bytes == NULL || fread(bytes, item, dims[0], file) != dims[0]) {
        snprintf(error, error_bytes, "cannot read %s to its end", path);
        free(bytes);
        bytes = NULL;
    }
out:
    if (file != NULL)
        (void)fclose(file);
    return bytes;
}

static bool labels_are_classes(const struct mnist_data *data)
{
    for (uint32_t i = 0; i < data->count; i++)
        if (data->labels[i] >= MNIST_CLASSES)
            return false;
    return true;
}

bool mnist_data_read(const char *directory, const char *set, struct mnist_data *out, char *error,
                     size_t error_bytes)
{
    struct mnist_data data = {0};
    uint32_t pictures[3] = {0, MNIST_SIDE, MNIST_SIDE}, labels[3] = {0};
    char path[PATH_BYTES];
    snprintf(path, sizeof(path), "%s/%s-images-idx3-ubyte", directory, set);
    data.pixels = read_idx(path, 3, pictures, error, error_bytes);
    if (data.pixels == NULL)
        return false;
    snprintf(path, sizeof(path), "%s/%s-labels-idx1-ubyte", directory, set);
    data.labels = read_idx(path, 1, labels, error, error_bytes);
    data.count = labels[0];
    bool fits = data.labels != NULL && labels[0] == pictures[0] && labels_are_classes(&data);
    if (data.labels != NULL && !fits)
        snprintf(error, error_bytes, "%s holds other than a label, 0 to 9, for each of %u pictures", path,
                 pictures[0]);
    if (!fits) {
        mnist_data_free(&data);
        return false;
    }
    *out = data;
    return true;
}

void mnist_data_free(struct mnist_data *data)
{
    free(data->pixels);
    free(data->labels);
    *data = (struct mnist_data){0};
}

void mnist_data_picture(const struct mnist_data *data, uint32_t index, float out[MNIST_PIXELS])
{
    const uint8_t *pixels = data->pixels + (size_t)index * MNIST_PIXELS;
    for (uint32_t i = 0; i < MNIST_PIXELS; i++)
        out[i] = ((float)pixels[i] / 255.0f - MEAN) / DEVIATION;
}
