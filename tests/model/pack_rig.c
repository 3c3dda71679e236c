#include "model/pack_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "kern/pack.h"

void pack_rig_open(pack_rig *r, const char *path, size_t threads)
{
    gguf_files *files = NULL;
    err e = {0};
    memset(r, 0, sizeof *r);
    r->kern = *kern_table_of(KERN_REF);
    for (uint32_t i = 0; i < GGUF_TYPE_COUNT; i++) {
        size_t values = gguf_type_info_of(i).block_values;
        r->kern.wants_packed[i] = values > 0 && kern_packed_panel_bytes((gguf_type)i, values) > 0;
    }
    r->key.types = pack_key_types(&r->kern);
    arena_init(&r->mem, 0);
    if (gguf_files_open(path, &files, &e) != ST_OK || gguf_files_identity(files, r->key.source) != ST_OK ||
        gguf_files_parse_take(files, &r->file, &e) != ST_OK || hparams_read(r->file, &r->hp, &e) != ST_OK ||
        weights_load(r->file, &r->kern, &r->hp, &r->mem, &r->w, &e) != ST_OK ||
        pack_plan_make(r->file, &r->w, r->hp.shape.n_layers, &r->kern, &r->mem, &r->plan, &e) != ST_OK ||
        pool_new(threads, false, &r->p, &e) != ST_OK) {
        fail_msg("pack_rig: %s", e.msg);
    }
}

void pack_rig_close(pack_rig *r)
{
    pool_free(r->p);
    arena_release(&r->mem);
    gguf_close(r->file);
}

unsigned char *pack_rig_image(const pack_rig *r)
{
    unsigned char *image = mem_calloc((size_t)r->plan.image_bytes, 1);
    assert_non_null(image);
    for (size_t i = 0; i < r->plan.n_items; i++) {
        const pack_item *item = &r->plan.items[i];
        kern_pack(item->w, 0, (item->w->n + KERN_PANEL - 1) / KERN_PANEL, image + item->offset);
    }
    return image;
}
