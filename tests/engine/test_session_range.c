/*
 * Ranges of a session's tokens: what memory has of them, out as bytes, into other sessions and engines. Every reply after
 * an import is what the model function says for the whole prompt, and costs what is not in memory. The model's pages
 * hold each token with a check word, so a row that came to the wrong place shows.
 */
#include "engine/test_main.h"

#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "engine/engine_rig.h"
#include "engine/session_range.h"
#include "kv/exchange.h"

typedef struct party { /* an engine and one session of it */
    engine_rig rig;
    session *s;
} party;

static void party_open(party *p, const rig_config *cfg)
{
    const rig_config usual = rig_config_default();
    rig_open(&p->rig, cfg ? cfg : &usual);
    assert_int_equal(session_open(p->rig.en, &p->s), ST_OK);
}

static void party_close(party *p)
{
    session_close(p->s);
    rig_close(&p->rig);
}

/* A prompt on the session, without a reply; it knows exactly that afterwards. Returns the tokens that were reused. */
static int32_t read_prompt(party *p, const int32_t *ids, size_t n, const char *name_space)
{
    reply_log l;
    log_init(&l, &p->rig);
    gen_request q = rig_request(&l, ids, n, 0);
    q.session = p->s;
    q.cache_namespace = name_space;
    q.n_cache_namespace = strlen(name_space);
    rig_generate(&p->rig, &q, &l);
    int32_t reused = l.result.reused_tokens;
    log_release(&l);
    return reused;
}

/* A turn of one more token, which must be reused up to there, and a reply that must be the model's. */
static void expect_turn(party *p, int32_t *ids, size_t n, int32_t reused)
{
    reply_log l;
    log_init(&l, &p->rig);
    gen_request q = rig_request(&l, ids, n + 1, 5);
    q.session = p->s;
    rig_generate(&p->rig, &q, &l);
    assert_int_equal(l.result.reused_tokens, reused);
    log_expect_greedy(&l, ids, n + 1, 5);
    log_release(&l);
}

static session_range range_of(size_t from, size_t count)
{
    return (session_range){.from = from, .count = count};
}

static void expect_known(const party *p, const int32_t *ids, size_t n)
{
    size_t got;
    const int32_t *have = session_resident(p->s, &got);
    assert_int_equal(got, n);
    assert_true(n == 0 || memcmp(have, ids, n * sizeof *ids) == 0);
}

static size_t in_memory(const party *p, size_t from, size_t count, const char *name_space)
{
    const session_range r = {name_space, strlen(name_space), from, count};
    size_t memory = 77, stored = 77;
    assert_int_equal(session_probe(p->s, &r, &memory, &stored, NULL), ST_OK);
    assert_int_equal(stored, 0);
    return memory;
}

static buf export_range(party *p, size_t from, size_t count)
{
    const session_range r = range_of(from, count);
    buf out = {0};
    size_t bytes = 0;
    err e;
    assert_int_equal(session_export_bytes(p->s, &r, SIZE_MAX, &bytes, NULL), ST_OK);
    if (session_export(p->s, &r, &out, &e) != ST_OK) {
        fail_msg("export: %s", e.msg);
    }
    assert_int_equal(out.len, bytes);
    return out;
}

static void import_ok(party *p, const buf *b, size_t from, size_t count)
{
    session_range r = range_of(77, 77);
    const char *why;
    err e;
    if (session_import(p->s, (const uint8_t *)b->data, b->len, &r, &e) != ST_OK) {
        fail_msg("import: %s", e.msg);
    }
    assert_int_equal(r.from, from);
    assert_int_equal(r.count, count);
    assert_true(engine_check(p->rig.en, &why));
}

/* Nothing of what can be seen has changed. */
static void import_refused(party *p, const buf *b, status code, const char *field)
{
    int32_t before[512];
    size_t n;
    const int32_t *ids = session_resident(p->s, &n);
    engine_stats stats = rig_stats(&p->rig), after;
    session_range r = range_of(77, 77);
    const char *why;
    err e;
    err_clear(&e);
    if (n > 0) {
        memcpy(before, ids, n * sizeof *ids);
    }
    assert_int_equal(session_import(p->s, (const uint8_t *)b->data, b->len, &r, &e), code);
    if (strcmp(e.field, field) != 0) {
        fail_msg("field %s: %s", e.field, e.msg);
    }
    assert_int_equal(r.from, 77);
    expect_known(p, before, n);
    after = rig_stats(&p->rig);
    assert_int_equal(after.pages_used, stats.pages_used);
    assert_int_equal(after.pages_cached, stats.pages_cached);
    assert_true(engine_check(p->rig.en, &why));
}

static void test_probe(void **state)
{
    party p;
    int32_t ids[200];
    size_t memory = 77, stored = 77;
    party_open(&p, NULL);
    rig_tokens(ids, 200, 1);
    assert_int_equal(in_memory(&p, 0, 0, ""), 0);
    read_prompt(&p, ids, 100, "");
    assert_int_equal(in_memory(&p, 0, 100, ""), 100);
    assert_int_equal(in_memory(&p, 0, 1, ""), 1);
    assert_int_equal(in_memory(&p, 40, 20, ""), 20);
    assert_int_equal(in_memory(&p, 99, 1, ""), 1);
    assert_int_equal(in_memory(&p, 100, 0, ""), 0);
    assert_int_equal(in_memory(&p, 0, 100, "tenant"), 0); /* another namespace has none of it */
    static const struct {
        size_t from, count;
        const char *field;
    } bad[] = {{0, 101, "count"},     {100, 1, "count"},      {101, 0, "from"}, {1, 100, "count"},
               {SIZE_MAX, 1, "from"}, {1, SIZE_MAX, "count"}, {99, 2, "count"}, {SIZE_MAX, SIZE_MAX, "from"}};
    for (size_t i = 0; i < N_OF(bad); i++) {
        const session_range r = range_of(bad[i].from, bad[i].count);
        size_t bytes;
        buf out = {0};
        err e;
        assert_int_equal(session_probe(p.s, &r, &memory, &stored, &e), ST_INVALID_FIELD);
        assert_string_equal(e.field, bad[i].field);
        assert_int_equal(session_export_bytes(p.s, &r, SIZE_MAX, &bytes, &e), ST_INVALID_FIELD);
        assert_string_equal(e.field, bad[i].field);
        assert_int_equal(session_export(p.s, &r, &out, &e), ST_INVALID_FIELD);
        assert_int_equal(out.len, 0);
    }
    assert_int_equal(memory, 77);
    party_close(&p);
}

/* Somebody else's prompt takes the pages: the tokens stay known. */
static void test_lost(void **state)
{
    rig_config cfg = rig_config_default();
    party p;
    int32_t ids[200], other[400];
    buf out = {0};
    err e;
    cfg.n_pages = 14;
    party_open(&p, &cfg);
    rig_tokens(ids, 200, 1);
    rig_tokens(other, 400, 2);
    read_prompt(&p, ids, 200, "");
    session *mine = p.s;
    assert_int_equal(session_open(p.rig.en, &p.s), ST_OK);
    read_prompt(&p, other, 330, "");
    session_close(p.s);
    p.s = mine;
    size_t left = in_memory(&p, 0, 200, "");
    assert_true(left > 0 && left < 200 && left % 32 == 0);
    assert_int_equal(in_memory(&p, 0, 10, ""), 10);
    assert_int_equal(in_memory(&p, left - 5, 10, ""), 5);
    assert_int_equal(in_memory(&p, left, 1, ""), 0);
    const session_range r = range_of(0, 200);
    char want[64];
    snprintf(want, sizeof want, "%zu of these 200 tokens are in memory", left);
    assert_int_equal(session_export(p.s, &r, &out, &e), ST_INVALID_FIELD);
    assert_string_equal(e.field, "from");
    if (!strstr(e.msg, want)) {
        fail_msg("%s", e.msg);
    }
    buf part = export_range(&p, 3, left - 3);
    buf_release(&part);
    expect_known(&p, ids, 200);
    expect_turn(&p, ids, 199, (int32_t)left);
    party_close(&p);
}

/* In chunks of every kind, into another engine. */
static void test_round_trip(void **state)
{
    static const size_t lengths[] = {1, 31, 32, 33, 64, 100, 300};
    static const size_t chunks[] = {1, 7, 31, 32, 33, 64, 500};
    int32_t ids[400];
    rig_tokens(ids, 400, 3);
    for (size_t l = 0; l < N_OF(lengths); l++) {
        for (size_t c = 0; c < N_OF(chunks); c++) {
            size_t n = lengths[l];
            party a, b;
            party_open(&a, NULL);
            party_open(&b, NULL);
            read_prompt(&a, ids, n, "");
            for (size_t at = 0; at < n; at += chunks[c]) {
                size_t count = n - at < chunks[c] ? n - at : chunks[c];
                buf out = export_range(&a, at, count);
                import_ok(&b, &out, at, count);
                expect_known(&b, ids, at + count);
                assert_int_equal(in_memory(&b, 0, at + count, ""), at + count);
                buf_release(&out);
            }
            /* the same bytes come out of there */
            buf first = export_range(&a, 0, n), second = export_range(&b, 0, n);
            assert_int_equal(first.len, second.len);
            assert_memory_equal(first.data, second.data, first.len);
            buf_release(&first);
            buf_release(&second);
            expect_turn(&b, ids, n, (int32_t)n);
            expect_turn(&a, ids, n, (int32_t)n);
            party_close(&a);
            party_close(&b);
        }
    }
}

/* What memory has already stays, what it lacks comes, from any beginning on. */
static void test_overlap(void **state)
{
    static const struct {
        size_t had, from, count;
    } cases[] = {{40, 0, 100}, {40, 40, 60}, {40, 39, 61}, {40, 10, 20}, {40, 33, 7},
                 {64, 0, 100}, {64, 64, 36}, {64, 50, 50}, {1, 0, 100},  {100, 0, 100}};
    int32_t ids[200];
    rig_tokens(ids, 200, 4);
    for (size_t i = 0; i < N_OF(cases); i++) {
        size_t end = cases[i].from + cases[i].count, n = end > cases[i].had ? end : cases[i].had;
        party a, b;
        party_open(&a, NULL);
        party_open(&b, NULL);
        read_prompt(&a, ids, 100, "");
        read_prompt(&b, ids, cases[i].had, "");
        buf out = export_range(&a, cases[i].from, cases[i].count);
        import_ok(&b, &out, cases[i].from, cases[i].count);
        import_ok(&b, &out, cases[i].from, cases[i].count); /* once more: nothing is new */
        expect_known(&b, ids, n);                           /* the larger of the two */
        assert_int_equal(in_memory(&b, 0, n, ""), n);
        expect_turn(&b, ids, n, (int32_t)n);
        buf_release(&out);
        party_close(&a);
        party_close(&b);
    }
}

/* The session knows what is before the range, memory does not: then only the tokens come. */
static void test_nothing_to_stand_on(void **state)
{
    party a, b;
    int32_t ids[200];
    party_open(&a, NULL);
    party_open(&b, NULL);
    rig_tokens(ids, 200, 5);
    read_prompt(&a, ids, 150, "");
    buf out = export_range(&a, 64, 86);
    assert_int_equal(session_set_tokens(b.s, ids, 64, NULL), ST_OK);
    import_ok(&b, &out, 64, 86);
    expect_known(&b, ids, 150);
    assert_int_equal(in_memory(&b, 0, 150, ""), 0);
    expect_turn(&b, ids, 150, 0);
    buf_release(&out);
    party_close(&a);
    party_close(&b);
}

static void sign(buf *b)
{
    uint64_t sum = hash64(b->data, b->len - 8);
    memcpy(b->data + b->len - 8, &sum, 8);
}

static void test_refused(void **state)
{
    party a, b;
    int32_t ids[200], id;
    rig_config small = rig_config_default();
    party_open(&a, NULL);
    small.n_ctx = 99;
    rig_tokens(ids, 200, 6);
    read_prompt(&a, ids, 100, "");
    buf all = export_range(&a, 0, 100), tail = export_range(&a, 41, 59);

    party_open(&b, NULL);
    import_refused(&b, &tail, ST_INVALID_FIELD, "from"); /* into an empty one */
    read_prompt(&b, ids, 40, "");
    import_refused(&b, &tail, ST_INVALID_FIELD, "from"); /* one token is missing */
    ids[39] ^= 1;
    read_prompt(&b, ids, 40, "");
    import_refused(&b, &all, ST_INVALID_FIELD, "ids");
    ids[39] ^= 1;
    read_prompt(&b, ids, 40, "");
    /* forged: an id beyond the vocabulary, one below 0, another one than the session has */
    static const int32_t forged[] = {RIG_VOCAB, INT32_MAX, -1, INT32_MIN, 7};
    for (size_t i = 0; i < N_OF(forged); i++) {
        size_t at = 72 + 16 + 4 * (forged[i] == 7 ? 5 : 99);
        memcpy(&id, all.data + at, 4);
        memcpy(all.data + at, &forged[i], 4);
        sign(&all);
        import_refused(&b, &all, ST_INVALID_FIELD, "ids");
        memcpy(all.data + at, &id, 4);
        sign(&all);
    }
    all.data[20] ^= 1;
    import_refused(&b, &all, ST_INVALID_FIELD, "checksum");
    sign(&all);
    import_refused(&b, &all, ST_INVALID_FIELD, "identity");
    all.data[20] ^= 1;
    all.data[12] = KV_F16; /* the type: what 32-bit floats are is not guessed */
    sign(&all);
    import_refused(&b, &all, ST_INVALID_FIELD, "kv_type");
    all.data[12] = KV_F32;
    sign(&all);
    all.len--;
    import_refused(&b, &all, ST_INVALID_FIELD, "checksum");
    all.len++;
    import_ok(&b, &all, 0, 100);
    party_close(&b);

    party_open(&b, &small);
    import_refused(&b, &all, ST_INVALID_FIELD, "count"); /* it ends beyond the context */
    party_close(&b);
    buf_release(&all);
    buf_release(&tail);
    party_close(&a);
}

/* While somebody runs who has the pages. */
static void test_no_pages(void **state)
{
    rig_config cfg = rig_config_default();
    party a, b;
    int32_t ids[200], other[200];
    reply_log l;
    cfg.n_pages = 8;
    party_open(&a, NULL);
    party_open(&b, &cfg);
    rig_tokens(ids, 200, 7);
    rig_tokens(other, 200, 8);
    read_prompt(&a, ids, 100, "");
    buf out = export_range(&a, 0, 100);
    log_init(&l, &b.rig);
    gen_request q = rig_request(&l, other, 140, 20); /* 5 pages */
    rig_submit(&b.rig, &q, &l);
    rig_step(&b.rig);
    import_refused(&b, &out, ST_CAPACITY, "");
    rig_drain(&b.rig);
    log_expect_greedy(&l, other, 140, 20);
    log_release(&l);
    import_ok(&b, &out, 0, 100); /* what is only cached makes room */
    expect_turn(&b, ids, 100, 100);
    buf_release(&out);
    party_close(&a);
    party_close(&b);
}

static void test_namespaces(void **state)
{
    party a, b;
    int32_t ids[200];
    party_open(&a, NULL);
    party_open(&b, NULL);
    rig_tokens(ids, 200, 9);
    read_prompt(&a, ids, 100, "one");
    session_range r = {"one", 3, 0, 100};
    buf out = {0};
    assert_int_equal(session_export(a.s, &r, &out, NULL), ST_OK);
    r = (session_range){"two", 3, 0, 0};
    assert_int_equal(session_import(b.s, (const uint8_t *)out.data, out.len, &r, NULL), ST_OK);
    assert_int_equal(r.count, 100);
    assert_int_equal(in_memory(&b, 0, 100, "two"), 100);
    assert_int_equal(in_memory(&b, 0, 100, "one"), 0);
    assert_int_equal(in_memory(&b, 0, 100, ""), 0);
    assert_int_equal(read_prompt(&b, ids, 101, "one"), 0);
    assert_int_equal(read_prompt(&b, ids, 101, "two"), 100);
    buf_release(&out);
    party_close(&a);
    party_close(&b);
}

static void test_set_tokens(void **state)
{
    party p;
    int32_t ids[600];
    err e;
    party_open(&p, NULL);
    rig_tokens(ids, 600, 10);
    assert_int_equal(session_set_tokens(p.s, ids, 80, NULL), ST_OK);
    expect_known(&p, ids, 80);
    expect_turn(&p, ids, 80, 0);                                     /* known, but nowhere: computed */
    assert_int_equal(session_set_tokens(p.s, ids, 50, NULL), ST_OK); /* also downwards */
    expect_known(&p, ids, 50);
    expect_turn(&p, ids, 50, 50);
    assert_int_equal(session_set_tokens(p.s, ids, 512, NULL), ST_OK);
    assert_int_equal(session_set_tokens(p.s, ids, 513, &e), ST_INVALID_FIELD);
    ids[3] = RIG_VOCAB;
    assert_int_equal(session_set_tokens(p.s, ids, 4, &e), ST_INVALID_FIELD);
    ids[3] = -1;
    assert_int_equal(session_set_tokens(p.s, ids, 4, &e), ST_INVALID_FIELD);
    assert_int_equal(session_set_tokens(p.s, ids, 3, NULL), ST_OK);
    expect_known(&p, ids, 3);
    assert_int_equal(session_set_tokens(p.s, ids, 0, NULL), ST_OK);
    expect_known(&p, ids, 0);
    /* a dirty one is clean afterwards */
    reply_log l;
    rig_tokens(ids, 600, 10);
    log_init(&l, &p.rig);
    l.cancel_after = 2;
    gen_request q = rig_request(&l, ids, 40, 9);
    q.session = p.s;
    rig_generate(&p.rig, &q, &l);
    log_release(&l);
    assert_true(session_dirty(p.s));
    assert_int_equal(session_set_tokens(p.s, ids, 40, NULL), ST_OK);
    assert_false(session_dirty(p.s));
    party_close(&p);
}

/* Nothing is kept, or nobody knows what is in a page. */
static void test_unsupported(void **state)
{
    rig_config cfg = rig_config_default();
    party a, b;
    int32_t ids[100];
    session_range r = range_of(0, 10);
    size_t bytes, memory, stored;
    buf out = {0};
    err e;
    party_open(&a, NULL);
    rig_tokens(ids, 100, 11);
    read_prompt(&a, ids, 50, "");
    buf all = export_range(&a, 0, 50);
    cfg.cold = true;
    party_open(&b, &cfg);
    assert_int_equal(session_set_tokens(b.s, ids, 50, NULL), ST_OK);
    assert_int_equal(session_export_bytes(b.s, &r, SIZE_MAX, &bytes, &e), ST_UNSUPPORTED);
    assert_string_equal(e.field, "action");
    assert_int_equal(session_export(b.s, &r, &out, &e), ST_UNSUPPORTED);
    assert_int_equal(session_probe(b.s, &r, &memory, &stored, &e), ST_OK);
    assert_int_equal(memory + stored, 0);
    import_refused(&b, &all, ST_UNSUPPORTED, "action");
    party_close(&b);
    buf_release(&all);
    party_close(&a);
}

static void test_limit(void **state)
{
    party p;
    int32_t ids[200];
    size_t bytes = 0, all = 0;
    session_range r = range_of(10, 90);
    err e;
    party_open(&p, NULL);
    rig_tokens(ids, 200, 12);
    read_prompt(&p, ids, 100, "");
    assert_int_equal(session_export_bytes(p.s, &r, SIZE_MAX, &all, NULL), ST_OK);
    assert_int_equal(session_export_bytes(p.s, &r, all, &bytes, NULL), ST_OK);
    assert_int_equal(bytes, all);
    assert_int_equal(session_export_bytes(p.s, &r, all - 1, &bytes, &e), ST_INVALID_FIELD);
    assert_string_equal(e.field, "count");
    assert_non_null(strstr(e.msg, "89 fit"));
    r.count = 89;
    assert_int_equal(session_export_bytes(p.s, &r, all - 1, &bytes, &e), ST_OK);
    r.count = 90;
    assert_int_equal(session_export_bytes(p.s, &r, 10, &bytes, &e), ST_INVALID_FIELD);
    assert_non_null(strstr(e.msg, " 0 fit"));
    r.count = 0;
    assert_int_equal(session_export_bytes(p.s, &r, SIZE_MAX, &bytes, &e), ST_INVALID_FIELD);
    assert_string_equal(e.field, "count");
    party_close(&p);
}

/* Each allocation fails once. */
static void test_memory(void **state)
{
    party a, b;
    int32_t ids[200];
    size_t n_failed = 0;
    party_open(&a, NULL);
    rig_tokens(ids, 200, 13);
    read_prompt(&a, ids, 100, "");
    buf all = export_range(&a, 0, 100);
    for (uint64_t at = 1; at < 12; at++) {
        const session_range out_of = range_of(0, 100);
        session_range r = range_of(77, 77);
        const char *why;
        size_t n;
        buf out = {0};
        party_open(&b, NULL);
        mem_fail_at(at, true);
        status st = session_import(b.s, (const uint8_t *)all.data, all.len, &r, NULL);
        mem_fail_at(0, false);
        assert_true(st == ST_OK || st == ST_NOMEM);
        n_failed += st == ST_NOMEM;
        (void)session_resident(b.s, &n);
        assert_int_equal(n, st == ST_OK ? 100 : 0);
        assert_true(engine_check(b.rig.en, &why));
        mem_fail_at(at, true);
        st = session_export(a.s, &out_of, &out, NULL);
        mem_fail_at(0, false);
        assert_true(st == ST_OK ? out.len == all.len : st == ST_NOMEM && out.len == 0);
        buf_release(&out);
        assert_true(engine_check(a.rig.en, &why));
        party_close(&b);
    }
    assert_true(n_failed >= 3);
    buf_release(&all);
    party_close(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_probe),
        cmocka_unit_test(test_lost),
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_overlap),
        cmocka_unit_test(test_nothing_to_stand_on),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_no_pages),
        cmocka_unit_test(test_namespaces),
        cmocka_unit_test(test_set_tokens),
        cmocka_unit_test(test_unsupported),
        cmocka_unit_test(test_limit),
        cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
