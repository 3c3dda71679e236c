#include "cmd/read_speed.h"

#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "base/mem.h"

#define BUFFER_BYTES ((uint64_t)512 << 20)
#define LINE_BYTES   64u
#define LINE_WORDS   (LINE_BYTES / sizeof(uint64_t))
/* As the products read their panels: some streams side by side, each fetched ahead. Without the fetches a third of the
 * rate is lost, with one stream two fifths. */
#define STREAMS     4u
#define AHEAD_BYTES 2048u

static void line_add(const unsigned char *at, uint64_t sum[LINE_WORDS])
{
    uint64_t line[LINE_WORDS];
    __builtin_prefetch((const void *)((uintptr_t)at + AHEAD_BYTES));
    memcpy(line, at, sizeof line);
    for (size_t l = 0; l < LINE_WORDS; l++) {
        sum[l] += line[l];
    }
}

static void read_task(void *arg, size_t task, size_t thread)
{
    const read_piece *r = (const read_piece *)arg + task;
    const unsigned char *data = r->data;
    size_t n_lines = r->n_bytes / LINE_BYTES, each = n_lines / STREAMS;
    uint64_t sum[LINE_WORDS] = {0}, total = 0;
    (void)thread;
    for (size_t i = 0; i < each; i++) {
        for (size_t s = 0; s < STREAMS; s++) {
            line_add(data + (s * each + i) * LINE_BYTES, sum);
        }
    }
    for (size_t i = STREAMS * each; i < n_lines; i++) {
        line_add(data + i * LINE_BYTES, sum);
    }
    for (size_t l = 0; l < LINE_WORDS; l++) {
        total += sum[l];
    }
    __asm__ volatile("" : : "r"(total)); /* looks used, so that no read can be left out */
}

size_t read_pieces_cut(const void *data, size_t n_bytes, read_piece *out, size_t cap)
{
    size_t n = 0;
    for (size_t at = 0; at < n_bytes; at += READ_PIECE_BYTES, n++) {
        if (n < cap) {
            size_t left = n_bytes - at;
            out[n] = (read_piece){(const unsigned char *)data + at,
                                  left < READ_PIECE_BYTES ? left : READ_PIECE_BYTES};
        }
    }
    return n;
}

double read_speed_pass(pool *p, const read_piece *pieces, size_t n)
{
    size_t n_bytes = 0;
    for (size_t i = 0; i < n; i++) {
        n_bytes += pieces[i].n_bytes;
    }
    uint64_t t0 = clock_mono_ns(clock_system());
    pool_run(p, read_task, (void *)(uintptr_t)pieces, n);
    double ms = clock_ms_between(t0, clock_mono_ns(clock_system()));
    return ms > 0 ? (double)n_bytes / 1e6 / ms : 0;
}

void read_buffer_init(read_buffer *b, uint64_t max_bytes)
{
    size_t n_bytes = (size_t)(max_bytes < BUFFER_BYTES ? max_bytes : BUFFER_BYTES);
    *b = (read_buffer){n_bytes > 0 ? mem_reserve(n_bytes) : NULL, n_bytes};
    if (b->data) {
        (void)madvise(b->data, n_bytes, MADV_HUGEPAGE);
        memset(b->data, 1, n_bytes); /* pages that were never written are one page of zeros */
    }
}

void read_buffer_release(read_buffer *b)
{
    mem_unreserve(b->data, b->n_bytes);
    *b = (read_buffer){0};
}

double read_speed_measure(pool *p, uint64_t max_bytes)
{
    enum { PIECES = BUFFER_BYTES / READ_PIECE_BYTES };
    read_piece pieces[PIECES];
    read_buffer b;
    double best = 0;
    read_buffer_init(&b, max_bytes);
    size_t n = b.data ? read_pieces_cut(b.data, b.n_bytes, pieces, PIECES) : 0;
    for (int i = 0; i < 3 && n > 0; i++) {
        double gbs = read_speed_pass(p, pieces, n);
        best = gbs > best ? gbs : best;
    }
    read_buffer_release(&b);
    return best;
}
