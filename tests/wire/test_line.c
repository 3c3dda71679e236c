#include "base/test_main.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "wire/line.h"

/* What the callback got, one after another: "text|" for a line, "[bytes]|" for an attachment, "<long>|",
 * "<memory>|" or "<cut>|" for a report. A line "+n" announces an attachment of n bytes, "-n" one to skip. */
typedef struct seen {
    line_splitter *splitter; /* NULL: lines are only lines */
    char text[4096];
    size_t len;
    size_t calls;
    size_t stop_after; /* calls; 0 = never */
} seen;

static void add(seen *s, const char *what, size_t n)
{
    assert_true(s->len + n + 1 < sizeof s->text);
    memcpy(s->text + s->len, what, n);
    s->len += n;
    s->text[s->len] = '\0';
}

static bool collect(void *ctx, line_kind kind, const char *text, size_t len)
{
    static const char *const reports[] = {
        [LINE_TOO_LONG] = "<long>", [LINE_NO_MEMORY] = "<memory>", [LINE_TRUNCATED] = "<cut>"};
    seen *s = ctx;
    if (kind == LINE_TEXT) {
        add(s, text, len);
    } else if (kind == LINE_ATTACHMENT) {
        add(s, "[", 1);
        add(s, text, len);
        add(s, "]", 1);
    } else {
        assert_true(len == 0 || kind == LINE_NO_MEMORY);
        add(s, reports[kind], strlen(reports[kind]));
    }
    add(s, "|", 1);
    if (s->splitter && kind == LINE_TEXT && text[0] == '+') {
        line_expect_attachment(s->splitter, strtoul(text + 1, NULL, 10));
    } else if (s->splitter && kind == LINE_TEXT && text[0] == '-') {
        line_skip_attachment(s->splitter, strtoull(text + 1, NULL, 10));
    }
    s->calls++;
    return s->calls != s->stop_after;
}

/* max_bytes is 8 in this table. */
static const struct {
    const char *in;
    const char *want;
} cases[] = {
    {"", ""},
    {"a\n", "a|"},
    {"a\nb\n", "a|b|"},
    {"a", "a|"}, /* a last line without '\n' */
    {"a\nb", "a|b|"},
    {"\n\n\n", ""},         /* empty lines */
    {" \n\t\n \t\r\n", ""}, /* blank lines */
    {" ", ""},
    {"a\r\n", "a\r|"}, /* '\r' is JSON white space: it stays */
    {"\na\n\n", "a|"},
    {" a \n", " a |"},
    {"12345678\n", "12345678|"}, /* exactly the limit */
    {"12345678", "12345678|"},
    {"123456789\n", "<long>|"},
    {"123456789", "<long>|"},
    {"123456789\nok\n", "<long>|ok|"},
    {"a\n123456789012345678901234567890\nok", "a|<long>|ok|"},
    {"         \nok\n", "<long>|ok|"}, /* too long before it is known to be blank */
    {"123456789\n123456789\n", "<long>|<long>|"},
    {"\f\n", "\f|"}, /* not white space in JSON */
};

static void test_cuts(void **state)
{
    for (size_t i = 0; i < N_OF(cases); i++) {
        size_t n = strlen(cases[i].in);
        for (size_t step = 1; step <= n + 1; step++) {
            line_splitter s;
            seen got = {.len = 0};
            line_init(&s, 8);
            for (size_t at = 0; at < n; at += step) {
                size_t piece = n - at < step ? n - at : step;
                assert_int_equal(line_push(&s, cases[i].in + at, piece, collect, &got), ST_OK);
            }
            assert_int_equal(line_end(&s, collect, &got), ST_OK);
            assert_string_equal(got.text, cases[i].want);
            line_release(&s);
        }
    }
}

static void test_nul_bytes(void **state)
{
    line_splitter s;
    seen got = {.len = 0};
    line_init(&s, 8);
    assert_int_equal(line_push(&s, "a\0b\n\0", 5, collect, &got), ST_OK);
    assert_int_equal(line_end(&s, collect, &got), ST_OK);
    assert_int_equal(got.len, 6);
    assert_memory_equal(got.text, "a\0b|\0|", 6);
    line_release(&s);
}

static void test_too_long_is_told_at_once(void **state)
{
    line_splitter s;
    seen got = {.len = 0};
    line_init(&s, 4);
    assert_int_equal(line_push(&s, "12345", 5, collect, &got), ST_OK);
    assert_string_equal(got.text, "<long>|"); /* before its '\n' */
    for (int i = 0; i < 1000; i++) {
        assert_int_equal(line_push(&s, "xxxxxxxxxx", 10, collect, &got), ST_OK);
    }
    assert_true(s.partial.cap < 1024); /* what is skipped is not kept */
    assert_int_equal(line_push(&s, "\nok\n", 4, collect, &got), ST_OK);
    assert_string_equal(got.text, "<long>|ok|");
    line_release(&s);
}

static void test_stop(void **state)
{
    line_splitter s;
    seen got = {.stop_after = 2};
    line_init(&s, 8);
    assert_int_equal(line_push(&s, "a\nb\nc\n", 6, collect, &got), ST_CLOSED);
    assert_string_equal(got.text, "a|b|");
    line_release(&s);
    line_release(NULL);
}

static void test_memory(void **state)
{
    line_splitter s;
    seen got = {.len = 0};
    line_init(&s, 1000);
    mem_fail_at(1, false);
    assert_int_equal(line_push(&s, "abc", 3, collect, &got), ST_OK);
    mem_fail_at(0, false);
    assert_int_equal(line_push(&s, "def\nok\n", 7, collect, &got), ST_OK);
    assert_string_equal(got.text, "<memory>|ok|");
    line_release(&s);
}

typedef struct lost_line {
    line_splitter *splitter;
    size_t n_calls, len;
    char text[LINE_HEAD_BYTES + LINE_TAIL_BYTES];
} lost_line;

static bool keep_lost(void *ctx, line_kind kind, const char *text, size_t len)
{
    lost_line *l = ctx;
    l->n_calls++;
    if (kind == LINE_NO_MEMORY && text[0] == 'a') { /* the first */
        assert_true(len <= sizeof l->text);
        memcpy(l->text, text, len);
        l->len = len;
        line_skip_attachment(l->splitter, 3);
    } else if (l->len > 0 && kind == LINE_TEXT) {
        assert_int_equal(len, 2);
        assert_memory_equal(text, "ok", 2);
    }
    return true;
}

/* Of a line without memory its beginning and its end are told, however it was cut and wherever memory ended. */
static void test_memory_edges(void **state)
{
    static const size_t lengths[] = {1,
                                     100,
                                     LINE_HEAD_BYTES - 1,
                                     LINE_HEAD_BYTES,
                                     LINE_HEAD_BYTES + 1,
                                     LINE_HEAD_BYTES + LINE_TAIL_BYTES,
                                     LINE_HEAD_BYTES + LINE_TAIL_BYTES + 1,
                                     9000};
    static const size_t pieces[] = {1, 7, 63, 64, 65, 1000, 2048, 8999};
    for (size_t i = 0; i < N_OF(lengths) * N_OF(pieces) * 3; i++) {
        static char line[9000 + 7];
        static lost_line got;
        line_splitter s;
        size_t n = lengths[i % N_OF(lengths)], piece = pieces[i / N_OF(lengths) % N_OF(pieces)];
        for (size_t k = 0; k < n; k++) {
            line[k] = (char)('a' + k % 23);
        }
        memcpy(line + n, "\n\nx\nok\n", 8 - 1); /* three bytes of an attachment, then a line */
        got = (lost_line){.splitter = &s};
        line_init(&s, 100000);
        mem_fail_at(i / N_OF(lengths) / N_OF(pieces) + 1, true);
        for (size_t at = 0; at < n + 7; at += piece) {
            size_t len = n + 7 - at < piece ? n + 7 - at : piece;
            assert_int_equal(line_push(&s, line + at, len, keep_lost, &got), ST_OK);
            if (at + len > n) {
                mem_fail_at(0, false);
            }
        }
        mem_fail_at(0, false);
        if (got.len > 0) { /* else there was memory enough for it */
            size_t head = n < LINE_HEAD_BYTES ? n : LINE_HEAD_BYTES;
            size_t tail = n - head < LINE_TAIL_BYTES ? n - head : LINE_TAIL_BYTES;
            assert_int_equal(got.len, head + tail);
            assert_memory_equal(got.text, line, head);
            assert_memory_equal(got.text + head, line + n - tail, tail);
            assert_int_equal(got.n_calls, 2);
        }
        line_release(&s);
    }
}

/* The same limit of 8; attachments may be longer. */
static const struct {
    const char *in;
    const char *want;
} attached[] = {
    {"+3\nabcok\n", "+3|[abc]|ok|"},
    {"+3\n\n\n\nok", "+3|[\n\n\n]|ok|"}, /* raw bytes, not lines */
    {"+3\n{}\n\nok\n", "+3|[{}\n]|ok|"},
    {"+20\n12345678901234567890ok\n", "+20|[12345678901234567890]|ok|"},
    {"+1\nx+1\ny", "+1|[x]|+1|[y]|"},
    {"a\n+2\nxy\nb\n", "a|+2|[xy]|b|"},
    {"+3\nab", "+3|<cut>|"}, /* the stream ends too early */
    {"+3\n", "+3|<cut>|"},
    {"+3", "+3|<cut>|"}, /* the line itself was the last */
    {"-3\nabcok\n", "-3|ok|"},
    {"-3\na\ncok\n", "-3|ok|"},
    {"-0\nok\n", "-0|ok|"},
    {"-1\nx-2\nyz+1\nx", "-1|-2|+1|[x]|"},
    {"-3\nab", "-3|"}, /* nobody waits for it */
    {"-3", "-3|"},
    {"-9000000\nabc\n\n", "-9000000|"},
    {"123456789\n+1\nxok", "<long>|+1|[x]|ok|"},
    {"+1\nx123456789\nok", "+1|[x]|<long>|ok|"},
};

/* Cut at every byte, and into pieces of every length. */
static void test_attachments(void **state)
{
    for (size_t i = 0; i < N_OF(attached); i++) {
        size_t n = strlen(attached[i].in);
        for (size_t way = 0; way < 2 * (n + 1); way++) {
            line_splitter s;
            seen got = {.splitter = &s};
            line_init(&s, 8);
            size_t first = way / 2, step = way % 2 == 0 ? n + 1 : way / 2 + 1; /* two pieces, or equal ones */
            for (size_t at = 0; at < n;) {
                size_t piece = way % 2 == 0 && at == 0 && first > 0 ? first : step;
                piece = n - at < piece ? n - at : piece;
                assert_int_equal(line_push(&s, attached[i].in + at, piece, collect, &got), ST_OK);
                at += piece;
            }
            assert_int_equal(line_end(&s, collect, &got), ST_OK);
            if (strcmp(got.text, attached[i].want) != 0) {
                print_error("case %zu way %zu\n", i, way);
            }
            assert_string_equal(got.text, attached[i].want);
            assert_int_equal(line_end(&s, collect, &got), ST_OK); /* told once */
            assert_string_equal(got.text, attached[i].want);
            line_release(&s);
        }
    }
}

static void test_attachment_memory(void **state)
{
    line_splitter s;
    seen got = {.splitter = &s};
    line_init(&s, 1000);
    assert_int_equal(line_push(&s, "+6\n", 3, collect, &got), ST_OK);
    mem_fail_at(1, false);
    assert_int_equal(line_push(&s, "abc", 3, collect, &got), ST_OK);
    mem_fail_at(0, false);
    assert_int_equal(line_push(&s, "\n\n\nok\n", 6, collect, &got), ST_OK);
    assert_string_equal(got.text, "+6|<memory>|ok|"); /* skipped all the same */
    line_release(&s);

    /* memory is taken once, for all of it */
    char piece[50];
    memset(piece, 'x', sizeof piece);
    got = (seen){.splitter = &s};
    line_init(&s, 1000);
    assert_int_equal(line_push(&s, "+100\n", 5, collect, &got), ST_OK);
    assert_int_equal(line_push(&s, piece, sizeof piece, collect, &got), ST_OK);
    mem_fail_at(1, true);
    assert_int_equal(line_push(&s, piece, 20, collect, &got), ST_OK);
    assert_int_equal(line_push(&s, piece, 30, collect, &got), ST_OK);
    mem_fail_at(0, false);
    assert_int_equal(line_push(&s, "ok\n", 3, collect, &got), ST_OK);
    assert_true(strlen(got.text) == 5 + 103 + 3 && strncmp(got.text, "+100|[xxx", 9) == 0);
    line_release(&s);

    /* what is skipped is not kept */
    got = (seen){.splitter = &s};
    line_init(&s, 8);
    assert_int_equal(line_push(&s, "-1000000\n", 9, collect, &got), ST_OK);
    for (int i = 0; i < 100000; i++) {
        assert_int_equal(line_push(&s, "xxxxxxxxxx", 10, collect, &got), ST_OK);
    }
    assert_true(s.partial.cap < 1024);
    assert_int_equal(line_push(&s, "ok\n", 3, collect, &got), ST_OK);
    assert_string_equal(got.text, "-1000000|ok|");
    line_release(&s);
}

/* Kept by whoever takes it: the very memory that it was gathered in, or a copy of what came in one piece. */
typedef struct taker {
    line_splitter *s;
    char *bytes; /* owned */
    bool moved, fails;
} taker;

static bool take(void *ctx, line_kind kind, const char *text, size_t len)
{
    taker *t = ctx;
    if (kind == LINE_ATTACHMENT) {
        assert_int_equal(len, 6);
        mem_fail_at(t->fails, true);
        t->bytes = line_take_attachment(t->s, text, len);
        mem_fail_at(0, false);
        t->moved = t->bytes == text;
    } else if (text[0] == '+') {
        line_expect_attachment(t->s, 6);
    }
    return true;
}

static void test_take_attachment(void **state)
{
    static const char stream[] = "+\na\nb\0cdx\n";
    for (size_t step = 1; step < sizeof stream; step++) {
        for (int fails = 0; fails < 2; fails++) {
            line_splitter s;
            taker t = {.s = &s, .fails = fails};
            line_init(&s, 100);
            for (size_t at = 0; at < sizeof stream - 1; at += step) {
                size_t left = sizeof stream - 1 - at;
                assert_int_equal(line_push(&s, stream + at, left < step ? left : step, take, &t), ST_OK);
            }
            assert_int_equal(t.moved, step < 8); /* at 8 and more it is in one piece */
            assert_true(t.bytes || (fails && step >= 8));
            if (t.bytes) {
                assert_memory_equal(t.bytes, "a\nb\0cd", 6);
            }
            mem_free(t.bytes);
            line_release(&s);
        }
    }
}

static void test_stop_at_attachment(void **state)
{
    line_splitter s;
    seen got = {.splitter = &s, .stop_after = 2};
    line_init(&s, 8);
    assert_int_equal(line_push(&s, "+2\nxy", 5, collect, &got), ST_CLOSED);
    assert_string_equal(got.text, "+2|[xy]|");
    line_release(&s);
}

/* The sending side: what it makes, the splitter takes apart again. */
static bool check_sent(void *ctx, line_kind kind, const char *text, size_t len)
{
    size_t *calls = ctx;
    static const char *const want[] = {"{\"id\":\"r\",\"x\":{},\"attach\":5}", "a\n}\0b", "{\"next\":1}"};
    static const size_t lens[] = {28, 5, 10};
    assert_true(*calls < N_OF(want));
    assert_int_equal(kind, *calls == 1 ? LINE_ATTACHMENT : LINE_TEXT);
    assert_int_equal(len, lens[*calls]);
    assert_memory_equal(text, want[*calls], len);
    ++*calls;
    return true;
}

typedef struct sent_ctx {
    line_splitter *s;
    size_t calls;
} sent_ctx;

static bool on_sent(void *ctx, line_kind kind, const char *text, size_t len)
{
    sent_ctx *c = ctx;
    bool go_on = check_sent(&c->calls, kind, text, len);
    if (c->calls == 1) {
        line_expect_attachment(c->s, 5);
    }
    return go_on;
}

static void test_sending(void **state)
{
    line_splitter s;
    sent_ctx c = {&s, 0};
    buf b = {0};
    assert_int_equal(buf_append_str(&b, "{\"id\":\"r\",\"x\":{}}\n"), ST_OK);
    assert_int_equal(line_attach(&b, "a\n}\0b", 5), ST_OK);
    assert_int_equal(buf_append_str(&b, "{\"next\":1}\n"), ST_OK);
    line_init(&s, 100);
    assert_int_equal(line_push(&s, b.data, b.len, on_sent, &c), ST_OK);
    assert_int_equal(c.calls, 3);
    line_release(&s);

    buf_reset(&b);
    assert_int_equal(buf_append_str(&b, "{\"a\":[]}\n"), ST_OK);
    assert_int_equal(line_add_u64(&b, "n", UINT64_MAX), ST_OK);
    assert_int_equal(line_add_u64(&b, "m", 0), ST_OK);
    assert_string_equal(b.data, "{\"a\":[],\"n\":18446744073709551615,\"m\":0}\n");
    size_t len = b.len;
    char *large = mem_alloc(100000);
    assert_non_null(large);
    memset(large, 'x', 100000);
    mem_fail_at(1, true);
    assert_int_equal(line_attach(&b, large, 100000), ST_NOMEM); /* as it was */
    mem_fail_at(0, false);
    assert_int_equal(b.len, len);
    assert_string_equal(b.data, "{\"a\":[],\"n\":18446744073709551615,\"m\":0}\n");
    mem_free(large);
    buf_release(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cuts),
        cmocka_unit_test(test_nul_bytes),
        cmocka_unit_test(test_too_long_is_told_at_once),
        cmocka_unit_test(test_stop),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_memory_edges),
        cmocka_unit_test(test_attachments),
        cmocka_unit_test(test_attachment_memory),
        cmocka_unit_test(test_take_attachment),
        cmocka_unit_test(test_stop_at_attachment),
        cmocka_unit_test(test_sending),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
