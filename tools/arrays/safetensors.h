/* The header of .safetensors files, written. Pure, any thread.
 *
 * Source: "Format" in the README of huggingface/safetensors: 8 bytes length of the header, little-endian; a
 * JSON object of {"NAME": {"dtype", "shape", "data_offsets": [begin, end]}}, with "__metadata__" for a map of
 * texts; then the tensors' bytes, row-major and little-endian, without a hole. The header is filled up with
 * spaces to a multiple of 8 bytes, and tensors with larger elements come first, so that each one is aligned
 * to its elements.
 */
#ifndef TOOL_SAFETENSORS_H
#define TOOL_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>
#include <jansson.h>
#include "mr_tensor.h"

#define TOOL_SAFETENSORS_MAX 256u /* tensors in a file */

struct tool_safetensor {
    const char *name;
    uint64_t rows;
    uint64_t offset; /* out: of its first byte in the file */
    enum mr_dtype dtype;
    uint32_t columns; /* 0: the shape is [rows], else [rows, columns], */
    uint32_t more[2]; /* or [rows, columns, more[0], more[1]]; 0: no such dimension */
};

/* The file's beginning, length and all, to be freed with free(), and where each tensor goes. `metadata` is an
 * object of strings or NULL, and stays the caller's. NULL when memory is short or the tensors are larger than
 * any file. */
char *tool_safetensors_header(struct tool_safetensor *tensors, uint32_t tensor_count, json_t *metadata,
                              size_t *header_bytes);

#endif
