/*
 * fuzz_wire: the worker's end. Bytes cut into lines and attachments at two different places give the same
 * pieces; each line is a request, or gets one whole error frame that our own decoder reads and that carries the
 * id if it is a string; and a request that can be put gives a line that decodes to the same request again.
 */
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "wire/frame.h"
#include "wire/line.h"
#include "wire/request.h"
#include "wire/same_request.h"

#define MAX_LINE     4096
#define MAX_EXPECTED 1000 /* attachments up to here are kept, larger ones skipped */
#define N_VOCAB      1000

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct trail { /* what a way of cutting gave */
    uint64_t hash;
    size_t n_pieces;
    wire_limits limits;
    line_splitter lines;
} trail;

static void must(bool ok)
{
    if (!ok) {
        abort();
    }
}

static void check_ids(const int32_t *ids, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        must(ids[i] >= 0 && ids[i] < N_VOCAB);
    }
}

static void check_ranges(const wire_request *r)
{
    must(r->top_p > 0 && r->top_p <= 1 && r->temperature >= 0 && r->top_k >= 0);
    must(r->max_new_tokens >= (r->id.data ? 0 : 1) || r->max_new_tokens == -1);
    must(r->min_p >= 0 && r->min_p <= 1 && r->repetition_penalty >= 0.01 && r->repetition_penalty <= 100);
    must(r->top_logprobs >= -1 && r->top_logprobs <= WIRE_MAX_TOP_LOGPROBS);
    must(r->prompt_logprobs >= -1 && r->prompt_logprobs <= WIRE_MAX_TOP_LOGPROBS);
    must(r->n_stop_token_ids <= WIRE_MAX_STOP_IDS && r->n_bias <= WIRE_MAX_BIAS);
    must(r->from >= 0 && r->count >= -1 && r->name.len <= WIRE_MAX_SAVE_NAME_BYTES);
    must(r->deadline_ms <= WIRE_MAX_DEADLINE_MS && r->id.len <= WIRE_MAX_ID_BYTES);
    check_ids(r->ids, r->n_ids);
    check_ids(r->stop_token_ids, r->n_stop_token_ids);
    if (r->resume) {
        check_ids(r->resume->ids, r->resume->n_ids);
        check_ids(r->resume->prompt_ids, r->resume->n_prompt_ids);
        must(r->resume->seed >= 1 && r->resume->seed <= WIRE_MAX_SEED && r->resume->now_ms >= 0);
        must(strlen(r->resume->prompt_digest) == SHA256_HEX_LEN);
        must(!r->resume->prompt_ids || r->resume->n_prompt_ids > 0);
    }
    for (size_t i = 0; i < r->n_segments; i++) {
        check_ids(r->segments[i].ids, r->segments[i].n_ids);
    }
    for (size_t i = 0; i < r->n_bias; i++) {
        must(r->bias[i].bias >= -WIRE_MAX_BIAS_VALUE && r->bias[i].bias <= WIRE_MAX_BIAS_VALUE);
        check_ids(&r->bias[i].token, 1);
        must(i == 0 || r->bias[i - 1].token < r->bias[i].token);
    }
}

/* The line of r without its newline; decoding must give r, with this deadline. */
static void check_line(const buf *line, const wire_request *r, const wire_limits *limits,
                       uint64_t deadline_ms)
{
    wire_request *again = NULL;
    buf answer = {0};
    must(line->len > 1 && line->data[line->len - 1] == '\n' && !memchr(line->data, '\n', line->len - 1));
    must(wire_request_decode(line->data, line->len - 1, limits, &again, &answer, NULL, NULL) == ST_OK);
    must(again->deadline_ms == deadline_ms);
    again->deadline_ms = r->deadline_ms;
    must(same_request(r, again));
    wire_request_free(again);
    buf_release(&answer);
}

static void check_round_trip(const wire_request *r, const wire_limits *limits)
{
    buf line = {0};
    if (!r->id.data && r->op != WIRE_DRAIN && r->op != WIRE_SHUTDOWN) {
        return; /* plain lines cannot be put */
    }
    must(wire_request_put(&line, r) == ST_OK);
    check_line(&line, r, limits, r->deadline_ms);
    if ((r->op == WIRE_GENERATE || r->op == WIRE_CHAT) && r->deadline_ms == 0) {
        must(wire_request_put_deadline(&line, 77) == ST_OK);
        check_line(&line, r, limits, 77);
    }
    buf_release(&line);
}

/* What follows the line. */
static uint64_t try_request(const char *text, size_t len, const wire_limits *limits)
{
    wire_request *r = NULL;
    buf answer = {0};
    frame f;
    uint64_t attached = 0;
    status st = wire_request_decode(text, len, limits, &r, &answer, &attached, NULL);
    if (st == ST_OK) {
        must(answer.len == 0 && attached == r->attach_bytes && attached <= WIRE_MAX_ATTACH_BYTES);
        check_ranges(r);
        check_round_trip(r, limits);
        wire_request_free(r);
    } else {
        must(answer.len > 1 && answer.data[answer.len - 1] == '\n');
        must(frame_decode(answer.data, answer.len - 1, &f, NULL) == ST_OK);
        must(f.kind == FRAME_ERROR && f.text_len > 0 && f.code == st);
        frame_release(&f);
    }
    buf_release(&answer);
    return attached;
}

static bool on_piece(void *ctx, line_kind kind, const char *text, size_t len)
{
    trail *t = ctx;
    must(kind != LINE_NO_MEMORY &&
         (kind == LINE_ATTACHMENT || (len <= MAX_LINE && !memchr(text, '\n', len))));
    t->hash = t->hash * 31 + hash64(text, len) + (uint64_t)kind;
    t->n_pieces++;
    uint64_t attached = kind == LINE_TEXT ? try_request(text, len, &t->limits) : 0;
    if (attached > 0 && attached <= MAX_EXPECTED) {
        line_expect_attachment(&t->lines, (size_t)attached);
    } else {
        line_skip_attachment(&t->lines, attached);
    }
    return true;
}

static trail cut(const char *data, size_t size, size_t step)
{
    trail t = {.limits = {.n_vocab = N_VOCAB, .supports_cancel = size % 2 != 0}};
    line_init(&t.lines, MAX_LINE);
    for (size_t at = 0; at < size; at += step) {
        must(line_push(&t.lines, data + at, size - at < step ? size - at : step, on_piece, &t) == ST_OK);
    }
    must(line_end(&t.lines, on_piece, &t) == ST_OK);
    line_release(&t.lines);
    return t;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    trail whole = cut((const char *)data, size, size + 1);
    trail pieces = cut((const char *)data, size, size % 7 + 1);
    must(whole.hash == pieces.hash && whole.n_pieces == pieces.n_pieces);
    return 0;
}
