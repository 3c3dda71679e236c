/*
 * http_reader: cuts the bytes of one HTTP/1.x connection into requests (framing by http_parser).
 *
 * Bytes are pushed as they come; the reader stops at two places of each request: when its headers are
 * complete, before a byte of the body is kept (HTTP_STEP_HEAD), and when it is complete (HTTP_STEP_DONE).
 * After HTTP_STEP_DONE nothing is read until http_reader_next, so pipelined requests stay in the caller's
 * hands. Where the bytes are cut changes nothing. After HTTP_STEP_BAD the connection is lost: *fault says how
 * to answer.
 *
 * Limits: target HTTP_MAX_TARGET_BYTES (414), header block 80 KiB (http_parser's own, 431), body
 * max_body_bytes (413: at once if Content-Length tells, else when it gets there), the bodies of all readers
 * together http_budget (429). Refused too: other versions than 1.x (505), HTTP/1.1 without exactly one Host,
 * Content-Length together with Transfer-Encoding (400). An Upgrade is ignored, as RFC 9110 allows.
 *
 * One owner thread. Owns what it keeps of a request.
 */
#ifndef HEARTH_SERVE_HTTP_READER_H
#define HEARTH_SERVE_HTTP_READER_H

#include <http_parser.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

#define HTTP_MAX_TARGET_BYTES 8192
#define HTTP_NAME_BYTES       32 /* longer names are none that we know */
#define HTTP_VALUE_BYTES      64

typedef enum http_step { HTTP_STEP_MORE, HTTP_STEP_HEAD, HTTP_STEP_DONE, HTTP_STEP_BAD } http_step;

typedef struct http_budget { /* bytes of bodies that all readers together hold; one thread */
    size_t used, max;
} http_budget;

typedef struct http_fault {
    int status;          /* the HTTP status to answer with */
    const char *message; /* static, one line */
} http_fault;

typedef struct http_request { /* whole from HTTP_STEP_HEAD (the body: HTTP_STEP_DONE) to http_reader_next */
    enum http_method method;
    buf path;        /* the target without query */
    int minor;       /* of the version: 1.minor */
    bool keep_alive; /* what version and Connection ask for */
    bool has_body;   /* a body follows the headers (it may turn out empty if chunked) */
    bool expect_100; /* the client waits for "100 Continue" before it sends the body */
    buf body;
} http_request;

typedef struct http_reader {
    http_request request; /* owned */
    http_fault fault;     /* after HTTP_STEP_BAD */

    /* private */
    http_parser parser;
    http_step stop; /* why the parser was paused */
    size_t max_body_bytes;
    http_budget *budget; /* borrowed */
    bool started;        /* a byte of the current request was seen */
    unsigned n_hosts;
    bool in_value; /* the last header bytes were of a value */
    size_t name_len, value_len;
    char name[HTTP_NAME_BYTES], value[HTTP_VALUE_BYTES]; /* of the current header; cut */
} http_reader;

void http_reader_init(http_reader *r, size_t max_body_bytes, http_budget *budget);
void http_reader_release(http_reader *r);
/* Reads up to n bytes and returns how many it took; *step tells why it stopped (HTTP_STEP_MORE: all taken).
 */
size_t http_reader_push(http_reader *r, const char *data, size_t n, http_step *step);
void http_reader_drop_body(http_reader *r); /* gives back the memory and the budget of the body */
void http_reader_next(http_reader *r);      /* forgets the request; the next one may be pushed */
/* A request has begun and is not complete. */
bool http_reader_started(const http_reader *r);

#endif
