#!/usr/bin/env python3
"""mutants.py [--root DIR] [--seconds T] [NAME ...]: does the simulator notice when a line of the engine is missing?

Each row of MUTANTS changes one place of src/engine in a copy of the tree; the simulator is built on that copy and must
fail within T seconds (60). Prints a table; exits 1 if one survives or no longer fits the code.
"""
import argparse
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

# name, file of src/engine, what stands there (once), what stands there instead
MUTANTS = [
    # sweeps
    ("no cancel is swept", "scheduler.c", "if (sequence_cancelled(s) || sequence_overdue(s, now_ns) ||", "if (sequence_overdue(s, now_ns) ||"),
    ("no deadline is swept", "scheduler.c", "if (sequence_cancelled(s) || sequence_overdue(s, now_ns) ||", "if (sequence_cancelled(s) ||"),
    ("the parked are not swept", "scheduler.c", "if (s->state == SEQ_TAIL && !s->held) {", "if ((s->state == SEQ_TAIL && !s->held) || s->state == SEQ_PARKED) {"),
    ("the queued are not swept", "scheduler.c", "if (s->state == SEQ_TAIL && !s->held) {", "if ((s->state == SEQ_TAIL && !s->held) || s->state == SEQ_QUEUED) {"),
    ("the held are not swept", "scheduler.c", "if (s->state == SEQ_TAIL && !s->held) {", "if (s->state == SEQ_TAIL || s->held) {"),
    # releases and cleanup
    ("the lane of an anonymous one stays", "sequence.c", "(void)lanes_release(en->lanes, s->ticket);", ""),
    ("the lane of a closed session stays", "session.c", "    assert(s->n_requests == 0);\n    session_lose_lane(s);", "    assert(s->n_requests == 0);"),
    ("pages of the parked stay", "preempt.c", "    reuse_leave(s, !s->image);\n", ""),
    ("promises of the parked stay", "preempt.c", "    en->promised_pages -= s->promised_pages;\n    s->promised_pages = 0;\n", ""),
    ("promises of the ended stay", "sequence.c", "    en->promised_pages -= s->promised_pages;\n    if (s->state", "    if (s->state"),
    ("resuming promises nothing", "preempt.c", "    en->promised_pages += s->promised_pages;\n", ""),
    ("taking pages keeps the promise", "sequence.c", "    s->en->promised_pages -= kept;\n", ""),
    ("the copy of an ended one stays", "sequence.c", "    sequence_drop_image(s);\n    size_t lacks", "    size_t lacks"),
    ("the copy of a restored one stays", "preempt.c", "        sequence_drop_image(s);\n", ""),
    ("a dropped copy keeps its budget", "park.c", "    p->used_bytes -= image_bytes(img);\n", ""),
    ("an ended one keeps its session", "sequence.c", "    owner->active = NULL;\n", ""),
    ("an ended one counts on its session", "sequence.c", "        s->session->n_requests--;\n", "        ;\n"),
    ("a cut parked one counts as parked", "sequence.c", "    if (s->state == SEQ_PARKED) {\n        atomic_fetch_sub", "    if (0) {\n        atomic_fetch_sub"),
    ("a failed request leaves its tokens", "sequence.c", "    leave(s, false);\n", "    leave(s, true);\n"),
    ("a failure leaves the session clean", "sequence.c", "        owner->dirty = true;\n", ""),
    ("a cancel leaves the session clean", "sequence.c", "(s->stop_cut || s->sealed == FINISH_CANCELLED)) {", "s->stop_cut) {"),
    ("a stop string leaves the session clean", "sequence.c", "(s->stop_cut || s->sealed == FINISH_CANCELLED)) {", "s->sealed == FINISH_CANCELLED) {"),
    # who gives way, who comes back, who comes in
    ("the eldest may give way", "policy.c", "i != spared && r[i].can_be_parked", "r[i].can_be_parked"),
    ("a held one is spared as the eldest", "policy.c", "if (!r[i].held && (best", "if ((best"),
    ("nobody is immune", "policy.c", "    if (a->immune != b->immune) {\n        return b->immune;\n    }\n", ""),
    ("resuming makes nobody immune", "preempt.c", "    s->immune_until = sequence_generated(s) + POLICY_IMMUNE_TOKENS;\n", ""),
    ("the longest reply gives way", "policy.c", "a->n_generated < b->n_generated : a->admitted > b->admitted", "a->n_generated > b->n_generated : a->admitted > b->admitted"),
    ("of equal ones the elder gives way", "policy.c", "a->n_generated < b->n_generated : a->admitted > b->admitted", "a->n_generated < b->n_generated : a->admitted < b->admitted"),
    ("two give way for one shortage", "scheduler.c", "if (stored_yield(en) || preempt_one(en, false, now_ns)) {", "if (stored_yield(en) || (preempt_one(en, false, now_ns) && (preempt_one(en, false, now_ns) || true))) {"),
    ("who gives way computes all the same", "scheduler.c", "    en->active[pick]->step_rows = 0;\n", ""),
    ("the largest comes back first", "policy.c", "p[i].n_tokens < p[best].n_tokens ||", "p[i].n_tokens > p[best].n_tokens ||"),
    ("a held one comes back", "policy.c", "if (!p[i].held && better) {", "if (better) {"),
    ("new ones pass the parked for ever", "scheduler.c", "bool closed = resume_parked(en, now_ns);", "bool closed = resume_parked(en, now_ns) && false;"),
    ("waiting ones are passed for ever", "scheduler.c", "closed = now_ns - s->waits_ns >= POLICY_PASS_NS;", "closed = false;"),
    ("the last one comes in first", "policy.c", "a->ticket < b->ticket", "a->ticket > b->ticket"),
    ("priority is not looked at", "policy.c", "return (uint64_t)((int64_t)w->priority - INT32_MIN) +", "return"),
    ("idle sessions keep their lanes", "scheduler.c", "if (st == ST_CAPACITY && !lane_will_come(en)) {", "if (0) {"),
    ("promised pages are given away", "scheduler.c", " + cached_pages(en) - en->promised_pages;\n", " + cached_pages(en);\n"),
    # holds and sessions
    ("a held one computes", "scheduler.c", "if (!computes || s->held) {", "if (!computes) {"),
    ("a held one comes in", "scheduler.c", "    return !s->held;\n", "    return true;\n"),
    ("two run on one session", "scheduler.c", "if (!first || s->session->active) {", "if (!first) {"),
    ("a session's requests overtake", "scheduler.c", "if (!first || s->session->active) {", "if (s->session->active) {"),
    ("a dirty session is reused", "session.c", "if (s->dirty) {", "if (0) {"),
    ("a session keeps what it had", "session.c", "    ivec_reset(&s->ids);\n    return ivec_append", "    return ivec_append"),
    ("a cold session keeps its tokens", "sequence.c", "if (kept && s->en->cfg.warm) {", "if (kept) {"),
    # what was computed is found again
    ("one token too many is reused", "reuse.c", "kv_tree_match(en->tree, root, prompt, n, n - 1);", "kv_tree_match(en->tree, root, prompt, n, n);"),
    ("less than a page is offered to strangers", "reuse.c", "    return usable >= KV_PAGE_TOKENS || usable <= known ? usable : known;\n", "    return usable;\n"),
    ("namespaces are not looked at", "reuse.c", "    if (n == 0) {\n", "    if (n < SIZE_MAX) {\n"),
    ("all leave under the common root", "reuse.c", "kv_tree_insert(en->tree, &s->root, s->kv", "kv_tree_insert(en->tree, &en->cfg.identity, s->kv"),
    ("a scored prompt reuses rows", "reuse.c", "    if (s->prompt_probs) { /* whoever", "    if (0) { /* whoever"),
    ("who comes in does not hold its prefix", "reuse.c", "        kv_tree_hold(en->tree, o->node);\n    }\n", "        ;\n    }\n"),
    ("who does not come in keeps its hold", "reuse.c", "        kv_tree_release(en->tree, o->node);\n    }\n", "        ;\n    }\n"),
    ("who ends keeps its hold", "reuse.c", "        kv_tree_release(en->tree, s->hold);\n", ""),
    ("a sequence forgets its hold", "reuse.c", "    s->hold = o->node;\n", ""),
    ("the page that was copied stays held", "reuse.c", "    kv_tree_release(en->tree, leaf);\n", ""),
    ("the whole pages are not held", "reuse.c", "    kv_tree_hold(en->tree, o->node);\n    kv_tree_release(en->tree, leaf);\n", "    kv_tree_release(en->tree, leaf);\n"),
    ("who needs all pages keeps one more", "scheduler.c", "    reuse_whole_pages(en, o);\n    if (has_room", "    if (has_room"),
    ("the rows of a page are not copied", "resident.c", "    memcpy(r->addrs[r->n_pages - 1], page, page_pool_page_bytes(pool));\n", ""),
    ("one who ends leaves nothing", "sequence.c", "    leave(s, true);\n    counter_add(s->sealed", "    leave(s, false);\n    counter_add(s->sealed"),
    ("a resumed one has rows that it had not", "reuse.c", "s->history.data, s->history.len, whole);", "s->history.data, s->history.len, s->history.len);"),
    ("its own prefix is counted as a gain", "scheduler.c", "n += refs == 1 || (refs == 2 && !wanted && !en->fetching);", "n += refs <= 2;"),
    ("cached pages are given up for nothing", "scheduler.c", "    while (page_pool_available(en->pages) - en->promised_pages < n_pages) {\n", "    (void)(en->tree && kv_tree_evict(en->tree, 0));\n    while (page_pool_available(en->pages) - en->promised_pages < n_pages) {\n"),
    # what parking must not lose, and who fails
    ("a resumed one begins again", "sequence.c", "if (s->begun) { /* it was parked", "if (0) { /* it was parked"),
    ("tokens computed again count twice", "sequence.c", "within(first, end, known, s->n_prompt);", "within(first, end, 0, s->n_prompt);"),
    ("prompt rows are scored again", "sequence.c", "size_t from = first > s->n_known ? first : s->n_known;", "size_t from = first;"),
    ("all of a failed batch fail", "engine.c", "        run_batch(en, seqs + i, 1);", "        sequence_fail(seqs[i], &e);"),
    ("bad rows are not looked at", "engine.c", "        if (spoiled(en, s)) {", "        if (0) {"),
    # replies that go on
    ("what it had is told as new", "sequence.c", ".again = true}", ".again = false}"),
    ("what it had counts as its prompt", "sequence.c", "within(first, end, known, s->n_prompt);", "within(first, end, known, s->n_prompt + s->n_resumed);"),
    ("what it had is computed again", "reuse.c", "s->session, s->history.data, s->history.len);", "s->session, s->history.data, s->n_prompt);"),
    ("what it had is reused as its prompt", "sequence.c", "s->reused = o->n_tokens < s->n_prompt ? o->n_tokens : s->n_prompt;", "s->reused = o->n_tokens;"),
    ("one that is over is computed", "scheduler.c", " || (sequence_over(s) && !s->held)) {", ") {"),
    ("one that is over ends held", "scheduler.c", "(sequence_over(s) && !s->held)", "sequence_over(s)"),
    ("one that is over goes on", "sequence.c", "st = last ? seal(s, &c)", "st = last ? ST_OK"),
    ("the prompt is scored behind what it had", "sequence.c", "r->prompt_logprobs >= 0 && r->n_resumed == 0) {", "r->prompt_logprobs >= 0) {"),
    ("the guard does not end a reply", "sequence.c", "c->guard = s->repeated;", ""),
]


def sh(args, **kw):
    return subprocess.run(args, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **kw)


def copy_tree(root, to):
    skip = shutil.ignore_patterns(".git", "build", "__pycache__")
    shutil.copytree(root, to, ignore=skip)


def build(build_dir):
    p = sh(["ninja", "-C", str(build_dir), "tests/sim/sim"])
    return p.returncode == 0, p.stdout


def run(build_dir, seconds):
    began = time.monotonic()
    p = sh([str(build_dir / "tests/sim/sim"), "--seed", "1", "--seconds", str(seconds), "--shrink", "0"])
    says = [line for line in p.stdout.splitlines() if "fails:" in line]
    return p.returncode, time.monotonic() - began, says[-1].split("fails: ", 1)[1] if says else p.stdout.strip()[-200:]


def main():
    a = argparse.ArgumentParser()
    a.add_argument("--root", default=pathlib.Path(__file__).resolve().parents[2], type=pathlib.Path)
    a.add_argument("--seconds", default=60, type=int)
    a.add_argument("names", nargs="*")
    o = a.parse_args()
    wanted = [m for m in MUTANTS if not o.names or any(n in m[0] for n in o.names)]
    bad = 0
    with tempfile.TemporaryDirectory(prefix="hearth-mutants-") as tmp:
        tree, build_dir = pathlib.Path(tmp) / "tree", pathlib.Path(tmp) / "build"
        copy_tree(o.root, tree)
        setup = sh(["meson", "setup", str(build_dir), str(tree), "--buildtype=debugoptimized"])
        ok, log = build(build_dir) if setup.returncode == 0 else (False, setup.stdout)
        if not ok:
            print(log[-3000:])
            return 1
        rc, took, says = run(build_dir, 10)
        print(f"{'unchanged':44} {'fails' if rc else 'fine'} {took:6.1f} s  {says if rc else ''}", flush=True)
        bad += rc != 0
        for name, file, old, new in wanted:
            path = tree / "src/engine" / file
            text = path.read_text()
            if text.count(old) != 1:
                print(f"{name:44} STALE: {text.count(old)} places in {file}", flush=True)
                bad += 1
                continue
            path.write_text(text.replace(old, new))
            ok, log = build(build_dir)
            if not ok:
                errors = [line for line in log.splitlines() if "error:" in line]
                print(f"{name:44} STALE: {errors[:1]}", flush=True)
                bad += 1
            else:
                rc, took, says = run(build_dir, o.seconds)
                print(f"{name:44} {'killed' if rc else 'LIVES '} {took:6.1f} s  {says if rc else ''}", flush=True)
                bad += rc == 0
            path.write_text(text)
    print(f"{len(wanted)} mutants, {bad} not noticed or stale")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
