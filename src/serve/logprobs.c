#include "serve/logprobs.h"

#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

typedef struct logprob_item {
    double logprob;
    int64_t offset;
    size_t text_at;
    uint32_t text_len;
    uint32_t n_top; /* alternatives that follow */
    bool known;     /* has a log probability */
} logprob_item;

void logprob_list_release(logprob_list *l)
{
    buf_release(&l->items);
    buf_release(&l->text);
}

void logprob_list_reset(logprob_list *l)
{
    buf_reset(&l->items);
    buf_reset(&l->text);
}

int64_t logprob_count_chars(wire_string text)
{
    int64_t n = 0;
    for (size_t i = 0; i < text.len; i++) {
        n += ((unsigned char)text.data[i] & 0xc0u) != 0x80u; /* not a continuation byte */
    }
    return n;
}

static status add_item(logprob_list *l, wire_string text, double logprob, uint32_t n_top, bool known)
{
    const logprob_item item = {.logprob = logprob > LOGPROB_NEVER ? logprob : LOGPROB_NEVER,
                               .offset = l->next_offset,
                               .text_at = l->text.len,
                               .text_len = (uint32_t)text.len,
                               .n_top = n_top,
                               .known = known};
    status st = buf_append(&l->text, text.data, text.len);
    st = st == ST_OK ? buf_append_char(&l->text, 0) : st; /* so that a text can be a key */
    return st == ST_OK ? buf_append(&l->items, &item, sizeof item) : st;
}

status logprob_list_add(logprob_list *l, const frame_logprob *p)
{
    size_t n_items = l->items.len, n_text = l->text.len;
    status st = add_item(l, p->text, p->logprob, (uint32_t)p->n_top, true);
    for (size_t i = 0; st == ST_OK && i < p->n_top; i++) {
        st = add_item(l, p->top[i].text, p->top[i].logprob, 0, true);
    }
    if (st != ST_OK) {
        buf_truncate(&l->items, n_items);
        buf_truncate(&l->text, n_text);
        return st;
    }
    l->next_offset += logprob_count_chars(p->text);
    return ST_OK;
}

status logprob_list_add_first(logprob_list *l, wire_string text)
{
    size_t n_text = l->text.len;
    status st = add_item(l, text, 0, 0, false);
    if (st != ST_OK) {
        buf_truncate(&l->text, n_text);
        return st;
    }
    l->next_offset += logprob_count_chars(text);
    return ST_OK;
}

static size_t n_items(const logprob_list *l)
{
    return l->items.len / sizeof(logprob_item);
}

static logprob_item item_at(const logprob_list *l, size_t i)
{
    logprob_item item;
    memcpy(&item, l->items.data + i * sizeof item, sizeof item);
    return item;
}

static const char *text_of(const logprob_list *l, const logprob_item *item)
{
    return buf_str(&l->text) + item->text_at;
}

/*
 * Legacy.
 */
#define SHOWN_BYTES 256 /* of a token that is no valid text */

typedef struct legacy_name {
    char shown[4 * SHOWN_BYTES + 8];
} legacy_name;

/* A U+0000 is shown as a byte too: many readers take no such key. */
static const char *name_of(const logprob_list *l, const logprob_item *item, legacy_name *out)
{
    const char *text = text_of(l, item);
    if (utf8_valid(text, item->text_len, NULL) && !memchr(text, 0, item->text_len)) {
        return text;
    }
    size_t n = (size_t)snprintf(out->shown, sizeof out->shown, "bytes:");
    for (size_t i = 0; i < item->text_len && i < SHOWN_BYTES; i++) {
        n += (size_t)snprintf(out->shown + n, sizeof out->shown - n, "\\x%02x", (unsigned char)text[i]);
    }
    return out->shown;
}

static bool same_text(const logprob_list *l, const logprob_item *a, const logprob_item *b)
{
    return a->text_len == b->text_len && memcmp(text_of(l, a), text_of(l, b), a->text_len) == 0;
}

/* The alternatives of the item at i, best first, and the item itself; two tokens may have one text: the better
 * one stays, as an object has no key twice. */
static void put_legacy_top(json_w *w, const logprob_list *l, size_t i)
{
    logprob_item chosen = item_at(l, i);
    json_w_obj_open(w);
    for (size_t k = 1; k <= chosen.n_top + 1u; k++) {
        logprob_item item = k <= chosen.n_top ? item_at(l, i + k) : chosen;
        bool seen = false;
        for (size_t before = 1; before < k && !seen; before++) {
            logprob_item other = item_at(l, i + before);
            seen = same_text(l, &item, &other);
        }
        if (!seen) {
            legacy_name name;
            json_w_key(w, name_of(l, &item, &name));
            json_w_f64(w, item.logprob);
        }
    }
    json_w_obj_close(w);
}

static void put_legacy_list(json_w *w, const logprob_list *l, const char *key,
                            void (*put)(json_w *w, const logprob_list *l, size_t i))
{
    json_w_key(w, key);
    json_w_arr_open(w);
    for (size_t i = 0; i < n_items(l); i += 1u + item_at(l, i).n_top) {
        put(w, l, i);
    }
    json_w_arr_close(w);
}

static void put_token(json_w *w, const logprob_list *l, size_t i)
{
    logprob_item item = item_at(l, i);
    legacy_name name;
    json_w_cstr(w, name_of(l, &item, &name));
}

static void put_logprob(json_w *w, const logprob_list *l, size_t i)
{
    logprob_item item = item_at(l, i);
    if (item.known) {
        json_w_f64(w, item.logprob);
    } else {
        json_w_null(w);
    }
}

static void put_top(json_w *w, const logprob_list *l, size_t i)
{
    if (item_at(l, i).known) {
        put_legacy_top(w, l, i);
    } else {
        json_w_null(w);
    }
}

static void put_offset(json_w *w, const logprob_list *l, size_t i)
{
    int64_t offset = item_at(l, i).offset;
    json_w_i64(w, offset > 0 ? offset : 0);
}

void logprob_put_legacy(json_w *w, const logprob_list *l)
{
    json_w_obj_open(w);
    put_legacy_list(w, l, "tokens", put_token);
    put_legacy_list(w, l, "token_logprobs", put_logprob);
    put_legacy_list(w, l, "top_logprobs", put_top);
    put_legacy_list(w, l, "text_offset", put_offset);
    json_w_obj_close(w);
}

/*
 * Chat.
 */
static void put_chat_members(json_w *w, const logprob_list *l, const logprob_item *item)
{
    const char *text = text_of(l, item);
    json_w_key(w, "token");
    json_w_str(w, text, item->text_len);
    json_w_key(w, "logprob");
    json_w_f64(w, item->logprob);
    json_w_key(w, "bytes");
    json_w_arr_open(w);
    for (size_t i = 0; i < item->text_len; i++) {
        json_w_i64(w, (unsigned char)text[i]);
    }
    json_w_arr_close(w);
}

void logprob_put_chat(json_w *w, const logprob_list *l)
{
    json_w_obj_open(w);
    json_w_key(w, "content");
    json_w_arr_open(w);
    for (size_t i = 0; i < n_items(l);) {
        logprob_item item = item_at(l, i++);
        json_w_obj_open(w);
        put_chat_members(w, l, &item);
        json_w_key(w, "top_logprobs");
        json_w_arr_open(w);
        for (uint32_t k = 0; k < item.n_top; k++) {
            logprob_item top = item_at(l, i++);
            json_w_obj_open(w);
            put_chat_members(w, l, &top);
            json_w_obj_close(w);
        }
        json_w_arr_close(w);
        json_w_obj_close(w);
    }
    json_w_arr_close(w);
    json_w_key(w, "refusal");
    json_w_null(w);
    json_w_obj_close(w);
}
