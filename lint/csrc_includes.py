"""``csrc/device`` and ``csrc/record`` know ATen and c10, never Python: only ``csrc/python`` does."""

from __future__ import annotations

import re
from collections.abc import Iterator

from lint.finding import ROOT, Finding, files

# Much of torch/csrc (autograd's graph, for one) is plain C++; these parts of it are not.
PYTHON_HEADER = re.compile(
    r'^\s*#\s*include\s*[<"](Python\.h|pybind11/.*|torch/extension\.h|torch/csrc/.*(?:py|THP).*'
    r'|torch/csrc/(?:Device|Dtype|Exceptions|Generator|Layout|Storage|Stream)\.h|python/.*)[>"]'
)


def check() -> Iterator[Finding]:
    """Includes of the rooms without Python."""
    for path in files(".cpp", ".h", rooms=("csrc",)):
        if path.relative_to(ROOT).parts[1] == "python":
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if match := PYTHON_HEADER.match(line):
                yield Finding(path, number, f"{match[1]} may only be included in csrc/python")
