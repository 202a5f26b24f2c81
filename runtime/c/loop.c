/* The event loop, whatever it waits with. */
#define _GNU_SOURCE
#include "loop.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    SCRATCH = 65536,  /* the longest read; a datagram, too */
    ACCEPTS = 64,     /* of one listener at one wake-up */
    DATAGRAMS = 64,   /* of one socket at one wake-up */
    TURN = 16384,     /* octets of one connection before others have their turn */
    LEFT_OVER = 65536, /* octets at one wake-up of connections that had theirs */
    DRAIN_TURNS = 64  /* of accepting who waits when nobody is to be taken in any more: the backlog */
};

/* How long what runs may take to its end when the process is told to end. */
#define DRAIN GW_MILLISECONDS(30000)

/* How long nobody is taken in after the system had no descriptor or no memory for a connection. */
#define PAUSE GW_MILLISECONDS(100)

/* What an event is about, above all ids of connections. */
#define ABOUT_ROLE (UINT64_MAX - 65536)
#define ABOUT_NAMES (UINT64_MAX - 2)

/* The socket of a connection. */
struct peer {
    gw_id id;
    int fd;
    void *watched;
    bool connecting, readable, writable;
    bool ending; /* its end, or what is wrong with it, is still to be read */
    bool ended;  /* its end was read: nothing is waited for behind it */
    uint64_t wakeup; /* when its turn began, and what it has given in it */
    size_t given;
    bool left;       /* it had its turn, and stands in the line of those that go on after it */
    uint32_t behind; /* who stands there behind it */
};

struct loop {
    struct gw_machine *machine;
    struct poller *poller;
    int *roles;
    void **watched; /* of roles */
    gw_time *shut;  /* of roles: until when nobody is taken in; 0 if somebody is */
    struct peer *peers; /* by the index of their id */
    uint32_t room;
    uint64_t wakeup;
    uint64_t octets;            /* read from connections so far */
    uint64_t octets_before;     /* and when the loop was woken up */
    uint64_t octets_at_once;    /* the most between two questions to the system */
    uint32_t first, last, left; /* the line of peers that had their turn, and its length */
    struct gw_resolver *resolver;
    bool over;
    gw_time until; /* when it is over at the latest, once it is told to end; 0 before */
    uint8_t scratch[SCRATCH];
};

static struct peer *peer_of(struct loop *loop, gw_id id)
{
    uint32_t index = (uint32_t)id;
    return index < loop->room && loop->peers[index].id == id ? &loop->peers[index] : NULL;
}

static struct peer *peer_add(struct loop *loop, gw_id id, int fd)
{
    uint32_t index = (uint32_t)id;
    if (index >= loop->room) {
        uint32_t room = loop->room ? loop->room : 64;
        while (room <= index)
            room *= 2;
        struct peer *peers = realloc(loop->peers, room * sizeof *peers);
        if (!peers)
            return NULL;
        memset(peers + loop->room, 0, (room - loop->room) * sizeof *peers);
        loop->peers = peers;
        loop->room = room;
    }
    void *watched = poller_watch(loop->poller, fd, id, true);
    if (!watched)
        return NULL;
    /* Its place may still stand in the line for one that is gone. */
    const struct peer *before = &loop->peers[index];
    loop->peers[index] = (struct peer){.id = id, .fd = fd, .watched = watched,
                                       .left = before->left, .behind = before->behind};
    return &loop->peers[index];
}

static void peer_close(struct loop *loop, struct peer *peer, bool reset)
{
    peer->id = 0;
    poller_forget(loop->poller, peer->watched, -1);
    gw_close(peer->fd, reset);
}

/* What the system would not give or take is waited for. */
static void await(struct loop *loop, gw_id id)
{
    const struct peer *peer = peer_of(loop, id);
    if (peer && !peer->connecting)
        poller_await(peer->watched, !peer->readable && !peer->ended, !peer->writable);
}

/* Whether a peer goes on when the others have had their turn. */
static bool is_left(struct loop *loop, struct peer *peer)
{
    if (peer->left)
        return true;
    if (peer->wakeup != loop->wakeup) {
        peer->wakeup = loop->wakeup;
        peer->given = 0;
    }
    if (peer->given < TURN)
        return false;
    uint32_t index = (uint32_t)(peer - loop->peers);
    *(loop->left++ ? &loop->peers[loop->last].behind : &loop->first) = index;
    loop->last = index;
    peer->left = true;
    return true;
}

/* What was seen before is not for the reason for which this connection is over. */
static void is_broken(struct loop *loop, gw_id id, int error)
{
    gw_see_peers(loop->machine, 0);
    gw_broken(loop->machine, gw_now(), id);
    gw_see_peers(loop->machine, error);
}

static void is_unreachable(struct loop *loop, gw_id id, int error)
{
    gw_see_peers(loop->machine, 0);
    gw_connect_failed(loop->machine, gw_now(), id);
    gw_see_peers(loop->machine, error);
}

/* Reads as long as there is something, room for it, and its turn. */
static void read_from(struct loop *loop, gw_id id)
{
    struct peer *peer;
    size_t room;
    while ((peer = peer_of(loop, id)) && peer->readable && (room = gw_room(loop->machine, id)) &&
           !is_left(loop, peer)) {
        size_t asked = room < SCRATCH ? room : SCRATCH;
        ssize_t got = read(peer->fd, loop->scratch, asked);
        if (got > 0) {
            peer->given += (size_t)got;
            loop->octets += (uint64_t)got;
            /* Fewer than there was room for were all there were. */
            peer->readable = peer->ending || (size_t)got == asked;
            struct gw_text text = {loop->scratch, (size_t)got};
            gw_received(loop->machine, gw_now(), id, text);
        } else if (got == 0) {
            peer->readable = false;
            peer->ended = true;
            gw_ended(loop->machine, gw_now(), id);
        } else if (errno == EAGAIN) {
            peer->readable = false;
        } else if (errno != EINTR) {
            peer->readable = false;
            is_broken(loop, id, errno);
        }
    }
    await(loop, id);
}

/* Writes as long as there is something and the system takes it. */
static void write_to(struct loop *loop, gw_id id)
{
    struct peer *peer;
    struct gw_text text;
    bool more = false;
    while ((peer = peer_of(loop, id)) && peer->writable &&
           (text = gw_unsent(loop->machine, id)).length) {
        /* Pieces of a body that come one after the other go out together. */
        more = gw_has_more(loop->machine, id);
        ssize_t gone =
            send(peer->fd, text.at, text.length, MSG_NOSIGNAL | (more ? MSG_MORE : 0));
        if (gone > 0) {
            gw_sent(loop->machine, gw_now(), id, (size_t)gone);
        } else if (gone < 0 && errno == EAGAIN) {
            peer->writable = false;
        } else if (gone == 0 || errno != EINTR) {
            peer->writable = false;
            is_broken(loop, id, gone ? errno : 0);
        }
    }
    /* What was to follow did not. */
    if (peer && more)
        gw_let_out(peer->fd);
    await(loop, id);
}

static void do_connect(struct loop *loop, const struct gw_output *output)
{
    int fd = gw_connect(&output->address);
    struct peer *peer = fd < 0 ? NULL : peer_add(loop, output->id, fd);
    if (peer) {
        peer->connecting = true;
        poller_await(peer->watched, false, true);
        return;
    }
    int error = errno;
    if (fd >= 0)
        gw_close(fd, false);
    is_unreachable(loop, output->id, error);
}

static void do_close(struct loop *loop, const struct gw_output *output)
{
    struct peer *peer = peer_of(loop, output->id);
    if (peer)
        peer_close(loop, peer, output->reset);
}

static void do_datagram(struct loop *loop, struct gw_output *output)
{
    struct sockaddr_storage to;
    socklen_t length = gw_socket_address(&output->address, &to);
    struct gw_text text = gw_octets_text(&output->octets);
    /* A datagram that the system does not take is lost, as any may be. */
    if (sendto(loop->roles[output->role], text.at, text.length, MSG_NOSIGNAL,
               (struct sockaddr *)&to, length) < 0 && errno != EAGAIN)
        gw_log("a datagram was not sent: %s", strerror(errno));
    gw_octets_free(&output->octets);
}

static void perform(struct loop *loop, struct gw_output *output)
{
    struct peer *peer;
    switch (output->kind) {
    case GW_CONNECT:
        do_connect(loop, output);
        break;
    case GW_WRITE:
        write_to(loop, output->id);
        break;
    case GW_READ:
        read_from(loop, output->id);
        break;
    case GW_SHUTDOWN:
        if ((peer = peer_of(loop, output->id)))
            shutdown(peer->fd, SHUT_WR);
        break;
    case GW_CLOSE:
        do_close(loop, output);
        break;
    case GW_DATAGRAM:
        do_datagram(loop, output);
        break;
    case GW_RESOLVE:
        if (!gw_resolver_ask(loop->resolver, output->id, output->name, output->address.port))
            gw_resolved(loop->machine, gw_now(), output->id, NULL);
        break;
    }
}

static void perform_all(struct loop *loop)
{
    struct gw_output output;
    while (gw_poll(loop->machine, &output))
        perform(loop, &output);
}

/* Peers that had their turn have another, up to so many octets: whoever sends without end is served
   while nobody else has anything new. */
static void serve_left(struct loop *loop)
{
    for (size_t given = 0; loop->left && given < LEFT_OVER;) {
        struct peer *peer = &loop->peers[loop->first];
        gw_id id = peer->id;
        loop->first = peer->behind;
        loop->left--;
        peer->left = false;
        peer->given = 0;
        peer->wakeup = loop->wakeup;
        if (!id)
            continue;
        read_from(loop, id);
        perform_all(loop);
        peer = peer_of(loop, id);
        given += peer ? peer->given : TURN;
    }
}

/* Who waits goes on waiting, and nobody is told of it again and again. */
static void shut_door(struct loop *loop, unsigned role)
{
    poller_forget(loop->poller, loop->watched[role], loop->roles[role]);
    loop->watched[role] = NULL;
    loop->shut[role] = gw_now() + PAUSE;
}

static void open_doors(struct loop *loop)
{
    for (unsigned role = 0; role < gw_program.roles_count; role++) {
        if (!loop->shut[role] || loop->shut[role] > gw_now())
            continue;
        loop->watched[role] =
            poller_watch(loop->poller, loop->roles[role], ABOUT_ROLE + role, false);
        loop->shut[role] = loop->watched[role] ? 0 : gw_now() + PAUSE;
    }
}

/* Whether there may be more. */
static bool accept_some(struct loop *loop, unsigned role)
{
    for (int accepted = 0; accepted < ACCEPTS; accepted++) {
        /* What is over is closed first: the machine gives its place to the next. */
        perform_all(loop);
        int fd = accept4(loop->roles[role], NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        /* Gone before it was taken in, or a signal. */
        if (fd < 0 && (errno == ECONNABORTED || errno == EINTR))
            continue;
        if (fd < 0) {
            if (errno != EAGAIN && !loop->shut[role])
                shut_door(loop, role);
            return false;
        }
        gw_id id = gw_accepted(loop->machine, gw_now(), role);
        struct peer *peer = id ? peer_add(loop, id, fd) : NULL;
        if (!peer) {
            gw_close(fd, true);
            gw_broken(loop->machine, gw_now(), id);
            continue;
        }
        peer->readable = peer->writable = true;
        perform_all(loop);
        read_from(loop, id);
    }
    return true;
}

static void receive_some(struct loop *loop, unsigned role)
{
    for (int received = 0; received < DATAGRAMS; received++) {
        struct sockaddr_storage from = {0};
        socklen_t length = sizeof from;
        ssize_t got = recvfrom(loop->roles[role], loop->scratch, SCRATCH, 0,
                               (struct sockaddr *)&from, &length);
        if (got < 0)
            return;
        struct gw_text text = {loop->scratch, (size_t)got};
        gw_datagram(loop->machine, gw_now(), role, gw_address_of(&from), text);
    }
}

static void connected(struct loop *loop, struct peer *peer)
{
    int wrong = 0;
    socklen_t length = sizeof wrong;
    gw_id id = peer->id;
    peer->connecting = false;
    getsockopt(peer->fd, SOL_SOCKET, SO_ERROR, &wrong, &length);
    if (!wrong) {
        peer->readable = peer->writable = true;
        gw_connected(loop->machine, gw_now(), id);
        /* What the server said first may have come along with the connection. */
        read_from(loop, id);
        return;
    }
    /* The machine says no more of a connection that never was. */
    peer_close(loop, peer, false);
    is_unreachable(loop, id, wrong);
}

static void names(struct loop *loop)
{
    gw_id query;
    struct gw_address address;
    bool found;
    while (gw_resolver_answer(loop->resolver, &query, &address, &found))
        gw_resolved(loop->machine, gw_now(), query, found ? &address : NULL);
}

/* Takes nothing new in; what runs goes on to its end. */
static void drain(struct loop *loop)
{
    for (unsigned role = 0; role < gw_program.roles_count; role++) {
        const struct gw_role *about = &gw_program.roles[role];
        if (about->client || loop->roles[role] < 0)
            continue;
        /* A socket for datagrams stays, for answers to leave by it, and gets its part of what
           arrives: that is taken as long as it is there. Of a group whoever takes over gets all. */
        if (about->multicast)
            poller_forget(loop->poller, loop->watched[role], loop->roles[role]);
        if (about->udp)
            continue;
        /* Who waits here was let in by the system, and would be reset. */
        for (int turns = 0; turns < DRAIN_TURNS && accept_some(loop, role); turns++)
            ;
        poller_forget(loop->poller, loop->watched[role], -1);
        gw_close(loop->roles[role], false);
        loop->roles[role] = -1;
        loop->shut[role] = 0;
    }
    loop->until = gw_now() + DRAIN;
    gw_drain(loop->machine, gw_now());
    gw_log("draining");
}

void loop_is_told(struct loop *loop, int signal)
{
    bool again = signal == SIGTERM && loop->until;
    /* Who signals all processes of the group is heard twice by those that the first one leads: it
       alone counts, and says by another signal that they are to end at once. */
    if (again && gw_is_led())
        return;
    gw_pass_on(again ? SIGINT : signal);
    gw_report(loop->machine);
    gw_log("octets_in %llu, at most %llu at one wake-up", (unsigned long long)loop->octets,
           (unsigned long long)loop->octets_at_once);
    if (signal == SIGTERM && !again)
        drain(loop);
    else
        loop->over = loop->over || signal != SIGUSR1;
}

void loop_is_ready(struct loop *loop, uint64_t about, unsigned how)
{
    if (about == ABOUT_NAMES) {
        names(loop);
    } else if (about >= ABOUT_ROLE) {
        unsigned role = (unsigned)(about - ABOUT_ROLE);
        if (gw_program.roles[role].udp)
            receive_some(loop, role);
        else
            accept_some(loop, role);
    } else {
        struct peer *peer = peer_of(loop, about);
        if (peer && peer->connecting) {
            connected(loop, peer);
        } else if (peer) {
            peer->ending = peer->ending || how & READY_END;
            peer->readable = peer->readable || how & (READY_READ | READY_END);
            peer->writable = peer->writable || how & READY_WRITE;
            read_from(loop, about);
            write_to(loop, about);
        }
    }
}

/* Milliseconds until something is due, rounded up; -1 for never. */
static int wait_time(const struct loop *loop)
{
    gw_time at, now = gw_now();
    if (!gw_poll_timeout(loop->machine, &at))
        at = UINT64_MAX;
    if (loop->until && loop->until < at)
        at = loop->until;
    for (unsigned role = 0; role < gw_program.roles_count; role++)
        if (loop->shut[role] && loop->shut[role] < at)
            at = loop->shut[role];
    if (loop->left)
        return 0;
    if (at == UINT64_MAX)
        return -1;
    gw_time wait = at > now ? (at - now + 999) / 1000 : 0;
    return wait > 3600000 ? 3600000 : (int)wait;
}

static bool open_role(struct loop *loop, unsigned role, bool share)
{
    const struct gw_role *about = &gw_program.roles[role];
    const struct gw_target *target = gw_machine_target(loop->machine, role);
    loop->roles[role] = -1;
    if (about->client && !about->udp)
        return true;
    if (!about->client && target->name[0]) {
        gw_log("%s listens on an address, not on the name %s", about->name, target->name);
        return false;
    }
    /* Of a group each socket gets all, whether it shares or not: of several loops the first one
       receives, so that a request is answered once. */
    if (about->udp && !about->client && about->multicast && gw_is_led())
        return true;
    int fd = about->client ? gw_bind_any(&target->address)
             : about->udp  ? gw_bind(&target->address, share || !about->multicast, about->multicast)
                           : gw_listen(&target->address);
    loop->roles[role] = fd;
    if (fd >= 0)
        loop->watched[role] = poller_watch(loop->poller, fd, ABOUT_ROLE + role, false);
    if (loop->watched[role])
        return true;
    gw_log("%s at port %u: %s", about->name, target->address.port, strerror(errno));
    return false;
}

static bool open_all(struct loop *loop, bool share)
{
    int names = -1;
    loop->poller = poller_new(loop);
    loop->resolver = gw_resolver_new(&names);
    loop->roles = calloc(gw_program.roles_count, sizeof *loop->roles);
    loop->watched = calloc(gw_program.roles_count, sizeof *loop->watched);
    loop->shut = calloc(gw_program.roles_count, sizeof *loop->shut);
    if (!loop->poller || !loop->resolver || !loop->roles || !loop->watched || !loop->shut ||
        !poller_watch(loop->poller, names, ABOUT_NAMES, false)) {
        gw_log("no event loop: %s", strerror(errno));
        return false;
    }
    for (unsigned role = 0; role < gw_program.roles_count; role++)
        if (!open_role(loop, role, share))
            return false;
    return true;
}

/* Whether all that runs has come to its end, and nothing waits that nobody else would get. */
static bool is_done(struct loop *loop)
{
    for (unsigned role = 0; role < gw_program.roles_count && gw_is_idle(loop->machine); role++) {
        const struct gw_role *about = &gw_program.roles[role];
        if (about->udp && !about->client && !about->multicast)
            receive_some(loop, role);
        perform_all(loop);
    }
    return gw_is_idle(loop->machine);
}

int gw_serve(struct gw_machine *machine, bool share)
{
    static struct loop loop;
    loop.machine = machine;
    if (!open_all(&loop, share))
        return 1;
    gw_log("ready");
    while (!loop.over) {
        loop.wakeup++;
        if (loop.octets - loop.octets_before > loop.octets_at_once)
            loop.octets_at_once = loop.octets - loop.octets_before;
        loop.octets_before = loop.octets;
        poller_wait(loop.poller, wait_time(&loop));
        perform_all(&loop);
        serve_left(&loop);
        gw_time due;
        if (gw_poll_timeout(machine, &due) && due <= gw_now())
            gw_handle_timeout(machine, gw_now());
        perform_all(&loop);
        gw_see_peers(machine, 0);
        open_doors(&loop);
        if (loop.until && (is_done(&loop) || gw_now() >= loop.until))
            loop.over = true;
    }
    gw_machine_free(machine);
    for (uint32_t index = 0; index < loop.room; index++)
        if (loop.peers[index].id)
            peer_close(&loop, &loop.peers[index], true);
    poller_free(loop.poller);
    free(loop.peers);
    free(loop.roles);
    free(loop.watched);
    free(loop.shut);
    return 0;
}
