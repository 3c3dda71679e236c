/*
 * hello: the smallest program that talks to a model and can be interrupted.
 *
 *     cc hello.c -o hello $(pkg-config --cflags --libs hearth)
 *     ./hello model.gguf "Once upon a time"
 *
 * Ctrl-C ends the reply, not the program: what was said stays said.
 */
#include <hearth.h>

#include <signal.h>
#include <stdio.h>

static hearth_session *session;

static void on_interrupt(int sig)
{
    (void)sig;
    hearth_cancel(session); /* may be called from a signal handler */
}

/* Prints the reply as it grows. */
static bool on_token(void *ctx, const hearth_token *token)
{
    (void)ctx;
    fwrite(token->text, 1, token->text_len, stdout);
    fflush(stdout);
    return true;
}

int main(int argc, char **argv)
{
    hearth_error error = HEARTH_ERROR_INIT;
    hearth_model *model = NULL;
    int exit_code = 1;
    if (argc < 2) {
        fprintf(stderr, "usage: %s MODEL.gguf [PROMPT]\n", argv[0]);
        return 2;
    }
    if (hearth_model_open(argv[1], NULL, &model, &error) != HEARTH_OK ||
        hearth_session_open(model, &session, &error) != HEARTH_OK) {
        fprintf(stderr, "%s: %s\n", argv[1], error.message);
        goto out;
    }
    signal(SIGINT, on_interrupt);

    hearth_generate_options options = HEARTH_GENERATE_OPTIONS_INIT;
    hearth_result result = HEARTH_RESULT_INIT;
    options.prompt = argc > 2 ? argv[2] : "Hello";
    options.max_tokens = 64;
    options.temperature = 0.8f;
    if (hearth_generate(session, &options, on_token, NULL, &result, &error) != HEARTH_OK) {
        fprintf(stderr, "%s\n", error.message);
        goto out;
    }
    printf("\n[%zu tokens, %s, %.0f ms, seed %llu]\n", result.n_ids, result.finish_reason, result.total_ms,
           (unsigned long long)result.seed);
    exit_code = 0;
out:
    signal(SIGINT, SIG_DFL);
    hearth_session_close(session);
    hearth_model_close(model);
    return exit_code;
}
