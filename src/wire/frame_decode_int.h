/* What the decoder's files share: fields of a frame, checked. A reader returns false, and says why in e, if
 * the field is not as it must be; `out` is then unspecified. */
#ifndef HEARTH_WIRE_FRAME_DECODE_INT_H
#define HEARTH_WIRE_FRAME_DECODE_INT_H

#include "wire/frame.h"

bool frame_refuse(err *e, const char *key, const char *want);
bool frame_no_memory(err *e);

/* Fields that must be there. */
bool frame_get_string(const json *o, const char *key, wire_string *out, err *e);
bool frame_get_i32(const json *o, const char *key, int32_t *out, err *e); /* >= 0 */
bool frame_get_i64(const json *o, const char *key, int64_t *out, err *e); /* >= 0 */
bool frame_get_u64(const json *o, const char *key, uint64_t *out, err *e);
bool frame_get_bool(const json *o, const char *key, bool *out, err *e);
bool frame_get_object(const json *o, const char *key, const json **out, err *e);
bool frame_get_array(const json *o, const char *key, const json **out, err *e);

/* Fields that may be absent or null: then *out is left alone. */
bool frame_opt_string(const json *o, const char *key, wire_string *out, err *e);
bool frame_opt_i32(const json *o, const char *key, int32_t *out, err *e);
bool frame_opt_i64(const json *o, const char *key, int64_t *out, err *e);
bool frame_opt_bool(const json *o, const char *key, bool *out, err *e);

/* The statistics that only a multiplexed done frame has. */
bool frame_read_costs(const json *o, frame_done *d, err *e);
/* "ids" and "logprobs" of a token or delta frame; both may be absent in the plain dialect. */
bool frame_read_step_ids(const json *o, frame *f, err *e);
/* The frames of the multiplexed dialect: f->kind says which. */
bool frame_read_mux(const json *o, frame *f, err *e);

#endif
