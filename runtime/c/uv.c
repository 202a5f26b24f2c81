/* Waiting by libuv, for systems without epoll: `make LOOP=uv`. It tells of a socket as long as it is
   ready, so that only what was found not to be is waited for. */
#define _GNU_SOURCE
#include "loop.h"

#include <signal.h>
#include <stdlib.h>
#include <uv.h>

enum { SIGNALS = 3 };

struct poller {
    struct loop *loop;
    uv_loop_t uv;
    uv_timer_t timer;
    uv_signal_t signals[SIGNALS];
};

struct watched {
    uv_poll_t poll;
    struct poller *poller;
    uint64_t about;
};

static void on_ready(uv_poll_t *poll, int status, int events)
{
    const struct watched *watched = poll->data;
    unsigned how = (events & UV_READABLE ? READY_READ : 0) | (events & UV_WRITABLE ? READY_WRITE : 0);
    /* What is wrong with it is found by whoever reads. */
    loop_is_ready(watched->poller->loop, watched->about, status < 0 ? READY_READ | READY_WRITE : how);
}

static void on_signal(uv_signal_t *signal, int number)
{
    struct poller *poller = signal->data;
    loop_is_told(poller->loop, number);
}

static void on_time(uv_timer_t *timer) { (void)timer; }

static void on_closed(uv_handle_t *handle) { free(handle->data); }

struct poller *poller_new(struct loop *loop)
{
    static const int numbers[SIGNALS] = {SIGINT, SIGTERM, SIGUSR1};
    struct poller *poller = calloc(1, sizeof *poller);
    if (!poller || uv_loop_init(&poller->uv)) {
        free(poller);
        return NULL;
    }
    poller->loop = loop;
    uv_timer_init(&poller->uv, &poller->timer);
    for (int at = 0; at < SIGNALS; at++) {
        uv_signal_init(&poller->uv, &poller->signals[at]);
        poller->signals[at].data = poller;
        uv_signal_start(&poller->signals[at], on_signal, numbers[at]);
    }
    return poller;
}

static void close_any(uv_handle_t *handle, void *unused)
{
    (void)unused;
    if (!uv_is_closing(handle))
        uv_close(handle, handle->type == UV_POLL ? on_closed : NULL);
}

void poller_free(struct poller *poller)
{
    uv_walk(&poller->uv, close_any, NULL);
    uv_run(&poller->uv, UV_RUN_DEFAULT);
    uv_loop_close(&poller->uv);
    free(poller);
}

void *poller_watch(struct poller *poller, int fd, uint64_t about, bool stream)
{
    struct watched *watched = calloc(1, sizeof *watched);
    if (!watched || uv_poll_init(&poller->uv, &watched->poll, fd)) {
        free(watched);
        return NULL;
    }
    watched->poller = poller;
    watched->about = about;
    watched->poll.data = watched;
    if (!stream)
        uv_poll_start(&watched->poll, UV_READABLE, on_ready);
    return watched;
}

void poller_await(void *watched, bool to_read, bool to_write)
{
    struct watched *of = watched;
    int events = (to_read ? UV_READABLE : 0) | (to_write ? UV_WRITABLE : 0);
    if (events)
        uv_poll_start(&of->poll, events, on_ready);
    else
        uv_poll_stop(&of->poll);
}

void poller_forget(struct poller *poller, void *watched, int fd)
{
    struct watched *of = watched;
    (void)poller, (void)fd;
    if (of && !uv_is_closing((uv_handle_t *)&of->poll))
        uv_close((uv_handle_t *)&of->poll, on_closed);
}

void poller_wait(struct poller *poller, int milliseconds)
{
    /* A timer counts from the time that the loop has read last. */
    uv_update_time(&poller->uv);
    if (milliseconds > 0)
        uv_timer_start(&poller->timer, on_time, (uint64_t)milliseconds, 0);
    else
        uv_timer_stop(&poller->timer);
    uv_run(&poller->uv, milliseconds == 0 ? UV_RUN_NOWAIT : UV_RUN_ONCE);
}
