/* What the encoders of both dialects share: one line being written, and its keys. */
#ifndef HEARTH_WIRE_FRAME_PUT_INT_H
#define HEARTH_WIRE_FRAME_PUT_INT_H

#include "wire/frame.h"

/* Only names of the two lists can be written: any other is an undeclared FRAME_KEY_…. */
#define FRAME_KEY(w, name) ((void)FRAME_KEY_##name, json_w_key(w, #name))

typedef struct frame_line {
    json_w w;
    buf *out;   /* borrowed */
    size_t len; /* before this frame */
} frame_line;

/* Opens the object; with an id it is its first member. */
void frame_line_begin(frame_line *l, buf *out, wire_string id);
/* Closes it and adds '\n'; if anything failed the buffer is as it was. */
status frame_line_end(frame_line *l);

void frame_put_string(json_w *w, wire_string s); /* absent: "" */
void frame_put_ids(json_w *w, const int32_t *ids, size_t n);
/* "ids" and, if there are any, "logprobs". */
void frame_put_step_ids(json_w *w, const frame_step *s);

#endif
