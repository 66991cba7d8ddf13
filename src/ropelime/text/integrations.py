"""What other libraries return, as arguments of ``explain``.

Their objects are recognised by their attributes; none of the libraries is imported.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ropelime.errors import InputError
from ropelime.text.prompt import answer_text

# Keys of LangChain's chains for the question, the answer and the chunks.
_QUESTIONS = ("query", "input", "question")
_ANSWERS = ("result", "answer")
_CHUNKS = ("source_documents", "context")
# Keys in the metadata of a chunk, in the order of preference. A label is the page number that is
# printed in the document; a bare page number may count from 0.
_SOURCES = ("source", "file_name", "file_path", "url", "title")
_PAGES = ("page_label", "page", "page_number")


def arguments(response: Any, request: Any = None, question: str | None = None) -> dict[str, Any]:
    """The arguments that explain a result of OpenAI's SDK, LangChain or LlamaIndex.

    An OpenAI response does not hold its ``request``, nor a LlamaIndex response its ``question``.
    """
    answered = as_dict(response)
    if answered is None or "source_nodes" in answered:
        return _llama_index(response, question)
    if "choices" in answered or "output_text" in answered or answered.get("object") == "response":
        return _openai(response, answered, request)
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
    if isinstance(given, str) or not isinstance(given, Sequence):
        return given
    return [as_dict(message) or message for message in given]


def as_chunks(given: Any) -> Any:
    """Chunks, with LangChain's documents and LlamaIndex's nodes as text, source and page."""
    if isinstance(given, str) or not isinstance(given, Sequence):
        return given
    return [chunk if isinstance(chunk, (str, Mapping)) else _chunk(chunk) for chunk in given]


def _chunk(document: Any) -> Any:
    text = getattr(document, "page_content", None)  # LangChain
    if text is None:
        document = getattr(document, "node", document)  # LlamaIndex, with or without a score
        if not callable(read := getattr(document, "get_content", None)):
            return document
        text = read()
    metadata = getattr(document, "metadata", None)
    metadata = metadata if isinstance(metadata, Mapping) else {}
    return {"text": text, "source": _first(metadata, _SOURCES), "page": _first(metadata, _PAGES)}


def _first(mapping: Mapping[str, Any], names: Sequence[str]) -> Any:
    """The value of the first key that is set, as a number or a text."""
    value = next((mapping[name] for name in names if mapping.get(name) not in (None, "")), None)
    return value if value is None or isinstance(value, int) else str(value)


def _openai(response: Any, answered: Mapping[str, Any], request: Any) -> dict[str, Any]:
    if not isinstance(request, Mapping):
        raise InputError(
            "An OpenAI response does not hold its prompt: pass request={'messages': [...]}, the "
            "arguments of the call."
        )
    name, call = ("messages", "chat.completions") if "choices" in answered else ("input", "responses")
    if name not in request:
        raise InputError(f"request has no {name!r}: pass the arguments of {call}.create.")
    if name == "messages":
        choices = answered["choices"] or [{}]
        first = as_dict(choices[0]) if isinstance(choices, Sequence) else None
        if first is None:
            raise InputError("The choices of the response must be a list of objects with a message.")
        output = answer_text(as_dict(first.get("message")) or {"content": ""})
        return {"messages": as_messages(request["messages"]), "output": output}
    instructions = request.get("instructions")
    system = [{"role": "system", "content": instructions}] if instructions else []
    messages = [*system, *_responses(request["input"])]
    text = answered.get("output_text") or getattr(response, "output_text", None)
    if not text:
        text = "\n".join(map(answer_text, _responses(answered.get("output") or "")))
    return {"messages": messages, "output": str(text)}


def _responses(given: Any) -> list[Any]:
    """The input or the output of the Responses API as messages of the Chat Completions API."""
    if isinstance(given, str):
        return [{"role": "user", "content": given}]
    if not isinstance(given, Sequence):
        raise InputError(f"request['input'] must be a text or a list, not {type(given).__name__}.")
    messages: list[Any] = []
    for item in as_messages(given):
        kind = item.get("type") if isinstance(item, Mapping) else None
        if kind == "function_call":
            call = {"function": {"name": item.get("name"), "arguments": item.get("arguments")}}
            messages.append({"role": "assistant", "tool_calls": [call]})
        elif kind == "function_call_output":
            messages.append({"role": "tool", "content": item.get("output")})
        elif kind != "reasoning":  # the model's own reasoning is not part of the prompt
            messages.append(item)
    return messages


def _langchain(result: Mapping[str, Any], question: str | None) -> dict[str, Any]:
    answer, retrieved = (next((n for n in names if n in result), "") for names in (_ANSWERS, _CHUNKS))
    if not (answer and retrieved):
        raise InputError(
            f"response has the keys {', '.join(map(str, result)) or 'none'}. A LangChain result needs "
            f"an answer ({' or '.join(_ANSWERS)}) and its chunks ({' or '.join(_CHUNKS)}); for "
            "RetrievalQA set return_source_documents=True."
        )
    own = next((result[name] for name in _QUESTIONS if isinstance(result.get(name), str)), None)
    context = as_chunks(result[retrieved])
    return {"context": context, "question": question or own, "output": result[answer]}


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
    return {"context": as_chunks(nodes), "question": question, "output": answer}
