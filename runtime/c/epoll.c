/* Waiting by epoll: streams edge-triggered, each socket registered once. */
#define _GNU_SOURCE
#include "loop.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <unistd.h>

enum { EVENTS = 256 /* at one wake-up */ };

/* What an event is about if it is none of the loop's. */
#define ABOUT_SIGNAL (UINT64_MAX - 1)

struct poller {
    struct loop *loop;
    int epoll, signals;
    struct epoll_event events[EVENTS];
};

static bool watch(struct poller *poller, int fd, uint64_t about, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.u64 = about};
    return !epoll_ctl(poller->epoll, EPOLL_CTL_ADD, fd, &event);
}

struct poller *poller_new(struct loop *loop)
{
    struct poller *poller = calloc(1, sizeof *poller);
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGUSR1);
    sigprocmask(SIG_BLOCK, &signals, NULL);
    if (!poller)
        return NULL;
    poller->loop = loop;
    poller->epoll = epoll_create1(EPOLL_CLOEXEC);
    poller->signals = signalfd(-1, &signals, SFD_NONBLOCK | SFD_CLOEXEC);
    if (poller->epoll >= 0 && poller->signals >= 0 &&
        watch(poller, poller->signals, ABOUT_SIGNAL, EPOLLIN))
        return poller;
    free(poller);
    return NULL;
}

void poller_free(struct poller *poller)
{
    close(poller->epoll);
    close(poller->signals);
    free(poller);
}

void *poller_watch(struct poller *poller, int fd, uint64_t about, bool stream)
{
    uint32_t events = stream ? EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET : EPOLLIN;
    return watch(poller, fd, about, events) ? poller : NULL;
}

void poller_await(void *watched, bool to_read, bool to_write)
{
    /* An edge is told without being asked for. */
    (void)watched, (void)to_read, (void)to_write;
}

void poller_forget(struct poller *poller, void *watched, int fd)
{
    (void)watched;
    if (fd >= 0)
        epoll_ctl(poller->epoll, EPOLL_CTL_DEL, fd, NULL);
}

static void signalled(const struct poller *poller)
{
    struct signalfd_siginfo signal;
    while (read(poller->signals, &signal, sizeof signal) == (ssize_t)sizeof signal)
        loop_is_told(poller->loop, (int)signal.ssi_signo);
}

void poller_wait(struct poller *poller, int milliseconds)
{
    int count = epoll_wait(poller->epoll, poller->events, EVENTS, milliseconds);
    for (int at = 0; at < count; at++) {
        const struct epoll_event *event = &poller->events[at];
        unsigned how = (event->events & EPOLLIN ? READY_READ : 0) |
                       (event->events & EPOLLOUT ? READY_WRITE : 0) |
                       (event->events & ~(uint32_t)(EPOLLIN | EPOLLOUT) ? READY_END : 0);
        if (event->data.u64 == ABOUT_SIGNAL)
            signalled(poller);
        else
            loop_is_ready(poller->loop, event->data.u64, how);
    }
}
