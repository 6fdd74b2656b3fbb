"""What the loggers under "tensorfold" tell: loads, plans, slots, refusals; and that they are silent by themselves."""

from __future__ import annotations

import logging
import subprocess
import sys

import pytest

import tensorfold
from tests.support.goldens import EXAMPLE


def test_a_load_its_slots_and_a_refusal_are_told(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "tensorfold"), tensorfold.Model.load(EXAMPLE, max_slots=1) as model:
        model.generate([5, 6, 7], max_tokens=2)
        with pytest.raises(tensorfold.CapacityError) as refused:
            model.generate([5], max_tokens=10**6)
    told = [(record.name, record.getMessage()) for record in caplog.records]
    assert [name for name, _ in told] == ["tensorfold.load"] * 2 + ["tensorfold.slots"] * 3
    load, loaded, opened, closed, refusal = (words for _, words in told)
    assert str(EXAMPLE) in load and "Engram tables" in load and "experts: mapped" in load
    assert loaded.startswith(f"loaded {EXAMPLE} on ")
    assert "open with 3 ids" in opened and "closed after 5 ids, length" in closed
    assert refusal == f"refused: {refused.value}"


def test_nothing_is_printed_where_nobody_listens() -> None:
    code = f"import tensorfold as tf\nwith tf.Model.load({str(EXAMPLE)!r}) as m: m.generate([5], max_tokens=1)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
