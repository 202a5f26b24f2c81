/* Names, asked for in a thread of their own, one after the other. */
#define _GNU_SOURCE
#include "sockets.h"

#include <fcntl.h>
#include <netdb.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A question on its way to the thread, and its answer on the way back. A pipe takes one whole. */
struct question {
    gw_id query;
    char name[GW_NAME_MAX + 1];
    uint16_t port;
};

struct answer {
    gw_id query;
    struct gw_address address;
    bool found;
};

struct gw_resolver {
    int ask[2], answer[2];
};

static void look_up(const struct question *question, struct answer *answer)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list = NULL;
    if (getaddrinfo(question->name, NULL, &hints, &list) || !list)
        return;
    struct sockaddr_storage storage = {0};
    memcpy(&storage, list->ai_addr, list->ai_addrlen);
    answer->address = gw_address_of(&storage);
    answer->address.port = question->port;
    answer->found = true;
    freeaddrinfo(list);
}

static void *serve(void *argument)
{
    const struct gw_resolver *resolver = argument;
    struct question question;
    while (read(resolver->ask[0], &question, sizeof question) == (ssize_t)sizeof question) {
        struct answer answer = {.query = question.query};
        look_up(&question, &answer);
        if (write(resolver->answer[1], &answer, sizeof answer) != (ssize_t)sizeof answer)
            break;
    }
    return NULL;
}

struct gw_resolver *gw_resolver_new(int *answers)
{
    struct gw_resolver *resolver = calloc(1, sizeof *resolver);
    pthread_t thread;
    if (!resolver || pipe2(resolver->ask, O_CLOEXEC) || pipe2(resolver->answer, O_CLOEXEC) ||
        fcntl(resolver->answer[0], F_SETFL, O_NONBLOCK) ||
        fcntl(resolver->ask[1], F_SETFL, O_NONBLOCK) ||
        pthread_create(&thread, NULL, serve, resolver)) {
        free(resolver);
        return NULL;
    }
    pthread_detach(thread);
    *answers = resolver->answer[0];
    return resolver;
}

bool gw_resolver_ask(struct gw_resolver *resolver, gw_id query, const char *name, uint16_t port)
{
    struct question question = {.query = query, .port = port};
    strncpy(question.name, name, GW_NAME_MAX);
    return write(resolver->ask[1], &question, sizeof question) == (ssize_t)sizeof question;
}

bool gw_resolver_answer(struct gw_resolver *resolver, gw_id *query, struct gw_address *address,
                        bool *found)
{
    struct answer answer;
    if (read(resolver->answer[0], &answer, sizeof answer) != (ssize_t)sizeof answer)
        return false;
    *query = answer.query;
    *address = answer.address;
    *found = answer.found;
    return true;
}
