/*
 * worker_main: the worker alone, without the rest of the program, for worker_script.py. Takes the options of
 * `hearth worker` that the script uses.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/vec.h"
#include "worker/worker.h"

static int usage(const char *why)
{
    fprintf(
        stderr,
        "worker_main: %s\nusage: worker_main -m MODEL [--max-sessions N] [--no-warm] [--prefix-ids \"2 3\"]"
        " [--ctx N] [--threads N] [--slow-reader-timeout N] [--pack-dir DIR] [--kv-pages N]"
        " [--park-bytes N]\n",
        why);
    return 2;
}

static void read_ids(const char *text, ivec *ids)
{
    char *end;
    for (const char *p = text; *p != '\0'; p = *end == ' ' ? end + 1 : end) {
        long id = strtol(p, &end, 10);
        if (end == p || ivec_push(ids, (int32_t)id) != ST_OK) {
            exit(usage("--prefix-ids wants numbers"));
        }
    }
}

int main(int argc, char **argv)
{
    static const int log_fd = STDERR_FILENO;
    worker_config cfg = worker_config_default(NULL);
    const char *page = getenv("HEARTH_WORKER_STATUS_FD");
    cfg.control_fd = getenv("HEARTH_WORKER_CONTROL_FD");
    if (!cfg.control_fd) {
        cfg.control_fd = getenv("EXECUTORCH_LLM_WORKER_CONTROL_FD");
    }
    cfg.status_fd = page ? (int)strtol(page, NULL, 10) : -1;
    ivec prefix = {0};
    log_set_sink(log_fd_sink, (void *)(intptr_t)&log_fd, LOG_INFO);
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (strcmp(argv[i], "--no-warm") == 0) {
            cfg.warm = false;
            continue;
        }
        if (strcmp(argv[i], "--no-sandbox") == 0) {
            cfg.sandbox = false;
            continue;
        }
        if (!value) {
            return usage("an option lacks its value");
        }
        if (strcmp(argv[i], "-m") == 0) {
            cfg.model_path = value;
        } else if (strcmp(argv[i], "--max-sessions") == 0) {
            cfg.max_sessions = (int32_t)strtol(value, NULL, 10);
        } else if (strcmp(argv[i], "--prefix-ids") == 0) {
            read_ids(value, &prefix);
        } else if (strcmp(argv[i], "--ctx") == 0) {
            cfg.instance.context = (int32_t)strtol(value, NULL, 10);
        } else if (strcmp(argv[i], "--threads") == 0) {
            cfg.instance.threads = (size_t)strtol(value, NULL, 10);
        } else if (strcmp(argv[i], "--pack-dir") == 0) {
            cfg.instance.pack_dir = value;
            cfg.instance.pack_min_bytes = 0; /* however small the model */
        } else if (strcmp(argv[i], "--kv-pages") == 0) {
            cfg.instance.kv_pages = (size_t)strtoull(value, NULL, 10);
        } else if (strcmp(argv[i], "--park-bytes") == 0) {
            cfg.instance.park_bytes = (uint64_t)strtoull(value, NULL, 10);
        } else if (strcmp(argv[i], "--slow-reader-timeout") == 0) {
            cfg.slow_reader_ms = (uint64_t)strtoull(value, NULL, 10) * 1000;
        } else {
            return usage(argv[i]);
        }
        i++;
    }
    if (!cfg.model_path) {
        return usage("-m is missing");
    }
    cfg.prefix_ids = prefix.data;
    cfg.n_prefix_ids = prefix.len;
    int rc = worker_run(&cfg);
    ivec_release(&prefix);
    return rc;
}
