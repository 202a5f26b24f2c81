/* Sockets: how they are made. */
#define _GNU_SOURCE
#include "sockets.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Connections that wait to be accepted. */
enum { BACKLOG = 1024 };

gw_time gw_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (gw_time)now.tv_sec * 1000000u + (gw_time)now.tv_nsec / 1000u;
}

static size_t least(size_t one, size_t other) { return one < other ? one : other; }

/* The line is written at once: other loops' processes write to the same place. */
void gw_log(const char *format, ...)
{
    char line[1024];
    const size_t last = sizeof line - 1;
    va_list arguments;
    va_start(arguments, format);
    int named = snprintf(line, sizeof line, "%s: ", gw_program.name);
    size_t length = named < 0 ? 0 : least((size_t)named, last);
    int told = vsnprintf(line + length, sizeof line - length, format, arguments);
    length = least(length + (told < 0 ? 0 : (size_t)told), last);
    va_end(arguments);
    line[length] = '\n';
    fwrite(line, 1, length + 1, stderr);
}

socklen_t gw_socket_address(const struct gw_address *address, struct sockaddr_storage *storage)
{
    memset(storage, 0, sizeof *storage);
    if (address->six) {
        struct sockaddr_in6 *six = (struct sockaddr_in6 *)storage;
        six->sin6_family = AF_INET6;
        six->sin6_port = htons(address->port);
        memcpy(&six->sin6_addr, address->octets, 16);
        return sizeof *six;
    }
    struct sockaddr_in *four = (struct sockaddr_in *)storage;
    four->sin_family = AF_INET;
    four->sin_port = htons(address->port);
    memcpy(&four->sin_addr, address->octets, 4);
    return sizeof *four;
}

struct gw_address gw_address_of(const struct sockaddr_storage *storage)
{
    struct gw_address address = {.six = storage->ss_family == AF_INET6};
    if (address.six) {
        const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)storage;
        address.port = ntohs(six->sin6_port);
        memcpy(address.octets, &six->sin6_addr, 16);
    } else {
        const struct sockaddr_in *four = (const struct sockaddr_in *)storage;
        address.port = ntohs(four->sin_port);
        memcpy(address.octets, &four->sin_addr, 4);
    }
    return address;
}

static int new_socket(const struct gw_address *address, int type)
{
    return socket(address->six ? AF_INET6 : AF_INET, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
}

static void set(int fd, int level, int option)
{
    int on = 1;
    setsockopt(fd, level, option, &on, sizeof on);
}

/* What was begun is not kept if it did not come to its end; `errno` stays. */
static int or_close(int fd, bool sound)
{
    if (sound)
        return fd;
    int wrong = errno;
    close(fd);
    errno = wrong;
    return -1;
}

bool gw_is_free(const struct gw_address *address, bool udp)
{
    struct sockaddr_storage storage;
    socklen_t length = gw_socket_address(address, &storage);
    int fd = new_socket(address, udp ? SOCK_DGRAM : SOCK_STREAM);
    if (fd >= 0 && !udp)
        /* Connections of a listener that has ended are no listener. */
        set(fd, SOL_SOCKET, SO_REUSEADDR);
    fd = fd < 0 ? fd : or_close(fd, !bind(fd, (struct sockaddr *)&storage, length));
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

int gw_listen(const struct gw_address *address)
{
    struct sockaddr_storage storage;
    socklen_t length = gw_socket_address(address, &storage);
    int fd = new_socket(address, SOCK_STREAM);
    if (fd < 0)
        return -1;
    set(fd, SOL_SOCKET, SO_REUSEADDR);
    /* Other loops are to have it as well, and who takes over one day. */
    set(fd, SOL_SOCKET, SO_REUSEPORT);
    /* Its connections take it over (Linux), which saves a call for each. */
    set(fd, IPPROTO_TCP, TCP_NODELAY);
    bool sound = !bind(fd, (struct sockaddr *)&storage, length) && !listen(fd, BACKLOG);
    return or_close(fd, sound);
}

int gw_connect(const struct gw_address *address)
{
    struct sockaddr_storage storage;
    socklen_t length = gw_socket_address(address, &storage);
    int fd = new_socket(address, SOCK_STREAM);
    if (fd < 0)
        return -1;
    set(fd, IPPROTO_TCP, TCP_NODELAY);
    bool begun = !connect(fd, (struct sockaddr *)&storage, length) || errno == EINPROGRESS;
    return or_close(fd, begun);
}

void gw_let_out(int fd)
{
    /* It is set already; setting it lets out what is kept back (tcp(7)). */
    set(fd, IPPROTO_TCP, TCP_NODELAY);
}

static bool join(int fd, const struct gw_address *address)
{
    if (address->six) {
        struct ipv6_mreq group = {0};
        memcpy(&group.ipv6mr_multiaddr, address->octets, 16);
        return !setsockopt(fd, IPPROTO_IPV6, IPV6_JOIN_GROUP, &group, sizeof group);
    }
    struct ip_mreq group = {0};
    memcpy(&group.imr_multiaddr, address->octets, 4);
    return !setsockopt(fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &group, sizeof group);
}

int gw_bind(const struct gw_address *address, bool share, bool multicast)
{
    struct sockaddr_storage storage;
    socklen_t length = gw_socket_address(address, &storage);
    int fd = new_socket(address, SOCK_DGRAM);
    if (fd < 0)
        return -1;
    if (multicast)
        set(fd, SOL_SOCKET, SO_REUSEADDR);
    if (share)
        set(fd, SOL_SOCKET, SO_REUSEPORT);
    bool sound = !bind(fd, (struct sockaddr *)&storage, length);
    return or_close(fd, sound && (!multicast || join(fd, address)));
}

int gw_bind_any(const struct gw_address *address)
{
    struct gw_address any = {.six = address->six};
    return gw_bind(&any, false, false);
}

void gw_close(int fd, bool reset)
{
    if (reset) {
        struct linger linger = {.l_onoff = 1};
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
    }
    close(fd);
}
