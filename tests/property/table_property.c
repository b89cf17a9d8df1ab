/* Command line; and processes that share the worlds among them, so that one that crashes is reported like any
 * other failure. */
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "world.h"

#define JOBS_MAX     256u
#define EXIT_SKIPPED 77 /* as meson knows it */

static const char usage[] = "usage: table_property [--first S] [--operations N | --worlds N] [--jobs N] "
                            "[--vectors NAME] [--verbose]\n"
                            "Random calls on tables beside a plain model, in worlds drawn from the seeds S "
                            "(default: from the clock) and on.\n"
                            "  --operations N  calls in all (default 100000); the last world is finished\n"
                            "  --worlds N      this many worlds instead\n"
                            "  --jobs N        processes (default: as many as processors)\n"
                            "  --vectors NAME  avx512, avx2 or baseline (default: each world draws one)\n"
                            "  --verbose       print every call; for one world\n"
                            "Prints how to run a world that fails again; exit status 1 then, and 77 where "
                            "this processor has no such vectors.\n";

struct options {
    uint64_t first, operations, worlds, jobs;
    const struct mr_kernels *kernels;
    bool verbose;
};

/* What the processes share. */
struct shared {
    atomic_uint_fast64_t next, operations, worlds, failed;
    atomic_uint_fast64_t current[JOBS_MAX]; /* the seed a process is at */
};

static void work(const struct options *o, struct shared *shared, uint64_t job)
{
    struct world *w = calloc(1, sizeof(*w));
    if (w == NULL)
        _exit(2);
    w->verbose = o->verbose;
    while (atomic_load(&shared->operations) < o->operations && atomic_load(&shared->failed) == 0) {
        uint64_t seed = atomic_fetch_add(&shared->next, 1);
        if (seed - o->first >= o->worlds)
            break;
        atomic_store(&shared->current[job], seed);
        world_begin(w, seed, o->kernels);
        atomic_fetch_add(&shared->operations, world_run(w));
        world_end(w);
        atomic_fetch_add(&shared->worlds, 1);
    }
    free(w);
    fflush(stdout);
    exit(0); /* with the sanitizers' check for leaks */
}

static void ended(struct shared *shared, uint64_t job, int status)
{
    uint64_t seed = atomic_load(&shared->current[job]);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return;
    atomic_fetch_add(&shared->failed, 1);
    if (WIFEXITED(status) && WEXITSTATUS(status) == WORLD_FAILED) /* it has said why */
        return;
    printf("table_property: seed %" PRIu64 " ended with %s %d (table_property --first %" PRIu64
           " --worlds 1 --verbose)\n",
           seed, WIFSIGNALED(status) ? "signal" : "status",
           WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status), seed);
}

static int run_jobs(const struct options *o, struct shared *shared)
{
    pid_t pids[JOBS_MAX];
    fflush(stdout);
    for (uint64_t job = 0; job < o->jobs; job++) {
        pids[job] = fork();
        if (pids[job] == 0)
            work(o, shared, job);
        if (pids[job] < 0)
            return 2;
    }
    for (uint64_t job = 0; job < o->jobs; job++) {
        int status;
        if (waitpid(pids[job], &status, 0) != pids[job])
            return 2;
        ended(shared, job, status);
    }
    if (atomic_load(&shared->failed) > 0)
        return 1;
    printf("table_property: %" PRIu64 " operations in %" PRIu64 " worlds from seed %" PRIu64 ": ok\n",
           atomic_load(&shared->operations), atomic_load(&shared->worlds), o->first);
    return 0;
}

static bool parse_number(const char *text, uint64_t *out)
{
    char *end;
    *out = strtoull(text, &end, 10);
    return *text >= '0' && *text <= '9' && *end == '\0';
}

static bool parse_vectors(const char *text, const struct mr_kernels **out)
{
    for (uint32_t i = 0; mr_kernels_at(i) != NULL; i++)
        if (strcmp(mr_kernels_at(i)->name, text) == 0) {
            *out = mr_kernels_at(i);
            return true;
        }
    fprintf(stderr, "table_property: this processor has no vectors '%s'\n", text);
    if (strcmp(text, "avx512") == 0 || strcmp(text, "avx2") == 0)
        exit(EXIT_SKIPPED);
    return false;
}

static bool table_property_parse(int argc, char **argv, struct options *o)
{
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        uint64_t *number = strcmp(argv[i], "--first") == 0        ? &o->first
                           : strcmp(argv[i], "--operations") == 0 ? &o->operations
                           : strcmp(argv[i], "--worlds") == 0     ? &o->worlds
                           : strcmp(argv[i], "--jobs") == 0       ? &o->jobs
                                                                  : NULL;
        if (strcmp(argv[i], "--verbose") == 0) {
            o->verbose = true;
        } else if (strcmp(argv[i], "--vectors") == 0) {
            i++;
            if (!parse_vectors(value, &o->kernels))
                return false;
        } else if (number != NULL && parse_number(value, number)) {
            i++;
            if (number == &o->worlds)
                o->operations = UINT64_MAX;
        } else {
            fprintf(stderr, "table_property: '%s': not an option, or without its number; see --help\n",
                    argv[i]);
            return false;
        }
    }
    if (o->jobs == 0 || o->jobs > JOBS_MAX)
        fprintf(stderr, "table_property: --jobs from 1 to %u\n", JOBS_MAX);
    return o->jobs > 0 && o->jobs <= JOBS_MAX;
}

int main(int argc, char **argv)
{
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    struct options o = {.first = (uint64_t)now.tv_sec * 1000000, .operations = 100000, .worlds = UINT64_MAX};
    o.jobs = processors < 1 ? 1 : processors > (long)JOBS_MAX ? JOBS_MAX : (uint64_t)processors;
    if (argc == 2 && strcmp(argv[1], "--help") == 0) {
        fputs(usage, stdout);
        return 0;
    }
    if (!table_property_parse(argc, argv, &o))
        return 2;
    struct shared *shared =
        mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return 2;
    atomic_store(&shared->next, o.first);
    return run_jobs(&o, shared);
}
