"""Finds the folder of a checkpoint: a local path, or a hub id whose needed files are downloaded; reads no shard.

Of a hub repository only the configs, the index, the tokenizer and the shards with text tensors are fetched. Finished
files are kept, so a download that broke off goes on with the files that are missing.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tensorfold import arguments
from tensorfold.checkpoint.errors import CheckpointError, listing
from tensorfold.checkpoint.inventory import is_drafter, is_skipped
from tensorfold.checkpoint.layout import INDEX_FILE, SINGLE_FILE, read_index, wanted_files
from tensorfold.config import FLAT_FILE, HF_FILE, ModelConfig

if TYPE_CHECKING:
    from tqdm import tqdm

SMALL_FILES = [HF_FILE, FLAT_FILE, INDEX_FILE, "tokenizer.json", "tokenizer_config.json", "tokenizer.model",
               "generation_config.json"]  # fmt: skip
TOKENIZERS = ("tokenizer.json", "tokenizer.model")
NUMBERED_FILES = "model-?????-of-?????.safetensors"
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


class DownloadError(OSError):
    """A hub id whose files cannot be had: unknown, refused, unreachable, incomplete, or broken off."""


def resolve(path_or_hub_id: str | os.PathLike[str], drafter: bool = True, revision: str | None = None) -> Path:
    """The folder of a checkpoint: the path itself if it exists, else the cached download of a hub id ("owner/name").

    `drafter=False` leaves out shards with nothing but mtp.* in them. `revision` is a branch, tag or commit of the hub
    repository. Without network a complete cached download is used.
    Raises FileNotFoundError for what looks like a path and is not there, ValueError for a revision of a local folder,
    DownloadError (an OSError) for hub trouble, ConfigError or CheckpointError if the repository's config or index is
    refused, before any shard is fetched.
    """
    path, given = arguments.path("path", path_or_hub_id), os.fspath(path_or_hub_id)
    if given and path.exists():
        if revision is not None:
            raise ValueError(f"revision {revision!r} is of a hub id, but {given!r} is a local folder")
        return path
    if not isinstance(path_or_hub_id, str) or looks_local(given):
        raise FileNotFoundError(f"{given!r}: no such folder (a hub id has the form owner/name)")
    return _download(given, drafter, revision)


def looks_local(text: str) -> bool:
    """True unless `text` has the form owner/name with an owner that is no folder here."""
    return HUB_ID.fullmatch(text) is None or Path(text.split("/")[0]).exists()


def _download(hub_id: str, drafter: bool, revision: str | None) -> Path:
    folder = _fetch(hub_id, revision, SMALL_FILES)
    if not (folder / HF_FILE).is_file() and not (folder / FLAT_FILE).is_file():
        raise DownloadError(f"hub id {hub_id!r}: no {HF_FILE} there, so this is no checkpoint")
    ModelConfig.from_folder(folder)
    if not any((folder / name).is_file() for name in TOKENIZERS):
        raise DownloadError(f"hub id {hub_id!r}: neither {' nor '.join(TOKENIZERS)} is there")
    indexed = (folder / INDEX_FILE).is_file()
    if indexed:
        weight_map = read_index(folder / INDEX_FILE)
        shards = sorted(wanted_files(weight_map, lambda n: not is_skipped(n) and (drafter or not is_drafter(n))))
        if not shards:
            raise CheckpointError(f"hub id {hub_id!r}: {INDEX_FILE} names no text tensor")
    else:
        shards = [SINGLE_FILE, NUMBERED_FILES]
    # The snapshot folder is named after the commit: what follows is of the same one, whatever is pushed meanwhile.
    folder = _fetch(hub_id, folder.name, SMALL_FILES + shards)
    absent = [name for name in shards if not (folder / name).is_file()] if indexed else []
    if absent:
        raise DownloadError(f"hub id {hub_id!r}: {len(absent)} of {len(shards)} shards are not to be had: "
                            f"{listing(absent)}; incomplete upload, or offline with part of it cached")  # fmt: skip
    return folder


def _fetch(hub_id: str, revision: str | None, names: list[str]) -> Path:
    """One snapshot folder that holds `names` as far as the repository has them."""
    from huggingface_hub import errors, snapshot_download  # slow to import, and not needed for a local folder

    try:
        return Path(snapshot_download(hub_id, revision=revision, allow_patterns=names, tqdm_class=_quiet_bar()))
    except errors.GatedRepoError as error:
        why = "access is restricted; accept its terms on the hub and log in with `hf auth login`"
        raise DownloadError(f"hub id {hub_id!r}: {why}") from error
    except errors.RepositoryNotFoundError as error:
        why = "no such model on the hub (or no access; log in with `hf auth login`), and no such folder here"
        raise DownloadError(f"hub id {hub_id!r}: {why}") from error
    except errors.RevisionNotFoundError as error:
        raise DownloadError(f"hub id {hub_id!r}: no revision {revision!r}") from error
    except errors.LocalEntryNotFoundError as error:
        why = f"the hub cannot be reached and the cache does not hold all of it ({error})"
        raise DownloadError(f"hub id {hub_id!r}: {why}") from error
    except Exception as error:  # whatever the transport raises, which differs between its versions
        why = f"download failed ({type(error).__name__}: {error}); run again to go on where it stopped"
        raise DownloadError(f"hub id {hub_id!r}: {why}") from error


def _quiet_bar() -> type[tqdm[Any]] | None:
    """The hub's own progress bar on a terminal, a silent one elsewhere."""
    if sys.stderr is not None and sys.stderr.isatty():
        return None
    from huggingface_hub.utils import tqdm as hub_bar

    class Silent(hub_bar):  # type: ignore[misc, valid-type]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **{**kwargs, "disable": True})

    return Silent
