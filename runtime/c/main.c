/* The gateway as a program of its own. */
#define _GNU_SOURCE
#include "sockets.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include <unistd.h>

enum { LOOPS_MAX = 64 };

static int usage(const char *name)
{
    fprintf(stderr, "usage: %s [-n LOOPS] [ROLE=HOST:PORT]...\n", name);
    for (unsigned role = 0; role < gw_program.roles_count; role++) {
        const struct gw_role *about = &gw_program.roles[role];
        const char *side = about->client ? "to" : "at";
        fprintf(stderr, "  %s: %s %s\n", about->name, side, about->address);
    }
    return 2;
}

static bool set_address(struct gw_machine *machine, const char *argument)
{
    const char *equals = strchr(argument, '=');
    for (unsigned role = 0; equals && role < gw_program.roles_count; role++) {
        const char *name = gw_program.roles[role].name;
        size_t length = (size_t)(equals - argument);
        if (strlen(name) == length && !strncmp(name, argument, length))
            return gw_machine_address(machine, role, equals + 1);
    }
    return false;
}

/* As many descriptors as the connections that the program allows, if the system allows them. */
static void raise_limit(void)
{
    struct rlimit limit;
    rlim_t wanted = 64;
    for (unsigned role = 0; role < gw_program.roles_count; role++)
        wanted += gw_program.roles[role].udp ? 1 : gw_program.roles[role].connections_max;
    if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur >= wanted)
        return;
    limit.rlim_cur = limit.rlim_max < wanted ? limit.rlim_max : wanted;
    if (setrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur < wanted)
        gw_log("the system allows %llu descriptors, the program needs up to %llu",
               (unsigned long long)limit.rlim_cur, (unsigned long long)wanted);
}

int main(int count, char **arguments)
{
    int option;
    long loops = 1;
    while ((option = getopt(count, arguments, "hn:")) != -1) {
        loops = option == 'n' ? strtol(optarg, NULL, 10) : 0;
        if (loops < 1 || loops > LOOPS_MAX)
            return usage(arguments[0]);
    }
    raise_limit();
    for (long other = 1; other < loops; other++) {
        if (fork() == 0) {
            prctl(PR_SET_PDEATHSIG, SIGTERM);
            break;
        }
    }
    struct gw_machine *machine =
        gw_machine_new(gw_now(), &gw_program, (uint32_t)gw_now() ^ (uint32_t)getpid());
    if (!machine) {
        gw_log("an address of the program is none");
        return 1;
    }
    for (int at = optind; at < count; at++)
        if (!set_address(machine, arguments[at]))
            return usage(arguments[0]);
    return gw_serve(machine, loops > 1);
}
