"""Finds the folder of a checkpoint: a local path, or a hub id whose needed files are downloaded; reads no shard.

Of a hub repository only the configs, the index, the tokenizer and the shards with text tensors are fetched. Finished
files are kept, so a download that broke off goes on with the files that are missing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tensorfold import arguments
from tensorfold.arguments import ParameterTypeError, shown
from tensorfold.checkpoint.errors import CheckpointError, listing
from tensorfold.checkpoint.inventory import is_drafter, is_skipped
from tensorfold.checkpoint.layout import INDEX_FILE, SINGLE_FILE, read_index, wanted_files
from tensorfold.config import FLAT_FILE, HF_FILE, ModelConfig
from tensorfold.progress import wanted

if TYPE_CHECKING:
    from tqdm import tqdm

SMALL_FILES = [HF_FILE, FLAT_FILE, INDEX_FILE, "tokenizer.json", "tokenizer_config.json", "tokenizer.model",
               "generation_config.json"]  # fmt: skip
TOKENIZERS = ("tokenizer.json", "tokenizer.model")
NUMBERED_FILES = "model-?????-of-?????.safetensors"
ANSWER_S = 10.0  # how long the hub may take to answer at all
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


class DownloadError(OSError):
    """A hub id whose files cannot be had: unknown, refused, unreachable, incomplete, or broken off."""


@dataclass(frozen=True)
class Access:
    """How a hub repository is asked for: a branch, tag or commit; a token, True or None for the stored one, False for
    none; the folder of the cache, by default the hub library's; and whether bars are shown, by default where somebody
    looks. Raises ParameterTypeError naming the argument."""

    revision: str | None = None
    token: str | bool | None = None
    cache_dir: str | Path | None = None
    progress: bool | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.revision, str | None):
            raise ParameterTypeError(f"revision={shown(self.revision)} must be a branch, tag or commit")
        if not isinstance(self.token, str | bool | None):
            raise ParameterTypeError(f"token must be a str, True or False, not {type(self.token).__name__}")
        if self.cache_dir is not None:
            object.__setattr__(self, "cache_dir", arguments.path("cache_dir", self.cache_dir))


def resolve(path_or_hub_id: str | os.PathLike[str], drafter: bool = True, access: Access | None = None) -> Path:
    """The folder of a checkpoint: the path itself if it exists, else the cached download of a hub id ("owner/name").

    `drafter=False` leaves out shards with nothing but mtp.* in them. Without network a complete cached download serves.
    Raises FileNotFoundError for what looks like a path and is not there, ValueError for a revision of a local folder,
    DownloadError (an OSError) for hub trouble, ConfigError or CheckpointError if the repository's config or index is
    refused, before any shard is fetched.
    """
    path, access = arguments.path("path", path_or_hub_id), access or Access()
    given = os.fspath(path_or_hub_id)
    if given and path.exists():
        if access.revision is not None:
            raise ValueError(f"revision {access.revision!r} is of a hub id, but {given!r} is a local folder")
        return path
    if not isinstance(path_or_hub_id, str) or looks_local(given):
        raise FileNotFoundError(f"{given!r}: no such folder (a hub id has the form owner/name)")
    return _download(given, drafter, access)


def looks_local(text: str) -> bool:
    """True unless `text` has the form owner/name with an owner that is no folder here."""
    return HUB_ID.fullmatch(text) is None or Path(text.split("/")[0]).exists()


def _download(hub_id: str, drafter: bool, access: Access) -> Path:
    # asked once: where the hub does not answer, the cache alone counts, and no file waits for it again
    trouble = _trouble(hub_id, access)
    folder = _fetch(hub_id, access, SMALL_FILES, trouble)
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
    folder = _fetch(hub_id, replace(access, revision=folder.name), SMALL_FILES + shards, trouble)
    absent = [name for name in shards if not (folder / name).is_file()] if indexed else []
    if absent:
        raise DownloadError(f"hub id {hub_id!r}: {len(absent)} of {len(shards)} shards are not to be had: "
                            f"{listing(absent)}; incomplete upload, or offline with part of it cached")  # fmt: skip
    return folder


def _trouble(hub_id: str, access: Access) -> Exception | None:
    """What keeps the hub from answering, None where it does or nobody may ask."""
    from huggingface_hub import HfApi, constants, errors  # slow to import, and not needed for a local folder

    if constants.HF_HUB_OFFLINE:
        return None
    with _told(hub_id, access):
        try:
            HfApi(token=access.token).repo_info(hub_id, revision=access.revision, timeout=ANSWER_S)
        except (errors.RepositoryNotFoundError, errors.RevisionNotFoundError):  # gated ones are of the former
            raise
        except Exception as error:  # whatever the transport raises, which differs between its versions
            return error
    return None


def _fetch(hub_id: str, access: Access, names: list[str], trouble: Exception | None) -> Path:
    """One snapshot folder that holds `names` as far as the repository has them; after `trouble`, from the cache."""
    from huggingface_hub import constants, snapshot_download

    with _told(hub_id, access, trouble):
        return Path(
            snapshot_download(
                hub_id, revision=access.revision, token=access.token, cache_dir=access.cache_dir, allow_patterns=names,
                tqdm_class=_bar(access.progress), local_files_only=trouble is not None or constants.HF_HUB_OFFLINE,
            )  # fmt: skip
        )


@contextmanager
def _told(hub_id: str, access: Access, trouble: Exception | None = None) -> Iterator[None]:
    """Hub trouble as a DownloadError that says what it is."""
    from huggingface_hub import errors

    cause: Exception
    try:
        yield
    except errors.GatedRepoError as error:
        why, cause = "access is restricted; accept its terms on the hub and log in with `hf auth login`", error
    except errors.RepositoryNotFoundError as error:
        why = "no such model on the hub (or no access; log in with `hf auth login`), and no such folder here"
        cause = error
    except errors.RevisionNotFoundError as error:
        why, cause = f"no revision {access.revision!r}", error
    except errors.LocalEntryNotFoundError as error:
        why = (
            "no such folder here; as a hub id: the hub cannot be reached and the cache does not hold all of it "
            f"({trouble or error})"
        )
        cause = trouble or error
    except Exception as error:  # whatever the transport raises
        why = f"download failed ({type(error).__name__}: {error}); run again to go on where it stopped"
        cause = error
    else:
        return
    raise DownloadError(f"hub id {hub_id!r}: {why}") from cause


def _bar(asked: bool | None) -> type[tqdm[Any]] | None:
    """The hub's own progress bar where one is wanted, a silent one elsewhere."""
    if wanted(asked):
        return None
    from huggingface_hub.utils import tqdm as hub_bar

    class Silent(hub_bar):  # type: ignore[misc, valid-type]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **{**kwargs, "disable": True})

    return Silent
