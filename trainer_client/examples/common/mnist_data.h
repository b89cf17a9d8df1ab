/* MNIST, from its original files (idx): {train,t10k}-{images-idx3,labels-idx1}-ubyte in one directory.
 * scripts/fetch-mnist.sh brings them. Any thread once read. */
#ifndef EXAMPLES_MNIST_DATA_H
#define EXAMPLES_MNIST_DATA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MNIST_SIDE    28u
#define MNIST_PIXELS  (MNIST_SIDE * MNIST_SIDE)
#define MNIST_CLASSES 10u

struct mnist_data {
    uint32_t count;
    uint8_t *pixels; /* [count, MNIST_PIXELS], 0 is black */
    uint8_t *labels; /* [count], 0 to 9 */
};

/* `set`: "train" or "t10k". False: `error` holds a line that names the file. */
bool mnist_data_read(const char *directory, const char *set, struct mnist_data *out, char *error,
                     size_t error_bytes);
void mnist_data_free(struct mnist_data *data);

/* Sample `index` as torch's example has it: (pixel / 255 - 0.1307) / 0.3081. */
void mnist_data_picture(const struct mnist_data *data, uint32_t index, float out[MNIST_PIXELS]);

#endif
