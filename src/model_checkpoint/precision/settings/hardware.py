"""Hardware: find out by running it which precisions this machine can train in.

A processor may advertise instructions it cannot execute, and the first use then kills the interpreter without a
traceback. So the products are tried in a child process, and what the child survived is what we believe.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from dataclasses import dataclass, field

from model_checkpoint import forks
from model_checkpoint.precision.settings.number_formats import Precision

_LOG = logging.getLogger("model_checkpoint.precision")
_TIMEOUT_SECONDS = 120.0

# one JSON line per precision, flushed at once: what is missing afterwards is what killed the child
_PROBE = """
import json, sys, torch
device = "cuda" if torch.cuda.is_available() else "cpu"
for name, dtype in (("FP16", torch.float16), ("BF16", torch.bfloat16)):
    try:
        a = torch.full((128, 64), 0.5, dtype=dtype, device=device, requires_grad=True)
        b = torch.full((64, 256), 0.5, dtype=dtype, device=device, requires_grad=True)
        product = a @ b
        product.float().sum().backward()
        good = bool((product == 16).all()) and a.grad.dtype == dtype
        line = [name, good, "" if good else "wrong product"]
    except RuntimeError as error:
        line = [name, False, str(error).splitlines()[0]]
    sys.stdout.write(json.dumps([device, *line]) + "\\n")
    sys.stdout.flush()
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrecisionCapability:
    """What this machine was seen to compute, and why not where it did not."""

    device: str
    supports_fp16: bool
    supports_bf16: bool
    reasons: dict[str, str] = field(default_factory=dict)

    @property
    def supports_fp32(self) -> bool:
        """Always True."""
        return True

    @property
    def recommended(self) -> Precision:
        """The best precision that works here: BF16, else FP16, else FP32."""
        if self.supports_bf16:
            return Precision.BF16
        return Precision.FP16 if self.supports_fp16 else Precision.FP32


class HardwareDetector:
    """Cached answers about this machine.

    Example:
        >>> HardwareDetector.get_recommended_precision() in Precision
        True
    """

    _lock = forks.lock()
    _known: PrecisionCapability | None = None

    @classmethod
    def detect_capabilities(cls) -> PrecisionCapability:
        """Probe once per process; later calls answer from memory."""
        with cls._lock:
            if cls._known is None:
                cls._known = probe_hardware()
            return cls._known

    @classmethod
    def get_recommended_precision(cls) -> Precision:
        """BF16 where it works, else FP16, else FP32."""
        return cls.detect_capabilities().recommended

    @classmethod
    def reset_cache(cls) -> None:
        """Forget the answer, so that the next question probes again."""
        with cls._lock:
            cls._known = None


def probe_hardware(environment: dict[str, str] | None = None) -> PrecisionCapability:
    """Run real products in a child process; ``environment`` replaces the variables it inherits.

    Example:
        >>> probe_hardware().device in ("cpu", "cuda")
        True
    """
    try:
        child = subprocess.run(
            [sys.executable, "-c", _PROBE],
            env=dict(os.environ) if environment is None else environment,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_SECONDS,
            check=False,
        )
        output, ending = child.stdout, _describe_ending(child.returncode, child.stderr)
    except (OSError, subprocess.TimeoutExpired) as error:
        output, ending = "", f"the probe did not run: {error}"
    return _read_probe(output, ending)


def _describe_ending(code: int, stderr: str) -> str:
    if code < 0:
        return f"the probe was killed by signal {-code}"
    last = stderr.strip().splitlines()[-1:] or [""]
    return f"the probe ended with code {code}: {last[0]}"


def _read_probe(output: str, ending: str) -> PrecisionCapability:
    lines = [json.loads(line) for line in output.splitlines()]
    good = {name: works for _, name, works, _ in lines}
    reasons = {name: reason for _, name, _, reason in lines if reason}
    for name in ("FP16", "BF16"):
        if name not in good:
            reasons[name] = ending
    for name, reason in reasons.items():
        _LOG.warning("%s does not work on this machine: %s", name, reason)
    return PrecisionCapability(
        device=lines[0][0] if lines else "unknown",
        supports_fp16=good.get("FP16", False),
        supports_bf16=good.get("BF16", False),
        reasons=reasons,
    )
