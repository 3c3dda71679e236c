/*
 * Which bytes of a rendered text stem from the caller's values (FAILURES T5): each row's text with its plain
 * ranges in «». Expected by hand: what a user can write must be inside, what the template's author wrote outside.
 */
#include "jinja_rig.h"

static const char vars[] =
    "{\"bos_token\": \"<s>\", \"m\": [{\"role\": \"user\", \"content\": \" <s>hi \"}, {\"role\": \"x\", "
    "\"content\": \"\"}],"
    " \"u\": \"<a>,b\", \"n\": 5, \"yes\": true, \"d\": {\"k\": [1, \"<a>\"]}, \"parts\": [\"p\", \"q\"]}";

static void show(const buf *text, const jinja_range *r, size_t n, buf *out)
{
    size_t at = 0;
    for (size_t i = 0; i < n; i++) {
        assert_true(r[i].from >= at && r[i].from < r[i].to && r[i].to <= text->len);
        assert_true(i == 0 || r[i].from > r[i - 1].to); /* apart */
        buf_append(out, text->data + at, r[i].from - at);
        buf_append_str(out, "«");
        buf_append(out, text->data + r[i].from, r[i].to - r[i].from);
        buf_append_str(out, "»");
        at = r[i].to;
    }
    buf_append(out, buf_str(text) + at, text->len - at);
}

static void check(const char *text, const char *want, bool generated)
{
    jinja_output out = {0};
    err e = {0};
    buf shown = {0};
    status st = rig_render_text(text, vars, NULL, &out, &e);
    if (st != ST_OK) {
        fprintf(stderr, "%s: %s\n", text, e.msg);
    }
    assert_int_equal(st, ST_OK);
    show(&out.text, generated ? out.generated : out.plain, generated ? out.n_generated : out.n_plain, &shown);
    if (strcmp(buf_str(&shown), want) != 0) {
        fprintf(stderr, "%s\n  want %s\n  got  %s\n", text, want, buf_str(&shown));
    }
    assert_string_equal(buf_str(&shown), want);
    buf_release(&shown);
    jinja_output_release(&out);
}

static void test_plain(void **state)
{
    static const char *const rows[][2] = {
        {"<s>{{ u }}</s>", "<s>«<a>,b»</s>"},
        {"{{ bos_token }}{{ bos_token + u + bos_token }}", "<s><s>«<a>,b»<s>"},
        {"{% for x in m %}<{{ x.role }}>{{ x['content'] | trim }}<e>{% endfor %}",
         "<«user»>«<s>hi»<e><«x»><e>"},
        /* joining, cutting and searching keep the origin of each byte */
        {"{{ ('<' ~ u ~ '>')[1:-1] }}", "«<a>,b»"},
        {"{{ ('<' ~ u ~ '>')[::-1] }}", ">«b,>a<»<"},
        {"{{ u.split(',') | join('<s>') }}", "«<a>»<s>«b»"},
        {"{{ u | replace(',', '<s>') }}", "«<a>»<s>«b»"},
        {"{{ '<x>' | replace('x', u) }}", "<«<a>,b»>"},
        {"{{ (u ~ '<s>').partition('<s>') | join('|') }}", "«<a>,b»|<s>|"},
        {"{{ ('<s>' ~ u) | list | join }}", "<s>«<a>,b»"},
        {"{{ parts | join('-') }} {{ '-'.join(parts) }}", "«p»-«q» «p»-«q»"},
        {"{{ ('<' + u).upper() }}{{ ('X' + u) | lower | title }}", "<«<A>,B»X«<A>,b»"},
        {"{{ 'a\\n' ~ u | indent(2, true) }}|{{ (u ~ '\\nb') | indent(2, true) }}",
         "a\n  «<a>,b»|  «<a>,b»\n  b"},
        {"{{ u | center(9) }}|{{ ('<s>' ~ u) | truncate(6, true, '<e>', 0) }}", "  «<a>,b»  |<s><e>"},
        {"{{ u * 2 }}{{ ('-' ~ u) * 2 }}", "«<a>,b<a>,b»-«<a>,b»-«<a>,b»"},
        {"{{ u | escape }}", "«&lt;a&gt;,b»"},
        /* formats */
        {"{{ '<%s|%d>' % (u, n) }}", "<«<a>,b»|«5»>"},
        {"{{ '<{}|{:>3}>'.format(u, n) }}", "<«<a>,b»|  «5»>"},
        {"{{ u ~ '%s' | format(1) }}", "«<a>,b»1"},
        /* values as text: what holds a caller's value, and values computed from it */
        {"{{ n }} {{ n + 1 }} {{ yes }} {{ u | length }} {{ 3 }}", "«5» «6» «True» 5 3"},
        {"{{ d }} {{ d | tojson }} {{ {'k': u} | tojson }}",
         "«{'k': [1, '<a>']}» «{\"k\": [1, \"<a>\"]}» {\"k\": «\"<a>,b\"»}"},
        {"{{ d | string | length }} {{ d.k[0] }}{{ d.keys() | first }}", "17 «1k»"},
        {"{{ d.k | tojson(indent=1) }}", "«[\n 1,\n \"<a>\"\n]»"},
        /* through blocks, macros and variables */
        {"{% set a %}<s>{{ u }}{% endset %}{{ a }}{{ a | upper }}", "<s>«<a>,b»<S>«<A>,B»"},
        {"{% macro f(a) %}<s>{{ a }}</s>{% endmacro %}{{ f(u) }}{{ f('t') }}", "<s>«<a>,b»</s><s>t</s>"},
        {"{% set ns = namespace(s='') %}{% for p in parts %}{% set ns.s = ns.s + '<' + p + '>' %}{% endfor "
         "%}{{ ns.s }}",
         "<«p»><«q»>"},
        {"{% filter upper %}<s>{{ u }}{% endfilter %}", "<S>«<A>,B»"},
        {"{% macro w() %}<s>{{ caller() }}</s>{% endmacro %}{% call w() %}t{{ u }}{% endcall %}",
         "<s>t«<a>,b»</s>"},
        /* equality does not look at origins; what is printed is what was taken */
        {"{% if m[0].role == 'user' %}{{ 'user' }}{{ m[0].role }}{% endif %}", "user«user»"},
        {"{{ {'user': '<s>'}[m[0].role] }}{{ [u, '<a>,b'] | unique | join }}", "<s>«<a>,b»"},
        {"{{ nothing | default(u) }}{{ u if yes else '' }}{{ u or 'x' }}", "«<a>,b<a>,b<a>,b»"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        check(rows[i][0], rows[i][1], false);
    }
}

static void test_generated(void **state)
{
    static const char *const rows[][2] = {
        {"a{% generation %}b{{ u }}{% endgeneration %}c", "a«b<a>,b»c"},
        {"{% for p in parts %}<{% generation %}{{ p }}{% endgeneration %}>{% endfor %}", "<«p»><«q»>"},
        /* a macro's text belongs to where it is printed */
        {"{% macro f() %}x{% endmacro %}{{ f() }}{% generation %}{{ f() }}{% endgeneration %}{{ f() }}",
         "x«x»x"},
        {"{% set a %}x{% generation %}y{% endgeneration %}{% endset %}[{{ a }}]", "[x«y»]"},
        {"{% generation %}{% endgeneration %}a", "a"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        check(rows[i][0], rows[i][1], true);
    }
}

/* A string that was appended to is not changed by it, nor are its marks: strings share their bytes. */
static void test_shared_bytes(void **state)
{
    check("{% set a = '<' ~ u %}{% set b = a ~ '>' %}{% set c = a ~ u %}{% set e = b ~ u %}{{ a }}|{{ b "
          "}}|{{ c }}|{{ e }}",
          "<«<a>,b»|<«<a>,b»>|<«<a>,b<a>,b»|<«<a>,b»>«<a>,b»", false);
    check("{% set ns = namespace(s='') %}{% for i in range(300) %}{% set ns.s = ns.s ~ 'x' %}{% endfor %}"
          "{% set a = ns.s ~ u %}{% set b = ns.s ~ 'y' %}{{ a[298:] }}|{{ b[298:] }}|{{ ns.s | length }}",
          "xx«<a>,b»|xxy|300", false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain),
        cmocka_unit_test(test_generated),
        cmocka_unit_test(test_shared_bytes),
    };
    return cmocka_run_group_tests_name("text-jinja-marks", tests, NULL, NULL);
}
