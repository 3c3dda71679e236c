#include "text/jinja.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "text/jinja_ops.h"
#include "text/jinja_parse.h"
#include "text/jinja_print.h"
#include "text/jinja_run.h"

#define ARENA_CHUNK ((size_t)32 << 10)

void jinja_place(const char *src, size_t len, size_t at, uint32_t *line, uint32_t *column)
{
    at = at < len ? at : len;
    *line = 1;
    size_t from = 0;
    for (size_t i = 0; i < at; i++) {
        if (src[i] == '\n') {
            ++*line;
            from = i + 1;
        }
    }
    *column = 1;
    for (size_t i = from; i < at; i++) {
        *column += ((unsigned char)src[i] & 0xC0) != 0x80;
    }
}

/* -- compiling --------------------------------------------------------------------------------------------- */

void jcompile_fail(jcompile *c, size_t at, const char *fmt, ...)
{
    char text[300];
    uint32_t line, column;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    jinja_place(c->t->src, c->t->len, at, &line, &column);
    c->st = err_at(c->e, ST_TEMPLATE, at, "chat_template", "line %u, column %u: %s", line, column, text);
    longjmp(c->fail, 1);
}

void jcompile_fail_nomem(jcompile *c)
{
    c->st = err_set(c->e, ST_NOMEM, NULL, "compiling the template: out of memory");
    longjmp(c->fail, 1);
}

void *jcompile_alloc(jcompile *c, size_t n_bytes)
{
    void *p = arena_calloc(&c->t->mem, 1, n_bytes);
    if (!p) {
        jcompile_fail_nomem(c);
    }
    return p;
}

/* The source with "\n" for every newline, without the last one. */
static void copy_source(jcompile *c, const char *src, size_t len)
{
    char *s = jcompile_alloc(c, len + 1);
    size_t n = 0;
    for (size_t i = 0; i < len; i++) {
        if (src[i] == '\r') {
            s[n++] = '\n';
            i += i + 1 < len && src[i + 1] == '\n';
        } else {
            s[n++] = src[i];
        }
    }
    c->t->src = s;
    c->t->len = n > 0 && s[n - 1] == '\n' ? n - 1 : n;
}

/* Everything that may jump. */
static bool compile_guarded(jcompile *c, const char *src, size_t len)
{
    if (setjmp(c->fail)) {
        return false;
    }
    copy_source(c, src, len);
    jinja_lex(c);
    jinja_parse(c);
    return true;
}

status jinja_compile(const char *src, size_t len, jinja_template **out, err *e)
{
    size_t bad;
    if (len > JINJA_MAX_SOURCE_BYTES) {
        return err_set(e, ST_TEMPLATE, "chat_template", "the template has %zu bytes, at most %zu are allowed",
                       len, JINJA_MAX_SOURCE_BYTES);
    }
    if (!utf8_valid(src, len, &bad)) {
        return err_at(e, ST_TEMPLATE, bad, "chat_template", "the template is not valid UTF-8 at byte %zu",
                      bad);
    }
    jinja_template *t = mem_calloc(1, sizeof *t);
    if (!t) {
        return err_set(e, ST_NOMEM, NULL, "compiling the template: out of memory");
    }
    arena_init(&t->mem, ARENA_CHUNK);
    jcompile c = {.t = t, .e = e};
    bool ok = compile_guarded(&c, src, len);
    strmap_free(c.syms);
    if (!ok) {
        jinja_free(t);
        return c.st;
    }
    *out = t;
    return ST_OK;
}

void jinja_free(jinja_template *t)
{
    if (t) {
        arena_release(&t->mem);
        mem_free(t);
    }
}

/* -- rendering --------------------------------------------------------------------------------------------- */

static void add_ranges(jrt *rt, const jstr *s, uint8_t mark, jinja_range **out, size_t *n_out)
{
    size_t n = 0;
    for (size_t pass = 0; pass < 2; pass++) {
        n = 0;
        for (size_t i = 0; i < s->len; i++) {
            bool on = s->m[i] & mark, before = i > 0 && (s->m[i - 1] & mark);
            if (on && !before) {
                n++;
            }
            if (on && pass == 1) {
                (*out)[n - 1] = (jinja_range){before ? (*out)[n - 1].from : i, i + 1};
            }
        }
        if (n == 0) {
            return;
        }
        if (pass == 0) {
            *out = mem_alloc_array(n, sizeof **out);
            if (!*out) {
                jrt_fail_nomem(rt);
            }
        }
    }
    *n_out = n;
}

/* A function of Jinja2, or what the caller gives. */
static void bind_globals(jrt *rt, const jinja_var *vars, size_t n_vars)
{
    for (uint32_t sym = 0; sym < rt->t->n_names; sym++) {
        const jname *name = &rt->t->names[sym];
        jv v = JV_ABSENT;
        const jbuiltin *b = jinja_global_find(name->s, name->len);
        if (b) {
            jfunc *f = (jfunc *)jobj_new(rt, O_FUNC, sizeof *f);
            f->builtin = b;
            f->self = JV_NONE;
            v = (jv){.type = J_FUNC, .fn = f};
        }
        for (size_t i = 0; i < n_vars; i++) {
            const jinja_var *x = &vars[i];
            if (strlen(x->name) == name->len && memcmp(x->name, name->s, name->len) == 0) {
                v = x->text ? jv_of_str(jstr_new(rt, x->text, x->text_len, x->trusted ? 0 : MARK_PLAIN))
                            : jv_of_json(rt, x->value, x->trusted);
            }
        }
        rt->globals[sym] = jv_keep(v);
        jrt_release_temps(rt, 0);
    }
}

/* Everything that may jump. out is written only where true is returned, but for its memory. */
static bool render_guarded(jrt *rt, const jinja_var *vars, size_t n_vars, jinja_output *out)
{
    if (setjmp(rt->fail)) {
        return false;
    }
    const jinja_template *t = rt->t;
    rt->globals = jrt_alloc(rt, (t->n_names + 1) * sizeof *rt->globals);
    rt->names = jrt_alloc(rt, (t->n_names + 1) * sizeof *rt->names);
    rt->consts = jrt_alloc(rt, (t->n_constants + 1) * sizeof *rt->consts);
    bind_globals(rt, vars, n_vars);
    rt->top = jscope_new(rt, NULL);
    rt->scope = rt->top;
    const jstr *s = jinja_capture(rt, t->body).s;
    add_ranges(rt, s, MARK_PLAIN, &out->plain, &out->n_plain);
    add_ranges(rt, s, MARK_GENERATED, &out->generated, &out->n_generated);
    if (buf_append(&out->text, s->s, s->len) != ST_OK) {
        jrt_fail_nomem(rt);
    }
    return true;
}

static void release_run(jrt *rt)
{
    const jinja_template *t = rt->t;
    jrt_release_all(rt);
    jrt_free(rt, rt->globals, (t->n_names + 1) * sizeof *rt->globals);
    jrt_free(rt, rt->names, (t->n_names + 1) * sizeof *rt->names);
    jrt_free(rt, rt->consts, (t->n_constants + 1) * sizeof *rt->consts);
}

status jinja_render(const jinja_template *t, const jinja_var *vars, size_t n_vars, const jinja_options *o,
                    jinja_output *out, err *e)
{
    static const jinja_options defaults = {0};
    o = o ? o : &defaults;
    jrt rt = {
        .t = t,
        .now_s = o->now_s,
        .max_steps = o->max_steps ? o->max_steps : JINJA_DEFAULT_STEPS,
        .max_bytes = o->max_bytes ? o->max_bytes : JINJA_DEFAULT_BYTES,
        .max_depth = o->max_depth && o->max_depth < JINJA_DEFAULT_DEPTH ? o->max_depth : JINJA_DEFAULT_DEPTH,
    };
    jinja_output_release(out);
    bool ok = render_guarded(&rt, vars, n_vars, out);
    release_run(&rt);
    if (ok) {
        buf_release(&rt.error);
        return ST_OK;
    }
    jinja_output_release(out);
    if (rt.st != ST_TEMPLATE) {
        buf_release(&rt.error);
        return err_set(e, rt.st, NULL, "rendering the template: %s", status_text(rt.st));
    }
    out->error = rt.error;
    out->raised = rt.raised;
    return err_at(e, ST_TEMPLATE, rt.at, "messages", "%s", buf_str(&out->error));
}

void jinja_output_release(jinja_output *out)
{
    buf_release(&out->text);
    buf_release(&out->error);
    mem_free(out->plain);
    mem_free(out->generated);
    *out = (jinja_output){0};
}
