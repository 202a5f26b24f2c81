/* What a gateway says of itself. */
#include "sockets.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* Servers that are known to be lost: the addresses may come from messages. Changes that are told at once,
   and one a second after that. The longest text of a target: a name in brackets, and its port. */
enum { LOST_MAX = 64, TOLD_AT_ONCE = 20, TARGET_TEXT = GW_NAME_MAX + 16 };

#define SECOND GW_MILLISECONDS(1000)

/* One that was silent is not back by a connection: it accepted some before. */
static struct lost {
    unsigned role;
    struct gw_target target;
    gw_time since;
    bool silent;
    char cause[96];
} lost[LOST_MAX];
static unsigned lost_count;

static unsigned long long peers_lost, peers_back, peers_unlisted, peers_untold;

/* A server that comes and goes with each request does not fill the log. */
static bool may_tell(void)
{
    static gw_time may = TOLD_AT_ONCE, found;
    gw_time now = gw_now(), seconds = found ? (now - found) / SECOND : 0;
    found = found ? found + seconds * SECOND : now;
    may = may + seconds > TOLD_AT_ONCE ? TOLD_AT_ONCE : may + seconds;
    peers_untold += !may;
    return may && may--;
}

static void target_text(const struct gw_target *target, char text[TARGET_TEXT])
{
    char address[INET6_ADDRSTRLEN] = "";
    bool six = target->address.six && !target->name[0];
    inet_ntop(six ? AF_INET6 : AF_INET, target->address.octets, address, sizeof address);
    snprintf(text, TARGET_TEXT, six ? "[%s]:%u" : "%s:%u", target->name[0] ? target->name : address,
             target->address.port);
}

static bool is_same(const struct lost *one, const struct gw_peer_seen *seen)
{
    const struct gw_address *a = &one->target.address, *b = &seen->target.address;
    return one->role == seen->role && a->port == b->port && a->six == b->six &&
           !memcmp(a->octets, b->octets, sizeof a->octets) &&
           !strcmp(one->target.name, seen->target.name);
}

static const char *cause_of(enum gw_seen seen, int error)
{
    switch (seen) {
    case GW_LOST_UNRESOLVED:
        return "its name cannot be resolved";
    case GW_LOST_SILENT:
        return "it did not answer in time";
    case GW_LOST_REFUSED:
        return "the opening of the connection failed: it did not answer as the program expects";
    case GW_LOST_CLOSED:
        return error ? strerror(error) : "it closed the connection";
    default:
        return error ? strerror(error) : "no connection can be made";
    }
}

static void is_lost(const struct gw_peer_seen *seen, int error)
{
    if (lost_count == LOST_MAX) {
        peers_unlisted++;
        return;
    }
    struct lost *one = &lost[lost_count++];
    *one = (struct lost){.role = seen->role, .target = seen->target, .since = gw_now(),
                         .silent = seen->seen == GW_LOST_SILENT};
    snprintf(one->cause, sizeof one->cause, "%s", cause_of(seen->seen, error));
    peers_lost++;
    char text[TARGET_TEXT];
    target_text(&seen->target, text);
    if (may_tell())
        gw_log("peer-lost: cannot reach its %s at %s: %s", gw_program.roles[seen->role].name, text,
               one->cause);
}

static void is_back(struct lost *one)
{
    char text[TARGET_TEXT];
    target_text(&one->target, text);
    peers_back++;
    if (may_tell())
        gw_log("peer-back: reaches its %s at %s again, after %llu s", gw_program.roles[one->role].name,
               text, (unsigned long long)((gw_now() - one->since) / SECOND));
    *one = lost[--lost_count];
}

void gw_see_peers(struct gw_machine *machine, int error)
{
    struct gw_peer_seen seen;
    while (gw_poll_peer(machine, &seen)) {
        bool reached = seen.seen == GW_SEEN_CONNECTED || seen.seen == GW_SEEN_ANSWERED;
        unsigned at = 0;
        while (at < lost_count && !is_same(&lost[at], &seen))
            at++;
        if (!reached && at == lost_count)
            is_lost(&seen, error);
        else if (reached && at < lost_count &&
                 (seen.seen == GW_SEEN_ANSWERED || !lost[at].silent))
            is_back(&lost[at]);
    }
    gw_tell_reached(machine, lost_count > 0);
}

static void show_count(const char *word, unsigned long long times)
{
    if (times)
        gw_log("%s %llu", word, times);
}

/* What was counted of servers, and who is lost now. */
static void show_lost(void)
{
    show_count("peers_lost", peers_lost);
    show_count("peers_back", peers_back);
    show_count("peers_unlisted", peers_unlisted);
    show_count("peers_untold", peers_untold);
    for (unsigned at = 0; at < lost_count; at++) {
        char text[TARGET_TEXT];
        target_text(&lost[at].target, text);
        gw_log("lost: %s at %s: %s", gw_program.roles[lost[at].role].name, text, lost[at].cause);
    }
}

static void show_counters(const struct gw_machine *machine)
{
    for (unsigned what = 0; what < GW_COUNTS; what++)
        if (gw_counted(machine, what))
            gw_log("%s %llu", gw_count_name(what), (unsigned long long)gw_counted(machine, what));
    gw_log("memory %zu of %zu octets", gw_pool_lent(), gw_pool_held());
}

/* The time in microseconds that so many per cent of a handler's runs were below, to a power of two. */
static unsigned long long percentile(const struct gw_handled *handled, unsigned percent)
{
    uint64_t all = 0, below = 0;
    for (unsigned step = 0; step < GW_LATENCY_STEPS; step++)
        all += handled->latency[step];
    for (unsigned step = 0; step < GW_LATENCY_STEPS; step++) {
        below += handled->latency[step];
        if (below * 100 >= all * percent)
            return 1ull << step;
    }
    return 0;
}

static void show_handlers(const struct gw_machine *machine)
{
    for (unsigned handler = 0; handler < gw_program.handlers_count; handler++) {
        const struct gw_handled *handled = gw_handled(machine, handler);
        if (handled->started)
            gw_log("handler %s: %llu started, %llu finished, %llu failed, half below %llu us, 99 %% "
                   "below %llu us",
                   gw_program.handlers[handler]->name, (unsigned long long)handled->started,
                   (unsigned long long)handled->finished, (unsigned long long)handled->failed,
                   percentile(handled, 50), percentile(handled, 99));
    }
}

void gw_report(const struct gw_machine *machine)
{
    show_counters(machine);
    show_lost();
    show_handlers(machine);
}
