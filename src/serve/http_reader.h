/*
 * http_reader: cuts the bytes of one HTTP/1.x connection into requests (framing by http_parser).
 *
 * Bytes are pushed as they come; the reader stops at two places of each request: when its headers are
 * complete, before a byte of the body is kept (HTTP_STEP_HEAD), and when it is complete (HTTP_STEP_DONE).
 * After HTTP_STEP_DONE nothing is read until http_reader_next, so pipelined requests stay in the caller's
 * hands. Where the bytes are cut changes nothing. After HTTP_STEP_BAD the connection is lost: *fault says how
 * to answer.
 *
 * Of the headers only those of HTTP_KEPT_HEADERS are kept; one that comes twice is refused (400: which of two
 * keys counts would be a guess); of several `accept` the first counts.
 *
 * Limits: target HTTP_MAX_TARGET_BYTES (414), header block 80 KiB (http_parser's own, 431), the value of a kept
 * header HTTP_MAX_VALUE_BYTES (431), body max_body_bytes (413: see http_reader_fits), the bodies of all readers together a byte_budget (429). Refused too: other versions than 1.x
 * (505), HTTP/1.1 without exactly one Host, Content-Length together with Transfer-Encoding (400). An Upgrade is
 * ignored, as RFC 9110 allows.
 *
 * One owner thread. Owns what it keeps of a request.
 */
#ifndef HEARTH_SERVE_HTTP_READER_H
#define HEARTH_SERVE_HTTP_READER_H

#include <http_parser.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "serve/held_bytes.h"

#define HTTP_MAX_TARGET_BYTES 8192
#define HTTP_SKIP_BYTES       ((uint64_t)64 << 10) /* of a refused body */
#define HTTP_NAME_BYTES       32                   /* longer names are none that we know */
#define HTTP_VALUE_BYTES      16                   /* of a value that is looked at but not kept */
#define HTTP_MAX_VALUE_BYTES  4096

#define HTTP_KEPT_HEADERS(X) \
    X("authorization")       \
    X("x-api-key")           \
    X("x-request-id")        \
    X("idempotency-key")     \
    X("x-hearth-session")    \
    X("accept")
enum {
#define X(name) +1 /* NOLINT(bugprone-macro-parentheses): a term of a sum */
    HTTP_N_KEPT = HTTP_KEPT_HEADERS(X)
#undef X
};

typedef enum http_step { HTTP_STEP_MORE, HTTP_STEP_HEAD, HTTP_STEP_DONE, HTTP_STEP_BAD } http_step;

typedef struct http_fault {
    int status;          /* the HTTP status to answer with */
    const char *message; /* static, one line */
} http_fault;

typedef struct http_request { /* whole from HTTP_STEP_HEAD (the body: HTTP_STEP_DONE) to http_reader_next */
    enum http_method method;
    buf path;        /* the target without query */
    buf query;       /* what follows its '?' */
    int minor;       /* of the version: 1.minor */
    bool keep_alive; /* what version and Connection ask for */
    bool has_body;   /* a body follows the headers (it may turn out empty if chunked) */
    bool is_whole;   /* its headers are complete and good */
    bool expect_100; /* the client waits for "100 Continue" before it sends the body */
    buf body;

    /* private: see http_request_header */
    buf values;                    /* of the kept headers, each with its NUL */
    uint32_t kept_at[HTTP_N_KEPT]; /* 1 + offset in values; 0 = absent */
} http_request;

/* Its value without blanks around it, "" if empty; NULL if absent or none that is kept. Borrowed from r. */
const char *http_request_header(const http_request *r, const char *lower_case_name);

typedef struct http_reader {
    http_request request; /* owned */
    http_fault fault;     /* after HTTP_STEP_BAD */

    /* private */
    http_parser parser;
    http_step stop; /* why the parser was paused */
    size_t max_body_bytes;
    size_t body_limit;       /* of the current request */
    uint64_t content_length; /* of the current request; 0 = none, or chunks */
    byte_budget *budget;     /* borrowed: what the bodies of all readers together take */
    bool started;            /* a byte of the current request was seen */
    bool skip_body;
    unsigned n_hosts;
    bool in_value;   /* the last header bytes were of a value */
    int kept;        /* index of the current header in the list, -1 = not kept */
    size_t value_at; /* where its value begins in values */
    size_t name_len, value_len;
    char name[HTTP_NAME_BYTES], value[HTTP_VALUE_BYTES]; /* of the current header; cut */
} http_reader;

void http_reader_init(http_reader *r, size_t max_body_bytes, byte_budget *budget);
void http_reader_release(http_reader *r);
/* Reads up to n bytes and returns how many it took; *step tells why it stopped (HTTP_STEP_MORE: all taken).
 */
size_t http_reader_push(http_reader *r, const char *data, size_t n, http_step *step);
void http_reader_limit_body(http_reader *r,
                            size_t max_bytes); /* at HTTP_STEP_HEAD: a lower one, for this body */
/* At HTTP_STEP_HEAD: this body may be longer than max_body_bytes. Of the budget it gets only what is free in its first
 * half: the other one is for common bodies. */
void http_reader_allow_body(http_reader *r, size_t max_bytes);
/* At HTTP_STEP_HEAD: false if Content-Length tells that the body passes its limit. Who goes on then gets
 * HTTP_STEP_BAD at its first byte. */
bool http_reader_fits(const http_reader *r);
/* After a refusal at HTTP_STEP_HEAD: the body is sure to come, and worth reading to keep the connection. */
bool http_reader_may_skip(const http_reader *r);
void http_reader_skip_body(http_reader *r); /* what comes of this body is read, not kept */
void http_reader_drop_body(http_reader *r); /* gives back the memory and the budget of the body */
/* The body with its place in the budget, the caller's from here on; NULL: no memory. */
held_bytes *http_reader_take_body(http_reader *r);
void http_reader_next(http_reader *r); /* forgets the request; the next one may be pushed */
/* A byte of the current request was seen. */
bool http_reader_started(const http_reader *r);

#endif
