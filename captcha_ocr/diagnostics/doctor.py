"""The devices and versions of this machine, and the model that would read."""

import os
import platform
import subprocess
import sys
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from captcha_ocr.charset import shorten
from captcha_ocr.errors import CaptchaOcrError
from captcha_ocr.inference.model_folder import describe_model, find_model_folder
from captcha_ocr.network.device import (
    VISIBILITY_VARIABLES,
    available_devices,
    free_memory,
    has_native_bf16,
    measure_memory,
    set_threads,
)
from captcha_ocr.network.weights import load_model
from captcha_ocr.system.processors import available_workers

COUNT_DEVICES = "import torch; print(torch.cuda.device_count())"
_PACKAGES = ("captcha-ocr", "torch", "onnxruntime", "numpy", "pillow", "captcha", "safetensors")
_BACKENDS = ("nccl", "xccl", "gloo")  # of torch.distributed
_LAUNCHER = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")  # set by torchrun


def examine_machine(model: Path) -> dict[str, Any]:
    """Return versions, devices, threads, hidden devices and the model in `model`, as JSON types."""
    set_threads()
    versions = {name: version(name) for name in _PACKAGES}
    return {
        "versions": {"python": platform.python_version(), **versions},
        "system": f"{platform.system()} {platform.release()}, {platform.machine()}",
        "devices": list(map(_examine_device, available_devices())),
        "threads": torch.get_num_threads(),
        "processors": available_workers(),
        "backends": [name for name in _BACKENDS if getattr(dist, f"is_{name}_available")()],
        "launcher": _read_environment(_LAUNCHER),
        "hidden": hidden_devices(),
        "model": examine_model(model),
    }


def _read_environment(names: Iterable[str]) -> dict[str, str]:
    return {name: os.environ[name] for name in names if name in os.environ}


def _examine_device(name: str) -> dict[str, Any]:
    """Return the facts of a device: memory in bytes; capability: of a GPU, or CPU instructions."""
    device = torch.device(name)
    title, capability = name, ""
    if device.type == "cpu":
        title, capability = processor_name(), torch.backends.cpu.get_cpu_capability()
    elif device.type == "cuda":
        title = torch.cuda.get_device_name(device)
        capability = ".".join(map(str, torch.cuda.get_device_capability(device)))
    elif device.type == "xpu":
        title = torch.xpu.get_device_name(device)
    return {
        "device": name,
        "name": title,
        "memory": measure_memory(device),
        "free_memory": free_memory(device),
        "capability": capability,
        "native_bf16": has_native_bf16(device),
    }


def processor_name() -> str:
    """Return the name of the CPU, or its architecture if the system does not name it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def hidden_devices() -> dict[str, Any] | None:
    """Return the variables that hide GPUs, and how many more GPUs a process without them has."""
    hiding = _read_environment(VISIBILITY_VARIABLES)
    if not hiding:
        return None
    visible = torch.cuda.device_count()
    environment = {name: value for name, value in os.environ.items() if name not in hiding}
    result = subprocess.run(
        [sys.executable, "-c", COUNT_DEVICES],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    count = int(result.stdout) if result.returncode == 0 else visible
    return {"variables": hiding, "devices": count - visible}


def examine_model(folder: Path) -> dict[str, Any]:
    """Return the folder of the model, and what it reads, or why it cannot be used."""
    folder = find_model_folder(folder)
    try:
        config = load_model(folder).config
    except CaptchaOcrError as error:
        return {"folder": str(folder.resolve()), "error": str(error)}
    return {
        "folder": str(folder.resolve()),
        "length": str(config.lengths),
        "charset": config.charset.characters,
        "size": str(config.size),
    }


def format_facts(facts: dict[str, Any]) -> str:
    """Format what `examine_machine` returns for people."""
    versions = ", ".join(f"{name} {number}" for name, number in facts["versions"].items())
    rows = [("versions", versions), ("system", facts["system"])]
    for device in facts["devices"]:
        memory = f"{device['memory'] / 1e9:.1f} GB"
        if device["free_memory"] is not None:
            memory += f", {device['free_memory'] / 1e9:.1f} GB free"
        bf16 = "bf16 native" if device["native_bf16"] else "bf16 not native"
        parts = [device["name"], memory, device["capability"], bf16]
        rows.append((device["device"], "; ".join(filter(None, parts))))
    rows += [
        ("threads", f"{facts['threads']}, of {facts['processors']} processors"),
        ("processes", f"torchrun with {', '.join(facts['backends'])}"),
        ("launcher", _format_variables(facts["launcher"])),
    ]
    hidden, model = facts["hidden"], facts["model"]
    if hidden is not None:
        variables = _format_variables(hidden["variables"])
        rows.append(("hidden", f"{variables} hides {hidden['devices']} of the GPUs"))
    words = describe_model(find_model_folder(Path(model["folder"])))
    if "error" in model:
        words += f" cannot be used: {model['error']}"
    else:
        words += f": texts of {model['length']} of {shorten(model['charset'])}, {model['size']}"
    rows.append(("model", words))
    return "\n".join([f"{name:10} {words}" for name, words in rows if words])


def _format_variables(variables: dict[str, str]) -> str:
    return ", ".join(f"{name}={value}" for name, value in variables.items())
