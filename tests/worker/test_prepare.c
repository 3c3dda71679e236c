/*
 * The preparer: jobs come back in order, each once, whatever it was; and what a job makes of a request.
 */
#include "base/test_main.h"

#include <string.h>

#include "base/mem.h"
#include "engine/engine_rig.h"
#include "wire/frame.h"
#include "wire/line.h"
#include "worker/prepare.h"

#define N_CONTEXT 512

typedef struct rig {
    tokenizer *tok;
    int32_t eos;
    ivec prefix;
    prepare_with with;
    halt halt;
    bell bell;
} rig;

static void rig_open_all(rig *r)
{
    memset(r, 0, sizeof *r);
    r->tok = byte_tokenizer_open(&r->eos);
    assert_int_equal(ivec_push(&r->prefix, 7), ST_OK);
    r->with = (prepare_with){.tok = r->tok, .prefix = &r->prefix, .n_ctx = N_CONTEXT};
    assert_int_equal(halt_open(&r->halt, NULL), ST_OK);
    assert_int_equal(bell_open(&r->bell, NULL), ST_OK);
}

static void rig_close_all(rig *r)
{
    ivec_release(&r->prefix);
    tokenizer_free(r->tok);
    bell_close(&r->bell);
    halt_close(&r->halt);
}

/* A generation with one text, all of it borrowed. */
static wire_request generation(const wire_segment *text, const char *id)
{
    wire_request r = wire_request_default(WIRE_GENERATE);
    r.prompt_field = "prompt";
    r.segments = text;
    r.n_segments = 1;
    r.id = (wire_string){id, id ? strlen(id) : 0};
    return r;
}

static const wire_segment qq = {.text = {"qq", 2}};

/* Fixed ids go before every plain prompt, and only before those; a seed is drawn where none is given. */
static void test_generation(void **state)
{
    static const int32_t plain[] = {7, 'q', 'q'};
    static const wire_string stop = {"x", 1};
    rig r;
    rig_open_all(&r);
    wire_request q = generation(&qq, NULL);
    prepare_job job = {.request = &q};
    prepare_run(&r.with, &job);
    assert_int_equal(job.st, ST_OK);
    assert_int_equal(job.ids.len, 3);
    assert_memory_equal(job.ids.data, plain, sizeof plain);
    assert_true(job.seed >= 1 && job.seed <= WIRE_MAX_SEED);
    assert_null(job.stops);
    prepare_job_release(&job);

    q = generation(&qq, "x");
    q.seed = 5;
    q.stops = &stop;
    q.n_stops = 1;
    job = (prepare_job){.request = &q};
    prepare_run(&r.with, &job);
    assert_int_equal(job.st, ST_OK);
    assert_int_equal(job.ids.len, 2);
    assert_int_equal(job.seed, 5);
    assert_non_null(job.stops);
    assert_int_equal(strlen(job.digest), SHA256_HEX_LEN);
    prepare_job_release(&job);
    rig_close_all(&r);
}

/* Dropped before it is looked at: it stops at the first text. */
static void test_dropped(void **state)
{
    rig r;
    rig_open_all(&r);
    wire_request q = generation(&qq, "x");
    prepare_job job = {.request = &q, .dropped = true};
    prepare_run(&r.with, &job);
    assert_int_equal(job.st, ST_CANCELLED);
    prepare_job_release(&job);
    rig_close_all(&r);
}

/* An answer that no reader would take as a line is refused: the piece of 13 bytes, so often that the text is
 * longer than one. */
static void test_answers_fit_into_a_line(void **state)
{
    rig r;
    size_t len;
    rig_open_all(&r);
    assert_non_null(tokenizer_piece(r.tok, r.eos, &len));
    size_t n = WIRE_MAX_LINE_BYTES / len + 1;
    int32_t *ids = mem_alloc_array(n, sizeof *ids);
    assert_non_null(ids);
    for (size_t i = 0; i < n; i++) {
        ids[i] = r.eos;
    }
    for (int fits = 0; fits < 2; fits++) {
        wire_request q = wire_request_default(WIRE_DETOKENIZE);
        q.id = (wire_string){"d", 1};
        q.ids = ids;
        q.n_ids = fits ? n - 4 : n;
        prepare_job job = {.request = &q};
        prepare_run(&r.with, &job);
        assert_int_equal(job.st, fits ? ST_OK : ST_INVALID_FIELD);
        assert_true(fits || strcmp(job.error.field, "ids") == 0);
        assert_true(job.answer.len <= WIRE_MAX_LINE_BYTES);
        prepare_job_release(&job);
    }
    mem_free(ids);
    rig_close_all(&r);
}

static void test_in_order(void **state)
{
    enum { N = 200 };
    static prepare_job jobs[N];
    rig r;
    preparer *p;
    rig_open_all(&r);
    wire_request q = generation(&qq, "x"), empty = generation(&(wire_segment){.text = {"", 0}}, "y");
    assert_int_equal(preparer_new(&r.with, &r.bell, NULL, &p, NULL), ST_OK);
    memset(jobs, 0, sizeof jobs);
    for (int i = 0; i < N; i++) {
        jobs[i].request = i % 3 == 0 ? &empty : &q;
        preparer_put(p, &jobs[i]);
        assert_null(preparer_take(p)); /* not started: they queue up */
    }
    assert_int_equal(preparer_start(p, NULL), ST_OK);
    for (int i = 0; i < N;) {
        prepare_job *job = preparer_take(p);
        if (!job) {
            bell_wait(&r.bell, &r.halt, BELL_FOREVER); /* rung for each */
            continue;
        }
        assert_ptr_equal(job, &jobs[i]);
        assert_int_equal(job->st, i % 3 == 0 ? ST_INVALID_FIELD : ST_OK); /* a bad one stops nobody */
        prepare_job_release(job);
        i++;
    }
    preparer_put(p, &jobs[0]);
    preparer_free(p); /* with or without what was left */
    prepare_job_release(&jobs[0]);
    preparer_free(NULL);
    rig_close_all(&r);
}

/* Whose text it works on stands on the page meanwhile; nobody's, before and after. */
typedef struct spy {
    const status_page *page;
    uint64_t seen[3];
    size_t n;
} spy;

static int64_t spy_wall(void *ctx)
{
    spy *s = ctx;
    status_snapshot p;
    status_page_read(s->page, &p);
    s->seen[s->n++] = p.row[STATUS_ROW_PREPARING];
    return 7;
}

static void test_on_the_page(void **state)
{
    static const char *const ids[] = {"x", NULL, "y"};
    prepare_job jobs[3] = {{0}};
    wire_request q[3];
    status_page *page;
    status_snapshot p;
    rig r;
    preparer *thread;
    rig_open_all(&r);
    assert_int_equal(status_page_open(-1, &page, NULL), ST_OK);
    spy s = {.page = page};
    clock_src clock = {.wall_ms = spy_wall, .ctx = &s};
    r.with.clock = &clock;
    assert_int_equal(preparer_new(&r.with, &r.bell, page, &thread, NULL), ST_OK);
    for (size_t i = 0; i < 3; i++) {
        q[i] = generation(&qq, ids[i]);
        jobs[i].request = &q[i];
        preparer_put(thread, &jobs[i]);
    }
    assert_int_equal(preparer_start(thread, NULL), ST_OK);
    for (size_t i = 0; i < 3;) {
        prepare_job *job = preparer_take(thread);
        if (!job) {
            bell_wait(&r.bell, &r.halt, BELL_FOREVER);
            continue;
        }
        prepare_job_release(job);
        i++;
    }
    assert_true(s.seen[0] == status_page_id_hash("x", 1) && s.seen[1] == 0);
    assert_true(s.seen[2] == status_page_id_hash("y", 1));
    status_page_read(page, &p);
    assert_true(p.row[STATUS_ROW_PREPARING] == 0);
    preparer_free(thread);
    status_page_close(page);
    rig_close_all(&r);
}

/* A reply that goes on: seed, time and, if they are there, the prompt are those of `resume`; and the digest must be right. */
static void test_resumed(void **state)
{
    static const int32_t given[] = {5, 6, 7};
    char digest[SHA256_HEX_LEN + 1], other[SHA256_HEX_LEN + 1];
    rig r;
    rig_open_all(&r);
    assert_int_equal(frame_prompt_digest((const int32_t[]){'q', 'q'}, 2, digest), ST_OK);
    assert_int_equal(frame_prompt_digest(given, 3, other), ST_OK);
    for (size_t i = 0; i < 4; i++) {
        wire_resume x = {.seed = 12, .now_ms = 34, .prompt_digest = i % 2 ? other : digest};
        wire_request q = generation(&qq, "x");
        prepare_job job = {.request = &q};
        x.prompt_ids = i / 2 ? given : NULL;
        x.n_prompt_ids = i / 2 ? 3 : 0;
        q.resume = &x;
        q.seed = 1;
        q.has_now = true;
        q.now_ms = 2;
        prepare_run(&r.with, &job);
        assert_int_equal(job.st, i % 2 == i / 2 ? ST_OK : ST_RESUME_MISMATCH);
        assert_int_equal(job.error.code, job.st);
        assert_true(job.seed == 12 && job.now_ms == 34);
        assert_int_equal(job.ids.len, i / 2 ? 3 : 2);
        prepare_job_release(&job);
    }
    int32_t many[N_CONTEXT] = {0};
    wire_resume x = {.seed = 1, .prompt_digest = digest, .prompt_ids = many, .n_prompt_ids = N_CONTEXT};
    wire_request q = generation(&qq, "x");
    prepare_job job = {.request = &q};
    q.resume = &x;
    prepare_run(&r.with, &job);
    assert_int_equal(job.st, ST_CONTEXT_LENGTH);
    assert_string_equal(job.error.field, "resume.prompt_ids");
    prepare_job_release(&job);
    rig_close_all(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_generation),
        cmocka_unit_test(test_dropped),
        cmocka_unit_test(test_answers_fit_into_a_line),
        cmocka_unit_test(test_in_order),
        cmocka_unit_test(test_on_the_page),
        cmocka_unit_test(test_resumed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
