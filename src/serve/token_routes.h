/*
 * token_routes: POST /tokenize {content, add_special, parse_special, with_pieces} and POST /detokenize
 * {tokens}, POST /apply-template (chat_talk.h's fields; answers {prompt}), as llama-server has them; `model` names
 * one. Each is one light job of the model's service and
 * frees itself with the answer. Loop thread only.
 */
#ifndef HEARTH_SERVE_TOKEN_ROUTES_H
#define HEARTH_SERVE_TOKEN_ROUTES_H

#include "serve/api.h"
#include "serve/http.h"

/* Of a body. The answer is several times as long and is read in one go: with 6 MiB every stream stood still for seconds. */
#define TOKEN_ROUTES_MAX_BODY ((size_t)1 << 20)

/* They answer the request, now or later. */
void token_routes_tokenize(const api_context *api, http_conn *c, uint32_t key, const char *body, size_t len);
void token_routes_detokenize(const api_context *api, http_conn *c, uint32_t key, const char *body,
                             size_t len);
void token_routes_apply_template(const api_context *api, http_conn *c, uint32_t key, const char *body,
                                 size_t len);

#endif
