#include "model/edit_model.h"

#include <string.h>

#include "gguf/reader.h"
#include "gguf/writer.h"

static const unsigned char zeros[1 << 20];

static const model_edit *edit_of(const model_edit *edits, size_t n, gguf_str name)
{
    for (size_t i = 0; i < n; i++) {
        if (edits[i].kind != EDIT_NONE && strlen(edits[i].name) == name.len &&
            memcmp(edits[i].name, name.data, name.len) == 0) {
            return &edits[i];
        }
    }
    return NULL;
}

/* What the edit puts in place of, or beside, what the file has. */
static status put(gguf_writer *w, const model_edit *ed, err *e)
{
    switch (ed->kind) {
    case EDIT_NONE:
    case EDIT_DROP:
        return ST_OK;
    case EDIT_U32:
        return gguf_writer_u32(w, ed->name, (uint32_t)ed->number);
    case EDIT_F32:
        return gguf_writer_f32(w, ed->name, (float)ed->number);
    case EDIT_STR:
        return gguf_writer_str(w, ed->name, ed->text, strlen(ed->text));
    case EDIT_ARRAY:
        return gguf_writer_array(w, ed->name, GGUF_I32, ed->list, ed->n_list);
    case EDIT_TENSOR:
        return gguf_writer_tensor(w, ed->name, ed->type, ed->dims, ed->dims[1] ? 2 : 1,
                                  ed->data ? ed->data : zeros, e);
    }
    return ST_INTERNAL;
}

static status copy_rest(gguf_writer *w, const gguf_file *f, const model_edit *edits, size_t n, err *e)
{
    status st = ST_OK;
    for (size_t i = 0; i < gguf_n_kv(f) && st == ST_OK; i++) {
        const gguf_kv *kv = gguf_kv_at(f, i);
        st = edit_of(edits, n, kv->key) ? ST_OK : gguf_writer_copy_kv(w, kv);
    }
    for (size_t i = 0; i < gguf_n_tensors(f) && st == ST_OK; i++) {
        const gguf_tensor *t = gguf_tensor_at(f, i);
        char name[GGUF_MAX_TENSOR_NAME_BYTES + 1];
        if (edit_of(edits, n, t->name)) {
            continue;
        }
        memcpy(name, t->name.data, t->name.len);
        name[t->name.len] = '\0';
        st = gguf_writer_tensor(w, name, t->type, t->dims, t->n_dims, t->data, e);
    }
    return st;
}

status edit_model(const char *in, const char *out, const model_edit *edits, size_t n_edits, err *e)
{
    gguf_file *f = NULL;
    gguf_writer *w = NULL;
    status st = gguf_open(in, &f, e);
    if (st == ST_OK) {
        st = gguf_writer_new(&w);
    }
    if (st == ST_OK) {
        st = copy_rest(w, f, edits, n_edits, e);
    }
    for (size_t i = 0; i < n_edits && st == ST_OK; i++) {
        st = put(w, &edits[i], e);
    }
    if (st == ST_OK) {
        st = gguf_writer_finish(w, out, e);
    }
    gguf_writer_free(w);
    gguf_close(f);
    return st;
}
