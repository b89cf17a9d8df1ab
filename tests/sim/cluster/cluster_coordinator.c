/* The coordinator: one map with a version, sessions that expire, names that only one session can have, and a
 * leader. Its answers may be lost, so that what was written looks as if it were not. */
#include <string.h>
#include "cluster_world.h"

static struct session *find_session(struct world *w, uint64_t id)
{
    for (uint32_t i = 0; i < NODES_MAX; i++)
        if (id != 0 && w->coordinator.sessions[i].id == id)
            return &w->coordinator.sessions[i];
    return NULL;
}

void coordinator_tick(struct world *w)
{
    struct coordinator *c = &w->coordinator;
    if (w->now_us < c->down_until_us)
        return;
    for (uint32_t i = 0; i < w->node_count; i++) {
        struct session *s = &c->sessions[i];
        if (s->id != 0 && w->now_us - s->heard_us > w->session_us) {
            if (c->leader == s->id)
                c->leader = 0;
            *s = (struct session){0};
        }
    }
    for (uint32_t i = 0; i < w->node_count && c->leader == 0; i++)
        if (c->sessions[i].is_registered && sim_chance(&w->rng, 500000))
            c->leader = c->sessions[i].id;
}

static void answer(struct world *w, const struct message *m, struct message reply)
{
    reply.from = COORDINATOR;
    reply.to = m->from;
    reply.sent_us = m->sent_us;
    reply.session = m->session;
    reply.epoch = w->coordinator.epoch;
    reply.catalog = w->catalog_version;
    reply.start_id = m->start_id;
    reply.leads = reply.session != 0 && w->coordinator.leader == reply.session;
    for (uint32_t i = 0; i < w->node_count; i++) {
        reply.registered[i] = w->coordinator.sessions[i].start_id;
        reply.sessions[i] = w->coordinator.sessions[i].id;
        reply.reports[i] = w->coordinator.sessions[i].report;
    }
    send_message(w, reply);
}

/* Who watches the map reads it, and learns nothing else. */
static void show_watchers(struct world *w)
{
    for (uint32_t i = 0; i < w->node_count; i++) {
        const struct message glimpse = {.kind = TELL_GLIMPSE,
                                        .from = COORDINATOR,
                                        .to = i,
                                        .start_id = w->coordinator.sessions[i].start_id,
                                        .epoch = w->coordinator.epoch};
        if (w->coordinator.sessions[i].id != 0 && !is_cut_off(w, COORDINATOR, i))
            post(w, glimpse, 100 + sim_below(&w->watch_rng, w->delay_us_max));
    }
}

static void write_map(struct world *w, const struct message *m)
{
    struct coordinator *c = &w->coordinator;
    const struct ps_cluster_map *next = &w->proposals[m->proposal];
    enum ps_member_written outcome = PS_NOT_WRITTEN;
    if (next->epoch == c->epoch + 1) {
        if (c->epoch + 1 >= EPOCHS_MAX) {
            fail(w, "the map changes without end");
            return;
        }
        w->maps[++c->epoch] = *next;
        check_map(w, next);
        outcome = PS_WRITTEN;
        show_watchers(w);
    }
    answer(w, m,
           (struct message){.kind = TELL_WRITTEN, .proposal = m->proposal, .outcome = (uint8_t)outcome});
}

void coordinator_receive(struct world *w, const struct message *m)
{
    struct coordinator *c = &w->coordinator;
    if (w->now_us < c->down_until_us)
        return;
    coordinator_tick(w);
    struct session *s = find_session(w, m->session);
    if (m->kind == ASK_REGISTER && s == NULL) {
        struct session *own = &c->sessions[m->from];
        if (own->id != 0 && own->start_id != m->start_id)
            return; /* the process before it is not known to be dead yet */
        if (own->id == 0)
            *own = (struct session){.id = ++c->last_session, .start_id = m->start_id, .is_registered = true};
        own->heard_us = w->now_us;
        (void)features_heard(own, m);
        struct message named = *m;
        named.session = own->id;
        answer(w, &named, (struct message){.kind = TELL_VIEW, .number = own->id});
        return;
    }
    if (s == NULL && m->kind == ASK_CATALOG)
        return;
    if (s == NULL) {
        answer(w, m, (struct message){.kind = TELL_VIEW, .number = 0}); /* the session is dead */
        return;
    }
    if (!features_heard(s, m) && m->kind == ASK_CATALOG)
        return;
    if (m->kind == ASK_CATALOG) {
        features_write(w, m);
        return;
    }
    s->heard_us = w->now_us;
    if (m->kind == ASK_WRITE)
        write_map(w, m);
    else
        answer(w, m, (struct message){.kind = TELL_VIEW, .number = s->id});
}
