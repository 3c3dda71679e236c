#!/usr/bin/python3
"""frame_killer.py PLAN COMMAND …: a worker that is killed right after a given frame, as by `kill -9`: what it has said by then has
been heard, and nothing after that. Passes the status page and stdin on to COMMAND, and its stdout through. Standard library only.

PLAN is a file "NAME N": the N-th frame with an id that is said while NAME stands there is the worker's last, once: then the file is
"NAME 0"."""
import os
import signal
import subprocess
import sys

plan, *command = sys.argv[1:]
worker = subprocess.Popen(command, stdout=subprocess.PIPE, close_fds=False)
name, n = None, 0
for line in worker.stdout:
    is_last = False
    if line.startswith(b'{"id"'):
        with open(plan) as f:
            now, last = f.read().split()
        name, n = now, (n if now == name else 0) + 1
        is_last = n == int(last)
    if is_last:  # before anybody can have heard of it
        with open(plan + ".new", "w") as f:
            f.write(f"{name} 0")
        os.rename(plan + ".new", plan)
    view = memoryview(line)
    while view:
        view = view[os.write(1, view):]
    if is_last:
        os.kill(worker.pid, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)
rc = worker.wait()
if rc < 0:
    os.kill(os.getpid(), -rc)
sys.exit(rc)
