"""Ctrl-C, in a process of its own."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest

ENDLESS = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored by default where tests run in the background
import numpy, torch, berncert
head = berncert.SmoothedHead(torch.tensor(numpy.random.default_rng(0).normal(size=(10,) + (2,) * 12)))
berncert.certify(head, [[0.5] * 12], max_boxes=10)
print("ready", flush=True)
berncert.certify(head, numpy.full((64, 12), 0.5), tolerance=1e-12, max_boxes=10**12)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="signals are sent differently there")
def test_ctrl_c_ends_a_long_proof_within_seconds() -> None:
    with subprocess.Popen([sys.executable, "-c", ENDLESS], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        time.sleep(1.0)
        assert process.poll() is None, "the problem was meant to be endless"
        process.send_signal(signal.SIGINT)
        try:
            _, errors = process.communicate(timeout=30)
        finally:
            process.kill()
    assert b"KeyboardInterrupt" in errors
    assert process.returncode != 0
