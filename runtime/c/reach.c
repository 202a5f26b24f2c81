/* Whether the servers that the program's client roles call can be reached. A failure is told each time;
   that a server answers is told only while the owner asks for it, as each message does so. */
#include "inside.h"

static void tell(struct gw_machine *m, unsigned role, const struct gw_target *target,
                 enum gw_seen seen)
{
    if (m->seen_count == PEERS_SEEN_MAX) {
        m->seen_first = (m->seen_first + 1) % PEERS_SEEN_MAX;
        m->seen_count--;
    }
    unsigned at = (m->seen_first + m->seen_count++) % PEERS_SEEN_MAX;
    m->seen[at] = (struct gw_peer_seen){.role = role, .target = *target, .seen = seen};
}

bool gw_poll_peer(struct gw_machine *m, struct gw_peer_seen *seen)
{
    if (!m->seen_count)
        return false;
    *seen = m->seen[m->seen_first];
    m->seen_first = (m->seen_first + 1) % PEERS_SEEN_MAX;
    m->seen_count--;
    return true;
}

void gw_tell_reached(struct gw_machine *m, bool whether) { m->tells_reached = whether; }

void server_is_lost(struct gw_machine *m, gw_id id, enum gw_seen how)
{
    const struct conn *conn = conn_of(m, id);
    if (conn && conn->about->client && conn->target)
        tell(m, conn->role, conn->target, how);
}

void asked_server_is_lost(struct gw_machine *m, gw_id id, enum gw_seen how)
{
    const struct running *task = task_of(m, id);
    if (task && task->wait == WAIT_CONNECTION)
        tell(m, task->task.role, &task->target, how);
}

/* The server of an exchange is seen: that of its connection, or of its datagram. */
static void exchange_is_seen(struct gw_machine *m, const struct exchange *exchange,
                             enum gw_seen seen)
{
    const struct conn *conn = conn_of(m, exchange->conn);
    struct gw_target datagram = {.address = exchange->to};
    const struct gw_target *target = conn ? conn->target : exchange->target;
    if (!target && exchange->by_datagram)
        target = &datagram;
    if (target)
        tell(m, exchange->role, target, seen);
}

void exchange_was_silent(struct gw_machine *m, const struct exchange *exchange)
{
    exchange_is_seen(m, exchange, GW_LOST_SILENT);
}

void server_answers(struct gw_machine *m, const struct exchange *exchange)
{
    if (m->tells_reached)
        exchange_is_seen(m, exchange, GW_SEEN_ANSWERED);
}

void server_is_connected(struct gw_machine *m, gw_id id)
{
    const struct conn *conn = conn_of(m, id);
    if (m->tells_reached && conn && conn->target)
        tell(m, conn->role, conn->target, GW_SEEN_CONNECTED);
}

/* A server is lost if the connection was shared by all sessions or carries requests of the server, was
   not ready yet, or if a request waited on it that is not sent again. It may end any other connection
   whenever that is unused. */
void server_ends(struct gw_machine *m, gw_id id)
{
    const struct conn *conn = conn_of(m, id);
    if (!conn || !conn->about->client || conn->state != OPEN)
        return;
    bool asked = false;
    for (uint32_t at = 0; at < conn->exchanges.count && !conn->kept; at++) {
        const struct exchange *exchange = exchange_of(m, conn->exchanges.at[at]);
        asked = asked || (exchange && !exchange->begun && !exchange->gather);
    }
    if (conn->opening || asked || conn->about->requests_count || conn->about->shared)
        server_is_lost(m, id, GW_LOST_CLOSED);
}
