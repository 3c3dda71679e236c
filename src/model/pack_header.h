/*
 * pack_header: the first bytes of a packed file, which say whose image follows and where each matrix lies in it.
 * Little-endian.
 *
 *     0   8   "HEARTHPK"
 *     8   4   1, the version of this table
 *    12   4   KERN_PACK_VERSION
 *    16   4   NUMERICS_VERSION
 *    20   4   n, matrices in the list
 *    24   8   h, bytes of the whole header: a multiple of PACK_HEADER_ALIGN
 *    32   8   bytes of the whole file: h + image
 *    40   8   bit set of the types that are packed (bit = GGUF type)
 *    48  32   SHA-256 of what identifies the model's files (gguf_files_identity)
 *    80  32   SHA-256 of the model's bytes
 *   112   8   XXH3 of bytes 0 … 127, with the XXH3 of bytes 128 … h - 1 in this place
 *   120   8   zero
 *   128  48n  matrices: place in the image, bytes, outputs n, inputs k, type, number of the matrix (8 bytes each)
 *             zeros up to h
 *     h       the image (pack_plan.h)
 *
 * A file is written image first; as long as the header is not there, its first bytes are zeros and it is nobody's.
 * What a header says is compared with what a plan says; nothing is ever read at a place that it names.
 *
 * Pure functions.
 */
#ifndef HEARTH_MODEL_PACK_HEADER_H
#define HEARTH_MODEL_PACK_HEADER_H

#include <stddef.h>
#include <stdint.h>

#include "base/hash.h"
#include "model/pack_plan.h"

#define PACK_HEADER_ALIGN 4096u
#define PACK_HEADER_FIXED 128u
#define PACK_HEADER_MAX   (16u << 20)

/* Whose packed weights: known before a byte of the model is parsed. */
typedef struct pack_key {
    uint8_t source[SHA256_BYTES]; /* gguf_files_identity */
    uint64_t types;               /* bit set */
} pack_key;

uint64_t pack_key_types(const kern_table *kern);

uint64_t pack_header_bytes(const pack_plan *plan);
/* out has pack_header_bytes. */
void pack_header_make(const pack_plan *plan, const pack_key *key, const uint8_t digest[SHA256_BYTES],
                      unsigned char *out);

/* Bytes of the whole header if `fixed` may be the beginning of one, else 0. */
uint64_t pack_header_length(const unsigned char fixed[PACK_HEADER_FIXED]);
/* NULL, or what is wrong with a header of n_bytes at the beginning of a file of file_bytes (static text). */
const char *pack_header_fault(const unsigned char *header, uint64_t n_bytes, uint64_t file_bytes,
                              const pack_key *key);
/* The same for its list of matrices; the header is without fault otherwise. */
const char *pack_header_plan_fault(const unsigned char *header, const pack_plan *plan);
const uint8_t *pack_header_digest(const unsigned char *header);

#endif
