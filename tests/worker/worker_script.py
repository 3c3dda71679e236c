#!/usr/bin/python3
"""worker_script.py --bpe MODEL --spm MODEL --long MODEL [--ember MODEL] [--modules NAMES] [-k PATTERN] COMMAND...: every sentence of the worker protocol.

Drives a worker (`hearth worker`, or tests/worker/worker_main) over pipes; standard library only. The models are the
random ones of tests/model/make_model (300 ids; see tests/worker/meson.build), and the bundled one, which chats. Exit status 0
if all holds.
"""
import argparse
import sys
import time
import unittest

import worker_client

MODULES = ["cases_start", "cases_lines", "cases_request", "cases_reply", "cases_session", "cases_end", "cases_cancel", "cases_states",
           "cases_mux", "cases_kept", "cases_store", "cases_purity"]


class Result(unittest.TextTestResult):
    """Says how long each test took."""

    def startTest(self, test):
        self.since = time.monotonic()
        super().startTest(test)

    def stopTest(self, test):
        super().stopTest(test)
        self.stream.writeln(f"    {time.monotonic() - self.since:.2f} s")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bpe", required=True, help="byte-level BPE, context 512")
    parser.add_argument("--spm", required=True, help="SentencePiece style, context 512")
    parser.add_argument("--long", required=True, help="byte-level BPE, context 8192")
    parser.add_argument("--ember", help="the bundled model, for conversations")
    parser.add_argument("--modules", help="only these, with commas; also one that is not among the others")
    parser.add_argument("-k", dest="pattern", help="only tests whose name holds this")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    args = parser.parse_args()
    worker_client.COMMAND[:] = args.command
    worker_client.MODELS.update(bpe=args.bpe, spm=args.spm, long=args.long, ember=args.ember)
    loader = unittest.TestLoader()
    if args.pattern:
        loader.testNamePatterns = [f"*{args.pattern}*"]
    modules = args.modules.split(",") if args.modules else MODULES + ["cases_ember"] * bool(args.ember)
    suite = unittest.TestSuite(loader.loadTestsFromName(m) for m in modules)
    result = unittest.TextTestRunner(stream=sys.stderr, verbosity=2, resultclass=Result, descriptions=False).run(suite)
    if result.testsRun == 0:
        print("worker_script: no test ran", file=sys.stderr)
    return 0 if result.wasSuccessful() and result.testsRun > 0 else 1


if __name__ == "__main__":
    sys.exit(main())
