/*
 * hearth.h: language models from GGUF files, in your process.
 *
 *     hearth_model *model;
 *     hearth_session *chat;
 *     hearth_error error = HEARTH_ERROR_INIT;
 *     if (hearth_model_open("model.gguf", NULL, &model, &error) != HEARTH_OK) { puts(error.message); ... }
 *     hearth_session_open(model, &chat, &error);
 *     hearth_generate_options options = HEARTH_GENERATE_OPTIONS_INIT;
 *     hearth_result result = HEARTH_RESULT_INIT;
 *     options.prompt = "Once upon a time";
 *     options.max_tokens = 100;
 *     if (hearth_generate(chat, &options, NULL, NULL, &result, &error) == HEARTH_OK) { puts(result.text); }
 *     hearth_session_close(chat);
 *     hearth_model_close(model);
 *
 * Mental model. A hearth_model is a file made ready to compute; it owns its compute threads. A hearth_session
 * is one conversation on it. What was read and said stays computed while its memory is not needed, for all
 * sessions of the model, so a prompt that begins like what is there costs only its new tail. A prompt is always
 * the whole text so far, never only the new part. A session whose reply was cut by a stop string, a cancel or a
 * callback knows nothing any more; what was computed is found all the same. hearth_generate runs one reply on
 * the calling thread and hands out its text as it grows. A reply is a pure function of model, prompt, options
 * and seed: threads, earlier turns and what else runs change time only.
 *
 * Threads. Callbacks run on the caller's thread inside hearth_generate. From other threads, and from
 * callbacks, only hearth_cancel and hearth_stats_get may be called; everything else on one model (its
 * sessions included) is for one thread at a time. Different models are independent.
 *
 * Ownership. What an open function gives is closed by the matching close function, sessions before their
 * model; close functions take NULL. Strings and arrays handed to a callback live during the call; those of a
 * hearth_result live until the session's next generate or its close. What you pass in is copied or done with
 * when the function returns. The file must not change while a model is open: its weights are used where they
 * lie. Nothing here prints, exits or reads the environment.
 *
 * Errors. Functions return HEARTH_OK (0) or a hearth_status; *error (may be NULL) then explains. Output
 * pointers are written only on success. Every struct begins with its size, so that programs and libraries of
 * different age understand each other: begin with its *_INIT macro, which also holds the defaults, and change
 * what you want. A struct that was not set up like this is refused (or, for one that is filled, left alone).
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

/* Numbers never change; new ones may come. */
typedef enum hearth_status {
    HEARTH_OK = 0,
    HEARTH_NOMEM = 1,
    HEARTH_IO = 2,
    HEARTH_INTERNAL = 3,       /* a bug in the library */
    HEARTH_INVALID_FIELD = 5,  /* error.field names the option */
    HEARTH_CONTEXT_LENGTH = 6, /* the prompt leaves no room for a reply */
    HEARTH_UNSUPPORTED = 7,    /* the file is fine, this library cannot run it */
    HEARTH_NEVER_FITS = 10,
    HEARTH_CAPACITY = 12,
    HEARTH_LOAD_FAILED = 16, /* the file is not fine */
    HEARTH_MODEL_CHANGED = 17,
    HEARTH_NONFINITE = 21, /* the model computed infinity or NaN: a damaged file, as a rule */
    HEARTH_NOT_FOUND = 23
} hearth_status;

typedef struct hearth_error { /* written only when a function fails */
    size_t size;
    hearth_status code;
    uint64_t offset;   /* byte in the file at fault, or UINT64_MAX */
    char field[128];   /* option, key or tensor at fault, or "" */
    char message[384]; /* one line, lower case, with the value at fault */
} hearth_error;
#define HEARTH_ERROR_INIT                                   \
    {                                                       \
        sizeof(hearth_error), HEARTH_OK, UINT64_MAX, "", "" \
    }

/* Models */

typedef struct hearth_model hearth_model;
typedef struct hearth_session hearth_session;

typedef struct hearth_model_options {
    size_t size;
    const char *cpu;     /* "ref", "avx2", "avx512", "amx": at most this instruction set; NULL = the best */
    const char *kv_type; /* "f16", "f32", "bf16", "q8_0": how what was read is kept; NULL = "f16" */
    int32_t threads;     /* at most; 0 = all this process may use (affinity mask and CPU quota bound both) */
    int32_t
        context; /* tokens of prompt and reply together; 0 = as many as memory allows, up to the model's */
    int32_t max_sessions;                     /* open at once; 0 = 8. Memory for them is used as they fill. */
    void (*progress)(void *ctx, double done); /* while loading, 0 to 1; may be NULL */
    void *progress_ctx;
    const char
        *pack_dir;      /* folder that keeps packed weights, shared by processes; NULL = pack at each start */
    int32_t huge_pages; /* not 0: copy them into huge pages: faster, not shared */
} hearth_model_options;
#define HEARTH_MODEL_OPTIONS_INIT                                              \
    {                                                                          \
        sizeof(hearth_model_options), NULL, NULL, 0, 0, 0, NULL, NULL, NULL, 0 \
    }

/* options may be NULL. Errors: HEARTH_NOT_FOUND, HEARTH_IO, HEARTH_LOAD_FAILED, HEARTH_UNSUPPORTED (key or
 * tensor named), HEARTH_INVALID_FIELD (option named), HEARTH_NOMEM. */
HEARTH_API hearth_status hearth_model_open(const char *path, const hearth_model_options *options,
                                           hearth_model **out, hearth_error *error);
HEARTH_API void hearth_model_close(hearth_model *model);

typedef struct hearth_model_info { /* strings live as long as the model */
    size_t size;
    const char *arch;    /* "llama" */
    const char *name;    /* general.name, "" if absent */
    const char *quant;   /* most common matrix type, "Q4_K" */
    const char *kernels; /* instruction set in use, "avx2" */
    uint64_t params;
    uint64_t bytes_per_token; /* of weights that one generated token reads */
    int32_t context;          /* in effect */
    int32_t vocab;            /* token ids are 0 to vocab - 1 */
    int32_t threads;
    bool has_chat_template;
    bool
        speaks_chatml; /* its template writes the layout of hearth_chat_ids, and its vocabulary has the tokens */
} hearth_model_info;
#define HEARTH_MODEL_INFO_INIT                                                 \
    {                                                                          \
        sizeof(hearth_model_info), "", "", "", "", 0, 0, 0, 0, 0, false, false \
    }
HEARTH_API void hearth_model_info_get(const hearth_model *model, hearth_model_info *info);

/* Sessions */

/* HEARTH_CAPACITY when max_sessions are open. What an idle session has computed may go for one that needs the
 * memory; its next reply then computes that part again. */
HEARTH_API hearth_status hearth_session_open(hearth_model *model, hearth_session **out, hearth_error *error);
HEARTH_API void hearth_session_close(hearth_session *session);
/* Forgets all it has read. */
HEARTH_API hearth_status hearth_session_reset(hearth_session *session, hearth_error *error);

/* Replies */

typedef struct hearth_logit_bias {
    int32_t token;
    float bias; /* added to the logit before anything else; -INFINITY forbids the token */
} hearth_logit_bias;

typedef struct hearth_token {
    int32_t
        id; /* -1: no token, only text that was held back (for a stop string or an unfinished character) */
    const char
        *text; /* whole UTF-8 characters that this token completes; often "", sometimes several tokens' */
    size_t text_len;
    float logprob; /* NaN unless top_logprobs >= 0 */
    int32_t n_top;
    const int32_t *top_ids; /* [n_top] most likely first */
    const float *top_logprobs;
} hearth_token;

/* Called once per generated token in order, and once more with id -1 if the end releases held-back text; the
 * texts joined are the completion. Return false to stop, as hearth_cancel would. */
typedef bool (*hearth_token_fn)(void *ctx, const hearth_token *token);

typedef struct hearth_generate_options {
    size_t size;
    /* The prompt: ids if n_prompt_ids > 0, else text. */
    const char *prompt;
    size_t prompt_len; /* bytes; SIZE_MAX = up to the NUL */
    const int32_t *prompt_ids;
    size_t n_prompt_ids;
    bool no_special;          /* text only: add no BOS or space prefix, the text has them */
    bool no_parse_special;    /* text only: control tokens spelled in it stay text (for text of strangers) */
    int32_t max_tokens;       /* -1 = up to the context; 0 = only read the prompt */
    float temperature;        /* 0 = greedy: always the most likely token */
    int32_t top_k;            /* 0 = off */
    float top_p;              /* 1 = off */
    float min_p;              /* 0 = off */
    float repetition_penalty; /* 1 = off */
    float presence_penalty;   /* 0 = off */
    float frequency_penalty;  /* 0 = off */
    int32_t repeat_last_n;    /* tokens the repetition penalty looks at; -1 = all */
    int32_t min_tokens;       /* the reply does not end by itself before that many */
    bool ignore_eos;          /* nor ever */
    uint64_t seed;            /* 0 = draw one; the result tells which */
    const hearth_logit_bias
        *logit_bias; /* up to 1,024, each token once; if all are forbidden the likeliest is taken */
    size_t n_logit_bias;
    const char *const *stop; /* the reply ends right before the first of these; "" is ignored */
    size_t n_stop;           /* up to 4,096, 1 MiB in all */
    int32_t
        top_logprobs; /* -1 = no logprobs, 0 = of the token itself, up to 20 = of so many others as well */
    double timeout_s; /* 0 = none */
} hearth_generate_options;
#define HEARTH_GENERATE_OPTIONS_INIT                                                                     \
    {                                                                                                    \
        sizeof(hearth_generate_options), NULL, SIZE_MAX, NULL, 0, false, false, -1, 0.0f, 0, 1.0f, 0.0f, \
            1.0f, 0.0f, 0.0f, 64, 0, false, 0, NULL, 0, NULL, 0, -1, 0.0                                 \
    }

typedef struct hearth_result {
    size_t size;
    /* "stop" (by itself: end token or stop string), "length" (max_tokens or context), "timeout", "cancelled"
     */
    const char *finish_reason;
    const char *text; /* the completion, nothing stripped; a NUL follows */
    size_t text_len;
    const int32_t *ids; /* all generated tokens, without the one that ended it */
    size_t n_ids;
    const int32_t *prompt_ids; /* the prompt as it was read */
    size_t n_prompt_ids;
    int32_t reused_tokens; /* of the prompt, not computed again */
    uint64_t seed;
    double prefill_ms, decode_ms, total_ms, ttft_ms; /* ttft: until the first token */
} hearth_result;
#define HEARTH_RESULT_INIT                                                           \
    {                                                                                \
        sizeof(hearth_result), "", "", 0, NULL, 0, NULL, 0, 0, 0, 0.0, 0.0, 0.0, 0.0 \
    }

typedef struct hearth_message {
    const char *role; /* "system", "user" or "assistant" */
    const char *content;
    size_t content_len; /* bytes; SIZE_MAX = up to the NUL */
} hearth_message;

/*
 * Token ids of a conversation and the start of the next reply, in the built-in layout (ChatML), to be used as
 * prompt_ids. Control tokens that a content spells stay text. With follows_reply they continue a prompt and the
 * ids of its reply, which they close first: earlier prompt_ids, the result's ids and these are the next prompt,
 * and only these are computed.
 *
 * *ids lives until the session's next call of this function or its close. Errors: HEARTH_UNSUPPORTED (the
 * vocabulary has no ChatML tokens), HEARTH_INVALID_FIELD (a role), HEARTH_NOMEM.
 */
HEARTH_API hearth_status hearth_chat_ids(hearth_session *session, const hearth_message *messages,
                                         size_t n_messages, bool follows_reply, const int32_t **ids,
                                         size_t *n_ids, hearth_error *error);

/*
 * The same in the layout of the model's own chat template, whole: all messages, and the start of the next reply. A
 * model without one gets the built-in layout. source (may be NULL): Jinja text in the model's place. Its time is
 * that of the machine. Errors: HEARTH_UNSUPPORTED (the template is broken, or refuses these messages: its text is in
 * the message), HEARTH_INVALID_FIELD (a role), HEARTH_NOMEM.
 */
HEARTH_API hearth_status hearth_template_ids(hearth_session *session, const hearth_message *messages,
                                             size_t n_messages, const char *source, const int32_t **ids,
                                             size_t *n_ids, hearth_error *error);

/* Blocks until the reply has ended. token_fn and result may be NULL. A cancelled or timed-out reply is a
 * success with that finish reason and the text so far. Errors: HEARTH_INVALID_FIELD, HEARTH_CONTEXT_LENGTH
 * (both numbers in the message), HEARTH_NEVER_FITS, HEARTH_NOMEM, HEARTH_IO (no seed): the session is as it
 * was, unless tokens had been handed out; HEARTH_NONFINITE, HEARTH_INTERNAL: what the session held is
 * forgotten. */
HEARTH_API hearth_status hearth_generate(hearth_session *session, const hearth_generate_options *options,
                                         hearth_token_fn token_fn, void *ctx, hearth_result *result,
                                         hearth_error *error);
/* From any thread or a signal handler: ends the reply that runs on this session within one step. Does nothing
 * if none runs: it is not remembered for the next one. The session must not be closed meanwhile. */
HEARTH_API void hearth_cancel(hearth_session *session);

/* Figures, from any thread */

typedef struct hearth_stats { /* counters since the model was opened, and pages right now */
    size_t size;
    uint64_t steps, tokens_prefilled, tokens_generated, tokens_reused;
    uint64_t requests_done, requests_failed, requests_cancelled; /* each reply counts in one of the three */
    uint64_t kv_pages_total, kv_pages_used;                      /* of 32 tokens */
} hearth_stats;
#define HEARTH_STATS_INIT                               \
    {                                                   \
        sizeof(hearth_stats), 0, 0, 0, 0, 0, 0, 0, 0, 0 \
    }
HEARTH_API void hearth_stats_get(const hearth_model *model, hearth_stats *stats);

HEARTH_API const char *hearth_version(void);
HEARTH_API const char *hearth_status_text(hearth_status status); /* "out of memory" … ; never NULL */

#ifdef __cplusplus
}
#endif

#endif
