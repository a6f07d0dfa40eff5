import json
import re
import shutil

import torch
from conftest import naming

from captcha_ocr.diagnostics.doctor import (
    examine_machine,
    examine_model,
    format_facts,
    hidden_devices,
)
from captcha_ocr.inference.model_folder import PRETRAINED, read_model_config


def test_the_doctor_reports_versions_devices_threads_and_the_model(tmp_path):
    folder = shutil.copytree(PRETRAINED, tmp_path / "best")  # of a run
    facts = json.loads(json.dumps(examine_machine(tmp_path)))
    cpu = facts["devices"][-1]
    assert facts["versions"]["torch"] == torch.__version__
    assert cpu["device"] == "cpu"
    assert cpu["memory"] >= cpu["free_memory"] > 0
    assert "" not in (cpu["name"], cpu["capability"])
    assert facts["threads"] == torch.get_num_threads()
    config = read_model_config(PRETRAINED)
    model = [str(folder.resolve()), config.charset.characters, str(config.size)]
    assert [facts["model"][name] for name in ("folder", "charset", "size")] == model
    report = format_facts(facts)
    for names in ([f"torch {torch.__version__}"], ["cpu", "bf16", "GB"], model[1:]):
        assert re.search(naming(*names), report)


def test_a_damaged_model_is_reported(tmp_path):
    folder = shutil.copytree(PRETRAINED, tmp_path / "model")
    (folder / "model.safetensors").write_bytes(b"")
    assert "model.safetensors" in examine_model(folder)["error"]
    assert "model.safetensors" in format_facts(examine_machine(folder))


def test_a_variable_that_hides_devices_is_found(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert hidden_devices() is None
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    count = "import os; print(4 - ('CUDA_VISIBLE_DEVICES' in os.environ))"
    monkeypatch.setattr("captcha_ocr.diagnostics.doctor.COUNT_DEVICES", count)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert hidden_devices() == {"variables": {"CUDA_VISIBLE_DEVICES": ""}, "devices": 3}


def test_a_missing_model_a_launcher_and_hidden_devices_are_reported(tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "x")
    hidden = {"variables": {"CUDA_VISIBLE_DEVICES": "0"}, "devices": 3}
    report = format_facts({**examine_machine(tmp_path), "hidden": hidden})
    assert re.search(naming("model", str(tmp_path), "config.json"), report)
    assert re.search(naming("RANK=x", "WORLD_SIZE=2"), report)
    assert re.search(naming("CUDA_VISIBLE_DEVICES=0", "3"), report)
