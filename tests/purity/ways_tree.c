/*
 * Ways of running that begin with what a stranger left in the prefix tree. Their prompts are longer than a page (way.pages in
 * scene.c): less is offered to nobody.
 */
#include "purity/scene.h"

#include <string.h>

#define PAGE  KV_PAGE_TOKENS
#define OTHER 40 /* tokens behind what is shared */

/* Somebody leaves the first n tokens of the prompt, with others behind them. */
static void left(scene *s, size_t n)
{
    int32_t ids[ASK_MAX_PROMPT + OTHER];
    memcpy(ids, s->q.prompt, n * sizeof *ids);
    place_prompt(&s->p, ids + n, OTHER, 9);
    ids[n] = s->q.prompt[n] == 70 ? 71 : 70;
    until_over(s, submit_other(s, &(other){.prompt = ids, .n_prompt = n + OTHER}));
}

static void judge(scene *s, size_t reused, kv_miss miss)
{
    until_over(s, &s->got);
    const gen_result *r = &s->got.result;
    expect(s, r->reset == RESET_NEW, reset_reason_name(r->reset));
    expect(s, (size_t)r->reused_tokens == reused, "not as many tokens reused");
    expect(s, r->miss == miss, kv_miss_name(r->miss));
    expect(s, miss == KV_MISS_NONE || (size_t)r->miss_at == reused, "the miss is elsewhere");
}

static void with(scene *s, size_t reused, kv_miss miss)
{
    tested(s, NULL);
    judge(s, reused, miss);
}

void run_tree_page(scene *s)
{
    left(s, PAGE);
    with(s, PAGE, KV_MISS_DIFFERS);
}

void run_tree_page_one(scene *s)
{
    left(s, PAGE + 1);
    with(s, PAGE + 1, KV_MISS_DIFFERS);
}

void run_tree_below(scene *s)
{
    left(s, PAGE - 1);
    tested(s, NULL);
    until_over(s, &s->got);
    expect(s, s->got.result.reused_tokens == 0, "less than a page was offered");
    expect(s, s->got.result.miss == KV_MISS_DIFFERS && s->got.result.miss_at == PAGE - 1,
           "the miss is elsewhere");
}

/* A leaf that goes on otherwise, decoded in part. */
void run_tree_leaf(scene *s)
{
    int32_t said[ASK_MAX_PROMPT];
    size_t n = s->q.n_reply, behind = 5;
    memcpy(said, s->q.prompt + s->q.n_turn, n * sizeof *said);
    place_prompt(&s->p, said + n, behind, 9);
    said[n] = s->q.prompt[s->q.n_turn + n] == 70 ? 71 : 70;
    heard *h = submit_other(s, &(other){.prompt = s->q.prompt,
                                        .n_prompt = s->q.n_turn,
                                        .n_new = (int32_t)(n + behind),
                                        .force = said,
                                        .n_force = n + behind});
    until_over(s, h);
    with(s, s->q.n_turn + n, KV_MISS_DIFFERS);
}

/* What is left ends inside a page. */
void run_tree_ends(scene *s)
{
    size_t n = s->q.n_prompt - 2;
    until_over(s, submit_other(s, &(other){.prompt = s->q.prompt, .n_prompt = n}));
    with(s, n, KV_MISS_ENDS);
}

void run_tree_whole(scene *s)
{
    until_over(s, submit_other(s, &(other){.prompt = s->q.prompt, .n_prompt = s->q.n_prompt, .n_new = 3}));
    with(s, s->q.n_prompt - 1, KV_MISS_NONE);
}

/* Others need all pages but those of the whole ones, and leave nothing that is free. */
void run_tree_evicted(scene *s)
{
    size_t whole = s->q.n_prompt / PAGE;
    until_over(s, submit_other(s, &(other){.prompt = s->q.prompt, .n_prompt = s->q.n_prompt}));
    until_over(s, submit_other(s, &(other){.n_prompt = (stats_of(s).pages_total - whole) * PAGE}));
    expect(s, stats_of(s).pages_cached == stats_of(s).pages_total, "there are free pages");
    with(s, whole * PAGE, KV_MISS_ENDS);
}

/* Two copy from the same page in the same step; the other one goes while it is read. */
void run_tree_two(scene *s)
{
    left(s, s->q.n_prompt - 2);
    heard *h = submit_other(
        s, &(other){.prompt = s->q.prompt, .n_prompt = s->q.n_prompt, .n_new = 9, .cancel_at = 2});
    tested(s, NULL);
    step(s, 1);
    expect(s, stats_of(s).running == 2, "not both at once");
    judge(s, s->q.n_prompt - 2, KV_MISS_DIFFERS);
    until_over(s, h);
    expect(s, (size_t)h->result.reused_tokens == s->q.n_prompt - 2, "the other one found something else");
}

/* It goes on from pages that somebody left, gives way, and finds them again. */
void run_tree_parked(scene *s)
{
    until_over(s, submit_other(s, &(other){.prompt = s->q.prompt, .n_prompt = s->q.n_prompt}));
    run_parked_dropped(s);
    expect(s, (size_t)s->got.result.reused_tokens == s->q.n_prompt / PAGE * PAGE,
           "not as many tokens reused");
}

void run_tree_namespace(scene *s)
{
    until_over(s, submit_other(
                      s, &(other){.prompt = s->q.prompt, .n_prompt = s->q.n_prompt, .name_space = "other"}));
    with(s, 0, KV_MISS_NEW);
}

/* Left by one that was cancelled in its prompt. */
void run_tree_cancelled(scene *s)
{
    int32_t cached, done = 0;
    heard *h = submit_other(s, &(other){.prompt = s->q.prompt, .n_prompt = s->q.n_prompt, .n_new = 30});
    while (!h->over && (size_t)done < s->q.n_prompt / 2) {
        step(s, 1);
        seq_progress(h->seq, &cached, &done);
    }
    expect(s, !h->over && h->ids.len <= 1, "it is not in its prompt");
    cancel(h);
    until_over(s, h);
    size_t n = (size_t)done < PAGE ? 0 : (size_t)done < s->q.n_prompt ? (size_t)done : s->q.n_prompt - 1;
    with(s, n, n == s->q.n_prompt - 1 ? KV_MISS_NONE : KV_MISS_ENDS);
}
