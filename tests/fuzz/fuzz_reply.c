/*
 * reply_parser under any text in any form: never a crash or an error; the same result whole, byte by byte and in
 * random pieces; what collect() checks of the events; the arguments of a call that counts are one JSON object;
 * content and reasoning are trimmed; calls that are not looked for are not found.
 *
 * Byte 0: the style; byte 1: bits of the options and of the cutting; the rest: the text.
 */
#include "text/json_scan.h"
#include "text/reply_collect.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char tools_text[] = "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{"
                                 "\"type\":\"object\",\"properties\":{"
                                 "\"s\":{\"type\":\"string\"},\"n\":{\"type\":\"integer\"},\"a\":{\"type\":"
                                 "\"array\"},\"o\":{\"type\":\"object\"},"
                                 "\"b\":{\"type\":\"boolean\"},\"u\":{\"type\":[\"string\",\"null\"]},\"x\":{"
                                 "\"anyOf\":[{\"type\":\"number\"},{}]}}}}},"
                                 "{\"name\":\"g\",\"parameters\":{\"properties\":{}}}]";

static const json *tools(void)
{
    static json_doc *doc;
    if (!doc) {
        COLLECT_CHECK(json_parse(tools_text, sizeof tools_text - 1, JSON_MAX_DEPTH, &doc, NULL) == ST_OK);
    }
    return json_root(doc);
}

/* What the strict reader refuses beside faults of grammar. */
static const char *const beyond_grammar[] = {"duplicate key", "lone surrogate", "an integer is outside",
                                             "overflows a double", "holds U+0000"};

static void check_object(const buf *args)
{
    json_scan s;
    json_scan_result r = JSON_SCAN_MORE;
    json_scan_init(&s);
    for (size_t i = 0; i < args->len; i++) {
        COLLECT_CHECK(r == JSON_SCAN_MORE);
        r = json_scan_push(&s, (unsigned char)args->data[i]);
    }
    COLLECT_CHECK(r == JSON_SCAN_DONE && args->data[0] == '{');
    json_doc *doc = NULL;
    err e = {0};
    if (json_parse(args->data, args->len, JSON_MAX_DEPTH, &doc, &e) != ST_OK) {
        bool known = false;
        for (size_t i = 0; i < sizeof beyond_grammar / sizeof *beyond_grammar; i++) {
            known = known || strstr(e.msg, beyond_grammar[i]);
        }
        COLLECT_CHECK(known);
    }
    json_doc_free(doc);
}

static void check_trimmed(const buf *b)
{
    static const char space[] = " \t\n\v\f\r";
    COLLECT_CHECK(b->len == 0 || (!memchr(space, b->data[0], 6) && !memchr(space, b->data[b->len - 1], 6)));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2) {
        return 0;
    }
    buf text = {0};
    uint64_t seed = size;
    bool cut = data[1] & 4;
    reply_options o = {.format = reply_format_of((reply_style)(data[0] % (REPLY_FUNCTIONARY_V3_1 + 1))),
                       .tools = tools(),
                       .no_calls = data[1] & 1,
                       .reasoning_open = data[1] & 2};
    COLLECT_CHECK(utf8_repair(&text, (const char *)data + 2, size - 2) == ST_OK);
    collected whole = {.whole_characters = true}, bytes = {0}, pieces = {0};
    COLLECT_CHECK(collect_text(&whole, &o, buf_str(&text), text.len, cut, NULL, NULL) == ST_OK);
    COLLECT_CHECK(collect_text(&bytes, &o, buf_str(&text), text.len, cut, collect_bytes, NULL) == ST_OK);
    COLLECT_CHECK(collect_text(&pieces, &o, buf_str(&text), text.len, cut, collect_random, &seed) == ST_OK);
    COLLECT_CHECK(collected_equal(&whole, &bytes) && collected_equal(&whole, &pieces));
    COLLECT_CHECK(!o.no_calls || (whole.n == 0 && !whole.end.call_name));
    check_trimmed(&whole.content);
    check_trimmed(&whole.reasoning);
    for (size_t i = 0; i < whole.n; i++) {
        if (whole.calls[i].ended) {
            check_object(&whole.calls[i].args);
        }
    }
    collected_release(&whole);
    collected_release(&bytes);
    collected_release(&pieces);
    buf_release(&text);
    return 0;
}
