/* The program: simulated worlds of checkpoints. A world is once per process, so each run has a process of its
 * own below those that share the seeds. */
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include "cuts_world.h"
#include "tests/sim/seeds.h"

#define SECONDS_MAX 60u /* of processor time that a run may take */

/* Over all runs. */
struct sums {
    atomic_uint_fast64_t restores, deltas, at_steps, in_flight, by_hand, put_backs, losses, go_ons, partials,
        drops, alters;
};

static struct sums *sums;

static void *map_shared(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

static void *cuts_create(void)
{
    return map_shared(sizeof(struct cuts_outcome));
}

static void cuts_destroy(void *world)
{
    (void)munmap(world, sizeof(struct cuts_outcome));
}

static bool make_directory(char *out, size_t bytes)
{
    (void)snprintf(out, bytes, "%s/millrace-cuts-XXXXXX",
                   access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    return mkdtemp(out) != NULL;
}

static void remove_directory(const char *directory)
{
    char command[96];
    (void)snprintf(command, sizeof(command), "rm -rf %s", directory);
    if (system(command) != 0)
        fprintf(stderr, "cuts: %s is left behind\n", directory);
}

static void limit_time(void)
{
    const struct rlimit limit = {.rlim_cur = SECONDS_MAX, .rlim_max = SECONDS_MAX};
    (void)setrlimit(RLIMIT_CPU, &limit);
}

/* The status of the process that ran it. */
static int run_apart(struct cuts_outcome *outcome, uint64_t seed, const char *directory, bool verbose)
{
    int status = -1;
    (void)fflush(stdout);
    const pid_t pid = fork();
    if (pid == 0) {
        limit_time();
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        cuts_run(seed, directory, verbose, outcome);
        exit(0);
    }
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    return status;
}

static void cuts_add(const struct cuts_outcome *outcome)
{
    atomic_fetch_add(&sums->restores, outcome->restores);
    atomic_fetch_add(&sums->deltas, outcome->deltas);
    atomic_fetch_add(&sums->at_steps, outcome->at_steps);
    atomic_fetch_add(&sums->in_flight, outcome->in_flight);
    atomic_fetch_add(&sums->by_hand, outcome->by_hand);
    atomic_fetch_add(&sums->put_backs, outcome->put_backs);
    atomic_fetch_add(&sums->losses, outcome->losses);
    atomic_fetch_add(&sums->go_ons, outcome->go_ons);
    atomic_fetch_add(&sums->partials, outcome->partials);
    atomic_fetch_add(&sums->drops, outcome->drops);
    atomic_fetch_add(&sums->alters, outcome->alters);
}

static bool run_cuts(void *world, uint64_t seed, bool verbose, uint64_t *trace, char *why, size_t why_bytes)
{
    struct cuts_outcome *outcome = world;
    char directory[64];
    memset(outcome, 0, sizeof(*outcome));
    if (!make_directory(directory, sizeof(directory))) {
        (void)snprintf(why, why_bytes, "a directory for checkpoints cannot be made: %s", strerror(errno));
        return false;
    }
    const int status = run_apart(outcome, seed, directory, verbose);
    remove_directory(directory);
    *trace = outcome->trace;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
        cuts_add(outcome);
        return true;
    }
    if (outcome->why[0] != '\0')
        (void)snprintf(why, why_bytes, "%s", outcome->why);
    else
        (void)snprintf(why, why_bytes, "its process ended with %s %d",
                       WIFSIGNALED(status) ? "signal" : "status",
                       WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    return false;
}

int main(int argc, char **argv)
{
    static const struct seeds_program program = {
        "cuts", "Simulates N worlds in which checkpoints are cut and restored", cuts_create, cuts_destroy,
        run_cuts};
    sums = map_shared(sizeof(*sums));
    if (sums == NULL)
        return 2;
    const int status = seeds_main(&program, argc, argv);
    if (atomic_load(&sums->restores) > 0)
        printf(
            "cuts: %llu checkpoints restored, %llu deltas, %llu cut at a step, %llu with pushes in flight; "
            "%llu restores by hand, %llu starts from one, %llu copies put back, %llu losses reported; %llu "
            "partial saves, %llu drops, %llu alterations\n",
            (unsigned long long)atomic_load(&sums->restores), (unsigned long long)atomic_load(&sums->deltas),
            (unsigned long long)atomic_load(&sums->at_steps),
            (unsigned long long)atomic_load(&sums->in_flight),
            (unsigned long long)atomic_load(&sums->by_hand), (unsigned long long)atomic_load(&sums->go_ons),
            (unsigned long long)atomic_load(&sums->put_backs), (unsigned long long)atomic_load(&sums->losses),
            (unsigned long long)atomic_load(&sums->partials), (unsigned long long)atomic_load(&sums->drops),
            (unsigned long long)atomic_load(&sums->alters));
    return status;
}
