#include "cuts_world.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "cuts.h"
#include "cuts_net.h"
#include "dataplane/wire/base/log.h"
#include "millrace_admin.h"
#include "ps/checkpoint/checkpoint.h"
#include "ps/checkpoint/checkpoint_chain.h"
#include "ps/io/store.h"
#include "ps/server/server.h"
#include "tests/checkpoint_calls.h"
#include "tests/property/random.h"

#define CORES_MAX     4u
#define SAVES_MAX     64u
#define DROPS_MAX     64u
#define US            UINT64_C(1000)
#define MS            UINT64_C(1000000)
#define NEVER         UINT64_MAX
#define WALL_CLOCK_NS (7 * MS) /* from one time that it is set to the next */
#define WORLD_NS_MAX  (3600 * 1000 * MS)

/* A save that was published: when its cut was, at the earliest and at the latest. */
struct save {
    uint64_t id, from_ns, to_ns;
};

/* A restore by hand, during the training. */
struct by_hand {
    uint64_t id, from_ns, to_ns; /* id 0: none, or its checkpoint has gone with the directory since */
    uint64_t newest;             /* checkpoint that there was then */
};

struct drop {
    uint32_t table;
    struct cuts_disturbed since;
};

static struct {
    uint64_t seed;
    bool verbose;
    char directory[64];
    /* drawn */
    struct cuts_work work;
    struct ps_config config;
    uint32_t crashes_left, restores_left, visitors;
    bool is_backed_up; /* now and then; a copy may come back before a start */
    uint32_t write_ns; /* that a write of the disk takes at most */
    /* the run */
    struct ps_server *server;
    struct mr_client *client;
    struct cuts_pusher pushers[CUTS_PUSHERS_MAX];
    struct save saves[SAVES_MAX];
    uint32_t save_count;
    struct drop drops[DROPS_MAX];
    uint32_t drop_count;
    struct cuts_disturbed disturbed;
    struct by_hand restored; /* the last time */
    bool has_copy, is_over;
    uint64_t undisturbed_id; /* the newest checkpoint before the first kill or restore */
    struct cuts_outcome *outcome;
} world;

void cuts_fail(const char *format, ...)
{
    va_list arguments;
    char *why = world.outcome->why;
    const int length =
        snprintf(why, CUTS_WHY_BYTES, "at %llu us: ", (unsigned long long)(fiber_now_ns() / US));
    va_start(arguments, format);
    (void)vsnprintf(why + length, CUTS_WHY_BYTES - (size_t)length, format, arguments);
    va_end(arguments);
    (void)fflush(stdout);
    _exit(1); /* from the middle of everything; the parent removes the directory */
}

void cuts_expect_ok(enum mr_status status, const char *what)
{
    if (status != MR_OK)
        cuts_fail("%s: %s: %s", what, mr_status_name(status), mr_last_error());
}

static void cuts_world_tell(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void cuts_world_tell(const char *format, ...)
{
    va_list arguments;
    if (!world.verbose)
        return;
    printf("%12llu us ", (unsigned long long)(fiber_now_ns() / US));
    va_start(arguments, format);
    (void)vprintf(format, arguments);
    va_end(arguments);
    printf("\n");
}

/* What the node logs, and its disk. */
void __wrap_mr_log_write(struct mr_log_site *site, const struct mr_log_field *fields, size_t field_count,
                         const char *format, ...) __attribute__((format(printf, 4, 5)));
int __real_ps_store_write_all(const struct ps_store *store, struct ps_store_file *file, const void *data,
                              size_t bytes, uint64_t offset);
int __wrap_ps_store_write_all(const struct ps_store *store, struct ps_store_file *file, const void *data,
                              size_t bytes, uint64_t offset);

void __wrap_mr_log_write(struct mr_log_site *site, const struct mr_log_field *fields, size_t field_count,
                         const char *format, ...)
{
    va_list arguments;
    char line[512];
    va_start(arguments, format);
    (void)vsnprintf(line, sizeof(line), format, arguments);
    va_end(arguments);
    cuts_world_tell("node: %s", line);
}

int __wrap_ps_store_write_all(const struct ps_store *store, struct ps_store_file *file, const void *data,
                              size_t bytes, uint64_t offset)
{
    fiber_sleep_ns(random_below(fiber_random(), world.write_ns));
    return __real_ps_store_write_all(store, file, data, bytes, offset);
}

/* ---- what kind of world ---- */

static uint32_t below(uint32_t n)
{
    return random_below(fiber_random(), n);
}

static uint32_t one_of(const uint32_t *choices, uint32_t count)
{
    return choices[below(count)];
}
#define ONE_OF(...)                                                                                          \
    one_of((const uint32_t[]){__VA_ARGS__}, sizeof((uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t))

static void draw_feature(struct mr_feature *f)
{
    *f = mr_feature_table("groups", ONE_OF(4, 4, 16, 128, CUTS_DIM_MAX));
    f->learning_rate = 1;
    if (below(2) == 0) {
        f->optimizer = MR_OPT_ADAGRAD;
        f->learning_rate = 0.5f;
        f->optimizer_args[0] = 0.1f;
        f->optimizer_args[1] = 1e-8f;
    }
}

static void draw_work(struct cuts_work *w)
{
    draw_feature(&w->feature);
    w->pushers = 1 + below(CUTS_PUSHERS_MAX);
    w->pushes = ONE_OF(60, 150, CUTS_PUSHES_MAX);
    w->groups = 4 + below(CUTS_GROUPS_MAX - 3);
    w->group_keys = 2 + below(CUTS_GROUP_KEYS_MAX - 1);
    w->pause_ns = ONE_OF(1000, 100000, 2000000);
}

static void draw_config(struct ps_config *c)
{
    ps_config_default(c);
    (void)snprintf(c->checkpoint_directory, sizeof(c->checkpoint_directory), "%s/ckpt", world.directory);
    c->cores_count = 1 + below(CORES_MAX);
    c->memory_messages_mib = 16;
    c->memory_limit_mib = 512;
    c->batches_memory_mib = 64;
    c->batches_count_max = 8;
    c->transport_message_mib_max = 4;
    c->transport_sessions_max = 16;
    c->checkpoint_scrub_every_s = 0;
    c->checkpoint_every_s = 0; /* of a clock that the seed does not draw */
    c->checkpoint_save_on_stop = false;
    c->checkpoint_keep = 1000;
    c->checkpoint_deltas = ONE_OF(0, 1, 3, 8);
    c->checkpoint_delta_share_percent = 1000;
    c->checkpoint_buffers_per_core = 2 + below(3);
    if (below(2) == 0)
        c->checkpoint_every_steps = 10 + below(40);
    if (below(2) == 0)
        c->checkpoint_trainers = world.work.pushers;
}

static struct net_faults draw_faults(void)
{
    return (struct net_faults){.lose_ppm = ONE_OF(0, 2000, 20000),
                               .repeat_ppm = ONE_OF(0, 0, 20000),
                               .late_ppm = ONE_OF(0, 10000, 200000),
                               .delay_ns = ONE_OF(5000, 50000, 500000),
                               .late_ns = ONE_OF(100000, 5000000)};
}

static void draw_disturbances(void)
{
    const struct cuts_work *w = &world.work;
    const uint32_t push_bytes = w->group_keys * (w->feature.dims[0] * 4 + 8) + 128;
    world.crashes_left = ONE_OF(0, 0, 1, 2);
    world.restores_left = ONE_OF(0, 0, 0, 1, 2);
    world.visitors = below(CUTS_VISITORS + 1);
    world.is_backed_up = below(4) == 0;
    if (world.is_backed_up) /* numbers of theirs come again with a copy that is older */
        world.visitors = CUTS_VISITORS;
    world.work.replay_bytes = below(4) == 0 ? (2 + below(8)) * push_bytes : 0;
    world.work.loses = world.is_backed_up || world.work.replay_bytes > 0;
    world.write_ns = ONE_OF(1000, 1000000, 20000000);
}

/* ---- the node's life ---- */

struct cuts_disturbed cuts_disturbed(void)
{
    return world.disturbed;
}

void cuts_note_drop(uint32_t table, const struct cuts_disturbed *since)
{
    world.outcome->drops++;
    if (world.drop_count < DROPS_MAX)
        world.drops[world.drop_count++] = (struct drop){.table = table, .since = *since};
}

bool cuts_is_kept(const struct cuts_disturbed *since)
{
    const struct cuts_disturbed now = cuts_disturbed();
    return now.restores == since->restores && now.restores % 2 == 0 && now.put_backs == since->put_backs;
}

void cuts_note_alter(void)
{
    world.outcome->alters++;
}

static uint64_t newest_checkpoint(void)
{
    uint64_t id = 0;
    (void)ps_checkpoint_list(NULL, world.config.checkpoint_directory, &id, 1);
    return id;
}

static void start_node(void)
{
    char error[DP_ERROR_BYTES];
    if (ps_server_start(&world.config, &world.server, error) != MR_OK)
        cuts_fail("the node does not start: %s", error);
}

static bool is_disturbed(void)
{
    return world.disturbed.crashes + world.disturbed.restores > 0;
}

/* From one moment to the next nothing of it is seen any more; what it held goes. */
static void crash_node(void)
{
    net_server_off(true);
    cuts_world_tell("the node is killed");
    (void)ps_server_stop(world.server);
    world.server = NULL;
    if (!is_disturbed())
        world.undisturbed_id = newest_checkpoint();
    world.disturbed.crashes++;
    fiber_sleep_ns(below(50) * MS);
    net_server_off(false);
}

/* ---- copies of the directory ---- */

/* Of `from`, in the place of `to`. */
static void copy_directory(const char *from, const char *to)
{
    char command[256];
    (void)snprintf(command, sizeof(command), "cd %s && rm -rf %s && cp -a %s %s", world.directory, to, from,
                   to);
    if (system(command) != 0)
        cuts_fail("a copy of the directory cannot be made");
}

static void maybe_back_up(void)
{
    if (!world.is_backed_up || below(4) != 0)
        return;
    copy_directory("ckpt", "copy");
    world.has_copy = true;
    cuts_world_tell("the directory is copied, with checkpoint %llu", (unsigned long long)newest_checkpoint());
}

/* While the node is down. */
static void maybe_put_back(void)
{
    if (!world.has_copy || below(2) != 0)
        return;
    copy_directory("copy", "ckpt");
    const uint64_t newest = newest_checkpoint();

    cuts_world_tell("the copy is put back, with checkpoint %llu", (unsigned long long)newest);
    world.disturbed.put_backs++;
    world.outcome->put_backs++;
    world.restored.id = 0;
    world.undisturbed_id = world.undisturbed_id < newest ? world.undisturbed_id : newest;
    for (uint32_t i = 0; i < world.save_count; i++)
        if (world.saves[i].id > newest)
            world.saves[i].id = 0;
}

/* What the node came back from; 0: nothing. */
static uint64_t restored_at_start(void)
{
    struct mr_checkpoint_info info = {.bytes = sizeof(info)};
    cuts_expect_ok(mr_checkpoint_info(world.client, NULL, 0, &info, NULL, NULL), "a look at the start");
    return info.restored_id;
}

/* A node that has not saved since a restore by hand goes on from what that restored. */
static void check_where_it_goes_on(void)
{
    if (world.restored.id == 0 || world.restored.newest != newest_checkpoint())
        return;
    const uint64_t id = restored_at_start();
    if (id != world.restored.id)
        cuts_fail("checkpoint %llu was restored by hand, and the next start takes %llu",
                  (unsigned long long)world.restored.id, (unsigned long long)id);
    world.outcome->go_ons++;
}

static void check_dropped(void)
{
    struct mr_feature_info *infos;
    uint32_t count;
    cuts_expect_ok(mr_list(world.client, NULL, &infos, &count), "a list");
    for (uint32_t d = 0; d < world.drop_count; d++) {
        for (uint32_t i = 0; i < count; i++)
            if (infos[i].id == world.drops[d].table && cuts_is_kept(&world.drops[d].since))
                cuts_fail("table %u was dropped, and is there again", infos[i].id);
    }
    free(infos);
}

static void restart_node(void)
{
    world.config.cores_count = 1 + below(CORES_MAX);
    cuts_world_tell("the node comes back with %u cores", (uint32_t)world.config.cores_count);
    start_node();
    /* Calls to cores that are no more would be cancelled. */
    mr_client_destroy(world.client);
    world.client = cuts_connect(false, 0);
    if (strcmp(world.config.checkpoint_restore, "latest") == 0)
        check_where_it_goes_on();
    check_dropped();
}

/* ---- saves ---- */

struct look {
    struct mr_save_info info;
    bool found;
};

static void take_info(void *arg, const struct mr_save_info *info)
{
    struct look *look = arg;
    look->info = *info;
    look->found = true;
}

static struct mr_save_info look_at_save(uint64_t number)
{
    struct look look = {.found = false};
    cuts_expect_ok(mr_checkpoint_info(world.client, NULL, number, NULL, take_info, &look),
                   "a look at a save");
    if (!look.found)
        cuts_fail("save %llu is not known", (unsigned long long)number);
    return look.info;
}

static uint64_t highest_step(void)
{
    uint64_t step = 0;
    for (uint32_t i = 0; i < world.work.pushers; i++)
        step = world.pushers[i].step > step ? world.pushers[i].step : step;
    return step;
}

static bool all_have_ended(void)
{
    for (uint32_t i = 0; i < world.work.pushers; i++)
        if (!world.pushers[i].has_ended)
            return false;
    return true;
}

bool cuts_training_has_ended(void)
{
    return all_have_ended();
}

/* Why a save may be refused, or fail. */
static bool is_explained(enum mr_status status, const struct mr_save_options *options)
{
    return status == MR_CHECKPOINT_RUNNING ||
           (status == MR_INVALID_ARGUMENT && (options->kind == MR_SAVE_DELTA || options->step > 0)) ||
           (status == MR_DEADLINE_EXCEEDED &&
            options->step > 0); /* training was faster, or a trainer had ended */
}

static struct mr_save_options draw_save(void)
{
    static const enum mr_save_kind kinds[] = {MR_SAVE_CONFIGURED, MR_SAVE_CONFIGURED, MR_SAVE_FULL,
                                              MR_SAVE_DELTA};
    struct mr_save_options options = {
        .bytes = sizeof(options), .kind = kinds[below(4)], .queue = below(2) == 0};
    if (below(3) == 0) {
        options.step = highest_step() + below(10);
        options.trainers = world.work.pushers;
    }
    if (options.kind != MR_SAVE_DELTA && below(5) == 0) {
        static const char *const names[] = {"groups"};
        options.names = names;
        options.name_count = 1;
        world.outcome->partials++;
    }
    return options;
}

/* Follows a save to its end, or, if the node is to be killed under it, not as far. */
static void follow(uint64_t number, uint64_t from_ns, uint64_t give_up_ns,
                   const struct mr_save_options *options)
{
    struct save save = {.from_ns = from_ns, .to_ns = NEVER};
    struct mr_save_info info;
    do {
        info = look_at_save(number);
        if (info.id != 0 && save.to_ns == NEVER)
            save.to_ns = fiber_now_ns();
        save.id = info.id;
        if (fiber_now_ns() > give_up_ns || (info.state == MR_SAVE_WAITS_FOR_STEP && all_have_ended()))
            return;
        fiber_sleep_ns(below(500) * US);
    } while (info.state != MR_SAVE_ENDED);
    if (info.status != MR_OK && !is_explained(info.status, options))
        cuts_fail("a save failed: %s: %s", mr_status_name(info.status), info.error);
    /* A partial one has a number of its own, and lies where no restore of everything finds it. */
    if (info.status == MR_OK && options->name_count == 0 && !is_disturbed() && world.save_count < SAVES_MAX)
        world.saves[world.save_count++] = save;
}

static void save_once(uint64_t give_up_ns)
{
    const struct mr_save_options options = draw_save();
    const uint64_t from_ns = fiber_now_ns();
    uint64_t number;
    enum mr_status status = mr_save(world.client, NULL, &options, NULL, &number);
    cuts_world_tell("save: kind %u, step %llu: %s", (uint32_t)options.kind, (unsigned long long)options.step,
                    mr_status_name(status));
    if (status == MR_OK)
        follow(number, from_ns, give_up_ns, &options);
    else if (!is_explained(status, &options))
        cuts_fail("a save was refused: %s: %s", mr_status_name(status), mr_last_error());
}

/* ---- the run ---- */

static void begin_training(void)
{
    uint64_t number;
    uint32_t table;
    start_node();
    world.client = cuts_connect(false, 0);
    cuts_expect_ok(mr_create(world.client, NULL, &world.work.feature, 1, &table), "create");
    for (uint32_t i = 0; i < world.work.pushers; i++)
        cuts_pusher_create(&world.pushers[i], &world.work, i, table);
    /* Without a checkpoint a kill would leave no table. */
    cuts_expect_ok(mr_save(world.client, NULL, NULL, NULL, &number), "the first save");
    const struct mr_save_options plain = {.step = 0};

    follow(number, 0, NEVER, &plain);
    for (uint32_t i = 0; i < world.work.pushers; i++)
        cuts_pusher_start(&world.pushers[i]);
}

/* Whatever the world waits for, it does not wait by this clock. */
static void set_wall_clock(void *arg)
{
    static uint64_t draws;
    fiber_set_wall_clock((uint32_t)(world.seed + ++draws) * 2654435761u);
    if (fiber_now_ns() > WORLD_NS_MAX)
        cuts_fail("somebody waits for ever");
    if (!world.is_over)
        fiber_at(fiber_now_ns() + WALL_CLOCK_NS, set_wall_clock, arg);
}

/* Somebody takes back what was trained since one of the newest checkpoints. */
static void restore_once(void)
{
    uint64_t ids[4], restored;
    const uint32_t count = ps_checkpoint_list(NULL, world.config.checkpoint_directory, ids, 4);
    struct by_hand by_hand = {.id = ids[below(count < 4 ? count : 4)]};
    enum mr_status status;
    if (!is_disturbed())
        world.undisturbed_id = newest_checkpoint();
    world.disturbed.restores++;
    do {
        by_hand.from_ns = fiber_now_ns();
        status = restore_from(world.client, NULL, NULL, by_hand.id, &restored);
        fiber_sleep_ns(below(2) * MS);
    } while (status == MR_CHECKPOINT_RUNNING && !all_have_ended());
    if (status == MR_CHECKPOINT_RUNNING) {
        world.disturbed.restores++;
        return;
    }
    cuts_expect_ok(status, "a restore by hand");
    by_hand.to_ns = fiber_now_ns();
    by_hand.newest = newest_checkpoint();
    world.disturbed.restores++; /* for those who came meanwhile */
    world.restored = by_hand;
    world.outcome->by_hand++;
    cuts_world_tell("checkpoint %llu is restored by hand", (unsigned long long)by_hand.id);
}

static void disturb_once(void)
{
    const uint32_t left = world.crashes_left + world.restores_left;
    if (below(left) < world.restores_left) {
        world.restores_left--;
        restore_once();
        if (below(2) == 0) /* in most runs a save would come before the next crash */
            return;
    } else {
        world.crashes_left--;
    }
    crash_node();
    maybe_put_back();
    restart_node();
}

static uint64_t draw_next_ns(void)
{
    return world.crashes_left + world.restores_left > 0 ? fiber_now_ns() + below(300) * MS : NEVER;
}

static void disturb_training(void)
{
    uint64_t next_ns = draw_next_ns();
    while (!all_have_ended()) {
        fiber_sleep_ns(below(20) * MS);
        if (fiber_now_ns() > next_ns) {
            disturb_once();
            next_ns = draw_next_ns();
            continue;
        }
        save_once(next_ns);
        maybe_back_up();
    }
}

static void check_all_is_there(const struct cuts_pusher *p)
{
    const struct cuts_instant instant = cuts_read(p, p->client);
    if (instant.whole != world.work.pushes || instant.share != 0)
        cuts_fail("trainer %u made %u pushes, and in the end there are %llu", p->index, world.work.pushes,
                  (unsigned long long)instant.whole);
}

/* The trainers bring what a restarted node lacks, or say that they cannot. */
static void check_replay(void)
{
    crash_node();
    maybe_put_back();
    restart_node();
    for (uint32_t i = 0; i < world.work.pushers; i++) {
        struct cuts_pusher *p = &world.pushers[i];
        if (!world.work.loses && world.disturbed.restores == 0) {
            check_all_is_there(p);
            continue;
        }
        cuts_pusher_end(p);
        cuts_check_losses(p, world.restored.to_ns);
        world.outcome->losses += p->losses.reports;
    }
}

/* The step that a checkpoint was cut at; 0: at none. And whether it is a delta. */
static uint64_t step_of(uint64_t id)
{
    struct ps_reader *reader;
    char text[256];
    if (ps_reader_open_unread(NULL, world.config.checkpoint_directory, id, &reader, text) != MR_OK)
        cuts_fail("%s", text);
    const uint32_t links = ps_reader_chain(reader)->count;
    const struct ps_manifest *m = &ps_reader_chain(reader)->links[links - 1]->manifest;
    const uint64_t step = m->is_at_step ? m->step : 0;

    world.outcome->deltas += links > 1;
    world.outcome->at_steps += step > 0;
    ps_reader_close(reader);
    return step;
}

static void check_times(const struct save *save, const struct cuts_instant *instants)
{
    for (uint32_t i = 0; i < world.work.pushers; i++) {
        const struct cuts_pusher *p = &world.pushers[i];
        const uint64_t last = instants[i].whole + (instants[i].share > 0), next = instants[i].whole + 1;
        if (p->begun_ns[last] > save->to_ns)
            cuts_fail("checkpoint %llu holds push %llu of trainer %u, which was begun behind its cut",
                      (unsigned long long)save->id, (unsigned long long)last, i);
        if (p->ended_ns[next] != 0 && p->ended_ns[next] < save->from_ns)
            cuts_fail(
                "checkpoint %llu lacks push %llu of trainer %u, which was answered before it was asked for",
                (unsigned long long)save->id, (unsigned long long)next, i);
    }
}

static void check_checkpoint(uint64_t id)
{
    struct cuts_instant instants[CUTS_PUSHERS_MAX] = {{0}};
    const uint64_t step = step_of(id);
    uint64_t restored;
    cuts_expect_ok(restore_from(world.client, NULL, NULL, id, &restored), "a restore");
    world.outcome->restores++;
    for (uint32_t i = 0; i < world.work.pushers && id == world.restored.id; i++)
        cuts_check_restored(&world.pushers[i], world.client, world.restored.from_ns, world.restored.to_ns);
    if (id > world.undisturbed_id) { /* there may be gaps that replay was about to close */
        for (uint32_t i = 0; i < world.work.pushers; i++)
            cuts_read_loosely(&world.pushers[i], world.client);
        return;
    }
    for (uint32_t i = 0; i < world.work.pushers; i++) {
        instants[i] = cuts_read(&world.pushers[i], world.client);
        world.outcome->in_flight += instants[i].share > 0;
        if (step > 0 && (instants[i].whole != step || instants[i].share > 0))
            cuts_fail("checkpoint %llu was cut at step %llu, and trainer %u has %llu pushes in it",
                      (unsigned long long)id, (unsigned long long)step, i,
                      (unsigned long long)instants[i].whole);
    }
    cuts_check_instant(world.pushers, instants);
    for (uint32_t i = 0; i < world.save_count; i++)
        if (world.saves[i].id == id)
            check_times(&world.saves[i], instants);
}

static void check_checkpoints(void)
{
    uint64_t ids[SAVES_MAX * 8];
    const uint32_t count = ps_checkpoint_list(NULL, world.config.checkpoint_directory, ids, SAVES_MAX * 8);
    crash_node();
    (void)snprintf(world.config.checkpoint_restore, sizeof(world.config.checkpoint_restore), "none");
    restart_node();
    net_calm();
    for (uint32_t i = 0; i < count && i < SAVES_MAX * 8; i++)
        check_checkpoint(ids[i]);
}

static void *cuts_world_run(void *arg)
{
    struct fiber *visitors[CUTS_VISITORS] = {NULL};
    set_wall_clock(arg);
    begin_training();
    for (uint32_t i = 0; i < world.visitors; i++)
        visitors[i] = cuts_visitor_start(&world.work.feature, i);
    disturb_training();
    for (uint32_t i = 0; i < world.work.pushers; i++)
        (void)fiber_join(world.pushers[i].fiber);
    for (uint32_t i = 0; i < world.visitors; i++)
        (void)fiber_join(visitors[i]);
    check_replay();
    for (uint32_t i = 0; i < world.work.pushers; i++)
        mr_client_destroy(world.pushers[i].client);
    check_checkpoints();
    mr_client_destroy(world.client);
    (void)ps_server_stop(world.server);
    world.is_over = true;
    return NULL;
}

void cuts_run(uint64_t seed, const char *directory, bool verbose, struct cuts_outcome *outcome)
{
    world.seed = seed;
    world.verbose = verbose;
    world.outcome = outcome;
    (void)snprintf(world.directory, sizeof(world.directory), "%s", directory);
    fibers_begin(seed, 1, 1);
    draw_work(&world.work);
    draw_config(&world.config);
    draw_disturbances();
    const struct net_faults faults = draw_faults();

    net_begin(&faults);
    cuts_rows_begin(&world.work.feature);
    fibers_begin(seed ^ UINT64_C(0x5DEECE66D), ONE_OF(200, 2000, 20000), ONE_OF(40, 400));
    cuts_world_tell(
        "%u cores, %u trainers of %u pushes to %u groups of %u rows of %u, deltas %u, every %u steps, %u "
        "kills, %u restores, %u visitors, %s, %u bytes for a replay",
        (uint32_t)world.config.cores_count, world.work.pushers, world.work.pushes, world.work.groups,
        world.work.group_keys, world.work.feature.dims[0], (uint32_t)world.config.checkpoint_deltas,
        (uint32_t)world.config.checkpoint_every_steps, world.crashes_left, world.restores_left,
        world.visitors, world.is_backed_up ? "with backups" : "no backups", world.work.replay_bytes);
    fibers_run(fiber_start("main", cuts_world_run, NULL));
    outcome->trace = fibers_trace();
    cuts_world_tell("%llu restores, %llu of deltas, %llu cut at steps; trace %016llx",
                    (unsigned long long)outcome->restores, (unsigned long long)outcome->deltas,
                    (unsigned long long)outcome->at_steps, (unsigned long long)outcome->trace);
}
