"""Torch's settings of its arithmetic: plain inside, and as they were afterwards."""

from __future__ import annotations

import torch

from berncert.extractor.arithmetic import plain_arithmetic


def test_settings_of_the_arithmetic_are_as_they_were_afterwards() -> None:
    before = torch.backends.mkldnn.matmul.fp32_precision
    torch.backends.mkldnn.matmul.fp32_precision = "bf16"
    try:
        with plain_arithmetic():
            assert torch.backends.mkldnn.matmul.fp32_precision == "ieee"
        assert torch.backends.mkldnn.matmul.fp32_precision == "bf16"
    finally:
        torch.backends.mkldnn.matmul.fp32_precision = before
