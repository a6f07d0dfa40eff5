"""What there is to compute with and which model would read, for when something is slow or missing."""

import os
import platform
import subprocess
import sys
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from captcha_ocr.errors import CaptchaOcrError
from captcha_ocr.inference.model_folder import CONFIG_FILE, PRETRAINED, find_model_folder
from captcha_ocr.network.device import HIDING, available_devices, free_memory, has_native_bf16, memory_of
from captcha_ocr.network.weights import load_model
from captcha_ocr.system.parallel import available_workers

PACKAGES = ("captcha-ocr", "torch", "onnxruntime", "numpy", "pillow", "captcha", "safetensors")
LAUNCHER = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")  # what torchrun sets
COUNT_DEVICES = "import torch; print(torch.cuda.device_count())"


@dataclass(frozen=True)
class DeviceFacts:
    """A device: memory in bytes, None where it is not to be had; capability: instructions or compute capability."""

    device: str
    name: str
    memory: int
    free_memory: int | None
    capability: str
    native_bf16: bool


def examine(model: Path) -> dict[str, Any]:
    """Versions, devices, threads, hidden devices and the model in `model`, as JSON types."""
    return {
        "versions": {"python": platform.python_version(), **{name: version(name) for name in PACKAGES}},
        "system": f"{platform.system()} {platform.release()}, {platform.machine()}",
        "devices": [asdict(examine_device(name)) for name in available_devices()],
        "threads": torch.get_num_threads(),
        "processors": available_workers(),
        "backends": [name for name in ("nccl", "xccl", "gloo") if getattr(dist, f"is_{name}_available")()],
        "launcher": {name: os.environ[name] for name in LAUNCHER if name in os.environ},
        "hidden": hidden_devices(),
        "model": examine_model(model),
    }


def examine_device(name: str) -> DeviceFacts:
    """What there is to know of a device that is there."""
    device = torch.device(name)
    title, capability = name, ""
    if device.type == "cpu":
        title = name_of_processor()
        capability = torch.backends.cpu.get_cpu_capability()
    elif device.type == "cuda":
        title = torch.cuda.get_device_name(device)
        capability = ".".join(map(str, torch.cuda.get_device_capability(device)))
    elif device.type == "xpu":
        title = torch.xpu.get_device_name(device)
    return DeviceFacts(name, title, memory_of(device), free_memory(device), capability, has_native_bf16(device))


def name_of_processor() -> str:
    """The processor's name, as far as the system tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def hidden_devices() -> dict[str, Any] | None:
    """The variable that may hide GPUs, if one is set, and how many it hides: a process without it counts them."""
    hiding = {name: os.environ[name] for name in HIDING if name in os.environ}
    if not hiding:
        return None
    environment = {name: value for name, value in os.environ.items() if name not in HIDING}
    command = [sys.executable, "-c", COUNT_DEVICES]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    there = int(result.stdout) if result.returncode == 0 else torch.cuda.device_count()
    return {"variables": hiding, "devices": there - torch.cuda.device_count()}


def examine_model(folder: Path) -> dict[str, Any] | None:
    """Where the model lies that would read, and what it reads or what is wrong with it; None where there is none."""
    found = find_model_folder(folder)
    if not (found / CONFIG_FILE).exists():
        return None
    facts: dict[str, Any] = {"folder": str(found.resolve())}
    try:
        config = load_model(found).config
    except CaptchaOcrError as error:
        return facts | {"error": str(error)}
    return facts | {"length": str(config.lengths), "charset": config.charset.characters, "size": str(config.size)}


def in_words(facts: dict[str, Any]) -> str:
    """What `examine` found, for people."""
    versions = ", ".join(f"{name} {number}" for name, number in facts["versions"].items())
    lines = [f"versions   {versions}", f"system     {facts['system']}"]
    for device in facts["devices"]:
        free = device["free_memory"]
        memory = f"{device['memory'] / 1e9:.1f} GB" + ("" if free is None else f", {free / 1e9:.1f} GB free")
        bf16 = "bf16 native" if device["native_bf16"] else "bf16 not native"
        parts = [device["name"], memory, device["capability"], bf16]
        lines.append(f"{device['device']:10} {'; '.join(filter(None, parts))}")
    lines.append(f"threads    {facts['threads']}, of {facts['processors']} processors")
    lines.append(f"processes  torchrun over {', '.join(facts['backends'])}")
    if facts["launcher"]:
        lines.append(f"launcher   {in_settings(facts['launcher'])}")
    if facts["hidden"] is not None:
        lines.append(
            f"hidden     {in_settings(facts['hidden']['variables'])} hides {facts['hidden']['devices']} of the GPUs"
        )
    return "\n".join([*lines, f"model      {model_in_words(facts['model'])}"])


def in_settings(variables: dict[str, str]) -> str:
    """Variables of the environment, as a shell would set them."""
    return ", ".join(f"{name}={value}" for name, value in variables.items())


def model_in_words(model: dict[str, Any] | None) -> str:
    """What `examine_model` found, for people."""
    if model is None:
        return "none; make one with: captcha-ocr train"
    folder = "the one in the package" if model["folder"] == str(PRETRAINED.resolve()) else model["folder"]
    if "error" in model:
        return f"{folder} cannot be used: {model['error']}"
    return f"{folder}: texts of {model['length']} of {model['charset']}, {model['size']}"
