#!/usr/bin/python3
"""slow_loader.py GATE WORKER [ARG…]: becomes the worker when the file GATE is there; until then it is one that loads: its status
page says so, and moves. Standard library only."""
import mmap
import os
import struct
import sys
import time

PHASE, LOADED = 2, 3  # rows of the page, src/wire/status_page.h
gate, *command = sys.argv[1:]
fd = int(os.environ["HEARTH_WORKER_STATUS_FD"])
page = mmap.mmap(fd, 4096)
struct.pack_into("<Q", page, 8 * PHASE, 1)
n = 0
while not os.path.exists(gate):
    n += 1
    struct.pack_into("<Q", page, 8 * LOADED, n)
    time.sleep(0.01)
os.set_inheritable(fd, True)
os.execv(command[0], command)
