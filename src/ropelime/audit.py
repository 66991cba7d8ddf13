"""Check the citations that an answer carries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from ropelime.errors import InputError
from ropelime.explain import Explanation, explain, read_chunks
from ropelime.files import Savable
from ropelime.integrations.messages import as_messages
from ropelime.options import OptionKeywords, Options, takes_options
from ropelime.progress import Option as ProgressOption
from ropelime.registry import unknown
from ropelime.results.audit import WORDED, AuditData, judged
from ropelime.surrogate.base import Surrogate
from ropelime.text.annotated import read_answer
from ropelime.text.documents import read_documents, with_documents
from ropelime.text.prompt import check_text, read_prompt
from ropelime.views import pages

if TYPE_CHECKING:
    from typing_extensions import Unpack

FAIL_ON = ("refuted", "unsupported", "unknown")


class Audit(AuditData, Savable):
    """The citations of an answer, checked; see :class:`AuditData` for its fields."""

    explanation: Explanation

    def __repr__(self) -> str:
        counts = ", ".join(f"{count} {name}" for name, count in self.counts.items() if count)
        return f"<Audit: {'ok' if self.ok else 'not ok'}; {counts or 'no marks'}>"

    def _page(self) -> str:
        return pages.audit_page(self)


@takes_options
def audit(
    prompt: str | None = None,
    output: Any = None,
    *,
    context: Sequence[str | Mapping[str, Any] | Any] | None = None,
    question: str | None = None,
    messages: Sequence[Mapping[str, Any] | Any] | None = None,
    count_from: int = 1,
    fail_on: Sequence[str] = FAIL_ON,
    surrogate: str | Surrogate | Any | Sequence[Any] = "smollm2",
    progress: ProgressOption = "auto",
    **options: Unpack[OptionKeywords],
) -> Audit:
    """Check the citations that an answer carries against what it rests on.

    The marks are taken out of the answer, the rest is explained, and each mark is compared with the
    sources of the statement that it belongs to. :mod:`ropelime.text.marks` has the forms of marks in a
    text, :mod:`ropelime.text.annotated` those of APIs.

    Args:
        prompt: The prompt as one text; its documents are the passages with numbers: ``[1] ...``.
        output: The answer with its marks: a text, or a message or response of OpenAI's or Anthropic's
            API, as an object or a dictionary.
        context: The documents, as in :func:`ropelime.explain`. Marks cite them by number, or by any of
            ``source``, ``url``, ``title``, ``id`` and ``file_id`` in their mapping.
        question: The question about the context.
        messages: Chat messages. Their documents are ``document`` and ``search_result`` blocks, passages
            with numbers, or the results of tools, whichever there are.
        count_from: The number of the first document.
        fail_on: What makes ``ok`` False: ``refuted``, ``unsupported``, ``unknown``, ``uncited``.
        surrogate: See :func:`ropelime.explain`.
        progress: See :func:`ropelime.explain`.
        **options: See :class:`ropelime.options.Options`.
    """
    for name in [fail_on] if isinstance(fail_on, str) else fail_on:
        if name not in WORDED:
            raise unknown("verdict", name, WORDED)
    if isinstance(count_from, bool) or not isinstance(count_from, int) or count_from < 0:
        raise InputError(f"count_from must be a whole number that is not negative, not {count_from!r}.")
    Options.of(options, caller="audit")  # refuses what is wrong before anything is read
    chunks, chat = read_chunks(context), with_documents(as_messages(messages))
    given = read_prompt(prompt, chunks, question, chat)
    documents = read_documents(given, chunks if chunks is not None else chat, first=count_from)
    answer = read_answer(check_text("output", output) if isinstance(output, str) else output, documents)
    if not answer.clean.strip():
        raise InputError(
            "The output has nothing but marks: there is no statement to check.", field="output"
        )
    explanation = explain(
        prompt, answer.clean, context=chunks, question=question, messages=chat,
        surrogate=surrogate, progress=progress, **options,
    )  # fmt: skip
    chosen = (fail_on,) if isinstance(fail_on, str) else tuple(fail_on)
    data = judged(explanation, answer, documents, fail_on=chosen)
    return Audit(**{field.name: getattr(data, field.name) for field in fields(data)})
