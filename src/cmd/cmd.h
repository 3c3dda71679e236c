/*
 * cmd: the subcommands of `hearth`, one file each. This is the only layer that reads the environment, prints
 * and exits. A command gets its own argv (argv[0] is its name) and returns the process' exit status.
 */
#ifndef HEARTH_CMD_CMD_H
#define HEARTH_CMD_CMD_H

#define EXIT_OK          0
#define EXIT_FAILED      1   /* the work could not be done; the reason is on stderr */
#define EXIT_USAGE       2   /* the command line is wrong; nothing was done */
#define EXIT_INTERRUPTED 130 /* Ctrl-C; what was said is kept */

int cmd_bench(int argc, char **argv);
int cmd_chat(int argc, char **argv);
int cmd_doctor(int argc, char **argv);
int cmd_inspect(int argc, char **argv);
int cmd_logits(int argc, char **argv);
int cmd_perplexity(int argc, char **argv);
int cmd_quantize(int argc, char **argv);
int cmd_render(int argc, char **argv);
int cmd_run(int argc, char **argv);
int cmd_serve(int argc, char **argv);
int cmd_tokenize(int argc, char **argv);
int cmd_version(int argc, char **argv);
int cmd_worker(int argc, char **argv);

#endif
