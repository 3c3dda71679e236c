#include "serve/worker_proc.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* All close-on-exec. [0] is read, [1] is written. */
typedef struct pipes {
    int in[2], out[2]; /* the worker's stdin and stdout */
    int told[2];       /* errno of a failed start; EOF once exec has succeeded */
} pipes;

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
}

static bool open_pipes(pipes *p)
{
    *p = (pipes){{-1, -1}, {-1, -1}, {-1, -1}};
    return pipe2(p->in, O_CLOEXEC) == 0 && pipe2(p->out, O_CLOEXEC) == 0 && pipe2(p->told, O_CLOEXEC) == 0 &&
           fcntl(p->in[1], F_SETFL, O_NONBLOCK) == 0 && fcntl(p->out[0], F_SETFL, O_NONBLOCK) == 0;
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
    return put_at(p->in[0], 0) && put_at(p->out[1], 1) && sigprocmask(SIG_SETMASK, &none, NULL) == 0;
}

static void run_worker(const pipes *p, pid_t parent, char *const argv[])
{
    if (become_worker(p, parent)) {
        execv(argv[0], argv);
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

status worker_proc_start(char *const argv[], worker_proc *out, err *e)
{
    pipes p;
    sigset_t all, before;
    if (!open_pipes(&p)) {
        status st = err_set(e, ST_IO, NULL, "cannot make the pipes of a worker: %s", strerror(errno));
        close_pipes(&p);
        return st;
    }
    /* no handler of ours may run in the child: it would speak into our own signal pipe */
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &before);
    pid_t parent = getpid();
    pid_t pid = fork();
    if (pid == 0) {
        run_worker(&p, parent, argv);
    }
    int why = errno;
    sigprocmask(SIG_SETMASK, &before, NULL);
    if (pid > 0) {
        why = wait_for_exec(&p);
        if (why != 0) {
            reap(pid);
        }
    }
    status st = ST_OK;
    if (pid < 0 || why != 0) {
        st = err_set(e, ST_IO, NULL, "cannot start the worker %s: %s", argv[0], strerror(why));
    } else {
        *out = (worker_proc){.pid = pid, .to_fd = p.in[1], .from_fd = p.out[0]};
        p.in[1] = p.out[0] = -1;
    }
    close_pipes(&p);
    return st;
}
