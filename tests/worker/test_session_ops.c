/*
 * The ops of a session that speak of tokens, on a scripted model: what they answer, whom they wait for and who waits for
 * them, that refused ones make and change nothing, cancel, and the files behind save, restore and drop. That ranges
 * come back right is test_session_range.c's; over pipes and between processes it is cases_kept.py's.
 */
#include "base/test_main.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "worker/loop_rig.h"

#define SESSION(id, session, action) \
    "{\"id\":\"" id "\",\"op\":\"session\",\"session_id\":\"" session "\",\"action\":\"" action "\""
/* 40 tokens, one a byte; the model answers three bytes and the end token. */
#define PROMPT "0123456789abcdfghijklmnopqrstuvwxyzABCD>"
#define SAYS   "xyz"
#define KNOWN  43 /* afterwards: the end token is not kept */

static void ask(loop_rig *r, const char *line)
{
    loop_rig_forget(r);
    loop_rig_send(r, line);
    loop_rig_run(r);
    loop_rig_hear(r);
}

static const frame *answer(const loop_rig *r, const char *id, frame_kind kind)
{
    const frame *f = loop_rig_last(r, id);
    assert_non_null(f);
    if (f->kind != kind) {
        fail_msg("%s: kind %d, not %d: %s", id, (int)f->kind, (int)kind, f->text ? f->text : "");
    }
    return f;
}

static const frame *refused(const loop_rig *r, const char *id, status code, const char *field)
{
    const frame *f = answer(r, id, FRAME_ERROR);
    if (f->code != code || strcmp(f->field, field) != 0) {
        fail_msg("%s: code %d, field %s: %s", id, (int)f->code, f->field, f->text);
    }
    return f;
}

static void generate(loop_rig *r, const char *id, const char *of)
{
    char line[256];
    snprintf(line, sizeof line, "{\"id\":\"%s\",\"prompt\":\"" PROMPT "\",\"session_id\":\"%s\"}", id, of);
    loop_rig_send(r, line);
}

static void open_with_session(loop_rig *r)
{
    loop_rig_open(r, SAYS);
    generate(r, "g", "s");
    loop_rig_run(r);
    loop_rig_hear(r);
    assert_string_equal(answer(r, "g", FRAME_DONE)->done.reason, "stop");
}

static const frame_extent *extent(const loop_rig *r, const char *id, frame_kind kind, int64_t tokens)
{
    const frame_extent *x = &answer(r, id, kind)->extent;
    assert_int_equal(x->tokens, tokens);
    return x;
}

static void test_probe(void **state)
{
    static loop_rig r;
    open_with_session(&r);
    ask(&r, SESSION("p", "s", "probe") "}");
    const frame_extent *x = extent(&r, "p", FRAME_PROBE, KNOWN);
    assert_string_equal(x->session_id.data, "s");
    assert_true(x->from == 0 && x->count == KNOWN && x->in_memory == KNOWN && x->stored == 0);
    ask(&r, SESSION("p", "s", "probe") ",\"from\":30}");
    x = extent(&r, "p", FRAME_PROBE, KNOWN);
    assert_true(x->from == 30 && x->count == 13 && x->in_memory == 13);
    ask(&r, SESSION("p", "s", "probe") ",\"from\":43}");
    x = extent(&r, "p", FRAME_PROBE, KNOWN);
    assert_true(x->from == 43 && x->count == 0 && x->in_memory == 0);
    ask(&r, SESSION("p", "s", "probe") ",\"from\":5,\"count\":2}");
    assert_true(extent(&r, "p", FRAME_PROBE, KNOWN)->count == 2);
    ask(&r, SESSION("p", "s", "probe") ",\"cache_namespace\":\"tenant\"}");
    assert_true(extent(&r, "p", FRAME_PROBE, KNOWN)->in_memory == 0);
    static const struct {
        const char *rest, *field;
    } bad[] = {{",\"from\":44}", "from"},
               {",\"from\":9223372036854775807}", "from"},
               {",\"count\":44}", "count"},
               {",\"from\":1,\"count\":9223372036854775807}", "count"}};
    for (size_t i = 0; i < N_OF(bad); i++) {
        char line[256];
        snprintf(line, sizeof line, SESSION("p", "s", "probe") "%s", bad[i].rest);
        ask(&r, line);
        const frame *f = refused(&r, "p", ST_INVALID_FIELD, bad[i].field);
        assert_string_equal(f->session_id.data, "s");
    }
    loop_rig_close(&r);
}

/* None of these makes a session. */
static void test_unknown(void **state)
{
    static const char *const lines[] = {SESSION("u", "nobody", "probe") "}",
                                        SESSION("u", "nobody", "export") ",\"from\":0,\"count\":1}",
                                        SESSION("u", "nobody", "prewarm") "}"};
    static loop_rig r;
    loop_rig_open(&r, SAYS);
    for (size_t i = 0; i < N_OF(lines); i++) {
        ask(&r, lines[i]);
        refused(&r, "u", ST_UNKNOWN_ID, "session_id");
        assert_int_equal(sessions_count(r.sessions), 0);
    }
    loop_rig_close(&r);
}

static const char *bytes_of(const loop_rig *r, const char *id, size_t *n)
{
    for (size_t i = 0; i < r->n_frames; i++) {
        if (r->frames[i].kind == FRAME_EXPORT && strcmp(r->frames[i].id.data, id) == 0) {
            *n = (size_t)r->frames[i].attach_bytes;
            return r->bytes.data + r->attached_at[i];
        }
    }
    fail();
    return NULL;
}

static void import_bytes(loop_rig *r, const char *into, const buf *bytes)
{
    char line[256];
    snprintf(line, sizeof line,
             "{\"id\":\"i\",\"op\":\"session\",\"session_id\":\"%s\",\"action\":\"import\",\"attach\":%zu}",
             into, bytes->len);
    loop_rig_forget(r);
    loop_rig_send_attached(r, line, bytes->data, bytes->len);
    loop_rig_run(r);
    loop_rig_hear(r);
}

static buf exported(loop_rig *r, size_t from, size_t count)
{
    char line[256];
    buf out = {0};
    size_t n = 0;
    snprintf(line, sizeof line, SESSION("e", "s", "export") ",\"from\":%zu,\"count\":%zu}", from, count);
    ask(r, line);
    const frame_extent *x = extent(r, "e", FRAME_EXPORT, KNOWN);
    assert_true(x->from == (int64_t)from && x->count == (int64_t)count);
    const char *bytes = bytes_of(r, "e", &n);
    assert_int_equal(buf_append(&out, bytes, n), ST_OK);
    return out;
}

static void test_export_and_import(void **state)
{
    static loop_rig r;
    open_with_session(&r);
    buf head = exported(&r, 0, 33), tail = exported(&r, 33, 10);
    import_bytes(&r, "t", &tail); /* a hole */
    assert_string_equal(refused(&r, "i", ST_INVALID_FIELD, "from")->session_id.data, "t");
    assert_int_equal(sessions_count(r.sessions), 1); /* it is not opened by what is refused */
    import_bytes(&r, "t", &head);
    const frame_extent *x = extent(&r, "i", FRAME_IMPORT, 33);
    assert_true(x->from == 0 && x->count == 33);
    assert_string_equal(x->session_id.data, "t");
    import_bytes(&r, "t", &tail);
    extent(&r, "i", FRAME_IMPORT, KNOWN);
    head.data[80] ^= 1;
    import_bytes(&r, "t", &head);
    refused(&r, "i", ST_INVALID_FIELD, "checksum");
    /* frames of others stand around the bytes */
    loop_rig_forget(&r);
    loop_rig_send(&r, SESSION("a", "s", "get") "}");
    loop_rig_send(&r, SESSION("e", "t", "export") ",\"from\":33,\"count\":10}");
    loop_rig_send(&r, SESSION("b", "s", "get") "}");
    loop_rig_run(&r);
    loop_rig_hear(&r);
    assert_int_equal(r.n_frames, 3);
    size_t n;
    const char *again = bytes_of(&r, "e", &n);
    assert_int_equal(n, tail.len);
    assert_memory_equal(again, tail.data, n);
    static const struct {
        const char *rest, *field;
    } bad[] = {{",\"from\":44,\"count\":1}", "from"},
               {",\"from\":0,\"count\":44}", "count"},
               {",\"from\":0,\"count\":43,\"cache_namespace\":\"x\"}",
                "from"}}; /* nothing of it is in memory there */
    for (size_t i = 0; i < N_OF(bad); i++) {
        char line[256];
        snprintf(line, sizeof line, SESSION("e", "s", "export") "%s", bad[i].rest);
        ask(&r, line);
        assert_int_equal(refused(&r, "e", ST_INVALID_FIELD, bad[i].field)->attach_bytes, 0);
        assert_int_equal(r.n_frames, 1);
    }
    buf_release(&head);
    buf_release(&tail);
    loop_rig_close(&r);
}

/* The session's tokens are computed again, as a request of nobody: nothing of the session changes. */
static void test_prewarm(void **state)
{
    static loop_rig r;
    open_with_session(&r);
    size_t calls = r.engine.model.n_calls;
    ask(&r, SESSION("w", "s", "prewarm") "}");
    assert_true(extent(&r, "w", FRAME_PREWARMED, KNOWN)->prefilled == 0);
    assert_int_equal(r.engine.model.n_calls, calls);
    ask(&r, SESSION("w", "s", "prewarm") ",\"cache_namespace\":\"other\"}"); /* where nothing is yet */
    assert_true(extent(&r, "w", FRAME_PREWARMED, KNOWN)->prefilled == KNOWN);
    assert_int_equal(r.n_frames, 1); /* no tokens, no `accepted` */
    ask(&r, SESSION("p", "s", "probe") ",\"cache_namespace\":\"other\"}");
    assert_true(extent(&r, "p", FRAME_PROBE, KNOWN)->in_memory == KNOWN);
    ask(&r, SESSION("w", "s", "prewarm") ",\"cache_namespace\":\"other\"}");
    assert_true(extent(&r, "w", FRAME_PREWARMED, KNOWN)->prefilled == 0);
    ask(&r, SESSION("g", "s", "get") "}");
    const frame_session *s = &answer(&r, "g", FRAME_SESSION_INFO)->session;
    assert_true(s->known && s->tokens == KNOWN && !s->dirty && !s->busy);
    /* an empty session is warm */
    ask(&r, SESSION("r", "s", "reset") "}");
    ask(&r, SESSION("w", "s", "prewarm") "}");
    assert_true(extent(&r, "w", FRAME_PREWARMED, 0)->prefilled == 0);
    loop_rig_close(&r);
}

static void test_prewarm_cancelled(void **state)
{
    static loop_rig r;
    open_with_session(&r);
    loop_rig_forget(&r);
    loop_rig_send(&r, SESSION("w", "s", "prewarm") ",\"cache_namespace\":\"other\"}");
    loop_rig_send(&r, SESSION("g", "s", "get") "}");
    loop_rig_turns(&r, 1);
    assert_int_equal(r.tasks.n, 1); /* get waits for nobody */
    loop_rig_send(&r, "{\"id\":\"w\",\"op\":\"cancel\"}");
    loop_rig_run(&r);
    loop_rig_hear(&r);
    const frame *f = answer(&r, "w", FRAME_DONE);
    assert_string_equal(f->done.reason, "cancelled");
    assert_int_equal(loop_rig_count(&r, "w"), 1);
    assert_int_equal(r.tasks.n, 0);
    ask(&r, SESSION("g", "s", "get") "}");
    assert_true(answer(&r, "g", FRAME_SESSION_INFO)->session.tokens == KNOWN);
    assert_false(answer(&r, "g", FRAME_SESSION_INFO)->session.dirty);
    loop_rig_close(&r);
}

/* Ops and requests on one session, in the order read. */
static void test_order(void **state)
{
    static loop_rig r;
    loop_rig_open(&r, SAYS);
    generate(&r, "g1", "s");
    loop_rig_send(&r, SESSION("p1", "s", "probe") "}"); /* of what g1 leaves */
    loop_rig_send(&r, SESSION("w1", "s", "prewarm") ",\"cache_namespace\":\"other\"}");
    loop_rig_send(&r, SESSION("c1", "s", "close") "}"); /* waits for w1 */
    loop_rig_send(&r, SESSION("p2", "s", "probe") "}"); /* it is closed then */
    generate(&r, "g2", "s");                            /* and begins anew */
    loop_rig_send(&r, SESSION("e1", "s", "export") ",\"from\":0,\"count\":43}");
    loop_rig_send(&r, SESSION("x", "t", "probe") "}"); /* another one: waits for nobody */
    loop_rig_run(&r);
    loop_rig_hear(&r);
    extent(&r, "p1", FRAME_PROBE, KNOWN);
    assert_true(extent(&r, "w1", FRAME_PREWARMED, KNOWN)->prefilled == KNOWN);
    answer(&r, "c1", FRAME_CLOSED);
    refused(&r, "p2", ST_UNKNOWN_ID, "session_id");
    assert_string_equal(answer(&r, "g2", FRAME_DONE)->done.session_reset_reason, "new");
    extent(&r, "e1", FRAME_EXPORT, KNOWN);
    refused(&r, "x", ST_UNKNOWN_ID, "session_id");
    size_t at[8] = {0};
    static const char *const ids[] = {"x", "g1", "p1", "w1", "c1", "p2", "g2", "e1"};
    for (size_t i = 0; i < N_OF(ids); i++) {
        for (size_t f = 0; f < r.n_frames; f++) {
            at[i] = strcmp(r.frames[f].id.data, ids[i]) == 0 ? f : at[i];
        }
        assert_true(i == 0 || at[i] > at[i - 1]);
    }
    loop_rig_close(&r);
}

static void test_cache_miss(void **state)
{
    static loop_rig r;
    open_with_session(&r);
    const frame_done *d = &answer(&r, "g", FRAME_DONE)->done;
    assert_string_equal(d->cache_miss_reason, ""); /* nothing was known */
    /* a page and seven tokens are the same */
    ask(&r, "{\"id\":\"m\",\"prompt\":\"0123456789abcdfghijklmnopqrstuvwxyzABCX>\",\"session_id\":\"s\"}");
    d = &answer(&r, "m", FRAME_DONE)->done;
    assert_string_equal(d->cache_miss_reason, "differs");
    assert_int_equal(d->cache_miss_at, 38);
    assert_int_equal(d->reused_prompt_tokens, 38);
    ask(&r,
        "{\"id\":\"n\",\"prompt\":\"0123456789abcdfghijklmnopqrstuvwxyzABCX>xyz>\",\"session_id\":\"s\"}");
    assert_string_equal(answer(&r, "n", FRAME_DONE)->done.cache_miss_reason, ""); /* it only goes on */
    loop_rig_close(&r);
}

/*
 * Files
 */
typedef struct place {
    char dir[64];
    saved s;
} place;

static void place_open(place *p)
{
    snprintf(p->dir, sizeof p->dir, "/tmp/hearth-ops-XXXXXX");
    assert_non_null(mkdtemp(p->dir));
    memset(&p->s, 0, sizeof p->s);
    assert_int_equal(saved_open(&p->s, p->dir, NULL), ST_OK);
    p->s.kv_type = "f32";
    p->s.max_ids = 512;
}

static void place_close(place *p)
{
    saved_close(&p->s);
    assert_int_equal(rmdir(p->dir), 0); /* nothing is left in it */
}

static void test_no_store(void **state)
{
    static const char *const actions[] = {"save", "restore", "drop"};
    static loop_rig r;
    open_with_session(&r);
    for (size_t i = 0; i < N_OF(actions); i++) {
        char line[256];
        snprintf(line, sizeof line,
                 "{\"id\":\"a\",\"op\":\"session\",\"session_id\":\"s\",\"action\":\"%s\",\"name\":\"n\"}",
                 actions[i]);
        ask(&r, line);
        refused(&r, "a", ST_UNSUPPORTED, "action");
    }
    assert_int_equal(r.tasks.n, 0);
    loop_rig_close(&r);
}

static void test_save_and_restore(void **state)
{
    static loop_rig r;
    place p;
    place_open(&p);
    loop_rig_open_saving(&r, SAYS, &p.s);
    loop_rig_start_preparer(&r);
    loop_rig_start_writer(&r);
    ask(&r, SESSION("a", "s", "save") ",\"name\":\"n\"}");
    refused(&r, "a", ST_UNKNOWN_ID, "session_id");
    ask(&r, SESSION("a", "s", "restore") ",\"name\":\"n\"}");
    refused(&r, "a", ST_UNKNOWN_ID, "name");
    assert_int_equal(sessions_count(r.sessions), 0);
    /* all in one go: each waits for what is before it */
    generate(&r, "g", "s");
    loop_rig_send(&r, SESSION("a", "s", "save") ",\"name\":\"n\"}");
    loop_rig_send(&r, SESSION("b", "s", "reset") "}");
    loop_rig_send(&r, SESSION("c", "s", "restore") ",\"name\":\"n\"}");
    generate(&r, "h", "s");
    loop_rig_send(
        &r,
        SESSION("d", "t", "restore") ",\"name\":\"n\"}"); /* another: for nobody, so it may be too early */
    loop_rig_run(&r);
    loop_rig_hear(&r);
    const frame_extent *x = extent(&r, "a", FRAME_SAVED, KNOWN);
    assert_string_equal(x->name.data, "n");
    assert_string_equal(x->session_id.data, "s");
    answer(&r, "b", FRAME_RESET);
    extent(&r, "c", FRAME_RESTORED, KNOWN);
    const frame_done *d = &answer(&r, "h", FRAME_DONE)->done;
    assert_string_equal(d->session_reset_reason, "equal");
    assert_int_equal(d->reused_prompt_tokens, 39);
    /* into one that does not exist, and down */
    ask(&r, SESSION("d", "u", "restore") ",\"name\":\"n\"}");
    extent(&r, "d", FRAME_RESTORED, KNOWN);
    ask(&r, SESSION("p", "u", "probe") "}");
    assert_true(extent(&r, "p", FRAME_PROBE, KNOWN)->in_memory == KNOWN);
    ask(&r, "{\"id\":\"l\",\"prompt\":\"" PROMPT SAYS "and much more>\",\"session_id\":\"u\"}");
    assert_string_equal(answer(&r, "l", FRAME_DONE)->done.session_reset_reason, "exact_prefix");
    ask(&r, SESSION("d", "u", "restore") ",\"name\":\"n\"}");
    extent(&r, "d", FRAME_RESTORED, KNOWN);
    ask(&r, SESSION("d", "nobody", "drop") ",\"name\":\"n\"}"); /* names belong to no session */
    extent(&r, "d", FRAME_DROPPED, KNOWN);
    ask(&r, SESSION("d", "nobody", "drop") ",\"name\":\"n\"}");
    refused(&r, "d", ST_UNKNOWN_ID, "name");
    loop_rig_close(&r);
    place_close(&p);
}

/* While the preparer has it, and before. */
static void test_save_cancelled(void **state)
{
    static loop_rig r;
    place p;
    place_open(&p);
    loop_rig_open_saving(&r, SAYS, &p.s);
    loop_rig_start_writer(&r);
    loop_rig_send(&r, SESSION("a", "s", "restore") ",\"name\":\"n\"}");
    loop_rig_turns(&r, 1);
    assert_int_equal(r.tasks.n_preparing, 1);
    loop_rig_send(&r, SESSION("b", "s", "probe") "}");
    loop_rig_turns(&r, 1);
    assert_int_equal(r.tasks.n, 2); /* it waits */
    loop_rig_send(&r, "{\"id\":\"a\",\"op\":\"cancel\"}");
    loop_rig_turns(&r, 2);
    loop_rig_hear(&r);
    assert_string_equal(answer(&r, "a", FRAME_DONE)->done.reason, "cancelled");
    refused(&r, "b", ST_UNKNOWN_ID, "session_id");
    loop_rig_start_preparer(&r);
    loop_rig_run(&r);
    loop_rig_hear(&r);
    assert_int_equal(loop_rig_count(&r, "a"), 1);
    assert_int_equal(r.tasks.n_preparing, 0);
    loop_rig_close(&r);
    place_close(&p);
}

/* Each allocation fails once: an answer all the same, and nothing half done. */
static void test_memory(void **state)
{
    for (uint64_t at = 1; at < 12; at++) {
        static loop_rig r;
        open_with_session(&r);
        buf head = exported(&r, 0, 43);
        char line[256];
        snprintf(line, sizeof line, SESSION("i", "t", "import") ",\"attach\":%zu}", head.len);
        loop_rig_forget(&r);
        loop_rig_send_attached(&r, line, head.data, head.len);
        mem_fail_at(at, true);
        loop_rig_turns(&r, 1);
        mem_fail_at(0, false);
        loop_rig_run(&r);
        if (!halt_asked(&r.halt)) { /* no memory even for the frame */
            loop_rig_hear(&r);
            const frame *f = loop_rig_last(&r, "i");
            assert_non_null(f);
            assert_int_equal(sessions_count(r.sessions), f->kind == FRAME_IMPORT ? 2 : 1);
        }
        buf_release(&head);
        loop_rig_close(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_probe),
        cmocka_unit_test(test_unknown),
        cmocka_unit_test(test_export_and_import),
        cmocka_unit_test(test_prewarm),
        cmocka_unit_test(test_prewarm_cancelled),
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_cache_miss),
        cmocka_unit_test(test_no_store),
        cmocka_unit_test(test_save_and_restore),
        cmocka_unit_test(test_save_cancelled),
        cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
