/*
 * answer: stdout, the place of a command's answer and of nothing else. An answer that did not arrive is a
 * failure of the command; a reader that has gone (`| head`) knows why, so nothing is said about it. Main
 * thread.
 */
#ifndef HEARTH_CMD_ANSWER_H
#define HEARTH_CMD_ANSWER_H

#include <stdbool.h>

#include "base/buf.h"
#include "base/json.h"

/* Sends out what was printed so far. false if that failed, now or before; answer_end says why. */
bool answer_flush(void);
/* Ends the object that w writes into *out, prints it as one line and releases *out. EXIT_OK, or EXIT_FAILED
 * if memory ran out (printed). */
int answer_json(json_w *w, buf *out);
/* The last thing before the program ends: flushes, and turns success into EXIT_FAILED if any of the answer
 * was lost, with the reason on stderr. */
int answer_end(int rc);

#endif
