/*
 * The patterns of each pre-tokenizer: public facts, taken from the tokenizer.json files of the models and
 * from the names that llama.cpp's converter gives them. Three things are written differently, none changes a
 * match:
 * - \s is spelled out as White_Space of Unicode (PCRE2 counts U+180E as well);
 * - "\s*[\r\n]+" is LINES below, and a run that must reach the end of the text is possessive and starts where
 * the white space starts: the plain forms go back over long runs of white space, once for every character;
 * - the patterns of GPT-2's kind end in "|\s+", so that they match everywhere.
 */
#include <string.h>

#include "text/pretokenize.h"

#define NOT_LINE_SPACES                                                                                  \
    "\\x09\\x0b\\x0c\\x20\\x85\\xa0\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{" \
    "3000}"
#define SPACES "\\r\\n" NOT_LINE_SPACES
/* All white space up to the last line break of its run. */
#define LINES          "(?:[" NOT_LINE_SPACES "]*+[\\r\\n]++)++"
#define INNER_SPACES   "[" SPACES "]+(?![^" SPACES "])"
#define REST_OF_SPACES "[" SPACES "]+"
#define CONTRACTIONS   "'s|'t|'re|'ve|'m|'ll|'d"
#define CJK            "[\\x{4e00}-\\x{9fa5}\\x{800}-\\x{4e00}\\x{ac00}-\\x{d7ff}]+"

#define GPT2 CONTRACTIONS "| ?\\p{L}+| ?\\p{N}+| ?[^" SPACES "\\p{L}\\p{N}]+|" INNER_SPACES "|" REST_OF_SPACES
/* What llama 3 and qwen 2 share: only the way they cut numbers differs. */
#define TIKTOKEN(number)                                                         \
    "(?i:" CONTRACTIONS ")|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" number "| ?[^" SPACES \
    "\\p{L}\\p{N}]+[\\r\\n]*|" LINES "|" INNER_SPACES "|" REST_OF_SPACES

static const char *const gpt2[] = {GPT2, NULL};
static const char *const digits_gpt2[] = {"\\p{N}", GPT2, NULL};
static const char *const llama3[] = {TIKTOKEN("\\p{N}{1,3}"), NULL};
static const char *const qwen2[] = {TIKTOKEN("\\p{N}"), NULL};
static const char *const qwen35[] = {
    "(?i:" CONTRACTIONS ")|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^" SPACES
    "\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" LINES "|" INNER_SPACES "|" REST_OF_SPACES,
    NULL};

/* Cased letters of Unicode as the model's own file lists them. */
#define DEEPSEEK_LETTERS                                                                                    \
    "A-Za-z\\xb5\\xc0-\\xd6\\xd8-\\xf6\\xf8-\\x{1ba}\\x{1bc}-\\x{1bf}\\x{1c4}-\\x{293}\\x{295}-\\x{2af}"    \
    "\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37b}-\\x{37d}\\x{37f}\\x{386}\\x{388}-\\x{38a}\\x{38c}\\x{38e}-"  \
    "\\x{3a1}"                                                                                              \
    "\\x{3a3}-\\x{3f5}\\x{3f7}-\\x{481}\\x{48a}-\\x{52f}\\x{531}-\\x{556}\\x{10a0}-\\x{10c5}\\x{13a0}-\\x{" \
    "13f5}"                                                                                                 \
    "\\x{13f8}-\\x{13fd}\\x{1c90}-\\x{1cba}\\x{1cbd}-\\x{1cbf}\\x{1d00}-\\x{1d2b}\\x{1d6b}-\\x{1d77}"       \
    "\\x{1d79}-\\x{1d9a}\\x{1e00}-\\x{1f15}\\x{1f18}-\\x{1f1d}\\x{1f20}-\\x{1f45}\\x{1f48}-\\x{1f4d}"       \
    "\\x{1f50}-\\x{1f57}\\x{1f59}\\x{1f5b}\\x{1f5d}\\x{1f5f}-\\x{1f7d}\\x{1f80}-\\x{1fb4}\\x{1fb6}-\\x{"    \
    "1fbc}"                                                                                                 \
    "\\x{1fbe}\\x{1fc2}-\\x{1fc4}\\x{1fc6}-\\x{1fcc}\\x{1fd0}-\\x{1fd3}\\x{1fd6}-\\x{1fdb}\\x{1fe0}-\\x{"   \
    "1fec}"                                                                                                 \
    "\\x{1ff2}-\\x{1ff4}\\x{1ff6}-\\x{1ffc}\\x{2102}\\x{2107}\\x{210a}-\\x{2113}\\x{2115}\\x{2119}-\\x{"    \
    "211d}"                                                                                                 \
    "\\x{2124}\\x{2126}\\x{2128}\\x{212a}-\\x{212d}\\x{212f}-\\x{2134}\\x{2139}\\x{213c}-\\x{213f}"         \
    "\\x{2145}-\\x{2149}\\x{214e}\\x{2183}\\x{2184}\\x{2c00}-\\x{2c7b}\\x{2c7e}-\\x{2ce4}\\x{2ceb}-\\x{"    \
    "2cee}"                                                                                                 \
    "\\x{2cf2}\\x{2cf3}\\x{a640}-\\x{a66d}\\x{a680}-\\x{a69b}\\x{a722}-\\x{a76f}\\x{a771}-\\x{a787}"        \
    "\\x{a78b}-\\x{a78e}\\x{ab70}-\\x{abbf}\\x{fb00}-\\x{fb06}\\x{fb13}-\\x{fb17}\\x{ff21}-\\x{ff3a}"       \
    "\\x{ff41}-\\x{ff5a}\\x{10400}-\\x{1044f}\\x{104b0}-\\x{104d3}\\x{104d8}-\\x{104fb}\\x{10c80}-\\x{"     \
    "10cb2}"                                                                                                \
    "\\x{10cc0}-\\x{10cf2}\\x{118a0}-\\x{118df}\\x{1e900}-\\x{1e943}"

static const char *const deepseek_llm[] = {
    "[\\r\\n]",
    "[" SPACES "]?[" DEEPSEEK_LETTERS "]+",
    "[" SPACES "]?[!-/:-~\\x{ff01}-\\x{ff0f}\\x{ff1a}-\\x{ff5e}\\x{2018}-\\x{201f}\\x{3000}-\\x{3002}]+",
    "(?<![" SPACES "])[" SPACES "]++\\z",
    CJK,
    "\\p{N}+",
    NULL};
static const char *const deepseek_coder[] = {
    "[\\r\\n]", "[" SPACES "]?\\p{L}+", "[" SPACES "]?\\p{P}+", CJK, "\\p{N}", NULL};
static const char *const deepseek_v3[] = {
    "\\p{N}{1,3}", "[\\x{4e00}-\\x{9fa5}\\x{3040}-\\x{309f}\\x{30a0}-\\x{30ff}]+",
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
    "| ?[\\p{P}\\p{S}]+[\\r\\n]*|" LINES "|" INNER_SPACES "|" REST_OF_SPACES,
    NULL};

static const char *const falcon[] = {"[\\p{P}$+<=>^~|`]+", GPT2, "[0-9][0-9][0-9]", NULL};
/* Files made before the key existed; what llama.cpp does with them. */
static const char *const unnamed[] = {"[\\p{P}$+<=>^~|]+", GPT2, "\\p{N}+", "[0-9][0-9][0-9]", NULL};

static const pretokenize_family families[] = {
    {"default", false, false, unnamed},
    {"gpt-2", false, false, gpt2},
    {"phi-2", false, false, gpt2},
    {"jina-es", false, false, gpt2},
    {"jina-de", false, false, gpt2},
    {"jina-v2-es", false, false, gpt2},
    {"jina-v2-de", false, false, gpt2},
    {"modern-bert", false, false, gpt2},
    {"olmo", false, false, gpt2},
    {"mpt", false, false, gpt2},
    {"jais", false, false, gpt2},
    {"gigachat", false, false, gpt2},
    {"mellum", false, false, gpt2},
    {"exaone4", false, false, gpt2},
    {"trillion", false, false, gpt2},
    {"granite-docling", false, false, gpt2},
    {"a.x-4.0", false, false, gpt2},
    {"starcoder", false, false, digits_gpt2},
    {"refact", false, false, digits_gpt2},
    {"command-r", false, false, digits_gpt2},
    {"smollm", false, false, digits_gpt2},
    {"codeshell", false, false, digits_gpt2},
    {"exaone", false, false, digits_gpt2},
    {"minerva-7b", false, false, digits_gpt2},
    {"mellum2", false, false, digits_gpt2},
    {"llama-bpe", true, true, llama3},
    {"llama3", true, true, llama3},
    {"llama-v3", true, true, llama3},
    {"falcon3", true, true, llama3},
    {"falcon-h1", true, true, llama3},
    {"pixtral", true, true, llama3},
    {"midm-2.0", true, true, llama3},
    {"lfm2", true, true, llama3},
    {"jina-v5-nano", true, true, llama3},
    {"dbrx", false, false, llama3},
    {"smaug-bpe", false, false, llama3},
    {"glm4", false, false, llama3},
    {"chatglm-bpe", false, false, llama3},
    {"qwen2", false, false, qwen2},
    {"deepseek-r1-qwen", false, false, qwen2},
    {"kormo", false, false, qwen2},
    {"f2llmv2", false, false, qwen2},
    {"stablelm2", false, false, qwen2},
    {"megrez", false, false, qwen2},
    {"hunyuan", false, false, qwen2},
    {"solar-open", false, false, qwen2},
    {"grok-2", false, false, qwen2},
    {"qwen35", false, false, qwen35},
    {"deepseek-llm", false, false, deepseek_llm},
    {"deepseek-coder", false, false, deepseek_coder},
    {"deepseek-v3", false, false, deepseek_v3},
    {"hunyuan-dense", false, false, deepseek_v3},
    {"hy_v4", false, false, deepseek_v3},
    {"joyai-llm", false, false, deepseek_v3},
    {"falcon", false, false, falcon},
};

const pretokenize_family *pretokenize_find(const char *name, size_t len)
{
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        if (strlen(families[i].name) == len && memcmp(families[i].name, name, len) == 0) {
            return &families[i];
        }
    }
    return NULL;
}
