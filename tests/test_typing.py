"""What a type checker says of a user's code: README's blocks and the examples are right, slips are found."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import get_type_hints

import pytest

from tensorfold.keywords import ChatKeywords, GenerateKeywords, LoadKeywords, ScoreKeywords, names
from tensorfold.model import Model

ROOT = Path(__file__).resolve().parents[1]
# as from site-packages: what is inside the package is not judged, what has no types is not asked for them
SETTINGS = """[mypy]
strict = True
[mypy-tensorfold.*]
follow_imports = silent
[mypy-tqdm]
ignore_missing_imports = True
"""
# each line is a call, and what it gives or what is wrong with it
CALLS = """
reveal_type(model.generate("a"))  # Generation
reveal_type(model.generate([1, 2], max_tokens=np.int64(3)))  # Generation
reveal_type(model.generate(range(3), n=None))  # Generation
reveal_type(model.generate(["a", [1, 2], np.array([3])]))  # list[Generation]
reveal_type(model.generate(("a",), temperature=np.float32(1), seed=[1]))  # list[Generation]
reveal_type(model.generate([[1, 2], [3]]))  # list[Generation]
reveal_type(model.generate("a", n=2))  # list[Generation]
reveal_type(model.generate(np.array([1])))  # Generation | list[Generation]
reveal_type(model.score("a", "b"))  # Score
reveal_type(model.score([1], ["b", [2]]))  # list[Score]
reveal_type([piece.text for piece in model.stream("a", stop=["b"], logit_bias={1: 2})])  # list[str]
reveal_type(model.open(np.array([1]), draft=False).extend("b", max_tokens=2).text)  # str
reveal_type(model.chat([{"role": "user", "content": "a"}], thinking=False, tool_choice="none").content)  # str
reveal_type(tensorfold.generate(model, tokenizer, prompt="a", verbose=True))  # str
reveal_type(tensorfold.generate(model, "a", max_tokens=2))  # str
reveal_type([r.text for r in tensorfold.stream_generate(model, tokenizer, [1, 2], temp=0.5)])  # list[str]
reveal_type(tensorfold.batch_generate(model, tokenizer, prompts=["a"], max_tokens=[2]).texts)  # list[str]
reveal_type(model.chat([[{"role": "user", "content": "a"}]], max_tokens=2))  # list[ChatReply]
reveal_type(model.chat([{"role": "user", "content": "a"}], n=2)[0].content)  # str
reveal_type(tensorfold.generate(model, prompt=tokenizer.apply_chat_template([{"role": "user"}])))  # str
reveal_type(tokenizer.apply_chat_template([{"role": "user", "content": "a"}], tokenize=False))  # str
reveal_type(tokenizer.convert_tokens_to_ids(["a"]))  # list[int | None]
reveal_type(tensorfold.load("a", None, lazy=True, max_slots=2, cache_dir=Path("b"))[0])  # Model
tensorfold.load("a", max_slot=2)  # error
tensorfold.load("a", experts=3)  # error
tensorfold.generate(model, "a", tokenizer)  # error
tensorfold.stream_generate(model, tokenizer)  # error
tensorfold.generate(model, "a", max_new_tokens=3)  # error
model.generate("a", 20)  # error
model.generate("a", max_token=20)  # error
model.generate("a", max_tokens="20")  # error
model.generate(1.5)  # error
model.open(["a", "b"])  # error
model.stream("a", n=2)  # error
model.chat("a")  # error
model.chat([{"role": "user"}], add_bos=False)  # error
model.score("a", "b", temperature=1)  # error
tensorfold.generate("a", model)  # error
"""
HEAD = "from pathlib import Path\nimport numpy as np\nimport tensorfold\nmodel, tokenizer = tensorfold.load('a')\n"


def checked(*files: Path, folder: Path) -> list[str]:
    """mypy's lines about the files, as a user's own run with --strict gives them."""
    if find_spec("mypy") is None:
        pytest.skip("mypy is not installed")
    (folder / "mypy.ini").write_text(SETTINGS)
    command = [sys.executable, "-m", "mypy", "--config-file", "mypy.ini", "--no-error-summary", "--hide-error-context"]
    command += ["--cache-dir", str(ROOT / ".mypy_cache" / "users"), *map(str, files)]
    environment = {**os.environ, "MYPYPATH": str(ROOT)}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True).stdout.splitlines()


def test_a_users_code_is_typed(tmp_path: Path) -> None:
    """In one run: README's Python blocks and the examples pass, calls give what they say, slips are errors."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    assert blocks
    files = [tmp_path / f"block{i}.py" for i in range(len(blocks))]
    for path, block in zip(files, blocks):
        path.write_text(block, encoding="utf-8")
    calls = tmp_path / "calls.py"
    calls.write_text(HEAD + CALLS, encoding="utf-8")
    said = checked(*files, *sorted((ROOT / "examples").glob("*.py")), calls, folder=tmp_path)
    about: dict[int, str] = {}
    for line in said:
        found = re.match(r"calls\.py:(\d+): (.*)", line)
        assert found is not None, "\n".join(said)
        about.setdefault(int(found[1]), found[2])
    for number, line in enumerate((HEAD + CALLS).splitlines(), 1):
        _, _, want = line.partition("  # ")
        told = re.sub(r"tensorfold\.\w+\.|builtins\.", "", about.get(number, ""))
        if want == "error":
            assert told.startswith("error"), line
        elif want:
            assert told == f'note: Revealed type is "{want}"', (line, told)
        else:
            assert not told, (line, told)


SAYS = [(GenerateKeywords, Model.generate), (ChatKeywords, Model.chat), (ScoreKeywords, Model.score)]


@pytest.mark.parametrize("kind,method", SAYS)
def test_help_names_every_keyword(kind: type, method: object) -> None:
    """The docstring of a call, or of the one that it points to, has each keyword that the type has."""
    text = f"{method.__doc__}\n{Model.generate.__doc__}"
    assert [name for name in sorted(names(kind)) if not re.search(rf"\b{name}\b", text)] == []


def test_help_says_what_each_keyword_of_generate_and_load_does() -> None:
    """Each has its "name: what it is", perhaps with others of its kind."""
    for kind, method in ((GenerateKeywords, Model.generate), (LoadKeywords, Model.load)):
        said = re.findall(r"(\w+(?:, \w+)*): ", method.__doc__ or "")
        assert sorted(names(kind) - {name for some in said for name in some.split(", ")}) == []


def test_the_keywords_of_load_are_those_of_the_model() -> None:
    taken = get_type_hints(Model.load)
    assert get_type_hints(LoadKeywords) == {k: v for k, v in taken.items() if k not in ("path", "return")}
