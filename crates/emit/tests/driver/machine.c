/*
 * A machine that is told what happened by lines on standard input, and tells what is to be done:
 *
 *   new                  a machine at time 0; the last one is freed
 *   free                 the last one is freed; tells what it kept
 *   lent                 tells how many octets are in use
 *   counted              tells what was counted, each as `WORD NUMBER`
 *   limit OCTETS         of memory are all that there are from here on; 0 for no limit
 *   time MICROSECONDS    time goes by up to there
 *   accept ROLE          tells `conn ID`
 *   connected ID, failed ID, octets ID HEX, end ID, break ID, datagram ROLE HEX, stranger ROLE HEX,
 *   resolved QUERY, unknown QUERY, drain
 *
 * Told are `connect ID ROLE`, `wrote ID HEX`, `shutdown ID`, `close ID`, `datagram ROLE HEX`,
 * `resolve QUERY NAME`, `server rROLE WORD ADDRESS`, and a line with a dot behind the last of them. Connections and names are
 * counted in the order in which they were told.
 */
#include "gw_machine.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINE = 1 << 20 };

static struct gw_machine *machine;
static gw_time now;

/* What was told of, by its number. */
struct told {
    gw_id *ids;
    size_t count, room;
};

static struct told conns, queries;

/* The number of an id; -1 if it was not told. */
static long long number(const struct told *told, gw_id id)
{
    for (size_t at = told->count; at > 0; at--)
        if (told->ids[at - 1] == id)
            return (long long)(at - 1);
    return -1;
}

static long long name(struct told *told, gw_id id)
{
    if (told->count == told->room) {
        told->room = told->room ? 2 * told->room : 64;
        told->ids = realloc(told->ids, told->room * sizeof *told->ids);
        if (!told->ids)
            abort();
    }
    told->ids[told->count] = id;
    return (long long)told->count++;
}

static gw_id id_of(const struct told *told, uint64_t number)
{
    return number < told->count ? told->ids[number] : 0;
}

static struct gw_text octets(const char *hex)
{
    size_t length = strspn(hex, "0123456789abcdef") / 2;
    uint8_t *block = malloc(length ? length : 1);
    for (size_t at = 0; at < length; at++) {
        unsigned octet;
        sscanf(hex + 2 * at, "%2x", &octet);
        block[at] = (uint8_t)octet;
    }
    return (struct gw_text){block, length};
}

static void show(const char *what, long long of, struct gw_text text)
{
    printf("%s %lld ", what, of);
    for (size_t at = 0; at < text.length; at++)
        printf("%02x", text.at[at]);
    putchar('\n');
}

static void perform(struct gw_output *output)
{
    struct gw_text text;
    long long conn = number(&conns, output->id);
    switch (output->kind) {
    case GW_CONNECT:
        if (conn < 0)
            conn = name(&conns, output->id);
        printf("connect %lld %u\n", conn, output->role);
        break;
    case GW_WRITE:
        text = gw_unsent(machine, output->id);
        if (text.length) {
            show("wrote", conn, text);
            gw_sent(machine, now, output->id, text.length);
        }
        break;
    case GW_SHUTDOWN:
        printf("shutdown %lld\n", conn);
        break;
    case GW_CLOSE:
        /* One that ended before anybody heard of it is nobody's. */
        if (conn >= 0)
            printf("close %lld%s\n", conn, output->reset ? " reset" : "");
        break;
    case GW_DATAGRAM:
        show("datagram", output->role, gw_octets_text(&output->octets));
        gw_octets_free(&output->octets);
        break;
    case GW_RESOLVE:
        printf("resolve %lld %s\n", name(&queries, output->id), output->name);
        break;
    case GW_READ:
        break;
    }
}

static void show_peer(const struct gw_peer_seen *peer)
{
    static const char *const words[] = {"connected", "answered", "unresolved", "unreachable",
                                        "closed",    "silent",   "refused"};
    const struct gw_address *address = &peer->target.address;
    char text[INET6_ADDRSTRLEN];
    inet_ntop(address->six ? AF_INET6 : AF_INET, address->octets, text, sizeof text);
    bool six = address->six && !peer->target.name[0];
    printf("server r%u %s %s%s%s:%u\n", peer->role, words[peer->seen], six ? "[" : "",
           peer->target.name[0] ? peer->target.name : text, six ? "]" : "", address->port);
}

static void settle(void)
{
    struct gw_output output;
    while (gw_poll(machine, &output))
        perform(&output);
    struct gw_peer_seen peer;
    while (gw_poll_peer(machine, &peer))
        show_peer(&peer);
}

static void pass(gw_time to)
{
    gw_time due;
    while (gw_poll_timeout(machine, &due) && due <= to) {
        now = due > now ? due : now;
        gw_handle_timeout(machine, now);
        settle();
    }
    now = to;
}

/* Octets in as many turns as there is room for. */
static void receive(gw_id conn, const char *hex)
{
    struct gw_text text = octets(hex);
    for (size_t at = 0, piece; at < text.length; at += piece) {
        piece = gw_room(machine, conn);
        if (!piece)
            break;
        if (piece > text.length - at)
            piece = text.length - at;
        gw_received(machine, now, conn, (struct gw_text){text.at + at, piece});
        settle();
    }
    free((void *)(uintptr_t)text.at);
}

/* A datagram; from where none is expected, if a stranger sends it. */
static void datagram(unsigned role, const char *hex, bool stranger)
{
    struct gw_text text = octets(hex);
    /* A client hears of the server that it asks. */
    struct gw_address from = {.octets = {127, 0, 0, 1}, .port = 4000};
    if (gw_program.roles[role].client)
        from = gw_machine_target(machine, role)->address;
    from.port = (uint16_t)(from.port + stranger);
    gw_datagram(machine, now, role, from, text);
    free((void *)(uintptr_t)text.at);
}

static void leave(void)
{
    if (machine)
        gw_machine_free(machine);
    machine = NULL;
    now = 0;
    conns.count = queries.count = 0;
}

static void accept_one(unsigned role)
{
    gw_id id = gw_accepted(machine, now, role);
    long long conn = name(&conns, id);
    printf("conn %lld\n", conn);
    /* Whoever has the socket closes it. */
    if (!id)
        printf("close %lld\n", conn);
}

/* What happened to a connection or by a name; false if nothing. */
static bool happened(const char *word, gw_id conn, gw_id query, const char *hex)
{
    struct gw_address address = {.octets = {192, 0, 2, 53}, .port = 25};
    if (!strcmp(word, "connected"))
        gw_connected(machine, now, conn);
    else if (!strcmp(word, "failed"))
        gw_connect_failed(machine, now, conn);
    else if (!strcmp(word, "octets"))
        receive(conn, hex);
    else if (!strcmp(word, "end"))
        gw_ended(machine, now, conn);
    else if (!strcmp(word, "break"))
        gw_broken(machine, now, conn);
    else if (!strcmp(word, "resolved"))
        gw_resolved(machine, now, query, &address);
    else if (!strcmp(word, "unknown"))
        gw_resolved(machine, now, query, NULL);
    else
        return false;
    return true;
}

static void tell(const char *line)
{
    char word[32] = "";
    uint64_t of = 0;
    int at = 0;
    if (sscanf(line, "%31s %" SCNu64 " %n", word, &of, &at) < 1)
        return;
    if (!strcmp(word, "free")) {
        leave();
        if (gw_pool_lent())
            printf("kept %zu octets\n", gw_pool_lent());
        return;
    }
    if (!strcmp(word, "lent")) {
        printf("%zu\n", gw_pool_lent());
        return;
    }
    if (!strcmp(word, "counted")) {
        for (unsigned what = 0; what < GW_COUNTS; what++)
            printf("%s %" PRIu64 "\n", gw_count_name((enum gw_count)what),
                   gw_counted(machine, (enum gw_count)what));
        return;
    }
    if (!strcmp(word, "limit")) {
        gw_pool_trim();
        gw_pool_limit(of ? gw_pool_held() + of : SIZE_MAX);
        return;
    }
    if (!strcmp(word, "new")) {
        leave();
        machine = gw_machine_new(now, &gw_program, 0);
        gw_tell_reached(machine, true);
    } else if (!strcmp(word, "time")) {
        pass(of);
    } else if (!strcmp(word, "accept")) {
        accept_one((unsigned)of);
    } else if (!strcmp(word, "datagram") || !strcmp(word, "stranger")) {
        datagram((unsigned)of, line + at, word[0] == 's');
    } else if (!strcmp(word, "drain")) {
        gw_drain(machine, now);
    } else if (!happened(word, id_of(&conns, of), id_of(&queries, of), line + at)) {
        fprintf(stderr, "what is %s?\n", word);
        exit(2);
    }
    settle();
}

int main(void)
{
    static char line[LINE];
    while (fgets(line, sizeof line, stdin)) {
        tell(line);
        puts(".");
        fflush(stdout);
    }
    leave();
    free(conns.ids);
    free(queries.ids);
    if (gw_pool_lent()) {
        fprintf(stderr, "%zu octets were not given back\n", gw_pool_lent());
        return 1;
    }
    gw_pool_trim();
    return 0;
}
