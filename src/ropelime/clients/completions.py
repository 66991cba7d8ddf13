"""Log-probabilities of prompts, sent as token ids, from a server: vLLM's ``prompt_logprobs``."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from ropelime.clients.bounds import in_time
from ropelime.clients.pool import Pool
from ropelime.clients.sdk import Server, choice_of, is_unreachable
from ropelime.errors import ModelError

T = TypeVar("T")


@dataclass(frozen=True)
class TokenLogprobs:
    """What a server returned for one prompt."""

    logprob: tuple[float, ...]  # of each token but the first, in nats
    text: tuple[str | None, ...]  # the server's text of each of these tokens, where it sends one
    served_by: str  # the server's fingerprint, such as "vllm-0.32.0"; empty if it has none


@dataclass(frozen=True)
class CompletionsClient:
    """A model at a server that scores prompts, several at once."""

    server: Server
    model: str
    concurrency: int

    def window(self) -> int | None:
        """The model's context length in tokens, its output included; None if the server hides it."""
        with self.server.readable_errors(self.model):
            client = self.server.client(retries=0)

        async def look() -> int | None:
            with self.server.readable_errors(self.model):
                try:
                    models = (await client.models.list()).data
                    lengths = [getattr(m, "max_model_len", None) for m in models if m.id == self.model]
                except Exception as error:
                    if is_unreachable(error):
                        raise
                    return None  # not every server lists its models; other faults show later
            return next((length for length in lengths if isinstance(length, int)), None)

        with Pool(1, cleanup=client.close) as pool:
            return pool.submit(partial(self._in_time, look)).result()

    def score(
        self, prompts: Sequence[Sequence[int]]
    ) -> Generator[tuple[int, TokenLogprobs] | None, None, None]:
        """Yield the index of a prompt and its log-probabilities, in the order of arrival.

        Prompts have at least two tokens. None is yielded now and then while nothing arrives. Closing
        the generator cancels all requests.
        """
        if not prompts:
            return
        with self.server.readable_errors(self.model):
            client = self.server.client()

        async def one(
            index: int, ids: Sequence[int], put: Callable[[tuple[int, TokenLogprobs]], None]
        ) -> None:
            cure = f"It was sent {len(ids):,} tokens: shorten the prompt if that is too long for it."
            with self.server.readable_errors(self.model, cure=cure):
                completion = await client.completions.create(
                    model=self.model,
                    prompt=list(ids),
                    max_tokens=1,  # servers refuse 0
                    temperature=0,
                    extra_body={"prompt_logprobs": 0},  # of the tokens themselves, without alternatives
                )
                choice = choice_of(completion)
                served_by = str(getattr(completion, "system_fingerprint", None) or "")
            put((index, self._checked(choice, ids, served_by)))

        with Pool(self.concurrency, cleanup=client.close) as pool:
            calls = (partial(self._in_time, one, i, ids) for i, ids in enumerate(prompts))
            yield from pool.stream(*calls)

    async def _in_time(self, function: Callable[..., Awaitable[T]], *given: Any) -> T:
        return await in_time(function(*given), self.server.base_url, self.server.timeout)

    def _checked(self, choice: Any, ids: Sequence[int], served_by: str) -> TokenLogprobs:
        """The log-probabilities of exactly the tokens that were sent."""
        where = self.server.base_url
        given = getattr(choice, "prompt_logprobs", None)
        if not isinstance(given, list):
            raise ModelError(
                f"{where} answers, but without the log-probabilities of the prompt (prompt_logprobs), "
                "which a surrogate needs. vLLM's server returns them; those of llama.cpp, Ollama and "
                "OpenAI do not. Use vLLM, or a surrogate on this machine."
            )
        if len(given) != len(ids):
            raise ModelError(
                f"{where} was sent {len(ids):,} tokens and scored {len(given):,}: it truncates prompts "
                "or adds tokens, so its scores cannot be trusted."
            )
        pairs = [_of(token, entry) for token, entry in zip(ids[1:], given[1:], strict=True)]
        if None in pairs:
            raise ModelError(
                f"{where} returned log-probabilities of other tokens than those that were sent, so its "
                "scores cannot be trusted."
            )
        logprob, text = zip(*(pair for pair in pairs if pair is not None), strict=True)
        if not all(math.isfinite(value) and value <= 1e-3 for value in logprob):
            raise ModelError(
                f"{where} returned NaN, infinite or positive log-probabilities. Start vLLM without "
                "--logprobs-mode, and in float32 if that does not help."
            )
        return TokenLogprobs(tuple(min(value, 0.0) for value in logprob), text, served_by)


def _of(token: int, entry: Any) -> tuple[float, str | None] | None:
    """The log-probability and the text of a token; entries are keyed by token ids."""
    about = entry.get(str(token)) if isinstance(entry, Mapping) else None
    about = about if isinstance(about, Mapping) else {}
    value, text = about.get("logprob"), about.get("decoded_token")
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value), text if isinstance(text, str) else None
