/*
 * serve_main [-b MAX_BODY] [-h HOST] [-p PORT] WORKER [ARG …]: the daemon around any worker, for
 * serve_script.py. It serves the model "stub" on 127.0.0.1 (HOST) and says "listening on URL" on stderr, as
 * hearth serve does.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/log.h"
#include "serve/serve.h"

static void print_listening(void *ctx, const char *url)
{
    fprintf(stderr, "listening on %s\n", url);
}

int main(int argc, char **argv)
{
    static int log_fd = STDERR_FILENO;
    serve_model model = {.id = "stub"};
    serve_config cfg = serve_config_default();
    cfg.models = &model;
    cfg.n_models = 1;
    cfg.listening = print_listening;
    int option;
    while ((option = getopt(argc, argv, "+b:p:h:")) != -1) {
        if (option == 'b') {
            cfg.max_body_bytes = strtoul(optarg, NULL, 10);
        } else if (option == 'p') {
            cfg.port = (uint16_t)strtoul(optarg, NULL, 10);
        } else if (option == 'h') {
            cfg.host = optarg;
        } else {
            return 2;
        }
    }
    if (optind >= argc) {
        return 2;
    }
    model.worker_argv = argv + optind;
    log_set_sink(log_fd_sink, &log_fd, LOG_INFO);
    return serve_run(&cfg);
}
