#!/usr/bin/python3
"""test_summary.py BUILD: what meson's last run skipped and why, then 'N passed, N failed, N skipped' on a line."""
import json
import re
import sys

passed = failed = skipped = 0
reasons = {}
with open(f"{sys.argv[1]}/meson-logs/testlog.json", encoding="utf-8") as log:
    for line in log:
        run = json.loads(line)
        result = run["result"]
        if result == "SKIP":
            skipped += 1
        elif result in ("OK", "EXPECTEDFAIL"):
            passed += 1
        else:
            failed += 1
        text = (run.get("stdout") or "") + "\n" + (run.get("stderr") or "")
        for why in re.findall(r"^SKIPPED: .*$", text, re.M):
            reasons.setdefault(why, set()).add(run["name"])
        for ran in re.findall(r"^sets run: .*$", text, re.M):
            print(f"{run['name']}: {ran}")
for why, names in sorted(reasons.items()):
    print(f"{why}  [{', '.join(sorted(names))}]")
print(f"{passed} passed, {failed} failed, {skipped} skipped")
sys.exit(1 if failed or not passed else 0)
