"""A model behind a server as a surrogate: it gives the log-probability of the output, and no more.

Only the tokenizer of the model is loaded on this machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from typing import Any, ClassVar

import numpy as np

from ropelime.clients.completions import CompletionsClient as Reader
from ropelime.clients.completions import TokenLogprobs as Reading
from ropelime.clients.sdk import Server, address, key_of, sdk
from ropelime.errors import InputError, ModelError
from ropelime.method.rope import RopeSpace
from ropelime.method.scores import Floats, Ints, Masks, Scores
from ropelime.surrogate import loading as models
from ropelime.surrogate.base import Ablation, Progress, check_only_output
from ropelime.surrogate.chat_template import Encoder
from ropelime.surrogate.tokens import Layout, Window
from ropelime.text.prompt import Prompt, Span

KEY = "ROPELIME_SERVER_KEY"  # not that of the closed model, which is nobody else's business
_SCHEMES = ("http://", "https://")


def is_served(name: str) -> bool:
    """Whether a surrogate's name is the address of one behind a server."""
    return name.startswith(_SCHEMES)


class ServerSurrogate:
    """A model behind a server that gives the log-probabilities of prompts, as vLLM's does.

    It is sent the very tokens that a surrogate on this machine would read. There are no divergences, no
    hidden states and no cheap readings: use ``preset="faithful"``, or the targets ``nll`` and ``logit``
    with the kernels ``uniform``, ``hamming`` and ``cosine``.
    """

    only_output: ClassVar[bool] = True

    def __init__(
        self,
        base_url: str,
        *,
        model: str,
        tokenizer: Any = None,
        api_key: str | None = None,
        concurrency: int = 8,
        timeout: float = 120.0,
        retries: int = 2,
        say: Callable[[str], None] | None = None,
    ) -> None:
        """Load the tokenizer; nothing is sent yet.

        Args:
            base_url: The server, such as ``"http://localhost:8000/v1"``.
            model: The model's name at the server.
            tokenizer: Its tokenizer: an object of transformers, or a name, a directory, a ``.gguf``
                file or a hub id as for a surrogate on this machine; the model's name if not given.
            api_key: The key; ``ROPELIME_SERVER_KEY`` if not given. Never logged or saved.
            concurrency: How many requests may be under way at once.
            timeout: Seconds without a sign of the server after which it is given up.
            retries: How often a request is made again, with growing pauses, when the server is busy
                (429), fails (5xx), is lost or gives no sign in time.
            say: Called with a line for each step that takes a while.
        """
        sdk()
        if not isinstance(model, str) or not model.strip():
            raise InputError(f"model must be the name of a model at the server, not {model!r}.")
        _check_count("concurrency", concurrency, 1)
        _check_count("retries", retries, 0)
        if not isinstance(timeout, (int, float)) or not 0 < timeout < float("inf"):
            raise InputError(f"timeout must be a number of seconds above 0, not {timeout!r}.")
        server = Server(
            address(base_url, "The surrogate's address", KEY),
            key_of(api_key, KEY),
            timeout,
            retries,
            gives="Completions answer",
            set_url="the surrogate's address",
            set_key=KEY,
            set_timeout="timeout=... of ServerSurrogate",
        )
        self._reader = Reader(server, model, concurrency)
        named = tokenizer is None or isinstance(tokenizer, str)
        self._said = str((tokenizer if named else getattr(tokenizer, "name_or_path", "")) or model)
        # As load_surrogate takes it, so that an explanation can be gone on with.
        self.name = f"{server.base_url}#{model}" + (f"#{self._said}" if self._said != model else "")
        self._tokenizer = _tokenizer(model, tokenizer, say) if named else tokenizer
        self._encoder = Encoder(self._tokenizer)
        self._window: Window | None = None
        self._by = ""

    @property
    def base_url(self) -> str:
        """Where the server is."""
        return self._reader.server.base_url

    @classmethod
    def of(cls, spec: str, *, say: Callable[[str], None] | None = None) -> ServerSurrogate:
        """Read ``"http://HOST:8000/v1#MODEL"``, or ``"http://HOST:8000/v1#MODEL#TOKENIZER"``."""
        base_url, *names = spec.split("#")
        if len(names) not in (1, 2) or not all(names):
            raise InputError(
                "A surrogate behind a server is named as URL#MODEL, such as "
                "http://localhost:8000/v1#Qwen/Qwen3-8B, or as URL#MODEL#TOKENIZER where the tokenizer "
                "has another name. URL/models lists the models of most servers."
            )
        return cls(base_url, model=names[0], tokenizer=names[1] if names[1:] else None, say=say)

    def describe(self) -> dict[str, Any]:
        """What an explanation records about the model."""
        return {"name": self.name, "served_by": self._by} if self._by else {"name": self.name}

    def prepare(
        self,
        prompt: Prompt,
        features: str | Sequence[Span],
        output: str,
        *,
        ablation: Ablation = Ablation(),  # noqa: B008 - it is frozen
    ) -> ServerScorer:
        """Tokenise the prompt, and read it once unmasked, to see that the server can be used."""
        if ablation.how == "in-place":
            raise InputError(
                "A server numbers the tokens of a prompt itself, so removal='in-place' cannot be had "
                "from it. Use 'delete' or 'placeholder:TEXT'."
            )
        if self._window is None:
            tokens = self._reader.window()
            # One token less than it can hold: a server must always say one itself.
            self._window = Window(self._reader.model, None if tokens is None else tokens - 1)
        layout = Layout.of(
            self._encoder, prompt, features, output, ablation=ablation, window=self._window
        )
        scorer = ServerScorer(self._reader, layout, self._window)
        ids, reading = scorer.probe()
        self._check_tokens(ids[1:], reading)
        self._by = reading.served_by
        return scorer

    def _check_tokens(self, ids: Iterable[int], reading: Reading) -> None:
        """Refuse a server that takes our tokens for others."""
        for token, theirs in zip(ids, reading.text, strict=True):
            ours = str(self._tokenizer.decode([token]))
            # Parts of a character have no text of their own, and white space at an end may be lost.
            told = theirs is not None and theirs.strip() and ours.strip()
            if told and "\ufffd" not in ours + str(theirs) and ours.strip() != str(theirs).strip():
                raise ModelError(
                    f"The tokenizer here is not that of {self._reader.model} at {self.base_url}: "
                    f"token {token} is {ours!r} for the one and {theirs!r} for the other. Name the "
                    "right one: ServerSurrogate(..., tokenizer=...), or URL#MODEL#TOKENIZER."
                )


class ServerScorer:
    """One prompt and one output, ready to be read under any masks."""

    supports_cached = False

    def __init__(self, reader: Reader, layout: Layout, window: Window) -> None:
        """Made by :meth:`ServerSurrogate.prepare`."""
        self.features = layout.features
        self.has_question = layout.has_question
        self.sequences = layout.sequences
        self.output_spans = layout.output_spans
        self._reader, self._window = reader, window
        self._known: dict[tuple[int, ...], Floats] = {}  # what was read is not sent again
        self._scored = 0  # tokens that were read and not yet told of

    def probe(self) -> tuple[tuple[int, ...], Reading]:
        """The tokens of the unmasked prompt with the output, and what the server says of them."""
        ids = self._ids(np.ones(len(self.features), dtype=bool))
        reading = self._read([ids], None)
        assert reading is not None
        return ids, reading

    def score(
        self,
        masks: Masks,
        *,
        kl: bool,
        spaces: Sequence[RopeSpace] = (),
        cached: bool = False,
        question: bool = False,
        progress: Progress | None = None,
    ) -> Scores:
        """Read the output under each mask; the same tokens are never sent twice."""
        check_only_output(kl=kl, spaces=bool(spaces), cached=cached, question=question)
        if not masks[0].all():
            raise InputError("The first mask must be the unmasked prompt.")
        start = time.perf_counter()
        rows = [self._ids(mask) for mask in masks]
        tokens = self.cost(masks)
        self._window.check_grown(int(tokens.max()))
        self._read([row for row in dict.fromkeys(rows) if row not in self._known], progress)
        logprob = np.stack([self._known[row] for row in rows])
        scored, self._scored = self._scored, 0
        return Scores(masks, logprob, None, {}, tokens, scored, time.perf_counter() - start)

    def cost(self, masks: Masks, *, cached: bool = False) -> Ints:
        """(N,) tokens that reading each mask would take."""
        return np.array([len(self._ids(mask)) for mask in masks])

    def _ids(self, mask: Masks) -> tuple[int, ...]:
        """All tokens of a masked prompt with the output."""
        row = self.sequences.row(0, mask)
        return (*row.ids.tolist(), int(self.sequences.output_ids[-1]))

    def _read(self, rows: Sequence[tuple[int, ...]], progress: Progress | None) -> Reading | None:
        """Read rows and keep what is said of the output; gives the reading of the last that came."""
        reading, done, total = None, 0, sum(map(len, rows))
        with closing(self._reader.score(rows)) as came:
            for item in came:
                if item is not None:
                    number, reading = item
                    row = rows[number]
                    self._known[row] = np.array(reading.logprob[-len(self.output_spans) :])
                    self._scored += len(row)
                    done += len(row)
                if progress is not None:  # also while nothing comes: this is where one can stop it
                    progress(done, total)
        return reading


def _tokenizer(model: str, name: str | None, say: Callable[[str], None] | None) -> Any:
    try:
        return models.load_tokenizer(*models.locate(name or model, say=say))
    except (InputError, ModelError) as error:
        if name is not None:
            raise
        raise ModelError(
            f"The tokenizer of {model} is needed on this machine, and that name does not lead to one "
            f"({error}) Name it: ServerSurrogate(..., tokenizer=...), or URL#MODEL#TOKENIZER."
        ) from None


def _check_count(name: str, value: Any, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise InputError(f"{name} must be a whole number of at least {least}, not {value!r}.")
