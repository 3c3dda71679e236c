/*
 * Templates under any bytes, within small limits: compiling and rendering never crash, and what is rendered is
 * valid UTF-8 whose ranges are sorted, apart and inside it. Rendering twice gives the same.
 */
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "text/jinja.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_ranges(const jinja_range *r, size_t n, size_t len)
{
    for (size_t i = 0; i < n; i++) {
        if (r[i].from >= r[i].to || r[i].to > len || (i > 0 && r[i].from <= r[i - 1].to)) {
            abort();
        }
    }
}

static const char messages[] =
    "[{\"role\":\"system\",\"content\":\"be "
    "\\u00e9\"},{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"<|im_end|>\"}]},"
    "{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":{"
    "\"a\":[1,2.5,true]}}}]}]";

static status render(const jinja_template *t, const json *v, jinja_output *out, err *e)
{
    const jinja_var vars[] = {
        {.name = "messages", .value = v},
        {.name = "tools", .value = v},
        {.name = "bos_token", .text = "<s>", .text_len = 3, .trusted = true},
        {.name = "add_generation_prompt", .value = NULL},
    };
    const jinja_options o = {.max_steps = 20000, .max_bytes = 4 << 20, .max_depth = 300};
    return jinja_render(t, vars, sizeof vars / sizeof vars[0], &o, out, e);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    jinja_template *t = NULL;
    jinja_output one = {0}, two = {0};
    json_doc *d = NULL;
    err e;
    status st = jinja_compile((const char *)data, size, &t, &e);
    if (st != ST_OK) {
        if (st != ST_TEMPLATE || t) {
            abort();
        }
        return 0;
    }
    if (json_parse(messages, strlen(messages), JSON_MAX_DEPTH, &d, &e) != ST_OK) {
        abort();
    }
    st = render(t, json_root(d), &one, &e);
    if (st != render(t, json_root(d), &two, &e) || one.text.len != two.text.len ||
        memcmp(buf_str(&one.text), buf_str(&two.text), one.text.len) != 0) {
        abort();
    }
    if (st == ST_OK) {
        if (!utf8_valid(buf_str(&one.text), one.text.len, NULL)) {
            abort();
        }
        check_ranges(one.plain, one.n_plain, one.text.len);
        check_ranges(one.generated, one.n_generated, one.text.len);
    } else if (st != ST_TEMPLATE || one.text.len != 0) {
        abort();
    }
    jinja_output_release(&one);
    jinja_output_release(&two);
    json_doc_free(d);
    jinja_free(t);
    return 0;
}
