#include "ps/control/control.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "dataplane/wire/base/clock.h"
#include "dataplane/wire/base/log.h"
#include "dataplane/wire/base/number.h"
#include "ps/base/counter.h"
#include "ps/checkpoint/scrubber.h"
#include "ps/config/config.h"
#include "ps/control/control_internal.h"
#include "ps/store/store_url.h"

#define SAVE_LOOK_US 10000u /* how often a running save is polled */

/* ---- commands ---- */

bool ps_control_submit(struct ps_control *c, struct ps_command *command)
{
    if (!ps_ring_put(&c->commands, (uintptr_t)command))
        return false;
    sem_post(&c->wake);
    return true;
}

/* What the names of a partial save mean, and where it goes. */
static enum mr_status prepare_partial(struct ps_control *c, struct ps_command *command)
{
    struct ps_save_request *save = &command->save;
    const uint32_t features = ps_control_sort_names(c, command->name_list, command->name_list_count);
    enum mr_status status = ps_control_find_features(c, command->name_list, features, save->feature_ids,
                                                     &save->feature_count, command->text);
    if (status == MR_OK)
        status = ps_control_pick_parameters(save, command->name_list + (size_t)features * MR_NAME_BYTES,
                                            command->name_list_count - features, command->text);
    return status == MR_OK ? ps_control_place_partial(c->node->config, save, command->text) : status;
}

static void answer_save(struct ps_command *command, uint64_t id, uint64_t number)
{
    if (command->status == MR_OK) {
        ps_command_answer(command, mr_tensor_1d(MR_U64, 1, NULL), &id);
        ps_command_answer(command, mr_tensor_1d(MR_U64, 1, NULL), &number);
    }
}

/* Of a save that a trainer asks for: whether it may. */
static enum mr_status check_trainer(const struct ps_control *c, const struct ps_command *command, char *text)
{
    const struct ps_config *config = c->node->config;
    const uint64_t now_us = dp_now_us();
    const uint64_t next_us =
        ps_trainer_saves_next_us(&c->saves.by_trainers, config->checkpoint_trainer_saves);
    if (next_us <= now_us)
        return ps_control_check_listed(config, command->save.directory, text);
    char next[64] = "";
    if (next_us != UINT64_MAX)
        snprintf(next, sizeof(next), "; the next is possible in %" PRIu64 " min",
                 (next_us - now_us) / 60000000 + 1);
    snprintf(text, PS_CONTROL_TEXT_BYTES,
             "trainers may ask for %" PRIu64
             " saves in an hour (checkpoint.trainer_saves)%s: a save before that "
             "needs an operator's key",
             config->checkpoint_trainer_saves, next);
    return MR_UNAUTHORIZED;
}

static void note_trainer(struct ps_control *c, const struct ps_command *command)
{
    if (command->status == MR_OK && command->save.is_by_trainer)
        ps_trainer_saves_note(&c->saves.by_trainers, dp_now_us());
}

static void begin_save(struct ps_control *c, struct ps_command *command)
{
    uint64_t id = 0;
    if (command->status == MR_OK && atomic_load(&c->stop))
        ps_command_fail(command, MR_SHUTTING_DOWN, "the node is stopping");
    if (command->status == MR_OK)
        command->status = ps_control_save(c, &command->save, &id, command->text);
    note_trainer(c, command);
    answer_save(command, id, command->save.number);
}

/* False: it is answered later. */
static bool execute_save(struct ps_control *c, struct ps_command *command)
{
    if (command->save.is_by_trainer && command->cancel_number == 0) {
        command->status = check_trainer(c, command, command->text);
        if (command->status != MR_OK)
            return true;
    }
    if (c->cluster != NULL) {
        uint64_t number = 0;
        command->status = c->membership.ops->save(c->membership.context, command, &number, command->text);
        note_trainer(c, command);
        answer_save(command, 0, number);
        return true;
    }
    if (command->cancel_number != 0) {
        command->status =
            ps_control_save_cancel(c, command->cancel_number, command->save.is_by_trainer, command->text);
        answer_save(command, 0, command->cancel_number);
        return true;
    }
    if (command->name_list_count > 0)
        command->status = prepare_partial(c, command);
    if (command->status == MR_OK && ps_control_look_first(c, command))
        return false;
    begin_save(c, command);
    return true;
}

static void execute_restore(struct ps_control *c, struct ps_command *command)
{
    struct ps_restored restored;
    if (c->cluster != NULL) {
        ps_command_fail(
            command, MR_UNSUPPORTED,
            "a node of a cluster loads the cluster's last checkpoint when it starts; restore others, or "
            "single tables, on a node by itself");
        return;
    }
    const struct ps_restore_request request = {.directory = command->directory,
                                               .id = command->checkpoint_id,
                                               .names = command->names,
                                               .name_count = command->name_count,
                                               .replace = command->replace,
                                               .by_call = true};
    command->status = ps_control_restore(c, &request, &restored, command->text);
    if (command->status == MR_OK) {
        const uint64_t words[MR_RESTORED_WORDS] = {[MR_RESTORED_ID] = restored.id,
                                                   [MR_RESTORED_STEP] = restored.step,
                                                   [MR_RESTORED_IS_AT_STEP] = restored.is_at_step,
                                                   [MR_RESTORED_TABLES] = restored.tables,
                                                   [MR_RESTORED_VARIABLES] = restored.variables,
                                                   [MR_RESTORED_PARAMETERS] = restored.parameters};
        ps_command_answer(command, mr_body_tensor(MR_BODY_RESTORED, NULL), words);
    }
    if (c->gate == PS_GATE_BUSY)
        ps_control_gate(c, PS_GATE_OPEN);
    if (command->status == MR_OK) {
        /* calls are served meanwhile, and the memory is free for the next command */
        ps_pending_free_wait(c->node);
    }
}

/* False: it is answered later. */
static bool execute(struct ps_control *c, struct ps_command *command)
{
    if (atomic_load(&c->stop)) {
        ps_command_fail(command, MR_SHUTTING_DOWN, "the node is stopping");
        return true;
    }
    if (command->op == MR_OP_MOVE)
        return c->membership.ops->move(c->membership.context, command);
    if (command->op == MR_OP_MOVES) {
        c->membership.ops->show_moves(c->membership.context, command);
        return true;
    }
    if (c->cluster != NULL && command->op != MR_OP_LIST && command->op != MR_OP_SAVE &&
        command->op != MR_OP_RESTORE)
        return ps_control_cluster_ask(c, command);
    switch (command->op) {
    case MR_OP_CREATE:
        ps_control_create_features(c, command);
        break;
    case MR_OP_FREEZE:
        ps_control_freeze(c, command);
        break;
    case MR_OP_LIST:
        if (c->cluster != NULL && ps_control_cluster_catalog(c) == NULL)
            ps_command_fail(command, MR_BUSY, "this node has not read its cluster's features yet");
        else if (c->cluster != NULL && c->gate == PS_GATE_BUSY) /* neither rows nor the ancestry are known */
            ps_command_fail(command, MR_BUSY, "this node has not loaded yet what it owns: its log says why");
        else
            ps_control_list(c, command);
        break;
    case MR_OP_ALTER:
        ps_control_alter(c, command);
        break;
    case MR_OP_DROP:
        ps_control_drop(c, command);
        break;
    case MR_OP_SAVE:
        return execute_save(c, command);
    case MR_OP_RESTORE:
        execute_restore(c, command);
        break;
    default:
        assert(false && "not a control call");
    }
    return true;
}

/* ---- checkpoints that are read again (ps/checkpoint/scrubber.h) ---- */

/* False: no memory. */
static bool start_scrubber(struct ps_control *c)
{
    const struct ps_config *config = c->node->config;
    const struct ps_scrubber_options options = {
        .store = c->scrubbed.store,
        .directory = c->scrubbed.path,
        .stop = c->scrubbed.stop,
        .every_us = config->checkpoint_scrub_every_s * UINT64_C(1000000),
        .bytes_per_s_max = config->checkpoint_scrub_rate_mib_s << 20,
        .avoid_cpus = c->node->cpus,
        .avoid_cpu_count = c->node->cpu_count,
        .counters = &c->node->scrubber_counters,
        .found = &c->wake,
    };
    if (options.every_us == 0 || options.directory[0] == '\0')
        return true;
    c->scrubber = ps_scrubber_start(&options);
    return c->scrubber != NULL;
}

/* If the newest checkpoint is damaged, the node still holds all of it: it saves a full one in its place. */
static void look_at_damage(struct ps_control *c)
{
    const uint64_t id = ps_counter_read(&c->node->scrubber_counters.damaged_id);
    if (id == c->damaged_id)
        return;
    c->damaged_id = id;
    if (id == 0)
        return;
    ps_save_chain_break(&c->saves.chain,
                        "the last checkpoint was damaged on the disk: save a full one first");
    c->saves.changes_saved = UINT64_MAX; /* no checkpoint that can be restored holds these */
    if (c->saves.schedule.every_us != 0)
        c->saves.schedule.next_us = dp_now_us();
    mr_log_with(MR_LOG_WARNING, MR_LOG_FIELDS({"checkpoint", .number = id}), "checkpoint_damaged",
                "checkpoint %llu is damaged: the next one is a full one%s", (unsigned long long)id,
                c->saves.schedule.every_us != 0 ? ", and begins now" : "");
}

/* ---- the thread ---- */

/* Microseconds after which there is something to do without being woken; UINT64_MAX: never. */
static uint64_t pause_us(const struct ps_control *c)
{
    uint64_t now_us = dp_now_us(), next_us = ps_control_drop_stats_next_us(c);
    next_us = mr_min_u64(next_us, ps_control_versions_next_us(c));
    next_us = mr_min_u64(next_us, ps_control_log_next_us(c));
    uint64_t us = next_us == UINT64_MAX ? UINT64_MAX : next_us > now_us ? next_us - now_us : 0;
    us = mr_min_u64(us, ps_control_cluster_pause_us(c));
    return ps_control_saves_pending(c) && us > SAVE_LOOK_US ? SAVE_LOOK_US : us;
}

static void wait_for_work(struct ps_control *c)
{
    uint64_t us = pause_us(c);
    if (us == UINT64_MAX) {
        while (sem_wait(&c->wake) != 0 && errno == EINTR) {
        }
        return;
    }
    const struct timespec until = mr_clock_after_us(us);
    while (sem_clockwait(&c->wake, CLOCK_MONOTONIC, &until) != 0 && errno == EINTR) {
    }
}

static void *control_run(void *arg)
{
    struct ps_control *c = arg;
    c->is_in_thread = true;
    (void)pthread_setname_np(pthread_self(), "mr-control");
    for (;;) {
        if (c->deferred == NULL)
            wait_for_work(c);
        ps_node_note_turn(c->node);
        ps_control_reload_poll(c);
        look_at_damage(c);
        struct ps_command *command = ps_control_take(c);
        if (command != NULL) {
            if (execute(c, command))
                ps_command_send_back(c, command);
        } else if (atomic_load(&c->stop)) {
            c->is_in_thread = false;
            return NULL;
        }
        while ((command = ps_control_looked(c)) != NULL) {
            begin_save(c, command);
            ps_command_send_back(c, command);
        }
        ps_control_saves_poll(c);
        ps_control_cluster_poll(c);
        ps_control_copies_poll(c);
        ps_control_drop_stats_poll(c);
        ps_control_log_poll(c);
        ps_control_versions_poll(c);
    }
}

bool ps_control_start(struct ps_control *c)
{
    char ignored[PS_CONTROL_TEXT_BYTES];
    atomic_store(&c->stop, false);
    ps_control_schedule_start(c);
    if (ps_control_learn_ids(c, ignored) != MR_OK)
        ps_control_ask_ids(c, c->node->config->checkpoint_directory);
    c->running = start_scrubber(c) && pthread_create(&c->thread, NULL, control_run, c) == 0;
    return c->running;
}

uint64_t ps_control_turns(const struct ps_control *c)
{
    return atomic_load_explicit(&c->node->control_turns, memory_order_relaxed) +
           atomic_load_explicit(&c->load_progress, memory_order_relaxed);
}

void ps_control_stop(struct ps_control *c, bool finish_save)
{
    char text[PS_CONTROL_TEXT_BYTES];
    c->stop_by_us = dp_now_us() + c->node->config->checkpoint_remote_stop_s * 1000000;
    if (c->running) {
        atomic_store(&c->stop, true);
        sem_post(&c->wake);
        pthread_join(c->thread, NULL);
        c->running = false;
    }
    ps_scrubber_stop(c->scrubber);
    c->scrubber = NULL;
    ps_control_cluster_stop(c);
    ps_control_saves_drop(c, "the node was stopped");
    if (finish_save)
        ps_control_save_wait(c, text);
    ps_control_save_abort(c);
    ps_control_jobs_stop(c);
}

struct ps_control *ps_control_create(struct ps_node *node)
{
    struct ps_control *c = calloc(1, sizeof(*c));
    struct ps_stores *stores = ps_stores_create(node->config->checkpoint_remote_credentials,
                                                (uint32_t)node->config->checkpoint_store_pause_ms);
    if (c == NULL || stores == NULL) {
        ps_stores_destroy(stores);
        free(c);
        return NULL;
    }
    c->stores = stores;
    c->node = node;
    c->gate = PS_GATE_BUSY;
    c->drop_stats.pending_us = UINT64_MAX;
    c->clock_offset_us = -dp_now_us();
    c->directory_lock = c->save_lock = PS_NO_LOCK;
    sem_init(&c->wake, 0, 0);
    node->control_wake = &c->wake;
    pthread_mutex_init(&c->view_lock, NULL);
    return c;
}

enum mr_status ps_control_open_history(struct ps_control *c, char *error, size_t error_bytes)
{
    enum mr_status status = ps_history_open(c->own.store, c->own.path, &c->history, error, error_bytes);
    if (status == MR_OK) {
        atomic_store(&c->node->restores, c->history.restores);
        ps_ancestry_begin(&c->ancestry, NULL, c->node->start_id, 0);
    }
    return status;
}

const struct ps_place *ps_control_own_place(const struct ps_control *c)
{
    return &c->own;
}

uint32_t ps_control_lineage(const struct ps_control *c)
{
    return c->history.lineage;
}

/* Frees the commands that were not answered, too. */
void ps_control_destroy(struct ps_control *c)
{
    if (c == NULL)
        return;
    assert(!c->running && c->writer == NULL);
    for (struct ps_command *command = ps_control_take(c); command != NULL; command = ps_control_take(c))
        ps_command_free(command);
    ps_control_cluster_destroy(c);
    free(c->saves.cut.gates);
    free(c->drop_stats.logs);
    free(atomic_load(&c->reload));
    ps_stores_destroy(c->stores);
    ps_checkpoint_unlock(c->directory_lock);
    pthread_mutex_destroy(&c->view_lock);
    sem_destroy(&c->wake);
    free(c);
}
