/* The event loop, and what it waits with: `epoll.c` or, built with `make LOOP=uv`, `uv.c`. */
#ifndef GW_LOOP_H
#define GW_LOOP_H

#include "sockets.h"

struct loop;
struct poller;

/* How a socket is ready. */
enum { READY_READ = 1, READY_WRITE = 2, READY_END = 4 };

/* Waits for a loop, and hears its signals; NULL if there is none. */
struct poller *poller_new(struct loop *loop);
void poller_free(struct poller *poller);

/* Watches a descriptor; NULL if it cannot be. A stream is told once when it becomes ready; whatever
   else as long as it can be read. */
void *poller_watch(struct poller *poller, int fd, uint64_t about, bool stream);

/* Of a stream: what is waited for from here on. */
void poller_await(void *watched, bool to_read, bool to_write);

/* Watches it no more. One that is closed next has no `fd`: the system forgets it by itself. */
void poller_forget(struct poller *poller, void *watched, int fd);

/* Waits so many milliseconds, for ever if below 0, and tells the loop what is ready. */
void poller_wait(struct poller *poller, int milliseconds);

/* What the poller tells. */
void loop_is_ready(struct loop *loop, uint64_t about, unsigned how);
void loop_is_told(struct loop *loop, int signal);

#endif
