/*
 * A machine that is told what happened by lines on standard input, and tells what is to be done:
 *
 *   new                  a machine at time 0; the last one is freed
 *   time MICROSECONDS    time goes by up to there
 *   accept ROLE          tells `conn ID`
 *   connected ID, failed ID, octets ID HEX, end ID, break ID, datagram ROLE HEX, resolved QUERY
 *
 * Told are `connect ID ROLE`, `wrote ID HEX`, `shutdown ID`, `close ID`, `datagram ROLE HEX`,
 * `resolve QUERY NAME`, and a line with a dot behind the last of them.
 */
#include "gw_machine.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINE = 1 << 20 };

static struct gw_machine *machine;
static gw_time now;

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

static void show(const char *what, uint64_t of, struct gw_text text)
{
    printf("%s %" PRIu64 " ", what, of);
    for (size_t at = 0; at < text.length; at++)
        printf("%02x", text.at[at]);
    putchar('\n');
}

static void perform(struct gw_output *output)
{
    struct gw_text text;
    switch (output->kind) {
    case GW_CONNECT:
        printf("connect %" PRIu64 " %u\n", output->id, output->role);
        break;
    case GW_WRITE:
        text = gw_unsent(machine, output->id);
        if (text.length) {
            show("wrote", output->id, text);
            gw_sent(machine, now, output->id, text.length);
        }
        break;
    case GW_SHUTDOWN:
        printf("shutdown %" PRIu64 "\n", output->id);
        break;
    case GW_CLOSE:
        printf("close %" PRIu64 "%s\n", output->id, output->reset ? " reset" : "");
        break;
    case GW_DATAGRAM:
        show("datagram", output->role, gw_octets_text(&output->octets));
        gw_octets_free(&output->octets);
        break;
    case GW_RESOLVE:
        printf("resolve %" PRIu64 " %s\n", output->id, output->name);
        break;
    case GW_READ:
        break;
    }
}

static void settle(void)
{
    struct gw_output output;
    while (gw_poll(machine, &output))
        perform(&output);
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

static void datagram(unsigned role, const char *hex)
{
    struct gw_text text = octets(hex);
    /* A client hears of the server that it asks. */
    struct gw_address from = {.octets = {127, 0, 0, 1}, .port = 4000};
    if (gw_program.roles[role].client)
        from = gw_machine_target(machine, role)->address;
    gw_datagram(machine, now, role, from, text);
    free((void *)(uintptr_t)text.at);
}

static void tell(const char *line)
{
    char word[32] = "";
    uint64_t of = 0;
    int at = 0;
    if (sscanf(line, "%31s %" SCNu64 " %n", word, &of, &at) < 1)
        return;
    if (!strcmp(word, "new")) {
        if (machine)
            gw_machine_free(machine);
        now = 0;
        machine = gw_machine_new(now, &gw_program, 0);
    } else if (!strcmp(word, "time")) {
        pass(of);
    } else if (!strcmp(word, "accept")) {
        printf("conn %" PRIu64 "\n", gw_accepted(machine, now, (unsigned)of));
    } else if (!strcmp(word, "connected")) {
        gw_connected(machine, now, of);
    } else if (!strcmp(word, "failed")) {
        gw_connect_failed(machine, now, of);
    } else if (!strcmp(word, "octets")) {
        receive(of, line + at);
    } else if (!strcmp(word, "end")) {
        gw_ended(machine, now, of);
    } else if (!strcmp(word, "break")) {
        gw_broken(machine, now, of);
    } else if (!strcmp(word, "resolved")) {
        struct gw_address address = {.octets = {192, 0, 2, 53}, .port = 25};
        gw_resolved(machine, now, of, &address);
    } else if (!strcmp(word, "datagram")) {
        datagram((unsigned)of, line + at);
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
    if (machine)
        gw_machine_free(machine);
    if (gw_pool_lent()) {
        fprintf(stderr, "%zu octets were not given back\n", gw_pool_lent());
        return 1;
    }
    gw_pool_trim();
    return 0;
}
