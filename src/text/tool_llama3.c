/*
 * Llama 3, two forms; see tool_python_tag.c:
 *
 *     {"name": "f", "parameters": {...}}; {"name": "g", "parameters": {...}}
 *     <|python_tag|>...
 */
#include "text/reply_parser_int.h"

static const char *const openers[] = {"{", "<|python_tag|>", NULL};

static reply_step llama3_open(reply_parser *p, size_t opener)
{
    p->behind_tag = false;
    if (opener == 0) {
        return bare_json_begin(p);
    }
    python_tag_begin(p);
    return STEP_MORE;
}

const reply_family tool_llama3 = {openers, false, llama3_open, python_tag_step, python_tag_end};
