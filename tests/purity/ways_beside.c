/*
 * Ways of running that are about the others of a batch, and about the order in which they come.
 */
#include "purity/scene.h"

#include <string.h>

#define LONG_PROMPT 400

void run_alone(scene *s)
{
    tested(s, NULL);
    until_over(s, &s->got);
}

void run_beside_one(scene *s)
{
    heard *h = submit_other(s, &(other){.n_prompt = 40, .n_new = 400});
    until_said(s, h, 3);
    tested(s, NULL);
    until_over(s, &s->got);
    expect(s, !h->over, "the neighbour was gone");
}

void run_beside_seven(scene *s)
{
    heard *first = submit_other(s, &(other){.n_prompt = 40, .n_new = 400});
    heard *second = submit_other(s, &(other){.n_prompt = 33, .n_new = 400});
    until_said(s, first, 2);
    until_said(s, second, 1);
    submit_other(s, &(other){.n_prompt = 120, .n_new = 4});
    heard *bad = submit_other(s, &(other){.n_prompt = 35, .n_new = 4, .poison = true});
    tested(s, NULL);
    submit_other(s, &(other){.n_prompt = 20, .n_new = 5, .scored = true});
    submit_other(s, &(other){.n_prompt = 31, .n_new = 0, .plan = GEN_EMBED});
    heard *cut = submit_other(s, &(other){.n_prompt = 10, .n_new = 100, .cancel_at = 2});
    expect(s, s->n_others == 7, "not seven");
    until_over(s, &s->got);
    until_over(s, bad);
    until_over(s, cut);
    expect(s, bad->failed, "the bad neighbour did not fail");
    expect(s, cut->result.reason == FINISH_CANCELLED, "the cancelled neighbour went on");
    expect(s, !first->over && !second->over, "the neighbours were gone");
}

void run_beside_bad(scene *s)
{
    const other bad = {.n_prompt = 40, .n_new = 4, .poison = true};
    heard *one = submit_other(s, &bad), *two, *three;
    tested(s, NULL);
    two = submit_other(s, &bad);
    until_said(s, &s->got, PURITY_HOLD_AT);
    three = submit_other(s, &bad);
    until_over(s, &s->got);
    until_over(s, three);
    expect(s, one->failed && two->failed && three->failed, "a bad neighbour did not fail");
}

void run_beside_cancelled(scene *s)
{
    heard *decoding = submit_other(s, &(other){.n_prompt = 8, .n_new = 100});
    until_said(s, decoding, 2);
    heard *waiting = submit_other(s, &(other){.n_prompt = 50, .n_new = 100});
    heard *prefilling = submit_other(s, &(other){.n_prompt = 300, .n_new = 100});
    heard *late = submit_other(s, &(other){.n_prompt = 20, .n_new = 100});
    tested(s, NULL);
    cancel(waiting);
    step(s, 1);
    cancel(prefilling);
    cancel(decoding);
    until_said(s, &s->got, PURITY_HOLD_AT);
    cancel(late);
    until_over(s, &s->got);
    expect(s, waiting->over && prefilling->over && decoding->over && late->over,
           "a cancelled neighbour went on");
    expect(s, waiting->ids.len == 0, "a cancelled neighbour spoke");
}

void run_beside_scored(scene *s)
{
    submit_other(s, &(other){.n_prompt = 90, .n_new = 100, .scored = true});
    step(s, 1);
    tested(s, NULL);
    submit_other(s, &(other){.n_prompt = 30, .n_new = 0, .scored = true});
    until_said(s, &s->got, PURITY_HOLD_AT);
    submit_other(s, &(other){.n_prompt = 40, .n_new = 3, .scored = true});
    until_over(s, &s->got);
}

void run_held(scene *s)
{
    heard *beside = submit_other(s, &(other){.n_prompt = 10, .n_new = 400});
    tested(s, NULL);
    hold(&s->got, true);
    step(s, 3);
    expect(s, s->got.ids.len == 0, "it spoke while it was held");
    hold(&s->got, false);
    step(s, 1);
    size_t said = s->got.ids.len;
    hold(&s->got, true); /* in its prompt, if that takes more than a step */
    step(s, 2);
    expect(s, s->got.ids.len == said, "it spoke while it was held");
    s->got.hold_at = PURITY_HOLD_AT; /* and inside a token call */
    hold(&s->got, false);
    until_said(s, &s->got, PURITY_HOLD_AT);
    step(s, 5);
    expect(s, s->got.ids.len == PURITY_HOLD_AT, "it spoke while it was held");
    expect(s, !beside->over, "the neighbour was gone");
    hold(&s->got, false);
    until_over(s, &s->got);
}

void run_cut_by_time(scene *s)
{
    heard *first = submit_other(s, &(other){.n_prompt = 8, .n_new = 400});
    submit_other(s, &(other){.n_prompt = 9, .n_new = 400});
    until_said(s, first, 12); /* it has learnt what a step takes */
    size_t before = s->p.n_steps;
    tested(s, NULL);
    until_said(s, &s->got, 1);
    /* A step of 8 has room for 6 rows, two of them the neighbours'; it may be off by a few. */
    expect(s, (s->p.n_steps - before) * 8 >= s->q.n_prompt, "its prompt was not cut by time");
    until_over(s, &s->got);
}

void run_behind_long(scene *s)
{
    int32_t cached, done;
    heard *h = submit_other(s, &(other){.n_prompt = LONG_PROMPT, .n_new = 4});
    step(s, 2);
    seq_progress(h->seq, &cached, &done);
    expect(s, done > 0 && done < LONG_PROMPT, "the long prompt is not in its middle");
    tested(s, NULL);
    until_over(s, &s->got);
}

void run_low_priority(scene *s)
{
    heard *first = submit_other(s, &(other){.n_prompt = 20, .n_new = 5, .priority = 3});
    heard *second = submit_other(s, &(other){.n_prompt = 30, .n_new = 9, .priority = 3});
    tested_with_priority(s, GEN_MIN_PRIORITY);
    heard *third = submit_other(s, &(other){.n_prompt = 10, .n_new = 100, .priority = 3});
    step(s, 1);
    expect(s, stats_of(s).running == 2 && !first->over && !second->over, "not two lanes");
    until_said(s, &s->got, 1);
    expect(s, third->ids.len > 0, "what came later did not go first");
    until_over(s, &s->got);
}

void run_high_priority(scene *s)
{
    submit_other(s, &(other){.n_prompt = 20, .n_new = 300});
    heard *second = submit_other(s, &(other){.n_prompt = 30, .n_new = 9});
    step(s, 1);
    heard *third = submit_other(s, &(other){.n_prompt = 10, .n_new = 100});
    tested_with_priority(s, GEN_MAX_PRIORITY);
    until_said(s, &s->got, 1);
    expect(s, second->over, "not two lanes");
    expect(s, third->ids.len == 0, "it did not go before what came earlier");
    until_over(s, &s->got);
}
