/* make_vocab: the tokenizer keys of a made model (make_model.h says what they hold). */
#ifndef HEARTH_TESTS_MODEL_MAKE_VOCAB_H
#define HEARTH_TESTS_MODEL_MAKE_VOCAB_H

#include "base/arena.h"
#include "gguf/writer.h"
#include "model/make_model.h"

/* n_vocab in [MAKE_VOCAB_MIN, MAKE_VOCAB_MAX]. */
status make_vocab_write(gguf_writer *w, arena *mem, make_vocab kind, uint32_t n_vocab);

#endif
