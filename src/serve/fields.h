/*
 * fields: the members of a request body, read one by one. Absent and null are the same in every API here.
 *
 * A reader returns false after it has explained the fault in *e (never NULL): ST_INVALID_FIELD with the name
 * and the value, ST_UNSUPPORTED for a name that is not known. Its output is untouched when the field is
 * absent. `path` is the name a fault is given: "stream_options.include_usage".
 *
 * Pure functions, any thread.
 */
#ifndef HEARTH_SERVE_FIELDS_H
#define HEARTH_SERVE_FIELDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/json.h"
#include "base/status.h"

#define FIELDS_MAX_DEPTH 64 /* of a body */

/* One JSON object or ST_BAD_REQUEST. */
status fields_parse(const char *body, size_t len, json_doc **out, err *e);
/* NULL if absent or null. */
const json *fields_get(const json *object, const char *name);
/* Whether v is this string. */
bool fields_is(const json *v, const char *want);
/* Always false: "PATH must be WANT, not VALUE". */
bool fields_refuse(err *e, const char *path, const json *v, const char *want);
bool fields_no_memory(err *e); /* always false */
/* Whether every member is one of the names, or null; prefix ("" or "hearth.") goes before the one that is not. */
bool fields_only(const json *object, const char *const *names, size_t n_names, const char *prefix, err *e);

bool fields_bool(const json *object, const char *path, bool *out, err *e);
/* min <= value <= max; want says so. */
bool fields_int(const json *object, const char *path, int64_t min, int64_t max, const char *want,
                int64_t *out, err *e);
bool fields_number(const json *object, const char *path, double min, double max, const char *want,
                   double *out, err *e);
/* The member's own name is what follows the last dot of path, in these and the above. */
bool fields_text(const json *object, const char *path, const char **out, size_t *len, err *e);

#endif
