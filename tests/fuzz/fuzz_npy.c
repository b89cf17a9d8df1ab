/* The reader of .npy headers on any bytes: an error of one line, or an array that fits the file to the
 * byte. */
#include <string.h>
#include "tests/fuzz/fuzz_assert.h"
#include "tools/arrays/npy.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct tool_npy npy;
    char error[TOOL_NPY_ERROR_BYTES] = "";
    if (!tool_npy_parse(data, bytes, bytes, &npy, error)) {
        FUZZ_ASSERT(error[0] != '\0' && strchr(error, '\n') == NULL);
        return 0;
    }
    FUZZ_ASSERT(npy.rank <= TOOL_NPY_RANK_MAX && npy.data_offset <= bytes);
    FUZZ_ASSERT(npy.data_offset + npy.data_bytes == bytes);
    unsigned __int128 elements = 1;
    for (uint32_t i = 0; i < npy.rank; i++)
        elements *= npy.shape[i];
    FUZZ_ASSERT(elements * mr_dtype_bytes(npy.dtype) == npy.data_bytes);
    return 0;
}
