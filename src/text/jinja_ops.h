/*
 * jinja_ops: what Python does with values: truth, equality, order, arithmetic, iteration, subscripts. Faults
 * leave by jrt_fail with Python's words. See jinja_value.h for memory.
 */
#ifndef HEARTH_TEXT_JINJA_OPS_H
#define HEARTH_TEXT_JINJA_OPS_H

#include "text/jinja_value.h"

const char *jv_type_name(jv v); /* of Python: "str", "NoneType" … */
void jrt_fail_undefined(jrt *rt, jv undefined) __attribute__((noreturn));
static inline bool jv_is_number(jv v)
{
    return v.type == J_BOOL || v.type == J_INT || v.type == J_FLOAT;
}
static inline bool jv_is_list(jv v, jseq_kind kind)
{
    return v.type == J_SEQ && v.q->kind == kind;
}
double jv_as_double(jv number);
int64_t jv_as_int(jv bool_or_int);

bool jv_truth(jv v);
bool jv_equal(jrt *rt, jv a, jv b);
/* -1, 0, 1; 2 if NaN is involved. op: for the message, "<". */
int jv_compare(jrt *rt, jv a, jv b, const char *op);
/* E_OPERAND's op, OP_IN and OP_NOT_IN included. */
bool jv_relation(jrt *rt, int op, jv a, jv b);
jv jv_binary(jrt *rt, int op, jv a, jv b);
jv jv_negate(jrt *rt, jv v);
int64_t jv_multiply_int(jrt *rt, int64_t a, int64_t b);

size_t jv_len(jrt *rt, jv v);
bool jv_can_iterate(jv v);
/* The elements; an iterator is spent by it. Of a list it is the list itself. */
jseq *jv_iterate(jrt *rt, jv v);
bool jv_hashable(jv v);

jv jv_getattr(jrt *rt, jv v, jstr *name);
jv jv_getitem(jrt *rt, jv v, jv key);
/* J_NONE for what is left out. */
jv jv_slice(jrt *rt, jv v, jv from, jv to, jv step);
/* "a.b.0", as filters take their attribute=. */
jv jv_get_path(jrt *rt, jv v, jv path);

#endif
