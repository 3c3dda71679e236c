/* blame: which deaths are a worker's own fault, and whom its status page accuses, whatever stands on it. */
#include <signal.h>
#include <string.h>

#include "base/test_main.h"
#include "serve/blame.h"

static void own_fault(void **state)
{
    static const struct {
        worker_cause cause;
        int end;
        bool own;
    } rows[] = {
        {WORKER_KILLED, SIGSEGV, true},   {WORKER_KILLED, SIGBUS, true},   {WORKER_KILLED, SIGILL, true},
        {WORKER_KILLED, SIGFPE, true},    {WORKER_KILLED, SIGABRT, true},  {WORKER_KILLED, SIGSYS, true},
        {WORKER_KILLED, SIGPIPE, true},   {WORKER_KILLED, SIGKILL, false}, {WORKER_KILLED, SIGTERM, false},
        {WORKER_KILLED, SIGINT, false},   {WORKER_KILLED, SIGHUP, false},  {WORKER_EXITED, 0, true},
        {WORKER_EXITED, 2, true},         {WORKER_EXITED, 141, true}, /* 128 + SIGPIPE */
        {WORKER_EXITED, 143, false},                                  /* 128 + SIGTERM: it was asked to */
        {WORKER_EXITED, 130, false},      {WORKER_BROKEN, 0, true},        {WORKER_STALLED, 0, true},
        {WORKER_DEAF, 0, false},          {WORKER_OOM_KILLED, 0, false},   {WORKER_LOAD_FAILED, 0, false},
        {WORKER_MODEL_CHANGED, 0, false}, {WORKER_NOT_STARTED, 0, false},  {WORKER_NO_MEMORY, 0, false},
        {WORKER_STOPPED, 0, false},
    };
    unsigned seen = 0;
    for (size_t i = 0; i < N_OF(rows); i++) {
        assert_int_equal(blame_is_own_fault(rows[i].cause, rows[i].end), rows[i].own);
        seen |= 1u << rows[i].cause;
    }
    assert_int_equal(seen, (1u << WORKER_CAUSE_COUNT) - 1);
}

/*
 * Requests a, b, c, d have the hashes 1, 2, 3, 4. Of each: '.' is one like any other, 'm' marked, 'M' marked with one death
 * in its probation that was not held against it alone, 'k' cleared, '-' was not with the worker. Verdicts: '.' none, 'm'
 * marked, 'F' fails.
 */
typedef struct row {
    const char *requests, *step, *prepares,
        *attends; /* letters of those on the page; '?' is a hash of nobody */
    const char *verdicts;
} row;

static uint64_t hash_of(char letter)
{
    return letter == '?' ? UINT64_C(0xdeadbeefcafef00d) : (uint64_t)(letter - 'a') + 1;
}

static void fill_page(status_snapshot *page, const row *r)
{
    memset(page, 0, sizeof *page);
    page->n_rows = strlen(r->step);
    page->step_whole = true;
    for (size_t i = 0; i < page->n_rows; i++) {
        page->id_hash[i] = hash_of(r->step[i]);
    }
    page->row[STATUS_ROW_PREPARING] = r->prepares[0] ? hash_of(r->prepares[0]) : 0;
    page->row[STATUS_ROW_ATTENDED] = r->attends[0] ? hash_of(r->attends[0]) : 0;
}

static blame_suspect suspect_of(const char *requests, size_t i)
{
    char c = requests[i];
    return (blame_suspect){
        .hash = i + 1, .marked = c == 'm' || c == 'M', .twice = c == 'M', .cleared = c == 'k'};
}

static void judge(const status_snapshot *page, const char *requests, char verdicts[5])
{
    static const char letters[] = {[BLAME_NONE] = '.', [BLAME_MARK] = 'm', [BLAME_FAIL] = 'F'};
    blame_case c = blame_open(page);
    for (size_t i = 0; requests[i]; i++) {
        blame_suspect s = suspect_of(requests, i);
        if (requests[i] != '-') {
            blame_hear(&c, &s);
        }
    }
    for (size_t i = 0; requests[i]; i++) {
        blame_suspect s = suspect_of(requests, i);
        verdicts[i] = '-';
        if (requests[i] != '-') {
            verdicts[i] = letters[blame_tell(&c, &s)];
        }
    }
    verdicts[strlen(requests)] = '\0';
}

static void verdicts(void **state)
{
    static const row rows[] = {
        /* the first death: those that the page names, else all */
        {"....", "ab", "", "", "mm.."},
        {"....", "abcd", "", "", "mmmm"},
        {"....", "", "c", "", "..m."},
        {"....", "", "", "d", "...m"},
        {"....", "a", "c", "", "m.m."}, /* a step and the text of another at the same time: either */
        {"....", "", "", "", "mmmm"},
        {"....", "?", "", "", "mmmm"},
        {"....", "?", "?", "?", "mmmm"},
        {"....", "a?", "", "", "m..."},
        {"..--", "cd", "", "", "mm--"}, /* names only such as were not with it */
        {"....", "aaaa", "", "", "m..."},
        {".---", "", "", "", "m---"},
        /* in the probation of a */
        {"m...", "a", "", "", "F..."},
        {"m---", "", "", "", "F---"},
        {"mkkk", "abcd", "", "", "F..."},
        {"mkkk", "", "", "", "F..."},
        {"m...", "ab", "", "", "mm.."}, /* b may have done it */
        {"M...", "ab", "", "", "Fm.."},
        {"mk..", "abc", "", "", "m.m."},
        {"Mkkk", "abcd", "", "", "F..."},
        {"m..k", "", "", "", "mmm."},
        {"M..k", "", "", "", "Fmm."},
        {"m...", "", "a", "", "F..."},
        {"mk..", "b", "a", "", "F..."},
        {"m...", "b", "", "", ".m.."}, /* it was not in it */
        {"mk..", "b", "", "", ".m.."},
        {"m..-", "d", "", "", "mmm-"},
        /* nobody */
        {"", "ab", "", "", ""},
    };
    for (size_t i = 0; i < N_OF(rows); i++) {
        status_snapshot page;
        char got[5];
        fill_page(&page, &rows[i]);
        judge(&page, rows[i].requests, got);
        if (strcmp(got, rows[i].verdicts) != 0) {
            fail_msg("%s, step %s, prepares %s, attends %s: %s, not %s", rows[i].requests, rows[i].step,
                     rows[i].prepares, rows[i].attends, got, rows[i].verdicts);
        }
    }
}

/* Whatever the page says: each death of a worker that had requests marks one more, or ends one, and an innocent bystander
 * that is not named never fails. */
static void any_page_ends(void **state)
{
    static const char letters[] = ".mMk";
    uint64_t x = 1;
    for (int round = 0; round < 20000; round++) {
        char requests[5] = "....", got[5];
        status_snapshot page;
        bool has_marked = false, changed = false;
        memset(&page, 0, sizeof page);
        for (size_t i = 0; i < 4; i++) {
            x = x * UINT64_C(6364136223846793005) + 1442695040888963407;
            char c = letters[(x >> 33) % 4];
            c = has_marked && (c == 'm' || c == 'M') ? '.' : c; /* one at most */
            has_marked = has_marked || c == 'm' || c == 'M';
            requests[i] = c;
        }
        page.n_rows = (x >> 40) % 5;
        for (size_t i = 0; i < page.n_rows; i++) {
            page.id_hash[i] = (x >> (45 + 3 * i)) % 7;
        }
        page.row[STATUS_ROW_PREPARING] = (x >> 20) % 9;
        judge(&page, requests, got);
        for (size_t i = 0; i < 4; i++) {
            bool was_marked = requests[i] == 'm' || requests[i] == 'M';
            assert_true(got[i] != 'F' || was_marked);
            changed = changed || got[i] == 'F' || (got[i] == 'm' && requests[i] != 'M');
        }
        assert_true(changed);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(own_fault),
        cmocka_unit_test(verdicts),
        cmocka_unit_test(any_page_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
