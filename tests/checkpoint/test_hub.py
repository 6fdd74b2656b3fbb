"""resolve: local folders as they are, hub ids with no more than the text model needs, resumably and offline."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hub_server import COMMIT, HubServer
from shardkit import INDEX, clone, edit_index, pack, replace

from tensorfold.checkpoint import hub as hub_module
from tensorfold.checkpoint.hub import Access, looks_local, resolve
from tensorfold.testing import synthetic

Load = Callable[..., Any]
ROOT = Path(__file__).parents[2]
CODE = """
import json, sys
from tensorfold.checkpoint.hub import Access, resolve
from tensorfold.checkpoint import Checkpoint
args = json.loads(sys.argv[1])
try:
    folder = resolve(args.get("id", "someone/model"), args.get("drafter", True), Access(**args.get("access", {})))
    with Checkpoint.open(folder, drafter=args.get("drafter", True)) as ck:
        print(json.dumps({"folder": str(folder), "tensors": len(ck), "identity": ck.identity}))
except (OSError, ValueError) as error:
    print(json.dumps({"error": type(error).__name__, "text": str(error)}))
"""
SMALL_FILES = {"config.json", "inference/config.json", INDEX, "tokenizer.json", "tokenizer_config.json"}


@pytest.fixture
def repository(small: Path, tmp_path: Path) -> Path:
    """A model repository as published: with an image shard, and files that text does not need."""
    folder = clone(small, tmp_path / "repository")
    entry = {"vision.patch.weight": {"dtype": "BF16", "shape": [500], "data_offsets": [0, 1000]}}
    (folder / "vision-only.safetensors").write_bytes(pack(entry, bytes(1000)))
    edit_index(folder, lambda m: m.update({"vision.patch.weight": "vision-only.safetensors"}))
    (folder / "README.md").write_text("about")
    (folder / "inference/model.py").write_text("code")
    return folder


@pytest.fixture
def hub(repository: Path) -> Iterator[HubServer]:
    with HubServer(repository) as server:
        yield server


@pytest.fixture
def load(hub: HubServer, tmp_path: Path) -> Load:
    """resolve and open in a process of its own: huggingface_hub reads its endpoint when it is imported."""

    def run(
        offline: bool = False, url: str | None = None, kill_when: Callable[[], bool] | None = None, **args: object
    ) -> Any:
        env = {
            k: v
            for k, v in os.environ.items()
            if not k.startswith(("HF_", "HUGGINGFACE_", "HTTP", "http", "ALL_PROXY"))
        }
        env |= {
            "HF_ENDPOINT": url or hub.url,
            "HF_HOME": str(tmp_path / "home"),
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "HF_HUB_ETAG_TIMEOUT": "2",
            "PYTHONPATH": str(ROOT),
            "NO_PROXY": "127.0.0.1",
        }
        env |= {"HF_HUB_OFFLINE": "1"} if offline else {}
        process = subprocess.Popen(
            [sys.executable, "-c", CODE, json.dumps(args)],
            env=env,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        while kill_when is not None and process.poll() is None and not kill_when():
            time.sleep(0.05)
        if kill_when is not None:
            process.kill()
        out, err = process.communicate(timeout=120)
        if kill_when is not None:
            return None
        assert process.returncode == 0, err
        return {**json.loads(out), "stderr": err}

    return run


def shards(first: int, last: int) -> set[str]:
    return {f"model-{i:05d}-of-00017.safetensors" for i in range(first, last + 1)}


def test_only_what_text_needs_is_downloaded_and_then_kept(hub: HubServer, load: Load) -> None:
    first = load()
    assert "error" not in first, first
    assert hub.fetched() == SMALL_FILES | shards(1, 17)
    assert Path(first["folder"]).name == COMMIT
    assert first["stderr"] == ""  # no progress bar where there is no terminal
    hub.log.clear()
    again, offline = load(), load(offline=True)
    assert hub.fetched() == set()
    assert again["identity"] == first["identity"] == offline["identity"]


def test_without_drafter_its_shards_stay_where_they_are(hub: HubServer, load: Load) -> None:
    assert "error" not in load(drafter=False, revision=COMMIT)
    assert hub.fetched() == SMALL_FILES | shards(1, 12) | shards(16, 17)
    hub.log.clear()
    assert "error" not in load()
    assert hub.fetched() == shards(13, 15)


def test_a_dropped_connection_is_taken_up_where_it_broke(hub: HubServer, load: Load, tmp_path: Path) -> None:
    synthetic.write(tmp_path / "big", "tiny", n_routed_experts=30, single_file=True)
    hub.folder, name = tmp_path / "big", "model.safetensors"
    hub.cut[name] = 15_000_000
    result = load()
    assert "error" not in result, result
    first, second = [r for m, f, r in hub.log if m == "GET" and f == name]
    assert first is None and second is not None and int(second.removeprefix("bytes=").removesuffix("-")) > 5_000_000
    assert (Path(result["folder"]) / name).read_bytes() == (hub.folder / name).read_bytes()


def test_after_a_failure_only_what_is_missing_is_fetched(hub: HubServer, load: Load) -> None:
    name = "model-00017-of-00017.safetensors"
    hub.gone.add(name)
    failed = load()
    assert failed["error"] == "DownloadError" and "run again" in failed["text"]
    hub.gone.clear()
    finished = {f for m, f, _ in hub.log if m == "GET" and f != name}
    hub.log.clear()
    assert "error" not in load()
    assert name in hub.fetched() and not hub.fetched() & finished


def test_after_a_kill_finished_shards_are_kept(hub: HubServer, load: Load, tmp_path: Path) -> None:
    stalled = "model-00009-of-00017.safetensors"
    hub.stall.add(stalled)

    def here() -> set[str]:
        return {p.name for p in (tmp_path / "home").rglob("*.safetensors")}

    load(kill_when=lambda: stalled in hub.fetched() and len(here()) > 10)
    finished = here()
    assert stalled not in finished
    hub.stall.clear()
    hub.log.clear()
    assert "error" not in load()
    assert stalled in hub.fetched() and not hub.fetched() & finished


def test_offline_with_part_of_it_cached_names_what_lacks(hub: HubServer, load: Load) -> None:
    load(drafter=False)
    result = load(offline=True)
    assert result["error"] == "DownloadError"
    assert "cache" in result["text"] and "someone/model" in result["text"]


def test_nothing_cached_and_no_network(hub: HubServer, load: Load) -> None:
    for result in (load(offline=True), load(url="http://127.0.0.1:9")):
        assert result["error"] == "DownloadError" and "cannot be reached" in result["text"]


def test_a_hub_that_does_not_answer_is_asked_once_and_the_cache_serves(hub: HubServer, load: Load) -> None:
    """Nothing is tried again for each file: a few seconds with Python's own start, not a minute."""
    kept = load()
    begun = time.monotonic()
    assert load(url="http://127.0.0.1:9")["identity"] == kept["identity"]
    assert time.monotonic() - begun < 20


def test_what_may_be_a_mistyped_folder_is_told_so(load: Load) -> None:
    assert "no such folder here" in load(url="http://127.0.0.1:9", id="checkpoints/tiny")["text"]


def test_the_cache_and_the_token_are_the_callers(hub: HubServer, load: Load, tmp_path: Path) -> None:
    access = {"cache_dir": str(tmp_path / "elsewhere"), "token": "hf_secret", "revision": "main"}
    assert load(access=access)["folder"].startswith(access["cache_dir"])
    assert hub.tokens == {"Bearer hf_secret"}
    hub.gated = True
    assert "hf_secret" not in str(load(access={**access, "cache_dir": str(tmp_path / "third")}))


def test_unknown_refused_and_missing_revision(hub: HubServer, load: Load) -> None:
    unknown = load(id="someone/else")
    assert unknown["error"] == "DownloadError" and "no such model on the hub" in unknown["text"]
    revision = load(access={"revision": "v9"})
    assert revision["error"] == "DownloadError" and "no revision 'v9'" in revision["text"]
    hub.gated = True
    gated = load()
    assert gated["error"] == "DownloadError" and "access is restricted" in gated["text"]


def test_another_model_is_refused_before_any_shard(hub: HubServer, load: Load) -> None:
    config = (hub.folder / "config.json").read_text().replace('"deepseek_v41"', '"deepseek_v4"')
    replace(hub.folder / "config.json", config.encode())
    result = load()
    assert result["error"] == "ConfigError" and "supported: deepseek_v41" in result["text"]
    assert hub.fetched() <= SMALL_FILES


def test_an_incomplete_upload_is_named(hub: HubServer, load: Load) -> None:
    (hub.folder / "model-00002-of-00017.safetensors").unlink()
    result = load()
    assert result["error"] == "DownloadError"
    assert "1 of 17 shards" in result["text"] and "model-00002-of-00017.safetensors" in result["text"]


@pytest.mark.parametrize("numbered", [True, False])
def test_repositories_without_an_index(single: Path, hub: HubServer, load: Load, numbered: bool) -> None:
    if numbered:
        (hub.folder / INDEX).unlink()
    else:
        hub.folder = single
    assert "error" not in load()
    wanted = shards(1, 17) if numbered else {"model.safetensors"}
    assert hub.fetched() == SMALL_FILES - {INDEX} | wanted


def test_a_folder_is_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert resolve(tmp_path) == resolve(str(tmp_path)) == tmp_path
    with pytest.raises(ValueError, match="revision 'v1' is of a hub id"):
        resolve(tmp_path, access=Access("v1"))
    (tmp_path / "someone/model").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert resolve("someone/model") == Path("someone/model")


@pytest.mark.parametrize("wrong", [{"revision": 1}, {"token": 5}, {"cache_dir": 3}, {"path": 7}, {"path": b"x"}])
def test_arguments_of_another_kind_are_named(wrong: dict[str, Any]) -> None:
    ((name, value),) = wrong.items()
    with pytest.raises(TypeError, match=f"^{name}.* must be"):
        resolve(value) if name == "path" else Access(**wrong)


def test_a_cache_is_looked_for_where_a_shell_would() -> None:
    assert Access(cache_dir="~/cache").cache_dir == Path.home() / "cache"


@pytest.mark.parametrize("asked,silent", [(None, False), (True, False), (False, True)])
def test_a_download_shows_bars_as_the_load_does(
    asked: bool | None, silent: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", SimpleNamespace(isatty=lambda: True, write=len))
    assert (hub_module._bar(asked) is not None) == silent


@pytest.mark.parametrize(
    "text", ["./x/y", "/nowhere/model", "~/nowhere", "a/b/c", "model", "", "x/", "../x", "a\\b", "tests/none"]
)
def test_what_looks_like_a_path_is_not_looked_up_on_the_hub(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here" / "tests").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "here")
    assert looks_local(text)
    with pytest.raises(FileNotFoundError, match="no such folder"):
        resolve(text)


def test_a_path_object_is_never_a_hub_id(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        resolve(Path("someone/model"))
    assert not looks_local("someone/model")
