/* A node: ps/cluster/ as it is, and in place of its tables partitions that remember what was pushed. */
#include <stdio.h>
#include <string.h>
#include "cluster_world.h"

#define TICK_US      5000u
#define LATE_US      400000u /* a checkpoint that takes longer is given up */
#define FENCE_US     100000u /* and a migration whose calls wait for longer */
#define CLOSE_ENOUGH 3u      /* pushes that are left when calls are to wait */

/* Who a callback of the member's belongs to. */
static struct context {
    struct world *w;
    uint32_t i;
} contexts[NODES_MAX];

static struct node *node_of(void *context)
{
    const struct context *c = context;
    return &c->w->nodes[c->i];
}

static void tell_self(struct world *w, uint32_t i, struct message m, uint64_t delay_us)
{
    m.to = i;
    m.to_start = w->nodes[i].start_id;
    post(w, m, delay_us);
}

/* ---- what the member asks for ---- */

static void write_map(void *context, const struct ps_cluster_map *next)
{
    const struct context *c = context;
    struct world *w = c->w;
    w->next_proposal = (w->next_proposal + 1) % MESSAGES_MAX;
    w->proposals[w->next_proposal] = *next;
    if (w->nodes[c->i].is_older)
        versions_forget(&w->proposals[w->next_proposal]);
    send_message(w, (struct message){.kind = ASK_WRITE,
                                     .from = c->i,
                                     .to = COORDINATOR,
                                     .session = w->nodes[c->i].session,
                                     .sent_us = node_now(w, c->i),
                                     .start_id = w->nodes[c->i].start_id,
                                     .proposal = w->next_proposal,
                                     .report = w->nodes[c->i].features.said});
}

/* What is taken over cannot always be loaded. */
static void load(void *context, uint32_t partition, uint64_t checkpoint, uint64_t grant)
{
    const struct context *c = context;
    const struct ps_cluster_map *map = &c->w->nodes[c->i].member.map;
    const bool fails = map->restored_in[partition] != 0 && !is_calm(c->w) &&
                       sim_chance(&c->w->loads_rng, c->w->load_fails_ppm);
    tell_self(
        c->w, c->i,
        (struct message){
            .kind = LOADED, .partition = partition, .number = checkpoint, .grant = grant, .status = fails},
        sim_below(&c->w->rng, c->w->store_us_max));
}

static struct sending *find_sending(struct node *node, uint64_t move)
{
    for (uint32_t i = 0; i < PS_CLUSTER_MOVES_MAX; i++)
        if (node->sending[i].move == move)
            return &node->sending[i];
    return NULL;
}

static void migration_changed(void *context, const struct ps_migration *migration)
{
    struct node *node = node_of(context);
    const uint64_t id = migration->move.id;
    struct sending *sending = find_sending(node, migration->state == PS_MIGRATION_WAITING ? 0 : id);
    if (migration->role == PS_MIGRATION_TARGET || sending == NULL)
        return;
    if (migration->state == PS_MIGRATION_WAITING)
        *sending = (struct sending){.move = id};
    else if (migration->state == PS_MIGRATION_FENCING)
        sending->is_last = true;
    else if (ps_migration_has_ended(migration))
        *sending = (struct sending){0};
}

static bool install(void *context, uint32_t partition, uint64_t move)
{
    struct node *node = node_of(context);
    struct staged *staged = &node->staged[partition];
    struct world *w = ((const struct context *)context)->w;
    if (copies_adopt(w, (uint32_t)(node - w->nodes), partition, move))
        return true;
    if (staged->move != move || !staged->is_complete)
        return false;
    check_installed(w, partition, move, node->start_id, staged->state.length);
    copies_begin(w, (uint32_t)(node - w->nodes), partition, &staged->state, "a move");
    node->states[partition] = staged->state;
    *staged = (struct staged){0};
    return true;
}

static void cleanup(void *context, uint32_t partition)
{
    node_of(context)->states[partition] = (struct state){0};
}

static bool has(const struct node *node, uint32_t p)
{
    const struct ps_member *m = &node->member;
    return m->index != PS_CLUSTER_NO_NODE && m->map.owner[p] == m->index && m->have[p] == m->map.grant[p];
}

/* Cuts once every client's pushes up to the step are in, and none beyond. */
static void try_cut(struct world *w, uint32_t i)
{
    struct node *node = &w->nodes[i];
    if (node->cut == 0 || node->part_is_taken)
        return;
    for (uint32_t p = 0; p < w->partition_count; p++)
        for (uint32_t c = 0; c < w->client_count && has(node, p); c++)
            if (node->states[p].upto[c] != node->cut_step)
                return;
    struct part *part = &w->parts[i][node->cut % CUTS_MAX];
    *part = (struct part){.start_id = node->start_id};
    for (uint32_t p = 0; p < w->partition_count; p++) {
        part->has[p] = has(node, p);
        part->states[p] = node->states[p];
    }
    node->part_is_taken = true;
    copies_cut(w, i);
    tell_self(w, i, (struct message){.kind = PART_WRITTEN, .number = node->cut},
              sim_below(&w->rng, w->store_us_max));
}

static void cut(void *context, uint64_t id, uint64_t step)
{
    const struct context *c = context;
    struct node *node = node_of(context);
    node->cut = id;
    node->cut_step = step;
    node->part_is_taken = false;
    try_cut(c->w, c->i);
}

static void cancel_cut(void *context, uint64_t id)
{
    struct node *node = node_of(context);
    if (node->cut == id)
        node->cut = 0;
}

static const struct ps_member_ops ops = {.write_map = write_map,
                                         .load = load,
                                         .migration_changed = migration_changed,
                                         .install = install,
                                         .cleanup = cleanup,
                                         .cut = cut,
                                         .cancel_cut = cancel_cut};

/* ---- the process ---- */

static struct ps_cluster_node describe(const struct world *w, uint32_t i)
{
    struct ps_cluster_node self = {.core_count = 1 + i % 2,
                                   .is_spare = i == w->spare,
                                   .start_id = w->nodes[i].start_id,
                                   .version = versions_of(w, w->nodes[i].start_id)};
    (void)snprintf(self.name, sizeof(self.name), "%c", 'a' + (int)i);
    copies_describe(w, i, &self);
    return self;
}

void node_start(struct world *w, uint32_t i)
{
    struct node *node = &w->nodes[i];
    const double rate = node->clock_rate;
    features_end(w, i);
    *node = (struct node){.runs = true, .clock_rate = rate, .start_id = ++w->last_start};
    contexts[i] = (struct context){.w = w, .i = i};
    versions_start(w, i);
    const struct ps_cluster_node self = describe(w, i);
    ps_member_init(&node->member, &ops, &contexts[i], &self, w->session_us, FENCE_US, w->partition_count);
    tell_self(w, i, (struct message){.kind = TICK}, sim_below(&w->rng, TICK_US));
    features_start(w, i);
}

/* ---- leading ---- */

static bool parts_are_written(const struct world *w, const struct ps_cluster_map *map)
{
    for (uint32_t p = 0; p < w->partition_count; p++) {
        if (map->owner[p] == PS_CLUSTER_NO_NODE)
            return false;
        const struct ps_cluster_node *owner = &map->nodes[map->owner[p]];
        const struct part *part = &w->parts[owner->name[0] - 'a'][map->cut % CUTS_MAX];
        if (part->cut != map->cut || part->start_id != owner->start_id)
            return false;
    }
    return true;
}

static uint32_t highest_step(const struct world *w)
{
    uint32_t highest = 0;
    for (uint32_t c = 0; c < w->client_count; c++)
        highest = w->clients[c].step > highest ? w->clients[c].step : highest;
    return highest;
}

static void lead(struct world *w, uint32_t i, const struct message *m)
{
    struct node *node = &w->nodes[i];
    const struct ps_cluster_map *map = &w->maps[m->epoch];
    struct ps_cluster_node registered[NODES_MAX];
    uint64_t absent_us[PS_CLUSTER_NODES_MAX] = {0};
    bool drained[PS_CLUSTER_NODES_MAX] = {false};
    uint32_t count = 0;
    const uint64_t now_us = node_now(w, i);
    for (uint32_t n = 0; n < w->node_count; n++) {
        if (m->registered[n] == 0)
            continue;
        registered[count] = describe(w, n);
        registered[count].session = m->sessions[n];
        registered[count].version =
            node->is_older ? (struct mr_peer_version){.capabilities = 0} : versions_of(w, m->registered[n]);
        registered[count++].start_id = m->registered[n];
    }
    for (uint32_t k = 0; k < map->node_count; k++) {
        const uint32_t n = (uint32_t)(map->nodes[k].name[0] - 'a');
        drained[k] = w->drained[n];
        if (m->registered[n] != 0)
            node->absent_since_us[n] = 0;
        else if (node->absent_since_us[n] == 0)
            node->absent_since_us[n] = now_us;
        absent_us[k] = node->absent_since_us[n] == 0 ? 0 : now_us - node->absent_since_us[n] + 1;
    }
    if (node->cut_seen != map->cut) {
        node->cut_seen = map->cut;
        node->cut_seen_us = now_us;
    }
    if (map->cut != 0)
        w->wants_cut = false;
    const struct ps_leader_view view = {
        .map = map,
        .registered = registered,
        .registered_count = count,
        .absent_us = absent_us,
        .nodes_wanted = w->node_count - (w->spare < w->node_count),
        .rebalances = w->rebalances,
        .take_over_us = map->take_over_s != 0 && !node->is_older ? w->take_over_us : 0,
        .take_over_s = w->take_over_us != 0 && !node->is_older,
        .replication = w->has_copies && !node->is_older ? 2 : 1,
        .drop_us = w->drop_us,
        .forget_us = 4 * w->session_us,
        .parts_are_written = map->cut != 0 && parts_are_written(w, map),
        .cut_is_committed = map->cut != 0 && w->clusters[map->cut % CUTS_MAX] == map->cut,
        .cut_is_late = now_us - node->cut_seen_us > LATE_US,
        .wants_balance = w->wants_balance,
        .drained = drained,
        .wants_cut = w->wants_cut && highest_step(w) < w->steps,
        .cut_step = highest_step(w) + sim_below(&w->rng, 2),
    };
    static struct ps_cluster_map next;
    switch (ps_leader_next(&view, &next)) {
    case PS_LEADER_WAITS:
        break;
    case PS_LEADER_WRITES_MAP:
        copies_check_proposal(w, map, &next, m, absent_us);
        (void)ps_member_propose(&node->member, &next);
        break;
    case PS_LEADER_COMMITS_CUT:
        if (!node->cluster_is_being_written) {
            node->cluster_is_being_written = true;
            tell_self(w, i, (struct message){.kind = CLUSTER_WRITTEN, .epoch = m->epoch},
                      sim_below(&w->rng, w->store_us_max));
        }
        break;
    }
}

static void write_cluster(struct world *w, uint32_t i, const struct message *m)
{
    const struct ps_cluster_map *map = &w->maps[m->epoch];
    w->nodes[i].cluster_is_being_written = false;
    check_cut(w, map);
    w->clusters[map->cut % CUTS_MAX] = map->cut;
}

/* ---- the coordinator's answers ---- */

static void pass_on(struct world *w, uint32_t i, const struct message *m)
{
    struct node *node = &w->nodes[i];
    bool present[PS_CLUSTER_NODES_MAX] = {false};
    bool any = false;
    static struct ps_cluster_map next;
    next = w->maps[m->epoch];
    for (uint32_t p = 0; p < w->partition_count; p++) {
        node->failed[p] = node->member.loading[p] == node->failed[p] ? node->failed[p] : 0;
        any |= node->failed[p] != 0;
    }
    for (uint32_t k = 0; k < next.node_count; k++)
        present[k] = m->registered[next.nodes[k].name[0] - 'a'] != 0;
    if (any && ps_cluster_map_pass_on(&next, ps_cluster_map_find(&next, node->member.self.name), node->failed,
                                      present, NULL))
        (void)ps_member_propose(&node->member, &next);
}

static void take_view(struct world *w, uint32_t i, const struct message *m)
{
    struct node *node = &w->nodes[i];
    if (m->start_id != node->start_id)
        return;
    if (m->number == 0) {
        if (m->session == node->session && node->session != 0) {
            node->session = 0;
            ps_member_expired(&node->member);
            features_expired(w, i);
        }
        return;
    }
    if (node->session == 0)
        node->session = m->number;
    if (m->number != node->session || !versions_can_read(w, i, &w->maps[m->epoch]))
        return;
    ps_member_confirmed(&node->member, node->session, m->sent_us);
    ps_member_take_map(&node->member, &w->maps[m->epoch]);
    features_viewed(w, i, m);
    if (m->leads && sim_chance(&w->rng, 900000)) {
        lead(w, i, m);
    } else if (m->leads) { /* thinks for a while, and does not notice what changes */
        struct message late = *m;
        late.kind = LEAD;
        tell_self(w, i, late, sim_below(&w->rng, w->session_us / 2));
    }
    versions_propose(w, i, &w->maps[m->epoch]);
    pass_on(w, i, m);
}

static void take_written(struct world *w, uint32_t i, const struct message *m)
{
    struct node *node = &w->nodes[i];
    if (m->start_id != node->start_id || m->session != node->session)
        return;
    ps_member_confirmed(&node->member, node->session, m->sent_us);
    ps_member_map_written(&node->member, &w->proposals[m->proposal], (enum ps_member_written)m->outcome);
}

static void ask_coordinator(struct world *w, uint32_t i)
{
    const struct node *node = &w->nodes[i];
    send_message(w, (struct message){.kind = node->session == 0 ? ASK_REGISTER : ASK_READ,
                                     .from = i,
                                     .to = COORDINATOR,
                                     .session = node->session,
                                     .start_id = node->start_id,
                                     .sent_us = node_now(w, i),
                                     .report = node->features.said});
}

/* ---- moving ---- */

static void send_partitions(struct world *w, uint32_t i, struct sending *sending)
{
    struct node *node = &w->nodes[i];
    const struct ps_cluster_move *move = ps_cluster_map_move(&node->member.map, sending->move);
    if (move == NULL)
        return;
    bool is_close = true;
    bool is_over = true;
    for (uint32_t p = move->first; p < (uint32_t)move->first + move->count; p++) {
        const struct state *s = &node->states[p];
        const uint16_t from = sending->acknowledged[p];
        struct message m = {.kind = MOVE_DATA,
                            .from = i,
                            .to = (uint32_t)(node->member.map.nodes[move->to].name[0] - 'a'),
                            .number = sending->move,
                            .partition = p,
                            .start_id = node->member.map.nodes[move->to].start_id,
                            .offset = from,
                            .length = s->length,
                            .is_last = sending->is_last};
        while (from + m.entry_count < s->length && m.entry_count < 8) {
            m.entries[m.entry_count] = s->log[from + m.entry_count];
            m.entry_count++;
        }
        memcpy(m.upto, s->upto, sizeof(m.upto));
        is_close = is_close && s->length <= from + CLOSE_ENOUGH;
        is_over = is_over && sending->has_last[p];
        if (!sending->has_last[p])
            send_message(w, m);
    }
    const uint64_t id = sending->move; /* the calls below may end it */
    const uint64_t now_us = node_now(w, i);
    (void)ps_member_migrate(&node->member, id, PS_MIGRATION_COPYING, now_us);
    if (is_over)
        (void)(ps_member_migrate(&node->member, id, PS_MIGRATION_FENCED, now_us) &&
               ps_member_migrate(&node->member, id, PS_MIGRATION_INSTALLED, now_us));
    else if (is_close && !sending->is_last)
        (void)ps_member_migrate(&node->member, id, PS_MIGRATION_FENCING, now_us);
}

static void take_move_data(struct world *w, uint32_t i, const struct message *m)
{
    struct node *node = &w->nodes[i];
    struct staged *staged = &node->staged[m->partition];
    if (m->start_id != node->start_id || m->number < staged->move)
        return;
    if (staged->move != m->number)
        *staged = (struct staged){.move = m->number};
    if (m->offset > staged->state.length)
        return;
    const uint32_t known = (uint32_t)(staged->state.length - m->offset);
    for (uint32_t k = known; k < m->entry_count && staged->state.length < LOG_MAX; k++)
        staged->state.log[staged->state.length++] = m->entries[k];
    if (m->is_last && staged->state.length == m->length) {
        memcpy(staged->state.upto, m->upto, sizeof(m->upto));
        staged->is_complete = true;
    }
    send_message(w, (struct message){.kind = MOVE_HAVE,
                                     .from = i,
                                     .to = m->from,
                                     .number = m->number,
                                     .partition = m->partition,
                                     .length = staged->state.length,
                                     .is_last = staged->is_complete});
}

static void take_move_have(struct world *w, uint32_t i, const struct message *m)
{
    struct sending *sending = find_sending(&w->nodes[i], m->number);
    if (sending == NULL)
        return;
    if (m->length > sending->acknowledged[m->partition])
        sending->acknowledged[m->partition] = m->length;
    sending->has_last[m->partition] |= m->is_last;
}

/* ---- calls ---- */

/* Of a push that the partition has, perhaps for longer. */
static enum call_status push_answer(struct world *w, uint32_t i, uint32_t p, uint32_t client, uint32_t step)
{
    if (!copies_may_answer(w, i, p, client, step))
        return CALL_WAIT;
    copies_answered(w, p, client, step);
    return CALL_OK;
}

static enum call_status push(struct world *w, uint32_t i, const struct message *m)
{
    struct node *node = &w->nodes[i];
    struct state *s = &node->states[m->partition];
    const uint32_t c = m->from - NODES_MAX;
    if (node->cut != 0 && !node->part_is_taken && m->step > node->cut_step)
        return CALL_WAIT;
    check_execution(w, i, m->partition, m->grant, m->start_id);
    if (m->step <= s->upto[c])
        return push_answer(w, i, m->partition, c, m->step);
    if (m->step > s->upto[c] + 1)
        return CALL_GAP;
    s->upto[c] = m->step;
    if (s->length < LOG_MAX)
        s->log[s->length++] = (struct push){.client = (uint8_t)c, .step = m->step};
    check_push(w, m->partition, s->length);
    try_cut(w, i);
    return push_answer(w, i, m->partition, c, m->step);
}

static void take_call(struct world *w, uint32_t i, const struct message *m)
{
    struct node *node = &w->nodes[i];
    enum call_status status = CALL_WAIT;
    switch (ps_member_serves(&node->member, m->partition, m->grant, m->start_id, node_now(w, i))) {
    case PS_MEMBER_SERVES:
        if (m->kind == CALL_LOOKUP)
            check_execution(w, i, m->partition, m->grant, m->start_id);
        status = m->kind == CALL_PUSH ? push(w, i, m) : CALL_OK;
        break;
    case PS_MEMBER_OTHER_OWNER:
        status = CALL_OTHER_OWNER;
        break;
    case PS_MEMBER_WAIT:
        break;
    }
    struct message reply = {.kind = REPLY_CALL,
                            .from = i,
                            .to = m->from,
                            .partition = m->partition,
                            .number = m->kind,
                            .step = m->step,
                            .grant = m->grant,
                            .start_id = m->start_id,
                            .status = (uint8_t)status};
    memcpy(reply.upto, node->states[m->partition].upto, sizeof(reply.upto));
    send_message(w, reply);
}

static void take_loaded(struct world *w, uint32_t i, const struct message *m)
{
    struct node *node = &w->nodes[i];
    if (node->member.loading[m->partition] != m->grant)
        return;
    if (m->status != 0) { /* it goes to others, or is tried again */
        node->failed[m->partition] = m->grant;
        load(&contexts[i], m->partition, m->number, m->grant);
        return;
    }
    node->failed[m->partition] = 0;
    node->states[m->partition] = (struct state){0};
    for (uint32_t n = 0; n < w->node_count && m->number != 0; n++) {
        const struct part *part = &w->parts[n][m->number % CUTS_MAX];
        if (part->cut == m->number && part->has[m->partition])
            node->states[m->partition] = part->states[m->partition];
    }
    copies_begin(w, i, m->partition, &node->states[m->partition], NULL);
    ps_member_loaded(&node->member, m->partition, m->grant);
}

static void tick(struct world *w, uint32_t i)
{
    struct node *node = &w->nodes[i];
    if (node->session == 0 || node->member.asks ||
        sim_chance(&w->rng, (uint32_t)(10000000ull * TICK_US / w->session_us)))
        ask_coordinator(w, i);
    for (uint32_t k = 0; k < PS_CLUSTER_MOVES_MAX; k++)
        if (node->sending[k].move != 0)
            send_partitions(w, i, &node->sending[k]);
    for (uint32_t k = node->member.migration_count; k-- > 0;)
        ps_member_release(&node->member, node->member.migrations[k].move.id);
    ps_member_tick(&node->member, node_now(w, i));
    /* a change whose answer is lost: its fate is asked for */
    if (node->member.writes && sim_chance(&w->rng, 100000))
        ps_member_map_written(&node->member, NULL, PS_PERHAPS_WRITTEN);
    try_cut(w, i);
    copies_tick(w, i);
    tell_self(w, i, (struct message){.kind = TICK}, TICK_US / 2 + sim_below(&w->rng, TICK_US));
}

void node_receive(struct world *w, const struct message *m)
{
    const uint32_t i = m->to;
    struct node *node = &w->nodes[i];
    switch (m->kind) {
    case TELL_VIEW:
        take_view(w, i, m);
        break;
    case TELL_WRITTEN:
        take_written(w, i, m);
        break;
    case TELL_GLIMPSE:
        if (m->start_id == node->start_id && versions_can_read(w, i, &w->maps[m->epoch]))
            ps_member_glimpse_map(&node->member, &w->maps[m->epoch]);
        break;
    case CALL_PUSH:
    case CALL_LOOKUP:
        take_call(w, i, m);
        break;
    case CALL_MAP:
        send_message(w, (struct message){
                            .kind = REPLY_MAP, .from = i, .to = m->from, .epoch = node->member.map.epoch});
        break;
    case MOVE_DATA:
        take_move_data(w, i, m);
        break;
    case MOVE_HAVE:
        take_move_have(w, i, m);
        break;
    case COPY_DATA:
    case COPY_HAVE:
        copies_receive(w, i, m);
        break;
    case TICK:
        tick(w, i);
        break;
    case LEAD:
        lead(w, i, m);
        break;
    case LOADED:
        take_loaded(w, i, m);
        break;
    case PART_WRITTEN:
        if (copies_part_waits(w, i)) {
            tell_self(w, i, *m, TICK_US);
            break;
        }
        w->parts[i][m->number % CUTS_MAX].cut = m->number;
        break;
    case CLUSTER_WRITTEN:
        write_cluster(w, i, m);
        break;
    case TELL_CATALOG_WRITTEN:
    case CALL_FEATURES:
    case FEATURES_TICK:
        features_receive(w, i, m);
        break;
    default:
        fail(w, "node %u cannot read message %d", i, (int)m->kind);
    }
}
