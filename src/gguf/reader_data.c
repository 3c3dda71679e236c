/* Where the data of one part's tensors lies: alignment, bounds, overlap. */
#include "base/mem.h"
#include "gguf/reader_int.h"

typedef struct extent {
    uint64_t offset;
    size_t tensor;
} extent;

static bool extent_before(extent a, extent b)
{
    return a.offset < b.offset;
}

static void heap_sink(extent *v, size_t i, size_t n)
{
    extent x = v[i];
    for (size_t child = 2 * i + 1; child < n; child = 2 * i + 1) {
        if (child + 1 < n && extent_before(v[child], v[child + 1])) {
            child++;
        }
        if (!extent_before(x, v[child])) {
            break;
        }
        v[i] = v[child];
        i = child;
    }
    v[i] = x;
}

/* Heap sort: n log n whatever the file says, no recursion and no memory of its own (libc's qsort has both).
 */
static void extents_sort(extent *v, size_t n)
{
    for (size_t i = n / 2; i-- > 0;) {
        heap_sink(v, i, n);
    }
    for (size_t last = n; last-- > 1;) {
        extent top = v[0];
        v[0] = v[last];
        v[last] = top;
        heap_sink(v, 0, last);
    }
}

/* The scalars inside a block start at multiples of their size: the largest power of two that divides a block,
 * at most 8, is enough for each of them (F32 4, F16 2, Q4_0 2, Q6_K 2, MXFP4 1). */
static uint64_t type_alignment(gguf_type type)
{
    uint64_t bytes = gguf_type_info_of((uint32_t)type).block_bytes;
    uint64_t low = bytes & (~bytes + 1);
    return low < 8 ? low : 8;
}

/* tensor->offset comes in as the file has it, relative to the data, and leaves as offset in the file. */
static status place_tensor(const gguf_part *part, size_t i, err *e)
{
    gguf_tensor *t = &part->tensors[i];
    uint64_t at = part->records[i];
    uint64_t start, end;

    if ((t->offset & (part->alignment - 1)) != 0) {
        return gguf_part_fail(part, e, at, "tensor", t->name,
                              "data offset %llu is not a multiple of the alignment %llu",
                              (unsigned long long)t->offset, (unsigned long long)part->alignment);
    }
    if (!u64_add(part->data_start, t->offset, &start) || !u64_add(start, t->n_bytes, &end) ||
        end > part->size) {
        return gguf_part_fail(
            part, e, at, "tensor", t->name,
            "its %llu bytes at data offset %llu (data starts at %llu) end after the file of %llu bytes",
            (unsigned long long)t->n_bytes, (unsigned long long)t->offset,
            (unsigned long long)part->data_start, (unsigned long long)part->size);
    }
    if ((start & (type_alignment(t->type) - 1)) != 0) {
        return gguf_part_fail(part, e, at, "tensor", t->name, "data at %llu is not aligned for type %s",
                              (unsigned long long)start, gguf_type_info_of((uint32_t)t->type).name);
    }
    t->offset = start;
    t->data = part->bytes + start;
    return ST_OK;
}

static status check_overlap(gguf_file *f, const gguf_part *part, err *e)
{
    size_t n = part->n_tensors;
    bool in_order = true;
    extent *v = arena_alloc_array(&f->mem, n, sizeof *v);
    if (!v) {
        return err_set(e, ST_NOMEM, NULL, "cannot check %zu tensors: out of memory", n);
    }
    for (size_t i = 0; i < n; i++) {
        v[i] = (extent){part->tensors[i].offset, i};
        in_order = in_order && (i == 0 || extent_before(v[i - 1], v[i]));
    }
    if (!in_order) {
        extents_sort(v, n);
    }
    for (size_t i = 1; i < n; i++) {
        const gguf_tensor *a = &part->tensors[v[i - 1].tensor];
        const gguf_tensor *b = &part->tensors[v[i].tensor];
        if (b->offset - a->offset < a->n_bytes) {
            return gguf_part_fail(part, e, part->records[v[i].tensor], "tensor", b->name,
                                  "its data at %llu overlaps tensor %.*s, which has %llu bytes at %llu",
                                  (unsigned long long)b->offset, (int)a->name.len, a->name.data,
                                  (unsigned long long)a->n_bytes, (unsigned long long)a->offset);
        }
    }
    return ST_OK;
}

status gguf_data_check(gguf_file *f, gguf_part *part, err *e)
{
    for (size_t i = 0; i < part->n_tensors; i++) {
        status st = place_tensor(part, i, e);
        if (st != ST_OK) {
            return st;
        }
    }
    return check_overlap(f, part, e);
}
