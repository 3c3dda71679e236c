/*
 * fuzz_wire: bytes cut into lines at two different places give the same lines; each line is a request or gets
 * one whole error frame that our own decoder reads; and each line is tried as a worker's frame.
 */
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "wire/frame.h"
#include "wire/line.h"
#include "wire/request.h"

#define MAX_LINE 4096
#define N_VOCAB  1000

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct trail { /* what a way of cutting gave */
    uint64_t hash;
    size_t n_lines;
    bool decode;
} trail;

static void must(bool ok)
{
    if (!ok) {
        abort();
    }
}

static void try_request(const char *text, size_t len)
{
    wire_request *r = NULL;
    buf answer = {0};
    frame f;
    status st = wire_request_decode(text, len, N_VOCAB, &r, &answer, NULL);
    if (st == ST_OK) {
        must(answer.len == 0 && r->top_p > 0 && r->top_p <= 1 && r->temperature >= 0 && r->top_k >= 0);
        must(r->op != WIRE_GENERATE || r->max_new_tokens == -1 || r->max_new_tokens >= 1 ||
             r->n_segments == 0);
        wire_request_free(r);
    } else {
        must(answer.len > 1 && answer.data[answer.len - 1] == '\n');
        must(frame_decode(answer.data, answer.len - 1, &f, NULL) == ST_OK);
        must(f.kind == FRAME_ERROR && f.text_len > 0);
        frame_release(&f);
    }
    buf_release(&answer);
}

static bool on_line(void *ctx, line_kind kind, const char *text, size_t len)
{
    trail *t = ctx;
    frame f;
    must(kind != LINE_NO_MEMORY && len <= MAX_LINE && !memchr(text, '\n', len));
    t->hash = t->hash * 31 + hash64(text, len) + (uint64_t)kind;
    t->n_lines++;
    if (t->decode && kind == LINE_TEXT) {
        try_request(text, len);
        if (frame_decode(text, len, &f, NULL) == ST_OK) {
            frame_release(&f);
        }
    }
    return true;
}

static trail cut(const char *data, size_t size, size_t step, bool decode)
{
    trail t = {.decode = decode};
    line_splitter s;
    line_init(&s, MAX_LINE);
    for (size_t at = 0; at < size; at += step) {
        must(line_push(&s, data + at, size - at < step ? size - at : step, on_line, &t) == ST_OK);
    }
    must(line_end(&s, on_line, &t) == ST_OK);
    line_release(&s);
    return t;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    trail whole = cut((const char *)data, size, size + 1, true);
    trail pieces = cut((const char *)data, size, size % 7 + 1, false);
    must(whole.hash == pieces.hash && whole.n_lines == pieces.n_lines);
    return 0;
}
