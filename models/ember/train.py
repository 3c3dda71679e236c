#!/usr/bin/python3
"""Trains Ember on one core; may be stopped and started again at any time.

    taskset -c 1 ./train.py --dir DIR --steps 5600

Reads DIR/tokens.bin and docs.bin (prepare.py), keeps DIR/checkpoint.pt (written every --save seconds), appends to
DIR/train.log. Matrices are trained with Muon (momentum made orthogonal by Newton-Schulz steps), the embedding
with Adam; the rate rises in 100 steps, stays, and falls to zero along a half cosine over the last --fall of all
steps. What is exported is a running mean of the weights. Batches are a function of seed and step.
"""
import argparse
import bisect
import ctypes
import math
import os
import sys
import time

# Without these glibc gives large buffers back to the kernel after each use: a third of the time goes to page faults.
ALLOCATOR = {"MALLOC_MMAP_THRESHOLD_": "4294967296", "MALLOC_TRIM_THRESHOLD_": "17179869184",
             "MALLOC_TOP_PAD_": "268435456", "MALLOC_ARENA_MAX": "1", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
if __name__ == "__main__" and os.environ.get("MALLOC_MMAP_THRESHOLD_") is None:
    os.environ.update(ALLOCATOR)
    os.execv(sys.executable, [sys.executable] + sys.argv)

import numpy as np
import torch

from model import BF16, CONFIG, Ember
from prepare import ANSWER

LENGTHS = (128, 256, 512, 1024)  # of rows; all rows of a batch are of one length
OTHER_SHARE, OTHER_WEIGHT = 0.15, 0.5  # of the tokens that are no answer


class Batches:
    """Packs conversations into rows; one epoch is one order of all of them."""

    def __init__(self, directory, seed, tokens):
        self.rows_of = {t: tokens // t for t in LENGTHS}
        self.tokens = np.fromfile(os.path.join(directory, "tokens.bin"), dtype=np.uint16)
        self.docs = np.fromfile(os.path.join(directory, "docs.bin"), dtype=np.uint32).astype(np.int64)
        self.seed, self.epoch, self.plan, self.first = seed, -1, [], 0

    def pack(self, epoch):
        """Batches of rows of documents: the longest first, each into the fullest row that still takes it."""
        rng = np.random.default_rng([self.seed, epoch])
        size = np.diff(self.docs)
        rows = {t: [] for t in LENGTHS}
        order = rng.permutation(len(size))
        for at in range(0, len(order), 8192):
            part = order[at:at + 8192]
            by_room, rooms = {}, []  # rows by what still fits into them; the keys in order
            for d in part[np.argsort(-size[part], kind="stable")]:
                n = int(size[d])
                if n > LENGTHS[-1]:
                    continue
                i = bisect.bisect_left(rooms, n)
                if i < len(rooms):
                    room = rooms[i]
                    row = by_room[room].pop()
                    if not by_room[room]:
                        del by_room[room], rooms[i]
                else:
                    room, row = next(t for t in LENGTHS if n <= t), []
                    rows[room].append(row)
                row.append(int(d))
                if room - n not in by_room:
                    bisect.insort(rooms, room - n)
                by_room.setdefault(room - n, []).append(row)
        batches = []
        for t, n in self.rows_of.items():
            rng.shuffle(rows[t])
            batches += [(t, rows[t][i:i + n]) for i in range(0, len(rows[t]) - n + 1, n)]
        rng.shuffle(batches)
        return batches

    def get(self, step):
        """ids, doc, target, weight of [rows][T] each."""
        while step - self.first >= len(self.plan):
            self.first += len(self.plan)
            self.epoch += 1
            self.plan = self.pack(self.epoch)
        t, rows = self.plan[step - self.first]
        raw = np.zeros((len(rows), t), dtype=np.int64)
        doc = np.full((len(rows), t), -1, dtype=np.int64)
        for r, docs in enumerate(rows):
            at = 0
            for d in docs:
                part = self.tokens[self.docs[d]:self.docs[d + 1]]
                raw[r, at:at + len(part)] = part
                doc[r, at:at + len(part)] = d
                at += len(part)
        ids = raw & (ANSWER - 1)
        target = np.full_like(ids, -1)
        same = (doc[:, 1:] == doc[:, :-1]) & (doc[:, 1:] >= 0)
        target[:, :-1][same] = ids[:, 1:][same]
        weight = np.zeros(ids.shape, dtype=np.float32)
        weight[:, :-1] = np.where(raw[:, 1:] & ANSWER, 1.0, 0.0)
        other = np.random.default_rng([self.seed, 7, step]).random(ids.shape) < OTHER_SHARE
        weight[(weight == 0) & other] = OTHER_WEIGHT
        return [torch.from_numpy(a) for a in (ids, doc, target, weight)]


def orthogonal(g):
    """The nearest semi-orthogonal matrix, roughly: 5 quintic Newton-Schulz steps in bf16."""
    a, b, c = 3.4445, -4.7750, 2.0315
    x = g / (g.norm() + 1e-7)
    tall = x.shape[0] > x.shape[1]
    x = (x.t() if tall else x).to(BF16).contiguous()
    for _ in range(5):
        s = x @ x.t()
        s = torch.addmm(s, s, s, beta=b, alpha=c)
        x = torch.addmm(x, s, x, beta=a)
    x = x.float()
    return x.t() if tall else x


class Optimizer:
    def __init__(self, model):
        self.model = model
        self.momentum = {k: torch.zeros_like(p) for k, p in model.mats.items()}
        self.m, self.v = torch.zeros_like(model.embed), torch.zeros_like(model.embed)
        c = model.config
        kv, q = c["n_head_kv"] * c["head_dim"], c["n_head"] * c["head_dim"]
        self.parts = {"qkv": [q, kv, kv], "gu": [c["n_ff"]] * 2, "o": None, "down": None}

    def step(self, n, rate, a):
        with torch.no_grad():
            for k, p in self.model.mats.items():
                g, mom = p.grad, self.momentum[k]
                mom.lerp_(g, 1 - 0.95)
                g = g.lerp(mom, 0.95)
                parts = self.parts[k.split("_")[1]] or [p.shape[0]]
                u = torch.cat([orthogonal(x) * max(1.0, x.shape[0] / x.shape[1]) ** 0.5 for x in g.split(parts)])
                p.mul_(1 - rate * a.matrix_rate * a.decay).add_(u, alpha=-rate * a.matrix_rate)
            p, g = self.model.embed, self.model.embed.grad
            self.m.lerp_(g, 0.1)
            self.v.lerp_(g * g, 0.02)
            m, v = self.m / (1 - 0.9 ** (n + 1)), self.v / (1 - 0.98 ** (n + 1))
            p.add_(m / (v.sqrt() + 1e-10), alpha=-rate * a.embed_rate)
            self.model.zero_grad(set_to_none=True)

    def state(self):
        return {"momentum": self.momentum, "m": self.m, "v": self.v}

    def load(self, s):
        self.momentum, self.m, self.v = s["momentum"], s["m"], s["v"]


def rate_at(step, a):
    fall = int(a.steps * a.fall)
    if step < 100:
        return (step + 1) / 100
    if step < a.steps - fall:
        return 1.0
    return 0.5 + 0.5 * math.cos(math.pi * (step - (a.steps - fall)) / fall)


def save(path, **state):
    torch.save(state, path + ".part")
    os.replace(path + ".part", path)


def main():
    p = argparse.ArgumentParser(description="train Ember")
    p.add_argument("--dir", required=True)
    p.add_argument("--data", help="where tokens.bin and docs.bin are, if not in DIR")
    p.add_argument("--steps", type=int, required=True)
    p.add_argument("--until", type=int, help="stop there; go on later")
    p.add_argument("--tokens", type=int, default=4096, help="of a batch")
    p.add_argument("--fall", type=float, default=0.4)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--matrix-rate", type=float, default=0.02)
    p.add_argument("--embed-rate", type=float, default=0.004)
    p.add_argument("--decay", type=float, default=0.1)
    p.add_argument("--save", type=float, default=180)
    a = p.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(a.seed)
    batches, model = Batches(a.data or a.dir, a.seed, a.tokens), Ember()
    opt = Optimizer(model)
    mean = {k: v.detach().clone() for k, v in model.state_dict().items()}
    start, seconds, path = 0, 0.0, os.path.join(a.dir, "checkpoint.pt")
    if os.path.exists(path):
        s = torch.load(path)
        model.load_state_dict(s["model"])
        opt.load(s["optimizer"])
        start, seconds, mean = s["step"], s["seconds"], s["mean"]
    log = open(os.path.join(a.dir, "train.log"), "a", buffering=1)
    began = last = saved = time.time()
    sums = [0.0, 0]
    end = a.until or a.steps
    for step in range(start, end):
        ids, doc, target, weight = batches.get(step)
        loss = model.loss(ids, doc, target, weight)
        loss.backward()
        rate = rate_at(step, a)
        opt.step(step, rate, a)
        sums[0] += loss.item()
        sums[1] += int((doc >= 0).sum())
        if step % 5 == 4:
            keep = min(0.98, step / (step + 50.0))
            for k, v in model.state_dict().items():
                mean[k].lerp_(v, 1 - keep)
        if step % 50 == 49:
            now = time.time()
            log.write(f"step {step + 1} loss {sums[0] / 50:.4f} rate {rate:.3f} tokens/s {sums[1] / (now - last):.0f} "
                      f"hours {(seconds + now - began) / 3600:.3f}\n")
            last, sums = now, [0.0, 0]
            ctypes.CDLL(None).malloc_trim(0)
        if time.time() - saved > a.save or step + 1 == end:
            saved = time.time()
            save(path, model=model.state_dict(), mean=mean, optimizer=opt.state(), step=step + 1,
                 seconds=seconds + saved - began, config=CONFIG)


if __name__ == "__main__":
    main()
