"""What other libraries return, as arguments of ``explain``.

Their objects are recognised by their shape; none of the libraries is imported. The answer is the last
message of the model. What came before it (calls that the server ran, results of tools, earlier
reasoning) belongs to the prompt. The reasoning of the answer itself is returned beside them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ropelime.errors import InputError
from ropelime.integrations.messages import as_messages, role_of
from ropelime.text.integrations import as_chunks, as_dict
from ropelime.text.prompt import answer_text, reasoning_text

# Keys of LangChain's chains for the question, the answer and the chunks.
_QUESTIONS = ("query", "input", "question")
_ANSWERS = ("result", "answer")
_CHUNKS = ("source_documents", "context")
_KNOWN = (
    "a response of OpenAI, Anthropic, Gemini or LiteLLM with its request, a run of the OpenAI Agents "
    "SDK or of Pydantic AI, a message of LangChain with its request, the dictionary of a LangChain "
    "chain or agent, or a LlamaIndex response"
)


def arguments(response: Any, request: Any = None, question: str | None = None) -> dict[str, Any]:
    """The arguments that explain a result of another library.

    The response of an API does not hold its ``request``, nor a LlamaIndex response its ``question``.
    ``reasoning`` is among them where the model gave its own.
    """
    if callable(getattr(response, "to_input_list", None)):
        return _agents_run(response, request)
    if callable(getattr(response, "all_messages", None)):
        return _pydantic_run(response)
    answered = as_dict(response)
    if answered is None or "source_nodes" in answered:
        return _llama_index(response, question)
    if "choices" in answered:
        return _chat(answered, request)
    if "output_text" in answered or answered.get("object") == "response":
        return _responses(response, answered, request)
    if "candidates" in answered:
        return _gemini(answered, request)
    if role_of(answered) == "assistant" and "content" in answered:
        return _message(answered, request)
    if isinstance(answered.get("messages"), Sequence) and not {*_ANSWERS} & {*answered}:
        return _answered(as_messages(answered["messages"]))
    return _langchain(answered, question)


def _answered(messages: Any) -> dict[str, Any]:
    """A chat whose last message is the answer; what a tool returned after it is not part of either."""
    chat = list(messages) if isinstance(messages, Sequence) else []
    while chat and isinstance(chat[-1], Mapping) and chat[-1].get("role") == "tool":
        chat.pop()
    last = chat.pop() if chat else None
    if not isinstance(last, Mapping) or last.get("role") != "assistant":
        raise InputError(
            "response does not end with a message of the model. Pass the run after it has ended."
        )
    answer = {"messages": chat, "output": answer_text(last)}
    reasoning = reasoning_text(last)
    return {**answer, "reasoning": reasoning} if reasoning else answer


def _requested(request: Any, name: str, what: str, call: str) -> Mapping[str, Any]:
    """The arguments of a call, which have the prompt under that name."""
    if not isinstance(request, Mapping):
        raise InputError(
            f"{what} does not hold its prompt: pass request={{{name!r}: [...]}}, the arguments of the "
            "call."
        )
    if name not in request:
        raise InputError(f"request has no {name!r}: pass the arguments of {call}.")
    return request


def _chat(answered: Mapping[str, Any], request: Any) -> dict[str, Any]:
    """The Chat Completions API, of OpenAI, LiteLLM and others."""
    known = _requested(request, "messages", "An OpenAI response", "chat.completions.create")
    choices = answered["choices"] or [{}]
    first = as_dict(choices[0]) if isinstance(choices, Sequence) else None
    if first is None:
        raise InputError("The choices of the response must be a list of objects with a message.")
    message = {"content": "", **(as_dict(first.get("message")) or {}), "role": "assistant"}
    return _with_prompt(as_messages(known["messages"]), as_messages([message]))


def _with_prompt(messages: Any, answer: list[Any]) -> dict[str, Any]:
    """The prompt and the answer; a wrong prompt is refused later, with its own error."""
    if isinstance(messages, str) or not isinstance(messages, Sequence):
        return {**_answered(answer), "messages": messages}
    return _answered([*messages, *answer])


def _responses(response: Any, answered: Mapping[str, Any], request: Any) -> dict[str, Any]:
    """OpenAI's Responses API."""
    known = _requested(request, "input", "An OpenAI response", "responses.create")
    given = known["input"]
    if not isinstance(given, Sequence):
        raise InputError(f"request['input'] must be a text or a list, not {type(given).__name__}.")
    asked = [{"role": "user", "content": given}] if isinstance(given, str) else given
    messages = [*_system(known.get("instructions")), *as_messages(asked, "request['input']")]
    items = as_messages(answered.get("output") or [], "response.output")
    if not items:
        written = answered.get("output_text") or getattr(response, "output_text", None)
        items = [{"role": "assistant", "content": str(written or "")}]
    return _answered([*messages, *items])


def _system(given: Any) -> list[dict[str, Any]]:
    """Instructions as a message: a text, blocks of text, or a content of Gemini."""
    if not given:
        return []
    data = as_dict(given)
    content = given if data is None else data.get("parts", data.get("text"))
    if isinstance(content, Sequence) and not isinstance(content, str):
        content = [as_dict(each) or each for each in content]
    return [{"role": "system", "content": content}]


def _message(answered: Mapping[str, Any], request: Any) -> dict[str, Any]:
    """Anthropic's Messages API, or what a chat model of LangChain returns."""
    what = "A message of LangChain" if "additional_kwargs" in answered else "An Anthropic response"
    known = _requested(request, "messages", what, "messages.create")
    chat = as_messages(known["messages"])
    if not isinstance(chat, str) and isinstance(chat, Sequence):
        chat = [*_system(known.get("system")), *chat]
    return _with_prompt(chat, as_messages([answered], "response"))


def _gemini(answered: Mapping[str, Any], request: Any) -> dict[str, Any]:
    known = _requested(request, "contents", "A Gemini response", "models.generate_content")
    config = as_dict(known.get("config")) or {}
    system = config.get("system_instruction") or config.get("systemInstruction")
    given = known["contents"]
    given = given if isinstance(given, Sequence) and not isinstance(given, str) else [given]
    chat: list[Any] = []
    for each in given:
        data = {"text": each} if isinstance(each, str) else as_dict(each)
        if data is not None and "parts" not in data and "role" not in data:  # a part by itself
            data = {"role": "user", "parts": [data]}
        chat.append(each if data is None else data)
    candidates = answered["candidates"] or []
    content = as_dict((as_dict(candidates[0]) or {}).get("content")) if candidates else None
    if not content or not content.get("parts"):
        raise InputError(
            "The response has no content: the model was blocked, or stopped before an answer "
            "(response.prompt_feedback and candidates[0].finish_reason say why)."
        )
    answer = as_messages([{**content, "role": "model"}], "response")
    return _answered([*_system(system), *as_messages(chat, "request['contents']"), *answer])


def _agents_run(result: Any, request: Any) -> dict[str, Any]:
    """A run of the OpenAI Agents SDK."""
    if getattr(result, "is_complete", True) is False:
        raise InputError("The run has not ended: consume its stream_events() before it is explained.")
    given = request.get("instructions") if isinstance(request, Mapping) else None
    own = getattr(getattr(result, "last_agent", None), "instructions", None)
    if given is None and callable(own):
        raise InputError(
            "The instructions of the agent are a function: pass request={'instructions': '...'} with "
            "the text that it returned, or '' to leave them out."
        )
    system = _system(own if given is None else given)
    return _answered([*system, *as_messages(result.to_input_list(), "response")])


def _pydantic_run(result: Any) -> dict[str, Any]:
    """A run of Pydantic AI; its instructions follow the system prompt, as its models send them."""
    given = result.all_messages()
    chat = as_messages(given, "response")
    instructions = [each for each in (getattr(m, "instructions", None) for m in given) if each]
    first = next((i for i, message in enumerate(chat) if message.get("role") != "system"), len(chat))
    return _answered([*chat[:first], *_system(instructions and instructions[-1]), *chat[first:]])


def _langchain(result: Mapping[str, Any], question: str | None) -> dict[str, Any]:
    answer, retrieved = (next((n for n in names if n in result), "") for names in (_ANSWERS, _CHUNKS))
    if not (answer and retrieved):
        raise InputError(
            f"response has the keys {', '.join(map(str, result)) or 'none'}. A LangChain result needs "
            f"an answer ({' or '.join(_ANSWERS)}) and its chunks ({' or '.join(_CHUNKS)}); for "
            f"RetrievalQA set return_source_documents=True. response may be {_KNOWN}."
        )
    own = next((result[name] for name in _QUESTIONS if isinstance(result.get(name), str)), None)
    context = as_chunks(result[retrieved])
    return {"context": context, "question": question or own, "output": result[answer]}


def _llama_index(response: Any, question: str | None) -> dict[str, Any]:
    nodes = getattr(response, "source_nodes", None)
    if nodes is None:
        raise InputError(
            f"response is {type(response).__name__}. It must be {_KNOWN}. Pass its parts instead: "
            "context=[...], question=..., output=..., or messages=[...], output=..."
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
