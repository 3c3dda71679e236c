#include "cmd/answer.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cmd/cmd.h"

static int why_lost; /* errno of the first flush that failed */

bool answer_flush(void)
{
    if (fflush(stdout) != 0 && why_lost == 0) {
        why_lost = errno;
    }
    return why_lost == 0 && !ferror(stdout);
}

int answer_json(json_w *w, buf *out)
{
    status st = json_w_end(w);
    if (st == ST_OK) {
        puts(buf_str(out)); /* answer_end sees whether it arrived */
    } else {
        fprintf(stderr, "hearth: cannot print the answer: %s\n", status_text(st));
    }
    buf_release(out);
    return st == ST_OK ? EXIT_OK : EXIT_FAILED;
}

/* Asked for failures inside printf, which keep no errno. */
static bool reader_gone(void)
{
    struct pollfd out = {STDOUT_FILENO, POLLOUT, 0};
    return poll(&out, 1, 0) == 1 && (out.revents & (POLLERR | POLLHUP)) != 0;
}

int answer_end(int rc)
{
    if (answer_flush()) {
        return rc;
    }
    if (why_lost != EPIPE && !reader_gone()) {
        fprintf(stderr, "hearth: stdout: %s\n", why_lost ? strerror(why_lost) : "not all could be written");
    }
    return rc == EXIT_OK ? EXIT_FAILED : rc;
}
