/*
 * jinja_value: the values of a rendering, and the memory they live in.
 *
 * Memory. Every object belongs to one rendering (jrt) and stands in its list, so that whatever happens, the end
 * of the rendering frees all. Objects are counted (`refs`) and freed early when nobody holds them: a loop that
 * builds a string does not keep its prefixes. Whoever makes an object gets it without owning it: the new object
 * is held by the stack of temporaries, which each statement empties down to where it began. So functions take
 * and return borrowed values that live until the end of the statement; only what is stored (scopes, lists,
 * dicts) is counted with jv_keep and jv_drop. The count can only be too high by cycles (a macro and the scope it
 * is defined in), which the end of the rendering ends.
 *
 * Errors. As in Lua, a fault leaves by longjmp to jinja_render (jrt_fail does not return): nothing has to be
 * undone on the way, because nothing is owned by C frames. No function here may hold memory, locks or files of
 * its own across a call.
 *
 * Strings never change, are valid UTF-8, and carry one mark byte per byte: MARK_PLAIN if it stems from the
 * caller's values, MARK_GENERATED if a {% generation %} block wrote it. Strings share bytes: a slice costs no
 * copy, and appending to the string that ends its block of bytes writes behind it, if there is room.
 *
 * One thread per rendering.
 */
#ifndef HEARTH_TEXT_JINJA_VALUE_H
#define HEARTH_TEXT_JINJA_VALUE_H

#include <setjmp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/json.h"
#include "base/status.h"
#include "text/jinja_ast.h"

enum { MARK_PLAIN = 1, MARK_GENERATED = 2 };

typedef enum jtype {
    J_ABSENT, /* an argument that was not given; never seen by a template */
    J_UNDEF,
    J_NONE,
    J_BOOL,
    J_INT,
    J_FLOAT,
    J_STR,
    J_SEQ,
    J_DICT,
    J_NS, /* namespace(): a dict that templates change */
    J_FUNC,
    J_LOOP,
    J_CYCLER
} jtype;

typedef enum jobj_kind {
    O_BYTES,
    O_STR,
    O_UNDEF,
    O_SEQ,
    O_DICT,
    O_FUNC,
    O_SCOPE,
    O_LOOP,
    O_CYCLER
} jobj_kind;

typedef struct jobj {
    uint32_t refs;
    uint8_t kind; /* jobj_kind */
    struct jobj *prev, *next;
} jobj;

typedef struct jstr jstr;
typedef struct jseq jseq;
typedef struct jdict jdict;
typedef struct jfunc jfunc;
typedef struct jloop jloop;
typedef struct jcycler jcycler;
typedef struct jundef jundef;
typedef struct jscope jscope;
typedef struct jrt jrt;

/* Copied freely. plain: the value (not a string: they have marks) stems from the caller. */
typedef struct jv {
    uint8_t type; /* jtype */
    bool plain;
    union {
        bool b;
        int64_t i;
        double f;
        jobj *o; /* of all that follow */
        jstr *s;
        jseq *q;
        jdict *d;
        jfunc *fn;
        jloop *loop;
        jcycler *cycler;
        jundef *u; /* NULL: without a name */
    };
} jv;

/* A block of bytes with their marks; `used` of `cap`. */
typedef struct jbytes {
    jobj h;
    char *data;     /* owned: cap bytes, then cap marks */
    uint8_t *marks; /* data + cap */
    size_t used, cap;
} jbytes;

struct jstr {
    jobj h;
    jbytes *bytes; /* counted */
    const char *s; /* in bytes */
    const uint8_t *m;
    size_t len;
    size_t chars;  /* SIZE_MAX: not counted yet */
    uint64_t hash; /* 0: not computed yet */
};

typedef enum jundef_kind { U_NAME, U_ATTRIBUTE, U_ITEM, U_HINT, U_MISSING } jundef_kind;
struct jundef {
    jobj h;
    jundef_kind kind;
    const char *owner; /* "dict object", for U_ATTRIBUTE, U_ITEM; the text of U_HINT */
    jv name;           /* counted */
};

typedef enum jseq_kind {
    SEQ_LIST,
    SEQ_TUPLE,
    SEQ_RANGE,
    SEQ_ITERATOR, /* of map, select, batch …: read once, no length */
    SEQ_KEYS,     /* views of dicts: a length, but no elements */
    SEQ_VALUES,
    SEQ_ITEMS
} jseq_kind;
struct jseq {
    jobj h;
    uint8_t kind;
    bool spent; /* an iterator that was read */
    bool group; /* a pair of groupby: has .grouper and .list */
    size_t n, cap;
    jv *at; /* owned: [cap], counted */
};

typedef struct jentry {
    jv key, value; /* counted */
    uint64_t hash;
} jentry;
/* In order of insertion; above 8 entries with an index. */
struct jdict {
    jobj h;
    size_t n, cap;
    jentry *at;      /* owned: [cap] */
    uint32_t *index; /* owned: [n_index] entry number + 1, 0: free; NULL: looked at one by one */
    size_t n_index;
};

struct jbuiltin;
struct jfunc {
    jobj h;
    const struct jbuiltin *builtin; /* NULL: a macro */
    jv self;                        /* counted: of a method */
    const jnode *macro;             /* S_MACRO or S_CALL_BLOCK */
    jscope *scope;                  /* counted: where it was defined */
};

typedef struct jbinding {
    uint32_t sym;
    jv value; /* counted */
} jbinding;
struct jscope {
    jobj h;
    jscope *parent; /* counted */
    size_t n, cap;
    jbinding *at; /* owned */
};

struct jloop {
    jobj h;
    jseq *items; /* counted */
    size_t i;
    int64_t depth0;
    jv changed;        /* counted: what loop.changed saw last, J_ABSENT at first */
    const jnode *node; /* S_FOR */
    jscope *scope;     /* counted: where the loop stands */
};

/* cycler(a, b) and joiner(sep). */
struct jcycler {
    jobj h;
    jseq *items; /* counted */
    size_t i;
    bool joiner;
};

/* -- the rendering ----------------------------------------------------------------------------------------- */

/* Text under construction; grows in place. The bytes are a temporary, so it lives as long as they do. */
typedef struct jbuild {
    jbytes *bytes;
} jbuild;

struct jrt {
    const struct jinja_template *t; /* borrowed */
    int64_t now_s;
    uint64_t steps, max_steps;
    size_t bytes, max_bytes;
    unsigned depth, max_depth;
    uint32_t at;  /* where in the source: what errors point to */
    uint8_t mark; /* of what is written now: 0 or MARK_GENERATED */
    jobj *all;    /* owned: every object */
    jobj **temps; /* owned: [n_temps], each counted */
    size_t n_temps, cap_temps;
    jv *globals;   /* owned: [n_names], J_ABSENT: none. Counted */
    jstr **names;  /* owned: [n_names], made when first needed. Counted */
    jstr **consts; /* owned: [n_constants], the same */
    jscope *scope; /* the current one; counted */
    jscope *top;   /* the template's own; counted */
    jbuild *out;   /* where text goes now */
    /* the failure */
    jmp_buf fail;
    status st;
    bool raised;
    buf error;
};

/* ST_TEMPLATE at rt->at. */
void jrt_fail(jrt *rt, const char *fmt, ...) __attribute__((noreturn, format(printf, 2, 3)));
void jrt_fail_nomem(jrt *rt) __attribute__((noreturn));
void jrt_raise(jrt *rt, const jstr *text) __attribute__((noreturn)); /* raise_exception */
/* Work beyond the node being evaluated: fails above max_steps. */
void jrt_charge(jrt *rt, uint64_t steps);
void *jrt_alloc(jrt *rt, size_t n_bytes); /* zeroed, counted against max_bytes; does not return NULL */
void jrt_free(jrt *rt, void *p, size_t n_bytes);
void jrt_release_all(jrt *rt); /* every object, at the end */

void jrt_release_temps(jrt *rt, size_t down_to);
/* v, which something that may change holds (a namespace, a list), lives until the end of the statement: a macro
 * called further on in the same expression could replace it. */
jv jrt_pin(jrt *rt, jv v);
/* v survives jrt_release_temps(down_to), as a temporary of the caller. */
jv jrt_carry(jrt *rt, size_t down_to, jv v);
jv jv_keep(jv v);
void jv_drop(jrt *rt, jv v);
void jobj_drop(jrt *rt, jobj *o); /* NULL is fine */

#define JV_NONE   ((jv){.type = J_NONE})
#define JV_ABSENT ((jv){.type = J_ABSENT})
static inline jv jv_bool(bool b)
{
    return (jv){.type = J_BOOL, .b = b};
}
static inline jv jv_int(int64_t i)
{
    return (jv){.type = J_INT, .i = i};
}
static inline jv jv_float(double f)
{
    return (jv){.type = J_FLOAT, .f = f};
}
static inline jv jv_of_str(jstr *s)
{
    return (jv){.type = J_STR, .s = s};
}
static inline jv jv_of_seq(jseq *q)
{
    return (jv){.type = J_SEQ, .q = q};
}

jv jv_undef(jrt *rt, jundef_kind kind, const char *owner, jv name);
jv jv_undef_hint(jrt *rt, const char *hint); /* hint: static */

/* A value of the caller, with all that is in it. */
jv jv_of_json(jrt *rt, const json *v, bool trusted);

/* -- strings ----------------------------------------------------------------------------------------------- */

jstr *jstr_new(jrt *rt, const char *s, size_t n, uint8_t mark);
jstr *jstr_of(jrt *rt, const char *s);                      /* the template's own */
jstr *jstr_slice(jrt *rt, jstr *s, size_t from, size_t to); /* bytes */
jstr *jstr_concat(jrt *rt, jstr *a, jstr *b);
size_t jstr_chars(jstr *s);
/* Byte offset of character i <= chars. */
size_t jstr_offset(jrt *rt, jstr *s, size_t i);
bool jstr_equal(const jstr *a, const jstr *b);
int jstr_compare(const jstr *a, const jstr *b); /* by code points: -1, 0, 1 */
bool jstr_is(const jstr *s, const char *text);
bool jstr_any_plain(const jstr *s);
jstr *jstr_name(jrt *rt, uint32_t sym);

void jbuild_begin(jrt *rt, jbuild *b);
void jbuild_add(jrt *rt, jbuild *b, const char *s, size_t n, uint8_t mark);
void jbuild_text(jrt *rt, jbuild *b, const char *s); /* the template's own */
void jbuild_char(jrt *rt, jbuild *b, uint32_t cp, uint8_t mark);
void jbuild_repeat(jrt *rt, jbuild *b, const char *s, size_t n, size_t times, uint8_t mark);
void jbuild_str(jrt *rt, jbuild *b, const jstr *s);
void jbuild_slice(jrt *rt, jbuild *b, const jstr *s, size_t from, size_t to);
size_t jbuild_len(const jbuild *b);
/* Adds marks to what was written since `from`. */
void jbuild_mark(jbuild *b, size_t from, uint8_t mark);
jstr *jbuild_end(jrt *rt, jbuild *b);

/* -- sequences and dicts ----------------------------------------------------------------------------------- */

jseq *jseq_new(jrt *rt, jseq_kind kind, size_t cap);
void jseq_push(jrt *rt, jseq *q, jv v);
/* Before element i <= n. */
void jseq_insert(jrt *rt, jseq *q, size_t i, jv v);
void jseq_remove(jrt *rt, jseq *q, size_t i); /* i < n */
jseq *jseq_pair(jrt *rt, jv a, jv b);         /* a tuple */

jdict *jdict_new(jrt *rt);
/* Fails for keys that cannot be hashed. */
void jdict_put(jrt *rt, jdict *d, jv key, jv value);
bool jdict_get(jrt *rt, const jdict *d, jv key, jv *out);
void jdict_remove(jrt *rt, jdict *d, jv key); /* which may be absent */
bool jdict_get_text(jrt *rt, const jdict *d, const char *key, jv *out);

/* -- scopes ------------------------------------------------------------------------------------------------ */

jscope *jscope_new(jrt *rt, jscope *parent);
void jscope_set(jrt *rt, jscope *s, uint32_t sym, jv v);
bool jscope_get(const jscope *s, uint32_t sym, jv *out); /* here and further out */

jobj *jobj_new(jrt *rt, jobj_kind kind, size_t n_bytes); /* a temporary, zeroed */

#endif
