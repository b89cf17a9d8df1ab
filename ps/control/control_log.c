/* The node's log (checkpoint.durability = log): applied again at a start, begun, rotated at each cut of the
 * configured directory and at each restore, and removed up to a cut once its checkpoint is published. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "dataplane/wire/base/log.h"
#include "ps/config/config.h"
#include "ps/control/control_internal.h"
#include "ps/core/push_log.h"
#include "ps/log/log_disk.h"

#define REPLAY_STEP_US 20000u /* of replay in one task, so that a core answers in between */
#define DURABLE_MS     10000u /* that a change of tables waits for the log */
#define ROOM_BYTES     (4u << 10)
#define DISK_LOOK_US   10000000u

static const char *own_path(const struct ps_control *c)
{
    return c->own.path;
}

static uint32_t core_count(const struct ps_control *c)
{
    return c->node->core_count;
}

bool ps_control_log_is_on(const struct ps_control *c)
{
    return c->log.is_on;
}

/* ---- rotation ---- */

static void look_at_files(struct ps_core *core, void *arg)
{
    ((bool *)arg)[core->index] = ps_push_log_can_switch(core);
}

enum mr_status ps_control_log_prepare(struct ps_control *c, uint64_t base_id, const char *directory,
                                      char *text)
{
    struct ps_control_log *log = &c->log;
    struct ps_log_base base = {.id = base_id};
    bool can_switch[DP_CORES_MAX];
    char line[PS_TEXT_BYTES];
    if (!log->is_on)
        return MR_OK;
    ps_node_each_core(c->node, look_at_files, can_switch);
    for (uint32_t i = 0; i < core_count(c); i++) {
        if (!can_switch[i]) {
            snprintf(text, PS_CONTROL_TEXT_BYTES,
                     "the log has been stalled for too many saves: make room in %.200s", own_path(c));
            return MR_IO_ERROR;
        }
    }
    snprintf(base.directory, sizeof(base.directory), "%s", directory);
    const struct ps_log_segment segment = {
        .number = log->number + 1, .core_count = core_count(c), .base = &base, .told = log->told};
    const enum mr_status status = ps_log_create(c->own.store, own_path(c), &segment, log->files, line);
    if (status != MR_OK) {
        snprintf(text, PS_CONTROL_TEXT_BYTES, "%s", line);
        return status;
    }
    log->number++;
    log->is_prepared = true;
    return MR_OK;
}

void ps_control_log_discard(struct ps_control *c)
{
    struct ps_control_log *log = &c->log;
    if (log->is_prepared)
        ps_log_discard(c->own.store, own_path(c), log->number, core_count(c), log->files);
    log->number -= log->is_prepared; /* it is the next once more */
    log->is_prepared = false;
}

const struct ps_log_file *ps_control_log_take(struct ps_control *c)
{
    const bool is_prepared = c->log.is_prepared;
    c->log.is_prepared = false;
    c->log.cut_number = is_prepared ? c->log.number : 0;
    return is_prepared ? c->log.files : NULL;
}

/* An older version may use the directory again, once there is no log. */
static void forget_log(struct ps_control *c)
{
    char error[PS_CONTROL_TEXT_BYTES];
    if (c->log.is_on || c->log.is_there || !c->history.has_log)
        return;
    c->history.has_log = false;
    if (ps_control_write_history(c, &c->history, error) != MR_OK)
        mr_log_warning("log_not_removed", "%s", error);
}

void ps_control_log_covered(struct ps_control *c)
{
    struct ps_control_log *log = &c->log;
    char error[PS_CONTROL_TEXT_BYTES];
    const uint64_t before = log->is_on ? log->cut_number : UINT64_MAX;
    if ((!log->is_on && !log->is_there) || before == 0)
        return;
    const int failed = ps_log_remove_before(c->own.store, own_path(c), before);
    log->cut_number = 0;
    if (failed != 0) {
        ps_text_io(error, "cannot remove segments of the log in", own_path(c), -failed);
        mr_log_warning("log_not_removed", "%s", error);
        return;
    }
    for (uint32_t i = 0; log->is_on && i < core_count(c); i++)
        ps_push_log_covered(c->node->cores[i]);
    log->is_there = log->is_on;
    forget_log(c);
}

/* ---- changes of tables ---- */

struct log_positions {
    uint64_t positions[DP_CORES_MAX];
    bool has_room[DP_CORES_MAX];
};

static void look_for_room(struct ps_core *core, void *arg)
{
    struct log_positions *p = arg;
    p->has_room[core->index] = ps_push_log_has_room(core, ROOM_BYTES);
}

static void take_position(struct ps_core *core, void *arg)
{
    struct log_positions *p = arg;
    p->positions[core->index] = ps_push_log_position(core);
}

static void explain_stall(const struct ps_control *c, const char *what, char *text)
{
    char line[PS_TEXT_BYTES] = "it is full";
    for (uint32_t i = 0; i < core_count(c); i++) {
        const int error = ps_push_log_error(c->node->cores[i]);
        if (error != 0)
            ps_text_io(line, "cannot write the log in", own_path(c), error);
    }
    snprintf(text, PS_CONTROL_TEXT_BYTES, "%s: %s", what, line);
}

enum mr_status ps_control_log_check(struct ps_control *c, char *text)
{
    struct log_positions p;
    if (!c->log.is_on)
        return MR_OK;
    ps_node_each_core(c->node, look_for_room, &p);
    for (uint32_t i = 0; i < core_count(c); i++) {
        if (!p.has_room[i]) {
            explain_stall(c, "nothing was changed", text);
            return MR_IO_ERROR;
        }
    }
    return MR_OK;
}

enum mr_status ps_control_log_wait(struct ps_control *c, char *text)
{
    struct log_positions p;
    if (!c->log.is_on)
        return MR_OK;
    ps_node_each_core(c->node, take_position, &p);
    const uint64_t until_us = dp_now_us() + DURABLE_MS * UINT64_C(1000);
    for (uint32_t i = 0; i < core_count(c); i++) {
        while (!ps_push_log_is_durable(c->node->cores[i], p.positions[i])) {
            if (dp_now_us() >= until_us) {
                explain_stall(c, "the change is made, and is lost if the node dies now", text);
                return MR_IO_ERROR;
            }
            (void)nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
        }
    }
    return MR_OK;
}

static void log_polled(struct ps_control *c, int error)
{
    char line[PS_TEXT_BYTES];
    if (error != 0) {
        ps_text_io(line, "cannot write the log in", own_path(c), error);
        mr_log_error("log_stalled", "%s: pushes wait (BUSY) until it can be written", line);
    } else {
        mr_log_info("log_goes_on", "the log in %s is written again", own_path(c));
    }
}

/* How much room there is. Before it ends: a full disk makes pushes wait. */
static void look_at_disk(struct ps_control *c, const struct ps_log_disk *disk)
{
    struct ps_checkpoint_counters *counters = &c->node->checkpoint_counters;
    const bool is_nearly_full = ps_log_disk_is_nearly_full(disk);
    ps_counter_set(&counters->log_disk_bytes, disk->bytes);
    ps_counter_set(&counters->log_disk_free_bytes, disk->free_bytes);
    if (is_nearly_full && !c->log.is_nearly_full)
        mr_log_with(
            MR_LOG_WARNING,
            MR_LOG_FIELDS({"free_bytes", .number = disk->free_bytes}, {"bytes", .number = disk->bytes}),
            "log_disk_nearly_full",
            "%" PRIu64 " MiB are left in %s: once it is full, pushes wait (BUSY); make room there, or save "
            "more often, as each checkpoint removes the log before it (checkpoint.every_s)",
            disk->free_bytes >> 20, own_path(c));
    c->log.is_nearly_full = is_nearly_full;
}

static void poll_disk(struct ps_control *c)
{
    struct ps_log_disk disk;
    const uint64_t now_us = dp_now_us();
    if (now_us < c->log.look_us)
        return;
    c->log.look_us = now_us + DISK_LOOK_US;
    if (ps_log_disk_look(own_path(c), &disk) == 0)
        look_at_disk(c, &disk);
}

/* What the log promises depends on where it is. */
static void judge_disk(struct ps_control *c)
{
    struct ps_log_disk disk;
    if (ps_log_disk_look(own_path(c), &disk) != 0)
        return;
    const char *risk = ps_log_disk_risk(&disk);
    if (risk != NULL)
        mr_log_warning("log_disk", "the log in %s is on %s, %s", own_path(c), disk.name, risk);
    look_at_disk(c, &disk);
    c->log.look_us = dp_now_us() + DISK_LOOK_US;
}

void ps_control_log_poll(struct ps_control *c)
{
    int error = 0;
    if (!c->log.is_on)
        return;
    poll_disk(c);
    for (uint32_t i = 0; i < core_count(c) && error == 0; i++)
        error = ps_push_log_error(c->node->cores[i]);
    if ((error != 0) != c->log.is_stalled)
        log_polled(c, error);
    c->log.is_stalled = error != 0;
}

uint64_t ps_control_log_next_us(const struct ps_control *c)
{
    return c->log.is_on ? c->log.look_us : UINT64_MAX;
}

/* ---- a start: what is there ---- */

static enum mr_status start_refuse(const struct ps_control *c, const char *why, char *text)
{
    snprintf(text, PS_CONTROL_TEXT_BYTES, "the log in %.120s/" PS_LOG_FOLDER ": %.240s", own_path(c), why);
    return MR_CHECKPOINT_CORRUPT;
}

enum mr_status ps_control_log_find(struct ps_control *c, uint64_t base_id, const char *directory, char *text)
{
    struct ps_control_log *log = &c->log;
    struct ps_log_base base = {.id = base_id};
    struct ps_log_list list;
    char line[PS_TEXT_BYTES];
    log->first.number = 0;
    if (own_path(c)[0] == '\0' || !c->history.has_log)
        return MR_OK;
    snprintf(base.directory, sizeof(base.directory), "%s", directory);
    enum mr_status status = ps_log_list(c->own.store, own_path(c), &list, line);
    if (status == MR_OK) {
        log->is_there = list.count > 0;
        log->number = list.count > 0 ? list.numbers[list.count - 1] : 0;
        status = ps_log_newest(c->own.store, own_path(c), &list, false, &log->first, line);
        log->is_used = log->first.number != 0;
        if (status == MR_OK)
            status = ps_log_find(c->own.store, own_path(c), &list, &base, &log->first, line);
        free(list.numbers);
    }
    if (status != MR_OK)
        snprintf(text, PS_CONTROL_TEXT_BYTES, "%s", line);
    log->base = base;
    return status;
}

/* The newest header, or the newest of those that begin a log. False: there is none, or it cannot be read,
 * which the start says later. */
static bool log_newest(const struct ps_control *c, bool is_first, struct ps_log_header *out)
{
    struct ps_log_list list;
    char line[PS_TEXT_BYTES];
    if (own_path(c)[0] == '\0' || !c->history.has_log ||
        ps_log_list(c->own.store, own_path(c), &list, line) != MR_OK)
        return false;
    const enum mr_status status = ps_log_newest(c->own.store, own_path(c), &list, is_first, out, line);
    free(list.numbers);
    return status == MR_OK && out->number != 0;
}

bool ps_control_log_was_told(struct ps_control *c, uint64_t id)
{
    struct ps_log_header newest;
    if (!log_newest(c, false, &newest) || newest.told != (id != 0 ? id : PS_LOG_NO_BASE))
        return false;
    c->log.told = newest.told; /* still, for the start after this one */
    return true;
}

bool ps_control_log_begins(struct ps_control *c, uint64_t *id)
{
    struct ps_log_header first;
    char text[PS_CONTROL_TEXT_BYTES];
    const uint64_t newest = c->history.has_log ? ps_control_own_newest(c) : 0; /* which asks the store */
    if (newest == 0 || ps_history_goes_back(&c->history, newest) || !log_newest(c, true, &first) ||
        first.told == 0 || ps_control_log_find(c, newest, "", text) != MR_OK || c->log.first.number != 0)
        return false;
    *id = first.base_id;
    return true;
}

bool ps_control_log_follows(const struct ps_control *c)
{
    return c->log.first.number != 0;
}

/* ---- a start: replay ---- */

struct replay_round {
    struct ps_log_replay *replays[DP_CORES_MAX];
    bool is_done[DP_CORES_MAX];
    enum mr_status status[DP_CORES_MAX];
    char text[DP_CORES_MAX][PS_CORE_TEXT_BYTES];
    uint64_t clock_us[DP_CORES_MAX];
    uint64_t records[DP_CORES_MAX];
    ps_log_apply *apply;
};

static void replay_on_core(struct ps_core *core, void *arg)
{
    struct replay_round *r = arg;
    const uint32_t i = core->index;
    const uint64_t until_us = dp_now_us() + REPLAY_STEP_US;
    while (!r->is_done[i] && r->status[i] == MR_OK && dp_now_us() < until_us) {
        const struct ps_log_record *record;
        uint8_t *content;
        r->status[i] = ps_log_replay_next(r->replays[i], &record, &content, r->text[i]);
        r->is_done[i] = r->status[i] == MR_OK && record == NULL;
        if (r->status[i] != MR_OK || record == NULL)
            continue;
        r->clock_us[i] = record->clock_us > r->clock_us[i] ? record->clock_us : r->clock_us[i];
        r->records[i]++;
        r->status[i] = r->apply(core, record, content, r->text[i]);
    }
}

static bool replay_goes_on(const struct ps_control *c, const struct replay_round *r)
{
    bool is_done = true, has_failed = false;
    for (uint32_t i = 0; i < core_count(c); i++) {
        is_done = is_done && r->is_done[i];
        has_failed = has_failed || r->status[i] != MR_OK;
    }
    return !is_done && !has_failed;
}

/* Of all cores: the catalogue as the log has left it. */
struct found_features {
    struct ps_catalog catalogs[DP_CORES_MAX];
};

static void find_features(struct ps_core *core, void *arg)
{
    struct ps_catalog *found = &((struct found_features *)arg)->catalogs[core->index];
    found->count = 0;
    for (uint32_t id = 1; id <= core->feature_id_max; id++)
        if (ps_core_feature(core, id) != NULL)
            ps_catalog_add(found, id, &ps_core_feature(core, id)->feature);
}

struct missing_feature {
    uint32_t id;
    struct mr_feature feature;
    enum mr_status status[DP_CORES_MAX];
    char text[DP_CORES_MAX][PS_CORE_TEXT_BYTES];
};

static void add_missing(struct ps_core *core, void *arg)
{
    struct missing_feature *m = arg;
    if (ps_core_feature(core, m->id) == NULL)
        m->status[core->index] = ps_core_add_feature(core, m->id, &m->feature, m->text[core->index]);
}

static void remove_feature(struct ps_core *core, void *arg)
{
    ps_core_remove_feature(core, *(const uint32_t *)arg);
}

/* A feature that some core has: a crash came while it was created or dropped, or all have it. */
static enum mr_status settle_feature(struct ps_control *c, uint32_t id, const struct mr_feature *feature,
                                     char *text)
{
    if (ps_history_is_dropped(&c->history, id)) {
        ps_node_each_core(c->node, remove_feature, &id);
        return MR_OK;
    }
    struct missing_feature *m = calloc(1, sizeof(*m));
    if (m == NULL) {
        snprintf(text, PS_CONTROL_TEXT_BYTES, "no memory left");
        return MR_NO_MEMORY;
    }
    m->id = id;
    m->feature = *feature;
    ps_node_each_core(c->node, add_missing, m);
    enum mr_status status = MR_OK;
    for (uint32_t i = 0; i < core_count(c) && status == MR_OK; i++) {
        status = m->status[i];
        snprintf(text, PS_CONTROL_TEXT_BYTES, "%s", m->text[i]);
    }
    free(m);
    if (status != MR_OK)
        return status;
    ps_catalog_add(&c->catalog, id, feature);
    const struct mr_feature *altered = ps_history_find_altered(&c->history, id);
    if (altered != NULL)
        ps_control_alter_to(c, c->catalog.count - 1, altered);
    return MR_OK;
}

static enum mr_status settle_features(struct ps_control *c, char *text)
{
    struct found_features *found = calloc(1, sizeof(*found));
    enum mr_status status = MR_OK;
    uint32_t last = 0;
    if (found == NULL) {
        snprintf(text, PS_CONTROL_TEXT_BYTES, "no memory left");
        return MR_NO_MEMORY;
    }
    ps_node_each_core(c->node, find_features, found);
    c->catalog.count = 0;
    for (uint32_t i = 0; i < core_count(c); i++)
        last =
            ps_catalog_last_id(&found->catalogs[i]) > last ? ps_catalog_last_id(&found->catalogs[i]) : last;
    for (uint32_t id = 1; id <= last && status == MR_OK; id++) {
        for (uint32_t i = 0; i < core_count(c); i++) {
            const struct ps_catalog *on_core = &found->catalogs[i];
            const uint32_t at = ps_catalog_find_id(on_core, id);
            if (at == on_core->count)
                continue;
            status = settle_feature(c, id, &on_core->features[at], text);
            break;
        }
    }
    c->history.last_feature = last > c->history.last_feature ? last : c->history.last_feature;
    free(found);
    return status;
}

static void set_clock(struct ps_core *core, void *arg)
{
    const uint64_t clock_us = *(const uint64_t *)arg;
    if (ps_core_clock_us(core) < clock_us)
        ps_core_set_clock_us(core, clock_us);
    else
        ps_core_see_time(core, dp_now_us());
    ps_batch_cache_clear(core->batches);
}

static void replay_log(struct ps_control *c, const struct replay_round *r, uint64_t took_us)
{
    uint64_t records = 0;
    for (uint32_t i = 0; i < core_count(c); i++) {
        uint64_t torn_bytes;
        c->log.cuts[i] = ps_log_replay_cut(r->replays[i], &torn_bytes);
        records += r->records[i];
        c->log.kept_bytes[i] = ps_log_replay_bytes(r->replays[i]);
        if (torn_bytes != 0)
            mr_log_with(
                MR_LOG_WARNING,
                MR_LOG_FIELDS({"core", .number = i}, {"segment", .number = c->log.cuts[i].number},
                              {"bytes", .number = torn_bytes}),
                "log_torn",
                "the log of core %u ends in %" PRIu64 " bytes of segment %" PRIu64
                " that were not flushed when the node died: nobody was told of these pushes, and they "
                "are cut off",
                i, torn_bytes, c->log.cuts[i].number);
    }
    mr_log_with(MR_LOG_INFO, MR_LOG_FIELDS({"records", .number = records}, {"ms", .number = took_us / 1000}),
                "log_replayed", "the log in %s was applied: %" PRIu64 " records in %" PRIu64 " ms",
                own_path(c), records, took_us / 1000);
}

static enum mr_status replay_all(struct ps_control *c, const struct ps_log_list *list, ps_log_apply *apply,
                                 char *text)
{
    struct replay_round *r = calloc(1, sizeof(*r));
    enum mr_status status = r != NULL ? MR_OK : MR_NO_MEMORY;
    const uint64_t start_us = dp_now_us();
    uint64_t clock_us = 0;
    char line[PS_TEXT_BYTES] = "no memory left";
    for (uint32_t i = 0; i < core_count(c) && status == MR_OK; i++)
        status =
            ps_log_replay_open(c->own.store, own_path(c), list, c->log.first.number, i, &r->replays[i], line);
    if (status == MR_OK) {
        r->apply = apply;
        while (replay_goes_on(c, r))
            ps_node_each_core(c->node, replay_on_core, r);
    }
    for (uint32_t i = 0; i < core_count(c) && status == MR_OK; i++) {
        status = r->status[i];
        clock_us = r->clock_us[i] > clock_us ? r->clock_us[i] : clock_us;
        snprintf(line, sizeof(line), "core %u: %.200s", i, r->text[i]);
    }
    if (status == MR_OK) {
        replay_log(c, r, dp_now_us() - start_us);
        ps_node_each_core(c->node, set_clock, &clock_us);
        c->clock_offset_us = c->node->cores[0]->clock_offset_us;
        status = settle_features(c, text);
    } else {
        snprintf(text, PS_CONTROL_TEXT_BYTES, "%s", line);
    }
    for (uint32_t i = 0; r != NULL && i < core_count(c); i++)
        ps_log_replay_close(r->replays[i]);
    free(r);
    return status;
}

static enum mr_status replay(struct ps_control *c, ps_log_apply *apply, char *text)
{
    struct ps_log_list list;
    char line[PS_TEXT_BYTES];
    const uint32_t wrote_cores = c->log.first.core_count;
    if (wrote_cores != core_count(c)) {
        snprintf(
            line, sizeof(line),
            "a node of %u cores wrote it, and this one has %u: start with cores.count = %u, save (millrace "
            "ctl save), and then change cores.count",
            wrote_cores, core_count(c), wrote_cores);
        return start_refuse(c, line, text);
    }
    enum mr_status status = ps_log_list(c->own.store, own_path(c), &list, line);
    if (status != MR_OK) {
        snprintf(text, PS_CONTROL_TEXT_BYTES, "%s", line);
        return status;
    }
    status = replay_all(c, &list, apply, text);
    free(list.numbers);
    return status;
}

/* ---- a start: the next segment ---- */

struct log_begin {
    const struct ps_control *c;
    struct ps_log_writer *writers[DP_CORES_MAX];
    enum mr_status status[DP_CORES_MAX];
};

static void begin_on_core(struct ps_core *core, void *arg)
{
    struct log_begin *b = arg;
    const uint32_t i = core->index;
    b->status[i] = ps_push_log_begin(core, b->writers[i], &b->c->log.files[i]);
    if (b->status[i] == MR_OK)
        b->writers[i] = NULL;
}

/* On all cores, or the node does not start. */
static enum mr_status begin_everywhere(struct ps_control *c)
{
    struct log_begin b = {.c = c};
    enum mr_status status = MR_OK;
    const char *note = NULL;
    for (uint32_t i = 0; i < core_count(c) && status == MR_OK; i++)
        if (ps_log_writer_create(c->own.store, &c->node->cores[i]->log_counters, &b.writers[i], &note) != 0)
            status = MR_NO_MEMORY;
    for (uint32_t i = 0; i < core_count(c) && status == MR_OK; i++)
        ps_log_writer_begin(b.writers[i], c->log.kept_bytes[i]);
    if (status == MR_OK)
        ps_node_each_core(c->node, begin_on_core, &b);
    for (uint32_t i = 0; i < core_count(c); i++) {
        status = status == MR_OK ? b.status[i] : status;
        ps_log_writer_destroy(b.writers[i]);
    }
    if (note != NULL)
        mr_log_info("log_without_uring", "the log is written by threads: %s", note);
    return status;
}

static enum mr_status log_begin(struct ps_control *c, bool continues, char *text)
{
    struct ps_control_log *log = &c->log;
    char line[PS_TEXT_BYTES];
    if (!c->history.has_log) {
        c->history.has_log = true;
        const enum mr_status written = ps_control_write_history(c, &c->history, text);
        if (written != MR_OK)
            return written;
    }
    const struct ps_log_segment segment = {.number = log->number + 1,
                                           .core_count = core_count(c),
                                           .base = continues ? NULL : &log->base,
                                           .cuts = continues ? log->cuts : NULL,
                                           .told = log->told,
                                           .is_first = !continues};
    enum mr_status status = ps_log_create(c->own.store, own_path(c), &segment, log->files, line);
    if (status != MR_OK) {
        snprintf(text, PS_CONTROL_TEXT_BYTES, "%s", line);
        return status;
    }
    log->number++;
    status = begin_everywhere(c);
    if (status != MR_OK) {
        snprintf(text, PS_CONTROL_TEXT_BYTES, "no memory left for the log");
        return status;
    }
    log->is_on = log->is_there = true;
    judge_disk(c);
    return MR_OK;
}

enum mr_status ps_control_log_start(struct ps_control *c, bool replays, bool goes_back, ps_log_apply *apply,
                                    char *text)
{
    struct ps_control_log *log = &c->log;
    char line[PS_TEXT_BYTES];
    const bool wanted = c->node->config->checkpoint_durability == PS_DURABILITY_LOG;
    enum mr_status status = MR_OK;
    if (!log->has_base) /* nothing was restored */
        status = ps_control_log_find(c, 0, "", text);
    if (status != MR_OK)
        return status;
    if (!replays)
        log->told = log->base.id != 0 ? log->base.id : PS_LOG_NO_BASE;
    if (!replays && log->is_used)
        mr_log_warning(
            "log_given_up",
            "checkpoint.restore = %s: the log in %s is not applied, and the pushes in it are given "
            "up; later starts with the same setting go on from what this one begins",
            c->node->config->checkpoint_restore, own_path(c));
    if (replays && log->is_used && log->first.number == 0 && !goes_back) {
        char id[24] = "none";
        if (log->base.id != 0)
            snprintf(id, sizeof(id), "%" PRIu64, log->base.id);
        snprintf(
            line, sizeof(line),
            "it has acknowledged pushes, and does not follow checkpoint %s: bring back the checkpoint that "
            "it follows, or give them up with --restore %s",
            id, id);
        return start_refuse(c, line, text);
    }
    const bool continues = replays && log->first.number != 0;
    if (continues)
        status = replay(c, apply, text);
    if (status == MR_OK && wanted)
        status = log_begin(c, continues, text);
    else if (status == MR_OK)
        forget_log(c);
    return status;
}

enum mr_status ps_control_log_check_none(struct ps_control *c, char *text)
{
    const enum mr_status status = ps_control_log_find(c, 0, "", text);
    if (status != MR_OK || !c->log.is_used)
        return status;
    return start_refuse(
        c,
        "it has acknowledged pushes, which a member of a cluster would lose: start the node by "
        "itself first, without cluster.name, and save",
        text);
}
