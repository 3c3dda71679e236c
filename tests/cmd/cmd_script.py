#!/usr/bin/python3
"""cmd_script.py --bpe M --spm M --none M --long M --wide M [-k PATTERN] HEARTH: every command of the program, from outside.

Good and bad command lines, exit statuses, the shape of --json, signals, streams that end early. The models are random
ones of tests/model/make_model (300 ids; see meson.build here); what they must say follows from make_vocab.h, from
arithmetic done here again, or from the fixtures. Standard library only. Exit status 0 if all holds.
"""
import argparse
import os
import sys
import time
import unittest

import cmd_rig

MODULES = ["cases_run", "cases_chat", "cases_doors", "cases_files", "cases_machine", "cases_fixtures",
           "cases_quantize", "cases_bench"]


class Result(unittest.TextTestResult):
    """Says how long each test took, and what was skipped in a line that nobody overlooks."""

    def startTest(self, test):
        self.since = time.monotonic()
        super().startTest(test)

    def stopTest(self, test):
        super().stopTest(test)
        self.stream.writeln(f"    {time.monotonic() - self.since:.2f} s")

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        print(f"SKIPPED: {reason}", file=sys.stderr)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bpe", required=True, help="byte-level BPE, context 512")
    parser.add_argument("--spm", required=True, help="SentencePiece style, context 512")
    parser.add_argument("--none", required=True, help="no tokenizer")
    parser.add_argument("--long", required=True, help="byte-level BPE, context 65536")
    parser.add_argument("--wide", required=True, help="byte-level BPE, F32, rows of whole blocks of every format")
    parser.add_argument("-k", dest="pattern", help="only tests whose name holds this")
    parser.add_argument("program")
    args = parser.parse_args()
    cmd_rig.HEARTH[:] = [os.path.abspath(args.program)]
    cmd_rig.MODELS.update((k, os.path.abspath(getattr(args, k))) for k in ("bpe", "spm", "none", "long", "wide"))
    loader = unittest.TestLoader()
    if args.pattern:
        loader.testNamePatterns = [f"*{args.pattern}*"]
    suite = unittest.TestSuite(loader.loadTestsFromName(m) for m in MODULES)
    result = unittest.TextTestRunner(stream=sys.stderr, verbosity=2, resultclass=Result, descriptions=False).run(suite)
    if result.testsRun == 0:
        print("cmd_script: no test ran", file=sys.stderr)
    return 0 if result.wasSuccessful() and result.testsRun > 0 else 1


if __name__ == "__main__":
    sys.exit(main())
