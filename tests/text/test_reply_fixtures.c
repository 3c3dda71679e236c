/*
 * fixtures/toolcalls: every published output, whole, byte by byte and in random pieces, against the expected parse
 * (written by hand, from outside this project).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "fixtures.h"
#include "reply_collect.h"

#define N_RANDOM 40

static char *read_all(const char *name, size_t *len)
{
    const char *path = fixture_path(name);
    if (!path) {
        return NULL;
    }
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    assert_int_equal(fseek(f, 0, SEEK_END), 0);
    *len = (size_t)ftell(f);
    rewind(f);
    char *text = malloc(*len + 1);
    assert_int_equal(fread(text, 1, *len, f), *len);
    text[*len] = 0;
    fclose(f);
    return text;
}

static json_doc *parse(const char *text, size_t len)
{
    json_doc *doc = NULL;
    err e = {0};
    if (json_parse(text, len, JSON_MAX_DEPTH, &doc, &e) != ST_OK) {
        fail_msg("%s: %.*s", e.msg, (int)len, text);
    }
    return doc;
}

static const json *member(const json *obj, const char *key)
{
    const json *v = NULL;
    return obj && json_get(obj, key, &v) ? v : NULL;
}

static bool same_json(const json *a, const json *b);

typedef struct other {
    const json *obj;
    bool same;
} other;

static bool same_member(void *ctx, const char *key, size_t key_len, const json *v)
{
    other *o = ctx;
    const json *w = NULL;
    o->same = json_get(o->obj, key, &w) && same_json(v, w);
    return o->same;
}

static bool same_json(const json *a, const json *b)
{
    double x, y;
    if (json_f64(a, &x) && json_f64(b, &y)) {
        return x == y;
    }
    if (json_kind(a) != json_kind(b) || json_len(a) != json_len(b)) {
        return false;
    }
    size_t n, m;
    bool p, q;
    other o = {b, true};
    switch (json_kind(a)) {
    case JSON_STRING:
        return strcmp(json_string(a, &n), json_string(b, &m)) == 0 && n == m;
    case JSON_BOOL:
        json_bool(a, &p);
        json_bool(b, &q);
        return p == q;
    case JSON_ARRAY:
        for (size_t i = 0; i < json_len(a); i++) {
            if (!same_json(json_at(a, i), json_at(b, i))) {
                return false;
            }
        }
        return true;
    case JSON_OBJECT:
        json_each(a, same_member, &o);
        return o.same;
    default:
        return true;
    }
}

static const char *text_of(const json *v)
{
    size_t len;
    const char *s = v ? json_string(v, &len) : NULL;
    return s ? s : "";
}

static bool is_call(const collected_call *have, const json *want)
{
    json_doc *args = parse(buf_str(&have->args), have->args.len);
    bool same = strcmp(buf_str(&have->name), text_of(member(want, "name"))) == 0 &&
                strcmp(buf_str(&have->id), text_of(member(want, "id"))) == 0 &&
                same_json(json_root(args), member(want, "arguments"));
    json_doc_free(args);
    return same;
}

static bool as_expected(const collected *c, const json *want)
{
    const json *calls = member(want, "tool_calls"), *partial = member(want, "partial");
    bool complete = false, good = true;
    json_bool(member(want, "complete"), &complete);
    good = strcmp(buf_str(&c->content), text_of(member(want, "content"))) == 0 &&
           strcmp(buf_str(&c->reasoning), text_of(member(want, "reasoning"))) == 0 &&
           strstr(buf_str(&c->content), text_of(member(want, "content_contains"))) &&
           collected_n_calls(c) == (int)json_len(calls) && c->end.complete == complete;
    for (size_t i = 0; good && i < json_len(calls); i++) {
        good = is_call(collected_at(c, (int)i), json_at(calls, i));
    }
    return good && c->end.in_call == (partial != NULL) &&
           strcmp(buf_str(&c->end_name), text_of(member(partial, "name"))) == 0;
}

static void show(const json *c, const collected *have)
{
    fprintf(stderr, "%s: content=[%s] reasoning=[%s] complete=%d in_call=%d name=[%s]\n",
            text_of(member(c, "id")), buf_str(&have->content), buf_str(&have->reasoning), have->end.complete,
            have->end.in_call, buf_str(&have->end_name));
    for (size_t i = 0; i < have->n; i++) {
        fprintf(stderr, "    %s %s %s%s%s\n", buf_str(&have->calls[i].name), buf_str(&have->calls[i].args),
                buf_str(&have->calls[i].id), have->calls[i].ended ? "" : " (open)",
                have->calls[i].withdrawn ? " (withdrawn)" : "");
    }
}

static void write_value(json_w *w, const json *v);

static bool write_member(void *ctx, const char *key, size_t key_len, const json *v)
{
    json_w_key(ctx, key);
    write_value(ctx, v);
    return true;
}

/* Strings, arrays and objects: all that definitions are made of. */
static void write_value(json_w *w, const json *v)
{
    if (json_kind(v) == JSON_STRING) {
        size_t n;
        const char *s = json_string(v, &n);
        json_w_str(w, s, n);
    } else if (json_kind(v) == JSON_ARRAY) {
        json_w_arr_open(w);
        for (size_t i = 0; i < json_len(v); i++) {
            write_value(w, json_at(v, i));
        }
        json_w_arr_close(w);
    } else {
        assert_int_equal(json_kind(v), JSON_OBJECT);
        json_w_obj_open(w);
        json_each(v, write_member, w);
        json_w_obj_close(w);
    }
}

/* The tools that the case names, as a request has them: an array. */
static json_doc *tools_of(const json *names, const json *by_name)
{
    buf text = {0};
    json_w w;
    json_w_begin(&w, &text);
    json_w_arr_open(&w);
    for (size_t i = 0; i < json_len(names); i++) {
        write_value(&w, member(by_name, text_of(json_at(names, i))));
    }
    json_w_arr_close(&w);
    assert_int_equal(json_w_end(&w), ST_OK);
    json_doc *doc = parse(text.data, text.len);
    buf_release(&text);
    return doc;
}

static int check_case(const json *c, const json *by_name)
{
    json_doc *tools = tools_of(member(c, "tools"), by_name);
    const json *style = member(c, "style"), *text = member(c, "text");
    reply_style s;
    bool open = false;
    assert_true(reply_style_by_name(text_of(style), &s));
    json_bool(member(c, "reasoning_open"), &open);
    reply_options o = {.format = reply_format_of(s), .tools = json_root(tools), .reasoning_open = open};
    bool cut = strcmp(text_of(member(c, "finish")), "length") == 0;
    size_t len = 0;
    const char *t = json_string(text, &len);
    int bad = 0;
    for (uint64_t run = 0; run < N_RANDOM + 2 && !bad; run++) {
        collected have = {.whole_characters = run == 0};
        uint64_t seed = run;
        collect_cut_fn piece = run == 0 ? NULL : run == 1 ? collect_bytes : collect_random;
        assert_int_equal(collect_text(&have, &o, t, len, cut, piece, &seed), ST_OK);
        if (!as_expected(&have, member(c, "expected"))) {
            show(c, &have);
            bad = 1;
        }
        collected_release(&have);
    }
    json_doc_free(tools);
    return bad;
}

static void test_cases(void **state)
{
    size_t len = 0, tools_len = 0;
    char *cases = read_all("toolcalls/cases.jsonl", &len);
    char *tools_text = read_all("toolcalls/tools.json", &tools_len);
    if (!cases || !tools_text) {
        free(cases);
        free(tools_text);
        skip();
    }
    int n = 0, bad = 0;
    json_doc *by_name = parse(tools_text, tools_len);
    for (char *line = cases; *line;) {
        size_t n_line = strcspn(line, "\n");
        json_doc *doc = parse(line, n_line);
        bad += check_case(json_root(doc), json_root(by_name));
        n++;
        json_doc_free(doc);
        line += n_line + (line[n_line] == '\n');
    }
    json_doc_free(by_name);
    free(cases);
    free(tools_text);
    print_message("%d cases, %d wrong\n", n, bad);
    assert_true(n > 0);
    assert_int_equal(bad, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cases)};
    return cmocka_run_group_tests_name("text-reply-fixtures", tests, NULL, NULL);
}
