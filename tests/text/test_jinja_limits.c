/*
 * What a hostile template cannot do (FAILURES I7): run without end, recurse without end, take all memory. And what
 * an honest one may: build a long string bit by bit. Every allocation fails once. Several threads share a template.
 */
#include <pthread.h>

#include "base/mem.h"
#include "jinja_rig.h"

static void test_refused(void **state)
{
    static const struct {
        const char *text, *message;
    } rows[] = {
        {"{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "evaluation is nested more than"},
        {"{% for i in [1] recursive %}{{ loop([1]) }}{% endfor %}", "evaluation is nested more than"},
        {"{% macro f(n) %}{% call g() %}{% endcall %}{% endmacro %}"
         "{% macro g() %}{{ f(1) }}{{ caller() }}{% endmacro %}{{ g() }}",
         "evaluation is nested more than"},
        {"{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", "steps"},
        {"{{ 'x' * 1000000000 }}", "bytes of memory"},
        {"{{ 'x' * 9223372036854775807 }}", "bytes of memory"},
        {"{{ [0] * 1000000000 }}", "bytes of memory"},
        {"{{ 'x' | center(1000000000) }}", "bytes of memory"},
        {"{{ '%0999999999d' % 1 }}", "too big"},
        {"{{ '{:999999999}'.format(1) }}", "too big"},
        {"{{ ['x'] | batch(1000000000, 'y') | list }}", "bytes of memory"},
        {"{% set ns = namespace(s='xx') %}{% for i in range(99) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
         "bytes of memory"},
        {"{% set ns = namespace(s='xx') %}{% for i in range(99) %}{% set ns.s = ns.s | replace('x', 'xxx') "
         "%}{% endfor %}",
         "bytes of memory"},
        {"{{ range(1000000) }}", "Range too big"},
        {"{{ 9223372036854775807 + 1 }}", "more than 64 bits"},
        {"{{ 10 ** 10 ** 2 }}", "more than 64 bits"},
        /* values that hold themselves or nest without end */
        {"{% set ns = namespace() %}{% set ns.n = ns %}{{ ns }}", "evaluation is nested more than"},
        {"{% set ns = namespace(l=[]) %}{% for i in range(9999) %}{% set ns.l = [ns.l] %}{% endfor %}{{ ns.l "
         "| tojson }}",
         "evaluation is nested more than"},
        {"{% set ns = namespace(a=(), b=()) %}{% for i in range(9999) %}{% set ns.a = (ns.a,) %}{% set ns.b "
         "= (ns.b,) %}"
         "{% endfor %}{{ ns.a == ns.b }}",
         "evaluation is nested more than"},
        {"{% set ns = namespace(a=()) %}{% for i in range(9999) %}{% set ns.a = (ns.a,) %}{% endfor %}{{ "
         "{ns.a: 1} }}",
         "evaluation is nested more than"},
    };
    const jinja_options o = {.max_bytes = 16 << 20, .max_steps = 1000000};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        jinja_output out = {0};
        err e = {0};
        status st = rig_render_text(rows[i].text, "{}", &o, &out, &e);
        if (st != ST_TEMPLATE || !strstr(e.msg, rows[i].message)) {
            fprintf(stderr, "%s: %s\n", rows[i].text, e.msg);
        }
        assert_int_equal(st, ST_TEMPLATE);
        assert_non_null(strstr(e.msg, rows[i].message));
        jinja_output_release(&out);
    }
}

/* Sources that nest without end are refused when they are compiled, or, where the tree leans left, when run. */
static void test_deep_sources(void **state)
{
    static const struct {
        const char *head, *unit, *tail;
    } rows[] = {
        {"{{ ", "(", ""},   {"{{ ", "-", "1 }}"},       {"{{ ", "not ", "1 }}"},        {"{{ ", "[", ""},
        {"{{ ", "{1:", ""}, {"", "{% if 1 %}", ""},     {"", "{% for a in b %}", ""},   {"{{ 1", "+1", " }}"},
        {"{{ x", "[x", ""}, {"{{ 1", "|int", "}}"},     {"{{ 1", " if 1 else 1", "}}"}, {"{{ a", ".a", "}}"},
        {"{{ f", "(f", ""}, {"{{ 1", " is eq 1", "}}"}, {"{{ 1", "**1", "}}"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        buf text = {0};
        jinja_output out = {0};
        err e = {0};
        buf_append_str(&text, rows[i].head);
        for (int n = 0; n < 20000; n++) {
            buf_append_str(&text, rows[i].unit);
        }
        buf_append_str(&text, rows[i].tail);
        assert_int_equal(rig_render_text(text.data, "{}", NULL, &out, &e), ST_TEMPLATE);
        jinja_output_release(&out);
        buf_release(&text);
    }
}

/* Values are counted: a loop that builds a string does not keep its prefixes (which would be 5 GB here). */
static void test_prefixes_are_freed(void **state)
{
    static const char *const rows[] = {
        "{% set ns = namespace(s='') %}{% for i in range(100000) %}{% set ns.s = ns.s + 'x' %}{% endfor %}{{ "
        "ns.s | length }}",
        "{% set ns = namespace(s='') %}{% for i in range(5000) %}{% set ns.s = ('x' ~ ns.s) | upper %}{% "
        "endfor %}"
        "{{ ns.s | length }}",
        "{% set ns = namespace(l=[]) %}{% for i in range(2000) %}{% set ns.l = ns.l + [i] %}{% endfor %}{{ "
        "ns.l | length }}",
        /* nested 100,000 deep, freed without recursion */
        "{% set ns = namespace(l=[]) %}{% for i in range(100000) %}{% set ns.l = [ns.l] %}{% endfor %}{% set "
        "ns.l = 1 %}"
        "{{ ns.l }}",
        /* what a macro returns outlives what it used */
        "{% macro f(s) %}{% set a = s ~ 'y' %}{{ a ~ s | upper }}{% endmacro %}{% set ns = namespace(n=0) %}"
        "{% for i in range(20000) %}{% set ns.n = ns.n + f('abc') | length %}{% endfor %}{{ ns.n }}",
    };
    static const char *const wants[] = {"100000", "5000", "2000", "1", "140000"};
    const jinja_options o = {.max_bytes = 20 << 20};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        jinja_output out = {0};
        err e = {0};
        status st = rig_render_text(rows[i], "{}", &o, &out, &e);
        if (st != ST_OK) {
            fprintf(stderr, "%s: %s\n", rows[i], e.msg);
        }
        assert_int_equal(st, ST_OK);
        assert_string_equal(buf_str(&out.text), wants[i]);
        jinja_output_release(&out);
    }
}

/* A template of each kind of statement and value. */
static const char broad[] =
    "{% macro f(a, b=2) %}<{{ a }}{{ b }}{{ caller() if caller }}{{ varargs }}{{ kwargs }}>{% endmacro %}"
    "{% set ns = namespace(s='', n=1) %}{% for k, v in d.items() if v %}{% set ns.s = ns.s ~ k ~ loop.index "
    "%}"
    "{{ loop.cycle('a', 'b') }}{{ loop.changed(v) }}{% else %}e{% endfor %}{{ f(1, c=3) }}{% call f(x) %}c{% "
    "endcall %}"
    "{{ d | tojson(indent=2) }}{{ d }}{{ l | sort | join(',') }}{{ l | map('string') | list }}{{ '%s' % l }}"
    "{{ '{:>9}'.format(x) }}{% filter upper %}{{ x }}{% endfilter %}{% set b %}{{ x }}{% endset %}{{ b[1:] }}"
    "{{ {1: 2, (1, 2): 3, 'a': 4, 'b': 5, 'c': 6, 'd': 7, 'e': 8, 'f': 9, 'g': 10} | length }}{{ d | "
    "dictsort }}"
    "{{ 'a b'.split() + ['c'] }}{% with q = 1 %}{{ q }}{% endwith %}{% generation %}g{% endgeneration %}"
    "{{ [d] | groupby('k') | length }}{{ strftime_now('%d') }}{{ undefinedname }}{{ ns.s | replace('k', "
    "'kk') "
    "}}";
static const char broad_vars[] =
    "{\"x\": \"text\", \"l\": [3, 1, 2], \"d\": {\"k\": 1, \"j\": [1.5, null, true, \"s\"]}}";

static void test_memory_failures(void **state)
{
    json_doc *d = rig_json(broad_vars, strlen(broad_vars));
    jinja_output whole = {0};
    err e = {0};
    status st = rig_render(broad, strlen(broad), json_root(d), NULL, &whole, &e);
    if (st != ST_OK) {
        fprintf(stderr, "%s\n", e.msg);
    }
    assert_int_equal(st, ST_OK);
    for (int sticky = 0; sticky < 2; sticky++) {
        bool reached = true;
        uint64_t n = 1;
        for (; reached; n++) {
            jinja_output out = {0};
            mem_fail_at(n, sticky);
            uint64_t before = mem_alloc_count();
            st = rig_render(broad, strlen(broad), json_root(d), NULL, &out, &e);
            reached = mem_alloc_count() - before >= n;
            mem_fail_at(0, false);
            assert_int_equal(st, reached ? ST_NOMEM : ST_OK);
            assert_int_equal(out.text.len, reached ? 0 : whole.text.len);
            assert_int_equal(out.error.len, 0);
            jinja_output_release(&out);
        }
        assert_true(n > 200);
    }
    jinja_output_release(&whole);
    json_doc_free(d);
}

/* The text of an error needs memory too. */
static void test_memory_failures_of_errors(void **state)
{
    static const char *const rows[] = {"{{ raise_exception('boom') }}", "{{ a.b.c }}", "{{ 1 + }}",
                                       "{% if x %}"};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        bool reached = true;
        for (uint64_t n = 1; reached; n++) {
            jinja_output out = {0};
            err e = {0};
            mem_fail_at(n, true);
            uint64_t before = mem_alloc_count();
            status st = rig_render(rows[i], strlen(rows[i]), NULL, NULL, &out, &e);
            reached = mem_alloc_count() - before >= n;
            mem_fail_at(0, false);
            assert_int_equal(st, reached ? ST_NOMEM : ST_TEMPLATE);
            jinja_output_release(&out);
        }
    }
}

typedef struct shared {
    const jinja_template *t;
    const jinja_var *vars;
    size_t n_vars;
    bool same;
} shared;

static void *render_often(void *arg)
{
    shared *s = arg;
    jinja_output first = {0};
    err e;
    s->same = jinja_render(s->t, s->vars, s->n_vars, NULL, &first, &e) == ST_OK;
    for (int i = 0; i < 50 && s->same; i++) {
        jinja_output out = {0};
        s->same = jinja_render(s->t, s->vars, s->n_vars, NULL, &out, &e) == ST_OK &&
                  out.text.len == first.text.len &&
                  memcmp(out.text.data, first.text.data, first.text.len) == 0;
        jinja_output_release(&out);
    }
    jinja_output_release(&first);
    return NULL;
}

static void test_threads(void **state)
{
    json_doc *d = rig_json(broad_vars, strlen(broad_vars));
    jinja_template *t = NULL;
    rig_vars vars = {.n = 0};
    err e;
    json_each(json_root(d), rig_add_member, &vars);
    assert_int_equal(jinja_compile(broad, strlen(broad), &t, &e), ST_OK);
    pthread_t threads[4];
    shared args[4];
    for (int i = 0; i < 4; i++) {
        args[i] = (shared){t, vars.at, vars.n, false};
        assert_int_equal(pthread_create(&threads[i], NULL, render_often, &args[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        assert_true(args[i].same);
    }
    jinja_free(t);
    json_doc_free(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_deep_sources),
        cmocka_unit_test(test_prefixes_are_freed),
        cmocka_unit_test(test_memory_failures),
        cmocka_unit_test(test_memory_failures_of_errors),
        cmocka_unit_test(test_threads),
    };
    return cmocka_run_group_tests_name("text-jinja-limits", tests, NULL, NULL);
}
