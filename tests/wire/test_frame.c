#include "base/test_main.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "wire/frame.h"

static const int32_t some_ids[] = {0, 17, 2147483647};

static frame_done some_done(void)
{
    return (frame_done){
        .prompt_tokens = 12,
        .completion_tokens = 3,
        .reused_prompt_tokens = 8,
        .prefilled_prompt_tokens = 4,
        .finish_reason = "length",
        .reason = "length",
        .guard = "",
        .session_reset_reason = "exact_prefix",
        .prefill_ms = 2.0,
        .decode_ms = 1.5,
        .total_ms = 4.25,
        .queue_ms = 0.125,
        .ttft_ms = 2.5,
        .seed = 9223372036854775807u,
        .has_ids = true,
        .ids = some_ids,
    };
}

static frame_ready some_ready(void)
{
    return (frame_ready){
        .max_sessions = 8,
        .supports_cancel = false,
        .protocol = WIRE_PROTOCOL,
        .pid = 4711,
        .name = "Tiny",
        .arch = "llama",
        .quant = "Q4_K",
        .params = 1235814432,
        .digest = "00ff",
        .context_length = 8192,
        .vocab_size = 32000,
        .sampling = {.said = 1u << FRAME_SAMPLING_temperature | 1u << FRAME_SAMPLING_top_k,
                     .value = {[FRAME_SAMPLING_temperature] = 0.6, [FRAME_SAMPLING_top_k] = 40}},
        .kernels = "avx2",
        .kv_pages = 2048,
    };
}

static status put_plain_token(buf *b, const char *text, size_t len)
{
    return frame_put_token(b, WIRE_NO_ID, &(frame_step){.text = {text, len}});
}

static void test_text_of_frames(void **state)
{
    buf b = {0};
    frame_ready r = some_ready();
    assert_int_equal(frame_put_ready(&b, &r), ST_OK);
    assert_string_equal(
        b.data,
        "{\"ready\":true,\"max_sessions\":8,\"max_named_sessions\":7,\"supports_cancel\":false,"
        "\"protocol\":2,\"pid\":4711,\"model\":{\"name\":\"Tiny\",\"arch\":\"llama\",\"quant\":\"Q4_K\","
        "\"params\":1235814432,\"digest\":\"00ff\",\"context_length\":8192,\"vocab_size\":32000,\"sampling\":"
        "{\"temperature\":0.6,\"top_k\":40},"
        "\"modalities\":[\"text\"],\"capabilities\":[\"generate\"]},\"kernels\":\"avx2\","
        "\"kv_pages\":2048}\n");
    buf_reset(&b);
    r.digest = NULL; /* not computed: the key is left out */
    assert_int_equal(frame_put_ready(&b, &r), ST_OK);
    assert_null(strstr(b.data, "digest"));

    buf_reset(&b);
    assert_int_equal(put_plain_token(&b, "a\"\n\0\xc3\xa9", 6), ST_OK);
    assert_string_equal(b.data, "{\"token\":\"a\\\"\\n\\u0000\xc3\xa9\"}\n");

    buf_reset(&b);
    frame_done d = some_done();
    assert_int_equal(frame_put_done(&b, WIRE_NO_ID, &d), ST_OK);
    assert_string_equal(
        b.data, "{\"done\":true,\"prompt_tokens\":12,\"completion_tokens\":3,\"finish_reason\":\"length\","
                "\"reason\":\"length\",\"reused_prompt_tokens\":8,\"prefilled_prompt_tokens\":4,"
                "\"session_reset_reason\":\"exact_prefix\",\"seed\":9223372036854775807,\"prefill_ms\":2.000,"
                "\"decode_ms\":1.500,\"total_ms\":4.250,\"prefill_tok_s\":2000.000,\"decode_tok_s\":2000.000,"
                "\"queue_ms\":0.125,\"ttft_ms\":2.500,\"generated_token_ids\":[0,17,2147483647]}\n");

    buf_reset(&b);
    assert_int_equal(frame_put_session(&b, WIRE_NO_ID, FRAME_OPENED, (wire_string){"s", 1}), ST_OK);
    assert_int_equal(frame_put_session(&b, WIRE_NO_ID, FRAME_CLOSED, (wire_string){"a\0b", 3}), ST_OK);
    assert_int_equal(frame_put_session(&b, WIRE_NO_ID, FRAME_RESET, (wire_string){"\xff", 1}),
                     ST_OK); /* repaired */
    assert_string_equal(b.data, "{\"opened\":true,\"session_id\":\"s\"}\n"
                                "{\"closed\":true,\"session_id\":\"a\\u0000b\"}\n"
                                "{\"reset\":true,\"session_id\":\"\xef\xbf\xbd\"}\n");
    buf_release(&b);
}

static void test_done_variants(void **state)
{
    buf b = {0};
    frame_done d = some_done();
    d.completion_tokens = 0; /* nothing generated: [] */
    d.ids = NULL;
    d.decode_ms = 0; /* a rate is 0 when its time is 0 */
    d.prefill_ms = 0;
    assert_int_equal(frame_put_done(&b, WIRE_NO_ID, &d), ST_OK);
    assert_non_null(strstr(b.data, "\"generated_token_ids\":[]"));
    assert_non_null(strstr(b.data, "\"prefill_tok_s\":0.000,\"decode_tok_s\":0.000"));
    assert_null(strstr(b.data, "cancelled"));
    assert_null(strstr(b.data, "guard"));
    assert_null(strstr(b.data, "tail_repaired"));
    buf_reset(&b);
    d.has_ids = false; /* a stop-string cut or a cancel */
    d.cancelled = true;
    d.guard = "context";
    d.tail_repaired = true;
    assert_int_equal(frame_put_done(&b, WIRE_NO_ID, &d), ST_OK);
    assert_null(strstr(b.data, "generated_token_ids"));
    assert_non_null(strstr(b.data, "\"cancelled\":true"));
    assert_non_null(strstr(b.data, "\"guard\":\"context\""));
    assert_non_null(strstr(b.data, "\"tail_repaired\":true"));
    buf_release(&b);
}

static void test_errors(void **state)
{
    buf b = {0};
    err e;
    err_set(&e, ST_CONTEXT_LENGTH, "prompt", "prompt has 9 tokens, the context 8");
    frame_error f = frame_error_of(&e);
    f.prompt_tokens = 9;
    f.limit = 8;
    assert_int_equal(frame_put_error(&b, &f), ST_OK);
    assert_string_equal(
        b.data, "{\"error\":\"prompt has 9 tokens, the context 8\",\"code\":\"context_length_exceeded\","
                "\"field\":\"prompt\",\"prompt_tokens\":9,\"limit\":8}\n");
    buf_reset(&b);
    err_set(&e, ST_CAPACITY, NULL, "no slot");
    f = frame_error_of(&e);
    f.has_session = true;
    f.session_id = "s";
    f.session_id_len = 1;
    assert_int_equal(frame_put_error(&b, &f), ST_OK);
    assert_string_equal(b.data,
                        "{\"error\":\"no slot\",\"code\":\"capacity_exhausted\",\"session_id\":\"s\"}\n");
    buf_reset(&b);
    err_set(&e, ST_NOMEM, NULL, "out of memory"); /* not public */
    f = frame_error_of(&e);
    assert_int_equal(frame_put_error(&b, &f), ST_OK);
    assert_string_equal(b.data, "{\"error\":\"out of memory\",\"code\":\"internal\"}\n");
    buf_release(&b);
}

static frame decode_ok(const char *line)
{
    frame f;
    err e;
    status st = frame_decode(line, strlen(line), &f, &e);
    if (st != ST_OK) {
        print_error("%s: %s\n", line, e.msg);
    }
    assert_int_equal(st, ST_OK);
    return f;
}

static void test_round_trip(void **state)
{
    buf b = {0};
    frame_ready r = some_ready();
    assert_int_equal(frame_put_ready(&b, &r), ST_OK);
    frame f = decode_ok(b.data);
    assert_int_equal(f.kind, FRAME_READY);
    assert_int_equal(f.ready.max_sessions, 8);
    assert_false(f.ready.supports_cancel);
    assert_int_equal(f.ready.protocol, 2);
    assert_int_equal(f.ready.pid, 4711);
    assert_string_equal(f.ready.name, "Tiny");
    assert_string_equal(f.ready.arch, "llama");
    assert_string_equal(f.ready.quant, "Q4_K");
    assert_int_equal(f.ready.params, 1235814432);
    assert_string_equal(f.ready.digest, "00ff");
    assert_int_equal(f.ready.context_length, 8192);
    assert_int_equal(f.ready.vocab_size, 32000);
    assert_int_equal(f.ready.sampling.said, r.sampling.said);
    assert_int_equal(f.ready.sampling.value[FRAME_SAMPLING_top_k], 40);
    assert_string_equal(f.ready.kernels, "avx2");
    assert_int_equal(f.ready.kv_pages, 2048);
    frame_release(&f);

    buf_reset(&b);
    frame_done d = some_done();
    d.guard = "deadline";
    assert_int_equal(frame_put_done(&b, WIRE_NO_ID, &d), ST_OK);
    f = decode_ok(b.data);
    assert_int_equal(f.kind, FRAME_DONE);
    assert_int_equal(f.done.prompt_tokens, 12);
    assert_int_equal(f.done.completion_tokens, 3);
    assert_int_equal(f.done.reused_prompt_tokens, 8);
    assert_int_equal(f.done.prefilled_prompt_tokens, 4);
    assert_string_equal(f.done.finish_reason, "length");
    assert_string_equal(f.done.reason, "length");
    assert_string_equal(f.done.guard, "deadline");
    assert_string_equal(f.done.session_reset_reason, "exact_prefix");
    assert_true(f.done.prefill_ms == 2.0 && f.done.decode_ms == 1.5 && f.done.total_ms == 4.25);
    assert_true(f.done.queue_ms == 0.125 && f.done.ttft_ms == 2.5);
    assert_true(f.done.seed == 9223372036854775807u);
    assert_true(f.done.has_ids);
    assert_false(f.done.cancelled);
    frame_release(&f);

    buf_reset(&b);
    assert_int_equal(put_plain_token(&b, "x\0y", 3), ST_OK);
    f = decode_ok(b.data);
    assert_int_equal(f.kind, FRAME_TOKEN);
    assert_int_equal(f.text_len, 3);
    assert_memory_equal(f.text, "x\0y", 3);
    frame_release(&f);
    frame_release(&f); /* twice is fine */
    frame_release(NULL);

    buf_reset(&b);
    assert_int_equal(frame_put_session(&b, WIRE_NO_ID, FRAME_RESET, (wire_string){"s", 1}), ST_OK);
    f = decode_ok(b.data);
    assert_int_equal(f.kind, FRAME_RESET);
    assert_string_equal(f.session_id.data, "s");
    frame_release(&f);
    buf_release(&b);
}

static void test_decode_accepts(void **state)
{
    frame f = decode_ok("{\"error\":\"why\"}"); /* code is optional */
    assert_int_equal(f.kind, FRAME_ERROR);
    assert_int_equal(f.code, ST_INTERNAL);
    assert_string_equal(f.field, "");
    assert_int_equal(f.prompt_tokens, FRAME_NO_NUMBER);
    assert_null(f.session_id.data);
    frame_release(&f);
    f = decode_ok("{\"error\":\"why\",\"code\":\"from_the_future\",\"session_id\":null}");
    assert_int_equal(f.code, ST_INTERNAL);
    assert_null(f.session_id.data);
    frame_release(&f);
    f = decode_ok("{\"code\":\"context_length_exceeded\",\"prompt_tokens\":9,\"limit\":8,\"error\":\"why\"}");
    assert_int_equal(f.code, ST_CONTEXT_LENGTH);
    assert_int_equal(f.prompt_tokens, 9);
    assert_int_equal(f.limit, 8);
    frame_release(&f);
    f = decode_ok("{\"done\":1,\"token\":\"t\",\"error\":\"e\"}"); /* token comes first */
    assert_int_equal(f.kind, FRAME_TOKEN);
    frame_release(&f);
    f = decode_ok("{\"id\":\"a\",\"token\":\"\",\"ids\":[1]}"); /* extra keys are fine */
    assert_int_equal(f.kind, FRAME_TOKEN);
    assert_string_equal(f.id.data, "a");
    assert_int_equal(f.text_len, 0);
    frame_release(&f);
    f = decode_ok("{\"from_the_future\":{}}");
    assert_int_equal(f.kind, FRAME_UNKNOWN);
    frame_release(&f);
}

static void test_decode_refuses(void **state)
{
    static const char *const lines[] = {
        "",
        "x",
        "[]",
        "null",
        "\"token\"",
        "{\"token\":\"a\"",
        "{\"token\":\"a\"}x",
        "{\"token\":\"\xff\"}",
        "{\"token\":1}",
        "{\"token\":null}",
        "{\"error\":1}",
        "{\"error\":null}",
        "{\"done\":true}",
        "{\"ready\":true}",
        "{\"opened\":true}",
        "{\"closed\":true,\"session_id\":1}",
        "{\"reset\":true,\"session_id\":null}",
        "{\"ready\":true,\"model\":[]}",
        "{\"ready\":true,\"pid\":-1,\"model\":{}}",
        "{\"ready\":true,\"pid\":4294967296,\"model\":{}}",
        "{\"ready\":true,\"pid\":1,\"model\":{}}",
    };
    for (size_t i = 0; i < N_OF(lines); i++) {
        frame f = {.kind = FRAME_DONE};
        err e;
        assert_int_equal(frame_decode(lines[i], strlen(lines[i]), &f, &e), ST_BAD_REQUEST);
        assert_int_equal(f.kind, FRAME_DONE); /* untouched */
        assert_null(f.doc);
        assert_int_equal(frame_decode(lines[i], strlen(lines[i]), &f, NULL), ST_BAD_REQUEST);
    }
}

/* Takes each field out of, and puts null into, whole frames: every one of them is needed. */
static void test_decode_needs_every_field(void **state)
{
    static const char *const done_keys[] = {
        "prompt_tokens",
        "completion_tokens",
        "reused_prompt_tokens",
        "prefilled_prompt_tokens",
        "finish_reason",
        "reason",
        "session_reset_reason",
        "prefill_ms",
        "decode_ms",
        "total_ms",
        "seed",
    };
    static const char *const ready_keys[] = {
        "max_sessions", "supports_cancel", "protocol",       "pid",        "model",   "name",     "arch",
        "quant",        "params",          "context_length", "vocab_size", "kernels", "kv_pages",
    };
    buf whole[2] = {{0}, {0}};
    frame_done d = some_done();
    frame_ready r = some_ready();
    assert_int_equal(frame_put_done(&whole[0], WIRE_NO_ID, &d), ST_OK);
    assert_int_equal(frame_put_ready(&whole[1], &r), ST_OK);
    for (size_t which = 0; which < 2; which++) {
        const char *const *keys = which == 0 ? done_keys : ready_keys;
        size_t n = which == 0 ? N_OF(done_keys) : N_OF(ready_keys);
        for (size_t i = 0; i < n; i++) {
            char quoted[64];
            frame f;
            snprintf(quoted, sizeof quoted, "\"%s\":", keys[i]);
            char *at = strstr(whole[which].data, quoted);
            assert_non_null(at);
            at[1] ^= 1; /* another name */
            assert_int_equal(frame_decode(whole[which].data, whole[which].len, &f, NULL), ST_BAD_REQUEST);
            at[1] ^= 1;
        }
    }
    buf_release(&whole[0]);
    buf_release(&whole[1]);
}

static void test_no_half_frames(void **state)
{
    frame_done d = some_done();
    for (uint64_t n = 1; n < 6; n++) {
        buf b = {0};
        mem_fail_at(n, true);
        status first = put_plain_token(&b, "abc", 3);
        size_t len = b.len;
        status second = frame_put_done(&b, WIRE_NO_ID, &d);
        mem_fail_at(0, false);
        assert_true(first == ST_OK ? len > 0 : len == 0);
        assert_true(second == ST_OK || b.len == len);
        assert_true(b.len == 0 || b.data[b.len - 1] == '\n');
        buf_release(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text_of_frames),
        cmocka_unit_test(test_done_variants),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_decode_accepts),
        cmocka_unit_test(test_decode_refuses),
        cmocka_unit_test(test_decode_needs_every_field),
        cmocka_unit_test(test_no_half_frames),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
