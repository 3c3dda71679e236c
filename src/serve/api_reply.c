#include "serve/api_reply.h"

void api_reply_fault(http_conn *c, const api_fault *f)
{
    buf body = {0};
    api_fault_put(f, &body); /* without memory: an empty body */
    http_conn_reply(c, &(http_reply){.status = f->http_status,
                                     .retry_after_s = f->retry_after_s,
                                     .body = buf_str(&body),
                                     .body_len = body.len});
    buf_release(&body);
}

void api_reply_err(http_conn *c, const err *e)
{
    api_fault f;
    api_fault_err(&f, e);
    api_reply_fault(c, &f);
}

void api_reply_no_memory(http_conn *c)
{
    api_fault f;
    api_fault_http(&f, 503, "out of memory");
    api_reply_fault(c, &f);
}

void api_reply_take(http_conn *c, int http_status, buf *body, status appended)
{
    if (appended != ST_OK) {
        api_reply_no_memory(c);
    } else {
        http_conn_reply(c,
                        &(http_reply){.status = http_status, .body = buf_str(body), .body_len = body->len});
    }
    buf_release(body);
}
