/* Command line, and a process for each seed: one that crashes or hangs is told like any other failure. Every sixteenth seed is run
 * twice, to see that it tells the whole story. */
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include "cuts_world.h"

#define REPLAY_EVERY  16u
#define JOBS_MAX      64u
#define SECONDS_MAX   300u /* of processor time that a seed may take */
#define FAILURES_TOLD 20u

static const char usage[] = "usage: cuts [--first S] [--seeds N] [--jobs N] [--stop] [--verbose]\n"
                            "Simulates N worlds (default 100) in which checkpoints are cut and restored, "
                            "drawn from the seeds S (default 1) and on.\n"
                            "  --jobs N     processes (default: as many as processors)\n"
                            "  --stop       no more seeds once one has failed\n"
                            "  --verbose    print what happens; for one seed\n"
                            "Prints how to run each seed that fails again; exit status 1 if any did.\n";

struct options {
    uint64_t first, seeds, jobs;
    bool stop, verbose;
};

struct job {
    char directory[64];
    uint64_t seed, trace;
    pid_t pid;  /* 0: free */
    bool again; /* the second run of a seed; trace: of the first */
};

struct tally {
    uint64_t started, done, failed, first_failed;
    struct cuts_stats sum;
};

static struct cuts_stats *shared; /* of each job, from its process */

static void make_directory(char *out, size_t bytes)
{
    (void)snprintf(out, bytes, "%s/millrace-cuts-XXXXXX",
                   access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    if (mkdtemp(out) == NULL) {
        perror("cuts: a directory for checkpoints cannot be made");
        exit(2);
    }
}

static void remove_directory(const char *directory)
{
    char command[96];

    (void)snprintf(command, sizeof command, "rm -rf %s", directory);
    if (system(command) != 0)
        fprintf(stderr, "cuts: %s is left behind\n", directory);
}

static void limit_time(void)
{
    const struct rlimit limit = {.rlim_cur = SECONDS_MAX, .rlim_max = SECONDS_MAX};

    (void)setrlimit(RLIMIT_CPU, &limit);
}

static void start(struct job *job, struct cuts_stats *stats, bool verbose)
{
    memset(stats, 0, sizeof *stats);
    make_directory(job->directory, sizeof job->directory);
    (void)fflush(stdout);
    job->pid = fork();
    if (job->pid != 0)
        return;
    limit_time();
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    cuts_run(job->seed, job->directory, verbose, stats);
    exit(0);
}

static void tell_failure(struct tally *tally, const struct job *job, const char *why)
{
    const unsigned long long seed = job->seed;

    if (why != NULL && tally->failed < FAILURES_TOLD)
        printf("cuts: seed %llu failed: %s (cuts --first %llu --seeds 1 --verbose)\n", seed, why, seed);
    tally->first_failed = job->seed < tally->first_failed ? job->seed : tally->first_failed;
    tally->failed++;
}

static void add(struct cuts_stats *sum, const struct cuts_stats *one)
{
    sum->restores += one->restores;
    sum->deltas += one->deltas;
    sum->at_steps += one->at_steps;
    sum->under_way += one->under_way;
    sum->trace += one->trace;
}

/* A job's process has ended. True: the seed is to be run again. */
static bool ended(struct tally *tally, struct job *job, const struct cuts_stats *stats, int status)
{
    char why[64];

    remove_directory(job->directory);
    job->pid = 0;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 1) {
        tell_failure(tally, job, NULL); /* it has said why */
    } else if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        (void)snprintf(why, sizeof why, "the process ended with %s %d",
                       WIFSIGNALED(status) ? "signal" : "status",
                       WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
        tell_failure(tally, job, why);
    } else if (job->again && stats->trace != job->trace) {
        tell_failure(tally, job, "it does not replay");
    } else if (!job->again && job->seed % REPLAY_EVERY == 0) {
        job->trace = stats->trace;
        return true;
    }
    add(&tally->sum, stats);
    tally->done++;
    return false;
}

static bool start_next(const struct options *options, struct tally *tally, struct job *job,
                       struct cuts_stats *stats)
{
    if (tally->started == options->seeds || (options->stop && tally->failed > 0))
        return false;
    job->seed = options->first + tally->started++;
    job->again = false;
    start(job, stats, options->verbose);
    return true;
}

static void run_jobs(const struct options *options, struct tally *tally)
{
    struct job jobs[JOBS_MAX] = {{{0}, 0, 0, 0, false}};
    uint64_t running = 0;
    int status;

    for (uint64_t i = 0; i < options->jobs; i++)
        running += start_next(options, tally, &jobs[i], &shared[i]);
    while (running > 0) {
        const pid_t pid = wait(&status);
        uint64_t i = 0;

        while (i < options->jobs && jobs[i].pid != pid)
            i++;
        if (pid <= 0 || i == options->jobs)
            continue;
        if (ended(tally, &jobs[i], &shared[i], status)) {
            jobs[i].again = true;
            start(&jobs[i], &shared[i], options->verbose);
        } else {
            running -= !start_next(options, tally, &jobs[i], &shared[i]);
        }
    }
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
        uint64_t *number = strcmp(argv[i], "--first") == 0   ? &options->first
                           : strcmp(argv[i], "--seeds") == 0 ? &options->seeds
                           : strcmp(argv[i], "--jobs") == 0  ? &options->jobs
                                                             : NULL;

        if (strcmp(argv[i], "--verbose") == 0) {
            options->verbose = true;
        } else if (strcmp(argv[i], "--stop") == 0) {
            options->stop = true;
        } else if (number != NULL && i + 1 < argc && parse_number(argv[i + 1], number)) {
            i++;
        } else {
            fprintf(stderr, "cuts: '%s': not an option, or without its number; see --help\n", argv[i]);
            return false;
        }
    }
    if (options->jobs == 0 || options->jobs > JOBS_MAX) {
        fprintf(stderr, "cuts: --jobs from 1 to %u\n", JOBS_MAX);
        return false;
    }
    return true;
}

static void tell_outcome(const struct options *options, const struct tally *t)
{
    if (t->failed > 0)
        printf("cuts: %llu of %llu seeds failed, the first is %llu\n", (unsigned long long)t->failed,
               (unsigned long long)t->done, (unsigned long long)t->first_failed);
    else
        printf("cuts: %llu seeds from %llu: ok; %llu checkpoints restored, %llu deltas, %llu cut at a step, "
               "%llu with "
               "pushes under way; trace %016llx\n",
               (unsigned long long)t->done, (unsigned long long)options->first,
               (unsigned long long)t->sum.restores, (unsigned long long)t->sum.deltas,
               (unsigned long long)t->sum.at_steps, (unsigned long long)t->sum.under_way,
               (unsigned long long)t->sum.trace);
}

int main(int argc, char **argv)
{
    const long processors = sysconf(_SC_NPROCESSORS_ONLN);
    struct options options = {.first = 1, .seeds = 100};
    struct tally tally = {.first_failed = UINT64_MAX};

    options.jobs = processors < 1 ? 1 : processors > (long)JOBS_MAX ? JOBS_MAX : (uint64_t)processors;
    if (argc == 2 && strcmp(argv[1], "--help") == 0) {
        printf("%s", usage);
        return 0;
    }
    if (!parse(argc, argv, &options))
        return 2;
    shared = mmap(NULL, JOBS_MAX * sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return 2;
    (void)setvbuf(stdout, NULL, _IOLBF, 0); /* what failed is told even if the run is cut short */
    run_jobs(&options, &tally);
    tell_outcome(&options, &tally);
    return tally.failed == 0 ? 0 : 1;
}
