/* The gateway as a program of its own. */
#define _GNU_SOURCE
#include "sockets.h"

#include <ctype.h>
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

/* Octets read of a file: more than any parameter holds. */
enum { FILE_OCTETS_MAX = (1 << 20) + 3 };

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

/* A parameter, what it may be, and whether it has a default, which may be a secret and is not shown. */
static void show_parameter(const struct gw_slot *parameter)
{
    const struct gw_bounds *bounds = &parameter->field->bounds;
    const char *unset = parameter->set ? "" : ", to be set";
    if (bounds->kind == GW_INT)
        fprintf(stderr, "  -s %s: %lld..%lld%s\n", parameter->field->name, (long long)bounds->low,
                (long long)bounds->high, unset);
    else
        fprintf(stderr, "  -s %s: at most %lu octets%s\n", parameter->field->name,
                (unsigned long)bounds->max, unset);
}

/* Sets a parameter; says why not if the value is not within its bounds, without the value, which may be a
   secret. */
static bool set_value(struct gw_slot *parameter, const char *value, size_t length)
{
    const struct gw_bounds *bounds = &parameter->field->bounds;
    const char *name = parameter->field->name;
    if (bounds->kind == GW_INT) {
        char *end;
        errno = 0;
        long long number = strtoll(value, &end, 10);
        if (errno || isspace((unsigned char)value[0]) || end == value || end != value + length ||
            number < bounds->low || number > bounds->high) {
            gw_log("`%s` is a number in %lld..%lld, and this is none", name, (long long)bounds->low,
                   (long long)bounds->high);
            return false;
        }
        parameter->number = number;
    } else {
        if (length > bounds->max) {
            gw_log("`%s` has at most %lu octets, and this has %zu", name, (unsigned long)bounds->max, length);
            return false;
        }
        memcpy(parameter->octets, value, length);
        parameter->length = (uint32_t)length;
    }
    parameter->set = true;
    return true;
}

/* Sets a parameter to what a file holds, without a line's end behind it. */
static bool set_file(struct gw_slot *parameter, const char *path)
{
    const char *name = parameter->field->name;
    FILE *file = fopen(path, "rb");
    if (!file) {
        gw_log("`%s`: %s: %s", name, path, strerror(errno));
        return false;
    }
    char *text = calloc(FILE_OCTETS_MAX + 1, 1);
    size_t length = text ? fread(text, 1, FILE_OCTETS_MAX, file) : 0;
    bool good = text && !ferror(file);
    if (!good)
        gw_log("`%s`: %s: %s", name, path, strerror(errno));
    fclose(file);
    if (length && text[length - 1] == '\n')
        length--;
    if (length && text[length - 1] == '\r')
        length--;
    if (good) {
        text[length] = 0;
        good = set_value(parameter, text, length);
    }
    free(text);
    return good;
}

/* Says which parameters there are. */
static void show_known(const char *name, size_t length)
{
    fprintf(stderr, "%s: the program has no parameter `%.*s`; it has", gw_program.name, (int)length, name);
    for (unsigned at = 0; at < gw_program.parameters_count; at++)
        fprintf(stderr, "%s `%s`", at ? "," : "", gw_program.parameters[at].field->name);
    fprintf(stderr, "%s\n", gw_program.parameters_count ? "" : " none");
}

/* Takes NAME=VALUE, NAME=VARIABLE or NAME=FILE, as the option says; says what is wrong otherwise. */
static bool set_parameter(int option, const char *argument)
{
    const char *equals = strchr(argument, '=');
    if (!equals) {
        const char *value = option == 'f' ? "FILE" : option == 'e' ? "VARIABLE" : "VALUE";
        gw_log("-%c %s: it takes NAME=%s", option, argument, value);
        return false;
    }
    size_t length = (size_t)(equals - argument);
    for (unsigned at = 0; at < gw_program.parameters_count; at++) {
        struct gw_slot *parameter = &gw_program.parameters[at];
        const char *name = parameter->field->name;
        if (strlen(name) != length || strncmp(name, argument, length))
            continue;
        if (option == 'f')
            return set_file(parameter, equals + 1);
        const char *value = option == 'e' ? getenv(equals + 1) : equals + 1;
        if (!value)
            gw_log("`%s`: the environment has no `%s`", name, equals + 1);
        return value && set_value(parameter, value, strlen(value));
    }
    show_known(argument, length);
    return false;
}

static bool all_are_set(void)
{
    for (unsigned at = 0; at < gw_program.parameters_count; at++)
        if (!gw_program.parameters[at].set) {
            gw_log("parameter `%s` has no default and is not set", gw_program.parameters[at].field->name);
            return false;
        }
    return true;
}

static int usage(const char *name)
{
    bool has = gw_program.parameters_count > 0;
    fprintf(stderr, "usage: %s [-n LOOPS] [-r] %s[ROLE=HOST:PORT]...\n", name,
            has ? "[-s NAME=VALUE] [-e NAME=VARIABLE] [-f NAME=FILE] " : "");
    for (unsigned role = 0; role < gw_program.roles_count; role++) {
        const struct gw_role *about = &gw_program.roles[role];
        const char *side = about->client ? "to" : "at";
        fprintf(stderr, "  %s: %s %s\n", about->name, side, about->address);
    }
    for (unsigned at = 0; at < gw_program.parameters_count; at++)
        show_parameter(&gw_program.parameters[at]);
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
    while ((option = getopt(count, arguments, "hn:rs:e:f:")) != -1) {
        if (option == 'r') {
            replaces = true;
            continue;
        }
        if (option == 's' || option == 'e' || option == 'f') {
            if (set_parameter(option, optarg))
                continue;
            return 2;
        }
        loops = option == 'n' ? strtol(optarg, NULL, 10) : 0;
        if (loops < 1 || loops > LOOPS_MAX)
            return usage(arguments[0]);
    }
    if (!all_are_set())
        return 2;
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
