/*
 * session_routes: what can be asked of named sessions. docs/sessions.md says what each takes and answers.
 *
 *   GET /v1/sessions                        the key's own
 *   GET, DELETE /v1/sessions/{id}
 *   POST /v1/sessions/{id}/reset, /prewarm, /save, /restore, /drop
 *   GET /v1/sessions/{id}/probe, /export    PUT /v1/sessions/{id}/import
 *
 * A session is looked for among those of the key that asks; `model` in the query names one of several models. Unknown
 * and another's are the same 404. An op is one question to the model's worker (session_desk.h) and goes on when its
 * client leaves; GET waits for it no longer than SESSION_PATIENCE_MS and then says what was known before.
 *
 * Limits: bodies SESSION_MAX_BODY, that of an import SESSION_MAX_IMPORT, which counts in the budget of bodies until the
 * worker's pipe has it; an export is one attachment of the worker, and all that wait or are being read by their
 * clients hold SESSION_DOWNLOADS at most (429).
 *
 * Each call frees itself with its answer. Loop thread only.
 */
#ifndef HEARTH_SERVE_SESSION_ROUTES_H
#define HEARTH_SERVE_SESSION_ROUTES_H

#include "serve/api.h"
#include "serve/http.h"
#include "wire/line.h"

#define SESSION_MAX_BODY    ((size_t)4096)
#define SESSION_MAX_IMPORT  WIRE_MAX_ATTACH_BYTES
#define SESSION_DOWNLOADS   (4 * WIRE_MAX_ATTACH_BYTES)
#define SESSION_PATIENCE_MS 30

typedef enum session_action { /* GET and DELETE of a session are one: the method tells */
                              SESSION_LIST,
                              SESSION_ONE,
                              SESSION_RESET,
                              SESSION_PREWARM,
                              SESSION_SAVE,
                              SESSION_RESTORE,
                              SESSION_DROP,
                              SESSION_PROBE,
                              SESSION_EXPORT,
                              SESSION_IMPORT
} session_action;

/* Answers the request, now or later. id[0..id_len): as the path has it, with its escapes. */
void session_routes_answer(const api_context *api, http_conn *c, uint32_t key, session_action action,
                           const char *id, size_t id_len, const http_request *r);

#endif
