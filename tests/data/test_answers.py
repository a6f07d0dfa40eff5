from captcha_ocr.data.answers import read_journal


def test_a_journal_is_read_line_by_line(tmp_path):
    journal = tmp_path / "journal.jsonl"
    assert read_journal(journal) == []
    journal.write_text('{"file": "a.png", "seconds": 1.5}\n{"file": "b.png", "seconds": null}\n')
    assert [line["seconds"] for line in read_journal(journal)] == [1.5, None]
