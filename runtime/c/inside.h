/* What the files of the machine share; nobody else includes it. */
#ifndef GW_INSIDE_H
#define GW_INSIDE_H

#include "gw_machine.h"

/* Two pages: what waits to be sent of one connection before the other side has to slow down. */
#define BUFFER_OCTETS 8192u
/* Requests of one connection that are handled at once where answers may come in any order. */
#define PIPELINED_MAX 16u
/* Messages of one connection that are begun before the others have their turn. */
#define TURN_MESSAGES 8u
/* Names that may be asked for at once. */
#define QUERIES_MAX 64u
/* What is seen of servers and not polled yet. */
#define PEERS_SEEN_MAX 64u
/* How long a connection that we ended is read from (RFC 9112 §9.6). */
#define LINGER GW_MILLISECONDS(2000)

/* ---- Things with ids ---- */

struct slab {
    void **at;
    uint32_t *generations;
    uint32_t *unused; /* a stack of free indices */
    uint32_t unused_count, used, room;
};

gw_id slab_add(struct slab *slab, void *thing); /* 0 if there is no memory */
void *slab_get(const struct slab *slab, gw_id id);
void *slab_take(struct slab *slab, gw_id id);
void slab_free(struct slab *slab);

/* ---- Time ---- */

enum timer_kind {
    TIMER_TASK,
    TIMER_CONN,
    TIMER_RETRANSMIT,
    TIMER_EXCHANGE,
    TIMER_SESSION,
    TIMER_EVERY,
    TIMER_REPEATS
};

/* A time at which something is due; lies in the thing that it is about. */
struct timer {
    gw_time at;
    uint64_t order;
    uint32_t place; /* in the heap, from 1; 0 is not set */
    enum timer_kind kind;
    gw_id of;
};

struct timers {
    struct timer **heap; /* from 1; with room for those of everything that there is */
    uint32_t count, room;
    uint64_t order;
};

/* Room for so many timers in all; false if there is no memory. */
bool timers_fit(struct timers *timers, size_t count);
void timer_set(struct gw_machine *m, struct timer *timer, gw_time at, enum timer_kind kind,
               gw_id of);
void timer_cancel(struct gw_machine *m, struct timer *timer);

/* ---- Octets to ids ---- */

struct map_entry {
    struct map_entry *next;
    size_t room;
    gw_id value;
    uint32_t hash, length; /* the key follows */
};

struct map {
    struct map_entry **buckets;
    uint32_t count, room;
};

gw_id map_get(const struct map *map, struct gw_text key); /* 0 if it is not there */
bool map_put(struct map *map, struct gw_text key, gw_id value);
void map_remove(struct map *map, struct gw_text key);
void map_free(struct map *map);

/* ---- Lists of ids ---- */

struct ids {
    gw_id *at;
    uint32_t count, room;
};

bool ids_add(struct ids *ids, gw_id id);
bool ids_remove(struct ids *ids, gw_id id);
gw_id ids_first(struct ids *ids); /* takes it; 0 if there is none */
void ids_free(struct ids *ids);

/* ---- The things ---- */

enum conn_state { RESOLVING, CONNECTING, OPEN, CLOSING, LINGERING };

/* Who is told that a message was written. */
enum told { TOLD_NOBODY, TOLD_ANSWER, TOLD_SENT };

/* A message that is to be written, with the stream that it ends with. */
struct letter {
    struct gw_octets octets;
    bool streams;
    struct gw_stream_writer writer;
    gw_id from; /* the message that the stream comes from */
    enum told told;
    gw_id task;
    struct letter *next;
};

struct conn {
    gw_id id;
    unsigned role;
    const struct gw_role *about;
    struct gw_target *target; /* a client's server */
    enum conn_state state;
    gw_id query;
    struct gw_octets unread, unsent;
    bool ended, blocked, skipping;
    bool kept;      /* it was kept from another session and gave no octet since */
    bool releasing; /* it is let go of when its response is read */
    bool hanging;   /* it ends when its response is read */
    struct letter *streaming, *behind, *behind_last;
    gw_id current; /* the message that is being read */
    uint32_t requests;
    uint32_t begun; /* messages since its turn began, or since nothing of it was unread */
    bool waiting;   /* for its next turn, behind the others */
    struct ids tasks, exchanges, waiters;
    gw_id receiver, opening, session;
    struct timer timer;
    gw_time moved;
    struct conn *next; /* in the line of those whose end is still to be told */
    bool reset, untold;
};

enum purpose { REQUEST, HANDLED, UNMATCHED, RESPONSE, RECEIVED, IGNORED };
enum passing { HELD, DISCARDED, PASSED };

/* Who is answered. */
enum requester { NO_ONE, BY_CONN, BY_PEER };

struct gw_incoming {
    gw_id id;
    struct gw_reader reader;
    struct gw_view *view;
    gw_id conn; /* 0 when it is complete */
    enum requester requester;
    gw_id answer_to;
    unsigned role;
    struct gw_address peer;
    struct gw_octets repeat; /* what a repetition of it has in common with it */
    bool repeats;
    enum purpose purpose;
    gw_id exchange, task;
    enum passing passing;
    gw_id sink;
    struct letter *reply; /* what is answered when it is complete */
    gw_id reply_to;       /* and which request that answers */
    bool answered;        /* its own answer waits for a message behind it */
};

enum origin { BY_REQUEST, BY_OPENING, BY_CLOCK };

enum wait {
    WAIT_READY,
    WAIT_SLOTS,
    WAIT_CONNECTION,
    WAIT_RESPONSE,
    WAIT_WRITTEN,
    WAIT_GATHER,
    WAIT_RECEIVE,
    WAIT_SLEEP
};

/* A handler that runs. */
struct running {
    struct gw_task task;
    gw_id id;
    const struct gw_handler *handler;
    enum origin origin;
    unsigned role;  /* of its request or opening */
    gw_id request;
    gw_id conn;     /* where its request came from, or the connection that it opens */
    unsigned clock;
    enum wait wait;
    bool runs, ends; /* it is under way; it is to end when it stops */
    bool finished;   /* it came to an end of its own */
    bool fails;      /* it waits for what will never come */
    gw_id waits_for;
    struct timer timer;
    gw_id own, keyed; /* sessions */
    const struct gw_view *kept; /* of the request of the peer that is told */
    struct gw_octets mark;      /* the fresh number of what it is told */
    /* what it sends */
    struct letter *letter;
    struct gw_octets flow;
    struct gw_target target;
    gw_id query;
    bool new_only;
    gw_time deadline;
    /* responses that are being collected */
    bool gathering;
    gw_id gather_exchange;
    struct ids gathered;
    uint32_t gather_left;
    struct gw_slot *gather_into;
    unsigned gather_body, gather_done;
    const uint16_t *slots;
    gw_time started;
};

/* A request that waits for its response, or for the end of it. */
struct exchange {
    gw_id id;
    unsigned role;
    gw_id task, conn;
    struct gw_address to;
    struct gw_target *target; /* to be sent to again, or of a datagram if that is a name */
    bool by_datagram, begun, gather;
    struct gw_octets flow, octets;
    struct timer timer, repetition;
    gw_time pause, deadline;
    uint32_t left;
};

struct peer;

/* The peers in one variable of a session. */
struct peers {
    struct peer *at;
    uint32_t count, room;
};

struct session {
    gw_id id;
    struct gw_view *variables;
    struct ids conns;
    uint64_t lost; /* roles whose connection was lost, a bit each */
    struct gw_octets key;
    struct peers *peers; /* by variable */
    bool keyed;
    uint32_t users;
    gw_time used;
    struct timer timer;
};

/* What became of a request that may come again. */
struct repeat {
    gw_id id;
    struct gw_octets key, octets; /* no octets: it is handled, or was not answered */
    gw_time until;
};

struct query {
    gw_id id, conn, task;
    char name[GW_NAME_MAX + 1];
};

struct clock {
    const struct gw_handler *handler;
    gw_id running, session;
    struct timer timer;
};

struct role_state {
    struct gw_target address;
    uint32_t connections;
    struct ids kept, shared;
    uint32_t fresh;
    struct map air, repeats;
    struct ids forget;
    struct timer forgetting;
};

struct work {
    enum { WORK_RUN, WORK_READ } kind;
    gw_id of;
};

struct queue {
    uint8_t *at;
    size_t each, first, count, room;
};

bool queue_add(struct queue *queue, const void *thing);
bool queue_take(struct queue *queue, void *thing);

struct gw_machine {
    const struct gw_program *program;
    size_t block;
    gw_time now;
    struct role_state *roles;
    struct clock *clocks;
    unsigned clocks_count;
    struct slab conns, incomings, tasks, sessions, exchanges, queries, repeats, holders;
    struct map keyed, stored; /* sessions by key; holders by place */
    struct timers timers;
    struct queue work, outputs;
    struct queue turns; /* connections that wait for their next turn, each once */
    struct conn *unclosed, *unclosed_last; /* ends that found no room among the outputs */
    bool missed; /* work found no room: whoever may have some is looked at */
    size_t window;
    uint64_t counts[GW_COUNTS];
    struct gw_handled *handled; /* by handler */
    struct gw_peer_seen seen[PEERS_SEEN_MAX]; /* a ring */
    unsigned seen_first, seen_count;
    bool tells_reached;
    bool draining;
};

static inline struct conn *conn_of(struct gw_machine *m, gw_id id) { return slab_get(&m->conns, id); }
static inline struct gw_incoming *incoming_of(struct gw_machine *m, gw_id id)
{
    return slab_get(&m->incomings, id);
}
static inline struct running *task_of(struct gw_machine *m, gw_id id) { return slab_get(&m->tasks, id); }
static inline struct session *session_at(struct gw_machine *m, gw_id id)
{
    return slab_get(&m->sessions, id);
}
static inline struct exchange *exchange_of(struct gw_machine *m, gw_id id)
{
    return slab_get(&m->exchanges, id);
}
static inline void count(struct gw_machine *m, enum gw_count what) { m->counts[what]++; }

/* A block of zeroes from the pool, and back. */
void *take_zeroed(size_t size);
void give(void *thing, size_t size);

/* ---- machine.c ---- */
void settle(struct gw_machine *m);
/* Gives a thing an id, and room for its timers; 0 if there is no memory. */
gw_id thing_add(struct gw_machine *m, struct slab *slab, void *thing);
void work_add(struct gw_machine *m, int kind, gw_id of);
/* False if there is no memory for it: it will not be done. */
bool output_add(struct gw_machine *m, const struct gw_output *output);
void start_clock(struct gw_machine *m, unsigned clock);
void turn_is_over(struct gw_machine *m, unsigned clock);

/* ---- connection.c ---- */
struct conn *conn_new(struct gw_machine *m, unsigned role, enum conn_state state);
void conn_arm(struct gw_machine *m, struct conn *conn);
bool conn_is_clean(const struct conn *conn);
void conn_is_silent(struct gw_machine *m, gw_id id);
void drop_resting(struct gw_machine *m);
void conn_drop(struct gw_machine *m, gw_id id, bool reset);
void conn_lose(struct gw_machine *m, gw_id id);
void let_go_when_free(struct gw_machine *m, gw_id id);
void let_go_if_free(struct gw_machine *m, gw_id id);
void let_go(struct gw_machine *m, gw_id id);
void hang_up(struct gw_machine *m, gw_id id);
void finish_response(struct gw_machine *m, gw_id conn, gw_id incoming);
void close_after_sending(struct gw_machine *m, gw_id id);
void check_closing(struct gw_machine *m, gw_id id);

/* ---- pump.c ---- */
struct letter *letter_new(void);
void letter_free(struct letter *letter);
void put(struct gw_machine *m, gw_id conn, struct letter *letter);
enum gw_turn pump(struct gw_machine *m, struct conn *conn, struct gw_incoming *incoming);
void discard(struct gw_machine *m, gw_id incoming);
bool streams_from(const struct conn *conn, gw_id incoming);

/* ---- reading.c ---- */
void read_on(struct gw_machine *m, gw_id conn);
void take_turn(struct gw_machine *m, gw_id conn);
void forget_if_unused(struct gw_machine *m, gw_id incoming);
void incoming_free(struct gw_machine *m, struct gw_incoming *incoming);
struct gw_incoming *incoming_new(struct gw_machine *m, const struct gw_message *message);

/* ---- answer.c ---- */
bool build_answer(struct gw_machine *m, const struct gw_answer *answer, struct gw_incoming *request,
                  unsigned role, struct gw_octets *octets);
void dispatch(struct gw_machine *m, gw_id incoming);
void reply(struct gw_machine *m, gw_id incoming, struct letter *letter, bool close);
void answer_request(struct gw_machine *m, struct gw_incoming *request, const struct gw_answer *answer);
void answer_conn(struct gw_machine *m, gw_id conn, struct gw_incoming *request,
                 const struct gw_answer *answer);
void settle_request(struct gw_machine *m, gw_id incoming);
void finish_request(struct gw_machine *m, gw_id conn);
/* What a role answers to a message that could not be read. */
const struct gw_answer *malformed_answer(const struct gw_role *role,
                                         const struct gw_incoming *incoming);
void refuse_request(struct gw_machine *m, gw_id conn, gw_id incoming, bool in_line);
void refuse_received(struct gw_machine *m, gw_id conn, gw_id incoming, bool in_line);

/* ---- task.c ---- */
struct running *task_start(struct gw_machine *m, const struct gw_handler *handler,
                           enum origin origin, gw_id of, unsigned clock);
void task_run(struct gw_machine *m, gw_id id);
void task_end(struct gw_machine *m, gw_id id);
void task_fail(struct gw_machine *m, gw_id id);
void go_on(struct gw_machine *m, struct running *task, bool well);
void set_message(struct gw_machine *m, struct gw_slot *slot, struct gw_incoming *incoming);
void let_message_go(struct gw_machine *m, gw_id incoming);
void message_moved(struct gw_machine *m, gw_id task, gw_id incoming);
void message_lost(struct gw_machine *m, gw_id task, gw_id incoming);
void responded(struct gw_machine *m, gw_id task, gw_id incoming);
void gathered(struct gw_machine *m, gw_id task, gw_id incoming);
void gather_is_over(struct gw_machine *m, gw_id task);
void receive_failed(struct gw_machine *m, gw_id task);
void send_failed(struct gw_machine *m, gw_id task);
void wait_is_over(struct gw_machine *m, gw_id task);
void serve_clock(struct gw_machine *m, unsigned clock);

/* ---- build.c ---- */
bool finish_build(struct gw_build *b, struct letter *letter);
/* What requests have in common: their values of the keys of their view. False if there is no memory:
   a part of it would be what others have in common. */
bool key_of(struct gw_octets *key, const struct gw_view *view, const struct gw_key *keys,
            unsigned of);
/* What a request of a view and its response have in common; false if there is no memory. */
bool flow_of(struct gw_octets *flow, const struct gw_role *about, const struct gw_message *request,
             const struct gw_view *view, bool response);

/* A value as octets that are equal if the values are; `lost` says that some are missing. */
void add_value(struct gw_octets *key, const struct gw_slot *slot);

/* ---- exchange.c ---- */
void begin_send(struct gw_machine *m, struct running *task);
void serve_waiters(struct gw_machine *m, gw_id conn);
void conn_is_ready(struct gw_machine *m, gw_id task, gw_id conn);
void begin_opening(struct gw_machine *m, gw_id conn);
void response_begun(struct gw_machine *m, gw_id exchange, gw_id incoming);
void match_response(struct gw_machine *m, gw_id conn, gw_id incoming);
void exchange_end(struct gw_machine *m, gw_id id);
void exchange_lost(struct gw_machine *m, gw_id id, bool kept);
void exchange_abandon(struct gw_machine *m, gw_id id);
void exchange_is_late(struct gw_machine *m, gw_id id);
void sent_whole(struct gw_machine *m, gw_id task);
struct exchange *exchange_new(struct gw_machine *m, struct running *task);
bool ask_name(struct gw_machine *m, const struct gw_target *target, gw_id conn, gw_id task,
              gw_id *query);
void query_end(struct gw_machine *m, gw_id query);

/* ---- reach.c ---- */
/* Of a connection, of the server that a handler was to send a datagram, of an exchange that is too late. */
void server_is_lost(struct gw_machine *m, gw_id conn, enum gw_seen how);
void asked_server_is_lost(struct gw_machine *m, gw_id task, enum gw_seen how);
void exchange_was_silent(struct gw_machine *m, const struct exchange *exchange);
void server_answers(struct gw_machine *m, const struct exchange *exchange);
void server_is_connected(struct gw_machine *m, gw_id conn);
/* It has ended its connection. */
void server_ends(struct gw_machine *m, gw_id conn);

/* ---- datagram.c ---- */
bool add_address(struct gw_octets *key, const struct gw_address *address);
void begin_datagram(struct gw_machine *m, struct running *task);
void send_datagram_to(struct gw_machine *m, gw_id task, const struct gw_address *to);
void retransmit(struct gw_machine *m, gw_id exchange);
void answer_peer(struct gw_machine *m, struct gw_incoming *request, struct letter *letter);
void forget_repeats(struct gw_machine *m, unsigned role);
void peer_is_served(struct gw_machine *m, unsigned role);

/* ---- peers.c ---- */
bool peers_new(struct gw_machine *m, struct session *session);
void peers_free(struct gw_machine *m, struct session *session);
bool stores_connections(const struct gw_machine *m, const struct session *session);
void peer_is_gone(struct gw_machine *m, gw_id conn);

/* ---- session.c ---- */
struct session *session_of(struct gw_machine *m, struct running *task);
void session_end(struct gw_machine *m, gw_id id);
void session_is_unused(struct gw_machine *m, gw_id id);
void leave(struct gw_machine *m, gw_id conn);
void part(struct gw_machine *m, struct conn *conn);
void leave_session(struct gw_machine *m, gw_id session);
void mark_lost(struct gw_machine *m, const struct conn *conn);

#endif
