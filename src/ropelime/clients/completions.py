"""How likely a server finds the tokens of prompts: a Completions request for each, several at once.

Prompts are sent as tokens, and come back with the log-probability of each: vLLM's ``prompt_logprobs``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from ropelime.clients.background import stream, together
from ropelime.clients.sdk import Server, away, choice_of, sdk
from ropelime.errors import ModelError


@dataclass(frozen=True)
class Reading:
    """What came back for one prompt.

    Attributes:
        logprob: Log-probability of each of its tokens but the first, in nats.
        text: What the server takes each of these tokens for; None where it does not say.
        by: What the server says that it is, such as ``"vllm-0.32.0"``; empty if nothing.
    """

    logprob: tuple[float, ...]
    text: tuple[str | None, ...]
    by: str


@dataclass(frozen=True)
class Reader:
    """A model at a server, to read prompts with.

    Attributes:
        server: The server.
        model: The model's name there.
        concurrency: How many requests may be under way at once.
    """

    server: Server
    model: str
    concurrency: int

    def window(self) -> int | None:
        """The most tokens that the model can read, and one more that it says, if the server tells.

        Raises:
            ModelError: At once, if nobody is there.
        """

        async def work(put: Callable[[list[int]], None]) -> None:
            with self.server.told(self.model):
                async with self._client(max_retries=0) as client:
                    put(await _windows(client, self.model))

        with closing(stream(work)) as came:
            return next((found[0] for found in came if found), None)

    def read(
        self, prompts: Sequence[Sequence[int]]
    ) -> Generator[tuple[int, Reading] | None, None, None]:
        """Read prompts of at least two tokens.

        Yields:
            The number of a prompt and its reading, in the order in which they come; None now and then
            while nothing comes. Closing the iterator stops all requests at once.
        """

        async def one(
            client: Any, number: int, ids: Sequence[int], put: Callable[[tuple[int, Reading]], None]
        ) -> None:
            long = f"It was sent {len(ids):,} tokens: shorten the prompt if it cannot read as many."
            with self.server.told(self.model, change=long):
                completion = await client.completions.create(
                    model=self.model,
                    prompt=list(ids),
                    max_tokens=1,  # none at all is refused
                    temperature=0,
                    extra_body={"prompt_logprobs": 0},  # of the tokens themselves and no others
                )
                choice = choice_of(completion)
                by = str(getattr(completion, "system_fingerprint", None) or "")
            put((number, self._reading(choice, ids, by)))

        async def work(put: Callable[[tuple[int, Reading]], None]) -> None:
            with self.server.told(self.model):
                client = self._client()
            async with client:
                jobs = (one(client, number, ids, put) for number, ids in enumerate(prompts))
                await together(jobs, min(self.concurrency, len(prompts)))

        return stream(work)

    def _client(self, **options: Any) -> Any:
        return sdk().AsyncOpenAI(**self.server.options() | options)

    def _reading(self, choice: Any, ids: Sequence[int], by: str) -> Reading:
        """The log-probabilities of exactly the tokens that were sent."""
        where = self.server.base_url
        given = getattr(choice, "prompt_logprobs", None)
        if not isinstance(given, list):
            raise ModelError(
                f"{where} answers, but without the log-probabilities of the prompt (prompt_logprobs), "
                "which a surrogate must give. vLLM's server has them; those of llama.cpp, Ollama and "
                "OpenAI do not. Use vLLM, or a surrogate on this machine."
            )
        if len(given) != len(ids):
            raise ModelError(
                f"{where} was sent {len(ids):,} tokens and read {len(given):,}: it cuts prompts or "
                "adds to them, so the readings cannot be trusted."
            )
        found = [_of(token, entry) for token, entry in zip(ids[1:], given[1:], strict=True)]
        if None in found:
            raise ModelError(
                f"{where} gave log-probabilities of other tokens than those that were sent, so the "
                "readings cannot be trusted."
            )
        logprob, text = zip(*(pair for pair in found if pair is not None), strict=True)
        if not all(math.isfinite(value) and value <= 1e-3 for value in logprob):
            raise ModelError(
                f"{where} gave NaN, infinite or positive log-probabilities. Start vLLM without "
                "--logprobs-mode, and in float32 if that does not help."
            )
        return Reading(tuple(min(value, 0.0) for value in logprob), text, by)


async def _windows(client: Any, model: str) -> list[int]:
    try:
        listed = await client.models.list()
        told = [getattr(m, "max_model_len", None) for m in listed.data if m.id == model]
    except Exception as error:
        if isinstance(error, sdk().APIConnectionError) and away(error):
            raise
        return []  # not every server has a list; what else is wrong, the first reading tells
    return [window for window in told if isinstance(window, int)]


def _of(token: int, entry: Any) -> tuple[float, str | None] | None:
    """What is said of a token, if it is; entries are named by tokens."""
    said = entry.get(str(token)) if isinstance(entry, Mapping) else None
    value = said.get("logprob") if isinstance(said, Mapping) else None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    text = said.get("decoded_token") if isinstance(said, Mapping) else None
    return float(value), text if isinstance(text, str) else None
