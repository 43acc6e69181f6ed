"""Writes the table of scripts/coverage.sh from the JSON of cargo-llvm-cov, and ends with 1 if a goal is missed."""

import json
import os
import sys
from collections import defaultdict

# Folders and files with goals of their own, in per cent of their lines.
GOALS = [
    ("balde-core/src/", 95),
    ("balde/src/store/", 95),
    ("balde/src/lease/", 90),
    ("balde/src/http/headers/", 95),
    ("balde-policy/src/engine/", 95),
    ("balde-policy/src/layer/", 90),
    ("balde-throttle/src/", 95),
    ("balde-throttle/src/throttler/", 90),
    ("balde-throttle/src/rate.rs", 100),
    ("balde-throttle/src/bucket.rs", 100),
    ("balde-gateway/src/config/", 90),
    ("balde-gateway/src/tls.rs", 90),
]
CRATE_GOAL = 90

# Tests inside of a file stand at its end.
def counted_lines(path, segments):
    with open(path) as file:
        text = file.read().splitlines()
    end = next((number for number, line in enumerate(text, 1) if line.startswith("#[cfg(test)]") or line.startswith("#[cfg(all(test")), len(text) + 1)
    lines, current = {}, None
    starts = defaultdict(list)
    for line, column, count, has_count, is_entry, is_gap in segments:
        starts[line].append((count, has_count, is_entry, is_gap))
    wrapped = None
    for number in range(1, end):
        here = starts.get(number, [])
        counts = [count for count, has_count, is_entry, is_gap in here if has_count and is_entry and not is_gap]
        if wrapped is not None:
            counts.append(wrapped)
        if counts:
            lines[number] = max(counts)
        if here:
            count, has_count, _, is_gap = here[-1]
            wrapped = count if has_count and not is_gap else None
    return lines


data = json.load(open(sys.argv[1]))["data"][0]
totals = defaultdict(lambda: [0, 0])
missing = defaultdict(list)
for file in data["files"]:
    if "/crates/" not in file["filename"]:
        continue
    path = file["filename"].split("/crates/")[1]
    if "/src/" not in path:
        continue
    lines = counted_lines(file["filename"], file["segments"])
    covered = sum(count > 0 for count in lines.values())
    names = {path.split("/")[0]} | {goal for goal, _ in GOALS if path.startswith(goal)}
    for name in names:
        totals[name][0] += covered
        totals[name][1] += len(lines)
        missing[name] += [f"{path}:{number}" for number, count in lines.items() if count == 0]

goals = dict(GOALS)
print("| Crate | Lines | Run | Share | Goal |\n|--|--|--|--|--|")
is_missed = False
for name, (covered, lines) in sorted(totals.items()):
    goal = goals.get(name, 0 if name == "balde-cli" else CRATE_GOAL)
    share = 100 * covered / lines if lines else 100
    is_missed |= share < goal
    print(f"| `{name}` | {lines:,} | {covered:,} | {share:.1f} % | {f'{goal} %' if goal else ''}{' (missed)' if share < goal else ''} |")
if os.environ.get("BALDE_COVERAGE_LINES"):
    with open(os.environ["BALDE_COVERAGE_LINES"], "w") as file:
        for name, lines in sorted(missing.items()):
            if "/" in name:
                file.write(f"## {name}\n" + "\n".join(lines) + "\n")
sys.exit(is_missed)
