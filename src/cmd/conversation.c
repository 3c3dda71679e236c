#include "cmd/conversation.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "base/mem.h"
#include "cmd/model_options.h"

static void say_error(const hearth_error *e)
{
    err out = {.code = (status)e->code, .offset = e->offset};
    snprintf(out.msg, sizeof out.msg, "%s", e->message);
    print_err("chat", &out);
}

static bool no_memory(void)
{
    fprintf(stderr, "hearth: chat: out of memory\n");
    return false;
}

bool conversation_open(hearth_model *model, const char *template_text, conversation *c)
{
    hearth_error e = HEARTH_ERROR_INIT;
    const int32_t *ids;
    size_t n;
    *c = (conversation){.model = model, .template_text = template_text};
    hearth_model_info info = HEARTH_MODEL_INFO_INIT;
    hearth_model_info_get(model, &info);
    c->by_template = template_text || (info.has_chat_template && !info.speaks_chatml);
    if (hearth_session_open(model, &c->session, &e) != HEARTH_OK ||
        (!c->by_template && hearth_chat_ids(c->session, NULL, 0, false, &ids, &n, &e) != HEARTH_OK)) {
        say_error(&e);
        return false;
    }
    return true;
}

static void forget(conversation *c, size_t keep)
{
    while (c->n_said > keep) {
        buf_release(&c->said[--c->n_said].text);
    }
}

void conversation_close(conversation *c)
{
    forget(c, 0);
    mem_free(c->said);
    hearth_session_close(c->session);
    buf_release(&c->system);
    buf_release(&c->saved_as);
    ivec_release(&c->ids);
    *c = (conversation){0};
}

static bool add(conversation *c, bool by_user, const char *text, size_t len)
{
    if (c->n_said == c->cap_said) {
        size_t cap = c->cap_said ? 2 * c->cap_said : 16, n_bytes;
        said *more = size_mul(cap, sizeof *more, &n_bytes) ? mem_realloc(c->said, n_bytes) : NULL;
        if (!more) {
            return no_memory();
        }
        c->said = more;
        c->cap_said = cap;
    }
    said *s = &c->said[c->n_said];
    *s = (said){.by_user = by_user};
    if (buf_append(&s->text, text, len) != ST_OK) {
        buf_release(&s->text);
        return no_memory();
    }
    c->n_said++;
    return true;
}

/* Appends to c->ids what the next prompt has beyond them: the last message, or all of them. A template
 * says where a turn begins and ends only as a whole. */
static bool extend_ids(conversation *c)
{
    bool follows = !c->by_template && c->ids.len > 0;
    size_t first = follows ? c->n_said - 1 : 0, n = 0, n_ids;
    hearth_error e = HEARTH_ERROR_INIT;
    const int32_t *ids;
    hearth_message *m = mem_alloc_array(c->n_said - first + 1, sizeof *m);
    if (!m) {
        return no_memory();
    }
    if (!follows && c->system.len > 0) {
        m[n++] = (hearth_message){"system", buf_str(&c->system), c->system.len};
    }
    for (size_t i = first; i < c->n_said; i++) {
        const said *s = &c->said[i];
        m[n++] = (hearth_message){s->by_user ? "user" : "assistant", buf_str(&s->text), s->text.len};
    }
    hearth_status st = c->by_template
                           ? hearth_template_ids(c->session, m, n, c->template_text, &ids, &n_ids, &e)
                           : hearth_chat_ids(c->session, m, n, follows, &ids, &n_ids, &e);
    mem_free(m);
    if (st != HEARTH_OK) {
        say_error(&e);
        return false;
    }
    if (c->by_template) { /* only now: who fails leaves them as they were */
        ivec_reset(&c->ids);
    }
    return ivec_append(&c->ids, ids, n_ids) == ST_OK || no_memory();
}

static void keep_stats(conversation *c, const hearth_result *r)
{
    c->last = (turn_stats){.finish_reason = r->finish_reason,
                           .prompt_tokens = r->n_prompt_ids,
                           .reused_tokens = (size_t)r->reused_tokens,
                           .reply_tokens = r->n_ids,
                           .prefill_ms = r->prefill_ms,
                           .decode_ms = r->decode_ms,
                           .ttft_ms = r->ttft_ms};
}

/* The reply to what c->ids hold. */
static bool reply(conversation *c, const hearth_generate_options *o, hearth_token_fn fn, void *ctx)
{
    hearth_generate_options g = *o;
    hearth_result r = HEARTH_RESULT_INIT;
    hearth_error e = HEARTH_ERROR_INIT;
    g.prompt_ids = c->ids.data;
    g.n_prompt_ids = c->ids.len;
    if (hearth_generate(c->session, &g, fn, ctx, &r, &e) != HEARTH_OK) {
        if (e.code == HEARTH_CONTEXT_LENGTH) {
            fprintf(stderr,
                    "hearth: the context is full: with this message the conversation has %zu tokens of %d. "
                    "/reset begins anew, /save FILE keeps this one\n",
                    c->ids.len, (int)conversation_context(c));
        } else {
            say_error(&e);
        }
        return false;
    }
    keep_stats(c, &r);
    return add(c, false, r.text, r.text_len) &&
           (ivec_append(&c->ids, r.ids, r.n_ids) == ST_OK || no_memory());
}

bool conversation_say(conversation *c, const char *text, size_t len, const hearth_generate_options *o,
                      hearth_token_fn fn, void *ctx)
{
    size_t n_ids = c->ids.len, n_said = c->n_said;
    if (add(c, true, text, len) && extend_ids(c) && reply(c, o, fn, ctx)) {
        return true;
    }
    if (c->ids.len > n_ids) { /* a template may have left something out */
        ivec_truncate(&c->ids, n_ids);
    }
    forget(c, n_said);
    return false;
}

bool conversation_instruct(conversation *c, const char *text, size_t len)
{
    buf_reset(&c->system);
    ivec_reset(&c->ids); /* it stands before everything */
    return buf_append(&c->system, text, len) == ST_OK || no_memory();
}

bool conversation_reset(conversation *c)
{
    hearth_error e = HEARTH_ERROR_INIT;
    forget(c, 0);
    ivec_reset(&c->ids);
    c->last = (turn_stats){0};
    if (hearth_session_reset(c->session, &e) != HEARTH_OK) {
        say_error(&e);
        return false;
    }
    return true;
}

size_t conversation_tokens(const conversation *c)
{
    return c->ids.len;
}

int32_t conversation_context(const conversation *c)
{
    hearth_model_info info = HEARTH_MODEL_INFO_INIT;
    hearth_model_info_get(c->model, &info);
    return info.context;
}

/* Saving */

static status put_message(buf *out, const char *role, const buf *text, bool last)
{
    json_w w;
    json_w_begin(&w, out);
    json_w_obj_open(&w);
    json_w_key(&w, "role");
    json_w_cstr(&w, role);
    json_w_key(&w, "content");
    json_w_str(&w, buf_str(text), text->len);
    json_w_obj_close(&w);
    status st = json_w_end(&w);
    return st == ST_OK ? buf_append_str(out, last ? "\n" : ",\n") : st;
}

static status render(const conversation *c, buf *out)
{
    hearth_model_info info = HEARTH_MODEL_INFO_INIT;
    json_w w;
    hearth_model_info_get(c->model, &info);
    status st = buf_append_str(out, "{\"model\":");
    if (st == ST_OK) {
        json_w_begin(&w, out);
        json_w_cstr(&w, info.name);
        st = json_w_end(&w);
    }
    if (st == ST_OK) {
        st = buf_append_str(out, ",\"messages\":[\n");
    }
    if (st == ST_OK && c->system.len > 0) {
        st = put_message(out, "system", &c->system, c->n_said == 0);
    }
    for (size_t i = 0; st == ST_OK && i < c->n_said; i++) {
        const said *s = &c->said[i];
        st = put_message(out, s->by_user ? "user" : "assistant", &s->text, i + 1 == c->n_said);
    }
    return st == ST_OK ? buf_append_str(out, "]}\n") : st;
}

static bool write_all(int fd, const buf *b)
{
    size_t done = 0;
    while (done < b->len) {
        ssize_t n = write(fd, b->data + done, b->len - done);
        if (n < 0 && errno != EINTR) {
            return false;
        }
        done += n > 0 ? (size_t)n : 0;
    }
    return true;
}

static bool write_file(const conversation *c, const char *path, const buf *text)
{
    bool ours = strcmp(buf_str(&c->saved_as), path) == 0;
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | (ours ? O_TRUNC : O_EXCL), 0600);
    if (fd < 0) {
        fprintf(stderr, "hearth: %s: %s\n", path, strerror(errno));
        return false;
    }
    bool written = write_all(fd, text);
    int why = errno;
    if (close(fd) != 0 && written) {
        written = false;
        why = errno;
    }
    if (!written) {
        fprintf(stderr, "hearth: %s: not saved: %s\n", path, strerror(why));
    }
    return written;
}

bool conversation_save(conversation *c, const char *path)
{
    buf text = {0};
    bool saved = render(c, &text) == ST_OK ? write_file(c, path, &text) : no_memory();
    buf_release(&text);
    if (saved) {
        buf_reset(&c->saved_as);
        saved = buf_append_str(&c->saved_as, path) == ST_OK || no_memory();
    }
    return saved;
}
