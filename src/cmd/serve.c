/*
 * hearth serve: the command line of the daemon; the work is in serve/. The worker it supervises is this
 * program.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd/args.h"
#include "cmd/cmd.h"
#include "cmd/model_options.h"
#include "serve/serve.h"

static void print_listening(void *ctx, const char *url)
{
    fprintf(stderr, "listening on %s\n", url);
}

/* "/models/ember.gguf" is served as "ember". */
static void model_id(const char *path, char *id, size_t cap)
{
    const char *slash = strrchr(path, '/');
    snprintf(id, cap, "%.200s", slash ? slash + 1 : path);
    char *dot = strrchr(id, '.');
    if (dot && dot != id && strcmp(dot, ".gguf") == 0) {
        *dot = 0;
    }
}

static int serve(const model_options_args *m, char *path, const char *host, uint16_t port)
{
    char self[4096], id[256], threads[40], ctx[40], cpu[32], kv[32];
    char word[] = "worker", option_m[] = "--model";
    ssize_t len = readlink("/proc/self/exe", self, sizeof self - 1);
    if (len <= 0) {
        fprintf(stderr, "hearth: serve: cannot find this program to start workers (/proc/self/exe)\n");
        return EXIT_FAILED;
    }
    self[len] = 0;
    snprintf(threads, sizeof threads, "--threads=%lld", (long long)m->threads);
    snprintf(ctx, sizeof ctx, "--ctx=%lld", (long long)m->ctx);
    snprintf(cpu, sizeof cpu, "--cpu=%s", m->cpu ? m->cpu : "");
    snprintf(kv, sizeof kv, "--kv-type=%s", m->kv_type ? m->kv_type : "");
    char *list[] = {self, word, option_m, path, NULL, NULL, NULL, NULL, NULL};
    size_t n = 4;
    if (m->threads) {
        list[n++] = threads;
    }
    if (m->ctx) {
        list[n++] = ctx;
    }
    if (m->cpu) {
        list[n++] = cpu;
    }
    if (m->kv_type) {
        list[n++] = kv;
    }
    model_id(path, id, sizeof id);
    const serve_model served = {.id = id, .worker_argv = list};
    serve_config cfg = serve_config_default();
    cfg.models = &served;
    cfg.n_models = 1;
    cfg.host = host;
    cfg.port = port;
    cfg.listening = print_listening;
    return serve_run(&cfg) == 0 ? EXIT_OK : EXIT_FAILED;
}

int cmd_serve(int argc, char **argv)
{
    model_options_args model = {0};
    const char *host = "127.0.0.1";
    int64_t port = 8080;
    const cli_arg table[] = {
        MODEL_OPTION_ROWS(model),
        {"host", 0, ARG_TEXT, &host, 0, 0, "ADDRESS  to listen on (127.0.0.1)"},
        {"port", 'p', ARG_INT, &port, 0, 65535, "N  to listen on (8080; 0: any free one)"},
    };
    const char *pos[1];
    size_t n_pos;
    int rc;
    if (!args_parse(argc, argv, "serve -m FILE [OPTION …]", table, sizeof table / sizeof table[0], pos, 0,
                    &n_pos, &rc)) {
        return rc;
    }
    char path[4096];
    instance_options checked; /* faults of --cpu and --kv-type are told here, not by the worker */
    rc = model_path_find(model.model, path, sizeof path);
    rc = rc ? rc : model_options_instance(&model, KV_F16, &checked);
    return rc ? rc : serve(&model, path, host, (uint16_t)port);
}
