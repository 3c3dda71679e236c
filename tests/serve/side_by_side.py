"""side_by_side: for groups whose tests mostly wait, each for a server of its own. Standard library only."""
import concurrent.futures
import sys
import unittest


def run_alone(test):
    result = unittest.TestResult()
    test.run(result)
    return test, result


def run(case, n_threads):
    """All tests of a TestCase without setUpClass, n_threads at once. Returns whether there are some and all pass."""
    tests = unittest.defaultTestLoader.loadTestsFromTestCase(case)
    with concurrent.futures.ThreadPoolExecutor(n_threads) as threads:
        done = list(threads.map(run_alone, tests))
    for test, result in done:
        for _, text in result.failures + result.errors:
            print(f"FAILED: {test}\n{text}", file=sys.stderr)
        for _, why in result.skipped:
            print(f"skipped: {test}: {why}", file=sys.stderr)
    print(f"{len(done)} tests, {n_threads} side by side", file=sys.stderr)
    return len(done) > 0 and all(result.wasSuccessful() for _, result in done)
