/*
 * alloc_scene: requests of every kind, for a worker whose memory fails meanwhile. Plain data.
 */
#ifndef HEARTH_TESTS_WORKER_ALLOC_SCENE_H
#define HEARTH_TESTS_WORKER_ALLOC_SCENE_H

typedef enum scene_kind {
    SCENE_ALONE,   /* it ends as it would undisturbed, or for want of memory */
    SCENE_DEPENDS, /* on what those before it on its session came to: it may be refused for that */
    SCENE_CUT,   /* what it finds depends on when it comes: a cancel is sent for it, or it waits for nobody */
    SCENE_SILENT /* is not answered */
} scene_kind;

typedef struct scene_line {
    const char *id; /* "" = plain */
    scene_kind kind;
    const char *rest; /* of the line, behind the id */
} scene_line;

#define SCENE_MESSAGES                                                                                    \
    "\"messages\":[{\"role\":\"system\",\"content\":\"Be brief.\"},{\"role\":\"user\",\"content\":\"Hi, " \
    "what is the weather?\"}]"
#define SCENE_TOOLS                                                                               \
    "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"weather\",\"description\":\"d\"," \
    "\"parameters\":{"                                                                            \
    "\"type\":\"object\",\"properties\":{\"town\":{\"type\":\"string\"}}}}}]"
#define SCENE_SEED "\"seed\":7,\"now\":1700000000000"

/* Runs all the while: the others are its neighbours. */
#define SCENE_NEIGHBOUR                                                                                 \
    "{\"id\":\"n\",\"op\":\"generate\",\"prompt\":\"the neighbour\",\"max_new_tokens\":400," SCENE_SEED \
    ",\"ignore_eos\":true,\"temperature\":0.9}\n"

static const scene_line scene[] = {
    {"g1", SCENE_ALONE,
     "\"op\":\"generate\",\"prompt\":\"Once upon a time there was a long prompt that fills more than one "
     "page of "
     "thirty-two "
     "tokens\",\"max_new_tokens\":12,\"temperature\":0.8,\"top_k\":40,\"top_p\":0.9,\"min_p\":0.01,"
     "\"repetition_penalty\":1.1,\"presence_penalty\":0.1,\"frequency_penalty\":0.1,\"repeat_last_n\":32,"
     "\"logit_bias\":{\"65\":1.5,\"66\":-100},\"min_tokens\":2,\"stop\":[\"zzzz\",\"qqqqqqq\"],"
     "\"stop_token_ids\":[3,4],\"logprobs\":true,\"top_logprobs\":2,\"prompt_logprobs\":1,\"progress\":true,"
     "\"cache_namespace\":\"tenant\"," SCENE_SEED},
    {"c1", SCENE_ALONE,
     "\"op\":\"chat\"," SCENE_MESSAGES "," SCENE_TOOLS ",\"max_new_tokens\":10," SCENE_SEED},
    {"c2", SCENE_ALONE,
     "\"op\":\"chat\"," SCENE_MESSAGES ",\"reasoning\":{\"enabled\":true,\"budget\":4},\"max_new_tokens\":12,"
     "\"stop\":[\"none such\"]," SCENE_SEED},
    {"k1", SCENE_CUT, "\"op\":\"kv_limit\",\"pages\":68"},
    {"r1", SCENE_ALONE,
     "\"op\":\"generate\",\"prompt\":\"abc\",\"max_new_tokens\":9,\"stop\":[\"none "
     "such\"],\"resume\":{\"ids\":[100,"
     "101],\"seed\":7,\"now\":1700000000000,\"prompt_ids\":[97,98,99],\"prompt_digest\":"
     "\"773a485daf4881b46ab35bd333b9796a6675db90111122f2c4cb10a31b1c0359\"}"},
    {"r2", SCENE_ALONE,
     "\"op\":\"chat\"," SCENE_MESSAGES "," SCENE_TOOLS
     ",\"max_new_tokens\":10,\"resume\":{\"ids\":[100,101],\"seed\":7,"
     "\"now\":1700000000000,\"prompt_ids\":[97,98,99],\"prompt_digest\":"
     "\"773a485daf4881b46ab35bd333b9796a6675db90111122f2c4cb10a31b1c0359\"}"},
    {"t1", SCENE_ALONE, "\"op\":\"tokenize\",\"text\":\"Some text, twice the text.\""},
    {"t2", SCENE_ALONE, "\"op\":\"detokenize\",\"ids\":[65,66,67,68,69,70]"},
    {"t3", SCENE_ALONE, "\"op\":\"count\"," SCENE_MESSAGES ",\"now\":1700000000000"},
    {"t4", SCENE_ALONE, "\"op\":\"render\"," SCENE_MESSAGES "," SCENE_TOOLS ",\"now\":1700000000000"},
    {"t5", SCENE_ALONE, "\"op\":\"generate\",\"prompt\":3"}, /* refused by its own fault */
    {"s1", SCENE_ALONE,
     "\"op\":\"generate\",\"session_id\":\"S\",\"prompt\":\"In a session that is kept there is something to "
     "say about "
     "all\",\"max_new_tokens\":9," SCENE_SEED},
    {"s2", SCENE_CUT, "\"op\":\"session\",\"action\":\"get\",\"session_id\":\"S\""},
    {"s3", SCENE_DEPENDS,
     "\"op\":\"session\",\"action\":\"probe\",\"session_id\":\"S\",\"from\":0,\"count\":40"},
    {"s4", SCENE_DEPENDS, "\"op\":\"session\",\"action\":\"save\",\"session_id\":\"S\",\"name\":\"kept\""},
    {"s5", SCENE_DEPENDS,
     "\"op\":\"session\",\"action\":\"export\",\"session_id\":\"S\",\"from\":0,\"count\":40"},
    {"x1", SCENE_CUT, "\"op\":\"generate\",\"prompt\":\"to be cut\",\"max_new_tokens\":200," SCENE_SEED},
    {"x1", SCENE_SILENT, "\"op\":\"pause\""},
    {"", SCENE_ALONE, "\"prompt\":\"plain\",\"max_new_tokens\":6,\"seed\":3,\"stop\":[\"abc\"]"},
    {"", SCENE_ALONE, "\"op\":\"open\",\"session_id\":\"P\""},
    {"", SCENE_DEPENDS, "\"prompt\":\"plain\",\"session_id\":\"P\",\"max_new_tokens\":6,\"seed\":3"},
    {"", SCENE_DEPENDS, "\"prompt\":\"plain again\",\"session_id\":\"P\",\"max_new_tokens\":6,\"seed\":3"},
    {"", SCENE_DEPENDS, "\"op\":\"reset\",\"session_id\":\"P\""},
    {"", SCENE_DEPENDS, "\"op\":\"close\",\"session_id\":\"P\""},
    {"s6", SCENE_ALONE,
     "\"op\":\"session\",\"action\":\"import\",\"session_id\":\"I\""}, /* with what s5 gave */
    {"s7", SCENE_DEPENDS, "\"op\":\"session\",\"action\":\"prewarm\",\"session_id\":\"I\""},
    {"s8", SCENE_DEPENDS, "\"op\":\"session\",\"action\":\"restore\",\"session_id\":\"S\",\"name\":\"kept\""},
    {"s9", SCENE_DEPENDS, "\"op\":\"session\",\"action\":\"prewarm\",\"session_id\":\"S\""},
    {"x1", SCENE_SILENT, "\"op\":\"continue\""},
    {"x1", SCENE_SILENT, "\"op\":\"cancel\""},
    {"sa", SCENE_DEPENDS, "\"op\":\"session\",\"action\":\"reset\",\"session_id\":\"S\""},
    {"sb", SCENE_ALONE, "\"op\":\"session\",\"action\":\"close\",\"session_id\":\"R\""},
    {"sc", SCENE_ALONE, "\"op\":\"session\",\"action\":\"drop\",\"session_id\":\"S\",\"name\":\"absent\""},
    {"st", SCENE_CUT, "\"op\":\"stats\""},
};

#define SCENE_IMPORT "s6"
#define SCENE_EXPORT "s5"

/* After each round, undisturbed: what may be left of it goes, and the same request as ever is answered as ever. */
static const scene_line afterwards[] = {
    {"a1", SCENE_ALONE, "\"op\":\"session\",\"action\":\"close\",\"session_id\":\"S\""},
    {"a2", SCENE_ALONE, "\"op\":\"session\",\"action\":\"close\",\"session_id\":\"I\""},
    {"a3", SCENE_ALONE, "\"op\":\"session\",\"action\":\"close\",\"session_id\":\"R\""},
    {"a4", SCENE_ALONE, "\"op\":\"session\",\"action\":\"close\",\"session_id\":\"P\""},
    {"a5", SCENE_CUT, "\"op\":\"session\",\"action\":\"drop\",\"session_id\":\"S\",\"name\":\"kept\""},
    {"a6", SCENE_ALONE,
     "\"op\":\"generate\",\"prompt\":\"the control of it all, which is asked each "
     "time\",\"max_new_tokens\":20," SCENE_SEED},
    {"a7", SCENE_ALONE, "\"op\":\"chat\"," SCENE_MESSAGES ",\"max_new_tokens\":8," SCENE_SEED},
};

#endif
