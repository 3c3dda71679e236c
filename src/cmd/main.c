#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "cmd/cmd.h"

typedef struct command {
    const char *name;
    const char *summary;
    int (*run)(int argc, char **argv);
} command;

static const command commands[] = {
    {"run", "say something to a model and print its reply", cmd_run},
    {"serve", "serve a model over HTTP", cmd_serve},
    {"worker", "serve a model on stdin and stdout, one JSON object a line", cmd_worker},
    {"inspect", "tell what is in a model file", cmd_inspect},
    {"tokenize", "turn text into token ids", cmd_tokenize},
    {"logits", "write the logits of a list of tokens to a file", cmd_logits},
    {"perplexity", "measure how well a model predicts a text", cmd_perplexity},
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

int main(int argc, char **argv)
{
    static int log_fd = STDERR_FILENO;
    log_set_sink(log_fd_sink, &log_fd, LOG_INFO);
    const char *slash = strrchr(argv[0] ? argv[0] : "", '/');
    const char *self = slash ? slash + 1 : argc > 0 ? argv[0] : "";
    if (strcmp(self, "hearth-worker") == 0) { /* a link of this name is `hearth worker` (PROTOCOL) */
        return cmd_worker(argc, argv);
    }
    if (argc < 2) {
        print_usage(stderr);
        return EXIT_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0) {
        print_usage(stdout);
        return EXIT_OK;
    }
    const char *name = strcmp(argv[1], "--version") == 0 ? "version" : argv[1];
    for (size_t i = 0; i < N_COMMANDS; i++) {
        if (strcmp(name, commands[i].name) == 0) {
            return commands[i].run(argc - 1, argv + 1);
        }
    }
    fprintf(stderr, "hearth: no command '%s'\n\n", name);
    print_usage(stderr);
    return EXIT_USAGE;
}
