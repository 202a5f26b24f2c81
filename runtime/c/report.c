/* What a gateway says of itself. */
#include "sockets.h"

static void show_counters(const struct gw_machine *machine)
{
    for (unsigned what = 0; what < GW_COUNTS; what++)
        if (gw_counted(machine, what))
            gw_log("%s %llu", gw_count_name(what), (unsigned long long)gw_counted(machine, what));
    gw_log("memory %zu of %zu octets", gw_pool_lent(), gw_pool_held());
}

/* The time in microseconds that so many per cent of a handler's runs were below, to a power of two. */
static unsigned long long percentile(const struct gw_handled *handled, unsigned percent)
{
    uint64_t all = 0, below = 0;
    for (unsigned step = 0; step < GW_LATENCY_STEPS; step++)
        all += handled->latency[step];
    for (unsigned step = 0; step < GW_LATENCY_STEPS; step++) {
        below += handled->latency[step];
        if (below * 100 >= all * percent)
            return 1ull << step;
    }
    return 0;
}

static void show_handlers(const struct gw_machine *machine)
{
    for (unsigned handler = 0; handler < gw_program.handlers_count; handler++) {
        const struct gw_handled *handled = gw_handled(machine, handler);
        if (handled->started)
            gw_log("handler %s: %llu started, %llu finished, %llu failed, half below %llu us, 99 %% "
                   "below %llu us",
                   gw_program.handlers[handler]->name, (unsigned long long)handled->started,
                   (unsigned long long)handled->finished, (unsigned long long)handled->failed,
                   percentile(handled, 50), percentile(handled, 99));
    }
}

void gw_report(const struct gw_machine *machine)
{
    show_counters(machine);
    show_handlers(machine);
}
