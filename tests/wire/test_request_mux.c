/*
 * The multiplexed dialect's lines (PROTOCOL 4; FAILURES I3): ops, fields, and that every refusal carries the id
 * and names what is wrong.
 */
#include "base/test_main.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "wire/frame.h"
#include "wire/line.h"
#include "wire/request.h"

#define N_VOCAB 1000

static const wire_limits limits = {.n_vocab = N_VOCAB, .supports_cancel = true};

/* Decodes; on refusal the answer is one error frame, *answer_out (frame_release). */
static wire_request *decode(const char *line, size_t len, frame *answer_out, uint64_t *attach_bytes)
{
    wire_request *r = NULL;
    buf answer = {0};
    err e;
    status st = wire_request_decode(line, len, &limits, &r, &answer, attach_bytes, &e);
    if (st == ST_OK) {
        assert_int_equal(answer.len, 0);
        assert_non_null(r);
    } else {
        assert_null(r);
        assert_int_equal(e.code, st);
        assert_true(answer.len > 1 && answer.data[answer.len - 1] == '\n');
        assert_int_equal(frame_decode(answer.data, answer.len - 1, answer_out, NULL), ST_OK);
        assert_int_equal(answer_out->kind, FRAME_ERROR);
        assert_int_equal(answer_out->code, st);
        assert_string_equal(answer_out->field, e.field);
    }
    buf_release(&answer);
    return r;
}

static wire_request *accept(const char *line)
{
    frame f = {0};
    wire_request *r = decode(line, strlen(line), &f, NULL);
    if (!r) {
        print_error("refused: %s: %s\n", line, f.text);
    }
    assert_non_null(r);
    return r;
}

/* id NULL: the answer has none. */
static void refuse(const char *line, const char *id, const char *field, status code)
{
    frame f = {0};
    wire_request *r = decode(line, strlen(line), &f, NULL);
    if (r || f.code != code || strcmp(f.field, field) != 0) {
        print_error("%s: field %s: %s\n", line, r ? "(accepted)" : f.field, r ? "" : f.text);
    }
    assert_null(r);
    assert_int_equal(f.code, code);
    assert_string_equal(f.field, field);
    if (id) {
        assert_non_null(f.id.data);
        assert_string_equal(f.id.data, id);
    } else {
        assert_null(f.id.data);
    }
    frame_release(&f);
}

/* Each op with what it needs. */
static const struct {
    const char *line;
    wire_op op;
} ops[] = {
    {"{\"id\":\"r\",\"prompt\":\"a\"}", WIRE_GENERATE},
    {"{\"id\":\"r\",\"op\":\"generate\",\"prompt\":\"a\"}", WIRE_GENERATE},
    {"{\"id\":\"r\",\"op\":\"generate\",\"prompt_segments\":[{\"ids\":[1]}]}", WIRE_GENERATE},
    {"{\"id\":\"r\",\"op\":\"chat\",\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]}", WIRE_CHAT},
    {"{\"id\":\"r\",\"op\":\"tokenize\",\"text\":\"a\"}", WIRE_TOKENIZE},
    {"{\"id\":\"r\",\"op\":\"detokenize\",\"ids\":[1,2]}", WIRE_DETOKENIZE},
    {"{\"id\":\"r\",\"op\":\"count\",\"text\":\"a\"}", WIRE_COUNT},
    {"{\"id\":\"r\",\"op\":\"count\",\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]}", WIRE_COUNT},
    {"{\"id\":\"r\",\"op\":\"session\",\"action\":\"get\",\"session_id\":\"s\"}", WIRE_SESSION_GET},
    {"{\"id\":\"r\",\"op\":\"session\",\"action\":\"reset\",\"session_id\":\"s\"}", WIRE_SESSION_RESET},
    {"{\"id\":\"r\",\"op\":\"session\",\"action\":\"close\",\"session_id\":\"s\"}", WIRE_SESSION_CLOSE},
    {"{\"id\":\"r\",\"op\":\"session\",\"session_id\":\"s\",\"action\":\"prewarm\"}", WIRE_SESSION_PREWARM},
    {"{\"id\":\"r\",\"op\":\"session\",\"session_id\":\"s\",\"action\":\"probe\"}", WIRE_SESSION_PROBE},
    {"{\"id\":\"r\",\"op\":\"session\",\"session_id\":\"s\",\"action\":\"export\",\"from\":0,\"count\":1}",
     WIRE_SESSION_EXPORT},
    {"{\"id\":\"r\",\"op\":\"session\",\"session_id\":\"s\",\"action\":\"import\",\"attach\":1}",
     WIRE_SESSION_IMPORT},
    {"{\"id\":\"r\",\"op\":\"session\",\"session_id\":\"s\",\"action\":\"save\",\"name\":\"a\"}",
     WIRE_SESSION_SAVE},
    {"{\"id\":\"r\",\"op\":\"session\",\"session_id\":\"s\",\"action\":\"restore\",\"name\":\"a\"}",
     WIRE_SESSION_RESTORE},
    {"{\"id\":\"r\",\"op\":\"session\",\"session_id\":\"s\",\"action\":\"drop\",\"name\":\"a\"}",
     WIRE_SESSION_DROP},
    {"{\"id\":\"r\",\"op\":\"stats\"}", WIRE_STATS},
    {"{\"id\":\"r\",\"op\":\"kv_limit\",\"pages\":7}", WIRE_KV_LIMIT},
    {"{\"id\":\"r\",\"op\":\"cancel\"}", WIRE_CANCEL},
    {"{\"op\":\"pause\",\"id\":\"r\"}", WIRE_PAUSE},
    {"{\"id\":\"r\",\"op\":\"continue\"}", WIRE_CONTINUE},
    {"{\"id\":\"r\",\"op\":\"drain\"}", WIRE_DRAIN},
    {"{\"id\":\"r\",\"op\":\"shutdown\"}", WIRE_SHUTDOWN},
};

static void test_ops(void **state)
{
    for (size_t i = 0; i < N_OF(ops); i++) {
        wire_request *r = accept(ops[i].line);
        assert_int_equal(r->op, ops[i].op);
        assert_string_equal(r->id.data, "r");
        assert_int_equal(r->id.len, 1);
        wire_request_free(r);
    }
}

/* No op takes a field that is not its own: unknown ones, other ops', plain ones. */
static void test_unknown_fields(void **state)
{
    char line[512];
    for (size_t i = 0; i < N_OF(ops); i++) {
        snprintf(line, sizeof line, "{\"nope\":1,%s", ops[i].line + 1);
        refuse(line, "r", "nope", ST_INVALID_FIELD);
        snprintf(line, sizeof line, "{\"cancel_request_id\":1,%s", ops[i].line + 1);
        refuse(line, "r", "cancel_request_id", ST_INVALID_FIELD);
        snprintf(line, sizeof line, "{\"token\":null,%s", ops[i].line + 1);
        refuse(line, "r", "token", ST_INVALID_FIELD);
    }
    refuse("{\"id\":\"r\",\"prompt\":\"a\",\"messages\":[]}", "r", "messages", ST_INVALID_FIELD);
    refuse("{\"id\":\"r\",\"prompt\":\"a\",\"text\":\"a\"}", "r", "text", ST_INVALID_FIELD);
    refuse("{\"id\":\"r\",\"prompt\":\"a\",\"n\":2}", "r", "n", ST_INVALID_FIELD); /* the daemon's affair */
    refuse("{\"id\":\"r\",\"op\":\"chat\",\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"prompt\":"
           "\"a\"}",
           "r", "prompt", ST_INVALID_FIELD);
    refuse("{\"id\":\"r\",\"op\":\"chat\",\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"add_"
           "special\":true}",
           "r", "add_special", ST_INVALID_FIELD);
    refuse("{\"id\":\"r\",\"op\":\"stats\",\"session_id\":\"s\"}", "r", "session_id", ST_INVALID_FIELD);
    refuse("{\"id\":\"r\",\"op\":\"cancel\",\"seed\":1}", "r", "seed", ST_INVALID_FIELD);
    refuse("{\"id\":\"r\",\"op\":\"session\",\"action\":\"get\",\"session_id\":\"s\",\"now\":1}", "r", "now",
           ST_INVALID_FIELD);
    /* a name that is longer than an error's field, and one with bytes that must not reach a log */
    char name[400];
    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    snprintf(line, sizeof line, "{\"id\":\"r\",\"prompt\":\"a\",\"%s\":1}", name);
    name[sizeof((err *)0)->field - 1] = '\0';
    refuse(line, "r", name, ST_INVALID_FIELD);
    refuse("{\"id\":\"r\",\"prompt\":\"a\",\"x\\ny\":1}", "r", "x?y", ST_INVALID_FIELD);
}

/* In PROTOCOL 4, not in this build: refused by name, whatever the value. */
static void test_unbuilt(void **state)
{
    static const char *const reply_fields[] = {
        "typical_p",
        "top_n_sigma",
        "dry_multiplier",
        "dry_base",
        "dry_allowed_length",
        "dry_penalty_last_n",
        "grammar",
        "json_schema",
        "regex",
        "choice",
        "adapter",
        "dry_sequence_breakers",
    };
    static const char *const chat_fields[] = {"response_format"};
    static const char *const values[] = {"null", "1", "{}", "\"x\""};
    static const char *const unbuilt_ops[] = {"embed", "score", "adapter"};
    char line[256];
    for (size_t v = 0; v < N_OF(values); v++) {
        for (size_t i = 0; i < N_OF(reply_fields); i++) {
            snprintf(line, sizeof line, "{\"id\":\"r\",\"prompt\":\"a\",\"%s\":%s}", reply_fields[i],
                     values[v]);
            refuse(line, "r", reply_fields[i], ST_UNSUPPORTED);
        }
        for (size_t i = 0; i < N_OF(chat_fields); i++) {
            snprintf(line, sizeof line,
                     "{\"id\":\"r\",\"op\":\"chat\",\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"%"
                     "s\":%s}",
                     chat_fields[i], values[v]);
            refuse(line, "r", chat_fields[i], ST_UNSUPPORTED);
        }
    }
    for (size_t i = 0; i < N_OF(unbuilt_ops); i++) {
        snprintf(line, sizeof line, "{\"id\":\"r\",\"op\":\"%s\",\"x\":1}", unbuilt_ops[i]);
        refuse(line, "r", "op", ST_UNSUPPORTED);
    }
    refuse("{\"id\":\"r\",\"op\":\"session\",\"session_id\":\"s\",\"action\":\"close\",\"now\":true}", "r",
           "now", ST_UNSUPPORTED);
}

#define CHAT "{\"id\":\"r\",\"op\":\"chat\",\"messages\":"
#define USER "[{\"role\":\"user\",\"content\":\"a\"}]"

static const struct {
    const char *line;
    const char *id; /* NULL: the answer has none */
    const char *field;
    status code;
} refused[] = {
    /* not one object: nobody knows whose it is */
    {"{\"id\":\"r\",\"prompt\":\"a\"", NULL, "", ST_BAD_REQUEST},
    {"[\"id\"]", NULL, "", ST_BAD_REQUEST},
    {"{\"id\":\"r\",\"prompt\":\"a\",\"seed\":18446744073709551616}", NULL, "", ST_BAD_REQUEST}, /* 2^64 */
    {"{\"id\":\"r\",\"id\":\"r\",\"prompt\":\"a\"}", NULL, "id", ST_BAD_REQUEST},
    /* id: a string of 1 to 256 bytes */
    {"{\"id\":1,\"prompt\":\"a\"}", NULL, "id", ST_INVALID_FIELD},
    {"{\"id\":null,\"prompt\":\"a\"}", NULL, "id", ST_INVALID_FIELD},
    {"{\"id\":true,\"op\":\"stats\"}", NULL, "id", ST_INVALID_FIELD},
    {"{\"id\":[\"r\"],\"op\":\"cancel\"}", NULL, "id", ST_INVALID_FIELD},
    {"{\"id\":{\"x\":\"r\"},\"op\":\"nope\"}", NULL, "id", ST_INVALID_FIELD},
    {"{\"id\":\"\",\"prompt\":\"a\"}", "", "id", ST_INVALID_FIELD},
    /* op */
    {"{\"id\":\"r\",\"op\":\"nope\"}", "r", "op", ST_INVALID_FIELD},
    {"{\"id\":\"r\",\"op\":null,\"prompt\":\"a\"}", "r", "op", ST_INVALID_FIELD},
    {"{\"id\":\"r\",\"op\":7}", "r", "op", ST_INVALID_FIELD},
    {"{\"id\":\"r\",\"op\":\"stats\\u0000\"}", "r", "op", ST_INVALID_FIELD},
    {"{\"id\":\"r\",\"op\":\"open\",\"session_id\":\"s\"}", "r", "op", ST_INVALID_FIELD}, /* plain ones */
    {"{\"id\":\"r\",\"op\":\"close\",\"session_id\":\"s\"}", "r", "op", ST_INVALID_FIELD},
    {"{\"id\":\"r\",\"op\":\"reset\",\"session_id\":\"s\"}", "r", "op", ST_INVALID_FIELD},
    /* what must be there; presence decides, even with null */
    {"{\"id\":\"r\"}", "r", "prompt", ST_INVALID_FIELD},
    {"{\"id\":\"r\",\"prompt\":null}", "r", "prompt", ST_INVALID_FIELD},
    {"{\"id\":\"r\",\"prompt\":\"a\",\"prompt_segments\":[]}", "r", "prompt_segments", ST_INVALID_FIELD},
    {"{\"id\":\"r\",\"op\":\"chat\"}", "r", "messages", ST_INVALID_FIELD},
    {"{\"id\":\"r\",\"op\":\"tokenize\"}", "r", "text", ST_INVALID_FIELD},
    {"{\"id\":\"r\",\"op\":\"detokenize\"}", "r", "ids", ST_INVALID_FIELD},
    {"{\"id\":\"r\",\"op\":\"count\"}", "r", "text", ST_INVALID_FIELD},
    {"{\"id\":\"r\",\"op\":\"count\",\"text\":\"a\",\"messages\":[]}", "r", "messages", ST_INVALID_FIELD},
    {"{\"id\":\"r\",\"op\":\"session\",\"session_id\":\"s\"}", "r", "action", ST_INVALID_FIELD},
    {"{\"id\":\"r\",\"op\":\"session\",\"action\":\"get\"}", "r", "session_id", ST_INVALID_FIELD},
    {"{\"id\":\"r\",\"op\":\"session\",\"action\":\"get\",\"session_id\":\"\"}", "r", "session_id",
     ST_INVALID_FIELD},
    {"{\"id\":\"r\",\"op\":\"session\",\"action\":\"get\",\"session_id\":1}", "r", "session_id",
     ST_INVALID_FIELD},
    {"{\"id\":\"r\",\"op\":\"session\",\"action\":null,\"session_id\":\"s\"}", "r", "action",
     ST_INVALID_FIELD},
    {"{\"id\":\"r\",\"op\":\"session\",\"action\":\"Get\",\"session_id\":\"s\"}", "r", "action",
     ST_INVALID_FIELD},
    /* ranges, attachments, names */
    {"{\"id\":\"r\",\"op\":\"session\",\"session_id\":\"s\",\"action\":\"probe\",\"from\":-1}", "r", "from",
     ST_INVALID_FIELD},
    {"{\"id\":\"r\",\"op\":\"session\",\"session_id\":\"s\",\"action\":\"probe\",\"from\":1.0}", "r", "from",
     ST_INVALID_FIELD},
    {"{\"id\":\"r\",\"op\":\"session\",\"session_id\":\"s\",\"action\":\"probe\",\"from\":null}", "r", "from",
     ST_INVALID_FIELD},
    {"{\"id\":\"r\",\"op\":\"session\",\"session_id\":\"s\",\"action\":\"probe\",\"from\":"
     "9223372036854775808}",
     "r", "from", ST_INVALID_FIELD},
    {"{\"id\":\"r\",\"op\":\"session\",\"session_id\":\"s\",\"action\":\"probe\",\"count\":-1}", "r", "count",
     ST_INVALID_FIELD},
    {"{\"id\":\"r\",\"op\":\"session\",\"session_id\":\"s\",\"action\":\"probe\",\"count\":\"1\"}", "r",
     "count", ST_INVALID_FIELD},
    {"{\"id\":\"r\",\"op\":\"session\",\"session_id\":\"s\",\"action\":\"probe\",\"name\":\"a\"}", "r",
     "name", ST_INVALID_FIELD},
    {"{\"id\":\"r\",\"op\":\"session\",\"session_id\":\"s\",\"action\":\"get\",\"from\":0}", "r", "from",
     ST_INVALID_FIELD},
    {"{\"id\":\"r\",\"op\":\"session\",\"session_id\":\"s\",\"action\":\"prewarm\",\"count\":1}", "r",
     "count", ST_INVALID_FIELD},
    {"{\"id\":\"r\",\"op\":\"session\",\"session_id\":\"s\",\"action\":\"export\"}", "r", "from",
     ST_INVALID_FIELD},
    {"{\"id\":\"r\",\"op\":\"session\",\"session_id\":\"s\",\"action\":\"export\",\"from\":0}", "r", "count",
     ST_INVALID_FIELD},
    {"{\"id\":\"r\",\"op\":\"session\",\"session_id\":\"s\",\"action\":\"export\",\"count\":1}", "r", "from",
     ST_INVALID_FIELD},
    {"{\"id\":\"r\",\"op\":\"session\",\"session_id\":\"s\",\"action\":\"export\",\"from\":0,\"count\":0}",
     "r", "count", ST_INVALID_FIELD},
    {"{\"id\":\"r\",\"op\":\"session\",\"session_id\":\"s\",\"action\":\"export\",\"from\":0,\"count\":-1}",
     "r", "count", ST_INVALID_FIELD},
    {"{\"id\":\"r\",\"op\":\"session\",\"session_id\":\"s\",\"action\":\"import\"}", "r", "attach",
     ST_INVALID_FIELD},
    {"{\"id\":\"r\",\"op\":\"session\",\"session_id\":\"s\",\"action\":\"import\",\"attach\":0}", "r",
     "attach", ST_INVALID_FIELD},
    {"{\"id\":\"r\",\"op\":\"session\",\"session_id\":\"s\",\"action\":\"import\",\"attach\":67108865}", "r",
     "attach", ST_INVALID_FIELD},
    {"{\"id\":\"r\",\"op\":\"session\",\"session_id\":\"s\",\"action\":\"import\",\"attach\":\"1\"}", "r",
     "attach", ST_INVALID_FIELD},
    {"{\"id\":\"r\",\"op\":\"session\",\"session_id\":\"s\",\"action\":\"import\",\"attach\":1,\"from\":0}",
     "r", "from", ST_INVALID_FIELD},
    {"{\"id\":\"r\",\"op\":\"session\",\"session_id\":\"s\",\"action\":\"save\"}", "r", "name",
     ST_INVALID_FIELD},
    {"{\"id\":\"r\",\"op\":\"session\",\"session_id\":\"s\",\"action\":\"save\",\"name\":\"\"}", "r", "name",
     ST_INVALID_FIELD},
    {"{\"id\":\"r\",\"op\":\"session\",\"session_id\":\"s\",\"action\":\"save\",\"name\":null}", "r", "name",
     ST_INVALID_FIELD},
    {"{\"id\":\"r\",\"op\":\"session\",\"session_id\":\"s\",\"action\":\"save\",\"name\":1}", "r", "name",
     ST_INVALID_FIELD},
    {"{\"id\":\"r\",\"op\":\"session\",\"session_id\":\"s\",\"action\":\"save\",\"name\":\".a\"}", "r",
     "name", ST_INVALID_FIELD},
    {"{\"id\":\"r\",\"op\":\"session\",\"session_id\":\"s\",\"action\":\"save\",\"name\":\"..\"}", "r",
     "name", ST_INVALID_FIELD},
    {"{\"id\":\"r\",\"op\":\"session\",\"session_id\":\"s\",\"action\":\"save\",\"name\":\"a/b\"}", "r",
     "name", ST_INVALID_FIELD},
    {"{\"id\":\"r\",\"op\":\"session\",\"session_id\":\"s\",\"action\":\"save\",\"name\":\"a\\u0000\"}", "r",
     "name", ST_INVALID_FIELD},
    {"{\"id\":\"r\",\"op\":\"session\",\"session_id\":\"s\",\"action\":\"save\",\"name\":\"a b\"}", "r",
     "name", ST_INVALID_FIELD},
    {"{\"id\":\"r\",\"op\":\"session\",\"session_id\":\"s\",\"action\":\"save\",\"name\":\"\\u00e9\"}", "r",
     "name", ST_INVALID_FIELD},
    {"{\"id\":\"r\",\"op\":\"session\",\"session_id\":\"s\",\"action\":\"save\",\"name\":"
     "\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"}",
     "r", "name", ST_INVALID_FIELD},
    {"{\"id\":\"r\",\"op\":\"session\",\"session_id\":\"s\",\"action\":\"restore\"}", "r", "name",
     ST_INVALID_FIELD},
    {"{\"id\":\"r\",\"op\":\"session\",\"session_id\":\"s\",\"action\":\"restore\",\"name\":\"/etc/passwd\"}",
     "r", "name", ST_INVALID_FIELD},
    {"{\"id\":\"r\",\"op\":\"session\",\"session_id\":\"s\",\"action\":\"drop\",\"name\":\"../a\"}", "r",
     "name", ST_INVALID_FIELD},
    {"{\"id\":\"r\",\"op\":\"session\",\"session_id\":\"s\",\"action\":\"drop\",\"name\":\"a\",\"attach\":0}",
     "r", "attach", ST_UNSUPPORTED},
    /* texts */
    {"{\"id\":\"r\",\"op\":\"tokenize\",\"text\":null}", "r", "text", ST_INVALID_FIELD},
    {"{\"id\":\"r\",\"op\":\"tokenize\",\"text\":[\"a\"]}", "r", "text", ST_INVALID_FIELD},
    {"{\"id\":\"r\",\"op\":\"tokenize\",\"text\":\"a\",\"parse_special\":1}", "r", "parse_special",
     ST_INVALID_FIELD},
    {"{\"id\":\"r\",\"op\":\"tokenize\",\"text\":\"a\",\"add_special\":null}", "r", "add_special",
     ST_INVALID_FIELD},
    {"{\"id\":\"r\",\"op\":\"count\",\"text\":\"a\",\"add_special\":true}", "r", "add_special",
     ST_INVALID_FIELD},
    {"{\"id\":\"r\",\"op\":\"count\",\"text\":\"a\",\"cache_namespace\":\"n\"}", "r", "cache_namespace",
     ST_INVALID_FIELD},
    {"{\"id\":\"r\",\"op\":\"tokenize\",\"text\":\"a\",\"cache_namespace\":\"n\"}", "r", "cache_namespace",
     ST_INVALID_FIELD},
    {"{\"id\":\"r\",\"prompt\":\"a\",\"cache_namespace\":null}", "r", "cache_namespace", ST_INVALID_FIELD},
    {"{\"id\":\"r\",\"prompt\":\"a\",\"cache_namespace\":1}", "r", "cache_namespace", ST_INVALID_FIELD},
    /* messages */
    {CHAT "null}", "r", "messages", ST_INVALID_FIELD},
    {CHAT "\"a\"}", "r", "messages", ST_INVALID_FIELD},
    {CHAT "{}}", "r", "messages", ST_INVALID_FIELD},
    {CHAT "[]}", "r", "messages", ST_INVALID_FIELD},
    {CHAT "[null]}", "r", "messages[0]", ST_INVALID_FIELD},
    {CHAT "[{}]}", "r", "messages[0].role", ST_INVALID_FIELD},
    {CHAT "[{\"content\":\"a\"}]}", "r", "messages[0].role", ST_INVALID_FIELD},
    {CHAT "[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"\"}]}", "r", "messages[1].role",
     ST_INVALID_FIELD},
    {CHAT "[{\"role\":null,\"content\":\"a\"}]}", "r", "messages[0].role", ST_INVALID_FIELD},
    {CHAT "[{\"role\":\"user\",\"content\":1}]}", "r", "messages[0].content", ST_INVALID_FIELD},
    {CHAT "[{\"role\":\"user\",\"content\":{}}]}", "r", "messages[0].content", ST_INVALID_FIELD},
    {CHAT "[{\"role\":\"user\",\"content\":[\"a\"]}]}", "r", "messages[0].content[0]", ST_INVALID_FIELD},
    {CHAT "[{\"role\":\"user\",\"content\":[{\"text\":\"a\"}]}]}", "r", "messages[0].content[0].type",
     ST_INVALID_FIELD},
    {CHAT "[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"text\"}]}]}", "r",
     "messages[0].content[1].text", ST_INVALID_FIELD},
    {CHAT "[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\",\"image_url\":{}}]}]}", "r",
     "messages[0].content[0].type", ST_UNSUPPORTED},
    {CHAT "[{\"role\":\"tool\",\"tool_call_id\":1}]}", "r", "messages[0].tool_call_id", ST_INVALID_FIELD},
    {CHAT "[{\"role\":\"user\",\"name\":[]}]}", "r", "messages[0].name", ST_INVALID_FIELD},
    {CHAT "[{\"role\":\"assistant\",\"reasoning_content\":{}}]}", "r", "messages[0].reasoning_content",
     ST_INVALID_FIELD},
    {CHAT "[{\"role\":\"assistant\",\"tool_calls\":{}}]}", "r", "messages[0].tool_calls", ST_INVALID_FIELD},
    {CHAT "[{\"role\":\"assistant\",\"tool_calls\":[1]}]}", "r", "messages[0].tool_calls[0]",
     ST_INVALID_FIELD},
    {CHAT "[{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"c\"}]}]}", "r",
     "messages[0].tool_calls[0].function", ST_INVALID_FIELD},
    {CHAT "[{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"arguments\":\"\"}}]}]}", "r",
     "messages[0].tool_calls[0].function.name", ST_INVALID_FIELD},
    {CHAT "[{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":[]}}]}]}",
     "r", "messages[0].tool_calls[0].function.arguments", ST_INVALID_FIELD},
    {CHAT "[{\"role\":\"assistant\",\"tool_calls\":[{\"type\":\"custom\",\"function\":{\"name\":\"f\"}}]}]}",
     "r", "messages[0].tool_calls[0].type", ST_INVALID_FIELD},
    {CHAT "[{\"role\":\"assistant\",\"tool_calls\":[{\"id\":1,\"function\":{\"name\":\"f\"}}]}]}", "r",
     "messages[0].tool_calls[0].id", ST_INVALID_FIELD},
    /* tools */
    {CHAT USER ",\"tools\":null}", "r", "tools", ST_INVALID_FIELD},
    {CHAT USER ",\"tools\":{}}", "r", "tools", ST_INVALID_FIELD},
    {CHAT USER ",\"tools\":[1]}", "r", "tools[0]", ST_INVALID_FIELD},
    {CHAT USER ",\"tools\":[{\"name\":\"f\"},{}]}", "r", "tools[1].name", ST_INVALID_FIELD},
    {CHAT USER ",\"tools\":[{\"function\":{}}]}", "r", "tools[0].function.name", ST_INVALID_FIELD},
    {CHAT USER ",\"tools\":[{\"function\":{\"name\":\"\"}}]}", "r", "tools[0].function.name",
     ST_INVALID_FIELD},
    {CHAT USER ",\"tool_choice\":null}", "r", "tool_choice", ST_INVALID_FIELD},
    {CHAT USER ",\"tool_choice\":\"any\"}", "r", "tool_choice", ST_INVALID_FIELD},
    {CHAT USER ",\"tool_choice\":\"required\"}", "r", "tool_choice", ST_INVALID_FIELD},
    {CHAT USER ",\"tool_choice\":{\"name\":\"f\"}}", "r", "tool_choice", ST_INVALID_FIELD},
    {CHAT USER ",\"tools\":[{\"name\":\"f\"}],\"tool_choice\":{\"name\":\"g\"}}", "r", "tool_choice",
     ST_INVALID_FIELD},
    {CHAT USER ",\"tools\":[{\"name\":\"f\"}],\"tool_choice\":{\"name\":\"f\",\"x\":1}}", "r", "tool_choice",
     ST_INVALID_FIELD},
    {CHAT USER ",\"parallel_tool_calls\":1}", "r", "parallel_tool_calls", ST_INVALID_FIELD},
    /* the template */
    {CHAT USER ",\"template_kwargs\":[]}", "r", "template_kwargs", ST_INVALID_FIELD},
    {CHAT USER ",\"reasoning\":true}", "r", "reasoning", ST_INVALID_FIELD},
    {CHAT USER ",\"reasoning\":{\"budget\":-2}}", "r", "reasoning.budget", ST_INVALID_FIELD},
    {CHAT USER ",\"reasoning\":{\"budget\":1.0}}", "r", "reasoning.budget", ST_INVALID_FIELD},
    {CHAT USER ",\"reasoning\":{\"effort\":\"max\"}}", "r", "reasoning.effort", ST_INVALID_FIELD},
    {CHAT USER ",\"reasoning\":{\"enabled\":null}}", "r", "reasoning.enabled", ST_INVALID_FIELD},
    {CHAT USER ",\"reasoning\":{\"tokens\":1}}", "r", "reasoning.tokens", ST_INVALID_FIELD},
    {CHAT USER ",\"continue_final_message\":true}", "r", "continue_final_message", ST_INVALID_FIELD},
    {"{\"id\":\"r\",\"op\":\"count\",\"text\":\"a\",\"tools\":[]}", "r", "tools", ST_INVALID_FIELD},
    {"{\"id\":\"r\",\"op\":\"render\",\"now\":1}", "r", "messages", ST_INVALID_FIELD},
    {"{\"id\":\"r\",\"op\":\"render\",\"messages\":" USER ",\"seed\":1}", "r", "seed", ST_INVALID_FIELD},
    /* token ids */
    {"{\"id\":\"r\",\"op\":\"detokenize\",\"ids\":[1000]}", "r", "ids", ST_INVALID_FIELD},
    {"{\"id\":\"r\",\"op\":\"detokenize\",\"ids\":[-1]}", "r", "ids", ST_INVALID_FIELD},
    {"{\"id\":\"r\",\"op\":\"detokenize\",\"ids\":[1.0]}", "r", "ids", ST_INVALID_FIELD},
    {"{\"id\":\"r\",\"op\":\"detokenize\",\"ids\":\"1\"}", "r", "ids", ST_INVALID_FIELD},
    {"{\"id\":\"r\",\"prompt\":\"a\",\"stop_token_ids\":[1000]}", "r", "stop_token_ids", ST_INVALID_FIELD},
    {"{\"id\":\"r\",\"prompt\":\"a\",\"stop_token_ids\":[-1]}", "r", "stop_token_ids", ST_INVALID_FIELD},
    /* logit_bias: names are token ids, each said in one way only */
    {"{\"id\":\"r\",\"prompt\":\"a\",\"logit_bias\":{\"1000\":1}}", "r", "logit_bias.1000", ST_INVALID_FIELD},
    {"{\"id\":\"r\",\"prompt\":\"a\",\"logit_bias\":{\"-1\":1}}", "r", "logit_bias.-1", ST_INVALID_FIELD},
    {"{\"id\":\"r\",\"prompt\":\"a\",\"logit_bias\":{\"01\":1}}", "r", "logit_bias.01", ST_INVALID_FIELD},
    {"{\"id\":\"r\",\"prompt\":\"a\",\"logit_bias\":{\"\":1}}", "r", "logit_bias.", ST_INVALID_FIELD},
    {"{\"id\":\"r\",\"prompt\":\"a\",\"logit_bias\":{\" 1\":1}}", "r", "logit_bias. 1", ST_INVALID_FIELD},
    {"{\"id\":\"r\",\"prompt\":\"a\",\"logit_bias\":{\"1.0\":1}}", "r", "logit_bias.1.0", ST_INVALID_FIELD},
    {"{\"id\":\"r\",\"prompt\":\"a\",\"logit_bias\":{\"a\":1}}", "r", "logit_bias.a", ST_INVALID_FIELD},
    {"{\"id\":\"r\",\"prompt\":\"a\",\"logit_bias\":{\"4294967297\":1}}", "r", "logit_bias.4294967297",
     ST_INVALID_FIELD}, /* 2^32 + 1 */
    {"{\"id\":\"r\",\"prompt\":\"a\",\"logit_bias\":{\"18446744073709551617\":1}}", "r",
     "logit_bias.18446744073709551617", ST_INVALID_FIELD}, /* 2^64 + 1 */
    {"{\"id\":\"r\",\"prompt\":\"a\",\"logit_bias\":{\"1\":1,\"1\":2}}", NULL, "1", ST_BAD_REQUEST},
    /* top_logprobs needs logprobs */
    {"{\"id\":\"r\",\"prompt\":\"a\",\"top_logprobs\":2}", "r", "top_logprobs", ST_INVALID_FIELD},
    {"{\"id\":\"r\",\"prompt\":\"a\",\"top_logprobs\":0,\"logprobs\":false}", "r", "top_logprobs",
     ST_INVALID_FIELD},
    {"{\"id\":\"r\",\"prompt\":\"a\",\"logprobs\":true,\"top_logprobs\":21}", "r", "top_logprobs",
     ST_INVALID_FIELD},
    {"{\"id\":\"r\",\"prompt\":\"a\",\"prompt_logprobs\":21}", "r", "prompt_logprobs", ST_INVALID_FIELD},
    {"{\"id\":\"r\",\"prompt\":\"a\",\"deadline_ms\":0}", "r", "deadline_ms", ST_INVALID_FIELD},
    {"{\"id\":\"r\",\"prompt\":\"a\",\"min_p\":1.0001}", "r", "min_p", ST_INVALID_FIELD},
    {"{\"id\":\"r\",\"prompt\":\"a\",\"repetition_penalty\":0.0099}", "r", "repetition_penalty",
     ST_INVALID_FIELD},
    {"{\"id\":\"r\",\"prompt\":\"a\",\"repetition_penalty\":100.1}", "r", "repetition_penalty",
     ST_INVALID_FIELD},
    {"{\"id\":\"r\",\"prompt\":\"a\",\"presence_penalty\":1000001}", "r", "presence_penalty",
     ST_INVALID_FIELD},
    {"{\"id\":\"r\",\"prompt\":\"a\",\"frequency_penalty\":-1000001}", "r", "frequency_penalty",
     ST_INVALID_FIELD},
    {"{\"id\":\"r\",\"prompt\":\"a\",\"priority\":11}", "r", "priority", ST_INVALID_FIELD},
    {"{\"id\":\"r\",\"prompt\":\"a\",\"priority\":-11}", "r", "priority", ST_INVALID_FIELD},
    {"{\"id\":\"r\",\"prompt\":\"a\",\"repetition_guard\":1}", "r", "repetition_guard", ST_INVALID_FIELD},
    {"{\"id\":\"r\",\"prompt\":\"a\",\"repetition_guard\":15}", "r", "repetition_guard", ST_INVALID_FIELD},
    {"{\"id\":\"r\",\"prompt\":\"a\",\"repetition_guard\":4097}", "r", "repetition_guard", ST_INVALID_FIELD},
    /* of several faults one is told */
    {"{\"id\":\"r\",\"prompt\":\"a\",\"top_p\":2,\"nope\":1}", "r", "top_p", ST_INVALID_FIELD},
    {"{\"id\":\"r\",\"prompt\":\"a\",\"nope\":1,\"top_p\":2}", "r", "nope", ST_INVALID_FIELD},
};

static void test_refused(void **state)
{
    for (size_t i = 0; i < N_OF(refused); i++) {
        refuse(refused[i].line, refused[i].id, refused[i].field, refused[i].code);
    }
}

/* FAILURES I3: each field with each of these; 'o' accepted (or clamped), 'r' refused by its name. */
static const char *const values[] = {
    "-1", "2147483648", "-2147483648", "9223372036854775808", "1e308", "null", "\"x\"", "[1]", "true", "1.5"};
static const struct {
    const char *field;
    const char *members; /* %s is the value */
    const char *want;    /* one letter for each of values */
    bool generate_only;
} matrix[] = {
    {"max_new_tokens", "\"max_new_tokens\":%s", "oooorrrrrr", false},
    {"temperature", "\"temperature\":%s", "roroorrrro", false},
    {"top_p", "\"top_p\":%s", "rrrrrrrrrr", false},
    {"top_k", "\"top_k\":%s", "rrrrrrrrrr", false},
    {"seed", "\"seed\":%s", "rorrrrrrrr", false},
    {"now", "\"now\":%s", "rorrrrrrrr", false},
    {"min_p", "\"min_p\":%s", "rrrrrrrrrr", false},
    {"repetition_penalty", "\"repetition_penalty\":%s", "rrrrrrrrro", false},
    {"presence_penalty", "\"presence_penalty\":%s", "orrrrrrrro", false},
    {"frequency_penalty", "\"frequency_penalty\":%s", "orrrrrrrro", false},
    {"repeat_last_n", "\"repeat_last_n\":%s", "orrrrrrrrr", false},
    {"min_tokens", "\"min_tokens\":%s", "rrrrrrrrrr", false},
    {"ignore_eos", "\"ignore_eos\":%s", "rrrrrrrror", false},
    {"progress", "\"progress\":%s", "rrrrrrrror", false},
    {"priority", "\"priority\":%s", "orrrrrrrrr", false},
    {"repetition_guard", "\"repetition_guard\":%s", "rrrrrrrrrr", false},
    {"logprobs", "\"logprobs\":%s", "rrrrrrrror", false},
    {"top_logprobs", "\"logprobs\":true,\"top_logprobs\":%s", "rrrrrrrrrr", false},
    {"prompt_logprobs", "\"prompt_logprobs\":%s", "rrrrrrrrrr", false},
    {"deadline_ms", "\"deadline_ms\":%s", "rororrrrrr", false},
    {"logit_bias", "\"logit_bias\":%s", "rrrrrrrrrr", false},
    {"logit_bias.5", "\"logit_bias\":{\"5\":%s}", "ooooorrrro", false},
    {"stop_token_ids", "\"stop_token_ids\":%s", "rrrrrrrorr", false},
    {"stop_token_ids", "\"stop_token_ids\":[0,%s]", "rrrrrrrrrr", false},
    {"stop", "\"stop\":%s", "rrrrrrrrrr", false},
    {"stop", "\"stop\":[\"a\",%s]", "rrrrrrorrr", false},
    {"session_id", "\"session_id\":%s", "rrrrrrorrr", false},
    {"add_special", "\"add_special\":%s", "rrrrrrrror", true},
};

static void test_every_value_of_every_field(void **state)
{
    char members[256], line[512];
    for (size_t f = 0; f < N_OF(matrix); f++) {
        for (size_t v = 0; v < N_OF(values) * 2; v++) {
            const char *value = values[v / 2];
            bool chat = v % 2 != 0;
            if (chat && matrix[f].generate_only) {
                continue;
            }
            /* the table above is the only source of formats */
            const char *at = strstr(matrix[f].members, "%s");
            snprintf(members, sizeof members, "%.*s%s%s", (int)(at - matrix[f].members), matrix[f].members,
                     value, at + 2);
            snprintf(line, sizeof line, "{\"id\":\"r\",%s,%s}",
                     chat ? "\"op\":\"chat\",\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]"
                          : "\"prompt\":\"a\"",
                     members);
            if (matrix[f].want[v / 2] == 'o') {
                wire_request_free(accept(line));
            } else {
                refuse(line, "r", matrix[f].field, ST_INVALID_FIELD);
            }
        }
        snprintf(line, sizeof line, "{\"id\":\"r\",\"prompt\":\"a\",\"%s\":NaN}", matrix[f].field);
        refuse(line, NULL, "", ST_BAD_REQUEST);
    }
}

static void test_values(void **state)
{
    wire_request *r =
        accept("{\"id\":\"a\\u0000b\",\"op\":\"generate\",\"prompt\":\"hi\",\"max_new_tokens\":7,"
               "\"temperature\":0.5,\"top_p\":0.25,"
               "\"top_k\":40,\"seed\":9223372036854775807,\"now\":1700000000123,\"min_p\":0.125,\"repetition_"
               "penalty\":1.5,"
               "\"presence_penalty\":-2,\"frequency_penalty\":0.75,\"repeat_last_n\":-1,"
               "\"logit_bias\":{\"999\":-1e308,\"0\":1e308,\"17\":2.5},\"min_tokens\":3,\"ignore_eos\":true,"
               "\"stop_token_ids\":[999,0],\"top_logprobs\":20,\"logprobs\":true,\"prompt_logprobs\":0,"
               "\"deadline_ms\":1,"
               "\"progress\":true,\"stop\":[\"x\"],\"session_id\":\"s\",\"add_special\":true}");
    assert_int_equal(r->id.len, 3);
    assert_memory_equal(r->id.data, "a\0b", 4);
    assert_string_equal(r->prompt_field, "prompt");
    assert_int_equal(r->max_new_tokens, 7);
    assert_true(r->temperature == 0.5 && r->top_p == 0.25 && r->min_p == 0.125);
    assert_int_equal(r->top_k, 40);
    assert_true(r->seed == INT64_MAX);
    assert_true(r->has_now && r->now_ms == 1700000000123);
    assert_true(r->repetition_penalty == 1.5 && r->presence_penalty == -2 && r->frequency_penalty == 0.75);
    assert_int_equal(r->repeat_last_n, -1);
    assert_int_equal(r->n_bias, 3); /* ascending, clamped */
    assert_true(r->bias[0].token == 0 && r->bias[0].bias == 1e30);
    assert_true(r->bias[1].token == 17 && r->bias[1].bias == 2.5);
    assert_true(r->bias[2].token == 999 && r->bias[2].bias == -1e30);
    assert_int_equal(r->min_tokens, 3);
    assert_true(r->ignore_eos && r->progress && r->add_special);
    assert_int_equal(r->n_stop_token_ids, 2);
    assert_true(r->stop_token_ids[0] == 999 && r->stop_token_ids[1] == 0);
    assert_int_equal(r->top_logprobs, 20);
    assert_int_equal(r->prompt_logprobs, 0);
    assert_true(r->deadline_ms == 1);
    assert_int_equal(r->n_stops, 1);
    assert_string_equal(r->session_id.data, "s");
    wire_request_free(r);

    r = accept(CHAT "[{\"role\":\"system\",\"content\":\"\"},{\"content\":\"b\\u0000\",\"role\":\"user\"},"
                    "{\"role\":\"assistant\",\"content\":\"<|im_end|>\"}],\"logprobs\":true}");
    assert_int_equal(json_len(r->messages), 3);
    const json *content;
    size_t len;
    assert_true(json_get(json_at(r->messages, 1), "content", &content));
    const char *text = json_string(content, &len);
    assert_int_equal(len, 2);
    assert_memory_equal(text, "b\0", 3);
    assert_true(!r->tools && r->tool_choice == WIRE_TOOLS_AUTO && r->parallel_tool_calls);
    assert_true(!r->template_kwargs && r->reasoning_budget == -1 && !r->reasoning_effort);
    assert_true(r->reasoning_enabled == WIRE_UNSAID && !r->continue_final_message);
    assert_int_equal(r->top_logprobs, 0);
    assert_int_equal(r->n_segments, 0);
    wire_request_free(r);
}

/* The guard against repetition: as told, else 1024 where nothing of the request's own ends it. */
static void test_repetition_guard(void **state)
{
    static const struct {
        const char *members;
        int32_t want;
    } cases[] = {
        {"", 1024},
        {",\"max_new_tokens\":-1", 1024},
        {",\"max_new_tokens\":100000", 0},
        {",\"max_new_tokens\":0", 0},
        {",\"ignore_eos\":true", 0},
        {",\"ignore_eos\":false", 1024},
        {",\"repetition_guard\":0", 0},
        {",\"repetition_guard\":16", 16},
        {",\"repetition_guard\":4096,\"max_new_tokens\":7,\"ignore_eos\":true", 4096},
    };
    char line[256];
    for (size_t i = 0; i < N_OF(cases); i++) {
        snprintf(line, sizeof line, "{\"id\":\"r\",\"prompt\":\"a\"%s}", cases[i].members);
        wire_request *r = accept(line);
        assert_int_equal(wire_request_repetition_guard(r), cases[i].want);
        assert_int_equal(r->priority, 0);
        wire_request_free(r);
    }
    wire_request *r =
        accept("{\"prompt\":\"a\",\"repetition_guard\":64,\"priority\":3}"); /* plain: ignored */
    assert_int_equal(wire_request_repetition_guard(r), 0);
    assert_int_equal(r->priority, 0);
    wire_request_free(r);
    r = accept(CHAT "[{\"role\":\"user\",\"content\":\"a\"}],\"priority\":-10}");
    assert_int_equal(wire_request_repetition_guard(r), 1024);
    assert_int_equal(r->priority, -10);
    wire_request_free(r);
}

static void test_texts(void **state)
{
    wire_request *r = accept("{\"id\":\"r\",\"op\":\"tokenize\",\"text\":\"\"}");
    assert_int_equal(r->n_segments, 1);
    assert_int_equal(r->segments[0].text.len, 0);
    assert_string_equal(r->prompt_field, "text");
    assert_true(r->parse_special && !r->add_special);
    wire_request_free(r);
    r = accept(
        "{\"id\":\"r\",\"op\":\"tokenize\",\"text\":\"a\",\"parse_special\":false,\"add_special\":true}");
    assert_true(!r->parse_special && r->add_special);
    wire_request_free(r);
    r = accept("{\"id\":\"r\",\"op\":\"count\",\"text\":\"ab\"}");
    assert_int_equal(r->segments[0].text.len, 2);
    assert_true(r->parse_special);
    wire_request_free(r);
    r = accept("{\"id\":\"r\",\"op\":\"detokenize\",\"ids\":[]}");
    assert_int_equal(r->n_ids, 0);
    wire_request_free(r);
    r = accept("{\"id\":\"r\",\"op\":\"detokenize\",\"ids\":[0,999]}");
    assert_int_equal(r->n_ids, 2);
    assert_int_equal(r->ids[1], 999);
    wire_request_free(r);
}

/* 0 generates nothing here; negative is the rest of the context, and too large is clamped. */
static void test_budgets(void **state)
{
    static const struct {
        const char *text;
        int32_t want;
    } cases[] = {{"-9223372036854775808", -1},
                 {"-1", -1},
                 {"-0", 0},
                 {"0", 0},
                 {"1", 1},
                 {"2147483647", INT32_MAX},
                 {"2147483648", INT32_MAX},
                 {"18446744073709551615", INT32_MAX}};
    char line[128];
    for (size_t i = 0; i < N_OF(cases); i++) {
        snprintf(line, sizeof line, "{\"id\":\"r\",\"prompt\":\"a\",\"max_new_tokens\":%s}", cases[i].text);
        wire_request *r = accept(line);
        assert_int_equal(r->max_new_tokens, cases[i].want);
        wire_request_free(r);
    }
    wire_request *r = accept("{\"id\":\"r\",\"prompt\":\"a\"}");
    assert_int_equal(r->max_new_tokens, -1);
    assert_true(r->seed == 0);
    wire_request_free(r);
    r = accept("{\"id\":\"r\",\"prompt\":\"a\",\"deadline_ms\":18446744073709551615}");
    assert_true(r->deadline_ms == WIRE_MAX_DEADLINE_MS); /* documented clamp */
    wire_request_free(r);
}

/* A line with `n` x's where %s is, built at run time: too long for a literal. */
static void put_repeated(buf *b, const char *before, size_t n, const char *after)
{
    buf_reset(b);
    assert_int_equal(buf_append_str(b, before), ST_OK);
    assert_int_equal(buf_reserve(b, n), ST_OK);
    for (size_t i = 0; i < n; i++) {
        buf_append_char(b, 'x');
    }
    assert_int_equal(buf_append_str(b, after), ST_OK);
}

static void test_limits(void **state)
{
    buf b = {0};
    put_repeated(&b, "{\"op\":\"stats\",\"id\":\"", WIRE_MAX_ID_BYTES, "\"}");
    wire_request *r = accept(b.data);
    assert_int_equal(r->id.len, WIRE_MAX_ID_BYTES);
    wire_request_free(r);
    put_repeated(&b, "{\"op\":\"stats\",\"id\":\"", WIRE_MAX_ID_BYTES + 1, "\"}");
    char id[WIRE_MAX_ID_BYTES + 2];
    memset(id, 'x', sizeof id - 1);
    id[sizeof id - 1] = '\0';
    refuse(b.data, id, "id", ST_INVALID_FIELD); /* its sender can still tell whose it is */

    /* 8 MiB, and one byte more; in the plain dialect that is fine */
    static const char before[] = "{\"id\":\"r\",\"prompt\":\"", after[] = "\"}";
    size_t room = WIRE_MAX_MUX_LINE_BYTES - strlen(before) - strlen(after);
    put_repeated(&b, before, room, after);
    assert_int_equal(b.len, (size_t)8 << 20);
    wire_request_free(accept(b.data));
    put_repeated(&b, before, room + 1, after);
    refuse(b.data, "r", "", ST_BAD_REQUEST);
    put_repeated(&b, "{\"prompt\":\"", WIRE_MAX_MUX_LINE_BYTES, "\"}");
    wire_request_free(accept(b.data));

    buf_reset(&b);
    buf_append_str(&b, "{\"id\":\"r\",\"prompt\":\"a\",\"logit_bias\":{\"0\":0");
    for (int i = 1; i < WIRE_MAX_BIAS && i < N_VOCAB; i++) {
        buf_printf(&b, ",\"%d\":1", i);
    }
    buf_append_str(&b, "}}");
    r = accept(b.data);
    assert_int_equal(r->n_bias, N_VOCAB);
    wire_request_free(r);
    for (int n = WIRE_MAX_STOP_IDS; n <= WIRE_MAX_STOP_IDS + 1; n++) {
        buf_reset(&b);
        buf_append_str(&b, "{\"id\":\"r\",\"prompt\":\"a\",\"stop_token_ids\":[0");
        for (int i = 1; i < n; i++) {
            buf_append_str(&b, ",5");
        }
        buf_append_str(&b, "]}");
        if (n == WIRE_MAX_STOP_IDS) {
            wire_request_free(accept(b.data));
        } else {
            refuse(b.data, "r", "stop_token_ids", ST_INVALID_FIELD);
        }
    }
    buf_release(&b);
}

static void test_too_many_biases(void **state)
{
    const wire_limits large = {.n_vocab = 100000};
    for (int n = WIRE_MAX_BIAS; n <= WIRE_MAX_BIAS + 1; n++) {
        buf b = {0}, answer = {0};
        wire_request *r = NULL;
        err e;
        buf_append_str(&b, "{\"id\":\"r\",\"prompt\":\"a\",\"logit_bias\":{\"0\":0");
        for (int i = 1; i < n; i++) {
            buf_printf(&b, ",\"%d\":1", i * 7);
        }
        buf_append_str(&b, "}}");
        status st = wire_request_decode(b.data, b.len, &large, &r, &answer, NULL, &e);
        assert_int_equal(st, n == WIRE_MAX_BIAS ? ST_OK : ST_INVALID_FIELD);
        if (st != ST_OK) {
            assert_string_equal(e.field, "logit_bias");
        }
        wire_request_free(r);
        buf_release(&b);
        buf_release(&answer);
    }
}

/* What follows the line is raw bytes, whatever is wrong with the line; in the plain dialect there is no such
 * thing. */
static void test_attachments(void **state)
{
    static const struct {
        const char *line;
        uint64_t want;
        const char *field; /* NULL: accepted */
    } cases[] = {
        {"{\"id\":\"r\",\"op\":\"stats\"}", 0, NULL},
        {"{\"id\":\"r\",\"op\":\"stats\",\"attach\":5}", 5, "attach"},
        {"{\"id\":\"r\",\"prompt\":\"a\",\"attach\":1}", 1, "attach"},
        {"{\"id\":\"r\",\"op\":\"session\",\"session_id\":\"s\",\"action\":\"import\",\"attach\":100}", 100,
         NULL},
        {"{\"id\":\"r\",\"op\":\"session\",\"session_id\":\"s\",\"action\":\"import\",\"attach\":100,\"x\":"
         "1}",
         100, "x"},
        {"{\"id\":\"r\",\"op\":\"session\",\"action\":\"import\",\"attach\":100}", 100, "session_id"},
        {"{\"id\":\"r\",\"op\":\"session\",\"session_id\":\"s\",\"action\":\"import\",\"attach\":67108865}",
         67108865, "attach"},
        {"{\"id\":\"r\",\"op\":\"session\",\"session_id\":\"s\",\"action\":\"export\",\"attach\":100,"
         "\"from\":0,"
         "\"count\":1}",
         100, "attach"},
        {"{\"id\":\"r\",\"op\":\"embed\",\"attach\":7}", 7, "op"},
        {"{\"id\":1,\"op\":\"stats\",\"attach\":9}", 9, "id"},
        {"{\"id\":\"r\",\"op\":\"stats\",\"attach\":18446744073709551615}", UINT64_MAX, "attach"},
        {"{\"id\":\"r\",\"op\":\"stats\",\"attach\":0}", 0, "attach"},
        {"{\"id\":\"r\",\"op\":\"stats\",\"attach\":-1}", 0, "attach"},
        {"{\"id\":\"r\",\"op\":\"stats\",\"attach\":1.5}", 0, "attach"},
        {"{\"id\":\"r\",\"op\":\"stats\",\"attach\":null}", 0, "attach"},
        {"{\"prompt\":\"a\",\"attach\":5}", 0, NULL},
        {"[5]", 0, ""},
        {"{\"attach\":5", 0, ""},
    };
    for (size_t i = 0; i < N_OF(cases); i++) {
        frame f = {0};
        uint64_t n = 77;
        wire_request *r = decode(cases[i].line, strlen(cases[i].line), &f, &n);
        assert_true(n == cases[i].want);
        assert_int_equal(r != NULL, cases[i].field == NULL);
        if (!r) {
            assert_string_equal(f.field, cases[i].field);
        } else { /* what a request says is to be kept is what follows */
            assert_true(r->attach_bytes == n);
        }
        frame_release(&f);
        wire_request_free(r);
    }
}

/* Whose bytes follow is known even where there is no memory to read the line: they are never taken for lines. */
static void test_attachment_without_memory(void **state)
{
    static const struct {
        const char *line;
        uint64_t want;
    } cases[] = {
        {"{\"id\":\"r\",\"op\":\"session\",\"session_id\":\"s\",\"action\":\"import\",\"attach\":67108864}",
         67108864},
        {"{\"id\":\"r\",\"op\":\"session\",\"session_id\":\"s\",\"action\":\"import\",\"x\":1,\"attach\":7}",
         7},
        {"{\"id\":\"r\",\"op\":\"stats\"}", 0},
        {"{\"id\":\"r\",\"prompt\":\"a\",\"deadline_ms\":12}", 0},
    };
    for (size_t i = 0; i < N_OF(cases); i++) {
        for (uint64_t at = 1; at < 20; at++) {
            wire_request *r = NULL;
            buf answer = {0};
            uint64_t n = 77;
            mem_fail_at(at, true);
            status st =
                wire_request_decode(cases[i].line, strlen(cases[i].line), &limits, &r, &answer, &n, NULL);
            mem_fail_at(0, false);
            assert_true(n == cases[i].want);
            assert_true(at > 1 || st == ST_NOMEM);
            wire_request_free(r);
            buf_release(&answer);
        }
    }
}

/* What was put into a request is freed with it and counts. */
static void test_attached(void **state)
{
    wire_request *r = accept(
        "{\"id\":\"r\",\"op\":\"session\",\"session_id\":\"s\",\"action\":\"import\",\"attach\":1000}");
    assert_int_equal(r->attach_bytes, 1000);
    assert_true(wire_request_bytes(r) > 1000);
    r->attached = mem_alloc(1000);
    assert_non_null(r->attached);
    wire_request_free(r);
}

/* invalid_field shows the value, and no answer here speaks of a session. */
static void test_answer_text(void **state)
{
    wire_request *r = NULL;
    buf answer = {0};
    static const char line[] = "{\"id\":\"r\",\"op\":\"chat\",\"session_id\":\"s\",\"messages\":7}";
    assert_int_equal(wire_request_decode(line, strlen(line), &limits, &r, &answer, NULL, NULL),
                     ST_INVALID_FIELD);
    assert_string_equal(answer.data,
                        "{\"id\":\"r\",\"error\":\"messages must be a list of 1 to 4096 messages, not 7\","
                        "\"code\":\"invalid_field\",\"field\":\"messages\",\"value\":7}\n");
    buf_reset(&answer);
    static const char unbuilt[] = "{\"id\":\"r\",\"prompt\":\"a\",\"grammar\":\"x\"}";
    assert_int_equal(wire_request_decode(unbuilt, strlen(unbuilt), &limits, &r, &answer, NULL, NULL),
                     ST_UNSUPPORTED);
    assert_string_equal(answer.data, "{\"id\":\"r\",\"error\":\"grammar is not supported by this build\","
                                     "\"code\":\"unsupported\",\"field\":\"grammar\"}\n");
    buf_release(&answer);
}

/* A failing allocation anywhere gives ST_NOMEM or a whole answer, and leaks nothing (ASan looks). */
static void test_memory(void **state)
{
    static const char *const lines[] = {
        "{\"id\":\"r\",\"op\":\"chat\",\"messages\":[{\"role\":\"user\",\"content\":\"abc\"}],\"stop\":["
        "\"x\"],"
        "\"logit_bias\":{\"5\":1,\"4\":2},\"stop_token_ids\":[1],\"session_id\":\"s\"}",
        "{\"id\":\"r\",\"op\":\"detokenize\",\"ids\":[1,2,3]}",
        "{\"id\":\"r\",\"op\":\"stats\",\"nope\":1}",
        "{\"id\":\"r\",\"op\":\"session\",\"action\":\"save\"}",
        "{\"id\":\"r\",\"op\":\"session\",\"action\":\"save\",\"session_id\":\"s\",\"name\":\"n\"}",
    };
    for (size_t i = 0; i < N_OF(lines); i++) {
        for (uint64_t n = 1; n < 40; n++) {
            wire_request *r = NULL;
            buf answer = {0};
            mem_fail_at(n, true);
            status st = wire_request_decode(lines[i], strlen(lines[i]), &limits, &r, &answer, NULL, NULL);
            mem_fail_at(0, false);
            assert_true(st == ST_OK ? r != NULL : r == NULL);
            assert_true(answer.len == 0 || answer.data[answer.len - 1] == '\n');
            assert_true(answer.len == 0 || strncmp(answer.data, "{\"id\":\"r\",", 10) == 0);
            wire_request_free(r);
            buf_release(&answer);
        }
    }
}

/* What can be known of a line without memory. */
static void test_peek(void **state)
{
    static const struct {
        const char *line, *id;
        wire_op op;
        uint64_t attached;
    } rows[] = {
        {"{\"id\":\"r\",\"op\":\"cancel\"}", "r", WIRE_CANCEL, 0},
        {"{\"op\":\"pause\",\"id\":\"\\u0072\\n\"}", "r\n", WIRE_PAUSE, 0},
        {"{\"x\":{\"id\":\"no\"},\"y\":[\"id\"],\"id\":\"r\"}", "r", WIRE_GENERATE, 0},
        {"{\"id\":\"r\",\"op\":\"session\",\"action\":\"import\",\"attach\":12}", "r", WIRE_SESSION_GET, 12},
        {"{\"prompt\":\"a\",\"attach\":12}", "", WIRE_GENERATE, 0}, /* plain: no bytes follow */
        {"{\"op\":\"drain\"}", "", WIRE_DRAIN, 0},
        {"{\"op\":\"cancel\"}", "", WIRE_GENERATE, 0}, /* not in this dialect */
        {"{\"id\":3,\"op\":\"drain\"}", "", WIRE_DRAIN, 0},
        {"{\"id\":\"r\",\"prompt\":\"it is cut here", "r", WIRE_GENERATE, 0},
        {"[\"id\",\"r\"]", "", WIRE_GENERATE, 0},
        {"", "", WIRE_GENERATE, 0},
    };
    for (size_t i = 0; i < N_OF(rows); i++) {
        wire_stub s = wire_request_peek(rows[i].line, strlen(rows[i].line));
        assert_int_equal(s.id_len, strlen(rows[i].id));
        assert_memory_equal(s.id, rows[i].id, s.id_len);
        assert_int_equal(s.op, rows[i].op);
        assert_true(s.attach_bytes == rows[i].attached);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ops),
        cmocka_unit_test(test_peek),
        cmocka_unit_test(test_unknown_fields),
        cmocka_unit_test(test_unbuilt),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_every_value_of_every_field),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_repetition_guard),
        cmocka_unit_test(test_texts),
        cmocka_unit_test(test_budgets),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_too_many_biases),
        cmocka_unit_test(test_attachments),
        cmocka_unit_test(test_attachment_without_memory),
        cmocka_unit_test(test_attached),
        cmocka_unit_test(test_answer_text),
        cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
