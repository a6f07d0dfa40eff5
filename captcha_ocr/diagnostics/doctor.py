"""The devices and versions of this machine and the model that would read: for when something is slow or missing."""

import os
import platform
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from captcha_ocr.charset import shorten
from captcha_ocr.errors import CaptchaOcrError
from captcha_ocr.inference.model_folder import CONFIG_FILE, PRETRAINED, find_model_folder
from captcha_ocr.network.device import (
    VISIBILITY_VARIABLES,
    available_devices,
    free_memory,
    has_native_bf16,
    measure_memory,
    set_threads,
)
from captcha_ocr.network.weights import load_model
from captcha_ocr.system.console import command_line
from captcha_ocr.system.parallel import available_workers

PACKAGES = ("captcha-ocr", "torch", "onnxruntime", "numpy", "pillow", "captcha", "safetensors")
LAUNCHER = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")  # set by torchrun
COUNT_DEVICES = "import torch; print(torch.cuda.device_count())"


def examine(model: Path) -> dict[str, Any]:
    """Return versions, devices, threads, hidden devices and the model in `model`, as JSON types."""
    set_threads()
    return {
        "versions": {
            "python": platform.python_version(),
            **{name: version(name) for name in PACKAGES},
        },
        "system": f"{platform.system()} {platform.release()}, {platform.machine()}",
        "devices": [examine_device(name) for name in available_devices()],
        "threads": torch.get_num_threads(),
        "processors": available_workers(),
        "backends": [
            name for name in ("nccl", "xccl", "gloo") if getattr(dist, f"is_{name}_available")()
        ],
        "launcher": {name: os.environ[name] for name in LAUNCHER if name in os.environ},
        "hidden": hidden_devices(),
        "model": examine_model(model),
    }


def examine_device(name: str) -> dict[str, Any]:
    """Return the facts of a device: memory in bytes; capability: the CPU's instructions or the compute capability."""
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
    """Return the variables that hide GPUs, if any, and how many GPUs a process without them has in addition."""
    hiding = {name: os.environ[name] for name in VISIBILITY_VARIABLES if name in os.environ}
    if not hiding:
        return None
    environment = {
        name: value for name, value in os.environ.items() if name not in VISIBILITY_VARIABLES
    }
    command = [sys.executable, "-c", COUNT_DEVICES]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    count = int(result.stdout) if result.returncode == 0 else torch.cuda.device_count()
    return {"variables": hiding, "devices": count - torch.cuda.device_count()}


def examine_model(folder: Path) -> dict[str, Any] | None:
    """Return the folder of the model, and what it reads or its error; None if there is no model."""
    found = find_model_folder(folder)
    if not (found / CONFIG_FILE).exists():
        return None
    facts: dict[str, Any] = {"folder": str(found.resolve())}
    try:
        config = load_model(found).config
    except CaptchaOcrError as error:
        return facts | {"error": str(error)}
    return facts | {
        "length": str(config.lengths),
        "charset": config.charset.characters,
        "size": str(config.size),
    }


def format_facts(facts: dict[str, Any]) -> str:
    """Format what `examine` returns for people."""
    versions = ", ".join(f"{name} {number}" for name, number in facts["versions"].items())
    lines = [f"versions   {versions}", f"system     {facts['system']}"]
    for device in facts["devices"]:
        free = device["free_memory"]
        memory = f"{device['memory'] / 1e9:.1f} GB" + (
            "" if free is None else f", {free / 1e9:.1f} GB free"
        )
        bf16 = "bf16 native" if device["native_bf16"] else "bf16 not native"
        parts = [device["name"], memory, device["capability"], bf16]
        lines.append(f"{device['device']:10} {'; '.join(filter(None, parts))}")
    lines.append(f"threads    {facts['threads']}, of {facts['processors']} processors")
    lines.append(f"processes  torchrun with {', '.join(facts['backends'])}")
    if facts["launcher"]:
        lines.append(f"launcher   {format_variables(facts['launcher'])}")
    if facts["hidden"] is not None:
        hidden = facts["hidden"]
        lines.append(
            f"hidden     {format_variables(hidden['variables'])} hides {hidden['devices']} of the GPUs"
        )
    model = facts["model"]
    if model is None:
        return "\n".join([*lines, f"model      none; make one with: {command_line('train')}"])
    folder = (
        "the one in the package"
        if model["folder"] == str(PRETRAINED.resolve())
        else model["folder"]
    )
    if "error" in model:
        lines.append(f"model      {folder} cannot be used: {model['error']}")
    else:
        lines.append(
            f"model      {folder}: texts of {model['length']} of {shorten(model['charset'])}, {model['size']}"
        )
    return "\n".join(lines)


def format_variables(variables: dict[str, str]) -> str:
    """Format environment variables as a shell sets them."""
    return ", ".join(f"{name}={value}" for name, value in variables.items())
