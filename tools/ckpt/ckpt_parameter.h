/* dump and export of a parameter of remote calls: its values, and the states that optimizers keep beside it.
 * They are held in memory meanwhile, as the node held them. */
#ifndef TOOL_CKPT_PARAMETER_H
#define TOOL_CKPT_PARAMETER_H

#include <stdbool.h>

struct ckpt_parameter_order {
    const char *command;   /* for errors */
    const char *path;      /* of the checkpoint */
    const char *parameter; /* its name */
    const char *out;       /* NULL: standard output, for CSV */
    bool with_state;
};

/* These return the exit code. CSV: a line for each element, with the part that it belongs to and its
 * place. */
int ckpt_parameter_csv(const struct ckpt_parameter_order *order);
/* A file for each part, in the directory `out`. */
int ckpt_parameter_npy_files(const struct ckpt_parameter_order *order);
/* One file: the values alone as an array, or a tensor for each part. */
int ckpt_parameter_npy(const struct ckpt_parameter_order *order);
int ckpt_parameter_safetensors(const struct ckpt_parameter_order *order);

#endif
