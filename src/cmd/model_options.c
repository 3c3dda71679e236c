#include "cmd/model_options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool readable(const char *path)
{
    return access(path, R_OK) == 0;
}

bool model_path_find(const char *name, char *path, size_t cap)
{
    if (!name) {
        fprintf(stderr, "hearth: no model given: use -m FILE\n");
        return false;
    }
    if (strncmp(name, "hf:", 3) == 0) {
        fprintf(stderr, "hearth: -m %s: pulling models is not in this version; give a path\n", name);
        return false;
    }
    if (strlen(name) >= cap) {
        fprintf(stderr, "hearth: -m: the path is longer than %zu bytes\n", cap - 1);
        return false;
    }
    if (strchr(name, '/') || readable(name)) {
        memcpy(path, name, strlen(name) + 1);
        return true; /* if it is not there, opening says why */
    }
    const char *models = getenv("HEARTH_MODELS");
    const char *data = getenv("XDG_DATA_HOME");
    const char *home = getenv("HOME");
    const char *root = models ? models : data ? data : home ? home : "";
    const char *below = models ? "" : data ? "/hearth/models" : "/.local/share/hearth/models";
    static const char *const endings[] = {"", ".gguf"};
    for (size_t i = 0; i < 2; i++) {
        int n = snprintf(path, cap, "%s%s/%s%s", root, below, name, endings[i]);
        if (n > 0 && (size_t)n < cap && readable(path)) {
            return true;
        }
    }
    fprintf(stderr, "hearth: -m %s: no such file here or in %s%s\n", name, root, below);
    return false;
}

void print_err(const char *what, const err *e)
{
    fprintf(stderr, "hearth: %s: %s", what, e->msg[0] ? e->msg : status_text(e->code));
    if (e->offset != ERR_NO_OFFSET) {
        fprintf(stderr, " (at byte %llu)", (unsigned long long)e->offset);
    }
    fputc('\n', stderr);
}

bool model_options_instance(const model_options_args *a, kv_type default_kv, instance_options *out)
{
    err e = {0};
    instance_options o = instance_options_default();
    o.kv_type = default_kv;
    if (a->cpu && kern_set_parse(a->cpu, &o.cpu, &e) != ST_OK) {
        print_err("--cpu", &e);
        return false;
    }
    if (a->kv_type && kv_type_parse(a->kv_type, &o.kv_type, &e) != ST_OK) {
        print_err("--kv-type", &e);
        return false;
    }
    o.threads = (size_t)a->threads;
    o.context = (int32_t)a->ctx;
    *out = o;
    return true;
}

void progress_bar(void *ctx, double done)
{
    enum { WIDTH = 40 };
    if (!isatty(STDERR_FILENO)) {
        return;
    }
    if (done >= 1) {
        fprintf(stderr, "\r\033[K");
        return;
    }
    int filled = (int)(done * WIDTH);
    fprintf(stderr, "\rloading [%.*s%*s] %3.0f %%", filled, "########################################",
            WIDTH - filled, "", done * 100);
}
