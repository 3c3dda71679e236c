/*
 * session_range: what memory and disk hold of a session's tokens, and ranges of them as bytes (kv/exchange.h).
 *
 * A session is a list of tokens. Their keys and values are the prefix tree's, under the root of a namespace, and may have
 * been given to somebody else: then they are computed again, or read from the store, when a request wants them. Nothing
 * here computes or waits. No request of the session may run or wait (asserted).
 *
 * Errors name what is at fault by the fields of PROTOCOL 4: `from`, `count`, `ids`, what exchange_read names, and
 * `action` (ST_UNSUPPORTED) where nothing is kept at all (--no-warm) or only the model knows what its pages hold.
 *
 * Engine thread.
 */
#ifndef HEARTH_ENGINE_SESSION_RANGE_H
#define HEARTH_ENGINE_SESSION_RANGE_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "engine/engine.h"

typedef struct session_range {
    const char *name_space; /* as in gen_request; borrowed during the call */
    size_t n_name_space;
    size_t from, count; /* tokens */
} session_range;

/* *in_memory, *stored: how many tokens of the range are there, from its beginning on without a hole, on disk as far as the
 * store knows by now (kv/store.h). ST_INVALID_FIELD:
 * the range is not within the session's tokens; ST_NOMEM. */
status session_probe(const session *s, const session_range *r, size_t *in_memory, size_t *stored, err *e);

/* Bytes of its export. ST_INVALID_FIELD as above and where there are more than max_bytes (`count`), saying how many
 * tokens fit; ST_UNSUPPORTED. */
status session_export_bytes(const session *s, const session_range *r, size_t max_bytes, size_t *bytes,
                            err *e);
/* Appends them. ST_INVALID_FIELD (`from`): not all of it is in memory, saying how much is; ST_NOMEM. Then out is as it
 * was. */
status session_export(session *s, const session_range *r, buf *out, err *e);

/* Brings a range in: what memory lacks of it, and the session's tokens if it ends beyond them. All of it is checked
 * first: ST_INVALID_FIELD (it is no range of this model and these settings, its end is beyond the context, it would
 * leave a hole, or other tokens are in the overlap), ST_CAPACITY (no pages to be had), ST_NOMEM: then nothing has
 * changed. r: from and count are written. */
status session_import(session *s, const uint8_t *bytes, size_t n, session_range *r, err *e);

/* The session knows exactly these tokens from now on, and is clean. ST_INVALID_FIELD (an id that is not in the
 * vocabulary, more than the context), ST_NOMEM: it is as it was. */
status session_set_tokens(session *s, const int32_t *ids, size_t n, err *e);

/* What all states of this engine depend on, and the type that keys and values have ("f16"; static storage). */
const kv_root_key *engine_identity(const engine *en);
const char *engine_kv_type(const engine *en);

#endif
