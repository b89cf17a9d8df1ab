/* Command line; and processes that share the seeds among them, so that one that crashes or hangs is told like any other
 * failure. Each world is run once, every sixteenth twice, to see that a seed tells the whole story. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sim.h"

#define REPLAY_EVERY  16u
#define JOBS_MAX      256u
#define SEED_SECONDS  60
#define FAILURES_TOLD 20u

static const char usage[] =
    "usage: sim [--first S] [--seeds N] [--jobs N] [--seconds N] [--stop] [--verbose]\n"
    "Simulates N worlds (default 100), drawn from the seeds S (default 1) and on.\n"
    "  --jobs N     processes (default: as many as processors)\n"
    "  --seconds N  of processor time that one seed may take (default: 60)\n"
    "  --stop       no more seeds once one has failed\n"
    "  --verbose    print everything that happens; for one seed\n"
    "Prints how to run each seed that fails again; exit status 1 if any did.\n";

struct options {
    uint64_t first, seeds, jobs, seconds;
    bool stop, verbose;
};

/* What the processes share. */
struct shared {
    atomic_uint_fast64_t next, done, failed, trace;
    atomic_uint_fast64_t first_failed;
    atomic_uint_fast64_t current[JOBS_MAX]; /* the seed a process is at; 0: none */
};

/* ---- one process ---- */

static void tell_failure(struct shared *shared, uint64_t seed, const char *why)
{
    uint64_t lowest = atomic_load(&shared->first_failed);
    while (seed < lowest && !atomic_compare_exchange_weak(&shared->first_failed, &lowest, seed))
        ;
    if (atomic_fetch_add(&shared->failed, 1) < FAILURES_TOLD)
        printf("sim: seed %llu failed: %s (sim --first %llu --seeds 1 --verbose)\n", (unsigned long long)seed,
               why, (unsigned long long)seed);
}

static void run_seed(struct sim *sim, struct shared *shared, uint64_t seed, bool verbose)
{
    char why[sizeof(sim->why) + 64];
    if (!sim_run(sim, seed, verbose)) {
        (void)snprintf(why, sizeof(why), "at %llu us: %s", (unsigned long long)(sim->now_us - SIM_FIRST_US),
                       sim->why);
        tell_failure(shared, seed, why);
        return;
    }
    uint64_t trace = sim->trace;
    atomic_fetch_add(&shared->trace, trace);
    if (seed % REPLAY_EVERY == 0 && !verbose && (!sim_run(sim, seed, false) || sim->trace != trace))
        tell_failure(shared, seed, "it does not replay");
}

static void limit_time(uint64_t seconds)
{
    struct itimerval limit = {.it_value = {.tv_sec = (time_t)seconds}};
    (void)setitimer(ITIMER_VIRTUAL, &limit, NULL);
}

static int work(const struct options *options, struct shared *shared, uint64_t job)
{
    struct sim *sim = sim_create();
    if (sim == NULL)
        return 2;
    for (;;) {
        uint64_t seed = atomic_fetch_add(&shared->next, 1);
        if (seed >= options->first + options->seeds ||
            (options->stop && seed > atomic_load(&shared->first_failed)))
            break;
        atomic_store(&shared->current[job], seed);
        limit_time(options->seconds);
        run_seed(sim, shared, seed, options->verbose);
        atomic_fetch_add(&shared->done, 1);
    }
    atomic_store(&shared->current[job], 0);
    sim_destroy(sim);
    return 0;
}

/* ---- all of them ---- */

static pid_t start(const struct options *options, struct shared *shared, uint64_t job)
{
    (void)fflush(stdout);
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    int status = work(options, shared, job);
    (void)fflush(stdout);
    _exit(status);
}

static void progress(const struct options *options, struct shared *shared)
{
    if (isatty(STDERR_FILENO) && !options->verbose)
        fprintf(stderr, "\rsim: %llu of %llu seeds, %llu failed ",
                (unsigned long long)atomic_load(&shared->done), (unsigned long long)options->seeds,
                (unsigned long long)atomic_load(&shared->failed));
}

/* A process has ended. What ended it may be the seed it was at: then another one goes on. */
static pid_t ended(const struct options *options, struct shared *shared, uint64_t job, int status)
{
    uint64_t seed = atomic_load(&shared->current[job]);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return 0;
    if (seed == 0) {
        tell_failure(shared, options->first, "the simulator itself could not start");
        return 0;
    }
    char why[64];
    (void)snprintf(why, sizeof(why), "the process ended with %s %d",
                   WIFSIGNALED(status) ? "signal" : "status",
                   WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    tell_failure(shared, seed, why);
    atomic_fetch_add(&shared->done, 1);
    return start(options, shared, job);
}

static void run_jobs(const struct options *options, struct shared *shared)
{
    pid_t pids[JOBS_MAX];
    uint64_t running = 0;
    for (uint64_t job = 0; job < options->jobs; job++) {
        pids[job] = start(options, shared, job);
        running += pids[job] > 0;
    }
    while (running > 0) {
        int status;
        pid_t pid = waitpid(-1, &status, WNOHANG);
        if (pid == 0) {
            progress(options, shared);
            (void)usleep(20000);
            continue;
        }
        for (uint64_t job = 0; pid > 0 && job < options->jobs; job++) {
            if (pids[job] != pid)
                continue;
            pids[job] = ended(options, shared, job, status);
            running -= pids[job] <= 0;
        }
        if (pid < 0)
            break;
    }
    progress(options, shared);
}

static bool parse_number(const char *text, uint64_t *out)
{
    char *end;
    *out = strtoull(text, &end, 10);
    return *text >= '0' && *text <= '9' && *end == '\0';
}

static bool parse(int argc, char **argv, struct options *options)
{
    for (int i = 1; i < argc; i++) {
        uint64_t *number = strcmp(argv[i], "--first") == 0     ? &options->first
                           : strcmp(argv[i], "--seeds") == 0   ? &options->seeds
                           : strcmp(argv[i], "--jobs") == 0    ? &options->jobs
                           : strcmp(argv[i], "--seconds") == 0 ? &options->seconds
                                                               : NULL;
        if (strcmp(argv[i], "--verbose") == 0) {
            options->verbose = true;
        } else if (strcmp(argv[i], "--stop") == 0) {
            options->stop = true;
        } else if (number != NULL && i + 1 < argc && parse_number(argv[i + 1], number)) {
            i++;
        } else {
            fprintf(stderr, "sim: '%s': not an option, or without its number; see --help\n", argv[i]);
            return false;
        }
    }
    if (options->first == 0 || options->jobs == 0 || options->jobs > JOBS_MAX) {
        fprintf(stderr, "sim: --first from 1 on, --jobs from 1 to %u\n", JOBS_MAX);
        return false;
    }
    return true;
}

int main(int argc, char **argv)
{
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    struct options options = {.first = 1, .seeds = 100, .seconds = SEED_SECONDS};
    options.jobs = processors < 1 ? 1 : processors > (long)JOBS_MAX ? JOBS_MAX : (uint64_t)processors;
    if (argc == 2 && strcmp(argv[1], "--help") == 0) {
        printf("%s", usage);
        return 0;
    }
    if (!parse(argc, argv, &options))
        return 2;
    struct shared *shared =
        mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return 2;
    atomic_store(&shared->next, options.first);
    atomic_store(&shared->first_failed, UINT64_MAX);
    (void)setvbuf(stdout, NULL, _IOLBF, 0); /* what failed is told even if the run is cut short */
    run_jobs(&options, shared);
    if (isatty(STDERR_FILENO) && !options.verbose)
        fprintf(stderr, "\n");
    uint64_t failed = atomic_load(&shared->failed), done = atomic_load(&shared->done);
    if (failed == 0)
        printf("sim: %llu seeds from %llu: ok, trace %016llx\n", (unsigned long long)done,
               (unsigned long long)options.first, (unsigned long long)atomic_load(&shared->trace));
    else
        printf("sim: %llu of %llu seeds failed, the first is %llu\n", (unsigned long long)failed,
               (unsigned long long)done, (unsigned long long)atomic_load(&shared->first_failed));
    return failed == 0 ? 0 : 1;
}
