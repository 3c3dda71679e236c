/*
 * fuzz_wire_frame: the daemon's end. Any bytes are a frame or a broken one. What was decoded can be written by
 * the encoder of its kind and read back as the same kind with the same id; and from the second time on (numbers
 * are rounded, texts repaired by then) the bytes stay the same.
 */
#include <stdlib.h>
#include <string.h>

#include "wire/frame.h"
#include "wire/line.h"

#define MAX_FRAME 4096
#define ROUNDS    3

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool ok)
{
    if (!ok) {
        abort();
    }
}

static void check_step(const frame *f)
{
    must(f->text && (f->id.data || (f->n_ids == 0 && !f->logprobs)));
    must(!f->logprobs || f->n_logprobs == f->n_ids);
    for (size_t i = 0; i < f->n_ids; i++) {
        must(f->ids[i] >= 0);
    }
}

static status put_error(buf *out, const frame *f)
{
    frame_error e = {
        .id = f->id,
        .code = f->code,
        .msg = f->text,
        .field = f->field,
        .has_value = f->has_value,
        .value = f->value,
        .prompt_tokens = f->prompt_tokens,
        .limit = f->limit,
        .need = f->need,
        .have = f->have,
        .retry_after = f->retry_after,
        .path = f->path,
        .has_session = f->session_id.data != NULL,
        .session_id = f->session_id.data,
        .session_id_len = f->session_id.len,
    };
    return frame_put_error(out, &e);
}

static status put_done(buf *out, const frame *f)
{
    frame_done d = f->done;
    d.has_ids = false; /* a decoded frame does not hold them */
    return frame_put_done(out, f->id, &d);
}

static status put(buf *out, const frame *f)
{
    wire_string text = {f->text, f->text_len};
    frame_step step = {.text = text,
                       .kind = f->delta,
                       .call = f->call,
                       .ids = f->ids,
                       .n_ids = f->n_ids,
                       .logprobs = f->logprobs};
    switch (f->kind) {
    case FRAME_UNKNOWN:
        return buf_append_str(out, "{}\n");
    case FRAME_TOKEN:
        check_step(f);
        return frame_put_token(out, f->id, &step);
    case FRAME_DONE:
        return put_done(out, f);
    case FRAME_ERROR:
        return put_error(out, f);
    case FRAME_READY:
        return frame_put_ready(out, &f->ready);
    case FRAME_OPENED:
    case FRAME_CLOSED:
    case FRAME_RESET:
        return frame_put_session(out, f->id, f->kind, f->session_id);
    case FRAME_ACCEPTED:
        must(strlen(f->accepted.prompt_digest) == SHA256_HEX_LEN);
        return frame_put_accepted(out, f->id, &f->accepted);
    case FRAME_DELTA:
        check_step(f);
        return frame_put_delta(out, f->id, &step);
    case FRAME_PROMPT_LOGPROBS:
        return frame_put_prompt_logprobs(out, f->id, f->logprobs, f->n_logprobs);
    case FRAME_PROGRESS:
        return frame_put_progress(out, f->id, &f->progress);
    case FRAME_TOKENS:
        return frame_put_tokens(out, f->id, f->ids, f->pieces, f->n_ids);
    case FRAME_TEXT:
        return f->count >= 0 ? frame_put_rendered(out, f->id, text, f->count)
                             : frame_put_text(out, f->id, text);
    case FRAME_COUNT:
        return frame_put_count(out, f->id, f->count);
    case FRAME_SESSION_INFO:
        return frame_put_session_info(out, f->id, &f->session);
    case FRAME_STATS:
        return frame_put_stats(out, f->id, &f->stats);
    case FRAME_KV_LIMIT:
        return frame_put_kv_limit(out, f->id, &f->kv_limit);
    case FRAME_EXPORT:
        must(f->attach_bytes > 0);
        return frame_put_extent(out, f->id, f->kind, &f->extent) == ST_OK
                   ? line_add_u64(out, "attach", f->attach_bytes)
                   : ST_NOMEM;
    case FRAME_PREWARMED:
    case FRAME_PROBE:
    case FRAME_IMPORT:
    case FRAME_SAVED:
    case FRAME_RESTORED:
    case FRAME_DROPPED:
        return frame_put_extent(out, f->id, f->kind, &f->extent);
    }
    return ST_INTERNAL;
}

static void check_again(const frame *first)
{
    buf lines[ROUNDS] = {{0}};
    must(put(&lines[0], first) == ST_OK);
    for (size_t i = 0; i < ROUNDS; i++) {
        frame f;
        must(lines[i].len > 1 && lines[i].data[lines[i].len - 1] == '\n');
        must(!memchr(lines[i].data, '\n', lines[i].len - 1));
        must(frame_decode(lines[i].data, lines[i].len - 1, &f, NULL) == ST_OK);
        must(f.kind == first->kind);
        if (f.id.data) {
            must(first->id.data && f.id.len == first->id.len &&
                 memcmp(f.id.data, first->id.data, f.id.len) == 0);
        }
        if (i + 1 < ROUNDS) {
            must(put(&lines[i + 1], &f) == ST_OK);
        }
        frame_release(&f);
    }
    must(lines[1].len == lines[2].len && memcmp(lines[1].data, lines[2].data, lines[1].len) == 0);
    for (size_t i = 0; i < ROUNDS; i++) {
        buf_release(&lines[i]);
    }
}

static bool on_piece(void *ctx, line_kind kind, const char *text, size_t len)
{
    line_splitter *lines = ctx;
    frame f;
    err e;
    if (kind != LINE_TEXT) {
        return true;
    }
    status st = frame_decode(text, len, &f, &e);
    if (st != ST_OK) {
        must(st == ST_BAD_REQUEST && e.code == st && e.msg[0] != '\0');
        return true;
    }
    must(f.attach_bytes <= WIRE_MAX_ATTACH_BYTES && (f.attach_bytes == 0 || f.id.data));
    must(f.id.data || f.kind <= FRAME_RESET);
    if (f.attach_bytes > 0) {
        line_expect_attachment(lines, (size_t)f.attach_bytes);
    }
    check_again(&f);
    frame_release(&f);
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    line_splitter lines;
    line_init(&lines, MAX_FRAME);
    must(line_push(&lines, (const char *)data, size, on_piece, &lines) == ST_OK);
    must(line_end(&lines, on_piece, &lines) == ST_OK);
    line_release(&lines);
    return 0;
}
