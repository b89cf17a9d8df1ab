#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "seeds.h"

#define REPLAY_EVERY  16u
#define JOBS_MAX      256u
#define SEED_SECONDS  60
#define FAILURES_TOLD 20u
#define WHY_BYTES     320u

static const char usage[] =
    "usage: %s [--first S] [--seeds N] [--jobs N] [--seconds N] [--stop] [--verbose]\n"
    "%s, drawn from the seeds S (default 1) and on; N is 100 unless given.\n"
    "  --jobs N     processes (default: as many as processors)\n"
    "  --seconds N  of processor time that one seed may take (default: 60)\n"
    "  --stop       no more seeds once one has failed\n"
    "  --verbose    print everything that happens; for one seed\n"
    "Prints how to run each seed that fails again; exit status 1 if any did.\n";

struct options {
    const struct seeds_program *program;
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

static void tell_failure(const struct options *options, struct shared *shared, uint64_t seed, const char *why)
{
    uint64_t lowest = atomic_load(&shared->first_failed);
    while (seed < lowest && !atomic_compare_exchange_weak(&shared->first_failed, &lowest, seed))
        ;
    if (atomic_fetch_add(&shared->failed, 1) < FAILURES_TOLD)
        printf("%s: seed %llu failed: %s (%s --first %llu --seeds 1 --verbose)\n", options->program->name,
               (unsigned long long)seed, why, options->program->name, (unsigned long long)seed);
}

static void run_seed(const struct options *options, struct shared *shared, void *world, uint64_t seed)
{
    const struct seeds_program *program = options->program;
    uint64_t trace = 0, again = 0;
    char why[WHY_BYTES];
    if (!program->run(world, seed, options->verbose, &trace, why, sizeof(why))) {
        tell_failure(options, shared, seed, why);
        return;
    }
    atomic_fetch_add(&shared->trace, trace);
    if (seed % REPLAY_EVERY == 0 && !options->verbose &&
        (!program->run(world, seed, false, &again, why, sizeof(why)) || again != trace))
        tell_failure(options, shared, seed, "it does not replay");
}

static void limit_time(uint64_t seconds)
{
    struct itimerval limit = {.it_value = {.tv_sec = (time_t)seconds}};
    (void)setitimer(ITIMER_VIRTUAL, &limit, NULL);
}

static int work(const struct options *options, struct shared *shared, uint64_t job)
{
    void *world = options->program->create();
    if (world == NULL)
        return 2;
    for (;;) {
        uint64_t seed = atomic_fetch_add(&shared->next, 1);
        if (seed >= options->first + options->seeds ||
            (options->stop && seed > atomic_load(&shared->first_failed)))
            break;
        atomic_store(&shared->current[job], seed);
        limit_time(options->seconds);
        run_seed(options, shared, world, seed);
        atomic_fetch_add(&shared->done, 1);
    }
    atomic_store(&shared->current[job], 0);
    options->program->destroy(world);
    return 0;
}

/* ---- all of them ---- */

static pid_t seeds_start(const struct options *options, struct shared *shared, uint64_t job)
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
        fprintf(stderr, "\r%s: %llu of %llu seeds, %llu failed ", options->program->name,
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
        tell_failure(options, shared, options->first, "the simulator itself could not start");
        return 0;
    }
    char why[64];
    (void)snprintf(why, sizeof(why), "the process ended with %s %d",
                   WIFSIGNALED(status) ? "signal" : "status",
                   WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    tell_failure(options, shared, seed, why);
    atomic_fetch_add(&shared->done, 1);
    return seeds_start(options, shared, job);
}

static void run_jobs(const struct options *options, struct shared *shared)
{
    pid_t pids[JOBS_MAX];
    uint64_t running = 0;
    for (uint64_t job = 0; job < options->jobs; job++) {
        pids[job] = seeds_start(options, shared, job);
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

static bool seeds_parse(int argc, char **argv, struct options *options)
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
            fprintf(stderr, "%s: '%s': not an option, or without its number; see --help\n",
                    options->program->name, argv[i]);
            return false;
        }
    }
    if (options->first == 0 || options->jobs == 0 || options->jobs > JOBS_MAX) {
        fprintf(stderr, "%s: --first from 1 on, --jobs from 1 to %u\n", options->program->name, JOBS_MAX);
        return false;
    }
    return true;
}

int seeds_main(const struct seeds_program *program, int argc, char **argv)
{
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    struct options options = {.program = program, .first = 1, .seeds = 100, .seconds = SEED_SECONDS};
    options.jobs = processors < 1 ? 1 : processors > (long)JOBS_MAX ? JOBS_MAX : (uint64_t)processors;
    if (argc == 2 && strcmp(argv[1], "--help") == 0) {
        printf(usage, program->name, program->describe);
        return 0;
    }
    if (!seeds_parse(argc, argv, &options))
        return 2;
    struct shared *shared =
        mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return 2;
    atomic_store(&shared->next, options.first);
    atomic_store(&shared->first_failed, UINT64_MAX);
    (void)setvbuf(stdout, NULL, _IOLBF, 0); /* what failed is reported even if the run is cut short */
    run_jobs(&options, shared);
    if (isatty(STDERR_FILENO) && !options.verbose)
        fprintf(stderr, "\n");
    uint64_t failed = atomic_load(&shared->failed), done = atomic_load(&shared->done);
    if (failed == 0)
        printf("%s: %llu seeds from %llu: ok, trace %016llx\n", program->name, (unsigned long long)done,
               (unsigned long long)options.first, (unsigned long long)atomic_load(&shared->trace));
    else
        printf("%s: %llu of %llu seeds failed, the first is %llu\n", program->name,
               (unsigned long long)failed, (unsigned long long)done,
               (unsigned long long)atomic_load(&shared->first_failed));
    return failed == 0 ? 0 : 1;
}
