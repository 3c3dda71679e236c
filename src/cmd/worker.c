/*
 * hearth worker (and the link hearth-worker): the command line of the worker process; the work is in worker/.
 */
#include <stdio.h>
#include <unistd.h>

#include "base/vec.h"
#include "cmd/args.h"
#include "cmd/cmd.h"
#include "cmd/model_options.h"
#include "cmd/parse_ids.h"
#include "worker/worker.h"

int cmd_worker(int argc, char **argv)
{
    model_options_args model = {0};
    const char *model_path = NULL, *tokenizer_path = NULL, *prefix = NULL;
    int64_t max_sessions = WORKER_DEFAULT_SESSIONS; /* its range is worker_run's to check */
    bool no_warm = false;
    const cli_arg table[] = {
        MODEL_OPTION_ROWS(model),
        {"max-sessions", 0, ARG_INT, &max_sessions, INT32_MIN, INT32_MAX,
         "N  slots, the anonymous one included (8)"},
        {"no-warm", 0, ARG_FLAG, &no_warm, 0, 0, "never reuse what a session has read"},
        {"prefix-ids", 0, ARG_TEXT, &prefix, 0, 0, "IDS  token ids before every prompt"},
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
    char path[4096];
    worker_config cfg = worker_config_default(path);
    ivec ids = {0};
    const char *name = model.model ? model.model : model_path;
    rc = model_path_find(name, path, sizeof path);
    if (rc == EXIT_FAILED) {
        /* The client reads frames, not stderr: worker_run says load_failed about the name as it was given. */
        snprintf(path, sizeof path, "%s", name);
        rc = EXIT_OK;
    }
    rc = rc ? rc : model_options_instance(&model, KV_F16, &cfg.instance);
    rc = rc || !prefix ? rc : parse_ids("--prefix-ids", prefix, &ids);
    if (rc == EXIT_OK) {
        cfg.max_sessions = (int32_t)max_sessions;
        cfg.warm = !no_warm;
        cfg.prefix_ids = ids.data;
        cfg.n_prefix_ids = ids.len;
        rc = worker_run(&cfg);
    }
    ivec_release(&ids);
    return rc;
}
