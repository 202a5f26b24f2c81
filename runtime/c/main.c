/* The gateway as a program of its own. */
#define _GNU_SOURCE
#include "sockets.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LOOPS_MAX = 64 };

/* The processes of the other loops, which the first one leads. */
static pid_t others[LOOPS_MAX];
static long others_count;
/* The process that leads this one; 0 if none does. */
static pid_t leader;

bool gw_is_led(void) { return leader && getppid() == leader; }

void gw_pass_on(int signal)
{
    for (long at = 0; at < others_count; at++)
        kill(others[at], signal);
}

/* Starts the other loops. */
static void start_others(long loops)
{
    pid_t first = getpid();
    while (others_count + 1 < loops) {
        pid_t child = fork();
        if (child == 0) {
            /* It goes on to the end of what runs if the first one is killed. */
            prctl(PR_SET_PDEATHSIG, SIGTERM);
            others_count = 0;
            leader = first;
            return;
        }
        if (child < 0) {
            gw_log("only %ld loops", others_count + 1);
            return;
        }
        others[others_count++] = child;
    }
}

/* Waits for the other loops; the exit status of all. */
static int join(int status)
{
    if (status)
        gw_pass_on(SIGINT);
    for (long at = 0; at < others_count; at++) {
        int other;
        if (waitpid(others[at], &other, 0) < 0 || other)
            status = 1;
    }
    return status;
}

static int usage(const char *name)
{
    fprintf(stderr, "usage: %s [-n LOOPS] [-r] [ROLE=HOST:PORT]...\n", name);
    for (unsigned role = 0; role < gw_program.roles_count; role++) {
        const struct gw_role *about = &gw_program.roles[role];
        const char *side = about->client ? "to" : "at";
        fprintf(stderr, "  %s: %s %s\n", about->name, side, about->address);
    }
    fprintf(stderr, "  -r: beside the gateway that has these addresses, which is then sent SIGTERM\n");
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

/* Whether one loop runs the whole program: what its handlers share by a value or a field is in one place, and
   what only the clock starts is started once. */
static bool is_of_one_loop(void)
{
    bool served = false;
    for (unsigned role = 0; role < gw_program.roles_count; role++)
        served = served || !gw_program.roles[role].client;
    const struct gw_session_kind *session = gw_program.session;
    return (session && (session->by_value || session->keys)) || !served;
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
        gw_log("the program's limits need %llu descriptors, this process may have %llu (ulimit -n): "
               "connections above that wait at the door",
               (unsigned long long)wanted, (unsigned long long)limit.rlim_cur);
}

/* A machine with these addresses; 0, or the exit status if there is none. */
static int make(struct gw_machine **machine, int count, char **addresses)
{
    *machine = gw_machine_new(gw_now(), &gw_program, (uint32_t)gw_now() ^ (uint32_t)getpid());
    if (!*machine) {
        gw_log("an address of the program is none");
        return 1;
    }
    for (int at = 0; at < count; at++)
        if (!set_address(*machine, addresses[at]))
            return 2;
    return 0;
}

/* Whether nobody serves at the addresses of the program's servers; groups are everybody's. */
static bool is_alone(const struct gw_machine *machine)
{
    for (unsigned role = 0; role < gw_program.roles_count; role++) {
        const struct gw_role *about = &gw_program.roles[role];
        const struct gw_target *target = gw_machine_target(machine, role);
        if (about->client || about->multicast || target->name[0] ||
            gw_is_free(&target->address, about->udp))
            continue;
        gw_log("%s at port %u: %s (-r serves beside who has it)", about->name,
               target->address.port, strerror(errno));
        return false;
    }
    return true;
}

int main(int count, char **arguments)
{
    int option;
    long loops = 1;
    bool replaces = false;
    while ((option = getopt(count, arguments, "hn:r")) != -1) {
        if (option == 'r') {
            replaces = true;
            continue;
        }
        loops = option == 'n' ? strtol(optarg, NULL, 10) : 0;
        if (loops < 1 || loops > LOOPS_MAX)
            return usage(arguments[0]);
    }
    if (is_of_one_loop())
        loops = 1;
    raise_limit();
    struct gw_machine *machine;
    count -= optind;
    int status = make(&machine, count, arguments + optind);
    if (!status && !replaces && !is_alone(machine))
        status = 1;
    if (status)
        return status == 2 ? usage(arguments[0]) : status;
    gw_machine_free(machine);
    start_others(loops);
    /* Each loop has one of its own. */
    status = make(&machine, count, arguments + optind);
    return join(status ? status : gw_serve(machine, loops > 1));
}
