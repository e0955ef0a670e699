"""Peak memory of a fresh process that certifies: `python -m benchmarks.memory coefficients.npy features.npy`."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch

import berncert

THREADS = 2


def peak_memory(smoothed: berncert.SmoothedHead, features: torch.Tensor) -> dict[str, int]:
    """The bytes a fresh process holds at most: `imported`, berncert but nothing certified; `certified`, at its end."""
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / "coefficients.npy", Path(folder) / "features.npy"]
        for file, tensor in zip(files, (smoothed.coefficients, features), strict=True):
            np.save(file, tensor.numpy())
        command = [sys.executable, "-m", "benchmarks.memory", *map(str, files)]
        peaks: dict[str, int] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    return peaks


def main(coefficients_file: str, features_file: str) -> None:
    imported = peak_bytes()
    smoothed = berncert.SmoothedHead(torch.from_numpy(np.load(coefficients_file)))
    certificates = berncert.certify(smoothed, np.load(features_file), threads=THREADS, progress=False)
    print(json.dumps({"imported": imported, "certified": peak_bytes(), "samples": len(certificates)}))


def peak_bytes() -> int:
    """The most memory this process has held. On Linux from /proc, as ru_maxrss there counts the parent before exec."""
    status = Path("/proc/self/status")
    if status.exists():
        peak = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(peak.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # bytes on macOS


if __name__ == "__main__":
    main(*sys.argv[1:])
