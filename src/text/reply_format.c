#include "text/reply_format.h"

#include <string.h>

#include "base/json.h"

static const char *const names[] = {
#define X(enumerator, name) [enumerator] = (name),
    REPLY_STYLES(X)
#undef X
};

static const char *const think_pairs[][2] = {
    {"<think>", "</think>"},           {"[THINK]", "[/THINK]"},
    {"<seed:think>", "</seed:think>"}, {"<|START_THINKING|>", "<|END_THINKING|>"},
    {"<thought>", "</thought>"},       {"<thinking>", "</thinking>"},
};

reply_format reply_format_of(reply_style style)
{
    reply_format f = {.style = style, .think_open = think_pairs[0][0], .think_close = think_pairs[0][1]};
    if (style == REPLY_MISTRAL) {
        f.think_open = think_pairs[1][0];
        f.think_close = think_pairs[1][1];
    } else if (style == REPLY_HARMONY) {
        f.think_open = "<|channel|>analysis<|message|>";
        f.think_close = "<|end|>";
    }
    return f;
}

static bool has(const char *text, size_t len, const char *word)
{
    return memmem(text, len, word, strlen(word)) != NULL;
}

/* In this order: a template of one style may spell a word of a later one. `also` may be NULL. */
static const struct {
    const char *word, *also;
    reply_style style;
} marks[] = {
    {"<|channel|>", "<|message|>", REPLY_HARMONY},
    {"<｜tool▁calls▁begin｜>", NULL, REPLY_DEEPSEEK},
    {"[TOOL_CALLS]", NULL, REPLY_MISTRAL},
    {">>>", "recipient", REPLY_FUNCTIONARY_V3_2},
    {">>>all", NULL, REPLY_FUNCTIONARY_V3_2},
    {"<function=", "<parameter=", REPLY_QWEN3_CODER},
    {"<function=", NULL, REPLY_FUNCTIONARY_V3_1},
    {"<arg_key>", NULL, REPLY_NONE}, /* GLM: <tool_call>, but another form in it */
    {"<tool_call>", NULL, REPLY_HERMES},
    {"<|python_tag|>", NULL, REPLY_LLAMA3_PYTHON_TAG},
    {"<|start_header_id|>", "\"parameters\"", REPLY_LLAMA3_JSON},
    {"<start_of_turn>", NULL, REPLY_GEMMA},
};

reply_format reply_format_detect(const char *template_text, size_t len)
{
    reply_style style = REPLY_NONE;
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
        if (has(template_text, len, marks[i].word) &&
            (!marks[i].also || has(template_text, len, marks[i].also))) {
            style = marks[i].style;
            break;
        }
    }
    reply_format f = reply_format_of(style);
    for (size_t i = 0; style != REPLY_HARMONY && i < sizeof think_pairs / sizeof *think_pairs; i++) {
        if (has(template_text, len, think_pairs[i][0]) || has(template_text, len, think_pairs[i][1])) {
            f.think_open = think_pairs[i][0];
            f.think_close = think_pairs[i][1];
            break;
        }
    }
    f.newer_form = (style == REPLY_MISTRAL && has(template_text, len, "[ARGS]")) ||
                   (style == REPLY_DEEPSEEK && !has(template_text, len, "```json"));
    return f;
}

bool reply_style_by_name(const char *name, reply_style *out)
{
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(names[i], name) == 0) {
            *out = (reply_style)i;
            return true;
        }
    }
    return false;
}

const char *reply_style_name(reply_style style)
{
    return names[style];
}

/* An opener is `before` alone, or before NAME after. */
typedef struct opener {
    const char *before_any; /* NULL: there is none */
    const char *before, *after;
    bool quoted; /* NAME stands in a JSON string */
} opener;

static opener opener_of(const reply_format *f)
{
    switch (f->style) {
    case REPLY_HERMES:
        return (opener){"<tool_call>\n", "<tool_call>\n{\"name\": ", ", \"arguments\": ", true};
    case REPLY_QWEN3_CODER:
        return (opener){"<tool_call>\n<function=", "<tool_call>\n<function=", ">\n", false};
    case REPLY_LLAMA3_JSON:
    case REPLY_LLAMA3_PYTHON_TAG:
        return (opener){"{\"name\": \"", "{\"name\": ", ", \"parameters\": ", true};
    case REPLY_MISTRAL:
        if (f->newer_form) {
            return (opener){"[TOOL_CALLS]", "[TOOL_CALLS]", "[ARGS]", false};
        }
        return (opener){"[TOOL_CALLS][{\"name\": \"", "[TOOL_CALLS][{\"name\": ", ", \"arguments\": ", true};
    case REPLY_DEEPSEEK:
        if (f->newer_form) {
            return (opener){"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>",
                            "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>", "<｜tool▁sep｜>", false};
        }
        return (opener){"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>",
                        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>", "\n```json\n",
                        false};
    case REPLY_HARMONY:
        return (opener){"<|channel|>commentary to=functions.", "<|channel|>commentary to=functions.",
                        " <|constrain|>json<|message|>", false};
    case REPLY_GEMMA:
        return (opener){"```tool_code\n", "```tool_code\n", "(", false};
    case REPLY_FUNCTIONARY_V3_2:
        return (opener){NULL, "", "\n", false};
    case REPLY_FUNCTIONARY_V3_1:
        return (opener){"<function=", "<function=", ">", false};
    default:
        return (opener){0};
    }
}

status reply_format_opener(const reply_format *f, const char *name, buf *out)
{
    opener o = opener_of(f);
    size_t before = out->len;
    status st = ST_OK;
    if (!name) {
        return o.before_any ? buf_append_str(out, o.before_any) : ST_OK;
    }
    if (!o.before) {
        return ST_OK;
    }
    st = buf_append_str(out, o.before);
    if (st == ST_OK && o.quoted) {
        json_w w;
        json_w_begin(&w, out);
        json_w_cstr(&w, name);
        st = json_w_end(&w);
    } else if (st == ST_OK) {
        st = buf_append_str(out, name);
    }
    if (st == ST_OK) {
        st = buf_append_str(out, o.after);
    }
    if (st != ST_OK) {
        buf_truncate(out, before);
    }
    return st;
}

const char *reply_format_reasoning_end(const reply_format *f)
{
    return f->style == REPLY_HARMONY ? "<|end|><|start|>assistant<|channel|>final<|message|>"
                                     : f->think_close;
}

bool reply_format_prompt_reasons(const reply_format *f, const char *prompt, size_t len)
{
    size_t n = strlen(f->think_open);
    while (len > 0 && strchr(" \t\r\n", prompt[len - 1]) && prompt[len - 1]) {
        len--;
    }
    return len >= n && memcmp(prompt + len - n, f->think_open, n) == 0;
}
