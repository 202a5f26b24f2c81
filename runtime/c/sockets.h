/* Sockets and the clock around the machine; only the I/O includes it. */
#ifndef GW_SOCKETS_H
#define GW_SOCKETS_H

#include "gw_machine.h"

#include <sys/socket.h>

/* A socket's address, and back. */
socklen_t gw_socket_address(const struct gw_address *address, struct sockaddr_storage *storage);
struct gw_address gw_address_of(const struct sockaddr_storage *storage);

/* Whether nobody has an address: who shares it (SO_REUSEPORT) would get every other request. */
bool gw_is_free(const struct gw_address *address, bool udp);

/* Non-blocking sockets; -1 and `errno` if there is none. */
int gw_listen(const struct gw_address *address);
int gw_connect(const struct gw_address *address);
int gw_bind(const struct gw_address *address, bool share, bool multicast);
/* A socket of any port, of the family of an address. */
int gw_bind_any(const struct gw_address *address);
/* What the system keeps back because more was to follow goes out. */
void gw_let_out(int fd);
void gw_close(int fd, bool reset);

/* Names, asked for in a thread of their own. */
struct gw_resolver;
struct gw_resolver *gw_resolver_new(int *answers); /* `answers` is readable when there is one */
bool gw_resolver_ask(struct gw_resolver *resolver, gw_id query, const char *name, uint16_t port);
bool gw_resolver_answer(struct gw_resolver *resolver, gw_id *query, struct gw_address *address,
                        bool *found);

/* One line on standard error, with the gateway's name. */
void gw_log(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* What was counted, and what became of the handlers, line by line. */
void gw_report(const struct gw_machine *machine);

/* Takes what the machine has seen of servers, with the system's error if that is why: a server that is
   lost or back is a line of the log. */
void gw_see_peers(struct gw_machine *machine, int error);

/* Whether another loop's process leads this one, and passes its signals on. */
bool gw_is_led(void);

/* Passes a signal on to the other loops, if this is the first one. */
void gw_pass_on(int signal);

/* Serves the program until a signal ends it; the exit status. */
int gw_serve(struct gw_machine *machine, bool share);
gw_time gw_now(void);

#endif
