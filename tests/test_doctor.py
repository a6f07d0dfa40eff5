import json
import shutil

import torch

from captcha_ocr.doctor import examine, examine_model, hidden_devices, in_words


def test_the_doctor_sees_versions_devices_threads_and_the_model(run):
    facts = json.loads(json.dumps(examine(run)))
    assert facts["versions"]["torch"] == torch.__version__
    cpu = facts["devices"][-1]
    assert cpu["device"] == "cpu"
    assert cpu["memory"] >= cpu["free_memory"] > 0
    assert cpu["capability"]
    assert facts["threads"] == torch.get_num_threads()
    assert facts["model"]["folder"] == str((run / "best").resolve())
    assert facts["model"]["charset"] == "0123456789"


def test_what_is_found_is_told_in_words(run):
    words = in_words(examine(run))
    assert f"torch {torch.__version__}" in words
    assert any(line.startswith("cpu  ") and "bf16" in line and "GB" in line for line in words.splitlines())
    assert any("0123456789" in line and "48x16" in line for line in words.splitlines())


def test_where_there_is_no_model_the_way_to_one_is_named(tmp_path):
    assert "captcha-ocr train" in in_words(examine(tmp_path))


def test_a_damaged_model_is_told(run, tmp_path):
    copied = shutil.copytree(run / "best", tmp_path / "best")
    (copied / "model.safetensors").write_bytes(b"")
    assert "model.safetensors" in examine_model(tmp_path)["error"]
    assert "model.safetensors" in in_words(examine(tmp_path))


def test_a_variable_that_may_hide_devices_is_named(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert hidden_devices() is None
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setattr(
        "captcha_ocr.doctor.COUNT_DEVICES", "import os; print(4 - ('CUDA_VISIBLE_DEVICES' in os.environ))"
    )
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert hidden_devices() == {"variables": {"CUDA_VISIBLE_DEVICES": ""}, "devices": 3}


def test_what_a_launcher_has_set_is_told(tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "x")
    words = in_words(examine(tmp_path))
    assert all(setting in words for setting in ("RANK=x", "WORLD_SIZE=2"))


def test_hidden_devices_are_told_in_words(tmp_path):
    facts = {**examine(tmp_path), "hidden": {"variables": {"CUDA_VISIBLE_DEVICES": "0"}, "devices": 3}}
    assert any("CUDA_VISIBLE_DEVICES=0" in line and "3" in line for line in in_words(facts).splitlines())
