/*
 * A gateway program that runs, sans-IO: what arrives goes in, what is to be done comes out.
 *
 * Whoever owns the sockets and the clock tells what happened (gw_accepted, gw_received, ...) and
 * does what gw_poll says until there is nothing. An id that is over is ignored wherever it is
 * given. How much may be read from a connection is gw_room; what is to be written is gw_unsent.
 * A connection with nothing pending has no buffer.
 */
#ifndef GW_MACHINE_H
#define GW_MACHINE_H

#include "gw_message.h"

/* Which one of many: an index and a generation; 0 is none. */
typedef uint64_t gw_id;

/* Microseconds since any epoch. */
typedef uint64_t gw_time;

#define GW_MILLISECONDS(count) ((gw_time)(count) * 1000u)

/* An IP address and a port. */
struct gw_address {
    uint8_t octets[16];
    uint16_t port;
    bool six; /* IPv6: 16 octets, else 4 */
};

/* The longest name of a host (RFC 1035 §2.3.4). */
#define GW_NAME_MAX 253

/* host:port, as programs and configurations write it. */
struct gw_target {
    struct gw_address address; /* its port is that of a name, too */
    char name[GW_NAME_MAX + 1]; /* empty for an address */
};

/* Reads host:port; false if it is none. */
bool gw_target_read(struct gw_target *target, struct gw_text text);

/* ---- A program, as it is generated. ---- */

struct gw_machine;
struct gw_incoming;
struct gw_task;
struct gw_build;

/* Why a handler stopped. */
enum gw_stop {
    GW_FAILS,
    GW_WAITS,
    GW_SENDS,
    GW_RECEIVES,
    GW_SLEEPS,
    GW_GATHERS,
    GW_RETURNS,
    GW_CLOSES,
    GW_OPENED
};

struct gw_handler {
    const char *name;
    const struct gw_message *values; /* its registers */
    enum gw_stop (*run)(struct gw_task *);
    gw_time period; /* of one that runs by the clock */
};

/* An answer without a handler: nothing, a message, the end of the connection, or both. */
struct gw_answer {
    bool (*build)(struct gw_build *);
    bool close;
};

/* Slots that must be equal in a request and its response; also keys of sessions. */
struct gw_key {
    const struct gw_message *view;
    uint16_t request, response;
};

/* A kind of request, and what dispatch waits for. */
struct gw_request {
    const struct gw_message *view;
    const uint16_t *waits;
    uint16_t waits_count;
    void (*dispatch)(struct gw_machine *, struct gw_incoming *, const struct gw_view *);
};

struct gw_role {
    const char *name, *address;
    bool client, udp, async, multicast;
    const struct gw_request *requests;
    unsigned requests_count;
    const struct gw_message *response;
    const struct gw_key *flow;
    unsigned flow_count;
    const uint16_t *flow_waits; /* the response's slots among them */
    uint16_t flow_waits_count;
    const struct gw_answer *greeting;
    const struct gw_handler *opening;
    const struct gw_answer *malformed, *failed, *full;
    const struct gw_answer *too_long[GW_LONG_COUNT]; /* in place of `malformed` */
    gw_time idle; /* 0: none */
    uint32_t connections_max;
    bool reuse, reuse_each_response;
    uint32_t reuse_max;
    gw_time reuse_idle;
    bool shared; /* one connection to a server carries the requests of all sessions */
    uint32_t shared_waiting;
    uint32_t retransmit_times;
    gw_time retransmit_after, retransmit_pause_max;
    bool retransmit_doubling;
    const struct gw_key *duplicates;
    unsigned duplicates_count;
    gw_time duplicates_keep;
};

/* A variable of sessions that stores peers. */
struct gw_peers {
    const char *name;
    unsigned role;
    uint32_t max;
    bool list;                     /* else another one takes the place of the first */
    const struct gw_message *kept; /* what is kept of a request; NULL: nothing */
    const struct gw_key *keys;     /* and where it is there */
    const struct gw_key *mark;     /* by which a request is about what was sent; NULL: none */
};

struct gw_session_kind {
    unsigned role;
    const struct gw_key *keys; /* NULL: the connection is the key, or a value */
    unsigned keys_count;
    bool by_value;
    const struct gw_peers *peers;
    unsigned peers_count;
    const struct gw_message *variables;
    uint32_t sessions_max;
    gw_time idle;
};

struct gw_program {
    const char *name;
    const struct gw_role *roles;
    unsigned roles_count;
    const struct gw_handler *const *handlers;
    unsigned handlers_count;
    const struct gw_session_kind *session; /* NULL: none */
    struct gw_slot *parameters;            /* what is said when it is started */
    unsigned parameters_count;
};

/* The program; generated. */
extern const struct gw_program gw_program;

/* ---- What handlers call. ---- */

/* A message that is being built. */
struct gw_build {
    struct gw_machine *machine;
    unsigned role;
    struct gw_incoming *request; /* what it answers */
    struct gw_view *view;
    gw_id stream; /* the message whose stream it passes on */
    bool lost;    /* no memory */
    bool numbered;
    uint32_t number; /* the fresh one: the same in every hole of a message */
};

/* What was built so far, and the message in a handler's value, as structures of the program. */
#define GW_BUILT(record) ((struct record *)b->view)
#define GW_IN(record, value) ((const struct record *)(value).message)

/* A message with no hole filled, that goes out by a role; false if there is no memory. */
bool gw_begin(struct gw_build *b, unsigned role, const struct gw_message *message);
/* Fill holes; an absent value leaves one absent. */
void gw_fill(struct gw_build *b, struct gw_slot *hole, const struct gw_slot *value);
void gw_fill_number(struct gw_build *b, struct gw_slot *hole, int64_t value);
void gw_fill_text(struct gw_build *b, struct gw_slot *hole, struct gw_text value);
/* A number that no exchange in the air of this role uses; as octets, four of them. */
void gw_fill_fresh(struct gw_build *b, struct gw_slot *hole);
/* The stream of a message that a handler has passes on. */
void gw_fill_stream(struct gw_build *b, struct gw_slot *hole, const struct gw_slot *message);
/* A slot of the request that is answered; an absent one if there is none. */
const struct gw_slot *gw_asked(struct gw_build *b, unsigned index);

/* A handler that runs. */
struct gw_task {
    struct gw_build build; /* what it builds */
    struct gw_view *values;
    unsigned block; /* where it goes on */
    unsigned otherwise;
    struct gw_slot *into;  /* where a response or message goes */
    unsigned role;         /* whom it sends to */
    gw_time within;
    bool respond;
    uint32_t gather_max;   /* 0: one response */
    const struct gw_message *receives;
    struct gw_text address; /* instead of the role's */
    bool addressed;
    bool close;
    bool answers;          /* it returns what it built */
    struct gw_octets text; /* of gw_piece */
};

void gw_set(struct gw_task *t, struct gw_slot *into, const struct gw_slot *value);
void gw_set_text(struct gw_task *t, struct gw_slot *into, struct gw_text value);
void gw_compute(struct gw_slot *into, int64_t value);
int64_t gw_add(int64_t one, int64_t other);
int64_t gw_subtract(int64_t one, int64_t other);
int64_t gw_multiply(int64_t one, int64_t other);
int64_t gw_divide(int64_t one, int64_t other);
int64_t gw_modulo(int64_t one, int64_t other);
void gw_piece(struct gw_task *t, struct gw_text text);
void gw_piece_number(struct gw_task *t, int64_t value);
void gw_formatted(struct gw_task *t, struct gw_slot *into);
/* Octets as small hexadecimal digits. */
void gw_hex(struct gw_task *t, struct gw_slot *into, struct gw_text of);
void gw_folded(struct gw_task *t, struct gw_slot *into, struct gw_text of, enum gw_fold how);
struct gw_text gw_first(struct gw_text text, uint32_t octets);

/* Tests of values that are no slots. */
static inline bool gw_between(int64_t value, int64_t low, int64_t high)
{
    return low <= value && value <= high;
}
static inline bool gw_has_none(const struct gw_slot *list) { return gw_rows(list) == 0; }
static inline bool gw_less(int64_t one, int64_t other) { return one < other; }
static inline bool gw_equal(int64_t one, int64_t other) { return one == other; }

/* What may have no result; true if there is one. */
bool gw_try(struct gw_task *t, struct gw_slot *into, const struct gw_slot *value);
bool gw_after(struct gw_task *t, struct gw_slot *into, struct gw_text of, struct gw_text prefix);
bool gw_past(struct gw_task *t, struct gw_slot *into, struct gw_text of, struct gw_text delimiter);
bool gw_before(struct gw_task *t, struct gw_slot *into, struct gw_text of,
               struct gw_text delimiter);
bool gw_item(struct gw_task *t, struct gw_slot *into, const struct gw_slot *list, int64_t index,
             unsigned column);
bool gw_decimal_of(struct gw_slot *into, struct gw_text of, int64_t high);
/* The octets of a list's rows with a text between them, if they are not more than `max`. */
bool gw_joined(struct gw_task *t, struct gw_slot *into, const struct gw_slot *list,
               struct gw_text separator, uint32_t max);
/* The part behind those that were taken; false behind the last. */
bool gw_next_part(struct gw_task *t, struct gw_text of, struct gw_text separator,
                  struct gw_slot *cursor, struct gw_slot *into);
bool gw_next(struct gw_task *t, const struct gw_slot *list, struct gw_slot *cursor, unsigned count,
             struct gw_slot *const *into);

/* Session variables; one that is read outside of a session is absent. */
const struct gw_slot *gw_variable(struct gw_task *t, unsigned index);
void gw_assign(struct gw_task *t, unsigned index, const struct gw_slot *value);
void gw_assign_number(struct gw_task *t, unsigned index, int64_t value);
void gw_assign_text(struct gw_task *t, unsigned index, struct gw_text value);
void gw_forget(struct gw_task *t, unsigned index);
bool gw_push(struct gw_task *t, struct gw_slot *list, const struct gw_slot *value);
bool gw_push_number(struct gw_task *t, struct gw_slot *list, int64_t value);
bool gw_push_text(struct gw_task *t, struct gw_slot *list, struct gw_text value);
bool gw_add_to(struct gw_task *t, unsigned index, const struct gw_slot *value);
bool gw_add_number_to(struct gw_task *t, unsigned index, int64_t value);
bool gw_add_text_to(struct gw_task *t, unsigned index, struct gw_text value);
bool gw_start_session(struct gw_task *t);
bool gw_resume_session(struct gw_task *t);
bool gw_start_session_as(struct gw_task *t, struct gw_text value);
bool gw_resume_session_as(struct gw_task *t, struct gw_text value);
void gw_end_session(struct gw_task *t);

/* Session variables that store peers. */
bool gw_store(struct gw_task *t, unsigned which);
void gw_part(struct gw_task *t, unsigned which);
void gw_forget_requester(struct gw_task *t);
void gw_clear_peers(struct gw_task *t, unsigned which);
int64_t gw_stored(struct gw_task *t, unsigned which);
bool gw_next_peer(struct gw_task *t, unsigned which, struct gw_slot *cursor);
/* Of the request of the peer that is told; absent if it was absent there. */
const struct gw_slot *gw_kept(struct gw_task *t, unsigned index);
/* The fresh number of what is built, by which an answer is known to be about it. */
void gw_marked(struct gw_task *t, const struct gw_slot *fresh);
/* Sends what was built to the peer that the cursor has taken; false if it cannot be written. */
bool gw_tell(struct gw_task *t, unsigned which, const struct gw_slot *cursor);

bool gw_provisional(struct gw_task *t);
void gw_release(struct gw_task *t, unsigned role);
void gw_hang_up(struct gw_task *t, unsigned role);

/* Waits. Where to go on is in `block` before; the handler returns what these return. */
bool gw_settled(struct gw_task *t, const struct gw_slot *message, unsigned count,
                const uint16_t *slots);
void gw_address(struct gw_task *t, struct gw_text address);
enum gw_stop gw_send(struct gw_task *t, unsigned role, gw_time within, struct gw_slot *into,
                     unsigned then, unsigned otherwise);
enum gw_stop gw_gather(struct gw_task *t, unsigned role, gw_time within, uint32_t max,
                       struct gw_slot *into, unsigned body, unsigned done);
enum gw_stop gw_next_response(struct gw_task *t);
enum gw_stop gw_receive(struct gw_task *t, const struct gw_message *view, gw_time within,
                        struct gw_slot *into, unsigned then, unsigned otherwise);
enum gw_stop gw_sleep(struct gw_task *t, gw_time period, unsigned then);
/* Ends, and answers with what was built, if `answers`. */
enum gw_stop gw_return(struct gw_task *t, bool answers, bool close);

/* What dispatch calls. */
void gw_handle(struct gw_machine *m, struct gw_incoming *request, const struct gw_handler *handler);
void gw_reply(struct gw_machine *m, struct gw_incoming *request, const struct gw_answer *answer);

/* ---- What the owner of sockets and clock calls. ---- */

enum gw_output_kind {
    GW_CONNECT,  /* over TCP, to `address`; then gw_connected or gw_connect_failed */
    GW_WRITE,    /* gw_unsent was empty and is not any more */
    GW_READ,     /* gw_room was 0 and is not any more */
    GW_SHUTDOWN, /* everything is sent; end the sending side and read on */
    GW_CLOSE,    /* the id is over; `reset` the connection or close it */
    GW_DATAGRAM, /* from the role's socket, to `address` */
    GW_RESOLVE   /* `name` with the port in `address`; then gw_resolved */
};

struct gw_output {
    enum gw_output_kind kind;
    gw_id id; /* the connection, or the question */
    unsigned role;
    struct gw_address address;
    struct gw_octets octets; /* of a datagram; to be freed by whoever polled it */
    const char *name;        /* valid until the question is answered */
    bool reset;
};

/* A machine; `seed` is where fresh numbers begin. NULL if an address is none, or no memory. */
struct gw_machine *gw_machine_new(gw_time now, const struct gw_program *program, uint32_t seed);
void gw_machine_free(struct gw_machine *m);
/* Another address for a role, before anything else happens; false if it is none. */
bool gw_machine_address(struct gw_machine *m, unsigned role, const char *address);
const struct gw_target *gw_machine_target(const struct gw_machine *m, unsigned role);

gw_id gw_accepted(struct gw_machine *m, gw_time now, unsigned role);
void gw_connected(struct gw_machine *m, gw_time now, gw_id conn);
void gw_connect_failed(struct gw_machine *m, gw_time now, gw_id conn);
void gw_received(struct gw_machine *m, gw_time now, gw_id conn, struct gw_text octets);
void gw_ended(struct gw_machine *m, gw_time now, gw_id conn);
void gw_broken(struct gw_machine *m, gw_time now, gw_id conn);
void gw_sent(struct gw_machine *m, gw_time now, gw_id conn, size_t octets);
void gw_datagram(struct gw_machine *m, gw_time now, unsigned role, struct gw_address from,
                 struct gw_text octets);
void gw_resolved(struct gw_machine *m, gw_time now, gw_id query, const struct gw_address *address);
void gw_handle_timeout(struct gw_machine *m, gw_time now);
bool gw_poll(struct gw_machine *m, struct gw_output *output);
/* When gw_handle_timeout is due; false if never. It is due at once while a connection that has sent
   many messages waits for its next turn: one of them has it by each call. */
bool gw_poll_timeout(const struct gw_machine *m, gw_time *at);
struct gw_text gw_unsent(struct gw_machine *m, gw_id conn);
size_t gw_room(struct gw_machine *m, gw_id conn);
/* Whether more of the stream that is being written waits behind what is unsent. */
bool gw_has_more(struct gw_machine *m, gw_id conn);

/* What was counted. */
enum gw_count {
    GW_COUNT_ACCEPTED,
    GW_COUNT_FULL,
    GW_COUNT_MALFORMED,
    GW_COUNT_UNBUILDABLE,
    GW_COUNT_IDLE,
    GW_COUNT_BROKEN,
    GW_COUNT_CONNECTED,
    GW_COUNT_CONNECT_FAILED,
    GW_COUNT_REUSED,
    GW_COUNT_REPLACED,
    GW_COUNT_NO_ROOM,
    GW_COUNT_LATE,
    GW_COUNT_RETRANSMITTED,
    GW_COUNT_DUPLICATES,
    GW_COUNT_UNSOLICITED,
    GW_COUNT_STRANGERS,
    GW_COUNT_SESSIONS_FULL,
    GW_COUNT_UNRESOLVED,
    GW_COUNT_SKIPPED,
    GW_COUNT_UNTOLD,
    GW_COUNT_NO_MEMORY,
    GW_COUNTS
};
uint64_t gw_counted(const struct gw_machine *m, enum gw_count what);

/* What a client role has seen of its server: a connection that is ready for requests, the beginning of an
   answer, or why it is regarded as lost. */
enum gw_seen {
    GW_SEEN_CONNECTED,
    GW_SEEN_ANSWERED,
    GW_LOST_UNRESOLVED,  /* its name has no address */
    GW_LOST_UNREACHABLE, /* no connection can be made */
    GW_LOST_CLOSED,      /* it ended a connection in use */
    GW_LOST_SILENT,      /* it did not answer in the time of the program */
    GW_LOST_REFUSED      /* the role's `opening` failed */
};

struct gw_peer_seen {
    unsigned role;
    struct gw_target target;
    enum gw_seen seen;
};
/* The next one, the oldest first; false if there is none. Of too many the oldest are dropped. */
bool gw_poll_peer(struct gw_machine *m, struct gw_peer_seen *seen);
/* Whether connections and answers are told, too, and not only losses. */
void gw_tell_reached(struct gw_machine *m, bool whether);

/* Steps of powers of two of a latency: the last is above an hour. */
#define GW_LATENCY_STEPS 33

/* What one handler did. */
struct gw_handled {
    uint64_t started;
    uint64_t finished; /* it came to an end of its own */
    uint64_t failed;   /* it was ended */
    uint64_t latency[GW_LATENCY_STEPS]; /* from start to end; `n` counts those below 2^n us */
};
const struct gw_handled *gw_handled(const struct gw_machine *m, unsigned handler);

/* Nothing new begins: clocks stand still and kept connections are closed; what runs goes on to its
   end. The owner of the sockets stops listening. */
void gw_drain(struct gw_machine *m, gw_time now);
/* Whether nothing is left to end. */
bool gw_is_idle(const struct gw_machine *m);
const char *gw_count_name(enum gw_count what);

#endif
