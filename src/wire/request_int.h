/* What the decoder's files share. A reader returns false when the line is to be refused; then d->e says why. */
#ifndef HEARTH_WIRE_REQUEST_INT_H
#define HEARTH_WIRE_REQUEST_INT_H

#include "base/json.h"
#include "wire/request.h"

typedef struct request_decoder {
    const wire_limits *limits;
    wire_request *r; /* owned until it is handed out */
    err e;
    /* what the error frame adds */
    bool has_value;
    const json *value; /* borrowed from the document */
} request_decoder;

bool request_no_memory(request_decoder *d);
/* invalid_field with the value at fault. want: what it must be. */
bool request_refuse(request_decoder *d, const char *field, const json *v, const char *want);
/* invalid_field without a value; msg names the field. */
bool request_refuse_absent(request_decoder *d, const char *field, const char *msg);
bool request_refuse_unbuilt(request_decoder *d, const char *field);

bool request_is_mux(const wire_request *r);
const char *request_op_name(wire_op op);        /* on the wire */
const char *request_session_action(wire_op op); /* "get" …; NULL for what is no session op */

/* request_fields.c: everything but op and id. */
bool request_read_fields(request_decoder *d, const json *o);

/* request_lists.c: readers of the fields that are strings, lists and objects. */
bool request_copy_string(request_decoder *d, const json *v, wire_string *out);
bool request_read_text(request_decoder *d, const char *field, const json *v);
bool request_read_segments(request_decoder *d, const char *field, const json *v);
/* name_each: the id at fault is named, as in resume.ids[3]; else the list. */
bool request_read_token_list(request_decoder *d, const char *field, const json *v, bool name_each,
                             const int32_t **out, size_t *n_out);
bool request_read_ids(request_decoder *d, const char *field, const json *v);
bool request_read_stop(request_decoder *d, const char *field, const json *v);
bool request_read_stop_ids(request_decoder *d, const char *field, const json *v);
bool request_read_bias(request_decoder *d, const char *field, const json *v);

/* request_resume.c */
bool request_read_resume(request_decoder *d, const char *field, const json *v);

/* request_chat.c: the fields of a conversation. */
bool request_read_messages(request_decoder *d, const char *field, const json *v);
bool request_read_tools(request_decoder *d, const char *field, const json *v);
bool request_read_tool_choice(request_decoder *d, const char *field, const json *v);
bool request_read_template_kwargs(request_decoder *d, const char *field, const json *v);
bool request_read_reasoning(request_decoder *d, const char *field, const json *v);
/* What the fields must be to each other. o: the line. */
bool request_check_conversation(request_decoder *d, const json *o);

#endif
