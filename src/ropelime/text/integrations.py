"""What other libraries give back, read by its shape: none of them is imported.

Each becomes the arguments of ``explain`` that say what was asked and answered.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ropelime.errors import InputError
from ropelime.text.prompt import Prompt, from_context, from_messages, from_text, spoken

# Names that the chains of LangChain have for the question, the answer and the chunks.
_QUESTIONS = ("query", "input", "question")
_ANSWERS = ("result", "answer")
_CHUNKS = ("source_documents", "context")
# Names in the metadata of a chunk, the plainest first. Labels of pages count as the document does; a
# bare page number may count from 0.
_SOURCES = ("source", "file_name", "file_path", "url", "title")
_PAGES = ("page_label", "page", "page_number")


def arguments(response: Any, request: Any = None, question: str | None = None) -> dict[str, Any]:
    """The arguments of ``explain`` that an answer of another library stands for.

    Args:
        response: A Chat Completions or Responses object of the OpenAI SDK, or the same as a dictionary;
            the dictionary of a LangChain retrieval chain; or a LlamaIndex response.
        request: What an OpenAI response was asked with: the keyword arguments of that call.
        question: What a LlamaIndex response was asked; it does not say so itself.
    """
    answered = as_dict(response)
    if answered is None or "source_nodes" in answered:
        return _llama_index(response, question)
    if "choices" in answered or "output_text" in answered or answered.get("object") == "response":
        if not isinstance(request, Mapping):
            raise InputError(
                "An OpenAI response does not hold its prompt: pass request={'messages': [...]}, the "
                "arguments that it was asked with."
            )
        asked = {"messages": _completions(request) if "choices" in answered else _responses(request)}
        return {**asked, "output": _openai_answer(response, answered)}
    return _langchain(answered, question)


def read_prompt(
    prompt: str | None,
    context: Sequence[Any] | None,
    question: str | None,
    messages: Sequence[Any] | None,
) -> Prompt:
    """The prompt out of exactly one of its three forms."""
    given = {"prompt": prompt, "context": context, "messages": messages}
    names = [name for name, value in given.items() if value is not None]
    if len(names) != 1:
        came = " and ".join(names) if names else "none of them"
        raise InputError(f"Pass exactly one of prompt, context and messages; got {came}.")
    if question is not None and context is None:
        raise InputError("question goes with context=[...]; put it into the prompt otherwise.")
    if prompt is not None:
        return from_text(prompt)
    if context is not None:
        return from_context(chunks(context), question)
    return from_messages(plain_messages(messages))


def as_dict(value: Any) -> Mapping[str, Any] | None:
    """A mapping as it is, an object of an SDK as its dictionary, None for anything else."""
    if isinstance(value, Mapping):
        return value
    dump = getattr(value, "model_dump", None)  # the objects of the OpenAI SDK have it
    dumped = dump(exclude_none=True) if callable(dump) and not isinstance(value, type) else None
    return dumped if isinstance(dumped, Mapping) else None


def plain_messages(given: Any) -> Any:
    """Messages with those that an SDK gave back (``response.choices[0].message``) as dictionaries."""
    if isinstance(given, (str, Mapping)) or not isinstance(given, Sequence):
        return given
    return [as_dict(message) or message for message in given]


def chunks(given: Any) -> Any:
    """Chunks with LangChain's documents and LlamaIndex's nodes as text, source and page."""
    if isinstance(given, (str, Mapping)) or not isinstance(given, Sequence):
        return given
    return [chunk if isinstance(chunk, (str, Mapping)) else _chunk(chunk) for chunk in given]


def _chunk(document: Any) -> Any:
    text = getattr(document, "page_content", None)  # LangChain
    if text is None:
        node = getattr(document, "node", document)  # LlamaIndex, with its score around it or without
        read = getattr(node, "get_content", None)
        if not callable(read):
            return document
        text, document = read(), node
    metadata = getattr(document, "metadata", None)
    metadata = metadata if isinstance(metadata, Mapping) else {}
    return {"text": text, "source": _first(metadata, _SOURCES), "page": _first(metadata, _PAGES)}


def _first(mapping: Mapping[str, Any], names: Sequence[str]) -> Any:
    """What a mapping has under the first of the names that it knows; a number or a text."""
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
    told: list[Any] = []
    if request.get("instructions"):
        told.append({"role": "system", "content": request["instructions"]})
    asked = request["input"]
    if isinstance(asked, str):
        return [*told, {"role": "user", "content": asked}]
    if isinstance(asked, Mapping) or not isinstance(asked, Sequence):
        raise InputError(f"request['input'] must be a text or a list, not {type(asked).__name__}.")
    for item in plain_messages(asked):
        kind = item.get("type") if isinstance(item, Mapping) else None
        if kind == "function_call":
            call = {"function": {"name": item.get("name"), "arguments": item.get("arguments")}}
            told.append({"role": "assistant", "tool_calls": [call]})
        elif kind == "function_call_output":
            told.append({"role": "tool", "content": item.get("output")})
        elif kind != "reasoning":  # what the model thought is no part of what it was told
            told.append(item)
    return told


def _openai_answer(response: Any, answered: Mapping[str, Any]) -> str:
    """What the first choice says: its text, and its tool calls as text."""
    if "choices" in answered:
        choices = answered["choices"] or [{}]
        first = as_dict(choices[0]) if isinstance(choices, Sequence) else None
        if first is None:
            raise InputError("The choices of the response are no list of objects with a message.")
        return spoken(as_dict(first.get("message")) or {"content": ""}, "The answer")
    text = answered.get("output_text") or getattr(response, "output_text", None)
    if text:
        return str(text)
    said = _responses({"input": answered.get("output") or ""})
    return "\n".join(spoken(item, "The answer") for item in said)


def _langchain(result: Mapping[str, Any], question: str | None) -> dict[str, Any]:
    named = [next((n for n in names if n in result), None) for names in (_ANSWERS, _CHUNKS)]
    if None in named:
        raise InputError(
            f"response has the keys {', '.join(map(str, result)) or 'none'}. A LangChain result needs "
            f"an answer ({' or '.join(_ANSWERS)}) and its chunks ({' or '.join(_CHUNKS)}); for "
            "RetrievalQA set return_source_documents=True."
        )
    answer, found = (result[name] for name in named if name)
    asked = question or next((result[n] for n in _QUESTIONS if isinstance(result.get(n), str)), None)
    return {"context": chunks(found), "question": asked, "output": answer}


def _llama_index(response: Any, question: str | None) -> dict[str, Any]:
    nodes = getattr(response, "source_nodes", None)
    if nodes is None:
        raise InputError(
            f"response is {type(response).__name__}, and none of what is known here: an OpenAI "
            "response with its request, the dictionary of a LangChain retrieval chain, a LlamaIndex "
            "response. Pass its parts instead: context=[...], question=..., output=..."
        )
    if question is None:
        raise InputError("A LlamaIndex response does not hold its question: pass question=...")
    answer = getattr(response, "response", None)
    if not isinstance(answer, str):
        raise InputError(
            f"The response's text is {type(answer).__name__}. If it is a stream, read it first: "
            "response = response.get_response()."
        )
    return {"context": chunks(nodes), "question": question, "output": answer}
