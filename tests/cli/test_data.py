import json

from conftest import invoke


def test_inspect_counts_draws_and_names_what_was_read_wrong(images, run, tmp_path):
    options = ["--out", tmp_path, "--model", run, "--device", "cpu", "--workers", 1, "--quiet"]
    facts = json.loads(invoke("inspect", images, *options, "--json").stdout)
    assert facts["images"] == 60
    assert facts["advice"]
    assert set(facts["wrong"][0]) == {"file", "label", "text", "confidence"}
    lines = invoke("inspect", images, *options).stdout.splitlines()
    for picture in (tmp_path / "contact-sheet.png", tmp_path / "read-wrong.png"):
        assert picture.exists()
        assert any(line.endswith(f" {picture}") for line in lines)
    assert len([line for line in lines if "\t" in line]) == len(facts["wrong"])
