/* Random graphs over two and three workers, each in a process of its own and all of them trainers at the same
 * time: their gradients against torch's. argv[1] is autograd_torch.py. Without torch: skipped (77). */
#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "millrace_rpc.h"
#include "tests/integration/rpc/autograd_ops.h"
#include "tests/integration/rpc/rpc_processes.h"

enum { GRAPHS = 60, VALUES_MAX = 256, RESULTS_MAX = 128, ELEMENTS_MAX = 16, SKIPPED = 77, WORLD_MAX = 3 };
enum how { APPLY, CALL, NESTED, KEEP };
#define TOLERANCE 1e-5

#define check(condition, ...)                                                                                \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            fprintf(stderr, "%s:%d: ", __FILE__, __LINE__);                                                  \
            fprintf(stderr, __VA_ARGS__);                                                                    \
            fprintf(stderr, "\n");                                                                           \
            exit(1);                                                                                         \
        }                                                                                                    \
    } while (0)

/* ---- reading ---- */

static void word(FILE *in, char text[64])
{
    check(fscanf(in, "%63s", text) == 1, "the graphs end early");
}

static uint32_t number(FILE *in)
{
    char text[64];
    word(in, text);
    return (uint32_t)strtoul(text, NULL, 10);
}

static double real(FILE *in)
{
    char text[64];
    word(in, text);
    return strtod(text, NULL);
}

static void expect_word(FILE *in, const char *expected)
{
    char text[64];
    word(in, text);
    check(strcmp(text, expected) == 0, "\"%s\" where \"%s\" should be", text, expected);
}

/* ---- a graph ---- */

struct graph {
    struct mr_rpc *rpc;
    struct mr_autograd *context;
    struct mr_value values[VALUES_MAX];
    float leaves[VALUES_MAX][ELEMENTS_MAX];
    uint32_t count, leaf_count;
    struct mr_rpc_result *results[RESULTS_MAX];
    uint32_t result_count;
};

/* Ranks in the file are relative to the trainer's. */
static uint32_t rank_of(const struct graph *g, uint32_t relative)
{
    return (mr_rpc_rank(g->rpc) + relative) % mr_rpc_world_size(g->rpc);
}

static void read_leaf(FILE *in, struct graph *g)
{
    float *data = g->leaves[g->leaf_count++];
    expect_word(in, "leaf");
    uint32_t rows = number(in), cols = number(in);

    check(rows * cols <= ELEMENTS_MAX, "a leaf of %u elements", rows * cols);
    for (uint32_t i = 0; i < rows * cols; i++)
        data[i] = (float)real(in);
    check(mr_autograd_leaf(g->context, mr_tensor_2d(MR_F32, rows, cols, data), &g->values[g->count++]) ==
              MR_OK,
          "%s", mr_rpc_last_error());
}

static void keep_result(struct graph *g, struct mr_rpc_result *result, uint32_t outputs)
{
    check(mr_rpc_result_count(result) == outputs, "%u results, not %u", mr_rpc_result_count(result), outputs);
    check(g->result_count < RESULTS_MAX && g->count + outputs <= VALUES_MAX, "too many");
    for (uint32_t i = 0; i < outputs; i++)
        g->values[g->count++] = *mr_rpc_result_value(result, i);
    g->results[g->result_count++] = result;
}

static void read_op(FILE *in, struct graph *g)
{
    struct mr_rpc_call_options options = {.context = g->context};
    struct mr_value arguments[8];
    struct mr_rpc_result *result = NULL;
    char name[64];
    enum mr_status status;
    expect_word(in, "op");
    enum how how = (enum how)number(in);
    uint32_t rank = rank_of(g, number(in)), over = rank_of(g, number(in));

    word(in, name);
    uint32_t inputs = number(in);

    arguments[0] = mr_value_i64(rank);
    arguments[1] = mr_value_string(name);
    for (uint32_t i = 0; i < inputs; i++)
        arguments[2 + i] = g->values[number(in)];
    uint32_t outputs = number(in);

    if (how == KEEP) {
        struct mr_value *kept = &g->values[g->count++];
        *kept = mr_value_rref(NULL);
        status = mr_remote(g->rpc, rank, "here", arguments + 1, inputs + 1, &options, &kept->rref);
    } else if (how == APPLY) {
        status = mr_autograd_apply(g->context, name, arguments + 2, inputs, &result);
    } else if (how == NESTED) {
        status = mr_rpc_sync(g->rpc, over, "on", arguments, inputs + 2, &options, &result);
    } else {
        status = mr_rpc_sync(g->rpc, rank, "here", arguments + 1, inputs + 1, &options, &result);
    }
    check(status == MR_OK, "%s", mr_rpc_last_error());
    if (how != KEEP)
        keep_result(g, result, outputs);
}

static void read_pass(FILE *in, struct graph *g)
{
    struct mr_value losses[8];
    expect_word(in, "pass");
    bool retain = number(in) != 0;
    uint32_t count = number(in);

    check(count <= 8, "%u losses", count);
    for (uint32_t i = 0; i < count; i++)
        losses[i] = g->values[number(in)];
    check(mr_autograd_backward(g->context, losses, count, retain) == MR_OK, "%s", mr_rpc_last_error());
}

/* Elements compared. */
static uint32_t compare(FILE *in, struct graph *g, uint32_t graph_number)
{
    struct mr_tensor t;
    double expected[ELEMENTS_MAX], largest = 1;
    expect_word(in, "gradient");
    uint32_t id = number(in);
    bool has = number(in) != 0;
    uint32_t count = (uint32_t)(g->values[id].tensor.bytes / sizeof(float));

    check(mr_autograd_gradient(g->context, &g->values[id], &t) == MR_OK, "%s", mr_rpc_last_error());
    check((t.data != NULL) == has, "graph %u, leaf %u: torch has %s gradient", graph_number, id,
          has ? "a" : "no");
    if (!has)
        return 0;
    for (uint32_t i = 0; i < count; i++) {
        expected[i] = real(in);
        largest = fmax(largest, fabs(expected[i]));
    }
    for (uint32_t i = 0; i < count; i++) {
        double got = (double)((const float *)t.data)[i];
        check(fabs(got - expected[i]) <= TOLERANCE * largest,
              "graph %u, leaf %u, element %u: %.9g, torch has %.9g", graph_number, id, i, got, expected[i]);
    }
    return count;
}

static uint32_t run_graph(FILE *in, struct mr_rpc *rpc, uint32_t graph_number)
{
    struct graph *g = calloc(1, sizeof(*g));
    uint32_t leaves = number(in), ops = number(in), passes = number(in), compared = 0;
    check(g != NULL && leaves <= VALUES_MAX, "no memory");
    g->rpc = rpc;
    check(mr_autograd_begin(rpc, &g->context) == MR_OK, "%s", mr_rpc_last_error());
    for (uint32_t i = 0; i < leaves; i++)
        read_leaf(in, g);
    for (uint32_t i = 0; i < ops; i++)
        read_op(in, g);
    for (uint32_t i = 0; i < passes; i++)
        read_pass(in, g);
    for (uint32_t i = 0; i < leaves; i++)
        compared += compare(in, g, graph_number);
    mr_autograd_end(g->context);
    for (uint32_t i = leaves; i < g->count; i++)
        if (g->values[i].kind == MR_VALUE_RREF)
            mr_rref_release(g->values[i].rref);
    for (uint32_t i = 0; i < g->result_count; i++)
        mr_rpc_result_free(g->results[i]);
    free(g);
    return compared;
}

/* ---- workers ---- */

/* The graphs of this trainer, in a file. */
static FILE *draw_graphs(const char *script, uint32_t size, uint32_t rank)
{
    FILE *out = tmpfile();
    char sizes[3][16];
    int status = 0;
    check(out != NULL, "no file: %s", strerror(errno));
    snprintf(sizes[0], sizeof(sizes[0]), "%u", size);
    snprintf(sizes[1], sizeof(sizes[1]), "%d", GRAPHS);
    snprintf(sizes[2], sizeof(sizes[2]), "%u", 100 * size + rank);
    pid_t pid = fork();

    if (pid == 0) {
        (void)dup2(fileno(out), STDOUT_FILENO);
        execlp("/usr/bin/python3", "python3", script, sizes[0], sizes[1], sizes[2], (char *)NULL);
        _exit(127);
    }
    check(pid > 0 && waitpid(pid, &status, 0) == pid, "no python: %s", strerror(errno));
    if (WIFEXITED(status) && WEXITSTATUS(status) == SKIPPED) {
        printf("skipped: /usr/bin/python3 has no torch to compare with\n");
        exit(SKIPPED);
    }
    check(WIFEXITED(status) && WEXITSTATUS(status) == 0, "%s ended with %x", script, (unsigned)status);
    rewind(out);
    return out;
}

/* Of the world that runs. */
static FILE *graphs_of[WORLD_MAX];
static uint32_t world_size;

static int work(uint32_t rank, const char *address)
{
    struct mr_rpc_options options = {.functions = autograd_ops, .function_count = AUTOGRAD_OPS};
    struct mr_rpc *rpc = rpc_join(rank, world_size, address, &options);
    FILE *in = graphs_of[rank];
    char text[64];
    uint32_t graphs = 0, compared = 0;
    if (rpc == NULL)
        return 1;
    for (word(in, text); strcmp(text, "graph") == 0; word(in, text))
        compared += run_graph(in, rpc, graphs++);
    check(strcmp(text, "end") == 0 && graphs == GRAPHS, "%u graphs, then \"%s\"", graphs, text);
    check(mr_rpc_shutdown(rpc, 0) == MR_OK, "%s", mr_rpc_last_error());
    mr_rpc_destroy(rpc);
    printf("worker %u of %u: %u graphs, %u elements as torch has them\n", rank, world_size, graphs, compared);
    (void)fflush(stdout);
    check(compared > GRAPHS, "hardly anything was compared");
    return 0;
}

static void run_world(const char *script, uint32_t size)
{
    world_size = size;
    for (uint32_t rank = 0; rank < size; rank++)
        graphs_of[rank] = draw_graphs(script, size, rank);
    (void)fflush(stdout);
    rpc_run_world(work, size, UINT32_MAX);
    for (uint32_t rank = 0; rank < size; rank++)
        (void)fclose(graphs_of[rank]);
}

int main(int argc, char **argv)
{
    if (argc != 2)
        return 2;
    run_world(argv[1], 2);
    run_world(argv[1], 3);
    return 0;
}
