#include "text/aho.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

/*
 * Nodes are numbered breadth first, so the children of one lie side by side, ascending by label:
 *   node   root | depth 1 ... | depth 2 ...
 *   label  -      a b z         a c . z
 */
typedef struct node {
    int32_t first_child;
    int32_t fail;    /* the longest proper suffix that is a node */
    int32_t own;     /* string that ends exactly here, or AHO_NONE */
    int32_t shorter; /* nearest node along fail that is a string, or AHO_NONE */
    uint32_t depth;
    uint16_t n_children;
} node;

struct aho {
    node *nodes;          /* owned */
    unsigned char *label; /* owned, [n_nodes]: last byte of each node */
    int32_t root_to[256]; /* the root's branch for each byte, itself where there is none */
};

typedef struct entry { /* a string, and where it stood */
    aho_string s;
    size_t index;
} entry;

typedef struct span { /* the sorted strings below a node, while building */
    uint32_t lo, hi;
} span;

static int entry_cmp(const void *pa, const void *pb)
{
    const entry *a = pa, *b = pb;
    size_t n = a->s.len < b->s.len ? a->s.len : b->s.len;
    int c = memcmp(a->s.data, b->s.data, n);
    if (c == 0) {
        c = (a->s.len > b->s.len) - (a->s.len < b->s.len);
    }
    return c ? c : (a->index > b->index) - (a->index < b->index);
}

static int32_t child(const aho *a, int32_t state, unsigned char byte)
{
    const node *n = &a->nodes[state];
    int32_t lo = n->first_child, hi = n->first_child + n->n_children;
    while (lo < hi) {
        int32_t mid = lo + (hi - lo) / 2;
        if (a->label[mid] == byte) {
            return mid;
        }
        if (a->label[mid] < byte) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    return AHO_NONE;
}

int32_t aho_step(const aho *a, int32_t state, unsigned char byte)
{
    while (state != AHO_ROOT) {
        int32_t c = child(a, state, byte);
        if (c != AHO_NONE) {
            return c;
        }
        state = a->nodes[state].fail;
    }
    return a->root_to[byte];
}

size_t aho_depth(const aho *a, int32_t state)
{
    return a->nodes[state].depth;
}

int32_t aho_hit(const aho *a, int32_t state)
{
    return a->nodes[state].own != AHO_NONE ? state : a->nodes[state].shorter;
}

int32_t aho_hit_shorter(const aho *a, int32_t hit)
{
    return a->nodes[hit].shorter;
}

size_t aho_hit_string(const aho *a, int32_t hit)
{
    return (size_t)a->nodes[hit].own;
}

/* Fills node c, a child of parent by byte; every node of less depth, and its children, exist already. */
static void node_link(aho *a, int32_t c, int32_t parent, unsigned char byte)
{
    node *n = &a->nodes[c];
    a->label[c] = byte;
    n->depth = a->nodes[parent].depth + 1;
    if (parent == AHO_ROOT) {
        n->fail = AHO_ROOT;
        a->root_to[byte] = c;
    } else {
        n->fail = aho_step(a, a->nodes[parent].fail, byte);
    }
    n->shorter = aho_hit(a, n->fail);
}

/* strings: sorted; a node is a run of them that agree in its depth bytes, the one that ends there first. */
static void build(aho *a, const entry *strings, span *spans, uint32_t n)
{
    int32_t n_nodes = 1;
    a->nodes[AHO_ROOT] = (node){.own = AHO_NONE, .shorter = AHO_NONE};
    spans[AHO_ROOT] = (span){0, n};
    for (int32_t p = 0; p < n_nodes; p++) {
        size_t d = a->nodes[p].depth;
        uint32_t i = spans[p].lo;
        while (i < spans[p].hi && strings[i].s.len == d) {
            i++;
        }
        a->nodes[p].first_child = n_nodes;
        while (i < spans[p].hi) {
            char byte = strings[i].s.data[d];
            uint32_t lo = i++;
            while (i < spans[p].hi && strings[i].s.data[d] == byte) {
                i++;
            }
            int32_t c = n_nodes++;
            spans[c] = (span){lo, i};
            a->nodes[c] = (node){.own = strings[lo].s.len == d + 1 ? (int32_t)strings[lo].index : AHO_NONE};
            a->nodes[p].n_children++;
            node_link(a, c, p, (unsigned char)byte);
        }
    }
}

status aho_new(const aho_string *strings, size_t n, aho **out)
{
    status st = ST_NOMEM;
    size_t total = 1; /* the root */
    uint32_t n_used = 0;
    for (size_t i = 0; i < n; i++) {
        if (!size_add(total, strings[i].len, &total)) {
            return ST_NOMEM;
        }
    }
    if (total > INT32_MAX || n > INT32_MAX) {
        return ST_NOMEM;
    }
    aho *a = mem_calloc(1, sizeof *a);
    entry *sorted = mem_alloc_array(n, sizeof *sorted);
    span *spans = mem_alloc_array(total, sizeof *spans);
    if (!a || !sorted || !spans) {
        goto out;
    }
    a->nodes = mem_alloc_array(total, sizeof *a->nodes);
    a->label = mem_calloc(total, 1);
    if (!a->nodes || !a->label) {
        goto out;
    }
    for (size_t i = 0; i < n; i++) {
        if (strings[i].len > 0) {
            sorted[n_used++] = (entry){strings[i], i};
        }
    }
    qsort(sorted, n_used, sizeof *sorted, entry_cmp);
    build(a, sorted, spans, n_used);
    *out = a;
    a = NULL;
    st = ST_OK;
out:
    mem_free(spans);
    mem_free(sorted);
    aho_free(a);
    return st;
}

void aho_free(aho *a)
{
    if (a) {
        mem_free(a->label);
        mem_free(a->nodes);
        mem_free(a);
    }
}
