/*
 * hearth worker (and the link hearth-worker): the command line of the worker process; the work is in worker/.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/vec.h"
#include "cmd/args.h"
#include "cmd/cmd.h"
#include "cmd/model_options.h"
#include "cmd/parse_ids.h"
#include "cmd/read_text.h"
#include "worker/worker.h"

/* What the environment says of the descriptors that came with the process. The variables are gone afterwards,
 * whatever they held: they mean nothing to what this process might start. */
static void read_environment(char control[64], bool *has_control, int *status_fd)
{
    static const char *const names[] = {"HEARTH_WORKER_CONTROL_FD", "EXECUTORCH_LLM_WORKER_CONTROL_FD"};
    const char *page = getenv("HEARTH_WORKER_STATUS_FD");
    char *end;
    *has_control = false;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *value = getenv(names[i]);
        if (value && !*has_control) {
            *has_control = true;
            if (snprintf(control, 64, "%s", value) >= 64) {
                control[0] = '\0'; /* its beginning alone might name a descriptor */
            }
        }
        unsetenv(names[i]);
    }
    long fd = page && *page >= '0' && *page <= '9' ? strtol(page, &end, 10) : -1;
    *status_fd = fd > STDERR_FILENO && fd <= INT32_MAX && *end == '\0' ? (int)fd : -1;
    unsetenv("HEARTH_WORKER_STATUS_FD");
}

/* The client reads frames, not stderr: of one that is not there worker_run says load_failed, by the name as it was
 * given. */
static int find_model(const char *name, char *path, size_t cap)
{
    int rc = model_path_find(name, path, cap);
    if (rc == EXIT_FAILED) {
        snprintf(path, cap, "%s", name);
        rc = EXIT_OK;
    }
    return rc;
}

/* What of it the plan is made from. */
typedef struct memory_args {
    int64_t pages, bytes, most_bytes;
} memory_args;

static void use_memory(instance_options *o, const memory_args *a)
{
    o->kv_pages = (size_t)a->pages;
    o->memory_bytes = (uint64_t)a->bytes;
    o->memory_most_bytes = (uint64_t)a->most_bytes;
}

static void use_store(worker_config *cfg, const char *dir, int64_t bytes, int64_t daily)
{
    cfg->store_dir = dir;
    cfg->instance.store_bytes = (uint64_t)bytes;
    cfg->instance.store_daily_bytes = (uint64_t)daily;
}

int cmd_worker(int argc, char **argv)
{
    model_options_args model = {0};
    const char *model_path = NULL, *tokenizer_path = NULL, *prefix = NULL, *template_file = NULL;
    const char *tool_format = NULL;
    int64_t max_sessions = WORKER_DEFAULT_SESSIONS; /* its range is worker_run's to check */
    int64_t slow_reader_s = WORKER_SLOW_READER_MS / 1000;
    const char *store_dir = NULL;
    int64_t store_bytes = MODEL_STORE_BYTES, store_daily = MODEL_STORE_DAILY_BYTES;
    memory_args memory = {0};
    bool no_warm = false, no_sandbox = false, plan = false;
    const cli_arg table[] = {
        MODEL_OPTION_ROWS(model),
        {"max-sessions", 0, ARG_INT, &max_sessions, INT32_MIN, INT32_MAX,
         "N  slots, the anonymous one included (8)"},
        {"no-warm", 0, ARG_FLAG, &no_warm, 0, 0, "never reuse what a session has read"},
        {"store", 0, ARG_TEXT, &store_dir, 0, 0,
         "DIR  keep what was read on disk, too, in a folder of the model's below"},
        {"store-bytes", 0, ARG_INT, &store_bytes, 1, MODEL_STORE_MOST,
         "N  bytes that may be kept there (8589934592)"},
        {"store-daily-bytes", 0, ARG_INT, &store_daily, 0, MODEL_STORE_MOST,
         "N  bytes that may be written there in a day (68719476736; 0: any)"},
        {"kv-pages", 0, ARG_INT, &memory.pages, 1, INT32_MAX,
         "N  pages of keys and values, 32 tokens each (default: as planned)"},
        {"memory-bytes", 0, ARG_INT, &memory.bytes, 1, MODEL_MEMORY_MOST,
         "N  memory to plan with (default: what the machine and its control groups allow)"},
        {"memory-most-bytes", 0, ARG_INT, &memory.most_bytes, 1, MODEL_MEMORY_MOST,
         "N  the same once kv_limit gives it more (default: no more)"},
        {"plan", 0, ARG_FLAG, &plan, 0, 0, "say what memory the model would take, and end"},
        {"no-sandbox", 0, ARG_FLAG, &no_sandbox, 0, 0,
         "for debuggers: keep all rights while reading the model"},
        {"prefix-ids", 0, ARG_TEXT, &prefix, 0, 0, "IDS  token ids before every prompt"},
        {"chat-template", 0, ARG_TEXT, &template_file, 0, 0,
         "FILE  a Jinja template in place of the model's"},
        {"tool-format", 0, ARG_TEXT, &tool_format, 0, 0, "NAME  how replies spell tool calls: hermes …"},
        {"slow-reader-timeout", 0, ARG_INT, &slow_reader_s, 1, 1000000,
         "SECONDS  after which a paused request ends (120)"},
        {"model_path", 0, ARG_TEXT, &model_path, 0, 0, "FILE  the same as --model"},
        {"tokenizer_path", 0, ARG_TEXT, &tokenizer_path, 0, 0,
         "FILE  ignored: the tokenizer is in the model"},
    };
    const char *pos[1];
    size_t n_pos;
    int rc;
    if (!args_parse(argc, argv, "worker -m FILE [OPTION …]", table, sizeof table / sizeof table[0], pos, 0,
                    &n_pos, &rc)) {
        return rc;
    }
    char path[4096], control[64];
    bool has_control;
    worker_config cfg = worker_config_default(path);
    read_environment(control, &has_control, &cfg.status_fd);
    ivec ids = {0};
    buf source = {0};
    rc = find_model(model.model ? model.model : model_path, path, sizeof path);
    rc = rc ? rc : model_options_instance(&model, KV_F16, &cfg.instance);
    rc = rc || !prefix ? rc : parse_ids("--prefix-ids", prefix, &ids);
    rc = rc || !template_file ? rc : read_template(template_file, &source);
    if (rc == EXIT_OK) {
        cfg.chat_template = template_file ? buf_str(&source) : NULL;
        cfg.tool_format = tool_format;
        cfg.max_sessions = (int32_t)max_sessions;
        cfg.warm = !no_warm;
        use_store(&cfg, store_dir, store_bytes, store_daily);
        use_memory(&cfg.instance, &memory);
        cfg.plan_only = plan;
        cfg.sandbox = !no_sandbox;
        cfg.slow_reader_ms = (uint64_t)slow_reader_s * 1000;
        cfg.control_fd = has_control ? control : NULL;
        cfg.prefix_ids = ids.data;
        cfg.n_prefix_ids = ids.len;
        rc = worker_run(&cfg);
    }
    ivec_release(&ids);
    buf_release(&source);
    return rc;
}
