/*
 * journal_record: how the journal's records stand in a file. Pure functions, any thread.
 *
 * A journal is a folder of segments, named by their numbers (16 hexadecimal digits and ".seg"); each is
 *    0   8  "HEARTHJ1"
 *    8   8  its number
 *   16      records, one after the other, without gaps
 * and a record (all numbers little-endian) is
 *    0   4  kind
 *    4   4  n, bytes of the body
 *    8   8  serial: which request it is about; later requests have larger ones
 *   16   8  xxh3 of the body
 *   24   8  xxh3 of bytes 0 … 23
 *   32   n  the body:
 *             0   8  created, ms since 1970
 *             8  32  digest of what was asked
 *            40   4  HTTP status of the answer; 0 where there is none
 *            44   2  a, bytes of the owner
 *            46   2  b, bytes of the name
 *            48      owner, name, and to the end of the body the text
 *
 * A head with its own checksum is what makes a bad body one lost record and not the end of the segment.
 */
#ifndef HEARTH_SERVE_JOURNAL_RECORD_H
#define HEARTH_SERVE_JOURNAL_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/hash.h"
#include "base/status.h"

#define JOURNAL_SEGMENT_HEAD 16u
#define JOURNAL_RECORD_HEAD  32u
#define JOURNAL_MAX_OWNER    255u
#define JOURNAL_MAX_NAME     255u
#define JOURNAL_MAX_BODY     ((uint32_t)64 << 20)

typedef enum journal_kind {
    JOURNAL_ASKED = 1, /* text: whatever the asker needs to begin again */
    JOURNAL_BEGUN,     /* begun again after a restart */
    JOURNAL_ANSWERED,  /* text: the answer's body */
    JOURNAL_DROPPED    /* it will have no answer here: its name is free */
} journal_kind;

typedef struct journal_record { /* strings are borrowed */
    journal_kind kind;
    uint64_t serial;
    int64_t created_ms;
    uint8_t digest[SHA256_BYTES];
    int32_t http_status;
    const char *owner, *name, *text;
    size_t owner_len, name_len, text_len;
} journal_record;

void journal_segment_put(uint64_t number, uint8_t head[JOURNAL_SEGMENT_HEAD]);
bool journal_segment_is_foreign(const uint8_t head[JOURNAL_SEGMENT_HEAD]); /* of another version */
bool journal_segment_check(uint64_t number, const uint8_t head[JOURNAL_SEGMENT_HEAD]);

/* Bytes that it takes; 0 = more than fit into one. */
size_t journal_record_size(size_t owner_len, size_t name_len, size_t text_len);
/* Appends it. ST_NOMEM, ST_CAPACITY (too large): out is as it was. */
status journal_record_put(buf *out, const journal_record *r);
/* Bytes of the body that follows a head. False: this is none, so that nothing can be said of what comes after it. */
bool journal_head_get(const uint8_t head[JOURNAL_RECORD_HEAD], size_t *n_body);
/* False: the body is not the one that was written. */
bool journal_record_get(const uint8_t head[JOURNAL_RECORD_HEAD], const char *body, size_t n_body,
                        journal_record *out);

#endif
