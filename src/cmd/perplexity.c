/*
 * hearth perplexity: the text is tokenised as one string without special tokens and cut into pieces of window
 * - 1 ids. Each piece is run after BOS from an empty cache; each of its ids is scored once, with the logits
 * of the place before it. A model without BOS scores the ids of each window but its first.
 */
#include <math.h>
#include <stdio.h>

#include "base/buf.h"
#include "base/json.h"
#include "base/vec.h"
#include "cmd/answer.h"
#include "cmd/args.h"
#include "cmd/cmd.h"
#include "cmd/model_options.h"
#include "cmd/read_text.h"
#include "cmd/reference_door.h"

typedef struct score {
    const int32_t *window; /* ids as fed */
    size_t n;
    size_t n_vocab;
    double nll; /* sum over scored ids */
    size_t scored;
} score;

/* -log softmax(logits)[id] in double */
static double token_nll(const float *logits, size_t n_vocab, int32_t id)
{
    double max = (double)logits[0];
    for (size_t i = 1; i < n_vocab; i++) {
        max = fmax(max, (double)logits[i]);
    }
    double sum = exp((double)logits[0] - max);
    for (size_t i = 1; i < n_vocab; i++) {
        sum += exp((double)logits[i] - max);
    }
    return log(sum) + max - (double)logits[id];
}

static status score_row(void *ctx, size_t pos, const float *logits)
{
    score *s = ctx;
    if (pos + 1 < s->n) {
        s->nll += token_nll(logits, s->n_vocab, s->window[pos + 1]);
        s->scored++;
    }
    return ST_OK;
}

static status score_text(instance *in, const ivec *ids, size_t window, score *s, err *e)
{
    int32_t bos = tokenizer_bos(instance_tokenizer(in));
    size_t step = window - (bos != TOKEN_NONE ? 1 : 0);
    char label[] = "scoring";
    ivec piece = {0};
    status st = ST_OK;
    for (size_t at = 0; st == ST_OK && at < ids->len; at += step) {
        size_t n = ids->len - at < step ? ids->len - at : step;
        ivec_reset(&piece);
        if (bos != TOKEN_NONE) {
            st = ivec_push(&piece, bos);
        }
        if (st == ST_OK) {
            st = ivec_append(&piece, ids->data + at, n);
        }
        if (st == ST_OK) {
            s->window = piece.data;
            s->n = piece.len;
            st = door_run(in, DOOR_LOGITS, piece.data, piece.len, score_row, s, e);
        }
        progress_bar(label, (double)(at + n) / (double)ids->len);
    }
    ivec_release(&piece);
    return st;
}

static int print_score(const score *s, size_t n_tokens, bool as_json)
{
    double nll = s->nll / (double)s->scored;
    if (!as_json) {
        printf("%zu of %zu tokens scored, mean negative log-likelihood %.6f, perplexity %.6f\n", s->scored,
               n_tokens, nll, exp(nll));
        return EXIT_OK;
    }
    buf out = {0};
    json_w w;
    json_w_begin(&w, &out);
    json_w_obj_open(&w);
    json_w_key(&w, "tokens");
    json_w_u64(&w, s->scored);
    json_w_key(&w, "nll");
    json_w_f64(&w, nll);
    json_w_key(&w, "ppl");
    json_w_f64(&w, exp(nll));
    json_w_obj_close(&w);
    return answer_json(&w, &out);
}

static int perplexity(const char *path, const instance_options *opt, const buf *text, size_t window,
                      bool as_json)
{
    err e = {.offset = ERR_NO_OFFSET};
    instance *in = NULL;
    ivec ids = {0};
    int rc = EXIT_FAILED;
    if (instance_open(path, opt, &in, &e) != ST_OK) {
        print_err(path, &e);
        return EXIT_FAILED;
    }
    const instance_info *info = instance_describe(in);
    score s = {.n_vocab = (size_t)info->n_vocab};
    status st = tokenizer_encode(instance_tokenizer(in), buf_str(text), text->len, 0, &ids);
    if (st == ST_OK && window > (size_t)info->context) {
        st = err_set(&e, ST_CONTEXT_LENGTH, "window", "a window of %zu tokens (-w) exceeds the context of %d",
                     window, info->context);
    }
    if (st == ST_OK) {
        st = score_text(in, &ids, window, &s, &e);
    }
    if (st == ST_OK && s.scored == 0) {
        st = err_set(&e, ST_INVALID_FIELD, "file", "the text is too short: no token of it can be scored");
    }
    if (st == ST_OK) {
        rc = print_score(&s, ids.len, as_json);
    } else {
        e.code = st;
        print_err("perplexity", &e);
    }
    ivec_release(&ids);
    instance_close(in);
    return rc;
}

int cmd_perplexity(int argc, char **argv)
{
    model_options_args model = {0};
    const char *file = NULL;
    int64_t window = 256;
    bool as_json = false;
    const cli_arg table[] = {
        MODEL_OPTION_ROWS(model),
        {"file", 'f', ARG_TEXT, &file, 0, 0, "FILE  the text (default: stdin)"},
        {"window", 'w', ARG_INT, &window, 2, 1 << 24, "N  tokens a window, BOS included (256)"},
        {"json", 0, ARG_FLAG, &as_json, 0, 0, "print {\"tokens\", \"nll\", \"ppl\"}"},
    };
    const char *pos[1];
    size_t n_pos;
    int rc;
    if (!args_parse(argc, argv, "perplexity -m FILE [-f FILE] [-w N] [--json]", table,
                    sizeof table / sizeof table[0], pos, 0, &n_pos, &rc)) {
        return rc;
    }
    char path[4096];
    instance_options opt;
    buf text = {0};
    rc = model_path_find(model.model, path, sizeof path);
    rc = rc ? rc : model_options_instance(&model, KV_F32, &opt);
    rc = rc ? rc : read_prompt(NULL, file, &text);
    if (rc == EXIT_OK) {
        rc = perplexity(path, &opt, &text, (size_t)window, as_json);
    }
    buf_release(&text);
    return rc;
}
