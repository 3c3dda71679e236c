#include "worker/last.h"

#include <string.h>

#include "wire/frame.h"

#define SHOWN_SESSION_BYTES 256 /* of a session's name; a longer one is left out */

wire_string last_id_of(const task *k)
{
    return k->request ? k->request->id : (wire_string){k->id_len > 0 ? k->id_bytes : NULL, k->id_len};
}

static void end(task *k)
{
    if (k->request && k->request->cancel_request_id != 0 && k->submitted) {
        control_seal(k->desk->control, output_said(k->desk->out));
    }
    tasks_end(k->desk->tasks, k);
}

/* The answer to a session op names it. */
static void put_session(const task *k, frame_error *f)
{
    const wire_request *r = k->request;
    f->has_session = r && !task_is_generation(k) && r->session_id.len > 0;
    if (f->has_session && r->session_id.len <= SHOWN_SESSION_BYTES) {
        f->session_id = r->session_id.data;
        f->session_id_len = r->session_id.len;
    }
}

void last_owed(task *k)
{
    err e;
    err_set(&e, ST_NOMEM, NULL, "out of memory for a frame");
    frame_error f = frame_error_of(&e);
    f.id = last_id_of(k);
    put_session(k, &f);
    bool owed = k->state == TASK_OWING;
    if (output_put_last(k->desk->out, &f)) {
        k->desk->tasks->n_owing -= owed;
        end(k);
    } else if (!owed) {
        k->state = TASK_OWING;
        k->desk->tasks->n_owing++;
    }
}

bool last_said(task *k, status st)
{
    if (halt_asked(k->desk->halt)) {
        end(k);
        return true;
    }
    if (output_check(k->desk->out, st)) {
        end(k);
        return true;
    }
    last_owed(k);
    return false;
}
