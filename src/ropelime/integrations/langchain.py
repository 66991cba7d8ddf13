"""A callback handler for LangChain that explains the answers of chat models.

from ropelime.integrations.langchain import ExplainCallback

why = ExplainCallback()
answer = model.invoke(messages, config={"callbacks": [why]})
answer.response_metadata["ropelime"]   # in brief
why.explanations                       # in full, by the id of the run
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from ropelime.errors import ModelError, worded
from ropelime.explain import Explanation, explain
from ropelime.integrations.messages import as_messages
from ropelime.options import Options
from ropelime.results.rows import attached
from ropelime.surrogate import resolve_surrogates

try:
    from langchain_core.callbacks import BaseCallbackHandler
except ImportError:
    raise ModelError("The callback needs LangChain: pip install langchain-core") from None

KEY = "ropelime"


class ExplainCallback(BaseCallbackHandler):  # type: ignore[misc]
    """Explains each answer of a chat model, and attaches the explanation to it.

    ``response_metadata["ropelime"]`` of the answer holds the explanation in brief, or an ``error``: an
    answer is never lost because it cannot be explained. A streamed answer is explained when it has
    ended, and only :attr:`explanations` has the result.

    Attributes:
        explanations: The explanations, by the id of the run.
        errors: Why an answer was not explained, by the id of the run.
    """

    def __init__(self, *, surrogate: Any = "smollm2", top: int = 5, **options: Any) -> None:
        """Prepare to explain; wrong options are refused here.

        Args:
            surrogate: As in :func:`ropelime.explain`; it is loaded with the first answer.
            top: How many parts of the prompt are attached.
            **options: See :class:`ropelime.options.Options`.
        """
        super().__init__()
        Options.of(options, caller="ExplainCallback")
        self.explanations: dict[UUID, Explanation] = {}
        self.errors: dict[UUID, str] = {}
        self._surrogate, self._top, self._options = surrogate, top, options
        self._asked: dict[UUID, list[Any]] = {}

    def on_chat_model_start(
        self, serialized: Any, messages: list[list[Any]], *, run_id: UUID, **_: Any
    ) -> None:
        """Keep the messages until the answer is there."""
        self._asked[run_id] = messages[0]

    def on_llm_start(self, serialized: Any, prompts: list[str], *, run_id: UUID, **_: Any) -> None:
        """The same for a model that takes a text."""
        self._asked[run_id] = [{"role": "user", "content": prompts[0]}]

    def on_llm_end(self, response: Any, *, run_id: UUID, **_: Any) -> None:
        """Explain the answer, and attach the explanation."""
        asked = self._asked.pop(run_id, None)
        if asked is None or not response.generations or not response.generations[0]:
            return
        generation = response.generations[0][0]
        message = getattr(generation, "message", None)
        try:
            found = self._explained(asked, generation.text if message is None else message)
        except Exception as error:  # of any kind: the answer matters more
            self.errors[run_id] = worded(error)
            brief = {"error": self.errors[run_id]}
        else:
            self.explanations[run_id] = found
            brief = attached(found, self._top)
        if message is None:
            generation.generation_info = {**(generation.generation_info or {}), KEY: brief}
        else:
            message.response_metadata[KEY] = brief

    def on_llm_error(self, error: BaseException, *, run_id: UUID, **_: Any) -> None:
        """Forget the messages of a call that failed."""
        self._asked.pop(run_id, None)

    def _explained(self, asked: list[Any], answer: Any) -> Explanation:
        self._surrogate = resolve_surrogates(self._surrogate)
        given: dict[str, Any] = {"messages": as_messages(asked), "output": answer}
        if not isinstance(answer, str):
            given = {"response": answer, "request": {"messages": asked}}
        chosen = {"surrogate": self._surrogate, "progress": False, **self._options}
        e: Explanation = explain(**given, **chosen)
        return e
