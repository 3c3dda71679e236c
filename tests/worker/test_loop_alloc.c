/*
 * The worker's loop on a scripted model, while an allocation fails: what a real worker on a small model does not say or
 * come to (tool calls, reasoning, sequences that give way to others), and the engine's books after every turn.
 *
 *   test_worker_loop_alloc [--all]   every allocation in turn; else some of them
 */
#include "base/test_main.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "worker/loop_rig.h"

#define HERMES                                                                                             \
    "{%- if tools %}T{{ tools | length }}<tool_call>{\"name\"}</tool_call><think></think>{% endif %}"      \
    "{%- for m in messages %}[{{ m.role }}:{{ m.content }}"                                                \
    "{%- for c in m.tool_calls %}({{ c.function.name }} {{ c.function.arguments | tojson }}){% endfor %}]" \
    "{%- endfor %}{% if add_generation_prompt %}~{% endif %}"
#define CALL "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1}}\n</tool_call>"
#define TOOLS                                                                                                \
    "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"add\",\"parameters\":{\"type\":\"object\"}}" \
    "}]"
#define CHAT(id, more)                                                                          \
    "{\"id\":\"" id "\",\"op\":\"chat\",\"seed\":1,\"now\":0,\"messages\":[{\"role\":\"user\"," \
    "\"content\":\"hi\"}]" more "}"
#define MAX_LINES 4
#define MAX_TURNS 20000
#define FEW       25

static bool all;

typedef struct scene {
    const char *says;
    const char *template; /* NULL: no conversations, and a small pool */
    const char *lines[MAX_LINES];
    const char *ids[MAX_LINES];
    size_t n;
} scene;

static const scene scenes[] = {
    {"<think>hm</think>so " CALL "\n" CALL,
     HERMES,
     {CHAT("a", "," TOOLS), CHAT("b", "," TOOLS ",\"parallel_tool_calls\":false,\"session_id\":\"s\""),
      CHAT("c", "," TOOLS ",\"tool_choice\":\"required\",\"logprobs\":true,\"top_logprobs\":1"),
      CHAT("d", ",\"reasoning\":{\"enabled\":true,\"budget\":1},\"stop\":[\"zz\"]")},
     {"a", "b", "c", "d"},
     4},
    {"abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz",
     NULL,
     {"{\"id\":\"a\",\"op\":\"generate\",\"prompt\":\"one that grows over many pages "
      ">\",\"seed\":1,\"now\":0}",
      "{\"id\":\"b\",\"op\":\"generate\",\"prompt\":\"and another "
      ">\",\"session_id\":\"s\",\"seed\":1,\"now\":0}",
      "{\"prompt\":\"a plain one >\",\"seed\":1,\"max_new_tokens\":60}",
      "{\"id\":\"c\",\"op\":\"generate\",\"prompt\":\"and one more "
      ">\",\"cache_namespace\":\"t\",\"seed\":1,\"now\":0,"
      "\"prompt_logprobs\":0}"},
     {"a", "b", NULL, "c"},
     4},
};

/* The n-th allocation of the turns fails, alone or with all behind it; what the test takes itself does not count. */
typedef struct fault {
    uint64_t n; /* that are still to come, this one included; 0 = it was */
    bool sticky, failing;
    uint64_t used; /* so far */
} fault;

static bool turn_once(loop_rig *r, fault *f)
{
    uint64_t before = mem_alloc_count();
    const char *why = "";
    mem_fail_at(f->failing ? 1 : f->n, f->sticky);
    bool more = loop_turn(&r->loop);
    mem_fail_at(0, false);
    uint64_t used = mem_alloc_count() - before;
    f->used += used;
    f->failing = f->failing || (f->sticky && f->n > 0 && used >= f->n);
    f->n = used < f->n ? f->n - used : 0;
    if (!engine_check(r->engine.en, &why)) {
        fail_msg("the engine's books: %s", why);
    }
    return more;
}

/* Turns until all is said. Returns how many allocations they made. */
static uint64_t run(loop_rig *r, fault f)
{
    for (int n = 0; n < MAX_TURNS; n++) {
        bool more = turn_once(r, &f);
        if (!more && r->tasks.n == 0) {
            return f.used;
        }
        if (!more) {
            bell_wait(&r->bell, &r->halt, 10);
        }
    }
    fail_msg("it does not come to rest");
    return 0;
}

static uint64_t ask(loop_rig *r, const scene *s, uint64_t n, bool sticky)
{
    loop_rig_forget(r);
    for (size_t i = 0; i < s->n; i++) {
        loop_rig_send(r, s->lines[i]);
    }
    uint64_t used = run(r, (fault){.n = n, .sticky = sticky});
    loop_rig_hear(r);
    return used;
}

static bool is_last(const frame *f)
{
    return f->kind == FRAME_DONE || f->kind == FRAME_ERROR;
}

/* Everything about a request but its last frame, one text. */
static void body_of(const loop_rig *r, const char *id, buf *out)
{
    buf_reset(out);
    for (size_t i = 0; i < r->n_frames; i++) {
        const frame *f = &r->frames[i];
        bool own = id ? f->id.len == strlen(id) && memcmp(f->id.data, id, f->id.len) == 0 : !f->id.data;
        if (!own || is_last(f) || f->kind == FRAME_ACCEPTED) {
            continue;
        }
        assert_int_equal(
            buf_printf(out, "%d %d %.*s|", (int)f->kind, (int)f->delta, (int)f->text_len, f->text), ST_OK);
        for (size_t k = 0; k < f->n_ids; k++) {
            assert_int_equal(buf_printf(out, "%d ", (int)f->ids[k]), ST_OK);
        }
    }
}

/* One end each, and no frame that is nobody's; what was said is what is said undisturbed, up to where it fails. */
static size_t check(const loop_rig *r, const scene *s, const buf *want)
{
    buf got = {0};
    size_t n_failed = 0, n_last = 0, n_frames = 0;
    for (size_t i = 0; i < r->n_frames; i++) {
        n_last += is_last(&r->frames[i]);
    }
    assert_int_equal(n_last, s->n);
    for (size_t i = 0; i < s->n; i++) {
        const frame *last = loop_rig_last(r, s->ids[i]);
        n_frames += loop_rig_count(r, s->ids[i]);
        assert_true(last && is_last(last));
        body_of(r, s->ids[i], &got);
        if (last->kind == FRAME_ERROR) {
            assert_true(last->code == ST_INTERNAL || last->code == ST_CAPACITY);
            assert_true(got.len <= want[i].len && memcmp(buf_str(&got), buf_str(&want[i]), got.len) == 0);
            n_failed++;
        } else {
            assert_string_equal(buf_str(&got), buf_str(&want[i]));
        }
    }
    assert_int_equal(n_frames, r->n_frames);
    buf_release(&got);
    return n_failed;
}

static void open_scene(loop_rig *r, const scene *s)
{
    if (s->template) {
        loop_rig_open_chat(r, s->says, s->template);
    } else {
        loop_rig_open_small(r, s->says, 6);
        loop_rig_start_preparer(r);
        loop_rig_start_writer(r);
    }
}

static void test_every_allocation(void **state)
{
    static loop_rig r;
    for (size_t i = 0; i < N_OF(scenes); i++) {
        const scene *s = &scenes[i];
        buf want[MAX_LINES] = {{0}};
        uint64_t n_all = 0, failed_alone = 0, failed_all = 0;
        open_scene(&r, s);
        for (int round = 0; round < 2; round++) { /* the second finds what the first has left in memory */
            n_all = ask(&r, s, 0, false);
            for (size_t k = 0; k < s->n; k++) {
                body_of(&r, s->ids[k], &want[k]);
            }
            sessions_close(r.sessions, (wire_string){"s", 1});
        }
        uint64_t rounds = 0, step = all ? 1 : n_all / FEW + 1;
        for (uint64_t n = 1; n <= n_all; n += step, rounds++) {
            for (int sticky = 0; sticky < 2; sticky++) {
                ask(&r, s, n, sticky);
                size_t failed = check(&r, s, want);
                assert_true(sticky || failed <= 1);
                *(sticky ? &failed_all : &failed_alone) += failed;
                assert_false(halt_asked(&r.halt));
                sessions_close(r.sessions, (wire_string){"s", 1});
            }
        }
        ask(&r, s, 0, false);
        assert_int_equal(check(&r, s, want), 0);
        sessions_close(r.sessions, (wire_string){"s", 1});
        engine_stats st;
        engine_stats_read(r.engine.en, &st);
        print_message("scene %zu: %llu allocations, %llu requests failed alone, %llu with all behind; %llu "
                      "sequences gave way\n",
                      i, (unsigned long long)n_all, (unsigned long long)failed_alone,
                      (unsigned long long)failed_all, (unsigned long long)st.preemptions);
        assert_true(failed_alone > 0 && failed_all > failed_alone);
        assert_true(s->template || st.preemptions >= rounds / 2);
        assert_int_equal(st.bugs, 0);
        for (size_t k = 0; k < s->n; k++) {
            buf_release(&want[k]);
        }
        loop_rig_close(&r);
    }
}

int main(int argc, char **argv)
{
    all = argc > 1 && strcmp(argv[1], "--all") == 0;
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_allocation)};
    return cmocka_run_group_tests_name("worker-loop-alloc", tests, NULL, NULL);
}
