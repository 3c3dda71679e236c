#include "serve/journal_record.h"

#include <string.h>

#include "base/le.h"
#include "base/mem.h"

#define BODY_HEAD 48u

static const char magic[8] = {'H', 'E', 'A', 'R', 'T', 'H', 'J', '1'};

/* The machine is little-endian (base/le.h). */
#define PUT(at, value)                        \
    do {                                      \
        const __typeof__(value) v_ = (value); \
        memcpy((at), &v_, sizeof v_);         \
    } while (0)

void journal_segment_put(uint64_t number, uint8_t head[JOURNAL_SEGMENT_HEAD])
{
    memcpy(head, magic, sizeof magic);
    PUT(head + sizeof magic, number);
}

bool journal_segment_is_foreign(const uint8_t head[JOURNAL_SEGMENT_HEAD])
{
    size_t n = sizeof magic - 1;
    return memcmp(head, magic, n) == 0 && head[n] != (uint8_t)magic[n] && head[n] >= '0' && head[n] <= '9';
}

bool journal_segment_check(uint64_t number, const uint8_t head[JOURNAL_SEGMENT_HEAD])
{
    return memcmp(head, magic, sizeof magic) == 0 && le64_get(head + sizeof magic) == number;
}

size_t journal_record_size(size_t owner_len, size_t name_len, size_t text_len)
{
    if (owner_len > JOURNAL_MAX_OWNER || name_len > JOURNAL_MAX_NAME ||
        text_len > JOURNAL_MAX_BODY - BODY_HEAD - JOURNAL_MAX_OWNER - JOURNAL_MAX_NAME) {
        return 0;
    }
    return JOURNAL_RECORD_HEAD + BODY_HEAD + owner_len + name_len + text_len;
}

status journal_record_put(buf *out, const journal_record *r)
{
    size_t n = journal_record_size(r->owner_len, r->name_len, r->text_len);
    if (n == 0) {
        return ST_CAPACITY;
    }
    if (buf_reserve(out, n) != ST_OK) {
        return ST_NOMEM;
    }
    uint8_t *head = (uint8_t *)out->data + out->len, *body = head + JOURNAL_RECORD_HEAD;
    size_t n_body = n - JOURNAL_RECORD_HEAD;
    PUT(body, r->created_ms);
    memcpy(body + 8, r->digest, sizeof r->digest);
    PUT(body + 40, r->http_status);
    PUT(body + 44, (uint16_t)r->owner_len);
    PUT(body + 46, (uint16_t)r->name_len);
    const struct {
        const char *data;
        size_t len;
    } parts[] = {{r->owner, r->owner_len}, {r->name, r->name_len}, {r->text, r->text_len}};
    size_t at = BODY_HEAD;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        if (parts[i].len > 0) {
            memcpy(body + at, parts[i].data, parts[i].len);
        }
        at += parts[i].len;
    }
    PUT(head, (uint32_t)r->kind);
    PUT(head + 4, (uint32_t)n_body);
    PUT(head + 8, r->serial);
    PUT(head + 16, hash64(body, n_body));
    PUT(head + 24, hash64(head, 24));
    out->len += n;
    out->data[out->len] = '\0';
    return ST_OK;
}

bool journal_head_get(const uint8_t head[JOURNAL_RECORD_HEAD], size_t *n_body)
{
    uint32_t kind = le32_get(head), n = le32_get(head + 4);
    if (le64_get(head + 24) != hash64(head, 24) || kind < JOURNAL_ASKED || kind > JOURNAL_DROPPED ||
        n < BODY_HEAD || n > JOURNAL_MAX_BODY) {
        return false;
    }
    *n_body = n;
    return true;
}

bool journal_record_get(const uint8_t head[JOURNAL_RECORD_HEAD], const char *body, size_t n_body,
                        journal_record *out)
{
    size_t want;
    if (!journal_head_get(head, &want) || want != n_body || le64_get(head + 16) != hash64(body, n_body)) {
        return false;
    }
    size_t owner_len = le16_get(body + 44), name_len = le16_get(body + 46);
    if (owner_len > JOURNAL_MAX_OWNER || name_len > JOURNAL_MAX_NAME ||
        owner_len + name_len > n_body - BODY_HEAD) {
        return false;
    }
    *out = (journal_record){.kind = (journal_kind)le32_get(head),
                            .serial = le64_get(head + 8),
                            .created_ms = (int64_t)le64_get(body),
                            .http_status = (int32_t)le32_get(body + 40),
                            .owner = body + BODY_HEAD,
                            .owner_len = owner_len,
                            .name = body + BODY_HEAD + owner_len,
                            .name_len = name_len,
                            .text = body + BODY_HEAD + owner_len + name_len,
                            .text_len = n_body - BODY_HEAD - owner_len - name_len};
    memcpy(out->digest, body + 8, sizeof out->digest);
    return true;
}
