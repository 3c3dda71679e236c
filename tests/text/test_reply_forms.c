/*
 * Replies of every form against expected values written by hand from the rules of fixtures/toolcalls (MANIFEST,
 * 1-12) and reply_parser.h. Each is fed whole, byte by byte and in random pieces.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "reply_collect.h"

#define N_OF(array) (sizeof(array) / sizeof((array)[0]))
#define MAX_CALLS   4
#define BEGIN       "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>"
#define NEXT        "<｜tool▁call▁end｜><｜tool▁call▁begin｜>"
#define SEP         "<｜tool▁sep｜>"
#define END         "<｜tool▁call▁end｜><｜tool▁calls▁end｜>"

static const char tools_text[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"search\",\"parameters\":{\"type\":\"object\","
    "\"properties\":{"
    "\"query\":{\"type\":\"string\"},\"limit\":{\"type\":\"integer\"},\"safe\":{\"type\":\"boolean\"},"
    "\"tags\":{\"type\":\"array\"},\"filters\":{\"type\":\"object\"},\"after\":{\"type\":[\"string\","
    "\"null\"]},"
    "\"any\":{},\"one\":{\"anyOf\":[{\"type\":\"number\"},{\"type\":\"null\"}]},\"word\":{\"enum\":[\"a\","
    "\"b\"]}}}}},"
    "{\"name\":\"add\",\"parameters\":{\"properties\":{\"a\":{\"type\":\"number\"},\"b\":{\"type\":"
    "\"number\"}}}}]";

enum { OPEN = 1, CUT = 2, NO_CALLS = 4, INSIDE = 8 /* a call */, UNFINISHED = 16 /* something else */ };

static const struct row {
    reply_style style;
    unsigned flags;
    const char *text, *content, *reasoning;
    const char *calls[MAX_CALLS]; /* "name arguments" or "name#id arguments" */
    const char *name;             /* INSIDE: of the call that was cut */
} rows[] = {
    /* Content and reasoning (rules 1, 2, 7). */
    {REPLY_NONE, 0, " a  b \n", "a  b", ""},
    {REPLY_NONE, 0, " \n ", "", ""},
    {REPLY_NONE, 0, "<think>\n a\nb </think>\n\nc", "c", "a\nb"},
    {REPLY_NONE, 0, "a <think>b</think> c<think> </think>\n<think>d</think>", "a\nc", "b\nd"},
    {REPLY_NONE, 0, "<think>a <tool_call> <think> b</think>", "", "a <tool_call> <think> b"},
    {REPLY_NONE, 0, "<thin k> </think> <think", "<thin k> </think> <think", ""},
    {REPLY_NONE, UNFINISHED, "<think>a </thin", "", "a </thin"},
    {REPLY_NONE, OPEN, "a</think>b", "b", "a"},
    {REPLY_NONE, OPEN, "\n<think>\na</think>b", "b", "a"}, /* opened once more */
    {REPLY_NONE, OPEN, "a <think>b</think>", "", "a <think>b"},
    {REPLY_NONE, OPEN | UNFINISHED, "a", "", "a"},
    {REPLY_NONE, 0, "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>",
     "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>", ""},
    {REPLY_MISTRAL, 0, "[THINK]a[/THINK]b<think>", "b<think>", "a"},
    {REPLY_HERMES, NO_CALLS, "<think>h</think><tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>",
     "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>", "h"},

    /* Hermes. */
    {REPLY_HERMES,
     0,
     "a<tool_call> {\"name\": \"f\",\n\"arguments\": {\"x\" : [1, {}]} } </tool_call>b",
     "a\nb",
     "",
     {"f {\"x\" : [1, {}]}"}},
    {REPLY_HERMES,
     0,
     "<tool_call>{\"id\": \"c1\", \"name\": \"f\", \"arguments\": {}, \"type\": \"function\"}</tool_call>",
     "",
     "",
     {"f#c1 {}"}},
    {REPLY_HERMES,
     0,
     "<tool_call>{\"arguments\": {}, \"name\": \"\\u0066\", \"id\": null}</tool_call>",
     "",
     "",
     {"f {}"}},
    {REPLY_HERMES,
     0,
     "<tool_call>{\"name\": \"f\", \"note\": [{\"name\": 1}]}</tool_call>",
     "",
     "",
     {"f {}"}},
    {REPLY_HERMES,
     0,
     "<tool_call>{\"name\": \"f\", \"arguments\": {}}\n<tool_call>{\"name\": \"g\", \"arguments\": {}}",
     "",
     "",
     {"f {}", "g {}"}},
    {REPLY_HERMES,
     0,
     "<tool_call>{\"name\": \"f\", \"arguments\": \"{\\\"a\\\": \\u0031}\"}</tool_call>",
     "",
     "",
     {"f {\"a\": 1}"}},
    {REPLY_HERMES, 0, "<tool_call>{\"arguments\": \"{}\", \"name\": \"f\"}</tool_call>", "", "", {"f {}"}},
    {REPLY_HERMES, 0, "<tool_call>{\"name\": \"f\", \"arguments\": \"{} \"}</tool_call>",
     "<tool_call>{\"name\": \"f\", \"arguments\": \"{} \"}</tool_call>", ""},
    {REPLY_HERMES, 0, "<<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>>", "<\n>", "", {"f {}"}},
    {REPLY_HERMES, 0, "a\n\n<tool_call>\n{\"name\": 1}\n</tool_call>\n\nb",
     "a\n\n<tool_call>\n{\"name\": 1}\n</tool_call>\n\nb", ""},
    {REPLY_HERMES, 0, "<tool_call>{\"name\": \"f\", \"arguments\": []}</tool_call>",
     "<tool_call>{\"name\": \"f\", \"arguments\": []}</tool_call>", ""},
    {REPLY_HERMES, 0, "<tool_call>{\"name\": \"\", \"arguments\": {}}</tool_call>",
     "<tool_call>{\"name\": \"\", \"arguments\": {}}</tool_call>", ""},
    {REPLY_HERMES, 0, "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 'b'}}</tool_call>",
     "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 'b'}}</tool_call>", ""},
    {REPLY_HERMES, 0, "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"b\nc\"}}</tool_call>",
     "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"b\nc\"}}</tool_call>", ""},
    {REPLY_HERMES, 0, "<tool_call>{\"name\": \"f\", \"arguments\": {}} ?</tool_call>",
     "<tool_call>{\"name\": \"f\", \"arguments\": {}} ?</tool_call>", ""},
    {REPLY_HERMES, 0, "<tool_call>{\"name\": \"f\", \"name\": \"g\", \"arguments\": {}}</tool_call>",
     "<tool_call>{\"name\": \"f\", \"name\": \"g\", \"arguments\": {}}</tool_call>", ""},
    {REPLY_HERMES,
     0,
     "<tool_call>{\"name\": f}</tool_call> <tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>",
     "<tool_call>{\"name\": f}</tool_call>",
     "",
     {"f {}"}},
    {REPLY_HERMES,
     0,
     "<tool_call>{\"name\": \"f\"<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>",
     "<tool_call>{\"name\": \"f\"",
     "",
     {"f {}"}},
    {REPLY_HERMES, CUT | INSIDE, "<tool_call>{\"name\": \"f", "", ""},
    {REPLY_HERMES, CUT | INSIDE, "x <tool_call>", "x", ""},
    {REPLY_HERMES, INSIDE, "<tool_call>{\"arguments\": {\"a\": 1}, \"name\": \"f\"", "", "", {NULL}, "f"},
    {REPLY_HERMES, CUT, "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_c", "", "", {"f {}"}},
    {REPLY_HERMES, CUT, "x <tool_cal", "x <tool_cal", ""},

    /* Qwen3-Coder. */
    {REPLY_QWEN3_CODER,
     0,
     "<tool_call><function=search><parameter=query></parameter></function></tool_call>",
     "",
     "",
     {"search {\"query\": \"\"}"}},
    {REPLY_QWEN3_CODER,
     0,
     "<tool_call>\n<function=search>\n<parameter=query>\n\n</parameter>\n<parameter=limit>\n 7 "
     "\n</parameter>\n"
     "<parameter=safe>\nTrue\n</parameter>\n<parameter=tags>\n['a', (1, "
     "None)]\n</parameter>\n</function>\n</tool_call>",
     "",
     "",
     {"search {\"query\": \"\", \"limit\":  7 , \"safe\": true, \"tags\": [\"a\", [1, null]]}"}},
    {REPLY_QWEN3_CODER,
     0,
     "<tool_call>\n<function=search>\n<parameter=limit>\nten\n</parameter>\n<parameter=after>\n12\n</"
     "parameter>\n"
     "<parameter=word>\n1\n</parameter>\n<parameter=one>\n1e3\n</parameter>\n<parameter=any>\n{\"k\": "
     "[]}\n</parameter>\n"
     "</function>\n</tool_call>",
     "",
     "",
     {"search {\"limit\": \"ten\", \"after\": \"12\", \"word\": \"1\", \"one\": 1e3, \"any\": {\"k\": []}}"}},
    {REPLY_QWEN3_CODER,
     0,
     "<tool_call>\n<function=search>\n<parameter=after>\n2024-01-01\n</parameter>\n<parameter=any>\nx "
     "\"y\"\n</parameter>\n"
     "</function>\n</tool_call>",
     "",
     "",
     {"search {\"after\": \"2024-01-01\", \"any\": \"x \\\"y\\\"\"}"}},
    {REPLY_QWEN3_CODER,
     0,
     "<function=f>\n<parameter=a>\n\t</param>\\\n</parameter>\n</function>\n</tool_call> b",
     "b",
     "",
     {"f {\"a\": \"\\t</param>\\\\\"}"}},
    {REPLY_QWEN3_CODER, 0, "a <function=f>\n</function> b", "a\nb", "", {"f {}"}},
    {REPLY_QWEN3_CODER,
     0,
     "<tool_call>\n<function=f>\n</function>\n<function=g>\n</function>\n</tool_call>",
     "",
     "",
     {"f {}", "g {}"}},
    {REPLY_QWEN3_CODER,
     0,
     "<tool_call>\n<function=f>\n</function>\n<tool_call>\n<function=g>\n</function>",
     "",
     "",
     {"f {}", "g {}"}},
    {REPLY_QWEN3_CODER, 0, "<tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter>\n</tool_call>",
     "<tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter>\n</tool_call>", ""},
    {REPLY_QWEN3_CODER, 0,
     "<tool_call>\n<function=f>\n<parameter=a\n1\n</parameter>\n</function>\n</tool_call>",
     "<tool_call>\n<function=f>\n<parameter=a\n1\n</parameter>\n</function>\n</tool_call>", ""},
    {REPLY_QWEN3_CODER,
     INSIDE,
     "<tool_call>\n<function=f>\n<parameter=a>\n1\n</function>\n</tool_call>",
     "",
     "",
     {NULL},
     "f"},
    {REPLY_QWEN3_CODER, CUT | INSIDE, "<tool_call>\n<function=sear", "", ""},
    {REPLY_QWEN3_CODER, 0, "the <tool_call> tag, <function=x y", "the <tool_call> tag, <function=x y", ""},

    /* Llama 3: JSON. */
    {REPLY_LLAMA3_JSON,
     0,
     "{\"name\": \"f\", \"parameters\": {}}\n{\"parameters\": {\"a\": \"}\"}, \"name\": \"g\"};",
     "",
     "",
     {"f {}", "g {\"a\": \"}\"}"}},
    {REPLY_LLAMA3_JSON,
     0,
     "{\"name\": \"f\", \"parameters\": {}}; {\"name\": \"g\", \"parameters\": {b}}",
     "; {\"name\": \"g\", \"parameters\": {b}}",
     "",
     {"f {}"}},
    {REPLY_LLAMA3_JSON, 0, "{\"name\": \"f\", \"parameters\": {}}; and {x}", "; and {x}", "", {"f {}"}},
    {REPLY_LLAMA3_JSON, 0, "{\"name\": \"Ann\", \"age\": 3}", "{\"name\": \"Ann\", \"age\": 3}", ""},
    {REPLY_LLAMA3_JSON, 0, "{\"name\": \"Ann\"}", "{\"name\": \"Ann\"}", ""},
    {REPLY_LLAMA3_JSON, 0, "{} {\"a\": {\"name\": \"f\", \"parameters\": {}}} b",
     "{} {\"a\": {\"name\": \"f\", \"parameters\": {}}} b", ""},
    {REPLY_LLAMA3_JSON,
     0,
     "if (x) { y } {{\"name\": \"f\", \"parameters\": {}}",
     "if (x) { y } {",
     "",
     {"f {}"}},
    {REPLY_LLAMA3_JSON, 0, "{\"name\": \"f\", \"parameters\": {\"a\": 1,}}",
     "{\"name\": \"f\", \"parameters\": {\"a\": 1,}}", ""},
    {REPLY_LLAMA3_JSON, INSIDE, "{\"name\": \"f\", \"parameters\": {\"a\": 1}", "", "", {NULL}, "f"},
    {REPLY_LLAMA3_JSON, CUT | INSIDE, "{\"name\": \"f\", \"parameters\": {}}; {\"na", "", "", {"f {}"}},
    {REPLY_LLAMA3_JSON, 0, "a {\"", "a {\"", ""},
    {REPLY_LLAMA3_JSON, CUT, "{\"answer\": [1, 2", "{\"answer\": [1, 2", ""},

    /* The python tag (rule 12). */
    {REPLY_LLAMA3_PYTHON_TAG, 0, "a<|python_tag|> \nx = 1\n\n", "a", "", {"python {\"code\": \"x = 1\"}"}},
    {REPLY_LLAMA3_PYTHON_TAG,
     0,
     "<|python_tag|>f.call(a=1, b=\"x\")",
     "",
     "",
     {"f {\"a\": 1, \"b\": \"x\"}"}},
    {REPLY_LLAMA3_PYTHON_TAG, 0, "<|python_tag|>f.call(a=1)\ng.call()", "", "", {"f {\"a\": 1}", "g {}"}},
    {REPLY_LLAMA3_PYTHON_TAG, 0, "<|python_tag|>f.call(a=x)", "", "", {"python {\"code\": \"f.call(a=x)\"}"}},
    {REPLY_LLAMA3_PYTHON_TAG,
     0,
     "<|python_tag|>r = f.call(a=1)",
     "",
     "",
     {"python {\"code\": \"r = f.call(a=1)\"}"}},
    {REPLY_LLAMA3_PYTHON_TAG,
     0,
     "<|python_tag|>{\"a\": 1}",
     "",
     "",
     {"python {\"code\": \"{\\\"a\\\": 1}\"}"}},
    {REPLY_LLAMA3_PYTHON_TAG, 0, "<|python_tag|>{\"name\": \"f\", \"parameters\": {x}}",
     "<|python_tag|>{\"name\": \"f\", \"parameters\": {x}}", ""},
    {REPLY_LLAMA3_PYTHON_TAG, 0, "<|python_tag|>x", "", "", {"python {\"code\": \"x\"}"}},
    {REPLY_LLAMA3_PYTHON_TAG, CUT | INSIDE, "<|python_tag|>print(1)", "", "", {NULL}, "python"},
    {REPLY_LLAMA3_PYTHON_TAG, CUT | INSIDE, "<|python_tag|>brave_sea", "", ""},
    {REPLY_LLAMA3_PYTHON_TAG, INSIDE, "<|python_tag|>", "", ""},
    {REPLY_LLAMA3_PYTHON_TAG, 0, "{\"name\": \"f\", \"parameters\": {}}", "", "", {"f {}"}},

    /* Mistral. */
    {REPLY_MISTRAL,
     0,
     "a[TOOL_CALLS] [ {\"name\": \"f\", \"arguments\": {}} , {\"id\": \"i2\", \"name\": \"g\", "
     "\"arguments\": "
     "{}} ] b",
     "a\nb",
     "",
     {"f {}", "g#i2 {}"}},
    {REPLY_MISTRAL, 0, "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {}}", "", "", {"f {}"}},
    {REPLY_MISTRAL, INSIDE, "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {}},", "", "", {"f {}"}},
    {REPLY_MISTRAL, 0, "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {}}, {\"name\": g}] x",
     "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {}}, {\"name\": g}] x", ""},
    {REPLY_MISTRAL, 0, "[TOOL_CALLS]f[CALL_ID]abc123[ARGS] {\"a\": 1} b", "b", "", {"f#abc123 {\"a\": 1}"}},
    {REPLY_MISTRAL, 0, "[TOOL_CALLS]f[ARGS]{\"a\": b}", "[TOOL_CALLS]f[ARGS]{\"a\": b}", ""},
    {REPLY_MISTRAL, 0, "[TOOL_CALLS]f[TOOL_CALLS]g[ARGS]{}", "[TOOL_CALLS]f", "", {"g {}"}},
    {REPLY_MISTRAL, 0, "the [TOOL_CALLS] token here", "the [TOOL_CALLS] token here", ""},
    {REPLY_MISTRAL, CUT | INSIDE, "[TOOL_CALLS]get_wea", "", ""},
    {REPLY_MISTRAL, CUT | INSIDE, "[TOOL_CALLS]f[ARGS]", "", "", {NULL}, "f"},

    /* DeepSeek. */
    {REPLY_DEEPSEEK,
     0,
     "a" BEGIN "function" SEP "f\n```json\n{\"a\": \"```\"}\n```" NEXT "g" SEP "{}" END "b",
     "a\nb",
     "",
     {"f {\"a\": \"```\"}", "g {}"}},
    {REPLY_DEEPSEEK, 0, BEGIN "f" SEP "{}", "", "", {"f {}"}},
    {REPLY_DEEPSEEK, 0, BEGIN "f" SEP "{}" NEXT "g" SEP "{g}" END, BEGIN "f" SEP "{}" NEXT "g" SEP "{g}" END,
     ""},
    {REPLY_DEEPSEEK, 0, BEGIN "function" SEP "f\n{}" END, BEGIN "function" SEP "f\n{}" END, ""},
    {REPLY_DEEPSEEK, CUT | INSIDE, BEGIN "function" SEP "get_wea", "", ""},
    {REPLY_DEEPSEEK, CUT | INSIDE, BEGIN "function" SEP "f\n``", "", "", {NULL}, "f"},
    {REPLY_DEEPSEEK, CUT | INSIDE, BEGIN "f" SEP, "", "", {NULL}, "f"},
    {REPLY_DEEPSEEK, 0, "<think>a</think>x <｜tool▁calls▁b", "x <｜tool▁calls▁b", "a"},

    /* Harmony. */
    {REPLY_HARMONY, 0, "", "", ""},
    {REPLY_HARMONY, 0,
     "<|channel|>analysis<|message|> a <|end|><|start|>assistant<|channel|>analysis<|message|>b<|end|>"
     "<|start|>assistant<|channel|>commentary<|message|>c<|end|><|start|>assistant<|channel|>final<|message|>"
     "d<|return|>",
     "c\nd", "a\nb"},
    {REPLY_HARMONY,
     0,
     "<|channel|>commentary to=functions.f<|message|> {} <|call|>\n<|start|>assistant "
     "to=functions.g<|channel|>commentary "
     "json<|message|>{}<|end|>",
     "",
     "",
     {"f {}", "g {}"}},
    {REPLY_HARMONY,
     0,
     "<|channel|>analysis to=functions.f code<|message|>{\"a\": \"<|end|>\"}<|call|>",
     "",
     "",
     {"f {\"a\": \"<|end|>\"}"}},
    {REPLY_HARMONY, 0, "<|channel|>commentary to=functions.f<|message|>{} x<|call|>", "{} x", ""},
    {REPLY_HARMONY, 0,
     "<|channel|>commentary to=functions.f<|message|>{\"a\": 1<|call|><|start|>assistant<|channel|>final"
     "<|message|>b<|return|>",
     "{\"a\": 1\nb", ""},
    {REPLY_HARMONY, 0, "Hello <b>!", "Hello <b>!", ""}, /* no header at all */
    {REPLY_HARMONY, NO_CALLS, "<|channel|>commentary to=functions.f<|message|>{}<|call|>", "{}", ""},
    {REPLY_HARMONY, UNFINISHED, "<|channel|>final<|message|>a <|en", "a <|en", ""},
    {REPLY_HARMONY, CUT | UNFINISHED, "<|channel|>fin", "", ""},
    {REPLY_HARMONY, CUT | INSIDE, "<|channel|>commentary to=functions.get_wea", "", ""},
    {REPLY_HARMONY, CUT | INSIDE, "<|channel|>commentary to=functions.f <|cons", "", "", {NULL}, "f"},
    {REPLY_HARMONY, OPEN, "a<|end|><|start|>assistant<|channel|>final<|message|>b<|return|>", "b", "a"},

    /* Gemma (rule 11). */
    {REPLY_GEMMA,
     0,
     "a\n```tool_code\nsearch(\"x\", 3, safe = True)\n```\nb",
     "a\nb",
     "",
     {"search {\"query\": \"x\", \"limit\": 3, \"safe\": true}"}},
    {REPLY_GEMMA,
     0,
     "```tool_code\n# first\nadd(1, 2,); print( add(a=-1.5, b=+2) )\n```",
     "",
     "",
     {"add {\"a\": 1, \"b\": 2}", "add {\"a\": -1.5, \"b\": 2}"}},
    {REPLY_GEMMA,
     0,
     "```tool_code\nsearch(query='a' \"b\"\n  'c', tags=(\"x\", 'y'), filters={'k': (1), 2: ()})\n```",
     "",
     "",
     {"search {\"query\": \"abc\", \"tags\": [\"x\", \"y\"], \"filters\": {\"k\":  1, \"2\": []}}"}},
    {REPLY_GEMMA, 0, "```tool_code\nadd(1, 2, 3)\n```", "```tool_code\nadd(1, 2, 3)\n```", ""},
    {REPLY_GEMMA,
     0,
     "```tool_code\nadd(a=1, 2)\n```\n[add(1, 2)]",
     "```tool_code\nadd(a=1, 2)\n```",
     "",
     {"add {\"a\": 1, \"b\": 2}"}},
    {REPLY_GEMMA, 0, "```tool_code\nx = add(1, 2)\n```", "```tool_code\nx = add(1, 2)\n```", ""},
    {REPLY_GEMMA, 0, "```tool_code\nprint(\"hi\")\n```", "```tool_code\nprint(\"hi\")\n```", ""},
    {REPLY_GEMMA, 0, "```tool_code\nadd(1, 2)\nadd(a=)\n```\nb", "```tool_code\nadd(1, 2)\nadd(a=)\n```\nb",
     ""},
    {REPLY_GEMMA, 0, "```tool_code\nprint(add(1, 2)", "", "", {"add {\"a\": 1, \"b\": 2}"}},
    {REPLY_GEMMA, CUT | INSIDE, "```tool_code\nsearch(", "", "", {NULL}, "search"},
    {REPLY_GEMMA, CUT | INSIDE, "```tool_code\nsear", "", ""},
    {REPLY_GEMMA,
     0,
     "```json\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n```\nb",
     "b",
     "",
     {"f {\"a\": 1}"}},
    {REPLY_GEMMA,
     0,
     "```json\n{\"name\": \"Ann\", \"age\": 3}\n```\n[f()]",
     "```json\n{\"name\": \"Ann\", \"age\": 3}\n```",
     "",
     {"f {}"}},
    {REPLY_GEMMA, 0, "```python\n[f()]\n```tool_code\n```\n[f()]",
     "```python\n[f()]\n```tool_code\n```\n[f()]", ""},
    {REPLY_GEMMA, 0, "use ```x``` or\n[f()]", "use ```x``` or", "", {"f {}"}},
    {REPLY_GEMMA,
     0,
     "a [f(a=\"]\"), g(b=[1, 2,]),] b",
     "a\nb",
     "",
     {"f {\"a\": \"]\"}", "g {\"b\": [1, 2]}"}},
    {REPLY_GEMMA, 0, "[a](b) x[f()] [g(y)] []", "[a](b) x[f()] [g(y)] []", ""},
    {REPLY_GEMMA, 0, "是[f()] a[g()]", "是\na[g()]", "", {"f {}"}},
    {REPLY_GEMMA, 0, "[f(), g(a=1]", "[f(), g(a=1]", ""},
    {REPLY_GEMMA, 0, "[f()", "", "", {"f {}"}},
    {REPLY_GEMMA, CUT | INSIDE, "[f(), g(a=\"x", "", "", {"f {}"}, "g"},

    /* functionary v3.2. */
    {REPLY_FUNCTIONARY_V3_2, 0, "", "", ""},
    {REPLY_FUNCTIONARY_V3_2,
     0,
     "all\na >>> b\n>>>f\n{\"x\": \">>>all\\n\"}\n>>>python\nx = 1 >>> 2\n\n>>>all\nc",
     "a >>> b\nc",
     "",
     {"f {\"x\": \">>>all\\n\"}", "python {\"code\": \"x = 1 >>> 2\"}"}},
    {REPLY_FUNCTIONARY_V3_2, 0, "python\n{\"code\": \"x\"}", "", "", {"python {\"code\": \"x\"}"}},
    {REPLY_FUNCTIONARY_V3_2, 0, "python\n{1, 2}", "", "", {"python {\"code\": \"{1, 2}\"}"}},
    {REPLY_FUNCTIONARY_V3_2, 0, "f\n{} x", "f\n{} x", ""},
    {REPLY_FUNCTIONARY_V3_2, 0, "f\n{}>>>g\n{x}", ">>>g\n{x}", "", {"f {}"}},
    {REPLY_FUNCTIONARY_V3_2, 0, "<think>a</think>\n\nf\n{}", "", "a", {"f {}"}},
    {REPLY_FUNCTIONARY_V3_2, OPEN, "a</think>>>>all\nb", "b", "a"},
    {REPLY_FUNCTIONARY_V3_2, 0, "Hello there", "Hello there", ""},
    {REPLY_FUNCTIONARY_V3_2, 0, "Hello", "Hello", ""},
    {REPLY_FUNCTIONARY_V3_2, 0, ">all\nx", ">all\nx", ""},
    {REPLY_FUNCTIONARY_V3_2, NO_CALLS, "all\na>>>f\n{}", "a>>>f\n{}", ""},
    {REPLY_FUNCTIONARY_V3_2, CUT | INSIDE, "get_wea", "", ""},
    {REPLY_FUNCTIONARY_V3_2, CUT | INSIDE, "all\na>>>get_wea", "a", ""},
    {REPLY_FUNCTIONARY_V3_2, CUT | INSIDE, "python\nx = 1", "", "", {NULL}, "python"},
    {REPLY_FUNCTIONARY_V3_2, INSIDE, "f\n", "", "", {NULL}, "f"},

    /* functionary v3.1. */
    {REPLY_FUNCTIONARY_V3_1,
     0,
     "a <function=f> {\"a\": 1} </function> b <|python_tag|>x",
     "a\nb",
     "",
     {"f {\"a\": 1}", "python {\"code\": \"x\"}"}},
    {REPLY_FUNCTIONARY_V3_1, 0, "<function=f>{}", "", "", {"f {}"}},
    {REPLY_FUNCTIONARY_V3_1, 0, "<function=f>{} x</function>", "<function=f>{} x</function>", ""},
    {REPLY_FUNCTIONARY_V3_1,
     0,
     "<function=f>x</function><function=g>{}</function>",
     "<function=f>x</function>",
     "",
     {"g {}"}},
    {REPLY_FUNCTIONARY_V3_1, CUT | INSIDE, "<function=get_w", "", ""},
};

static json_doc *tools_doc;

static bool call_is(const collected_call *call, const char *want)
{
    char have[512];
    snprintf(have, sizeof have, "%s%s%s %s", buf_str(&call->name), call->id.len ? "#" : "",
             buf_str(&call->id), buf_str(&call->args));
    return strcmp(have, want) == 0;
}

static bool as_expected(const struct row *r, const collected *c)
{
    int n = 0;
    bool good =
        strcmp(buf_str(&c->content), r->content) == 0 && strcmp(buf_str(&c->reasoning), r->reasoning) == 0;
    for (; n < MAX_CALLS && r->calls[n]; n++) {
        const collected_call *call = collected_at(c, n);
        good = good && call && call_is(call, r->calls[n]);
    }
    return good && collected_n_calls(c) == n && c->end.in_call == !!(r->flags & INSIDE) &&
           c->end.complete == !(r->flags & (CUT | INSIDE | UNFINISHED)) &&
           strcmp(buf_str(&c->end_name), r->name ? r->name : "") == 0 && !c->end.call_name == !r->name;
}

static int check_row(const struct row *r)
{
    reply_options o = {.format = reply_format_of(r->style),
                       .tools = json_root(tools_doc),
                       .no_calls = r->flags & NO_CALLS,
                       .reasoning_open = r->flags & OPEN};
    for (uint64_t run = 0; run < 20; run++) {
        collected c = {.whole_characters = run == 0};
        uint64_t seed = run;
        assert_int_equal(collect_text(&c, &o, r->text, strlen(r->text), r->flags & CUT,
                                      run == 0   ? NULL
                                      : run == 1 ? collect_bytes
                                                 : collect_random,
                                      &seed),
                         ST_OK);
        if (!as_expected(r, &c)) {
            for (size_t i = 0; i < c.n; i++) {
                print_message("call %zu: %s#%s %s ended %d withdrawn %d\n", i, buf_str(&c.calls[i].name),
                              buf_str(&c.calls[i].id), buf_str(&c.calls[i].args), c.calls[i].ended,
                              c.calls[i].withdrawn);
            }
            print_message("%s, run %d: %s\ncontent [%s] reasoning [%s] complete %d in_call %d name [%s]\n",
                          reply_style_name(r->style), (int)run, r->text, buf_str(&c.content),
                          buf_str(&c.reasoning), c.end.complete, c.end.in_call, buf_str(&c.end_name));
            collected_release(&c);
            return 1;
        }
        collected_release(&c);
    }
    return 0;
}

static void test_rows(void **state)
{
    int bad = 0;
    for (size_t i = 0; i < N_OF(rows); i++) {
        bad += check_row(&rows[i]);
    }
    assert_int_equal(bad, 0);
}

static int open_tools(void **state)
{
    return json_parse(tools_text, sizeof tools_text - 1, JSON_MAX_DEPTH, &tools_doc, NULL) != ST_OK;
}

static int close_tools(void **state)
{
    json_doc_free(tools_doc);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rows)};
    return cmocka_run_group_tests_name("text-reply-forms", tests, open_tools, close_tools);
}
