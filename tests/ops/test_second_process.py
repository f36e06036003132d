"""A program that calls LAPACK, loaded from the disk cache by a process that never lowered one."""

from __future__ import annotations

import os
import subprocess
import sys

SCRIPT = """
import torch
import torchtpu.inspect

a = (torch.arange(16.0).reshape(4, 4).sin() + 4 * torch.eye(4)).to("tpu")
for result in (torch.linalg.qr(a)[1], torch.linalg.solve(a, a), torch.linalg.eigvalsh(a)):
    print(result.cpu().abs().sum())
print(torchtpu.inspect.counters()["disk_hits"])
"""


def test_factorisations_are_loaded_from_disk(tmp_path) -> None:
    environment = os.environ | {"TORCHTPU_CACHE_DIR": str(tmp_path)}
    outputs = []
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT], cwd=tmp_path, env=environment, timeout=180, check=False, capture_output=True, text=True)
        assert done.returncode == 0, f"exit code {done.returncode}\n{done.stderr}"
        outputs.append(done.stdout.splitlines())
    first, second = outputs
    assert first[:-1] == second[:-1]
    assert int(second[-1]) > 0 == int(first[-1])
