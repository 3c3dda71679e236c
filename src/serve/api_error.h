/*
 * api_error: a refusal as a client of the OpenAI routes sees it:
 * {"error":{"message","type","param","code"}}, with prompt_tokens and limit where there are any.
 *
 * Plain data, any thread. Texts are copied, cut to fit.
 */
#ifndef HEARTH_SERVE_API_ERROR_H
#define HEARTH_SERVE_API_ERROR_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/status.h"
#include "wire/frame.h"

#define API_RETRY_AFTER_S 1 /* of every 429: a place in the queue is free once a reply has ended */
#define API_MAX_RETRY_S   3600

typedef struct api_fault {
    int http_status;
    const char *code; /* static */
    char param[128];  /* the field at fault, "" = null */
    char message[512];
    int64_t prompt_tokens, limit; /* FRAME_NO_NUMBER = absent, these four */
    int64_t need, have;           /* pages */
    int retry_after_s;            /* of the header; 0 = none */
} api_fault;

/* A fault of the HTTP layer (400, 404, 405, 408, 413 …). */
void api_fault_http(api_fault *f, int http_status, const char *message);
/* Ours. ST_NOT_FOUND is 404 model_not_found, ST_NOMEM 503; the rest is as wire/errors.h says. */
void api_fault_err(api_fault *f, const err *e);
/* The worker's: its kind is FRAME_ERROR. Names of wire fields become those of the API. */
void api_fault_frame(api_fault *f, const frame *refusal);
/* Appends the JSON object; ST_NOMEM leaves out as it was. */
status api_fault_put(const api_fault *f, buf *out);

#endif
