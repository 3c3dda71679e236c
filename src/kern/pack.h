/*
 * pack: weight matrices as the x86 and ARM products stream them. KERN_PANEL outputs (columns of a panel) lie side
 * by side and their values follow each other along k, so that one forward stream of bytes feeds one vector lane
 * per output. One layout serves all instruction sets; the units are in kern/pack_units.h. Codes, integer scales and
 * float scales keep their values exactly: a packed product has the bits of the unpacked one.
 *
 *     packed = panels, panel = units along k; outputs past n are zero columns
 *
 * Pure functions, any thread; panels are independent.
 */
#ifndef HEARTH_KERN_PACK_H
#define HEARTH_KERN_PACK_H

#include <stddef.h>

#include "kern/kern.h"

/* Part of the name of whatever keeps packed weights; rises with any change of pack_units.h or of what kern_pack
 * writes. */
#define KERN_PACK_VERSION 1

/* Bytes of one panel of k inputs; 0 if the type has no packed form, or on overflow. k is a whole number of the
 * type's blocks. */
size_t kern_packed_panel_bytes(gguf_type type, size_t k);
/* Bytes of all ceil(n / KERN_PANEL) panels; 0 likewise. */
size_t kern_packed_bytes(gguf_type type, size_t n, size_t k);
/* Panels [p0, p1) of w->data to out, which is where panel p0 begins. */
void kern_pack(const kern_matrix *w, size_t p0, size_t p1, void *out);

#endif
