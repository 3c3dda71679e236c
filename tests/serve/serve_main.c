/*
 * serve_main [-o NAME=VALUE …] WORKER [ARG …] [and WORKER [ARG …]]…: the daemon around any workers, for the
 * scripts. It serves the models "stub", "stub-2" … on 127.0.0.1 and says "listening on URL" on stderr, as
 * hearth serve does. NAME: host, keys, unix, journal (paths), keepalive_kind (comment, delta), or a number: port, body,
 * waiting, waiting_bytes, journal_bytes, stall, grace, steady, stop_grace, tick, drain, keepalive, session_ttl (times in ms), sessions (per key), respawns.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "serve/serve.h"

#define MAX_MODELS 8

static void print_listening(void *ctx, const char *url)
{
    fprintf(stderr, "listening on %s\n", url);
}

static int set_text(serve_config *cfg, const char *name, const char *value)
{
    if (strcmp(name, "host") == 0) {
        cfg->host = value[0] ? value : NULL;
    } else if (strcmp(name, "keys") == 0) {
        cfg->keys_path = value;
    } else if (strcmp(name, "unix") == 0) {
        cfg->unix_path = value;
    } else if (strcmp(name, "journal") == 0) {
        cfg->journal_dir = value;
    } else if (strcmp(name, "keepalive_kind") == 0) {
        cfg->sse_keepalive_kind = strcmp(value, "delta") == 0 ? SSE_KEEPALIVE_DELTA : SSE_KEEPALIVE_COMMENT;
    } else {
        return 0;
    }
    return 1;
}

static int set_number(serve_config *cfg, const char *name, uint64_t value)
{
    service_limits *l = &cfg->limits;
    const struct {
        const char *name;
        uint64_t *at;
    } numbers[] = {{"body", &cfg->max_body_bytes},
                   {"waiting", &l->max_waiting},
                   {"waiting_bytes", &l->max_waiting_bytes},
                   {"stall", &l->stall_ms},
                   {"grace", &l->cancel_grace_ms},
                   {"steady", &l->steady_ms},
                   {"stop_grace", &l->stop_grace_ms},
                   {"tick", &l->tick_ms},
                   {"drain", &cfg->drain_ms},
                   {"journal_bytes", &cfg->journal_bytes},
                   {"session_ttl", &cfg->session_ttl_ms},
                   {"sessions", &cfg->max_sessions_per_key},
                   {"keepalive", &cfg->sse_keepalive_ms}};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        if (strcmp(name, numbers[i].name) == 0) {
            *numbers[i].at = value;
            return 1;
        }
    }
    if (strcmp(name, "port") == 0) {
        cfg->port = (uint16_t)value;
    } else if (strcmp(name, "numerics") == 0) {
        cfg->numerics = (uint32_t)value;
    } else if (strcmp(name, "respawns") == 0) {
        l->max_respawns = (unsigned)value;
    } else {
        return 0;
    }
    return 1;
}

static int set_option(serve_config *cfg, char *option)
{
    char *value = strchr(option, '=');
    if (!value) {
        return 0;
    }
    *value++ = 0;
    return set_text(cfg, option, value) || set_number(cfg, option, strtoull(value, NULL, 10));
}

int main(int argc, char **argv)
{
    static int log_fd = STDERR_FILENO;
    serve_model list[MAX_MODELS];
    char names[MAX_MODELS][16];
    serve_config cfg = serve_config_default();
    int option;
    cfg.models = list;
    cfg.listening = print_listening;
    while ((option = getopt(argc, argv, "+o:")) != -1) {
        if (option != 'o' || !set_option(&cfg, optarg)) {
            return 2;
        }
    }
    while (optind < argc && cfg.n_models < MAX_MODELS) {
        size_t i = cfg.n_models++;
        snprintf(names[i], sizeof names[i], i == 0 ? "stub" : "stub-%zu", i + 1);
        list[i] = (serve_model){.id = names[i], .worker_argv = argv + optind};
        while (optind < argc && strcmp(argv[optind], "and") != 0) {
            optind++;
        }
        argv[optind++] = NULL;
    }
    if (cfg.n_models == 0) {
        return 2;
    }
    log_set_sink(log_fd_sink, &log_fd, LOG_INFO);
    return serve_run(&cfg);
}
