/*
 * tool_schema: types and order of parameters, by the JSON Schema words that say them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "text/tool_schema.h"

#define N_OF(array) (sizeof(array) / sizeof((array)[0]))

static const struct row {
    const char *schema;
    unsigned types;
} rows[] = {
    {"{\"type\":\"string\"}", TOOL_TYPE_STRING},
    {"{\"type\":\"integer\"}", TOOL_TYPE_NUMBER},
    {"{\"type\":\"boolean\",\"nullable\":true}", TOOL_TYPE_BOOL | TOOL_TYPE_NULL},
    {"{\"type\":[\"string\",\"null\"]}", TOOL_TYPE_STRING | TOOL_TYPE_NULL},
    {"{\"enum\":[\"a\",\"b\"]}", TOOL_TYPE_STRING},
    {"{\"enum\":[1,null]}", TOOL_TYPE_NUMBER | TOOL_TYPE_NULL},
    {"{\"const\":[]}", TOOL_TYPE_ARRAY},
    {"{\"anyOf\":[{\"type\":\"object\"},{\"type\":\"null\"}]}", TOOL_TYPE_OBJECT | TOOL_TYPE_NULL},
    {"{\"oneOf\":[{\"anyOf\":[{\"type\":\"string\"}]},{\"const\":true}]}", TOOL_TYPE_STRING | TOOL_TYPE_BOOL},
    {"{\"anyOf\":[{\"$ref\":\"#/x\"}]}", TOOL_TYPE_ANY},
    {"{\"$ref\":\"#/x\"}", TOOL_TYPE_ANY},
    {"{}", TOOL_TYPE_ANY},
    {"true", TOOL_TYPE_ANY},
    {"{\"type\":\"text\"}", TOOL_TYPE_ANY},
    {"{\"anyOf\":[{\"anyOf\":[{\"anyOf\":[{\"anyOf\":[{\"anyOf\":[{\"anyOf\":[{\"anyOf\":[{\"anyOf\":[{"
     "\"anyOf\":[{\"type\":"
     "\"null\"}]}]}]}]}]}]}]}]}]}",
     TOOL_TYPE_ANY}, /* nine deep */
};

static json_doc *tools_with(const char *schema)
{
    buf b = {0};
    json_doc *doc = NULL;
    assert_int_equal(buf_printf(&b,
                                "[1,{\"function\":null},{\"type\":\"function\",\"function\":{\"name\":\"f\","
                                "\"parameters\":{\"properties\":"
                                "{\"first\":{},\"p\":%s}}}},{\"name\":\"g\",\"input_schema\":{\"properties\":"
                                "{\"q\":{\"type\":\"number\"}}}},"
                                "{\"name\":\"h\"}]",
                                schema),
                     ST_OK);
    assert_int_equal(json_parse(b.data, b.len, JSON_MAX_DEPTH, &doc, NULL), ST_OK);
    buf_release(&b);
    return doc;
}

static void test_types(void **state)
{
    for (size_t i = 0; i < N_OF(rows); i++) {
        json_doc *doc = tools_with(rows[i].schema);
        assert_int_equal(tool_parameter_types(json_root(doc), "f", 1, "p", 1), rows[i].types);
        json_doc_free(doc);
    }
}

static void test_lookup(void **state)
{
    json_doc *doc = tools_with("{}");
    const json *tools = json_root(doc);
    size_t len = 0;
    assert_int_equal(tool_parameter_types(tools, "g", 1, "q", 1), TOOL_TYPE_NUMBER);
    assert_int_equal(tool_parameter_types(tools, "f", 1, "other", 5), TOOL_TYPE_STRING);
    assert_int_equal(tool_parameter_types(tools, "h", 1, "p", 1), TOOL_TYPE_STRING);
    assert_int_equal(tool_parameter_types(tools, "none", 4, "p", 1), TOOL_TYPE_STRING);
    assert_int_equal(tool_parameter_types(NULL, "f", 1, "p", 1), TOOL_TYPE_STRING);
    assert_string_equal(tool_parameter_at(tools, "f", 1, 0, &len), "first");
    assert_string_equal(tool_parameter_at(tools, "f", 1, 1, &len), "p");
    assert_int_equal(len, 1);
    assert_null(tool_parameter_at(tools, "f", 1, 2, &len));
    assert_null(tool_parameter_at(tools, "h", 1, 0, &len));
    assert_null(tool_parameter_at(NULL, "f", 1, 0, &len));
    json_doc_free(doc);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_types), cmocka_unit_test(test_lookup)};
    return cmocka_run_group_tests_name("text-tool-schema", tests, NULL, NULL);
}
