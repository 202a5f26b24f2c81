/* Peers that sessions store, and what is said to them unasked. */
#include "inside.h"

/* A peer that a session stores. */
struct peer {
    struct gw_octets place; /* octets that are equal for the same connection or address */
    struct gw_octets same;  /* what was kept of its request, as octets */
    struct gw_octets mark;  /* the fresh number of what was sent to it last */
    gw_id conn;             /* 0: it is at an address */
    struct gw_address at;
    struct gw_view *kept;
};

/* The sessions that store the peer of a place. */
struct holder {
    gw_id id;
    struct gw_octets place;
    struct ids sessions;
};

static struct running *inside(struct gw_task *t) { return (struct running *)t; }

static const struct gw_field absent_field = {.name = ""};
static const struct gw_slot absent = {.field = &absent_field};

/* ---- Places ---- */

static void place_of_conn(struct gw_octets *place, gw_id conn)
{
    uint8_t octets[9] = {'c'};
    for (unsigned index = 0; index < 8; index++)
        octets[index + 1] = (uint8_t)(conn >> 8 * index);
    gw_octets_add(place, (struct gw_text){octets, sizeof octets});
}

/* Where the requester of a handler is; false if nobody is to be answered, or no memory. */
static bool place_of_requester(struct gw_octets *place, const struct gw_incoming *request)
{
    uint8_t role[5] = {'a'};
    if (!request || request->requester == NO_ONE)
        return false;
    if (request->requester == BY_CONN) {
        place_of_conn(place, request->answer_to);
        return !place->lost;
    }
    for (unsigned index = 0; index < 4; index++)
        role[index + 1] = (uint8_t)(request->role >> 8 * index);
    gw_octets_add(place, (struct gw_text){role, sizeof role});
    return add_address(place, &request->peer);
}

static bool same_octets(const struct gw_octets *one, const struct gw_octets *other)
{
    return gw_same(gw_octets_text(one), gw_octets_text(other));
}

/* ---- Which sessions store a place ---- */

static struct holder *holder_of(struct gw_machine *m, const struct gw_octets *place)
{
    return slab_get(&m->holders, map_get(&m->stored, gw_octets_text(place)));
}

static void holder_free(struct gw_machine *m, struct holder *holder)
{
    slab_take(&m->holders, holder->id);
    map_remove(&m->stored, gw_octets_text(&holder->place));
    gw_octets_free(&holder->place);
    ids_free(&holder->sessions);
    give(holder, sizeof *holder);
}

static bool hold(struct gw_machine *m, const struct gw_octets *place, gw_id session)
{
    struct holder *holder = holder_of(m, place);
    if (!holder) {
        holder = take_zeroed(sizeof *holder);
        gw_id id = holder ? slab_add(&m->holders, holder) : 0;
        if (!id) {
            give(holder, sizeof *holder);
            return false;
        }
        holder->id = id;
        if (!gw_octets_add(&holder->place, gw_octets_text(place)) ||
            !map_put(&m->stored, gw_octets_text(place), id)) {
            holder_free(m, holder);
            return false;
        }
    }
    for (uint32_t at = 0; at < holder->sessions.count; at++)
        if (holder->sessions.at[at] == session)
            return true;
    bool added = ids_add(&holder->sessions, session);
    if (!added && !holder->sessions.count)
        holder_free(m, holder);
    return added;
}

static bool is_stored(const struct gw_machine *m, const struct session *session,
                      const struct gw_octets *place)
{
    for (unsigned which = 0; which < m->program->session->peers_count; which++)
        for (uint32_t at = 0; at < session->peers[which].count; at++)
            if (same_octets(&session->peers[which].at[at].place, place))
                return true;
    return false;
}

/* A peer may not be in a session any more. */
static void let_hold_go(struct gw_machine *m, gw_id id, const struct gw_octets *place)
{
    const struct session *session = session_at(m, id);
    struct holder *holder = holder_of(m, place);
    if (!holder || (session && is_stored(m, session, place)))
        return;
    ids_remove(&holder->sessions, id);
    if (!holder->sessions.count)
        holder_free(m, holder);
}

/* ---- Lists of peers ---- */

static void peer_free(struct peer *peer)
{
    gw_octets_free(&peer->place);
    gw_octets_free(&peer->same);
    gw_octets_free(&peer->mark);
    gw_view_free(peer->kept);
    *peer = (struct peer){0};
}

static void take_out(struct peers *peers, uint32_t at)
{
    peer_free(&peers->at[at]);
    for (peers->count--; at < peers->count; at++)
        peers->at[at] = peers->at[at + 1];
}

static bool grow(struct peers *peers, uint32_t max)
{
    uint32_t room = peers->room ? peers->room * 2 : 2;
    room = room < max ? room : max;
    struct peer *at = take_zeroed(room * sizeof *at);
    if (!at)
        return false;
    for (uint32_t index = 0; index < peers->count; index++)
        at[index] = peers->at[index];
    give(peers->at, peers->room * sizeof *at);
    peers->at = at;
    peers->room = room;
    return true;
}

bool peers_new(struct gw_machine *m, struct session *session)
{
    unsigned count = m->program->session ? m->program->session->peers_count : 0;
    session->peers = count ? take_zeroed(count * sizeof *session->peers) : NULL;
    return session->peers || !count;
}

void peers_free(struct gw_machine *m, struct session *session)
{
    unsigned of = m->program->session && session->peers ? m->program->session->peers_count : 0;
    for (unsigned which = 0; which < of; which++) {
        struct peers *peers = &session->peers[which];
        for (uint32_t at = 0; at < peers->count; at++) {
            let_hold_go(m, session->id, &peers->at[at].place);
            peer_free(&peers->at[at]);
        }
        give(peers->at, peers->room * sizeof *peers->at);
    }
    if (of)
        give(session->peers, of * sizeof *session->peers);
}

bool stores_connections(const struct gw_machine *m, const struct session *session)
{
    for (unsigned which = 0; which < m->program->session->peers_count; which++)
        for (uint32_t at = 0; at < session->peers[which].count; at++)
            if (session->peers[which].at[at].conn)
                return true;
    return false;
}

void peer_is_gone(struct gw_machine *m, gw_id conn)
{
    struct gw_octets place = {0};
    if (!m->stored.count)
        return;
    place_of_conn(&place, conn);
    struct holder *holder = holder_of(m, &place);
    for (uint32_t index = 0; holder && index < holder->sessions.count; index++) {
        struct session *session = session_at(m, holder->sessions.at[index]);
        for (unsigned which = 0; session && which < m->program->session->peers_count; which++) {
            struct peers *peers = &session->peers[which];
            for (uint32_t at = peers->count; at > 0; at--)
                if (peers->at[at - 1].conn == conn)
                    take_out(peers, at - 1);
        }
    }
    if (holder)
        holder_free(m, holder);
    gw_octets_free(&place);
}

/* ---- What handlers say ---- */

static struct session *session_of_task(struct gw_task *t)
{
    return session_at(t->build.machine, inside(t)->keyed);
}

/* The requester of a handler, as it is stored; false if there is none, or no memory. */
static bool requester(struct gw_task *t, const struct gw_peers *about, struct peer *peer)
{
    struct gw_incoming *request = incoming_of(t->build.machine, inside(t)->request);
    *peer = (struct peer){0};
    if (!place_of_requester(&peer->place, request))
        return false;
    if (request->requester == BY_CONN)
        peer->conn = request->answer_to;
    else
        peer->at = request->peer;
    if (!about->kept)
        return true;
    peer->kept = gw_view_new(about->kept);
    bool whole = peer->kept != NULL;
    for (unsigned index = 0; whole && index < about->kept->count; index++) {
        const struct gw_key *key = &about->keys[index];
        whole = request->view->message != key->view ||
                gw_set_copy(peer->kept, gw_view_slot(peer->kept, index),
                            gw_view_look(request->view, key->request));
        add_value(&peer->same, gw_view_look(peer->kept, index));
    }
    return whole && !peer->same.lost;
}

static bool is_same(const struct peer *one, const struct peer *other)
{
    return same_octets(&one->place, &other->place) && same_octets(&one->same, &other->same);
}

bool gw_store(struct gw_task *t, unsigned which)
{
    struct gw_machine *m = t->build.machine;
    const struct gw_peers *about = &m->program->session->peers[which];
    struct session *session = session_of_task(t);
    struct peer peer = {0};
    if (!session || !requester(t, about, &peer)) {
        peer_free(&peer);
        return false;
    }
    struct peers *peers = &session->peers[which];
    for (uint32_t at = 0; at < peers->count; at++) {
        if (is_same(&peers->at[at], &peer)) {
            peer_free(&peer);
            return true;
        }
    }
    struct peer replaced = {0};
    if (!about->list && peers->count)
        replaced = peers->at[--peers->count];
    bool room = peers->count < about->max &&
                (peers->count < peers->room || grow(peers, about->max)) &&
                hold(m, &peer.place, session->id);
    if (room)
        peers->at[peers->count++] = peer;
    else
        peer_free(&peer);
    if (gw_octets_text(&replaced.place).length)
        let_hold_go(m, session->id, &replaced.place);
    peer_free(&replaced);
    return room;
}

void gw_part(struct gw_task *t, unsigned which)
{
    struct gw_machine *m = t->build.machine;
    struct session *session = session_of_task(t);
    struct peer peer = {0};
    if (session && requester(t, &m->program->session->peers[which], &peer)) {
        struct peers *peers = &session->peers[which];
        for (uint32_t at = peers->count; at > 0; at--)
            if (is_same(&peers->at[at - 1], &peer))
                take_out(peers, at - 1);
        let_hold_go(m, session->id, &peer.place);
    }
    peer_free(&peer);
}

void gw_clear_peers(struct gw_task *t, unsigned which)
{
    struct session *session = session_of_task(t);
    while (session && session->peers[which].count) {
        struct peers *peers = &session->peers[which];
        struct peer peer = peers->at[--peers->count];
        let_hold_go(t->build.machine, session->id, &peer.place);
        peer_free(&peer);
    }
}

/* Takes a peer out of a variable, as far as a request is about what was sent to it so. */
static void forget_in(struct peers *peers, const struct gw_peers *about,
                      const struct gw_octets *place, const struct gw_incoming *request)
{
    struct gw_octets mark = {0};
    bool marked = about->mark && request->view->message == about->mark->view;
    const struct gw_slot *slot = marked ? gw_view_look(request->view, about->mark->request) : NULL;
    if (slot && slot->set)
        add_value(&mark, slot);
    bool about_one = gw_octets_text(&mark).length > 0;
    for (uint32_t at = mark.lost ? 0 : peers->count; at > 0; at--) {
        const struct peer *peer = &peers->at[at - 1];
        if (same_octets(&peer->place, place) && (!about_one || same_octets(&peer->mark, &mark)))
            take_out(peers, at - 1);
    }
    gw_octets_free(&mark);
}

void gw_forget_requester(struct gw_task *t)
{
    struct gw_machine *m = t->build.machine;
    const struct gw_incoming *request = incoming_of(m, inside(t)->request);
    struct gw_octets place = {0};
    struct holder *holder =
        place_of_requester(&place, request) ? holder_of(m, &place) : NULL;
    gw_id id = holder ? holder->id : 0;
    for (uint32_t index = holder ? holder->sessions.count : 0; index > 0; index--) {
        gw_id of = holder->sessions.at[index - 1];
        struct session *session = session_at(m, of);
        for (unsigned which = 0; session && which < m->program->session->peers_count; which++)
            forget_in(&session->peers[which], &m->program->session->peers[which], &place, request);
        let_hold_go(m, of, &place);
        if (!slab_get(&m->holders, id))
            break;
    }
    gw_octets_free(&place);
}

int64_t gw_stored(struct gw_task *t, unsigned which)
{
    const struct session *session = session_of_task(t);
    return session ? session->peers[which].count : 0;
}

bool gw_next_peer(struct gw_task *t, unsigned which, struct gw_slot *cursor)
{
    const struct session *session = session_of_task(t);
    int64_t taken = cursor->set ? cursor->number : 0;
    if (!session || taken >= session->peers[which].count)
        return false;
    inside(t)->kept = session->peers[which].at[taken].kept;
    gw_set_number(cursor, taken + 1);
    return true;
}

const struct gw_slot *gw_kept(struct gw_task *t, unsigned index)
{
    const struct gw_view *kept = inside(t)->kept;
    return kept && index < kept->message->count ? gw_view_look(kept, index) : &absent;
}

void gw_marked(struct gw_task *t, const struct gw_slot *fresh)
{
    struct gw_octets *mark = &inside(t)->mark;
    gw_octets_free(mark);
    add_value(mark, fresh);
    if (mark->lost)
        gw_octets_free(mark);
}

static bool has_room(const struct conn *conn)
{
    unsigned behind = 0;
    for (const struct letter *letter = conn->behind; letter; letter = letter->next)
        behind++;
    return gw_octets_text(&conn->unsent).length < BUFFER_OCTETS && behind < PIPELINED_MAX;
}

bool gw_tell(struct gw_task *t, unsigned which, const struct gw_slot *cursor)
{
    struct gw_machine *m = t->build.machine;
    struct session *session = session_of_task(t);
    struct letter *letter = letter_new();
    int64_t at = cursor->set ? cursor->number - 1 : -1;
    if (!letter || !finish_build(&t->build, letter)) {
        letter_free(letter);
        count(m, GW_COUNT_UNBUILDABLE);
        return false;
    }
    struct gw_octets mark = inside(t)->mark;
    inside(t)->mark = (struct gw_octets){0};
    if (!session || at < 0 || at >= session->peers[which].count) {
        gw_octets_free(&mark);
        letter_free(letter);
        return true;
    }
    struct peer *peer = &session->peers[which].at[at];
    if (gw_octets_text(&mark).length) {
        gw_octets_free(&peer->mark);
        peer->mark = mark;
    }
    if (!peer->conn) {
        struct gw_output output = {.kind = GW_DATAGRAM,
                                   .role = m->program->session->peers[which].role,
                                   .address = peer->at,
                                   .octets = letter->octets};
        letter->octets = (struct gw_octets){0};
        letter_free(letter);
        if (!output_add(m, &output))
            gw_octets_free(&output.octets);
        return true;
    }
    const struct conn *conn = conn_of(m, peer->conn);
    /* A connection that is lost takes what was kept of its request with it. */
    inside(t)->kept = NULL;
    if (conn && has_room(conn)) {
        put(m, conn->id, letter);
        return true;
    }
    count(m, GW_COUNT_UNTOLD);
    letter_free(letter);
    return true;
}
