"""What this machine is: system, chip, memory, versions. Knows no kernel."""

from __future__ import annotations

import platform
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import mlx.core as mx

_OF_ONE_MACHINE = ("uuid", "pci", "free")  # what would tell this one from others of its kind, or changes by the minute


def describe() -> dict[str, Any]:
    """Plain data about system, chip and versions; nothing that names a person or a place."""
    return {
        "system": f"{platform.system()} {platform.release()}",
        "macos": platform.mac_ver()[0] or None,
        "machine": platform.machine(),
        "chip": _chip(),
        "device": _device(),
        "python": sys.version.split()[0],
        "versions": {name: _version(name) for name in ("tensorfold", "mlx", "mlx-metal", "numpy")},
    }


def _chip() -> str | None:
    if platform.system() != "Darwin":
        return platform.processor() or None
    asked = subprocess.run(["sysctl", "-n", "machdep.cpu.brand_string"], capture_output=True, text=True)
    return asked.stdout.strip() or None


def _device() -> dict[str, Any] | None:
    if not (mx.metal.is_available() or mx.cuda.is_available()):
        return None
    info = mx.device_info(mx.gpu) if hasattr(mx, "device_info") else mx.metal.device_info()
    told = {key: value for key, value in info.items() if isinstance(value, (str, int, float))}
    return {key: value for key, value in told.items() if not any(word in key for word in _OF_ONE_MACHINE)}


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
