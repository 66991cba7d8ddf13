"""Explanations of LlamaIndex responses, attached to their metadata.

A node post-processor of LlamaIndex runs before there is an answer. These run after it: on a response,
or around a query engine.

    from ropelime.integrations.llama_index import ExplainedQueryEngine

    engine = ExplainedQueryEngine(index.as_query_engine())
    response = engine.query("Who built it?")
    response.metadata["ropelime"]   # in brief
    engine.explanation              # that of the last response, in full
"""

from __future__ import annotations

import asyncio
from typing import Any

from ropelime.errors import InputError, ModelError, worded
from ropelime.explain import Explanation, explain
from ropelime.options import Options
from ropelime.results.rows import attached
from ropelime.surrogate import resolve_surrogates

try:
    from llama_index.core.base.base_query_engine import BaseQueryEngine
except ImportError:
    raise ModelError("This needs LlamaIndex: pip install llama-index-core") from None

KEY = "ropelime"


def attach(response: Any, question: str, *, top: int = 5, **options: Any) -> Explanation:
    """Explain a response, and put the explanation in brief into ``response.metadata["ropelime"]``.

    Args:
        response: What a query engine or a chat engine returned; a stream has to be consumed first.
        question: What was asked.
        top: How many parts are attached.
        **options: As for :func:`ropelime.explain`, ``surrogate`` included.
    """
    e: Explanation = explain(response=response, question=question, **{"progress": False, **options})
    response.metadata = {**(response.metadata or {}), KEY: attached(e, top)}
    return e


class ExplainedQueryEngine(BaseQueryEngine):  # type: ignore[misc]
    """A query engine whose responses carry their explanation.

    A response that cannot be explained (a stream, one without sources) is returned as it is, with the
    reason as ``error`` in ``metadata["ropelime"]``.

    Attributes:
        explanation: The explanation of the last response; None if it could not be explained.
    """

    def __init__(
        self, engine: Any, *, surrogate: Any = "smollm2", top: int = 5, **options: Any
    ) -> None:
        """Wrap an engine; wrong options are refused here.

        Args:
            engine: The query engine that answers.
            surrogate: As in :func:`ropelime.explain`; it is loaded with the first response.
            top: How many parts are attached.
            **options: See :class:`ropelime.options.Options`.
        """
        if not callable(getattr(engine, "query", None)):
            raise InputError(f"engine must be a query engine, not {type(engine).__name__}.")
        Options.of(options, caller="ExplainedQueryEngine")
        super().__init__(callback_manager=getattr(engine, "callback_manager", None))
        self.explanation: Explanation | None = None
        self._engine, self._surrogate, self._top, self._options = engine, surrogate, top, options

    def _query(self, query_bundle: Any) -> Any:
        return self._with_explanation(self._engine.query(query_bundle), query_bundle.query_str)

    async def _aquery(self, query_bundle: Any) -> Any:
        response = await self._engine.aquery(query_bundle)
        return await asyncio.to_thread(self._with_explanation, response, query_bundle.query_str)

    def _get_prompt_modules(self) -> dict[str, Any]:
        return {"engine": self._engine}

    def _with_explanation(self, response: Any, question: str) -> Any:
        self.explanation = None
        try:
            self._surrogate = resolve_surrogates(self._surrogate)
            how = {"surrogate": self._surrogate, "top": self._top, **self._options}
            self.explanation = attach(response, question, **how)
        except Exception as error:  # of any kind: the response matters more
            response.metadata = {**(response.metadata or {}), KEY: {"error": worded(error)}}
        return response
