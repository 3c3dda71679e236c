#include "cmd/model_options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd/cmd.h"

#define MAX_PACK_DIR 4000 /* with a name in it, it must still be a path */

static bool readable(const char *path)
{
    return access(path, R_OK) == 0;
}

/* The variable's value, NULL if it is unset or empty: an empty path means the same to the XDG rules. */
static const char *env_path(const char *name)
{
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

/* The bundled model. A program in its build folder takes the source tree's; an installed one looks beside
 * itself first, so that a tree that was moved still works. */
static bool bundled_path(char *path, size_t cap)
{
    char self[4096];
    ssize_t len = readlink("/proc/self/exe", self, sizeof self - 1);
    self[len > 0 ? len : 0] = 0;
    size_t n_build = strlen(HEARTH_BUILD_ROOT);
    if (strncmp(self, HEARTH_BUILD_ROOT, n_build) == 0 && self[n_build] == '/') {
        snprintf(path, cap, "%s/models/ember/ember.gguf", HEARTH_SOURCE_ROOT);
        return readable(path);
    }
    char *slash = strrchr(self, '/');
    int n =
        slash ? snprintf(path, cap, "%.*s/../share/hearth/models/ember.gguf", (int)(slash - self), self) : -1;
    if (n > 0 && (size_t)n < cap && readable(path)) {
        return true;
    }
    snprintf(path, cap, "%s/ember.gguf", HEARTH_MODEL_DIR);
    return readable(path);
}

static bool is_bundled(const char *name)
{
    return strcmp(name, "ember") == 0 || strcmp(name, "ember.gguf") == 0;
}

int model_path_find(const char *name, char *path, size_t cap)
{
    if (!name && bundled_path(path, cap)) {
        return EXIT_OK;
    }
    if (!name || !*name) {
        fprintf(stderr, "hearth: no model given%s: use -m FILE\n", name ? "" : " and none bundled");
        return EXIT_USAGE;
    }
    if (strncmp(name, "hf:", 3) == 0) {
        fprintf(stderr, "hearth: -m %s: pulling models is not in this version; give a path\n", name);
        return EXIT_FAILED;
    }
    if (strlen(name) >= cap) {
        fprintf(stderr, "hearth: -m: the path is longer than %zu bytes\n", cap - 1);
        return EXIT_FAILED;
    }
    if (strchr(name, '/') || readable(name)) {
        memcpy(path, name, strlen(name) + 1);
        return EXIT_OK; /* if it is not there, opening says why */
    }
    const char *models = env_path("HEARTH_MODELS");
    const char *data = env_path("XDG_DATA_HOME");
    const char *home = env_path("HOME");
    const char *root = models ? models : data ? data : home ? home : "";
    const char *below = models ? "" : data ? "/hearth/models" : "/.local/share/hearth/models";
    static const char *const endings[] = {"", ".gguf"};
    for (size_t i = 0; i < 2; i++) {
        int n = snprintf(path, cap, "%s%s/%s%s", root, below, name, endings[i]);
        if (n > 0 && (size_t)n < cap && readable(path)) {
            return EXIT_OK;
        }
    }
    if (is_bundled(name) && bundled_path(path, cap)) {
        return EXIT_OK;
    }
    fprintf(stderr, "hearth: -m %s: no such file here or in %s%s\n", name, root, below);
    return EXIT_FAILED;
}

static int bar_percent = -1; /* on the screen; -1 = no bar */

static void bar_clear(void)
{
    if (bar_percent >= 0) {
        fprintf(stderr, "\r\033[K");
        bar_percent = -1;
    }
}

void print_err(const char *what, const err *e)
{
    const char *message = e->msg[0] ? e->msg : status_text(e->code);
    bool named = strstr(message, what) != NULL;
    bar_clear();
    fprintf(stderr, "hearth: %s%s%s", named ? "" : what, named ? "" : ": ", message);
    if (e->offset != ERR_NO_OFFSET && !strstr(message, "at byte")) {
        fprintf(stderr, " (at byte %llu)", (unsigned long long)e->offset);
    }
    fputc('\n', stderr);
}

/* $XDG_CACHE_HOME/hearth/NAME or ~/.cache/hearth/NAME in path; NULL without either. */
static const char *cache_dir(const char *name, char path[MAX_PACK_DIR])
{
    const char *cache = env_path("XDG_CACHE_HOME");
    const char *home = env_path("HOME");
    int n = cache  ? snprintf(path, MAX_PACK_DIR, "%s/hearth/%s", cache, name)
            : home ? snprintf(path, MAX_PACK_DIR, "%s/.cache/hearth/%s", home, name)
                   : -1;
    return n > 0 && n < MAX_PACK_DIR ? path : NULL;
}

static const char *default_pack_dir(void)
{
    static char path[MAX_PACK_DIR];
    return cache_dir("packed", path);
}

const char *model_store_dir(void)
{
    static char path[MAX_PACK_DIR];
    return cache_dir("kv", path);
}

static int choose_pack_dir(const model_options_args *a, instance_options *o)
{
    if (a->pack_dir && (a->no_pack_cache || !*a->pack_dir || strlen(a->pack_dir) >= MAX_PACK_DIR)) {
        fprintf(stderr, "hearth: --pack-dir: %s\n",
                a->no_pack_cache ? "it says the opposite of --no-pack-cache"
                : *a->pack_dir   ? "the path is too long"
                                 : "the path is empty");
        return EXIT_USAGE;
    }
    o->pack_dir = a->no_pack_cache ? NULL : a->pack_dir ? a->pack_dir : default_pack_dir();
    o->huge_pages = a->huge_pages;
    return EXIT_OK;
}

int model_options_instance(const model_options_args *a, kv_type default_kv, instance_options *out)
{
    err e = {.offset = ERR_NO_OFFSET};
    instance_options o = instance_options_default();
    o.kv_type = default_kv;
    if (a->cpu && kern_set_parse(a->cpu, &o.cpu, &e) != ST_OK) {
        print_err("--cpu", &e);
        return EXIT_USAGE;
    }
    if (a->kv_type && kv_type_parse(a->kv_type, &o.kv_type, &e) != ST_OK) {
        print_err("--kv-type", &e);
        return EXIT_USAGE;
    }
    o.threads = (size_t)a->threads;
    o.context = (int32_t)a->ctx;
    o.progress = progress_bar;
    int rc = choose_pack_dir(a, &o);
    if (rc == EXIT_OK) {
        *out = o;
    }
    return rc;
}

void progress_bar(void *ctx, double done)
{
    enum { WIDTH = 40 };
    if (done >= 1 || !isatty(STDERR_FILENO)) {
        bar_clear();
        return;
    }
    int percent = (int)(done * 100);
    int filled = (int)(done * WIDTH);
    if (percent == bar_percent) {
        return;
    }
    fprintf(stderr, "\r%s [%.*s%*s] %3d %%", ctx ? (const char *)ctx : "loading", filled,
            "########################################", WIDTH - filled, "", percent);
    bar_percent = percent;
}
