/*
 * session_names: what sessions and their saved states may be called by a client, and what they are called on the
 * worker's wire: there the name has the key's identity before it, so that two keys never meet.
 *
 *   session of key "ann"   "chat:1"   ann/chat:1    (no name of a session holds a '/': the last one divides)
 *   without keys           "chat:1"   /chat:1
 *   saved by key "ann"     "monday"   16 hex digits of SHA-256("ann"), '-', "monday"
 *   without keys           "monday"   0-monday
 *
 * Pure functions, any thread.
 */
#ifndef HEARTH_SERVE_SESSION_NAMES_H
#define HEARTH_SERVE_SESSION_NAMES_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/status.h"
#include "serve/keys.h"

#define SESSION_MAX_NAME 128 /* bytes of [A-Za-z0-9._:-] */
#define SESSION_MAX_SAVE 47  /* bytes of [A-Za-z0-9._-], the first no '.': 64 on the wire */

/* What a name that is refused must be. */
#define SESSION_WANT_NAME "1 to 128 characters of A-Z a-z 0-9 . _ : -"
#define SESSION_WANT_SAVE "1 to 47 characters of A-Z a-z 0-9 . _ -, the first no ."

bool session_name_good(const char *name, size_t len);
bool session_save_good(const char *name, size_t len);

/* Append; ST_NOMEM leaves out as it was. k may be NULL, key KEYS_ANONYMOUS. */
status session_name_put(buf *out, const keys *k, uint32_t key, const char *name);
status session_save_put(buf *out, const keys *k, uint32_t key, const char *name, size_t len);

#endif
