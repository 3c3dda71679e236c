/*
 * Chat templates against Jinja2: every case of fixtures/templates byte for byte, and jinja_cases.jsonl, small
 * templates whose expected values Jinja2 3.1.6 gave (make_jinja_cases.py).
 */
#include "jinja_rig.h"

typedef struct run {
    const char *name; /* of the template */
    buf source;
    json_doc *vars_doc;
    size_t n, n_bad;
} run;

static void complain(run *r, const json *id, const char *want, size_t want_len, const char *got)
{
    size_t n;
    const char *s = json_string(id, &n);
    r->n_bad++;
    fprintf(stderr, "%s: %s\n  want %.*s\n  got  %s\n", r->name, s ? s : "?", (int)want_len, want, got);
}

static bool text_equal(const buf *b, const char *s, size_t n)
{
    return b->len == n && memcmp(buf_str(b), s, n) == 0;
}

/* -- fixtures ---------------------------------------------------------------------------------------------- */

static int64_t seconds_of_date(const char *date)
{
    struct {
        int y, m, d;
    } t;
    assert_int_equal(sscanf(date, "%d-%d-%d", &t.y, &t.m, &t.d), 3);
    static const int before[] = {0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334};
    int64_t y = t.y - 1, leap = (t.y % 4 == 0 && t.y % 100 != 0) || t.y % 400 == 0;
    int64_t days = y * 365 + y / 4 - y / 100 + y / 400 - 719162; /* to January 1st of the year, from 1970 */
    return (days + before[t.m - 1] + (t.m > 2 && leap) + t.d - 1) * 86400;
}

static void fixture_case(void *ctx, const char *line, size_t len)
{
    run *r = ctx;
    json_doc *d = rig_json(line, len);
    const json *root = json_root(d), *v, *want = NULL;
    rig_vars vars = {.n = 0};
    static const char *const names[] = {"messages", "tools", "add_generation_prompt", "bos_token",
                                        "eos_token"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (json_get(root, names[i], &v) && (v || i != 1)) {
            vars.at[vars.n++] = (jinja_var){.name = names[i], .value = v, .trusted = i > 2};
        }
    }
    json_each(member(root, "extra"), rig_add_member, &vars);
    size_t n;
    jinja_options o = {.now_s = json_get(root, "now", &v) ? seconds_of_date(json_string(v, &n)) : 0};
    jinja_template *t = NULL;
    jinja_output out = {0};
    err e = {0};
    assert_int_equal(jinja_compile(buf_str(&r->source), r->source.len, &t, &e), ST_OK);
    status st = jinja_render(t, vars.at, vars.n, &o, &out, &e);
    bool fails = json_get(root, "error", &want);
    want = fails ? want : member(root, "rendered");
    const char *s = json_string(want, &n);
    const buf *got = fails ? &out.error : &out.text;
    if (st != (fails ? ST_TEMPLATE : ST_OK) || out.raised != fails || !text_equal(got, s, n)) {
        complain(r, member(root, "id"), s, n, st == ST_OK ? buf_str(&out.text) : e.msg);
    }
    r->n++;
    jinja_output_release(&out);
    jinja_free(t);
    json_doc_free(d);
}

static const char *const fixture_names[] = {
    "chatml",         "qwen2.5",      "qwen3",   "qwen3-coder", "llama2",           "llama-3.1",
    "llama-3.2",      "mistral-nemo", "gemma-2", "gemma-3",     "phi-3.5",          "deepseek-v3",
    "command-r-plus", "granite-3.3",  "gpt-oss", "hermes-3",    "functionary-v3.1", "glm-4.6",
};

static void test_fixtures(void **state)
{
    size_t n = 0, n_bad = 0;
    for (size_t i = 0; i < sizeof fixture_names / sizeof fixture_names[0]; i++) {
        char name[128];
        run r = {.name = fixture_names[i]};
        buf cases = {0};
        snprintf(name, sizeof name, "templates/%s.jinja", fixture_names[i]);
        if (!file_read(fixture_path(name), &r.source)) {
            skip();
        }
        snprintf(name, sizeof name, "templates/%s.cases.jsonl", fixture_names[i]);
        assert_true(file_read(fixture_path(name), &cases));
        rig_each_line(&cases, fixture_case, &r);
        n += r.n;
        n_bad += r.n_bad;
        buf_release(&cases);
        buf_release(&r.source);
    }
    assert_int_equal(n_bad, 0);
    assert_true(n > 700);
}

/* -- jinja_cases.jsonl -------------------------------------------------------------------------------------- */

/* Behind "line L, column C: ". */
static const char *without_place(const char *s)
{
    const char *p = strncmp(s, "line ", 5) == 0 ? strstr(s, ": ") : NULL;
    return p ? p + 2 : s;
}

static void small_case(void *ctx, const char *line, size_t len)
{
    run *r = ctx;
    json_doc *d = rig_json(line, len);
    const json *want = NULL;
    if (!r->vars_doc) { /* the first line */
        r->vars_doc = d;
        return;
    }
    size_t n, n_want = 0;
    const char *text = json_string(member(json_root(d), "template"), &n);
    jinja_output out = {0};
    err e = {0};
    status st = rig_render(text, n, member(json_root(r->vars_doc), "vars"), NULL, &out, &e);
    bool ok;
    const char *s = "a syntax error";
    if (json_get(json_root(d), "rendered", &want)) {
        s = json_string(want, &n_want);
        ok = st == ST_OK && text_equal(&out.text, s, n_want);
    } else if (json_get(json_root(d), "error", &want)) {
        s = json_string(want, &n_want);
        const char *got = without_place(buf_str(&out.error));
        ok = st == ST_TEMPLATE && strlen(got) == n_want && memcmp(got, s, n_want) == 0;
    } else { /* the words are ours */
        ok = st == ST_TEMPLATE && strncmp(e.msg, "line ", 5) == 0;
    }
    if (!ok) {
        complain(r, member(json_root(d), "template"), s, n_want, st == ST_OK ? buf_str(&out.text) : e.msg);
    }
    r->n++;
    jinja_output_release(&out);
    json_doc_free(d);
}

static void test_small(void **state)
{
    char path[4096];
    const char *root = getenv("HEARTH_ROOT");
    buf cases = {0};
    run r = {.name = "jinja_cases"};
    snprintf(path, sizeof path, "%s/tests/text/jinja_cases.jsonl", root ? root : ".");
    assert_true(file_read(path, &cases));
    rig_each_line(&cases, small_case, &r);
    assert_int_equal(r.n_bad, 0);
    assert_true(r.n > 175);
    json_doc_free(r.vars_doc);
    buf_release(&cases);
}

/* -- where errors are, and what is refused ------------------------------------------------------------------ */

static void test_errors(void **state)
{
    static const struct {
        const char *text, *message;
        uint64_t offset;
    } rows[] = {
        /* line and column count characters from 1; the offset is the byte */
        {"a\n  {{ b.c.d }}", "line 2, column 8: 'b' is undefined", 9},
        {"\xC3\xA9{{ 1 / 0 }}", "line 1, column 7: division by zero", 7},
        {"{% macro f() %}\n{{ 1 + 'a' }}\n{% endmacro %}\n{{ f() }}",
         "line 2, column 6: unsupported operand type(s) for +: 'int' and 'str'", 21},
        {"a\n{{ 'x' ", "line 2, column 1: this tag has no end", 2},
        {"{% if 1 %}\n{% for a in b %}{% endfor %}", "line 1, column 4: this 'if' has no end", 3},
        {"{% include 'a' %}", "line 1, column 4: 'include' is not supported: a chat template is one text", 3},
        {"{% import 'a' as b %}", "line 1, column 4: 'import' is not supported: a chat template is one text",
         3},
        {"{% extends 'a' %}", "line 1, column 4: 'extends' is not supported: a chat template is one text", 3},
        {"{{ 1|random }}", "line 1, column 6: the filter 'random' is not supported", 5},
        {"{{ lipsum() }}", "line 1, column 4: the function 'lipsum' is not supported", 3},
        {"\xFF", "the template is not valid UTF-8 at byte 0", 0},
        {"{% break %}", "line 1, column 4: 'break' or 'continue' outside of a loop", 3},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        jinja_output out = {0};
        err e = {0};
        assert_int_equal(rig_render_text(rows[i].text, "{}", NULL, &out, &e), ST_TEMPLATE);
        assert_string_equal(e.msg, rows[i].message);
        assert_int_equal(e.offset, rows[i].offset);
        assert_false(out.raised);
        jinja_output_release(&out);
    }
}

/* raise_exception's text is kept whole, whatever it holds; the err has one line of it. */
static void test_raise(void **state)
{
    jinja_output out = {0};
    err e = {0};
    const char *vars = "{\"s\": \"two\\nlines\"}";
    assert_int_equal(rig_render_text("{{ raise_exception('a' * 1000 ~ s) }}", vars, NULL, &out, &e),
                     ST_TEMPLATE);
    assert_true(out.raised);
    assert_int_equal(out.error.len, 1009);
    assert_string_equal(out.error.data + 1000, "two\nlines");
    assert_int_equal(out.text.len, 0);
    jinja_output_release(&out);
}

/* Lists and dicts change as Python's do; Jinja2's sandbox would refuse. A value that is taken out of a list in the
 * middle of an expression lives on. */
static void test_changes(void **state)
{
    static const char *const rows[][2] = {
        {"{% set l = [1] %}{{ l.append(2) }}{{ l.extend([3, 4]) }}{{ l.insert(0, 'a') }}{{ l.insert(-1, 'b') "
         "}}{{ l }}",
         "NoneNoneNoneNone['a', 1, 2, 3, 'b', 4]"},
        {"{% set l = [1, 2, 3, 4] %}{{ l.pop() }}{{ l.pop(0) }}{{ l.remove(2) }}{{ l.reverse() }}{{ l }}",
         "41NoneNone[3]"},
        {"{% set l = ['a' * 2, 'b' * 2] %}{{ l[0] ~ l.pop(0) ~ l[0] ~ l.pop() ~ l }}", "aaaabbbb[]"},
        {"{% set l = [1] %}{% for x in l %}{% if x < 5 %}{% set _ = l.append(x + 1) %}{% endif %}{{ x }}{% "
         "endfor %}",
         "12345"},
        {"{% set l = [1, 2, 3] %}{% for x in l %}{{ x }}{{ l.pop() }}{% endfor %}{{ l }}", "1322[1]"},
        {"{% set d = {'a': 1} %}{{ d.update({'b': 2}) }}{{ d.update(c=3) }}{{ d.pop('a') }}{{ d.pop('z', 9) "
         "}}"
         "{{ d.setdefault('b', 0) }}{{ d.setdefault('e', 5) }}{{ d }}",
         "NoneNone1925{'b': 2, 'c': 3, 'e': 5}"},
        {"{% set d = {} %}{% for i in range(30) %}{% set _ = d.update({i: i}) %}{% endfor %}{% for i in "
         "range(28) %}"
         "{% set _ = d.pop(i) %}{% endfor %}{{ d }}{{ d.get(29) }}{{ d.get(3) }}",
         "{28: 28, 29: 29}29None"},
        {"{% set l = [] %}{{ l.append(l) }}{{ l == l }}{{ l | length }}", "NoneTrue1"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        jinja_output out = {0};
        err e = {0};
        assert_int_equal(rig_render_text(rows[i][0], "{}", NULL, &out, &e), ST_OK);
        assert_string_equal(buf_str(&out.text), rows[i][1]);
        jinja_output_release(&out);
    }
}

/* The moment is what the caller says; expected values from Python's datetime. */
static void test_time(void **state)
{
    static const struct {
        int64_t now_s;
        const char *format, *want;
    } rows[] = {
        {0, "%Y-%m-%d %H:%M:%S %j %A", "1970-01-01 00:00:00 001 Thursday"},
        {951782399, "%Y-%m-%d %H:%M:%S", "2000-02-28 23:59:59"},
        {951782400, "%d %b %Y %a", "29 Feb 2000 Tue"},
        {1735603200, "%G-W%V-%u %U %W", "2025-W01-2 52 53"}, /* December 31st 2024 */
        {-86401, "%Y-%m-%d %H:%M:%S", "1969-12-30 23:59:59"},
        {4102444800, "%d %B %Y, %I:%M %p", "01 January 2100, 12:00 AM"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char text[128];
        jinja_output out = {0};
        err e = {0};
        snprintf(text, sizeof text, "{{ strftime_now('%s') }}", rows[i].format);
        const jinja_options o = {.now_s = rows[i].now_s};
        assert_int_equal(rig_render_text(text, "{}", &o, &out, &e), ST_OK);
        assert_string_equal(buf_str(&out.text), rows[i].want);
        jinja_output_release(&out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fixtures), cmocka_unit_test(test_small), cmocka_unit_test(test_errors),
        cmocka_unit_test(test_changes),  cmocka_unit_test(test_raise), cmocka_unit_test(test_time),
    };
    return cmocka_run_group_tests_name("text-jinja", tests, NULL, NULL);
}
