/*
 * reply_parser_int: what the machine and the forms of calls share.
 *
 * The machine (reply_parser.c) is in one of three modes. In TEXT and REASONING it looks for markers; a marker of
 * the form's own (`openers`) takes it to CALL, where each byte goes to the form's `step`. A form is a
 * reply_family, one per tool_*.c, and sees only CALL; its state is `state` and the parts below. From the marker
 * on the text is kept in `block`, until it is certain that it is a call (DONE) or content (FAIL).
 *
 * Errors (memory, the sink) are sticky in `st`; nothing below push looks at them.
 */
#ifndef HEARTH_TEXT_REPLY_PARSER_INT_H
#define HEARTH_TEXT_REPLY_PARSER_INT_H

#include "base/buf.h"
#include "text/json_scan.h"
#include "text/python_literal.h"
#include "text/reply_parser.h"

#define REPLY_MAX_MARKER 64 /* bytes of the longest marker, NUL included */
#define REPLY_AT_START   SIZE_MAX
#define REPLY_PYTHON_TAG 100 /* states from here on are tool_python_tag.c's */

typedef enum reply_step {
    STEP_MORE, /* go on */
    STEP_FAIL, /* no call: the block is content, but for this byte and what it broke, which are looked at again */
    STEP_DONE,      /* the block ends with this byte and is good: back to text */
    STEP_REASONING, /* as DONE, but reasoning follows */
    STEP_CONTENT    /* no call: the block is content, and so is what follows, but `step` goes on reading it */
} reply_step;

/* How things stand when the text ends in CALL. */
typedef enum reply_stop {
    STOP_CALLED,     /* the calls that have ended count; nothing is open */
    STOP_IN_CALL,    /* inside a call */
    STOP_IN_MESSAGE, /* inside something else that ought to be closed */
    STOP_TEXT        /* the block is content */
} reply_stop;

typedef struct reply_family {
    const char *const *openers; /* ends with NULL */
    /* The text begins inside the form: open is called with REPLY_AT_START before the first byte. */
    bool from_start;
    /* An opener (its index) was read. */
    reply_step (*open)(reply_parser *p, size_t opener);
    reply_step (*step)(reply_parser *p, unsigned char c);
    reply_stop (*end)(reply_parser *p, bool cut);
} reply_family;

extern const reply_family tool_hermes, tool_qwen3_coder, tool_llama3, tool_mistral, tool_deepseek,
    tool_harmony, tool_gemma, tool_functionary_v3_2, tool_functionary_v3_1;

typedef enum reply_mode { MODE_TEXT, MODE_REASONING, MODE_CALL } reply_mode;

/* One of the two texts, content or reasoning, as it goes out: trimmed stretches joined by newlines. */
typedef struct reply_flow {
    buf space;       /* owned: white space that is shown if more text follows */
    bool any;        /* a stretch has been shown */
    bool in_stretch; /* and goes on */
} reply_flow;

/* A JSON object that names a tool and holds its arguments (tool_envelope.c). */
typedef struct envelope {
    json_scan scan;
    uint8_t field; /* of the member that is being read */
    bool in_value;
    bool strict;             /* only keys of an envelope, with arguments: else it is some other object */
    bool has_name, has_args; /* keys seen */
    bool quoted_args;        /* a string holds the object */
    buf text;                /* owned: the key or string being read, as written */
    buf args;                /* owned: arguments that came before the name */
} envelope;

/* NAME(arguments) in Python's syntax (tool_pycall.c). */
typedef struct pycall {
    python_literal value;
    uint8_t state;
    bool in_print; /* print(NAME(...)) */
    bool keywords; /* an argument had its name: none without may follow */
    size_t n_args; /* so far */
    buf word;      /* owned: name or keyword being read */
} pycall;

struct reply_parser {
    reply_options opt;
    const reply_family *family; /* NULL: no calls are looked for */
    reply_sink sink;            /* borrowed, with ctx */
    void *ctx;
    status st; /* sticky */

    uint8_t mode;                 /* reply_mode */
    const char *text_markers[12]; /* of TEXT: the form's openers, then the marker that opens reasoning */
    size_t n_openers;
    const char *const *closers;   /* of REASONING: think_markers, or harmony's ends of messages */
    const char *think_markers[3]; /* the closing marker; the opening one while may_reopen */
    bool may_reopen;              /* the prompt opened the reasoning, and the reply has shown nothing yet */
    char mark[REPLY_MAX_MARKER];
    size_t n_mark;                    /* bytes of a marker, or of the form's literal, that have been read */
    char again[2 * REPLY_MAX_MARKER]; /* bytes to be looked at, the next one last */
    size_t n_again;
    bool line_start;    /* TEXT: nothing but blanks since the last newline */
    unsigned char last; /* TEXT: the byte before the opener, 0 at the start */

    reply_flow content, reasoning;
    buf delta; /* owned: what goes out next, of one kind */
    uint8_t delta_kind;

    buf block; /* owned: text since the opener */
    int n_begun, n_complete;
    int block_first; /* the first call of the block */
    int block_ended; /* calls of the block that have ended */
    bool call_closed;
    bool in_message; /* harmony: the text is that of a message without its end */

    /* the call being read */
    bool named, begun;
    buf name, id; /* owned */

    /* for the form's use */
    uint8_t state;
    bool fenced;       /* gemma: in an ordinary block of code; deepseek: the arguments are in a fence */
    bool inline_fence; /* gemma: one that began inside a line, and may end there */
    bool tagged;       /* the block began with its proper opener: see each form */
    bool behind_tag;   /* llama3, functionary: the text is behind the python tag */
    buf word;          /* owned: a name or header being read */
    buf code_space;    /* owned: white space of raw code that counts if more code follows */
    bool code_begun;
    json_scan scan;
    envelope env;
    pycall py;
    bool no_param;  /* qwen3-coder: the object has no member yet */
    unsigned types; /* what the schema admits for the value being read: tool_schema.h */
    bool value_begun, value_newline;
    buf value; /* owned: as written */
};

static inline bool reply_is_space(unsigned char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* Part of a name in any form of calls. */
static inline bool reply_is_word(unsigned char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c >= 0x80;
}

/* Appends to a buffer of the parser's own; an error is kept. */
void reply_keep(reply_parser *p, buf *b, const void *data, size_t n);
/* The same for names, headers: false when it would be longer than REPLY_MAX_NAME. */
bool reply_keep_name(reply_parser *p, buf *b, unsigned char c);

/*
 * One more byte of a literal: STEP_DONE when it is complete (*which, may be NULL, = its index), STEP_MORE, or
 * STEP_FAIL if no literal goes on like that. No literal is the beginning of another. Ends with NULL.
 */
reply_step reply_match(reply_parser *p, const char *const *literals, unsigned char c, size_t *which);

/* Text that is searched for markers: *which is the index of the one that ends with c, and true is returned.
 * Bytes that are no part of one go to `put`. */
typedef void (*reply_put)(reply_parser *p, unsigned char c);
bool reply_search(reply_parser *p, const char *const *markers, unsigned char c, reply_put put, size_t *which);
/* The text is over: what may have become a marker goes to put as well. */
void reply_search_end(reply_parser *p, reply_put put);

/* Changes what a form looks for in the text. */
void reply_set_openers(reply_parser *p, const char *const *openers);

/* A call: named, then arguments, then end. BEGIN is sent with the first arguments, or with the end. */
void reply_call_named(reply_parser *p, const char *name, size_t len);
void reply_call_args(reply_parser *p, const char *text, size_t len);
void reply_call_arg_string(reply_parser *p, unsigned char c); /* one byte inside a JSON string */
void reply_call_end(reply_parser *p);
/* Forgets a call that has only been named. */
void reply_call_drop(reply_parser *p);
/* The calls of the block so far are certain, and the block begins anew, with `text` ("" for nothing). */
void reply_confirm(reply_parser *p, const char *text);
/* The calls of the block so far are none; the block stays. */
void reply_withdraw(reply_parser *p);

/* tool_envelope.c. Push takes '{' first. DONE: the call has ended; FAIL: broken JSON, or no call; CONTENT, if
 * strict: good JSON so far, but no call (this byte was its last if env.scan is at its end). */
void envelope_begin(reply_parser *p, bool strict);
reply_step envelope_push(reply_parser *p, unsigned char c);
/* Arguments alone: raw JSON, one object. Begin, then push from '{' on. */
void arguments_begin(reply_parser *p);
reply_step arguments_push(reply_parser *p, unsigned char c);

/* tool_pycall.c. DONE: the call has ended with this byte. `named`: reading begins behind "NAME(". */
void pycall_begin(reply_parser *p, bool named);
reply_step pycall_push(reply_parser *p, unsigned char c);
bool pycall_called(const reply_parser *p); /* the call has ended, but print( is not closed */

/* tool_python_tag.c: what follows <|python_tag|>, and raw code for the tool `python`. */
void python_tag_begin(reply_parser *p);
reply_step python_tag_step(reply_parser *p, unsigned char c);
reply_stop python_tag_end(reply_parser *p, bool cut);
reply_step bare_json_begin(reply_parser *p); /* '{' in the text, or behind a call */
void code_begin(reply_parser *p);
void code_put(reply_parser *p, unsigned char c);
void code_end(reply_parser *p);

#endif
