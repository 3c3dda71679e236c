/*
 * api_reply: a whole answer of the API to one request. Loop thread only.
 */
#ifndef HEARTH_SERVE_API_REPLY_H
#define HEARTH_SERVE_API_REPLY_H

#include "base/buf.h"
#include "base/status.h"
#include "serve/api_error.h"
#include "serve/http.h"

void api_reply_fault(http_conn *c, const api_fault *f);
void api_reply_err(http_conn *c, const err *e);
/* 503: no memory for an answer. */
void api_reply_no_memory(http_conn *c);
/* Sends what is in body, or api_reply_no_memory if appending it gave an error; releases body. */
void api_reply_take(http_conn *c, int http_status, buf *body, status appended);

#endif
