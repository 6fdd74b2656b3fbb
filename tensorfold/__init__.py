"""TensorFold: DeepSeek-V4.1-Flash from its published checkpoint, with bits that do not depend on how it runs."""

import logging as _logging

try:
    import mlx.core as _mlx  # noqa: F401
except ImportError as error:
    raise ImportError(
        "MLX has no backend installed here. On Linux choose one: pip install 'tensorfold[cpu]', 'tensorfold[cuda12]' "
        "or 'tensorfold[cuda13]'; on a Mac, pip install mlx brings Metal."
    ) from error

from tensorfold.chat import ChatPiece, ChatReply
from tensorfold.checkpoint.errors import CheckpointError
from tensorfold.compat import batch_generate, generate, load, stream_generate
from tensorfold.config import ConfigError, ModelConfig
from tensorfold.description import Description, describe
from tensorfold.engine.engine import CapacityError
from tensorfold.engine.reply import Stats, TokenLogprobs
from tensorfold.engine.save import SaveError
from tensorfold.engine.slot import NumericError
from tensorfold.handle import SlotHandle
from tensorfold.memory import MemoryUse
from tensorfold.model import Model
from tensorfold.network.streaming import Streaming
from tensorfold.results import Generation, Piece
from tensorfold.scoring import Score
from tensorfold.text.replies import ToolCall

_logging.getLogger("tensorfold").addHandler(_logging.NullHandler())  # silent until an application asks
__version__ = "0.1.0"
__all__ = [
    "CapacityError",
    "ChatPiece",
    "ChatReply",
    "CheckpointError",
    "ConfigError",
    "Description",
    "Generation",
    "MemoryUse",
    "Model",
    "ModelConfig",
    "NumericError",
    "Piece",
    "SaveError",
    "Score",
    "SlotHandle",
    "Stats",
    "Streaming",
    "TokenLogprobs",
    "ToolCall",
    "batch_generate",
    "describe",
    "generate",
    "load",
    "stream_generate",
]
