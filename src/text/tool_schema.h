/*
 * tool_schema: what a reply's XML and Python forms must know of the tools: types, and the order of parameters.
 * `tools` is the request's array of definitions, {"type":"function","function":{"name","parameters"}} or flat;
 * anything of another shape is passed over. Pure functions, any thread.
 */
#ifndef HEARTH_TEXT_TOOL_SCHEMA_H
#define HEARTH_TEXT_TOOL_SCHEMA_H

#include <stdbool.h>
#include <stddef.h>

#include "base/json.h"

enum tool_types { /* bits */
                  TOOL_TYPE_STRING = 1,
                  TOOL_TYPE_NUMBER = 2, /* integer too */
                  TOOL_TYPE_BOOL = 4,
                  TOOL_TYPE_ARRAY = 8,
                  TOOL_TYPE_OBJECT = 16,
                  TOOL_TYPE_NULL = 32,
                  TOOL_TYPE_ANY = 63
};

/* What the schema of one parameter admits; a parameter that no schema declares is a string. */
unsigned tool_parameter_types(const json *tools, const char *name, size_t len, const char *param,
                              size_t param_len);
/* The name of the i-th parameter as declared (borrowed), or NULL. */
const char *tool_parameter_at(const json *tools, const char *name, size_t len, size_t i, size_t *param_len);
/* The bit of a value's type. */
unsigned tool_type_of(const json *v);

#endif
