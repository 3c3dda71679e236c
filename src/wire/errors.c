#include "wire/errors.h"

#include <string.h>

typedef struct row {
    status code;
    int http;
    const char *name;
    const char *fields[WIRE_ERROR_EXTRA_FIELDS];
} row;

static const row rows[] = {
#define X(status, name, http, field_1, field_2) {status, http, name, {field_1, field_2}},
    WIRE_ERROR_LIST(X)
#undef X
};

#define N_ROWS (sizeof rows / sizeof rows[0])

/* The row of st; the last one (`internal`) for what is not in the list. */
static const row *find(status st)
{
    for (size_t i = 0; i < N_ROWS; i++) {
        if (rows[i].code == st) {
            return &rows[i];
        }
    }
    return &rows[N_ROWS - 1];
}

status wire_error_public(status st)
{
    return find(st)->code;
}

const char *wire_error_name(status st)
{
    return find(st)->name;
}

int wire_error_http(status st)
{
    return find(st)->http;
}

const char *wire_error_field(status st, size_t i)
{
    return i < WIRE_ERROR_EXTRA_FIELDS ? find(st)->fields[i] : "";
}

bool wire_error_from_name(const char *name, size_t len, status *out)
{
    for (size_t i = 0; i < N_ROWS; i++) {
        if (strlen(rows[i].name) == len && memcmp(rows[i].name, name, len) == 0) {
            *out = rows[i].code;
            return true;
        }
    }
    return false;
}
