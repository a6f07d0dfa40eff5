import os

import pytest

from captcha_ocr.web.log import LineLog


def test_lines_are_written_in_their_order(tmp_path):
    lines = [f"{number} {'x' * number}\n" for number in range(1000)]
    with (tmp_path / "log").open("w") as file:
        for line in lines:
            LineLog(file).write(line)
    assert (tmp_path / "log").read_text() == "".join(lines)


def test_a_pipe_that_nobody_reads_gets_what_it_can_hold_and_holds_nothing_up():
    reader, writer = os.pipe()
    with open(reader, "rb") as stream, open(writer, "w") as file:
        for _ in range(3_000):
            LineLog(file).write(100 * "x" + "\n")
        assert stream.read(1010) == 10 * (100 * b"x" + b"\n")


@pytest.mark.parametrize("is_there", [False, True])
def test_without_a_stream_or_a_reader_nothing_is_printed(is_there):
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "w") as file:
        LineLog(file if is_there else None).write("x\n")
