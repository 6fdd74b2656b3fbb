"""Checks OpenAI-style messages, tools and options and turns them into DeepSeek's objects;
renders nothing, knows no ids."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

from tensorfold.arguments import flag, integer, whole

_EFFORTS = {"minimal": 50, "low": 50, "medium": 75, "high": 75, "xhigh": 75, "max": 100, "ultra": 100}
_ROLES = ("system", "developer", "user", "assistant", "tool", "latest_reminder")
_IMAGES = ("image", "image_url", "input_image", "image_pil")
_SCHEMA_TYPES = ("object", "array", "string", "number", "integer", "boolean", "null")


def effort_of(effort: int | str | None, thinking: bool | None) -> tuple[int, bool]:
    """The effort 1..100 and whether thinking is on. ValueError or TypeError for anything else."""
    if thinking is not None:
        thinking = flag("thinking", thinking)
    if effort == "none":
        if thinking:
            raise ValueError('thinking=True with reasoning_effort="none": choose one')
        return 75, False
    on = thinking is not False
    if effort is None:
        return 75, on
    if isinstance(effort, str):
        if effort not in _EFFORTS:
            raise ValueError(f"reasoning_effort={effort!r} must be 1..100, none, {', '.join(_EFFORTS)}")
        return _EFFORTS[effort], on
    if (level := whole(effort)) is None:
        raise TypeError(f"reasoning_effort={effort!r} must be an integer 1..100 or a name, not {type(effort).__name__}")
    return integer("reasoning_effort", level, 1, 100), on


def conversations(messages: Any) -> tuple[list[tuple[str, Any]], bool]:
    """Each conversation after its name in errors, and whether a list of conversations was given."""
    nested = [_is_list(each) for each in messages] if _is_list(messages) else []
    if not any(nested):
        return [("messages", messages)], False
    if not all(nested):
        i, other = nested.index(False), nested.index(True)
        raise TypeError(f"messages[{i}] is no list of messages as messages[{other}] is: give conversations or messages")
    return [(f"messages[{i}]", each) for i, each in enumerate(messages)], True


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes, Mapping))


def read_messages(library: ModuleType, messages: Any, continued: bool, where: str) -> list[Any]:
    """DeepSeek's objects, one a message; a last assistant turn is left without its end, continued or not."""
    if not _is_list(messages):
        raise TypeError(f"{where} must be a list of mappings, not {type(messages).__name__}")
    if not messages:
        raise ValueError(f"{where} is empty: give at least one message")
    read = [_message(library, f"{where}[{i}]", m, i == len(messages) - 1) for i, m in enumerate(messages)]
    if continued and read[-1].role != "assistant":
        raise ValueError(
            f"continue_final_message=True, but the last message is by the {read[-1].role}, not the assistant"
        )
    return read


def _message(library: ModuleType, where: str, message: Any, is_open: bool) -> Any:
    if not isinstance(message, Mapping):
        raise TypeError(f"{where} must be a mapping with role and content, not {type(message).__name__}")
    role = message.get("role")
    if role not in _ROLES:
        raise ValueError(f"{where} has role {role!r}: roles are {', '.join(_ROLES)}")
    content = _content(message.get("content"), f"{where}.content", role)
    if role != "assistant" and message.get("tool_calls"):
        raise ValueError(f"{where} has tool_calls, but its role is {role}: only assistants call")
    if role in ("system", "developer"):
        return library.SystemMessage(content)
    if role == "user":
        return library.UserMessage(content)
    if role == "latest_reminder":
        return library.LatestReminderMessage(content)
    if role == "tool":
        call = message.get("tool_call_id")
        return library.ToolMessage(content, None if call is None else _text(call, f"{where}.tool_call_id"))
    reasoning = message.get("reasoning", message.get("reasoning_content"))
    if reasoning is not None:
        reasoning = _text(reasoning, f"{where}.reasoning_content")
    calls = message.get("tool_calls") or []
    if not isinstance(calls, Sequence) or isinstance(calls, str):
        raise TypeError(f"{where}.tool_calls must be a list, not {type(calls).__name__}")
    made = [_call(library, f"{where}.tool_calls[{i}]", call) for i, call in enumerate(calls)]
    return library.AssistantMessage(content, reasoning, made or None, prefix=is_open)


def _content(value: Any, where: str, role: str) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return _text(value, where)
    if not isinstance(value, Sequence):
        raise TypeError(f"{where} must be a str, None or a list of text parts, not {type(value).__name__}")
    texts = []
    for i, part in enumerate(value):
        kind = part.get("type") if isinstance(part, Mapping) else None
        if kind == "text":
            texts.append(_text(part.get("text"), f"{where}[{i}].text"))
        elif kind in _IMAGES:
            raise ValueError(f"{where}[{i}] is an image: this library runs the text model only")
        elif role == "tool" and isinstance(kind, str):
            texts.append(f"[Unsupported {_text(kind, where)}]")
        else:
            raise ValueError(f'{where}[{i}] must be {{"type": "text", "text": ...}}, not {part!r}')
    return "\n\n".join(texts)


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{where} must be a str, not {type(value).__name__}")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"{where} holds the lone surrogate {value[error.start]!r} at character {error.start}"
        ) from None
    return value


def _name(value: Any, where: str) -> str:
    name = _text(value, where)
    if not name or any(c in name for c in '"\n\r'):
        raise ValueError(f"{where} is {name!r}: a name is not empty and holds no quote and no line break")
    return name


def _call(library: ModuleType, where: str, call: Any) -> Any:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping):
        raise TypeError(f'{where} must be {{"id": ..., "function": {{"name": ..., "arguments": ...}}}}')
    name = _spaced(
        _name(function.get("name"), f"{where}.function.name"), [call.get("namespace"), function.get("namespace")], where
    )[0]
    arguments = _arguments(function.get("arguments"), f"{where}.function.arguments")
    return library.ToolCall(_text(call.get("id") or "", f"{where}.id"), name, arguments)


def _arguments(value: Any, where: str) -> str:
    """JSON text of an object where there is one; the library shows any other text as one argument."""
    if value is None:
        return "{}"
    if isinstance(value, str):
        inner = _loaded(_text(value, where))
        if isinstance(inner, str) and isinstance(_loaded(inner), dict):
            value = inner  # encoded twice
        found = _loaded(value)
    else:
        found = value if isinstance(value, Mapping) else {"arguments": value}
        try:
            value = _text(json.dumps(found, ensure_ascii=False), where)
        except (TypeError, ValueError) as error:
            raise type(error)(f"{where} is no JSON: {error}") from None
    for key in found if isinstance(found, Mapping) else ():
        _name(key, f"a name in {where}")
    return value


def _loaded(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def read_tools(library: ModuleType, tools: Any) -> list[Any]:
    """DeepSeek's tool definitions of OpenAI-style ones, namespaces folded into names and descriptions."""
    if tools is None:
        return []
    if isinstance(tools, (str, Mapping)) or not isinstance(tools, Sequence):
        raise TypeError(f"tools must be a list of mappings, not {type(tools).__name__}")
    return [_tool(library, f"tools[{i}]", tool) for i, tool in enumerate(tools)]


def _tool(library: ModuleType, where: str, tool: Any) -> Any:
    function = tool.get("function") if isinstance(tool, Mapping) else None
    if not isinstance(function, Mapping):
        raise TypeError(f'{where} must be {{"type": "function", "function": {{"name": ..., ...}}}}')
    name = _name(function.get("name"), f"{where}.function.name")
    name, about = _spaced(name, [tool.get("namespace"), function.get("namespace")], where)
    description = _text(function.get("description") or "", f"{where}.function.description")
    parameters = function.get("parameters")
    if parameters is not None and not isinstance(parameters, Mapping):
        raise TypeError(f"{where}.function.parameters must be a JSON schema, not {type(parameters).__name__}")
    return library.ToolDefinition(name, f"{about}\n{description}" if about else description, parameters or {})


def _spaced(name: str, spaces: Sequence[Any], where: str) -> tuple[str, str]:
    """The name with its namespace before it, and the namespace's description."""
    found, about = {name.split("::")[0]} if "::" in name else set[str](), ""
    for space in spaces:
        if isinstance(space, Mapping):
            about, space = _text(space.get("description") or "", f"{where}.namespace.description"), space.get("name")
        if space is not None:
            found.add(_name(space, f"{where}.namespace"))
    local = name.split("::", 1)[-1]
    if len(found) > 1 or "::" in local or any("::" in space for space in found):
        raise ValueError(f"{where}: {name!r} and the namespaces {sorted(found)} contradict each other")
    return (f"{found.pop()}::{local}" if found else local), about


def schema_of(response_format: Any) -> dict[str, Any]:
    """Keywords of DeepSeek's Conversation for OpenAI's response_format, or for a bare JSON schema."""
    if response_format is None:
        return {}
    if not isinstance(response_format, Mapping):
        raise TypeError(f"response_format must be a mapping, not {type(response_format).__name__}")
    kind = response_format.get("type")
    if kind in ("text", "json_object"):
        return {"response_format": kind}
    if kind == "json_schema":
        schema = response_format.get("json_schema", {})
        schema = schema.get("schema") if isinstance(schema, Mapping) else None
        if not isinstance(schema, Mapping):
            raise ValueError('response_format of type "json_schema" needs {"json_schema": {"schema": {...}}}')
        return {"response_schema": dict(schema)}
    kinds = kind if isinstance(kind, list) else [kind]
    if kind is not None and not all(k in _SCHEMA_TYPES for k in kinds):
        raise ValueError(
            f"response_format has the type {kind!r}: it is text, json_object or json_schema, "
            f"or that of a bare JSON schema ({', '.join(_SCHEMA_TYPES)})"
        )
    return {"response_schema": dict(response_format)}
