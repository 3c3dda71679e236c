#include "serve/loop_memory.h"

#include <event2/bufferevent_struct.h>
#include <event2/event_struct.h>

#include "base/mem.h"

static void never(evutil_socket_t fd, short what, void *ctx)
{
    (void)fd;
    (void)what;
    (void)ctx;
}

status loop_memory_reserve(struct event_base *base, size_t n)
{
    const struct timeval far = {1000000, 0};
    struct event *all = mem_alloc_array(n, sizeof *all);
    size_t made = 0;
    status st = all ? ST_OK : ST_NOMEM;
    while (st == ST_OK && made < n) {
        st = evtimer_assign(&all[made], base, never, NULL) == 0 && evtimer_add(&all[made], &far) == 0
                 ? ST_OK
                 : ST_NOMEM;
        made += st == ST_OK;
    }
    while (made > 0) {
        evtimer_del(&all[--made]);
    }
    mem_free(all);
    return st;
}

bool loop_memory_will_write(struct bufferevent *bev)
{
    return event_pending(&bev->ev_write, EV_WRITE, NULL) || bufferevent_enable(bev, EV_WRITE) == 0;
}
