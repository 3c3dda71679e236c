#!/usr/bin/python3
"""chaos_main.py --build DIR [--seconds N] [--seed N] [--without FAULT …]: one daemon, its workers, and all that may happen to them
(README.md). Exit 1 if a request is lost or changed, or if anything is not as it was at the end; the logs are kept then. Standard
library only."""
import argparse
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import catalogue
import faults
import final
from clients import Client
from prober import Prober
from rig import now, until
from world import World

ROOT = pathlib.Path(__file__).resolve().parents[2]
NOISE = ["type=Q8_0", "vocab=300", "width=256", "layers=6", "heads=8", "kv_heads=4", "ffn=768", "head_dim=32", "tokenizer=bpe",
         f"ctx={catalogue.CONTEXT}"]
CLIENTS = 14
END_IN = 180  # seconds from the last fault to the last answer


def options():
    p = argparse.ArgumentParser()
    p.add_argument("--build", required=True, help="the build folder")
    p.add_argument("--seconds", type=float, default=180)
    p.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10 ** 6))
    p.add_argument("--clients", type=int, default=CLIENTS)
    p.add_argument("--without", action="append", default=[], metavar="FAULT", help="leave one kind of fault out; again for more")
    p.add_argument("--keep", action="store_true", help="keep the folder in any case")
    return p.parse_args()


def tell(text):
    print(text, flush=True)


def make_models(folder, build):
    models = {catalogue.EMBER: str(folder / "ember.gguf"), catalogue.NOISE: str(folder / "noise.gguf")}
    shutil.copy(ROOT / "models/ember/ember.gguf", models[catalogue.EMBER])
    subprocess.run([build / "tools/make_model/make_model", models[catalogue.NOISE], *NOISE], check=True)
    return models


def storm(world, injector, clients, seconds):
    """Clients and faults, for so long; then until everybody has his answer. Returns the seconds of faults."""
    begin = told = now()
    for t in (*clients, injector):
        t.start()
    while now() - begin < seconds and len(world.book.failures) < 100:
        time.sleep(0.2)
        if now() - told >= 10:
            told = now()
            b = world.book
            tell(f"{told - begin:6.0f} s {b.n_settled():6} requests, {len(b.open):3} open, {sum(injector.counts.values()):4} faults, "
                 f"{len(world.deaths()):4} deaths, {len(world.lives):2} lives, {len(b.failures)} failures")
    world.quiet.set()
    lasted = now() - begin
    injector.join(120)
    world.over.set()
    end = now() + END_IN
    for c in clients:
        c.join(max(0, end - now()))
        if c.is_alive():
            world.book.fail(f"client {c.number} still waits in {c.doing}", "lost")
    for r in list(world.book.open):
        world.book.fail(f"never accounted: {r.kind} {r.name} {r.id}", "lost")
    return lasted


def table(world, injector, prober, seconds, told):
    b = world.book
    kinds = sorted({k for k, _ in b.table})
    outcomes = sorted({o for _, o in b.table}, key=lambda o: -sum(n for (_, x), n in b.table.items() if x == o))
    tell(f"\nduration {seconds:.0f} s, {len(world.lives)} daemons")
    tell("faults   " + ", ".join(f"{n} {k}" for k, n in sorted(injector.counts.items())) + f": {sum(injector.counts.values())}")
    tell("deaths   " + ", ".join(f"{n} {c}" for c, n in sorted(told["deaths"].items())))
    tell("requests")
    wide = max(map(len, kinds), default=0)
    tell("  " + "".ljust(wide) + "".join(o.rjust(10) for o in outcomes) + "all".rjust(10))
    for k in kinds:
        row = [b.table[k, o] for o in outcomes]
        tell("  " + k.ljust(wide) + "".join(str(n or "").rjust(10) for n in row) + str(sum(row)).rjust(10))
    sums = [sum(b.table[k, o] for k in kinds) for o in outcomes]
    tell("  " + "".ljust(wide) + "".join(str(n).rjust(10) for n in sums) + str(sum(sums)).rjust(10))
    for line, n in told["events"].most_common(12):
        tell(f"log      {n:5} × {line}")
    times = sorted(prober.times) or [0]
    tell(f"probes   {prober.n}: median {times[len(times) // 2] * 1000:.1f} ms, 99 % {times[len(times) * 99 // 100] * 1000:.0f} ms, "
         f"largest {times[-1] * 1000:.0f} ms")
    tell(f"store    {told['store']}; resident daemon {told['rss'][0] >> 10} MiB at the beginning, {told['rss'][1] >> 10} at the end")
    tell(f"blamed   {told['blamed']} by injected deaths of their own fault")
    tell(f"lost     {b.lost}\nchanged  {b.changed}\nfailures {len(b.failures)}")


def main():
    o = options()
    tell(f"seed     {o.seed}")
    build = pathlib.Path(o.build).resolve()
    hearth, lib = str(build / "src/cmd/hearth"), str(build / "tests/preload/hearth_faults.so")
    folder = pathlib.Path(tempfile.mkdtemp(prefix="hearth-chaos-run-"))
    run = f"{os.getpid()}-{o.seed}"
    world = World(folder, run, hearth, lib, make_models(folder, build), tell)
    world.group = faults.make_group(run)
    tell(f"memory   {'limited by ' + str(world.group) if world.group else 'NOT limited: no group of the memory controller to be had'}")
    try:
        world.catalogue = catalogue.Catalogue(catalogue.cold_daemon(hearth, world.models), tell)
        world.start()
        baseline = final.Baseline(world)
        injector, prober = faults.Injector(world, o.seed, o.without), Prober(world)
        prober.start()
        lasted = storm(world, injector, [Client(world, i, o.seed) for i in range(o.clients)], o.seconds)
        prober.done.set()
        prober.join(90)
        prober.check_frozen()
        table(world, injector, prober, lasted, final.finish(world, baseline, str(build / "tests/chaos/check_store")))
    finally:
        if world.daemon and world.daemon.process.poll() is None:
            world.daemon.process.send_signal(signal.SIGCONT)
            world.daemon.process.kill()
        until(lambda: not final.marked(run), 5)
        faults.remove_group(world.group)
        world.log_file.close()
        bad = bool(world.book.failures) or sys.exc_info()[0] is not None
        if bad:
            (folder / "failures").write_text("\n".join(world.book.failures) + "\n")
        if bad or o.keep:
            tell(f"kept     {folder}: daemon.log, failures, store; again: --seed {o.seed}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
