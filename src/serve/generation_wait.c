/*
 * generation_wait: what a stream is sent while nothing is said: its headers, its place in the queue, signs of
 * life.
 */
#include <stdio.h>

#include "serve/generation_int.h"

size_t run_position(void *ctx, double *estimate_s)
{
    generation_run *r = ctx;
    for (size_t i = 0; i < r->n_choices; i++) {
        if (!r->choices[i].accepted && !r->choices[i].ended) {
            return service_position(r->service, &r->choices[i].job, estimate_s);
        }
    }
    *estimate_s = 0;
    return 0;
}

static void put_place(generation_run *r)
{
    char text[120];
    double estimate_s = 0;
    size_t place = run_position(r, &estimate_s);
    if (place == r->shown_position || (place == 0 && r->shown_position == SIZE_MAX)) {
        return;
    }
    r->shown_position = place;
    if (estimate_s > 0) {
        snprintf(text, sizeof text, "progress {\"queued\":{\"position\":%zu,\"estimate_s\":%.3f}}", place,
                 estimate_s);
    } else {
        snprintf(text, sizeof text, "progress {\"queued\":{\"position\":%zu,\"estimate_s\":null}}", place);
    }
    sse_comment(&r->sse, text);
}

static run_choice *first_open(generation_run *r)
{
    for (size_t i = 0; i < r->n_choices; i++) {
        if (!r->choices[i].ended) {
            return &r->choices[i];
        }
    }
    return NULL;
}

static void keep_alive(generation_run *r)
{
    run_choice *c = first_open(r);
    if (r->api->keepalive_kind == SSE_KEEPALIVE_DELTA && r->route->voice == &run_chunks && c) {
        run_put_chunk(c, "", 0, false, NULL);
    } else {
        sse_comment(&r->sse, "keep-alive");
    }
}

/* Milliseconds from since_ns until what is due after interval_ms is due. */
static uint64_t ms_left(const generation_run *r, uint64_t since_ns, uint64_t interval_ms)
{
    uint64_t due_ns = since_ns + interval_ms * RUN_NS_PER_MS, now = clock_mono_ns(r->api->clock);
    return due_ns > now ? (due_ns - now + RUN_NS_PER_MS - 1) / RUN_NS_PER_MS : 0;
}

static uint64_t quiet_since_ns(const generation_run *r)
{
    return r->sse.began ? r->sse.last_ns : r->created_ns;
}

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

void run_wait(generation_run *r)
{
    uint64_t wait_ms = UINT64_MAX;
    if (r->failed) { /* its end is due at once */
        return;
    }
    if (r->api->keepalive_ms > 0) {
        wait_ms = ms_left(r, quiet_since_ns(r), r->api->keepalive_ms);
    }
    if (!r->sse.began) {
        wait_ms = smaller(wait_ms, ms_left(r, r->created_ns, RUN_HEADERS_MS));
    }
    if (r->progress && r->entry.state == REQUEST_QUEUED) {
        wait_ms = smaller(wait_ms, RUN_PROGRESS_MS);
    }
    if (wait_ms != UINT64_MAX) {
        wait_ms = wait_ms > 0 ? wait_ms : 1;
        const struct timeval wait = {(time_t)(wait_ms / 1000), (suseconds_t)(wait_ms % 1000 * 1000)};
        event_add(r->timer, &wait);
    }
}

void run_wait_over(evutil_socket_t fd, short what, void *ctx)
{
    generation_run *r = ctx;
    if (r->failed) {
        run_fail_no_memory(r);
        return;
    }
    if (r->progress && r->entry.state == REQUEST_QUEUED) {
        put_place(r);
    }
    if (r->api->keepalive_ms > 0 && ms_left(r, quiet_since_ns(r), r->api->keepalive_ms) == 0) {
        keep_alive(r);
    } else if (!r->sse.began && ms_left(r, r->created_ns, RUN_HEADERS_MS) == 0) {
        sse_begin(&r->sse);
    }
    run_wait(r);
}
