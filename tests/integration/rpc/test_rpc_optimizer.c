/* The distributed optimizer over real sockets: two owners of parameters and two trainers, each in a process
 * of its own, next to torch.optim (rpc_optimizer.py); and an owner that is killed. */
#include <arpa/inet.h>
#include <math.h>
#include <netinet/in.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include "tests/test.h"
#include "tests/unit/dataplane/rpc/line_model.h"

enum { FLOATS = 12, STEPS = 40, OWNERS = 2, TRAINERS = 2, WORLD = OWNERS + TRAINERS, NO_TORCH = 77 };

static const char *python, *torch_script;

/* What the processes of a world share. */
struct shared {
    sem_t ready[TRAINERS]; /* posted by each owner */
    sem_t turn[TRAINERS];  /* of training */
    pid_t pids[WORLD];
    char address[32];
    struct mr_dist_optimizer_options options;
    float values[OWNERS][FLOATS]; /* in the end */
};

static struct shared *shared;

static int setup(void **state)
{
    struct sockaddr_in sa = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof(sa);
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(shared, MAP_FAILED);
    assert_int_equal(bind(fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&sa, &bytes), 0);
    close(fd);
    snprintf(shared->address, sizeof(shared->address), "127.0.0.1:%u", ntohs(sa.sin_port));
    for (uint32_t i = 0; i < TRAINERS; i++) {
        sem_init(&shared->ready[i], 1, 0);
        sem_init(&shared->turn[i], 1, i == 0);
    }
    return 0;
}

static int teardown(void **state)
{
    (void)munmap(shared, sizeof(*shared));
    return 0;
}

/* ---- in the workers' processes: what fails is reported and ends the process ---- */

static void must(enum mr_status status, const char *what)
{
    if (status == MR_OK)
        return;
    fprintf(stderr, "%s: %s\n", what, mr_rpc_last_error());
    _exit(1);
}

static struct mr_rpc *rpc_optimizer_join(uint32_t rank, uint32_t world_size, struct line_model *model)
{
    struct mr_rpc_function functions[LINE_FUNCTIONS];
    struct mr_rpc_options options = {
        .rendezvous = shared->address, .functions = functions, .function_count = LINE_FUNCTIONS};
    struct mr_rpc *rpc;
    char name[16], error[512];
    line_functions(model, functions);
    snprintf(name, sizeof(name), "w%u", rank);
    if (mr_rpc_init(name, rank, world_size, &options, &rpc, error, sizeof(error)) == MR_OK)
        return rpc;
    fprintf(stderr, "%s\n", error);
    _exit(1);
}

static int leave(struct mr_rpc *rpc)
{
    must(mr_rpc_shutdown(rpc, 0), "shutdown");
    mr_rpc_destroy(rpc);
    return 0;
}

static int own(uint32_t rank, uint32_t world_size)
{
    struct line_model model = {NULL};
    struct mr_rpc *rpc = rpc_optimizer_join(rank, world_size, &model);
    float values[FLOATS];
    for (uint32_t i = 0; i < FLOATS; i++)
        values[i] = line_drawn(rank, i);
    const struct mr_tensor initial = mr_tensor_1d(MR_F32, FLOATS, values);

    must(mr_parameter_create(rpc, &initial, &model.parameter), "parameter");
    for (uint32_t i = 0; i < TRAINERS; i++)
        sem_post(&shared->ready[i]);
    must(mr_rpc_shutdown(rpc, 0), "shutdown");
    mr_rref_release(model.parameter);
    mr_rpc_destroy(rpc);
    return 0;
}

static struct mr_dist_optimizer *optimizer_over(struct mr_rpc *rpc, struct mr_rref *parameters[OWNERS])
{
    struct mr_dist_optimizer *optimizer;
    for (uint32_t owner = 0; owner < OWNERS; owner++) {
        struct mr_rpc_result *result;
        must(mr_rpc_sync(rpc, owner, "line.parameter", NULL, 0, NULL, &result), "line.parameter");
        parameters[owner] = mr_rpc_result_value(result, 0)->rref;
        mr_rref_retain(parameters[owner]);
        mr_rpc_result_free(result);
    }
    must(mr_dist_optimizer_create(rpc, &shared->options, parameters, OWNERS, &optimizer), "optimizer");
    return optimizer;
}

static struct mr_autograd *backward(struct mr_rpc *rpc, uint32_t step)
{
    struct mr_autograd *context;
    float x[FLOATS];
    double loss;
    for (uint32_t i = 0; i < FLOATS; i++)
        x[i] = line_drawn(100 + step, i);
    must(mr_autograd_begin(rpc, &context), "begin");
    must(line_backward(rpc, 0, OWNERS, mr_tensor_1d(MR_F32, FLOATS, x),
                       (double)line_drawn(100 + step, FLOATS), context, &loss),
         "backward");
    return context;
}

static void copy_values(struct mr_rref *parameter, float *out)
{
    struct mr_rpc_result *result;
    must(mr_rref_to_here(parameter, 0, &result), "to_here");
    memcpy(out, mr_rpc_result_value(result, 0)->tensor.data, FLOATS * sizeof(*out));
    mr_rpc_result_free(result);
}

static int train(uint32_t rank, uint32_t world_size)
{
    struct line_model none = {NULL};
    struct mr_rpc *rpc = rpc_optimizer_join(rank, world_size, &none);
    struct mr_rref *parameters[OWNERS];
    uint32_t number = rank - OWNERS;
    for (uint32_t i = 0; i < OWNERS; i++)
        sem_wait(&shared->ready[number]);
    struct mr_dist_optimizer *optimizer = optimizer_over(rpc, parameters);

    for (uint32_t step = number; step < STEPS; step += TRAINERS) {
        sem_wait(&shared->turn[number]);
        struct mr_autograd *context = backward(rpc, step);

        must(mr_dist_optimizer_step(optimizer, context, 0), "step");
        mr_autograd_end(context);
        if (step == STEPS - 1)
            for (uint32_t owner = 0; owner < OWNERS; owner++)
                copy_values(parameters[owner], shared->values[owner]);
        sem_post(&shared->turn[(number + 1) % TRAINERS]);
    }
    mr_dist_optimizer_destroy(optimizer);
    for (uint32_t owner = 0; owner < OWNERS; owner++)
        mr_rref_release(parameters[owner]);
    return leave(rpc);
}

/* Its second owner is killed between a backward and the step. */
static int train_on(uint32_t rank, uint32_t world_size)
{
    struct line_model none = {NULL};
    struct mr_rpc *rpc = rpc_optimizer_join(rank, world_size, &none);
    struct mr_rref *parameters[OWNERS];
    for (uint32_t i = 0; i < OWNERS; i++)
        sem_wait(&shared->ready[0]);
    struct mr_dist_optimizer *optimizer = optimizer_over(rpc, parameters);
    struct mr_autograd *context = backward(rpc, 0);

    (void)kill(shared->pids[1], SIGKILL);
    if (mr_dist_optimizer_step(optimizer, context, 0) != MR_WORKER_DIED ||
        strstr(mr_rpc_last_error(), "worker \"w1\" (rank 1)") == NULL) {
        fprintf(stderr, "step: %s\n", mr_rpc_last_error());
        return 1;
    }
    mr_autograd_end(context);
    copy_values(parameters[0], shared->values[0]);
    mr_dist_optimizer_destroy(optimizer);
    for (uint32_t owner = 0; owner < OWNERS; owner++)
        mr_rref_release(parameters[owner]);
    return leave(rpc);
}

/* ---- the tests ---- */

static void rpc_optimizer_start(uint32_t rank, uint32_t world_size,
                                int (*run)(uint32_t rank, uint32_t world_size))
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        _exit(run(rank, world_size));
    shared->pids[rank] = pid;
}

static void expect_end(uint32_t rank)
{
    int status = 0;
    assert_int_equal(waitpid(shared->pids[rank], &status, 0), shared->pids[rank]);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static const struct {
    struct mr_dist_optimizer_options options;
    const char *torchs;
} cases[] = {
    {{.kind = MR_DIST_SGD, .learning_rate = 0.05f, .weight_decay = 0.01f}, "SGD lr=0.05 weight_decay=0.01"},
    {{.kind = MR_DIST_SGD, .learning_rate = 0.02f, .momentum = 0.9f}, "SGD lr=0.02 momentum=0.9"},
    {{.kind = MR_DIST_SGD, .learning_rate = 0.02f, .momentum = 0.8f, .nesterov = true},
     "SGD lr=0.02 momentum=0.8 nesterov=True"},
    {{.kind = MR_DIST_ADAGRAD}, "Adagrad"},
    {{.kind = MR_DIST_ADAM, .learning_rate = 0.01f, .weight_decay = 0.02f}, "Adam lr=0.01 weight_decay=0.02"},
};

enum { CASES = sizeof(cases) / sizeof(cases[0]) };

static void compare_with_torch(float values[CASES][OWNERS][FLOATS])
{
    char command[1024];
    int n = snprintf(command, sizeof(command), "%s %s %d %d", python, torch_script, FLOATS, STEPS);
    for (uint32_t c = 0; c < CASES; c++)
        n += snprintf(command + n, sizeof(command) - (size_t)n, " '%s'", cases[c].torchs);
    assert_true((size_t)n < sizeof(command) - 1);
    FILE *torch = popen(command, "r"); /* NOLINT(cert-env33-c): words of our own */

    assert_non_null(torch);
    uint32_t read = 0;

    for (; read < CASES * OWNERS * FLOATS; read++) {
        const char *name = cases[read / (OWNERS * FLOATS)].torchs;
        double expected, got = (double)(&values[0][0][0])[read];
        if (fscanf(torch, "%lf", &expected) != 1)
            break;
        if (!(fabs(got - expected) <= 1e-5 * fmax(1, fabs(expected))))
            fail_msg("%s: element %u is %.9g, torch's is %.9g", name, read, got, expected);
    }
    int status = pclose(torch);

    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == NO_TORCH) {
        printf("no torch here: nothing compared\n");
        return;
    }
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_int_equal(read, CASES * OWNERS * FLOATS);
}

TEST(trainers_in_turn_as_torch, setup, teardown)
{
    float values[CASES][OWNERS][FLOATS];
    for (uint32_t c = 0; c < CASES; c++) {
        if (c > 0) {
            teardown(state);
            setup(state);
        }
        shared->options = cases[c].options;
        for (uint32_t rank = 0; rank < WORLD; rank++)
            rpc_optimizer_start(rank, WORLD, rank < OWNERS ? own : train);
        for (uint32_t rank = 0; rank < WORLD; rank++)
            expect_end(rank);
        memcpy(values[c], shared->values, sizeof(values[c]));
    }
    compare_with_torch(values);
}

TEST(a_killed_owner_is_named_and_the_others_are_updated, setup, teardown)
{
    bool changed = false;
    int status = 0;
    shared->options = (struct mr_dist_optimizer_options){.kind = MR_DIST_SGD, .learning_rate = 0.1f};
    rpc_optimizer_start(0, OWNERS + 1, own);
    rpc_optimizer_start(1, OWNERS + 1, own);
    rpc_optimizer_start(2, OWNERS + 1, train_on);
    assert_int_equal(waitpid(shared->pids[1], &status, 0), shared->pids[1]);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    expect_end(2);
    expect_end(0);
    for (uint32_t i = 0; i < FLOATS; i++)
        changed = changed || shared->values[0][i] != line_drawn(0, i);
    assert_true(changed);
}

int main(int argc, char **argv)
{
    if (argc < 3)
        return 2;
    python = argv[1];
    torch_script = argv[2];
    return tests_run(NULL, NULL);
}
