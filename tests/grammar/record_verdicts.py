"""Record the verdicts of every corpus that is present: ``python tests/grammar/record_verdicts.py [CORPUS …]``.

Refuses to record a wrong accept, a late refusal or a crash. Takes some minutes.
"""

from __future__ import annotations

import json
import sys

import _verdicts
from _pytest.outcomes import Skipped


def main(names: list[str]) -> int:
    """Judge, and write tests/data/verdicts.json."""
    record = json.loads(_verdicts.RECORD.read_text()) if _verdicts.RECORD.exists() else {}
    for name in names or list(_verdicts.CORPORA):
        try:
            verdicts = {case.identifier: _verdicts.judge(case) for case in _verdicts.CORPORA[name]()}
        except Skipped as reason:
            print(f"{name}: {reason}")
            continue
        forbidden = [f"{key}: {verdict}" for key, verdict in verdicts.items() if _verdicts.rank(verdict) == 0]
        if forbidden:
            print(f"{name}: not recorded, because of", *forbidden, sep="\n  ")
            return 1
        record[name] = _verdicts.summary(verdicts)
        print(name, record[name]["counts"])
    ordered = {name: record[name] for name in _verdicts.CORPORA if name in record}
    _verdicts.RECORD.write_text(json.dumps(ordered, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
