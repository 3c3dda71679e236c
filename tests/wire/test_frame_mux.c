/*
 * The multiplexed dialect's frames (PROTOCOL 4): their text, that the daemon reads back what the worker wrote,
 * and that it believes nothing else.
 */
#include "base/test_main.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "wire/frame.h"
#include "wire/line.h"

#define S(text) ((wire_string){(text), sizeof(text) - 1})
#define ID      S("r")

static frame decode_ok(const char *line, size_t len)
{
    frame f;
    err e;
    status st = frame_decode(line, len, &f, &e);
    if (st != ST_OK) {
        print_error("%.*s: %s\n", (int)len, line, e.msg);
    }
    assert_int_equal(st, ST_OK);
    return f;
}

static frame decode_text(const char *line)
{
    return decode_ok(line, strlen(line));
}

/* Checks the text of the one frame in b, decodes it and empties b. */
static frame read_back(buf *b, const char *want, frame_kind kind)
{
    assert_string_equal(b->data, want);
    frame f = decode_ok(b->data, b->len - 1);
    assert_int_equal(f.kind, kind);
    assert_string_equal(f.id.data, "r");
    assert_true(f.attach_bytes == 0);
    buf_reset(b);
    return f;
}

/* SHA-256 of the four-byte little-endian integers, from Python's hashlib:
 *   hashlib.sha256(struct.pack('<3i', 1, 2, 2147483647)).hexdigest() */
#define DIGEST_OF_1_2_MAX "74aa326617f00d2d252a24a9b0a9669c8f96fc9531abfbfb344cd9ca2aa9c633"
#define DIGEST_OF_NOTHING "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

static void test_accepted(void **state)
{
    static const int32_t ids[] = {1, 2, 2147483647};
    char hex[SHA256_HEX_LEN + 1];
    buf b = {0};
    assert_int_equal(frame_prompt_digest(ids, 0, hex), ST_OK);
    assert_string_equal(hex, DIGEST_OF_NOTHING);
    assert_int_equal(frame_prompt_digest(ids, 3, hex), ST_OK);
    assert_string_equal(hex, DIGEST_OF_1_2_MAX);
    frame_accepted a = {.seed = INT64_MAX,
                        .now_ms = 1700000000123,
                        .prompt_tokens = 3,
                        .prompt_digest = hex,
                        .cached_prompt_tokens = 2};
    assert_int_equal(frame_put_accepted(&b, ID, &a), ST_OK);
    frame f = read_back(&b,
                        "{\"id\":\"r\",\"accepted\":{\"seed\":9223372036854775807,\"now\":1700000000123,"
                        "\"prompt_tokens\":3,\"prompt_digest\":\"" DIGEST_OF_1_2_MAX "\","
                        "\"cached_prompt_tokens\":2}}\n",
                        FRAME_ACCEPTED);
    assert_true(f.accepted.seed == INT64_MAX && f.accepted.now_ms == 1700000000123);
    assert_int_equal(f.accepted.prompt_tokens, 3);
    assert_int_equal(f.accepted.cached_prompt_tokens, 2);
    assert_string_equal(f.accepted.prompt_digest, hex);
    assert_null(f.accepted.prompt_ids);
    frame_release(&f);
    a.prompt_ids = ids;
    assert_int_equal(frame_put_accepted(&b, ID, &a), ST_OK);
    f = read_back(&b,
                  "{\"id\":\"r\",\"accepted\":{\"seed\":9223372036854775807,\"now\":1700000000123,"
                  "\"prompt_tokens\":3,\"prompt_digest\":\"" DIGEST_OF_1_2_MAX "\","
                  "\"cached_prompt_tokens\":2,\"prompt_ids\":[1,2,2147483647]}}\n",
                  FRAME_ACCEPTED);
    assert_memory_equal(f.accepted.prompt_ids, ids, sizeof ids);
    frame_release(&f);
    buf_release(&b);
}

static void test_token(void **state)
{
    static const int32_t ids[] = {5, 0};
    buf b = {0};
    frame_step s = {.text = S("a\0\""), .ids = ids, .n_ids = 2};
    assert_int_equal(frame_put_token(&b, S("r"), &s), ST_OK);
    frame f = read_back(&b, "{\"id\":\"r\",\"token\":\"a\\u0000\\\"\",\"ids\":[5,0]}\n", FRAME_TOKEN);
    assert_int_equal(f.text_len, 3);
    assert_memory_equal(f.text, "a\0\"", 4);
    assert_int_equal(f.n_ids, 2);
    assert_memory_equal(f.ids, ids, sizeof ids);
    assert_null(f.logprobs);
    frame_release(&f);

    s = (frame_step){.ids = ids, .n_ids = 1}; /* held back: an id without text */
    assert_int_equal(frame_put_token(&b, ID, &s), ST_OK);
    f = read_back(&b, "{\"id\":\"r\",\"token\":\"\",\"ids\":[5]}\n", FRAME_TOKEN);
    assert_true(f.text_len == 0 && f.n_ids == 1);
    frame_release(&f);
    s = (frame_step){.text = S("x")}; /* released: text without an id */
    assert_int_equal(frame_put_token(&b, ID, &s), ST_OK);
    f = read_back(&b, "{\"id\":\"r\",\"token\":\"x\",\"ids\":[]}\n", FRAME_TOKEN);
    assert_int_equal(f.n_ids, 0);
    frame_release(&f);
    assert_int_equal(frame_put_delta(&b, ID, &s), ST_OK);
    f = read_back(&b, "{\"id\":\"r\",\"delta\":{\"content\":\"x\"},\"ids\":[]}\n", FRAME_DELTA);
    assert_string_equal(f.text, "x");
    frame_release(&f);
    buf_release(&b);
}

static void test_deltas(void **state)
{
    static const int32_t ids[] = {5};
    buf b = {0};
    frame_step s = {.text = S("hm"), .kind = FRAME_DELTA_REASONING, .ids = ids, .n_ids = 1};
    assert_int_equal(frame_put_delta(&b, ID, &s), ST_OK);
    frame f = read_back(&b, "{\"id\":\"r\",\"delta\":{\"reasoning\":\"hm\"},\"ids\":[5]}\n", FRAME_DELTA);
    assert_int_equal(f.delta, FRAME_DELTA_REASONING);
    assert_string_equal(f.text, "hm");
    frame_release(&f);

    s = (frame_step){.kind = FRAME_DELTA_CALL, .call = {2, S("call_x"), S("f"), S(""), false, false}};
    assert_int_equal(frame_put_delta(&b, ID, &s), ST_OK);
    f = read_back(&b,
                  "{\"id\":\"r\",\"delta\":{\"tool_call\":{\"index\":2,\"id\":\"call_x\",\"name\":\"f\","
                  "\"arguments_delta\":\"\"}},\"ids\":[]}\n",
                  FRAME_DELTA);
    assert_int_equal(f.delta, FRAME_DELTA_CALL);
    assert_int_equal(f.call.index, 2);
    assert_string_equal(f.call.id.data, "call_x");
    assert_string_equal(f.call.name.data, "f");
    assert_string_equal(f.text, "");
    frame_release(&f);

    s = (frame_step){.kind = FRAME_DELTA_CALL, .call = {.index = 2, .arguments = S("{\""), .closed = true}};
    assert_int_equal(frame_put_delta(&b, ID, &s), ST_OK);
    f = read_back(&b,
                  "{\"id\":\"r\",\"delta\":{\"tool_call\":{\"index\":2,\"arguments_delta\":\"{\\\"\","
                  "\"closed\":true}},\"ids\":[]}\n",
                  FRAME_DELTA);
    assert_true(!f.call.id.data && !f.call.name.data && f.call.closed && !f.call.withdrawn);
    assert_string_equal(f.call.arguments.data, "{\"");
    frame_release(&f);

    s = (frame_step){.kind = FRAME_DELTA_CALL, .call = {.withdrawn = true}, .ids = ids, .n_ids = 1};
    assert_int_equal(frame_put_delta(&b, ID, &s), ST_OK);
    f = read_back(&b,
                  "{\"id\":\"r\",\"delta\":{\"tool_call\":{\"index\":0,\"arguments_delta\":\"\","
                  "\"withdrawn\":true}},\"ids\":[5]}\n",
                  FRAME_DELTA);
    assert_true(!f.call.closed && f.call.withdrawn);
    frame_release(&f);

    assert_int_equal(frame_put_rendered(&b, ID, S("x"), 7), ST_OK);
    f = read_back(&b, "{\"id\":\"r\",\"text\":\"x\",\"count\":7}\n", FRAME_TEXT);
    assert_int_equal(f.count, 7);
    frame_release(&f);
    buf_release(&b);
}

static void test_logprobs(void **state)
{
    static const int32_t ids[] = {7};
    /* 0.1f as a double is 0.100000001490116…: nine digits give the same float */
    frame_logprob top[] = {{.token = 7, .logprob = -0.5, .text = S("a")},
                           {.token = 9, .logprob = (double)-0.1f, .text = S("\xc3")},
                           {.token = 1, .logprob = -(double)INFINITY, .text = S("\xff\0")}};
    frame_logprob lp = {.token = 7, .logprob = -1.0 / 3.0, .text = S("a"), .top = top, .n_top = 3};
    frame_step s = {.text = S("a"), .ids = ids, .n_ids = 1, .logprobs = &lp};
    buf b = {0};
    assert_int_equal(frame_put_delta(&b, ID, &s), ST_OK);
    frame f = read_back(
        &b,
        "{\"id\":\"r\",\"delta\":{\"content\":\"a\"},\"ids\":[7],\"logprobs\":[{\"id\":7,"
        "\"logprob\":-0.333333333,\"text\":\"a\",\"top\":[{\"id\":7,\"logprob\":-0.5,\"text\":\"a\"},"
        "{\"id\":9,\"logprob\":-0.100000001,\"text\":\"\xef\xbf\xbd\",\"bytes\":[195]},"
        "{\"id\":1,\"logprob\":-3.40282347e+38,\"text\":\"\xef\xbf\xbd\\u0000\",\"bytes\":[255,0]}]}]}\n",
        FRAME_DELTA);
    assert_int_equal(f.n_logprobs, 1);
    const frame_logprob *got = f.logprobs;
    assert_int_equal(got->token, 7);
    assert_true(fabs(got->logprob + 1.0 / 3.0) < 1e-9);
    assert_string_equal(got->text.data, "a");
    assert_int_equal(got->n_top, 3);
    assert_true((float)got->top[1].logprob == -0.1f);
    assert_int_equal(got->top[1].text.len, 1); /* the raw bytes are back */
    assert_memory_equal(got->top[1].text.data, "\xc3", 2);
    assert_true((float)got->top[2].logprob == -FLT_MAX);
    assert_int_equal(got->top[2].text.len, 2);
    assert_memory_equal(got->top[2].text.data, "\xff\0", 3);
    frame_release(&f);

    assert_int_equal(frame_put_prompt_logprobs(&b, ID, &top[0], 2), ST_OK);
    f = read_back(
        &b,
        "{\"id\":\"r\",\"prompt_logprobs\":[null,{\"id\":7,\"logprob\":-0.5,\"text\":\"a\",\"top\":[]},"
        "{\"id\":9,\"logprob\":-0.100000001,\"text\":\"\xef\xbf\xbd\",\"bytes\":[195],\"top\":[]}]}\n",
        FRAME_PROMPT_LOGPROBS);
    assert_int_equal(f.n_logprobs, 2); /* entry 0 is about prompt token 1 */
    assert_int_equal(f.logprobs[0].token, 7);
    assert_int_equal(f.logprobs[1].token, 9);
    frame_release(&f);
    assert_int_equal(frame_put_prompt_logprobs(&b, ID, NULL, 0), ST_OK); /* a prompt of one token */
    f = read_back(&b, "{\"id\":\"r\",\"prompt_logprobs\":[null]}\n", FRAME_PROMPT_LOGPROBS);
    assert_int_equal(f.n_logprobs, 0);
    frame_release(&f);
    buf_release(&b);
}

/* Every float is read back as itself. */
static void test_logprob_digits(void **state)
{
    buf b = {0};
    uint32_t x = 12345;
    for (int i = 0; i < 20000; i++) {
        union {
            uint32_t bits;
            float f;
        } u;
        x = x * 1664525u + 1013904223u;
        u.bits = x | 0x80000000u;
        if (!isfinite(u.f)) {
            continue;
        }
        frame_logprob lp = {.token = 1, .logprob = (double)u.f, .text = S("a")};
        buf_reset(&b);
        assert_int_equal(frame_put_prompt_logprobs(&b, ID, &lp, 1), ST_OK);
        frame f = decode_ok(b.data, b.len - 1);
        assert_true((float)f.logprobs[0].logprob == u.f);
        frame_release(&f);
    }
    buf_release(&b);
}

static const char done_text[] =
    "{\"id\":\"r\",\"done\":true,\"prompt_tokens\":12,\"completion_tokens\":3,\"finish_reason\":\"length\","
    "\"reason\":\"timeout\",\"reused_prompt_tokens\":8,\"prefilled_prompt_tokens\":4,"
    "\"session_reset_reason\":\"mismatch\",\"seed\":7,\"prefill_ms\":2.000,\"decode_ms\":1.500,\"total_ms\":"
    "4.250,"
    "\"prefill_tok_s\":2000.000,\"decode_tok_s\":2000.000,\"queue_ms\":0.125,\"ttft_ms\":2.500,"
    "\"guard\":\"deadline\",\"cached_prompt_tokens\":8,\"cache_miss\":{\"at\":8,\"reason\":\"mismatch\"},"
    "\"preemptions\":1,\"drafted\":2,\"accepted\":3,\"reasoning_tokens\":4}\n";

static const int32_t done_ids[] = {1, 2, 3};

static frame_done some_done(void)
{
    return (frame_done){
        .prompt_tokens = 12,
        .completion_tokens = 3,
        .reused_prompt_tokens = 8,
        .prefilled_prompt_tokens = 4,
        .finish_reason = "length",
        .reason = "timeout",
        .guard = "deadline",
        .session_reset_reason = "mismatch",
        .prefill_ms = 2.0,
        .decode_ms = 1.5,
        .total_ms = 4.25,
        .queue_ms = 0.125,
        .ttft_ms = 2.5,
        .seed = 7,
        .has_ids = true, /* plain only: the ids were in the frames before */
        .ids = done_ids,
        .cache_miss_reason = "mismatch",
        .cache_miss_at = 8,
        .preemptions = 1,
        .drafted = 2,
        .accepted = 3,
        .reasoning_tokens = 4,
    };
}

static void test_done(void **state)
{
    buf b = {0};
    frame_done d = some_done();
    assert_int_equal(frame_put_done(&b, ID, &d), ST_OK);
    frame f = read_back(&b, done_text, FRAME_DONE);
    assert_false(f.done.has_ids);
    assert_int_equal(f.done.cached_prompt_tokens, 8);
    assert_string_equal(f.done.cache_miss_reason, "mismatch");
    assert_int_equal(f.done.cache_miss_at, 8);
    assert_int_equal(f.done.preemptions, 1);
    assert_int_equal(f.done.drafted, 2);
    assert_int_equal(f.done.accepted, 3);
    assert_int_equal(f.done.reasoning_tokens, 4);
    assert_string_equal(f.done.guard, "deadline");
    assert_string_equal(f.done.reason, "timeout");
    frame_release(&f);
    d.cache_miss_reason = NULL;
    assert_int_equal(frame_put_done(&b, ID, &d), ST_OK);
    assert_null(strstr(b.data, "cache_miss\""));
    f = decode_ok(b.data, b.len - 1);
    assert_string_equal(f.done.cache_miss_reason, "");
    frame_release(&f);
    buf_reset(&b);
    /* the plain dialect has none of it */
    assert_int_equal(frame_put_done(&b, WIRE_NO_ID, &d), ST_OK);
    assert_null(strstr(b.data, "cached"));
    assert_null(strstr(b.data, "accepted"));
    assert_non_null(strstr(b.data, "\"generated_token_ids\":[1,2,3]"));
    buf_release(&b);
}

static void test_error(void **state)
{
    buf b = {0};
    err e;
    err_set(&e, ST_NEVER_FITS, NULL, "too large");
    frame_error x = frame_error_of(&e);
    x.id = ID;
    x.need = 5000;
    x.have = 4000;
    assert_int_equal(frame_put_error(&b, &x), ST_OK);
    frame f = read_back(
        &b, "{\"id\":\"r\",\"error\":\"too large\",\"code\":\"never_fits\",\"need\":5000,\"have\":4000}\n",
        FRAME_ERROR);
    assert_int_equal(f.code, ST_NEVER_FITS);
    assert_string_equal(f.text, "too large");
    assert_true(f.need == 5000 && f.have == 4000);
    assert_true(f.prompt_tokens == FRAME_NO_NUMBER && f.limit == FRAME_NO_NUMBER &&
                f.retry_after == FRAME_NO_NUMBER);
    assert_string_equal(f.path, "");
    assert_false(f.has_value);
    frame_release(&f);

    err_set(&e, ST_QUEUE_FULL, NULL, "later");
    x = frame_error_of(&e);
    x.id = ID;
    x.retry_after = 0;
    x.path = "$.a";
    x.has_value = true; /* null */
    assert_int_equal(frame_put_error(&b, &x), ST_OK);
    f = read_back(
        &b,
        "{\"id\":\"r\",\"error\":\"later\",\"code\":\"queue_full\",\"value\":null,\"retry_after\":0,"
        "\"path\":\"$.a\"}\n",
        FRAME_ERROR);
    assert_true(f.retry_after == 0 && f.has_value && !f.value);
    assert_string_equal(f.path, "$.a");
    frame_release(&f);

    f = decode_text("{\"error\":\"m\",\"code\":\"invalid_field\",\"field\":\"top_p\",\"value\":2}");
    double v;
    assert_null(f.id.data);
    assert_string_equal(f.field, "top_p");
    assert_true(f.has_value && json_f64(f.value, &v) && v == 2.0);
    frame_release(&f);
    buf_release(&b);
}

static void test_answers(void **state)
{
    static const int32_t ids[] = {4, 5};
    static const wire_string pieces[] = {S("a"), S("\xc3")};
    buf b = {0};
    assert_int_equal(frame_put_tokens(&b, ID, ids, pieces, 2), ST_OK);
    frame f =
        read_back(&b, "{\"id\":\"r\",\"ids\":[4,5],\"pieces\":[\"a\",\"\xef\xbf\xbd\"]}\n", FRAME_TOKENS);
    assert_int_equal(f.n_ids, 2);
    assert_memory_equal(f.ids, ids, sizeof ids);
    assert_string_equal(f.pieces[0].data, "a");
    assert_int_equal(f.pieces[1].len, 3);
    frame_release(&f);
    assert_int_equal(frame_put_tokens(&b, ID, ids, pieces, 0), ST_OK);
    f = read_back(&b, "{\"id\":\"r\",\"ids\":[],\"pieces\":[]}\n", FRAME_TOKENS);
    frame_release(&f);
    assert_int_equal(frame_put_text(&b, ID, S("a\0b")), ST_OK);
    f = read_back(&b, "{\"id\":\"r\",\"text\":\"a\\u0000b\"}\n", FRAME_TEXT);
    assert_int_equal(f.text_len, 3);
    frame_release(&f);
    assert_int_equal(frame_put_count(&b, ID, 12), ST_OK);
    f = read_back(&b, "{\"id\":\"r\",\"count\":12}\n", FRAME_COUNT);
    assert_true(f.count == 12);
    frame_release(&f);
    frame_progress p = {.prompt_tokens = 100, .cached = 30, .processed = 60};
    assert_int_equal(frame_put_progress(&b, ID, &p), ST_OK);
    f = read_back(&b, "{\"id\":\"r\",\"progress\":{\"prompt_tokens\":100,\"cached\":30,\"processed\":60}}\n",
                  FRAME_PROGRESS);
    assert_memory_equal(&f.progress, &p, sizeof p);
    frame_release(&f);
    frame_session s = {.session_id = S("s"), .known = true, .tokens = 9, .busy = true};
    assert_int_equal(frame_put_session_info(&b, ID, &s), ST_OK);
    f = read_back(
        &b,
        "{\"id\":\"r\",\"session\":{\"session_id\":\"s\",\"known\":true,\"tokens\":9,\"dirty\":false,"
        "\"busy\":true}}\n",
        FRAME_SESSION_INFO);
    assert_string_equal(f.session.session_id.data, "s");
    assert_true(f.session.known && f.session.tokens == 9 && !f.session.dirty && f.session.busy);
    frame_release(&f);
    assert_int_equal(frame_put_session(&b, ID, FRAME_CLOSED, S("s")), ST_OK);
    f = read_back(&b, "{\"id\":\"r\",\"closed\":true,\"session_id\":\"s\"}\n", FRAME_CLOSED);
    assert_string_equal(f.session_id.data, "s");
    frame_release(&f);
    buf_release(&b);
}

/* What a kind does not say is not written and reads as nothing. */
static void test_extents(void **state)
{
    static const struct {
        frame_kind kind;
        const char *want;
    } cases[] = {
        {FRAME_PREWARMED, "\"prewarmed\":{\"session_id\":\"s\",\"tokens\":100,\"prefilled\":3}}\n"},
        {FRAME_PROBE,
         "\"probe\":{\"session_id\":\"s\",\"from\":32,\"count\":64,\"tokens\":100,\"in_memory\":40,"
         "\"stored\":33}}\n"},
        {FRAME_EXPORT,
         "\"export\":{\"session_id\":\"s\",\"from\":32,\"count\":64,\"tokens\":100},\"attach\":5}\n"},
        {FRAME_IMPORT, "\"import\":{\"session_id\":\"s\",\"from\":32,\"count\":64,\"tokens\":100}}\n"},
        {FRAME_SAVED, "\"saved\":{\"session_id\":\"s\",\"name\":\"n\",\"tokens\":100}}\n"},
        {FRAME_RESTORED, "\"restored\":{\"session_id\":\"s\",\"name\":\"n\",\"tokens\":100}}\n"},
        {FRAME_DROPPED, "\"dropped\":{\"session_id\":\"s\",\"name\":\"n\",\"tokens\":100}}\n"},
    };
    const frame_extent x = {S("s"),      S("n"),          .tokens = 100, .from = 32,
                            .count = 64, .in_memory = 40, .stored = 33,  .prefilled = 3};
    for (size_t i = 0; i < N_OF(cases); i++) {
        char want[256];
        buf b = {0};
        frame_kind kind = cases[i].kind;
        bool range = kind == FRAME_PROBE || kind == FRAME_EXPORT || kind == FRAME_IMPORT;
        snprintf(want, sizeof want, "{\"id\":\"r\",%s", cases[i].want);
        assert_int_equal(frame_put_extent(&b, ID, kind, &x), ST_OK);
        if (kind == FRAME_EXPORT) {
            assert_int_equal(line_add_u64(&b, "attach", 5), ST_OK);
        }
        assert_string_equal(buf_str(&b), want);
        frame f;
        assert_int_equal(frame_decode(b.data, b.len - 1, &f, NULL), ST_OK);
        assert_int_equal(f.kind, kind);
        assert_int_equal(f.attach_bytes, kind == FRAME_EXPORT ? 5 : 0);
        assert_null(f.attached);
        assert_string_equal(f.extent.session_id.data, "s");
        assert_int_equal(f.extent.tokens, 100);
        assert_int_equal(f.extent.from, range ? 32 : 0);
        assert_int_equal(f.extent.count, range ? 64 : 0);
        assert_int_equal(f.extent.in_memory, kind == FRAME_PROBE ? 40 : 0);
        assert_int_equal(f.extent.stored, kind == FRAME_PROBE ? 33 : 0);
        assert_int_equal(f.extent.prefilled, kind == FRAME_PREWARMED ? 3 : 0);
        assert_int_equal(f.extent.name.len, range || kind == FRAME_PREWARMED ? 0 : 1);
        frame_release(&f);
        buf_release(&b);
    }
}

static void test_stats(void **state)
{
    buf b = {0};
    const frame_lane rows[] = {{.index = 0, .active = true, .session_id = S("a\0b"), .tokens = 40},
                               {.index = 1, .active = true, .tokens = UINT64_MAX},
                               {.index = 2}};
    frame_stats s = {.draining = true, .rows = rows, .n_rows = N_OF(rows)};
    uint64_t n = 1;
#define X(name) s.name = n++;
    FRAME_STATS_NUMBERS(X)
#undef X
    s.requests_cancelled = UINT64_MAX;
    assert_int_equal(frame_put_stats(&b, ID, &s), ST_OK);
    frame f =
        read_back(&b,
                  "{\"id\":\"r\",\"stats\":{\"lanes\":1,\"lanes_live\":2,\"sessions\":3,\"pages_total\":4,"
                  "\"pages_used\":5,\"queued\":6,\"running\":7,\"steps\":8,\"tokens_prefilled\":9,"
                  "\"tokens_generated\":10,\"tokens_reused\":11,\"requests_done\":12,\"requests_failed\":13,"
                  "\"requests_cancelled\":18446744073709551615,\"lanes_idle\":15,\"lanes_tracked\":16,"
                  "\"lanes_created\":17,\"lanes_destroyed\":18,\"largest_tokens\":19,\"total_tokens\":20,"
                  "\"tokens_evaluated\":21,\"tokens_recomputed\":22,\"tokens_restored\":23,\"parked\":24,"
                  "\"preempted\":25,\"draining\":true,\"rows\":["
                  "{\"index\":0,\"active\":true,\"session_id\":\"a\\u0000b\",\"tokens\":40},"
                  "{\"index\":1,\"active\":true,\"tokens\":18446744073709551615},"
                  "{\"index\":2,\"active\":false,\"tokens\":0}]}}\n",
                  FRAME_STATS);
#define X(name) assert_true(f.stats.name == s.name);
    FRAME_STATS_NUMBERS(X)
#undef X
    assert_true(f.stats.draining);
    assert_int_equal(f.stats.n_rows, N_OF(rows));
    for (size_t i = 0; i < N_OF(rows); i++) {
        const frame_lane *l = &f.stats.rows[i];
        assert_true(l->index == i && l->active == rows[i].active && l->tokens == rows[i].tokens);
        assert_true(!l->session_id.data == !rows[i].session_id.data);
    }
    assert_int_equal(f.stats.rows[0].session_id.len, 3);
    assert_memory_equal(f.stats.rows[0].session_id.data, "a\0b", 3);
    frame_release(&f);
    buf_release(&b);
}

static void test_kv_limit(void **state)
{
    buf b = {0};
    assert_int_equal(frame_put_kv_limit(&b, ID, &(frame_kv_limit){.pages = UINT64_MAX, .pages_used = 3}),
                     ST_OK);
    frame f = read_back(&b, "{\"id\":\"r\",\"kv_limit\":{\"pages\":18446744073709551615,\"pages_used\":3}}\n",
                        FRAME_KV_LIMIT);
    assert_true(f.kv_limit.pages == UINT64_MAX && f.kv_limit.pages_used == 3);
    frame_release(&f);
    buf_release(&b);
}

/* Whole frames that are fine; each field of each is then taken out or given a wrong value. */
static const struct {
    const char *line;
    const char *needed; /* fields that must be there, between spaces */
} whole[] = {
    {"{\"id\":\"r\",\"accepted\":{\"seed\":1,\"now\":2,\"prompt_tokens\":3,\"prompt_digest\":"
     "\"" DIGEST_OF_NOTHING "\",\"cached_prompt_tokens\":0}}",
     "id accepted seed now prompt_tokens prompt_digest cached_prompt_tokens"},
    {"{\"id\":\"r\",\"token\":\"a\",\"ids\":[1],\"logprobs\":[{\"id\":1,\"logprob\":-1,\"text\":\"a\","
     "\"bytes\":[97],"
     "\"top\":[]}]}",
     "token ids logprob text top"},
    {"{\"id\":\"r\",\"delta\":{\"content\":\"a\"},\"ids\":[1]}", "id delta content ids"},
    {"{\"id\":\"r\",\"delta\":{\"tool_call\":{\"index\":0,\"arguments_delta\":\"a\",\"closed\":true,"
     "\"withdrawn\":true}},\"ids\":[1]}",
     "id delta index arguments_delta ids"},
    {"{\"id\":\"r\",\"prompt_logprobs\":[null,{\"id\":1,\"logprob\":-1,\"text\":\"a\",\"top\":[]}]}",
     "prompt_logprobs logprob text top"},
    {"{\"id\":\"r\",\"progress\":{\"prompt_tokens\":1,\"cached\":0,\"processed\":1}}",
     "id progress prompt_tokens cached processed"},
    {"{\"id\":\"r\",\"ids\":[1],\"pieces\":[\"a\"]}", "id ids pieces"},
    {"{\"id\":\"r\",\"text\":\"a\"}", "id text"},
    {"{\"id\":\"r\",\"count\":1}", "id count"},
    {"{\"id\":\"r\",\"session\":{\"session_id\":\"s\",\"known\":true,\"tokens\":1,\"dirty\":false,\"busy\":"
     "false}}",
     "id session session_id known tokens dirty busy"},
    {"{\"id\":\"r\",\"stats\":{\"lanes\":1,\"lanes_live\":2,\"sessions\":3,\"pages_total\":4,\"pages_used\":"
     "5,"
     "\"queued\":6,\"running\":7,\"steps\":8,\"tokens_prefilled\":9,\"tokens_generated\":10,\"tokens_"
     "reused\":11,"
     "\"requests_done\":12,\"requests_failed\":13,\"requests_cancelled\":14,\"lanes_idle\":15,"
     "\"lanes_tracked\":16,\"lanes_created\":17,\"lanes_destroyed\":18,\"largest_tokens\":19,"
     "\"total_tokens\":20,\"tokens_evaluated\":21,\"tokens_recomputed\":22,\"tokens_restored\":23,"
     "\"parked\":24,\"preempted\":25,\"draining\":true,"
     "\"rows\":[{\"index\":0,\"active\":true,\"tokens\":1}]}}",
     "id stats lanes lanes_live sessions pages_total pages_used queued running steps tokens_prefilled "
     "tokens_generated tokens_reused requests_done requests_failed requests_cancelled lanes_idle "
     "lanes_tracked lanes_created lanes_destroyed largest_tokens total_tokens tokens_evaluated "
     "tokens_recomputed tokens_restored parked preempted draining rows index active tokens"},
    {"{\"id\":\"r\",\"prewarmed\":{\"session_id\":\"s\",\"tokens\":100,\"prefilled\":3}}",
     "id prewarmed session_id tokens prefilled"},
    {"{\"id\":\"r\",\"probe\":{\"session_id\":\"s\",\"from\":32,\"count\":64,\"tokens\":100,\"in_memory\":64,"
     "\"stored\":32}}",
     "id probe session_id from count tokens in_memory stored"},
    {"{\"id\":\"r\",\"export\":{\"session_id\":\"s\",\"from\":32,\"count\":64,\"tokens\":100},\"attach\":5}",
     "id export session_id from count tokens attach"},
    {"{\"id\":\"r\",\"import\":{\"session_id\":\"s\",\"from\":32,\"count\":64,\"tokens\":100}}",
     "id import session_id from count tokens"},
    {"{\"id\":\"r\",\"saved\":{\"session_id\":\"s\",\"name\":\"n\",\"tokens\":100}}",
     "id saved session_id name tokens"},
    {"{\"id\":\"r\",\"restored\":{\"session_id\":\"s\",\"name\":\"n\",\"tokens\":100}}",
     "id restored session_id name tokens"},
    {"{\"id\":\"r\",\"kv_limit\":{\"pages\":9,\"pages_used\":4}}", "id kv_limit pages pages_used"},
    {"{\"id\":\"r\",\"dropped\":{\"session_id\":\"s\",\"name\":\"n\",\"tokens\":100}}",
     "id dropped session_id name tokens"},
};

/* The first key of this name in line is renamed (*value NULL) or its value, up to the next , or closing bracket
 * at its level, replaced. */
static void change(buf *out, const char *line, const char *key, const char *value)
{
    char quoted[64];
    snprintf(quoted, sizeof quoted, "\"%s\":", key);
    const char *at = strstr(line, quoted);
    assert_non_null(at);
    buf_reset(out);
    buf_append(out, line, (size_t)(at - line));
    if (!value) {
        buf_printf(out, "\"x%s\":", key);
        buf_append_str(out, at + strlen(quoted));
        return;
    }
    const char *end = at + strlen(quoted);
    for (int depth = 0; depth > 0 || (*end != ',' && *end != '}' && *end != ']'); end++) {
        depth += *end == '{' || *end == '[';
        depth -= *end == '}' || *end == ']';
    }
    buf_printf(out, "%s%s", quoted, value);
    buf_append_str(out, end);
}

static void test_every_field_is_needed(void **state)
{
    /* wrong for every field (NULL: absent) */
    static const char *const wrong[] = {NULL, "null", "-1", "1.5", "{\"?\":0}", "[{}]"};
    buf b = {0};
    for (size_t i = 0; i < N_OF(whole); i++) {
        frame f = decode_text(whole[i].line);
        frame_release(&f);
        char names[1024], *save = NULL;
        snprintf(names, sizeof names, "%s", whole[i].needed);
        for (char *key = strtok_r(names, " ", &save); key; key = strtok_r(NULL, " ", &save)) {
            for (size_t w = 0; w < N_OF(wrong); w++) {
                bool is_number = strcmp(key, "logprob") == 0;
                if (is_number && wrong[w] && (wrong[w][0] == '-' || wrong[w][0] == '1')) {
                    continue; /* a log-probability may be any number */
                }
                change(&b, whole[i].line, key, wrong[w]);
                status st = frame_decode(b.data, b.len, &f, NULL);
                if (st == ST_OK && wrong[w] == NULL && f.kind == FRAME_UNKNOWN) {
                    frame_release(&f); /* the key that names the kind: now a later protocol's frame */
                    continue;
                }
                if (st != ST_BAD_REQUEST) {
                    print_error("%s\n", b.data);
                }
                assert_int_equal(st, ST_BAD_REQUEST);
            }
        }
    }
    buf_release(&b);
}

#define LP(members) "{\"id\":\"r\",\"token\":\"a\",\"ids\":[1],\"logprobs\":[" members "]}"

#define DIGEST_TAIL "3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" /* 63 digits */
#define ACCEPTED(digest)                                                                                \
    ("{\"id\":\"r\",\"accepted\":{\"seed\":1,\"now\":2,\"prompt_tokens\":3,\"prompt_digest\":\"" digest \
     "\",\"cached_prompt_tokens\":0}}")
#define ACCEPTED_IDS(ids)                                                                                    \
    "{\"id\":\"r\",\"accepted\":{\"seed\":1,\"now\":2,\"prompt_tokens\":2,\"prompt_digest\":\"e" DIGEST_TAIL \
    "\",\"cached_prompt_tokens\":0,\"prompt_ids\":" ids "}}"

/* As many as the prompt has, all of them ids. */
static void test_refuses_prompt_ids(void **state)
{
    static const char *const lines[] = {
        ACCEPTED_IDS("[]"),     ACCEPTED_IDS("[1]"),  ACCEPTED_IDS("[1,2,3]"), ACCEPTED_IDS("[1,2147483648]"),
        ACCEPTED_IDS("[1,-2]"), ACCEPTED_IDS("null"), ACCEPTED_IDS("\"ab\""),
    };
    frame f = decode_text(ACCEPTED_IDS("[1,2]"));
    assert_int_equal(f.accepted.prompt_ids[1], 2);
    frame_release(&f);
    for (size_t i = 0; i < N_OF(lines); i++) {
        err e;
        assert_int_equal(frame_decode(lines[i], strlen(lines[i]), &f, &e), ST_BAD_REQUEST);
        assert_string_equal(e.field, "prompt_ids");
    }
}

static void test_refuses(void **state)
{
    static const char *const lines[] = {
        /* an id is a string wherever it stands */
        "{\"id\":1,\"token\":\"a\",\"ids\":[]}",
        "{\"id\":null,\"error\":\"m\"}",
        "{\"id\":[],\"from_the_future\":1}",
        /* frames that only exist with one */
        "{\"delta\":{\"content\":\"a\"},\"ids\":[]}",
        "{\"id\":\"r\",\"delta\":{},\"ids\":[]}",
        "{\"id\":\"r\",\"delta\":{\"tool_call\":{\"index\":0,\"id\":\"c\",\"arguments_delta\":\"\"}},\"ids\":"
        "[]}",
        "{\"id\":\"r\",\"delta\":{\"tool_call\":{\"index\":0,\"name\":\"f\",\"arguments_delta\":\"\"}},"
        "\"ids\":[]}",
        "{\"id\":\"r\",\"delta\":{\"tool_call\":{\"index\":-1,\"arguments_delta\":\"\"}},\"ids\":[]}",
        "{\"progress\":{\"prompt_tokens\":1,\"cached\":0,\"processed\":1}}",
        /* lists */
        "{\"id\":\"r\",\"token\":\"a\"}",
        "{\"id\":\"r\",\"token\":\"a\",\"ids\":[-1]}",
        "{\"id\":\"r\",\"token\":\"a\",\"ids\":[2147483648]}",
        "{\"id\":\"r\",\"token\":\"a\",\"ids\":[1.0]}",
        "{\"id\":\"r\",\"token\":\"a\",\"ids\":[null]}",
        "{\"id\":\"r\",\"token\":\"a\",\"ids\":\"1\"}",
        "{\"id\":\"r\",\"ids\":[1],\"pieces\":[]}",
        "{\"id\":\"r\",\"ids\":[],\"pieces\":[\"a\"]}",
        "{\"id\":\"r\",\"ids\":[1],\"pieces\":[1]}",
        LP(""),
        LP("null"),
        LP("1"),
        LP("{\"id\":1,\"logprob\":-1,\"text\":\"a\",\"top\":[]},{\"id\":1,\"logprob\":-1,\"text\":\"a\","
           "\"top\":[]}"),
        LP("{\"id\":-1,\"logprob\":-1,\"text\":\"a\",\"top\":[]}"),
        LP("{\"id\":1,\"logprob\":\"-1\",\"text\":\"a\",\"top\":[]}"),
        LP("{\"id\":1,\"logprob\":-1,\"text\":\"a\",\"bytes\":[256],\"top\":[]}"),
        LP("{\"id\":1,\"logprob\":-1,\"text\":\"a\",\"bytes\":[-1],\"top\":[]}"),
        LP("{\"id\":1,\"logprob\":-1,\"text\":\"a\",\"bytes\":\"a\",\"top\":[]}"),
        LP("{\"id\":1,\"logprob\":-1,\"text\":\"a\",\"top\":[null]}"),
        LP("{\"id\":1,\"logprob\":-1,\"text\":\"a\",\"top\":[{\"id\":1,\"text\":\"a\"}]}"),
        "{\"id\":\"r\",\"prompt_logprobs\":[]}",
        "{\"id\":\"r\",\"prompt_logprobs\":[{\"id\":1,\"logprob\":-1,\"text\":\"a\",\"top\":[]}]}",
        "{\"id\":\"r\",\"prompt_logprobs\":[null,null]}",
        /* digest */
        ACCEPTED("00"),
        ACCEPTED(DIGEST_OF_NOTHING "0"),
        ACCEPTED("E" DIGEST_TAIL),
        ACCEPTED("\\u0000" DIGEST_TAIL),
        /* what is said about an error */
        "{\"error\":\"m\",\"code\":7}",
        "{\"error\":\"m\",\"limit\":-1}",
        "{\"error\":\"m\",\"need\":\"1\"}",
        "{\"error\":\"m\",\"retry_after\":1.5}",
        "{\"error\":\"m\",\"field\":[]}",
        "{\"error\":\"m\",\"session_id\":1}",
        /* flags are true */
        "{\"opened\":false,\"session_id\":\"s\"}",
        "{\"reset\":1,\"session_id\":\"s\"}",
        /* attach: never in the plain dialect, at most 64 MiB */
        "{\"token\":\"a\",\"attach\":1}",
        "{\"id\":\"r\",\"count\":1,\"attach\":67108865}",
        "{\"id\":\"r\",\"count\":1,\"attach\":-1}",
        "{\"id\":\"r\",\"count\":1,\"attach\":\"1\"}",
        "{\"id\":\"r\",\"count\":1,\"attach\":9223372036854775808}",
    };
    for (size_t i = 0; i < N_OF(lines); i++) {
        frame f = {.kind = FRAME_DONE};
        err e;
        status st = frame_decode(lines[i], strlen(lines[i]), &f, &e);
        if (st != ST_BAD_REQUEST) {
            print_error("%s\n", lines[i]);
        }
        assert_int_equal(st, ST_BAD_REQUEST);
        assert_int_equal(e.code, ST_BAD_REQUEST);
        assert_int_equal(f.kind, FRAME_DONE); /* untouched */
    }
}

/* The template of those four is right but for the digest. */
static void test_template_is_fine(void **state)
{
    frame f = decode_text(ACCEPTED("e" DIGEST_TAIL));
    assert_int_equal(f.kind, FRAME_ACCEPTED);
    frame_release(&f);
}

static void test_done_is_checked(void **state)
{
    static const struct {
        const char *key, *value;
    } cases[] = {
        {"done", "false"},
        {"finish_reason", "\"tool_calls\""}, /* the plain, two-valued one */
        {"reason", "null"},
        {"seed", "18446744073709551615.0"},
        {"guard", "1"},
        {"cached_prompt_tokens", "-1"},
        {"cache_miss", "[]"},
        {"cache_miss", "{\"at\":1}"},
        {"cache_miss", "{\"at\":-1,\"reason\":\"x\"}"},
        {"cache_miss", "{\"at\":1,\"reason\":null}"},
        {"preemptions", "\"1\""},
        {"drafted", "2147483648"},
        {"accepted", "{}"},
        {"reasoning_tokens", "0.5"},
        {"queue_ms", "\"0\""},
    };
    buf b = {0};
    frame f;
    for (size_t i = 0; i < N_OF(cases); i++) {
        change(&b, done_text, cases[i].key, cases[i].value);
        if (frame_decode(b.data, b.len, &f, NULL) != ST_BAD_REQUEST) {
            print_error("%s", b.data);
            fail();
        }
    }
    /* statistics may be absent, or null */
    static const char *const optional[] = {
        "guard",  "cached_prompt_tokens", "cache_miss", "preemptions", "drafted", "accepted", "queue_ms",
        "ttft_ms"};
    for (size_t i = 0; i < N_OF(optional); i++) {
        for (int absent = 0; absent < 2; absent++) {
            change(&b, done_text, optional[i], absent ? NULL : "null");
            f = decode_ok(b.data, b.len);
            assert_int_equal(f.kind, FRAME_DONE);
            frame_release(&f);
        }
    }
    buf_release(&b);
}

/* Clients look for token, done, error in this order, then it is ours. */
static void test_order_of_kinds(void **state)
{
    frame f = decode_text("{\"id\":\"r\",\"accepted\":1,\"count\":2,\"token\":\"a\",\"ids\":[],\"error\":7}");
    assert_int_equal(f.kind, FRAME_TOKEN);
    frame_release(&f);
    buf b = {0};
    frame_done d = some_done(); /* "accepted" is a statistic there */
    assert_int_equal(frame_put_done(&b, ID, &d), ST_OK);
    f = decode_ok(b.data, b.len);
    assert_int_equal(f.kind, FRAME_DONE);
    frame_release(&f);
    f = decode_text("{\"id\":\"r\",\"count\":1,\"attach\":67108864}");
    assert_true(f.attach_bytes == 67108864);
    frame_release(&f);
    f = decode_text("{\"id\":\"r\",\"count\":1,\"attach\":0}");
    assert_true(f.attach_bytes == 0);
    frame_release(&f);
    f = decode_text("{\"token\":\"a\",\"ids\":7}"); /* plain: an unknown field */
    assert_int_equal(f.n_ids, 0);
    frame_release(&f);
    buf_release(&b);
}

/* Without memory: nothing is written, nothing is leaked (ASan looks). */
static void test_memory(void **state)
{
    static const int32_t ids[] = {7};
    frame_logprob top = {.token = 7, .logprob = -0.5, .text = S("\xff")};
    frame_logprob lp = {.token = 7, .logprob = -0.5, .text = S("a"), .top = &top, .n_top = 1};
    frame_step s = {.text = S("a"), .ids = ids, .n_ids = 1, .logprobs = &lp};
    buf line = {0};
    assert_int_equal(frame_put_delta(&line, ID, &s), ST_OK);
    for (uint64_t n = 1; n < 12; n++) {
        buf b = {0};
        frame f;
        mem_fail_at(n, true);
        status put = frame_put_delta(&b, ID, &s);
        mem_fail_at(n, true);
        status got = frame_decode(line.data, line.len - 1, &f, NULL);
        mem_fail_at(0, false);
        assert_true(put == ST_OK ? b.len == line.len : put == ST_NOMEM && b.len == 0);
        assert_true(got == ST_OK || got == ST_NOMEM);
        if (got == ST_OK) {
            frame_release(&f);
        }
        buf_release(&b);
    }
    buf_release(&line);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_accepted),
        cmocka_unit_test(test_token),
        cmocka_unit_test(test_deltas),
        cmocka_unit_test(test_logprobs),
        cmocka_unit_test(test_logprob_digits),
        cmocka_unit_test(test_done),
        cmocka_unit_test(test_error),
        cmocka_unit_test(test_answers),
        cmocka_unit_test(test_extents),
        cmocka_unit_test(test_stats),
        cmocka_unit_test(test_kv_limit),
        cmocka_unit_test(test_every_field_is_needed),
        cmocka_unit_test(test_refuses_prompt_ids),
        cmocka_unit_test(test_refuses),
        cmocka_unit_test(test_template_is_fine),
        cmocka_unit_test(test_done_is_checked),
        cmocka_unit_test(test_order_of_kinds),
        cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
