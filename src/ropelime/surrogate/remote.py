"""A model behind a server as a surrogate: it gives log-probabilities of the output and nothing else.

Only the tokenizer of the model is loaded on this machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import closing
from typing import Any

import numpy as np

from ropelime.clients.completions import CompletionsClient, TokenLogprobs
from ropelime.clients.sdk import Server, address, check_retries, key_of, sdk
from ropelime.errors import InputError, ModelError
from ropelime.surrogate.base import (
    Ablation,
    Lengths,
    Load,
    OutputScorer,
    Progress,
    Surrogate,
    check_first_unmasked,
)
from ropelime.surrogate.catalog import locate
from ropelime.surrogate.chat_template import Encoder
from ropelime.surrogate.checkpoints import Say, load_tokenizer
from ropelime.surrogate.tokens import ContextWindow, TokenizedPrompt, tokenize
from ropelime.text.features import Feature
from ropelime.text.prompt import Prompt, Span
from ropelime.typing import Floats, Ints, Masks

_SHORT = 1024  # bytes, and so tokens at most, that any model can read
KEY = "ROPELIME_SERVER_KEY"  # never the key of the answering model, which goes to its own server only


def is_served(name: str) -> bool:
    """Whether a surrogate's name is the address of one behind a server."""
    return name.startswith(("http://", "https://"))


class ServerSurrogate(Surrogate):
    """A model behind a server that gives the log-probabilities of prompts, as vLLM's does.

    It is sent the same tokens that a surrogate on this machine would run. There are no divergences, no
    hidden states and no cached scoring: use ``preset="faithful"``, or the targets ``nll`` and ``logit``
    with the kernels ``uniform``, ``hamming`` and ``cosine``.
    """

    only_output = True

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
        say: Say | None = None,
    ) -> None:
        """Load the tokenizer; nothing is sent yet.

        Args:
            base_url: The server, such as ``"http://localhost:8000/v1"``.
            model: The model's name at the server.
            tokenizer: Its tokenizer: an object of transformers, or a name, a directory, a ``.gguf``
                file or a hub id as for a surrogate on this machine; the model's name if not given.
            api_key: The key; ``ROPELIME_SERVER_KEY`` if not given. Never logged or saved.
            concurrency: How many requests may run at once.
            timeout: Seconds to wait for the server before a request fails.
            retries: How often a request is sent again, 0 to 100, with growing pauses, when the server
                is busy (429), fails (5xx), is lost or does not answer in time.
            say: Called with a line for each step that takes a while.
        """
        sdk()
        if not isinstance(model, str) or not model.strip():
            raise InputError(f"model must be the name of a model at the server, not {model!r}.")
        if isinstance(concurrency, bool) or not isinstance(concurrency, int) or concurrency < 1:
            raise InputError(f"concurrency must be a whole number of at least 1, not {concurrency!r}.")
        check_retries(retries)
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
        self.base_url = server.base_url
        self._client = CompletionsClient(server, model, concurrency)
        named = tokenizer is None or isinstance(tokenizer, str)
        label = str((tokenizer if named else getattr(tokenizer, "name_or_path", "")) or model)
        # As load_surrogate takes it, so that an explanation can be extended.
        self.name = f"{self.base_url}#{model}" + (f"#{label}" if label != model else "")
        self._tokenizer = _tokenizer(model, tokenizer, say) if named else tokenizer
        self._encoder = Encoder(self._tokenizer)
        self._window: ContextWindow | None = None
        self._served_by = ""

    @classmethod
    def of(cls, spec: str, *, say: Say | None = None) -> ServerSurrogate:
        """Parse ``"http://HOST:8000/v1#MODEL"``, or ``"http://HOST:8000/v1#MODEL#TOKENIZER"``."""
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
        served_by = {"served_by": self._served_by} if self._served_by else {}
        return {"name": self.name, **served_by}

    def token_spans(self, prompt: Prompt) -> tuple[Span, ...]:
        """Where each token of the rendered prompt lies in ``prompt.text``."""
        return self._encoder.token_spans(prompt)

    def prepare(
        self, prompt: Prompt, features: tuple[Feature, ...], output: str, *, ablation: Ablation
    ) -> ServerScorer:
        """Tokenise the prompt, and score it once unmasked, to check that the server can be used."""
        if ablation.how == "in-place":
            raise InputError(
                "A server numbers the positions of a prompt itself, so ablation='in-place' does not "
                "work with it. Use 'delete' or 'placeholder:TEXT'."
            )
        window = self._context_window()
        tokenized = tokenize(self._encoder, prompt, features, output, ablation=ablation, window=window)
        scorer = ServerScorer(self._client, tokenized, window)
        ids, answer = scorer.probe()
        self._check_tokens(ids[1:], answer)
        self._served_by = answer.served_by
        return scorer

    def fits(self, prompt: Prompt, output: str) -> bool:
        """Whether the model can read the prompt and the output at once.

        The server is not asked for its window if they are short: :meth:`prepare` will find out.
        """
        if len(prompt.text.encode()) + len(output.encode()) <= _SHORT:
            return True
        return self._context_window().fits(self._encoder, prompt, output)

    def lengths(self, prompt: Prompt, features: tuple[Feature, ...], output: str) -> Lengths:
        """How long a prompt is that does not fit."""
        return self._context_window().lengths(self._encoder, prompt, features, output)

    def _context_window(self) -> ContextWindow:
        if self._window is None:
            tokens = self._client.window()
            # One token less than it can hold: a server always generates at least one.
            self._window = ContextWindow(self._client.model, None if tokens is None else tokens - 1)
        return self._window

    def _check_tokens(self, ids: Iterable[int], answer: TokenLogprobs) -> None:
        """Refuse a server whose tokens have other texts than ours."""
        for token, theirs in zip(ids, answer.text, strict=True):
            ours = str(self._tokenizer.decode([token]))
            # Parts of a character have no text of their own, and white space at an end may be lost.
            known = theirs is not None and theirs.strip() and ours.strip()
            if known and "\ufffd" not in ours + str(theirs) and ours.strip() != str(theirs).strip():
                raise ModelError(
                    f"The tokenizer here is not that of {self._client.model} at {self.base_url}: "
                    f"token {token} is {ours!r} for the one and {theirs!r} for the other. Name the "
                    "right one: ServerSurrogate(..., tokenizer=...), or URL#MODEL#TOKENIZER."
                )


class ServerScorer(OutputScorer):
    """One prompt and one output, ready to be scored under any masks."""

    def __init__(
        self, client: CompletionsClient, tokenized: TokenizedPrompt, window: ContextWindow
    ) -> None:
        self.tokenized = tokenized
        self.output_spans = tokenized.output_spans
        self.has_question = tokenized.has_question
        self._client, self._window = client, window
        self._known: dict[tuple[int, ...], Floats] = {}  # what was scored is not sent again
        self._tokens_run = 0  # tokens that were scored and not yet reported

    def probe(self) -> tuple[tuple[int, ...], TokenLogprobs]:
        """The tokens of the unmasked prompt with the output, and the server's answer to them."""
        ids = self._ids(np.ones(self.tokenized.n_features, dtype=bool))
        answer = self._send([ids], None)
        assert answer is not None
        return ids, answer

    def logprob(self, masks: Masks, progress: Progress | None = None) -> tuple[Floats, int]:
        """Score what is new: the same tokens are never sent twice."""
        check_first_unmasked(masks)
        self._window.check_placeholders(int(self.cost(masks).max()))
        sequences = [self._ids(mask) for mask in masks]
        self._send([ids for ids in dict.fromkeys(sequences) if ids not in self._known], progress)
        tokens_run, self._tokens_run = self._tokens_run, 0
        return np.stack([self._known[ids] for ids in sequences]), tokens_run

    def cost(self, masks: Masks, *, cached: bool = False) -> Ints:
        """(N,) tokens that scoring each mask takes by itself."""
        return self.tokenized.lengths(masks)

    def load(self, masks: Masks, *, cached: bool = False) -> Load:
        """The tokens that will be sent."""
        fresh = {self._ids(mask) for mask in masks} - self._known.keys()
        tokens = sum(map(len, fresh))
        return Load(tokens, tokens)

    def _ids(self, mask: Masks) -> tuple[int, ...]:
        """All tokens of a masked prompt with the output."""
        sequence = self.tokenized.sequence(0, mask)
        return (*sequence.ids.tolist(), int(self.tokenized.output_ids[-1]))

    def _send(
        self, sequences: Sequence[tuple[int, ...]], progress: Progress | None
    ) -> TokenLogprobs | None:
        """Score sequences and keep the log-probabilities of the output; gives the last answer."""
        answer, done, total = None, 0, sum(map(len, sequences))
        with closing(self._client.score(sequences)) as answers:
            for item in answers:
                if item is not None:
                    number, answer = item
                    ids = sequences[number]
                    self._known[ids] = np.array(answer.logprob[-len(self.output_spans) :])
                    self._tokens_run += len(ids)
                    done += len(ids)
                if progress is not None:  # also while no answer comes: this is where one can stop it
                    progress(done, total)
        return answer


def _tokenizer(model: str, name: str | None, say: Say | None) -> Any:
    try:
        return load_tokenizer(*locate(name or model, say=say))
    except (InputError, ModelError) as error:
        if name is not None:
            raise
        raise ModelError(
            f"The tokenizer of {model} is needed on this machine, and that name does not lead to one "
            f"({error}) Name it: ServerSurrogate(..., tokenizer=...), or URL#MODEL#TOKENIZER."
        ) from None
