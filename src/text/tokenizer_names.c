/*
 * What follows from the text of a token alone. Files say which token ends a document, hardly ever which ones
 * end a turn, and some type such tokens as ordinary text; every engine therefore knows them by name (the list
 * is the one of llama.cpp, so that both end replies at the same place).
 */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "text/tokenizer_int.h"

typedef struct known_name {
    const char *text;
    bool ends; /* generation ends here; the others are only control tokens */
} known_name;

#define NAME_END           "<|end|>"
#define NAME_CLOSE_S       "</s>"
#define NAME_RETURN        "<|return|>"
#define NAME_CALL          "<|call|>"
#define NAME_CALLS         "<|calls|>"
#define NAME_FLUSH         "<|flush|>"
#define NAME_TOOL_RESPONSE "<|tool_response>"

static const known_name names[] = {
    {"<|eot_id|>", true},
    {"<|im_end|>", true},
    {NAME_END, true},
    {NAME_RETURN, true},
    {NAME_CALL, true},
    {NAME_FLUSH, true},
    {NAME_CALLS, true},
    {"<end_of_turn>", true},
    {"<|endoftext|>", true},
    {NAME_CLOSE_S, true},
    {"<|eom_id|>", true},
    {"<EOT>", true},
    {"_<EOT>", true},
    {"[EOT]", true},
    {"[EOS]", true},
    {"<|end_of_text|>", true},
    {"<end_of_utterance>", true},
    {"<eos>", true},
    {"<turn|>", true},
    {NAME_TOOL_RESPONSE, true},
    {"<\xEF\xBD\x9C"
     "end\xE2\x96\x81of\xE2\x96\x81sentence\xEF\xBD\x9C>",
     true},
    {"[e~[", true},
    /* fill-in-the-middle: padding, next repository and next file end a reply, the rest are plain control
       tokens */
    {"<|fim_pad|>", true},
    {"<fim-pad>", true},
    {"<fim_pad>", true},
    {"<PAD>", true},
    {"[PAD]", true},
    {"<|fim_repo|>", true},
    {"<|repo_name|>", true},
    {"<fim-repo>", true},
    {"<REPO>", true},
    {"<reponame>", true},
    {"<|file_sep|>", true},
    {"<|fim_prefix|>", false},
    {"<fim-prefix>", false},
    {"<fim_prefix>", false},
    {"<\xEF\xBD\x9C"
     "fim\xE2\x96\x81"
     "begin\xEF\xBD\x9C>",
     false},
    {"<PRE>", false},
    {"\xE2\x96\x81<PRE>", false},
    {"<|code_prefix|>", false},
    {"<|prefix|>", false},
    {"<|fim_suffix|>", false},
    {"<fim-suffix>", false},
    {"<fim_suffix>", false},
    {"<\xEF\xBD\x9C"
     "fim\xE2\x96\x81hole\xEF\xBD\x9C>",
     false},
    {"<SUF>", false},
    {"\xE2\x96\x81<SUF>", false},
    {"<|code_suffix|>", false},
    {"<|suffix|>", false},
    {"<|fim_middle|>", false},
    {"<fim-middle>", false},
    {"<fim_middle>", false},
    {"<\xEF\xBD\x9C"
     "fim\xE2\x96\x81"
     "end\xEF\xBD\x9C>",
     false},
    {"<MID>", false},
    {"\xE2\x96\x81<MID>", false},
    {"<|code_middle|>", false},
    {"<|middle|>", false},
};

#define N_NAMES (sizeof names / sizeof *names)
#define N_KEYS  3 /* eos, eot, eom */

static bool has(const tokenizer *t, const char *name)
{
    return tokenizer_find(t, name, strlen(name)) != TOKEN_NONE;
}

/* Two vocabularies use a well-known name for something else: in the harmony format <|end|> only closes a
 * message, and where <|tool_response> exists </s> is a piece of HTML. */
static bool name_misleads(const tokenizer *t, const char *name)
{
    if (strcmp(name, NAME_END) == 0) {
        bool call = has(t, NAME_CALL) || has(t, NAME_CALLS);
        return call && (has(t, NAME_RETURN) || has(t, NAME_FLUSH));
    }
    return strcmp(name, NAME_CLOSE_S) == 0 && has(t, NAME_TOOL_RESPONSE);
}

static int id_cmp(const void *pa, const void *pb)
{
    int32_t a = *(const int32_t *)pa, b = *(const int32_t *)pb;
    return (a > b) - (a < b);
}

static void eog_finish(tokenizer *t, size_t n)
{
    qsort(t->eog, n, sizeof *t->eog, id_cmp);
    t->n_eog = 0;
    for (size_t i = 0; i < n; i++) {
        if (t->n_eog == 0 || t->eog[t->n_eog - 1] != t->eog[i]) {
            t->eog[t->n_eog++] = t->eog[i];
        }
    }
}

status tokenizer_names_apply(tokenizer *t, err *e)
{
    const int32_t keys[N_KEYS] = {t->eos, t->eot, t->eom};
    size_t n = 0;
    t->eog = arena_alloc_array(&t->mem, N_NAMES + N_KEYS, sizeof *t->eog);
    if (!t->eog) {
        return tokenizer_no_memory(e);
    }
    for (size_t i = 0; i < N_KEYS; i++) {
        if (keys[i] != TOKEN_NONE) {
            t->eog[n++] = keys[i];
        }
    }
    for (size_t i = 0; i < N_NAMES; i++) {
        int32_t id = tokenizer_find(t, names[i].text, strlen(names[i].text));
        if (id == TOKEN_NONE || name_misleads(t, names[i].text)) {
            continue;
        }
        t->kind[id] = TOKEN_CONTROL;
        if (names[i].ends) {
            t->eog[n++] = id;
        }
    }
    eog_finish(t, n);
    return ST_OK;
}
