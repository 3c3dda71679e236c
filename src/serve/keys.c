#include "serve/keys.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/utf8.h"

#define READ_BYTES 4096

typedef struct key_row {
    char name[KEYS_MAX_NAME + 1];
    uint8_t digest[SHA256_BYTES];
} key_row;

struct keys {
    key_row *rows; /* owned */
    size_t n_rows, cap;
};

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

static int nibble(char c)
{
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool read_digest(const char *s, size_t len, uint8_t out[SHA256_BYTES])
{
    if (len != SHA256_HEX_LEN) {
        return false;
    }
    for (size_t i = 0; i < SHA256_BYTES; i++) {
        int high = nibble(s[2 * i]), low = nibble(s[2 * i + 1]);
        if (high < 0 || low < 0) {
            return false;
        }
        out[i] = (uint8_t)(high * 16 + low);
    }
    return true;
}

static status add_row(keys *k, const key_row *row, size_t line_no, err *e)
{
    for (size_t i = 0; i < k->n_rows; i++) {
        if (strcmp(k->rows[i].name, row->name) == 0 ||
            memcmp(k->rows[i].digest, row->digest, SHA256_BYTES) == 0) {
            return err_set(e, ST_BAD_FORMAT, NULL, "line %zu has the name or the key of %s again", line_no,
                           k->rows[i].name);
        }
    }
    if (k->n_rows == KEYS_MAX_ROWS) {
        return err_set(e, ST_BAD_FORMAT, NULL, "line %zu is one too many: at most %d keys", line_no,
                       KEYS_MAX_ROWS);
    }
    if (k->n_rows == k->cap) {
        size_t cap = k->cap ? 2 * k->cap : 8;
        key_row *rows = mem_realloc(k->rows, cap * sizeof *rows);
        if (!rows) {
            return err_set(e, ST_NOMEM, NULL, "out of memory");
        }
        k->rows = rows;
        k->cap = cap;
    }
    k->rows[k->n_rows++] = *row;
    return ST_OK;
}

static status read_line(keys *k, const char *s, size_t len, size_t line_no, err *e)
{
    key_row row = {.name = ""};
    while (len > 0 && is_blank(*s)) {
        s++;
        len--;
    }
    while (len > 0 && is_blank(s[len - 1])) {
        len--;
    }
    if (len == 0 || *s == '#') {
        return ST_OK;
    }
    size_t name = 0;
    while (name < len && !is_blank(s[name])) {
        name++;
    }
    size_t at = name;
    while (at < len && is_blank(s[at])) {
        at++;
    }
    if (name > KEYS_MAX_NAME || !read_digest(s + at, len - at, row.digest)) {
        return err_set(e, ST_BAD_FORMAT, NULL,
                       "line %zu is not a name of at most %d bytes and the 64 hex digits of a SHA-256",
                       line_no, KEYS_MAX_NAME);
    }
    if (!utf8_valid(s, name, NULL)) { /* what is not would not come whole over the wire */
        return err_set(e, ST_BAD_FORMAT, NULL, "line %zu has a name that is not valid UTF-8", line_no);
    }
    memcpy(row.name, s, name);
    return add_row(k, &row, line_no, e);
}

status keys_parse(const char *text, size_t len, keys **out, err *e)
{
    status st = ST_OK;
    keys *k = mem_calloc(1, sizeof *k);
    if (!k) {
        return err_set(e, ST_NOMEM, NULL, "out of memory");
    }
    for (size_t line_no = 1; len > 0 && st == ST_OK; line_no++) {
        const char *end = memchr(text, '\n', len);
        size_t n = end ? (size_t)(end - text) : len;
        st = read_line(k, text, n, line_no, e);
        n += end != NULL;
        text += n;
        len -= n;
    }
    if (st == ST_OK && k->n_rows == 0) {
        st = err_set(e, ST_BAD_FORMAT, NULL, "there is no key in it");
    }
    if (st != ST_OK) {
        keys_free(k);
        return st;
    }
    *out = k;
    return ST_OK;
}

static status read_file(int fd, buf *text, const char *path, err *e)
{
    char piece[READ_BYTES];
    ssize_t n;
    while ((n = read(fd, piece, sizeof piece)) != 0) {
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return err_set(e, ST_IO, NULL, "cannot read %s: %s", path, strerror(errno));
        }
        if (text->len + (size_t)n > KEYS_MAX_FILE_BYTES) {
            return err_set(e, ST_BAD_FORMAT, NULL, "%s is longer than %zu bytes", path, KEYS_MAX_FILE_BYTES);
        }
        if (buf_append(text, piece, (size_t)n) != ST_OK) {
            return err_set(e, ST_NOMEM, NULL, "out of memory");
        }
    }
    return ST_OK;
}

status keys_open(const char *path, keys **out, err *e)
{
    buf text = {0};
    err why;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return err_set(e, ST_IO, NULL, "cannot open %s: %s", path, strerror(errno));
    }
    status st = read_file(fd, &text, path, e);
    close(fd);
    if (st == ST_OK) {
        st = keys_parse(buf_str(&text), text.len, out, &why);
        if (st != ST_OK) {
            err_set(e, st, NULL, "%s: %s", path, why.msg);
        }
    }
    buf_release(&text);
    return st;
}

void keys_free(keys *k)
{
    if (k) {
        mem_free(k->rows);
        mem_free(k);
    }
}

/* The token of a bearer header, or NULL. */
static const char *bearer(const char *authorization)
{
    static const char scheme[] = "Bearer ";
    if (!authorization || strncasecmp(authorization, scheme, sizeof scheme - 1) != 0) {
        return NULL;
    }
    authorization += sizeof scheme - 1;
    return authorization + strspn(authorization, " ");
}

bool keys_find(const keys *k, const char *authorization, const char *x_api_key, uint32_t *index)
{
    uint8_t digest[SHA256_BYTES];
    const char *key = bearer(authorization);
    uint32_t found = 0;
    key = key ? key : x_api_key;
    if (!key || sha256_once(key, strlen(key), digest) != ST_OK) {
        return false;
    }
    for (size_t i = 0; i < k->n_rows; i++) {
        uint32_t diff = 0;
        for (size_t b = 0; b < SHA256_BYTES; b++) {
            diff |= (uint32_t)(digest[b] ^ k->rows[i].digest[b]);
        }
        uint32_t same = (diff - 1u) >> 31; /* diff < 256: 1 if it is 0 */
        found |= (uint32_t)(i + 1) & (0u - same);
    }
    if (found == 0) {
        return false;
    }
    *index = found;
    return true;
}

bool keys_index(const keys *k, const char *name, size_t len, uint32_t *index)
{
    if (!k) {
        *index = KEYS_ANONYMOUS;
        return len == 0;
    }
    for (size_t i = 0; i < k->n_rows; i++) {
        if (strlen(k->rows[i].name) == len && memcmp(k->rows[i].name, name, len) == 0) {
            *index = (uint32_t)(i + 1);
            return true;
        }
    }
    return false;
}

const char *keys_name(const keys *k, uint32_t index)
{
    return k->rows[index - 1].name;
}

wire_string keys_namespace(const keys *k, uint32_t index)
{
    const char *name = k && index != KEYS_ANONYMOUS ? keys_name(k, index) : "";
    return (wire_string){name, strlen(name)};
}
