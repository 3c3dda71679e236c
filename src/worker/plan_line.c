#include "worker/plan_line.h"

#include "base/json.h"

static void put_u64(json_w *w, const char *key, uint64_t value)
{
    json_w_key(w, key);
    json_w_u64(w, value);
}

static void put_text(json_w *w, const char *key, const char *value)
{
    json_w_key(w, key);
    json_w_cstr(w, value);
}

static void put_model(json_w *w, const instance_info *info)
{
    json_w_key(w, "model");
    json_w_obj_open(w);
    put_text(w, "name", info->name);
    put_text(w, "arch", info->arch);
    put_text(w, "quant", info->quant);
    put_u64(w, "params", info->params);
    put_u64(w, "file_bytes", info->file_bytes);
    put_u64(w, "context_length", (uint64_t)info->context_train);
    put_u64(w, "vocab_size", (uint64_t)info->n_vocab);
    json_w_obj_close(w);
}

static void put_weights(json_w *w, const memory_needs *n)
{
    json_w_key(w, "weights_bytes");
    json_w_obj_open(w);
    put_u64(w, "mapped", n->mapped_bytes);
    put_u64(w, "packed", n->packed_bytes);
    put_u64(w, "anonymous", n->anonymous_bytes);
    json_w_obj_close(w);
}

static void put_pages(json_w *w, const memory_plan *p)
{
    json_w_key(w, "kv");
    json_w_obj_open(w);
    put_u64(w, "page_bytes", p->needs.page_bytes);
    put_u64(w, "pages", p->pages);
    put_u64(w, "most_pages", p->most_pages);
    put_u64(w, "bytes", p->kv_bytes);
    put_u64(w, "copies_bytes", p->copies_bytes);
    put_u64(w, "context", (uint64_t)p->context);
    json_w_obj_close(w);
}

status plan_line_put(buf *out, const instance *model)
{
    const instance_info *info = instance_describe(model);
    size_t before = out->len;
    json_w w;
    json_w_begin(&w, out);
    json_w_obj_open(&w);
    json_w_key(&w, "plan");
    json_w_bool(&w, true);
    put_model(&w, info);
    put_text(&w, "kernels", info->kernels);
    put_u64(&w, "threads", info->threads);
    put_u64(&w, "max_sessions", info->plan.needs.lanes);
    put_weights(&w, &info->plan.needs);
    put_pages(&w, &info->plan);
    put_u64(&w, "scratch_bytes", info->plan.scratch_bytes);
    put_u64(&w, "total_bytes", info->plan.total_bytes);
    put_u64(&w, "limit_bytes", info->plan.limit_bytes);
    json_w_obj_close(&w);
    status st = json_w_end(&w);
    if (st == ST_OK) {
        st = buf_append_char(out, '\n');
    }
    if (st != ST_OK) {
        buf_truncate(out, before);
    }
    return st;
}
