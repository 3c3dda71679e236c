/*
 * hearth.h: language models from GGUF files, in your process.
 *
 * Mental model. A hearth_model is a file made ready to compute; it owns its compute threads. A hearth_session is
 * one conversation on it: what it has read stays read, so a prompt that begins like the last one costs only its
 * new tail. hearth_generate runs one reply on the calling thread and hands out its text as it grows. A reply is a
 * pure function of model, prompt, options and seed: threads, earlier turns and what else runs change time only.
 *
 * Threads. Callbacks run on the caller's thread inside hearth_generate. From other threads only hearth_cancel and
 * hearth_stats_get may be called; everything else on one model (its sessions included) is for one thread at a time.
 *
 * Ownership. What an open function gives is closed by the matching close function, sessions before their model;
 * close functions take NULL. Strings and arrays handed to a callback live during the call; those of a
 * hearth_result live until the session's next generate or its close. Nothing here prints, exits or reads the
 * environment.
 *
 * Errors. Functions return HEARTH_OK (0) or a hearth_status; *error (may be NULL) then explains. Output pointers
 * are written only on success. Every struct that you fill begins with its size: set it with the *_INIT macros.
 */
#ifndef HEARTH_H
#define HEARTH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define HEARTH_API __attribute__((visibility("default")))
#else
#define HEARTH_API
#endif

typedef enum hearth_status {
    HEARTH_OK = 0,
    HEARTH_NOMEM = 1,
    HEARTH_IO = 2,
    HEARTH_INTERNAL = 3,
    HEARTH_INVALID_FIELD = 5,
    HEARTH_CONTEXT_LENGTH = 6,
    HEARTH_UNSUPPORTED = 7,
    HEARTH_NEVER_FITS = 10,
    HEARTH_CAPACITY = 12,
    HEARTH_LOAD_FAILED = 16,
    HEARTH_MODEL_CHANGED = 17,
    HEARTH_NONFINITE = 21,
    HEARTH_NOT_FOUND = 23
} hearth_status;

typedef struct hearth_error {
    size_t size;
    hearth_status code;
    uint64_t offset;   /* byte in the file at fault, or UINT64_MAX */
    char field[128];   /* option, key or tensor at fault, or "" */
    char message[384]; /* one line, lower case, with the value at fault */
} hearth_error;
#define HEARTH_ERROR_INIT {sizeof(hearth_error), HEARTH_OK, UINT64_MAX, "", ""}

typedef struct hearth_model hearth_model;
typedef struct hearth_session hearth_session;

typedef struct hearth_model_options {
    size_t size;
    const char *cpu;      /* "ref", "avx2", "avx512", "amx": lowers the instruction set; NULL = the best */
    const char *kv_type;  /* "f16" (default) or "f32" */
    int32_t threads;      /* 0 = all this process may use */
    int32_t context;      /* 0 = the smaller of the model's and 8,192 */
    int32_t max_sessions; /* open at once; 0 = 8 */
    /* Loading progress, 0 … 1; may be NULL. */
    void (*progress)(void *ctx, double done);
    void *progress_ctx;
} hearth_model_options;
#define HEARTH_MODEL_OPTIONS_INIT {sizeof(hearth_model_options), NULL, NULL, 0, 0, 0, NULL, NULL}

/* options may be NULL. Errors: HEARTH_NOT_FOUND, HEARTH_LOAD_FAILED, HEARTH_UNSUPPORTED (key or tensor named),
 * HEARTH_INVALID_FIELD (option named), HEARTH_NOMEM. */
HEARTH_API hearth_status hearth_model_open(const char *path, const hearth_model_options *options, hearth_model **out,
                                           hearth_error *error);
HEARTH_API void hearth_model_close(hearth_model *model);

typedef struct hearth_model_info {
    size_t size;
    const char *arch;  /* "llama"; strings live as long as the model */
    const char *name;  /* general.name, "" if absent */
    const char *quant; /* most common matrix type, "Q4_K" */
    const char *kernels; /* "avx2" */
    uint64_t params;
    uint64_t bytes_per_token; /* of weights that one generated token reads */
    int32_t context;
    int32_t vocab;
    int32_t threads;
    bool has_chat_template;
} hearth_model_info;
#define HEARTH_MODEL_INFO_INIT {sizeof(hearth_model_info), 0, 0, 0, 0, 0, 0, 0, 0, 0, false}
HEARTH_API void hearth_model_info_get(const hearth_model *model, hearth_model_info *info);

/* HEARTH_CAPACITY when max_sessions are open. */
HEARTH_API hearth_status hearth_session_open(hearth_model *model, hearth_session **out, hearth_error *error);
HEARTH_API void hearth_session_close(hearth_session *session);
HEARTH_API hearth_status hearth_session_reset(hearth_session *session, hearth_error *error); /* forgets all it has read */

typedef struct hearth_logit_bias {
    int32_t token;
    float bias;
} hearth_logit_bias;

typedef struct hearth_token {
    int32_t id;
    const char *text; /* whole UTF-8 characters that this token completes; may be "" */
    size_t text_len;
    float logprob;    /* NaN unless logprobs were asked for */
    int32_t n_top;
    const int32_t *top_ids; /* [n_top] descending */
    const float *top_logprobs;
} hearth_token;

/* Called once per generated token, and once more with id -1 if the end releases held-back text. Return false to
 * stop (as hearth_cancel would). */
typedef bool (*hearth_token_fn)(void *ctx, const hearth_token *token);

typedef struct hearth_generate_options {
    size_t size;
    /* The prompt: ids if n_prompt_ids > 0, else text. */
    const char *prompt;
    size_t prompt_len; /* SIZE_MAX = up to the NUL */
    const int32_t *prompt_ids;
    size_t n_prompt_ids;
    bool no_special;   /* text only: add no BOS or space prefix, the text has them */
    bool no_parse_special; /* text only: control tokens spelled in it stay text */
    int32_t max_tokens; /* -1 = up to the context */
    float temperature;  /* 0 = greedy */
    int32_t top_k;
    float top_p;
    float min_p;
    float repetition_penalty;
    float presence_penalty;
    float frequency_penalty;
    int32_t repeat_last_n;
    int32_t min_tokens;
    bool ignore_eos;
    uint64_t seed; /* 0 = draw one; the result tells which */
    const hearth_logit_bias *logit_bias;
    size_t n_logit_bias;
    const char *const *stop;
    size_t n_stop;
    int32_t top_logprobs; /* -1 = none */
    double timeout_s;     /* 0 = none */
} hearth_generate_options;
#define HEARTH_GENERATE_OPTIONS_INIT                                                                         \
    {sizeof(hearth_generate_options), NULL, SIZE_MAX, NULL, 0, false, false, -1, 0.0f, 0, 1.0f, 0.0f, 1.0f,  \
     0.0f, 0.0f, 64, 0, false, 0, NULL, 0, NULL, 0, -1, 0.0}

typedef struct hearth_result {
    size_t size;
    const char *finish_reason; /* "stop", "length", "timeout", "cancelled" */
    const char *text;          /* the completion, nothing stripped */
    size_t text_len;
    const int32_t *ids;
    size_t n_ids;
    const int32_t *prompt_ids;
    size_t n_prompt_ids;
    int32_t reused_tokens; /* of the prompt, not computed again */
    uint64_t seed;
    double prefill_ms, decode_ms, total_ms, ttft_ms;
} hearth_result;
#define HEARTH_RESULT_INIT {sizeof(hearth_result), "", "", 0, NULL, 0, NULL, 0, 0, 0, 0.0, 0.0, 0.0, 0.0}

/* Blocks until the reply has ended. token_fn may be NULL. A cancelled or timed-out reply is a success with that
 * finish reason. Errors: HEARTH_INVALID_FIELD, HEARTH_CONTEXT_LENGTH (both numbers in the message),
 * HEARTH_NONFINITE, HEARTH_NOMEM. */
HEARTH_API hearth_status hearth_generate(hearth_session *session, const hearth_generate_options *options,
                                         hearth_token_fn token_fn, void *ctx, hearth_result *result,
                                         hearth_error *error);
/* From any thread or a signal handler: ends the reply that runs on this session, if one does, within one step. */
HEARTH_API void hearth_cancel(hearth_session *session);

typedef struct hearth_stats {
    size_t size;
    uint64_t steps, tokens_prefilled, tokens_generated, tokens_reused;
    uint64_t requests_done, requests_failed, requests_cancelled;
    uint64_t kv_pages_total, kv_pages_used;
} hearth_stats;
#define HEARTH_STATS_INIT {sizeof(hearth_stats), 0, 0, 0, 0, 0, 0, 0, 0, 0}
HEARTH_API void hearth_stats_get(const hearth_model *model, hearth_stats *stats); /* any thread */

HEARTH_API const char *hearth_version(void);
HEARTH_API const char *hearth_status_text(hearth_status status);

#ifdef __cplusplus
}
#endif

#endif
