/* Moves of partitions, on the control thread: what this node gives and takes, and what clients ask for. */
#include "ps/node_cluster/node_cluster_internal.h"

void ps_node_cluster_heard_taker(struct ps_node_cluster *c, uint64_t move, uint64_t flags)
{
    ps_cluster_moves_heard(&c->moves, move, flags);
}

/* With the lock: the move that this node takes has come to its end here. */
static void note_ended(struct ps_node_cluster *c, uint64_t move, bool failed)
{
    if (failed)
        c->moves.failed = move;
    else if (c->moves.arrived_count < PS_CLUSTER_MOVES_MAX)
        c->moves.arrived[c->moves.arrived_count++] = move;
    if (failed && c->zookeeper != NULL)
        ps_zookeeper_wake(c->zookeeper);
}

/* Do not start or finish moves until all cores have the current map: a stale core could keep a dropped
 * partition, or write a fenced one. */
void ps_node_cluster_poll_moves(struct ps_node_cluster *c)
{
    struct ps_cluster_moves_now now;
    struct ps_cluster_move_report report;
    bool failed = false;
    pthread_mutex_lock(&c->lock);
    if (c->is_changed) {
        pthread_mutex_unlock(&c->lock);
        return;
    }
    ps_cluster_moves_look(&c->moves, &c->member, &now);
    if (c->features_session == 0 && c->moves.takes.id == 0)
        now.take.id = 0; /* it has not all tables yet that rows may be of */
    pthread_mutex_unlock(&c->lock);
    const uint64_t ended = ps_cluster_moves_poll(&c->moves, &now, &failed);
    const bool has_news = ps_cluster_moves_report(&c->moves, &report);
    pthread_mutex_lock(&c->lock);
    if (ended != 0)
        note_ended(c, ended, failed);
    if (has_news) {
        c->report.move = report;
        if (c->zookeeper != NULL)
            ps_zookeeper_report(c->zookeeper, &c->report);
    }
    pthread_mutex_unlock(&c->lock);
    if (ended != 0 && !failed)
        ps_cluster_moves_tell(&c->moves); /* from now on the map may say so */
}

bool ps_node_cluster_move(void *context, struct ps_command *command)
{
    struct ps_node_cluster *c = context;
    if (ps_cluster_moves_ask(&c->moves, &c->lock, command))
        return true;
    ps_node_cluster_wake(c);
    return false;
}

void ps_node_cluster_show_moves(void *context, struct ps_command *command)
{
    struct ps_node_cluster *c = context;
    pthread_mutex_lock(&c->lock);
    ps_cluster_moves_show(&c->moves, &c->member.map, command);
    pthread_mutex_unlock(&c->lock);
}

void ps_node_cluster_end_moves(struct ps_node_cluster *c)
{
    if (c != NULL)
        ps_cluster_moves_stop(&c->moves);
}
