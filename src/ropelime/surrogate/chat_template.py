"""A prompt becomes tokens, inside the chat template of the surrogate.

User text stays text. Control strings of the model (``<|im_end|>``, ``<s>``) that occur in it are cut
before they reach the tokenizer, so they can never become control tokens.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from ropelime.errors import InputError, ModelError, RopeLimeError, first_line
from ropelime.surrogate.checkpoints import is_panic
from ropelime.surrogate.templates import GreedyTemplateError, bounded, check_template
from ropelime.text.prompt import TOOL_RESULT, Prompt, Span
from ropelime.typing import Ints

_BETWEEN = "\n\n"  # messages that share a turn
_NAMED = re.compile(r"Xq\d{4,}zX")  # what stands for a message while the template is looked at
# Roles that every template should know in place of the API's newer ones, and what is put before.
_KNOWN_ROLES = {"tool": TOOL_RESULT, "function": TOOL_RESULT, "developer": ("system", "")}


@dataclass(frozen=True)
class Turn:
    """What the chat template is given as one message."""

    role: str
    holds: tuple[tuple[int, str], ...]  # the number of each message in it, and what stands before that


@dataclass(frozen=True)
class Rendered:
    """The prompt inside the template of the surrogate."""

    text: str
    # Of user text, none of them empty: start in the text, start in the prompt, length.
    pieces: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True)
class Encoded:
    """Tokens of the prompt and of the output."""

    ids: Ints  # (L,) of the rendered prompt
    spans: tuple[Span | None, ...]  # of each token in the prompt's own text, None for template tokens
    output_ids: Ints  # (T,)
    output_spans: tuple[Span, ...]  # of each output token in the output


class Encoder:
    """Tokenises prompts and outputs for one tokenizer."""

    def __init__(self, tokenizer: Any) -> None:
        if not getattr(tokenizer, "is_fast", False):
            raise ModelError(
                f"{type(tokenizer).__name__} gives no character offsets. Use a model whose tokenizer "
                "has a fast version (a tokenizer.json file)."
            )
        self._tokenizer = tokenizer
        template = tokenizer.chat_template if isinstance(tokenizer.chat_template, str) else ""
        named = tokenizer.chat_template if isinstance(tokenizer.chat_template, dict) else {}
        for each in (template, *named.values()):
            check_template(each)
        control = {
            str(token)
            for token in tokenizer.added_tokens_decoder.values()
            if token.special or (str(token).strip() and str(token) in template)
        }
        either = "|".join(map(re.escape, sorted(control, key=len, reverse=True)))
        # A lookahead, because control strings can overlap and every one of them must be cut.
        self._control = re.compile(f"(?=({either}))") if control else None
        # A prompt is cut into features and then prepared, often with several outputs.
        self._last: tuple[Prompt, Ints, tuple[Span | None, ...]] | None = None

    def encode(self, prompt: Prompt, output: str) -> Encoded:
        """Tokenise the rendered prompt, and the output by itself."""
        ids, spans = self._encode_prompt(prompt)
        output_ids, output_spans = self._tokenise(Rendered(output, ((0, 0, len(output)),)))
        if not output_ids:
            raise InputError("The output has no tokens for this surrogate.")
        return Encoded(ids, spans, np.array(output_ids, dtype=np.int64), tuple(output_spans))

    def token_spans(self, prompt: Prompt) -> tuple[Span, ...]:
        """Where each token of the rendered prompt lies in ``prompt.text``, less the template's own."""
        return tuple(span for span in self._encode_prompt(prompt)[1] if span is not None)

    def _encode_prompt(self, prompt: Prompt) -> tuple[Ints, tuple[Span | None, ...]]:
        last = self._last
        if last is None or last[0] != prompt:
            rendered = self._render(prompt)
            ids, offsets = self._tokenise(rendered)
            head: list[int] = []
            if not self._tokenizer.chat_template:  # then it may put a control token first itself
                first = list(self._call("a").input_ids[:1])
                head = first if first == [self._tokenizer.bos_token_id] else []
            spans = (*[None] * len(head), *(_in_prompt(rendered, a, b) for a, b in offsets))
            self._last = last = prompt, np.array(head + ids, dtype=np.int64), spans
        return last[1:]

    def beginning(self) -> Ints:
        """One token that stands for the beginning of a text, as models were trained on it."""
        tokenizer = self._tokenizer
        known = [t for t in (tokenizer.bos_token_id, tokenizer.eos_token_id) if t is not None]
        return np.array((known or self.token_ids("\n").tolist())[:1], dtype=np.int64)

    def token_ids(self, text: str) -> Ints:
        """The tokens of a text by itself."""
        return np.array(self._tokenise(Rendered(text, ((0, 0, len(text)),)))[0], dtype=np.int64)

    def _render(self, prompt: Prompt) -> Rendered:
        for number, message in enumerate(prompt.messages):
            if self._control and (found := self._control.search(message.role)):
                raise InputError(
                    f"messages[{number}]['role'] = {message.role!r} holds {found[1]!r}, a control "
                    "string of the surrogate. Use a plain role, such as 'user'."
                )
        if not self._tokenizer.chat_template:
            return _without_template(prompt)
        refused: list[RopeLimeError] = []
        for turns in _turns(prompt):
            try:
                return self._place(prompt, turns)
            except GreedyTemplateError:
                raise
            except (InputError, ModelError) as error:
                refused.append(error)
        raise refused[0]  # of the messages as they are: the other ways are our doing

    def _place(self, prompt: Prompt, turns: list[Turn]) -> Rendered:
        """Let the template write these turns, and find every message in what it wrote."""
        named = {i: f"Xq{i:04d}zX" for turn in turns for i, _ in turn.holds}
        frame = self._template(turns, named)
        real = self._template(turns, [prompt.content(message) for message in prompt.messages])
        if _NAMED.findall(frame) != list(named.values()):
            raise ModelError(
                "The chat template of the surrogate does not write out every message once and in "
                "order. Pass prompt= instead of messages=, or choose another surrogate."
            )
        text, *rest = _NAMED.split(frame)
        at, written, pieces = len(text), [text], []
        for number, after in zip(named, rest, strict=True):
            message = prompt.messages[number]
            content = prompt.content(message)
            ways = (content, content.strip(), content.rstrip(), content.lstrip())  # Gemma's trims
            way = next((way for way in ways if real.startswith(way + after, at)), content)
            if way:
                pieces.append((at, message.start + content.find(way), len(way)))
            written += [way, after]
            at += len(way) + len(after)
        if (text := "".join(written)) != real:
            raise InputError(
                "The chat template of the surrogate rewrites what the messages say (some cut the "
                "thoughts of earlier answers), so parts of them cannot be found again. Take out what "
                "it rewrites, or choose another surrogate."
            )
        return Rendered(text, tuple(pieces))

    def _template(self, turns: list[Turn], contents: Mapping[int, str] | Sequence[str]) -> str:
        messages = [
            {"role": t.role, "content": _BETWEEN.join(lead + contents[i] for i, lead in t.holds)}
            for t in turns
        ]
        how = {"tokenize": False, "add_generation_prompt": True, "enable_thinking": False}
        try:
            with bounded():
                return str(self._tokenizer.apply_chat_template(messages, **how))
        except GreedyTemplateError:
            raise
        except Exception as error:
            raise InputError(
                f"The chat template of the surrogate refuses these messages ({error}). Their "
                f"roles are: {', '.join(turn.role for turn in turns)}."
            ) from error

    def _tokenise(self, rendered: Rendered) -> tuple[list[int], list[Span]]:
        ids: list[int] = []
        offsets: list[Span] = []
        for start, end in self._runs(rendered):
            # Some tokenizers put a space before a text; a line end keeps it off a run in mid-text.
            lead = "\n" if start else ""
            run = self._call(
                lead + rendered.text[start:end], add_special_tokens=False, return_offsets_mapping=True
            )
            for token, (a, b) in zip(run.input_ids, run.offset_mapping, strict=True):
                if lead and b <= len(lead):
                    continue
                begin, stop = start + a - len(lead), start + b - len(lead)
                before = offsets[-1][1] if offsets else 0
                if rendered.text[before:begin].isspace():
                    begin = before  # some leave white space out of the offsets
                ids.append(token)
                offsets.append((begin, stop))
        return ids, offsets

    def _call(self, text: str, **how: Any) -> Any:
        try:
            return self._tokenizer(text, **how)
        except BaseException as error:
            if not is_panic(error):
                raise
            raise ModelError(
                f"The tokenizer of the surrogate fails on this text ({first_line(error)}). Fetch the "
                "model again if its tokenizer.json may be damaged, or choose another surrogate."
            ) from None

    def _runs(self, rendered: Rendered) -> Iterable[Span]:
        """Cut behind the first character of every control string that touches user text."""
        cuts = [
            found.start() + 1
            for found in (self._control.finditer(rendered.text) if self._control else ())
            if len(found[1]) > 1 and _in_prompt(rendered, found.start(), found.end(1))
        ]
        return [(a, b) for a, b in pairwise([0, *cuts, len(rendered.text)]) if a < b]


def _without_template(prompt: Prompt) -> Rendered:
    """For models that have no chat template: the text as it is, roles named where there are several."""
    text, pieces = "", []
    after = {"prompt": "", "context": "\n", "messages": "\n\n"}[prompt.kind]
    for message in prompt.messages:
        if prompt.kind == "messages":
            text += f"{message.role}: "
        if message.start < message.end:
            pieces.append((len(text), message.start, message.end - message.start))
        text += prompt.content(message) + after
    return Rendered(text + "assistant: " * (prompt.kind == "messages"), tuple(pieces))


def _turns(prompt: Prompt) -> list[list[Turn]]:
    """Ways to give the messages to a template, the plainest first; each holds all of their text.

    Templates differ in the roles that they know: Gemma's refuses "system", Mistral's "tool" without its
    call, Phi's leaves out what it does not know, Llama's rewrites results of tools, and several want
    user and assistant to take turns. So: as they are; then results of tools in a user's turn; then all
    but the assistant in the user's, with neighbours in one turn.
    """
    roles = [message.role for message in prompt.messages]
    plain = [Turn(role, ((i, ""),)) for i, role in enumerate(roles)]
    leads = [_KNOWN_ROLES.get(role, (role, "")) for role in roles]
    known = [Turn(role, ((i, lead),)) for i, (role, lead) in enumerate(leads)]
    merged: list[Turn] = []
    for turn, message in zip(known, prompt.messages, strict=True):
        role = "assistant" if turn.role == "assistant" else "user"
        if not prompt.content(message).strip():
            continue  # blank: it would be an empty turn, or leave empty lines in one
        if merged and merged[-1].role == role:
            merged[-1] = Turn(role, merged[-1].holds + turn.holds)
        else:
            merged.append(Turn(role, turn.holds))
    return [plain, *([known] if known != plain else []), *([merged] if merged != known else [])]


def _in_prompt(rendered: Rendered, start: int, end: int) -> Span | None:
    """Where a token of the rendered text lies in the prompt's own text."""
    after = bisect.bisect_left(rendered.pieces, (end,))
    if not after:
        return None
    at, origin, length = rendered.pieces[after - 1]
    a, b = max(start, at), min(end, at + length)
    return (a - at + origin, b - at + origin) if a < b else None
