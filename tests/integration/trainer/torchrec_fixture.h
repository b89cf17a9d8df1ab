/* The plug-in as TorchRec loads and calls it, for cmocka tests: symbols by name, and calls whose callbacks
 * are noted. */
#ifndef TESTS_TORCHREC_FIXTURE_H
#define TESTS_TORCHREC_FIXTURE_H

#include <pthread.h>
#include <stdbool.h>
#include "tests/integration/node_fixture.h"
#include "trainer_client/torchrec/interface.h"

struct plugin {
    void *handle;
    const char *type;
    void *(*initialize)(const char *configuration);
    void (*finalize)(void *instance);
    void (*fetch)(void *instance, struct tde_fetch fetch);
    void (*pull)(void *instance, struct tde_fetch fetch);
    void (*push)(void *instance, struct tde_push push);
};

extern struct plugin plugin;
extern struct node_fixture node;
extern uint32_t cores; /* of this run */

/* Reads the command line: MILLRACED PLUGIN CORES. Returns false after a line on how to use the program. */
bool torchrec_arguments(int argc, char **argv);
/* Loads the plug-in, for tests that have nodes of their own. */
void plugin_load(struct plugin *p, const char *path);
/* cmocka's setup and teardown: the plug-in is loaded, and a node runs. */
int torchrec_setup(void **state);
int torchrec_setup_with(const char *const *settings);
int torchrec_teardown(void **state);
/* An instance for the node, with further options ("prefix=a&replay=off", "": none). */
void *plugin_instance(const struct plugin *p, const struct node_fixture *of, const char *options);

/* What is asked for or pushed: rows of `states` blocks of `floats`, each of an id and a column. */
struct rows {
    const char *table;
    uint32_t column_count, id_count, states, floats;
    const int64_t *columns, *ids;
};
uint32_t rows_places(const struct rows *r);

/* A call in flight, or its outcome. */
struct outcome {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct rows rows;
    pthread_t thread;  /* that the callbacks came on */
    float *values;     /* [place, state, float]; 0 where there is none */
    bool *is_there;    /* [place, state] */
    uint64_t *offsets; /* of pushes */
    uint32_t *order;
    uint32_t places_told, absent; /* blocks */
    bool is_over, mixed_threads;
};

void outcome_begin(struct outcome *o, const struct rows *r);
/* Fails the test when it is not over within a minute. */
void outcome_wait(struct outcome *o);
bool outcome_is_over(struct outcome *o);
void outcome_end(struct outcome *o);

/* What the block's float i of an id is in the tests' pushes; `version` tells pushes of the same id apart. */
float value_of(int64_t id, int64_t column, uint32_t state, uint32_t i, uint32_t version);

/* They return once the call is handed over. `values` is [place, state, float]; states go in descending order
 * if `reversed`. */
void begin_fetch(const struct plugin *p, void *instance, const struct rows *r, struct outcome *o);
void begin_push(const struct plugin *p, void *instance, const struct rows *r, const float *values,
                bool reversed, struct outcome *o);
/* The rows of value_of(), pushed and acknowledged. */
void push_version(const struct plugin *p, void *instance, const struct rows *r, uint32_t version);
/* Fetches, and checks that all are there, as of `version`; or that none is. */
void expect_version(const struct plugin *p, void *instance, const struct rows *r, uint32_t version);
void expect_absent(const struct plugin *p, void *instance, const struct rows *r);

/* What is written to stderr in between; it is written there in the end, too. */
void stderr_begin(void);
const char *stderr_end(void);

#endif
