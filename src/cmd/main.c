#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "cmd/answer.h"
#include "cmd/cmd.h"

typedef struct command {
    const char *name;
    const char *summary;
    int (*run)(int argc, char **argv);
} command;

static const command commands[] = {
    {"run", "say something to a model and print its reply", cmd_run},
    {"chat", "talk with a model", cmd_chat},
    {"serve", "serve a model over HTTP", cmd_serve},
    {"worker", "serve a model on stdin and stdout, one JSON object a line", cmd_worker},
    {"inspect", "tell what is in a model file", cmd_inspect},
    {"tokenize", "turn text into token ids", cmd_tokenize},
    {"logits", "write the logits of a list of tokens to a file", cmd_logits},
    {"perplexity", "measure how well a model predicts a text", cmd_perplexity},
    {"render", "render a chat template with a case of messages", cmd_render},
    {"quantize", "write a model again with its weights in another format", cmd_quantize},
    {"bench", "measure a model's speed beside what this machine allows", cmd_bench},
    {"doctor", "tell what this machine offers", cmd_doctor},
    {"version", "print the version", cmd_version},
};

#define N_COMMANDS (sizeof commands / sizeof commands[0])

static void print_usage(FILE *to)
{
    fprintf(to, "usage: hearth COMMAND [OPTION …]\n\n");
    for (size_t i = 0; i < N_COMMANDS; i++) {
        fprintf(to, "  %-12s %s\n", commands[i].name, commands[i].summary);
    }
    fprintf(to, "\nhearth COMMAND --help tells the options.\n");
}

/* A standard descriptor that is closed would be taken by the next file that is opened, and written to. Each
 * gets /dev/null the wrong way round, so that using it still fails. */
static void hold_std_descriptors(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) != fd) {
            return; /* no /dev/null: nothing better can be done */
        }
    }
}

static int dispatch(int argc, char **argv)
{
    if (argc < 2) {
        print_usage(stderr);
        return EXIT_USAGE;
    }
    char help[] = "--help";
    char *ask[] = {argv[0], argc > 2 ? argv[2] : NULL, help, NULL};
    const char *name = strcmp(argv[1], "--version") == 0 ? "version" : argv[1];
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0) {
        if (!ask[1]) {
            print_usage(stdout);
            return EXIT_OK;
        }
        name = ask[1]; /* hearth help run = hearth run --help */
        argc = 3;
        argv = ask;
    }
    for (size_t i = 0; i < N_COMMANDS; i++) {
        if (strcmp(name, commands[i].name) == 0) {
            return commands[i].run(argc - 1, argv + 1);
        }
    }
    fprintf(stderr, "hearth: no command '%s'\n\n", name);
    print_usage(stderr);
    return EXIT_USAGE;
}

int main(int argc, char **argv)
{
    static int log_fd = STDERR_FILENO;
    static char name[] = "worker";
    log_set_sink(log_fd_sink, &log_fd, LOG_INFO);
    const char *slash = strrchr(argc > 0 ? argv[0] : "", '/');
    const char *self = slash ? slash + 1 : argc > 0 ? argv[0] : "";
    if (strcmp(self, "hearth-worker") == 0) { /* a link of this name is `hearth worker` (PROTOCOL) */
        argv[0] = name;
        return cmd_worker(argc, argv);
    }
    if (argc > 1 && strcmp(argv[1], name) == 0) { /* it looks after its descriptors itself */
        return cmd_worker(argc - 1, argv + 1);
    }
    hold_std_descriptors();
    signal(SIGPIPE, SIG_IGN);
    return answer_end(dispatch(argc, argv));
}
