"""Prompts in the forms that ``explain`` takes, and the results of other libraries.

Other libraries' objects are recognised by their attributes; none of the libraries is imported.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ropelime.errors import InputError
from ropelime.text.prompt import (
    Prompt,
    from_context,
    from_messages,
    from_text,
    message_text,
    naming_field,
)

# Keys of LangChain's chains for the question, the answer and the chunks.
_QUESTIONS = ("query", "input", "question")
_ANSWERS = ("result", "answer")
_CHUNKS = ("source_documents", "context")
# Keys in the metadata of a chunk, in the order of preference. A label is the page number that is
# printed in the document; a bare page number may count from 0.
_SOURCES = ("source", "file_name", "file_path", "url", "title")
_PAGES = ("page_label", "page", "page_number")


def read_prompt(
    prompt: str | None = None,
    context: Sequence[Any] | None = None,
    question: str | None = None,
    messages: Sequence[Any] | None = None,
) -> Prompt:
    """The prompt from exactly one of its three forms.

    Args:
        prompt: The prompt as one text.
        context: Retrieved chunks: strings, mappings with ``text``, ``source`` and ``page``, or
            documents of LangChain or LlamaIndex.
        question: The question about the context.
        messages: Chat messages, as mappings or as objects of an SDK.

    Raises:
        InputError: Its ``field`` names the argument that is wrong, such as ``"context.1"``.
    """
    given = {"prompt": prompt, "context": context, "messages": messages}
    names = [name for name, value in given.items() if value is not None]
    if len(names) != 1:
        got = " and ".join(names) if names else "none of them"
        raise InputError(
            f"Pass exactly one of prompt, context and messages; got {got}.",
            field=names[-1] if names else "prompt",
        )
    if question is not None and context is None:
        raise InputError(
            "question goes with context=[...]; put it into the prompt otherwise.", field="question"
        )
    with naming_field(names[0]):
        if prompt is not None:
            return from_text(prompt)
        if context is not None:
            return from_context(chunks(context), question)
        return from_messages(as_messages(messages))


def arguments(response: Any, request: Any = None, question: str | None = None) -> dict[str, Any]:
    """Another library's result as arguments of ``explain``.

    Args:
        response: A Chat Completions or Responses object of the OpenAI SDK, or the same as a dictionary;
            the dictionary of a LangChain retrieval chain; or a LlamaIndex response.
        request: The keyword arguments of the call that returned an OpenAI response.
        question: The question of a LlamaIndex response, which does not hold it.
    """
    answered = as_dict(response)
    if answered is None or "source_nodes" in answered:
        return _llama_index(response, question)
    if "choices" in answered or "output_text" in answered or answered.get("object") == "response":
        if not isinstance(request, Mapping):
            raise InputError(
                "An OpenAI response does not hold its prompt: pass request={'messages': [...]}, the "
                "arguments of the call."
            )
        sent = _completions(request) if "choices" in answered else _responses(request)
        return {"messages": sent, "output": _openai_answer(response, answered)}
    return _langchain(answered, question)


def as_dict(value: Any) -> Mapping[str, Any] | None:
    """A mapping as it is, an object of an SDK as its dictionary, None for anything else."""
    if isinstance(value, Mapping):
        return value
    dump = getattr(value, "model_dump", None)  # the objects of the OpenAI SDK have it
    dumped = dump(exclude_none=True) if callable(dump) and not isinstance(value, type) else None
    return dumped if isinstance(dumped, Mapping) else None


def as_messages(given: Any) -> Any:
    """Messages, with those that an SDK returned (``response.choices[0].message``) as dictionaries."""
    if isinstance(given, (str, Mapping)) or not isinstance(given, Sequence):
        return given
    return [as_dict(message) or message for message in given]


def chunks(given: Any) -> Any:
    """Chunks, with LangChain's documents and LlamaIndex's nodes as text, source and page."""
    if isinstance(given, (str, Mapping)) or not isinstance(given, Sequence):
        return given
    return [chunk if isinstance(chunk, (str, Mapping)) else _chunk(chunk) for chunk in given]


def _chunk(document: Any) -> Any:
    text = getattr(document, "page_content", None)  # LangChain
    if text is None:
        node = getattr(document, "node", document)  # LlamaIndex, with or without a score
        read = getattr(node, "get_content", None)
        if not callable(read):
            return document
        text, document = read(), node
    metadata = getattr(document, "metadata", None)
    metadata = metadata if isinstance(metadata, Mapping) else {}
    return {"text": text, "source": _first(metadata, _SOURCES), "page": _first(metadata, _PAGES)}


def _first(mapping: Mapping[str, Any], names: Sequence[str]) -> Any:
    """The value of the first key that is set, as a number or a text."""
    found = (mapping[name] for name in names if mapping.get(name) not in (None, ""))
    value = next(found, None)
    return value if value is None or isinstance(value, int) else str(value)


def _completions(request: Mapping[str, Any]) -> Any:
    if "messages" not in request:
        raise InputError("request has no 'messages': pass the arguments of chat.completions.create.")
    return request["messages"]


def _responses(request: Mapping[str, Any]) -> list[Any]:
    """The input of the Responses API as messages of the Chat Completions API."""
    if "input" not in request:
        raise InputError("request has no 'input': pass the arguments of responses.create.")
    sent: list[Any] = []
    if request.get("instructions"):
        sent.append({"role": "system", "content": request["instructions"]})
    given = request["input"]
    if isinstance(given, str):
        return [*sent, {"role": "user", "content": given}]
    if isinstance(given, Mapping) or not isinstance(given, Sequence):
        raise InputError(f"request['input'] must be a text or a list, not {type(given).__name__}.")
    for item in as_messages(given):
        kind = item.get("type") if isinstance(item, Mapping) else None
        if kind == "function_call":
            call = {"function": {"name": item.get("name"), "arguments": item.get("arguments")}}
            sent.append({"role": "assistant", "tool_calls": [call]})
        elif kind == "function_call_output":
            sent.append({"role": "tool", "content": item.get("output")})
        elif kind != "reasoning":  # the model's own reasoning is not part of the prompt
            sent.append(item)
    return sent


def _openai_answer(response: Any, answered: Mapping[str, Any]) -> str:
    """The text of the first choice, with its tool calls as text."""
    if "choices" in answered:
        choices = answered["choices"] or [{}]
        first = as_dict(choices[0]) if isinstance(choices, Sequence) else None
        if first is None:
            raise InputError("The choices of the response must be a list of objects with a message.")
        return message_text(as_dict(first.get("message")) or {"content": ""}, "The answer")
    text = answered.get("output_text") or getattr(response, "output_text", None)
    if text:
        return str(text)
    items = _responses({"input": answered.get("output") or ""})
    return "\n".join(message_text(item, "The answer") for item in items)


def _langchain(result: Mapping[str, Any], question: str | None) -> dict[str, Any]:
    named = [next((n for n in names if n in result), None) for names in (_ANSWERS, _CHUNKS)]
    if None in named:
        raise InputError(
            f"response has the keys {', '.join(map(str, result)) or 'none'}. A LangChain result needs "
            f"an answer ({' or '.join(_ANSWERS)}) and its chunks ({' or '.join(_CHUNKS)}); for "
            "RetrievalQA set return_source_documents=True."
        )
    answer, retrieved = (result[name] for name in named if name)
    own = next((result[name] for name in _QUESTIONS if isinstance(result.get(name), str)), None)
    return {"context": chunks(retrieved), "question": question or own, "output": answer}


def _llama_index(response: Any, question: str | None) -> dict[str, Any]:
    nodes = getattr(response, "source_nodes", None)
    if nodes is None:
        raise InputError(
            f"response is {type(response).__name__}. It must be an OpenAI response with its request, "
            "the dictionary of a LangChain retrieval chain, or a LlamaIndex response. Pass its parts "
            "instead: context=[...], question=..., output=..."
        )
    if question is None:
        raise InputError("A LlamaIndex response does not hold its question: pass question=...")
    answer = getattr(response, "response", None)
    if not isinstance(answer, str):
        raise InputError(
            f"The response's text is {type(answer).__name__}. If it is a stream, consume it first: "
            "response = response.get_response()."
        )
    return {"context": chunks(nodes), "question": question, "output": answer}
