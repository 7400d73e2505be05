"""Runs a module of Python's own test suite and prints how each of its tests ended, sorted.

Usage: outcomes.py MODULE [SKIP...]    (SKIP: part of a test's name)
"""

import re
import sys
import unittest

from test import support


class Outcomes(unittest.TestResult):
    def __init__(self):
        super().__init__()
        self.lines = {}

    def _note(self, test, word, err=None):
        line = word
        if err is not None:
            text = str(err[1]).strip().splitlines() or [""]
            line += " " + err[0].__name__ + ": " + re.sub(r"0x[0-9a-f]+|\d{3,}|\S*/\S*", "N", text[-1])[:120]
        self.lines.setdefault(test.id(), set()).add(line)

    def addSuccess(self, test):
        self._note(test, "ok")

    def addError(self, test, err):
        self._note(test, "ERROR", err)

    def addFailure(self, test, err):
        self._note(test, "FAIL", err)

    def addSkip(self, test, reason):
        self._note(test, "skip")

    def addExpectedFailure(self, test, err):
        self._note(test, "expected failure")

    def addUnexpectedSuccess(self, test):
        self._note(test, "unexpected success")

    def addSubTest(self, test, subtest, err):
        if err is not None:
            self._note(test, "FAIL in a part", err)


def flatten(suite):
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from flatten(test)
        else:
            yield test


def main(module, skipped):
    # No resources: no network, no files of several gigabytes, no long runs.
    support.use_resources = []
    support.verbose = 0
    loaded = unittest.defaultTestLoader.loadTestsFromName("test." + module)
    kept = unittest.TestSuite(t for t in flatten(loaded) if not any(s in t.id() for s in skipped))
    result = Outcomes()
    kept.run(result)
    for name, lines in sorted(result.lines.items()):
        print(name, *sorted(lines), file=sys.__stdout__)
    print(result.testsRun, "tests", file=sys.__stdout__)
    sys.__stdout__.flush()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
