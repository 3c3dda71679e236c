#include "serve/worker_proc.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/mem.h"

#define FIRST_FREE_FD 3 /* 0 to 2 are the worker's own */

/* All close-on-exec. [0] is read, [1] is written. */
typedef struct pipes {
    int in[2], out[2]; /* the worker's stdin and stdout */
    int told[2];       /* errno of a failed start; EOF once exec has succeeded */
    int status;        /* a second descriptor of the status page, above 2; -1 = none */
} pipes;

/* What the child needs is made before fork: nothing may be allocated between fork and exec. */
typedef struct environment {
    char **vars; /* owned: the array; the strings are those of environ and the next */
    char status[sizeof WORKER_STATUS_FD_NAME + 16];
} environment;

static void close_both(int fd[2])
{
    for (int i = 0; i < 2; i++) {
        if (fd[i] >= 0) {
            close(fd[i]);
            fd[i] = -1;
        }
    }
}

static void close_pipes(pipes *p)
{
    close_both(p->in);
    close_both(p->out);
    close_both(p->told);
    if (p->status >= 0) {
        close(p->status);
    }
}

static bool open_pipes(pipes *p, int status_fd)
{
    *p = (pipes){{-1, -1}, {-1, -1}, {-1, -1}, -1};
    if (status_fd >= 0) {
        p->status = fcntl(status_fd, F_DUPFD_CLOEXEC, FIRST_FREE_FD);
        if (p->status < 0) {
            return false;
        }
    }
    return pipe2(p->in, O_CLOEXEC) == 0 && pipe2(p->out, O_CLOEXEC) == 0 && pipe2(p->told, O_CLOEXEC) == 0 &&
           fcntl(p->in[1], F_SETFL, O_NONBLOCK) == 0 && fcntl(p->out[0], F_SETFL, O_NONBLOCK) == 0;
}

static bool names_descriptor(const char *var)
{
    static const char *const names[] = {WORKER_STATUS_FD_NAME "=",
                                        "HEARTH_WORKER_CONTROL_FD=", "EXECUTORCH_LLM_WORKER_CONTROL_FD="};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strncmp(var, names[i], strlen(names[i])) == 0) {
            return true;
        }
    }
    return false;
}

static status make_environment(environment *env, int status_fd)
{
    size_t n = 0, kept = 0;
    while (environ && environ[n]) {
        n++;
    }
    env->vars = mem_calloc(n + 2, sizeof *env->vars); /* the status page, and the end */
    if (!env->vars) {
        return ST_NOMEM;
    }
    for (size_t i = 0; i < n; i++) {
        if (!names_descriptor(environ[i])) {
            env->vars[kept++] = environ[i];
        }
    }
    if (status_fd >= 0) {
        snprintf(env->status, sizeof env->status, "%s=%d", WORKER_STATUS_FD_NAME, status_fd);
        env->vars[kept] = env->status;
    }
    return ST_OK;
}

/* dup2 leaves the close-on-exec flag on if both are the same descriptor. */
static bool put_at(int fd, int place)
{
    return fd == place ? fcntl(fd, F_SETFD, 0) == 0 : dup2(fd, place) == place;
}

/* Between fork and exec: only calls that are safe after fork. */
static bool become_worker(const pipes *p, pid_t parent)
{
    sigset_t none;
    struct sigaction plain = {.sa_handler = SIG_DFL};
    sigemptyset(&none);
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || setpgid(0, 0) != 0) {
        return false;
    }
    if (getppid() != parent) { /* it died before the signal was asked for */
        kill(getpid(), SIGKILL);
    }
    /* our handlers must not run here, and ignored signals stay ignored over exec */
    sigaction(SIGTERM, &plain, NULL);
    sigaction(SIGINT, &plain, NULL);
    sigaction(SIGCHLD, &plain, NULL);
    sigaction(SIGPIPE, &plain, NULL);
    /* what we inherited ourselves is not for workers; a kernel without it only lets it through */
    close_range(3, ~0u, CLOSE_RANGE_CLOEXEC);
    return put_at(p->in[0], 0) && put_at(p->out[1], 1) && (p->status < 0 || put_at(p->status, p->status)) &&
           sigprocmask(SIG_SETMASK, &none, NULL) == 0;
}

static void run_worker(const pipes *p, pid_t parent, char *const argv[], char *const vars[])
{
    if (become_worker(p, parent)) {
        execve(argv[0], argv, vars);
    }
    int why = errno;
    ssize_t n = write(p->told[1], &why, sizeof why);
    (void)n;                 /* nobody is left to be told */
    kill(getpid(), SIGKILL); /* no exit handler of the daemon may run here */
}

/* 0 if the worker runs, else its errno. */
static int wait_for_exec(pipes *p)
{
    int why = 0;
    ssize_t n;
    close(p->told[1]);
    p->told[1] = -1;
    do {
        n = read(p->told[0], &why, sizeof why);
    } while (n < 0 && errno == EINTR);
    return n == (ssize_t)sizeof why ? why : 0;
}

static void reap(pid_t pid)
{
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR) {
    }
}

/* Forks; *pid is set if there is a worker. 0, or the errno of what failed. */
static int spawn(pipes *p, char *const argv[], char *const vars[], pid_t *pid)
{
    sigset_t all, before;
    /* no handler of ours may run in the child: it would speak into our own signal pipe */
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &before);
    pid_t parent = getpid();
    pid_t child = fork();
    if (child == 0) {
        run_worker(p, parent, argv, vars);
    }
    int why = child < 0 ? errno : 0;
    sigprocmask(SIG_SETMASK, &before, NULL);
    if (child > 0) {
        why = wait_for_exec(p);
        if (why != 0) {
            reap(child);
        } else {
            *pid = child;
        }
    }
    return why;
}

/* The words with the one more; the caller's to free. NULL: no memory. */
static char **words_of(const worker_proc_options *opt)
{
    size_t n = 0;
    while (opt->argv[n]) {
        n++;
    }
    char **words = mem_calloc(n + 2, sizeof *words);
    for (size_t i = 0; words && i < n; i++) {
        words[i] = opt->argv[i];
    }
    if (words) {
        words[n] = opt->more;
    }
    return words;
}

status worker_proc_start(const worker_proc_options *opt, worker_proc *out, err *e)
{
    pipes p;
    environment env = {0};
    char **words = words_of(opt);
    pid_t pid = 0;
    status st = ST_OK;
    if (!open_pipes(&p, opt->status_fd)) {
        st = err_set(e, ST_IO, NULL, "cannot make the descriptors of a worker: %s", strerror(errno));
    } else if (!words || make_environment(&env, p.status) != ST_OK) {
        st = err_set(e, ST_NOMEM, NULL, "out of memory for the environment of a worker");
    } else {
        int why = spawn(&p, words, env.vars, &pid);
        if (why != 0) {
            st = err_set(e, ST_IO, NULL, "cannot start the worker %s: %s", opt->argv[0], strerror(why));
        }
    }
    if (st == ST_OK) {
        *out = (worker_proc){.pid = pid, .to_fd = p.in[1], .from_fd = p.out[0]};
        p.in[1] = p.out[0] = -1;
    }
    mem_free(env.vars);
    mem_free(words);
    close_pipes(&p);
    return st;
}
