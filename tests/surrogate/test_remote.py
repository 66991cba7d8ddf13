"""A surrogate behind a server, against stand-ins on loopback; ``test_vllm.py`` has the real one."""

from __future__ import annotations

import _thread
import asyncio
import json
import signal
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import ropelime
from conftest import byte_level, metaspace
from ropelime import InputError, ModelError
from ropelime.cli import main
from ropelime.surrogate import Ablation, ServerSurrogate, load_surrogate, resolve_surrogate
from ropelime.surrogate.local import LocalSurrogate
from ropelime.text import prompt as prompts
from ropelime.web.settings import ServerSettings, labelled
from scoring import prepare
from servers import Fault, Handler, Proxy, busy, cut, cut_after, raw, slow

pytest.importorskip("openai", reason="pip install 'ropelime[ask]'")

SECRET = "sk-own-7c1f0a93be52d"
CHUNKS = ["Paris is the capital of France.", "Berlin has museums.", "It lies on the Seine."]
QUESTION = "What is the capital of France?"
RAG = prompts.from_context(CHUNKS, QUESTION)
ANSWER = "The capital is Paris."
EXPLAIN: dict[str, Any] = {
    "context": CHUNKS,
    "question": QUESTION,
    "output": ANSWER,
    "features": "document",
    "preset": "faithful",
    "scoring": "exact",
    "progress": False,
}
ALL = np.array([[a, b, c] for a in (1, 0) for b in (1, 0) for c in (1, 0)], dtype=bool)
Make = Callable[..., ServerSurrogate]


def reads(local: LocalSurrogate, change: Callable[[list[Any]], Any] = lambda given: given) -> Fault:
    """Answer as vLLM does, with the probabilities of a model; ``change`` spoils them."""

    def entries(ids: list[int]) -> list[Any]:
        with torch.no_grad():
            logp = local.model(torch.tensor([ids])).logits[0].double().log_softmax(-1)
        said = [float(logp[i, token]) for i, token in enumerate(ids[1:])]
        text = [local.tokenizer.decode([token]) for token in ids[1:]]
        known = zip(ids[1:], said, text, strict=True)
        return [None, *({str(t): {"logprob": p, "rank": 1, "decoded_token": w}} for t, p, w in known)]

    def fault(handler: Handler) -> None:
        choice = {"index": 0, "text": " the", "finish_reason": "length", "logprobs": None}
        given = change(entries(handler.body["prompt"]))
        if given is not None:
            choice["prompt_logprobs"] = given
        body = {"id": "c", "object": "text_completion", "created": 1, "model": "m"}
        handler.reply(200, json.dumps({**body, "choices": [choice], "system_fingerprint": "toy-1"}))

    return fault


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No key and no server but those of the test."""
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "ROPELIME_SERVER_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@pytest.fixture(scope="module")
def local(tiny: Callable[..., LocalSurrogate]) -> LocalSurrogate:
    return tiny("llama")


@pytest.fixture
def server(local: LocalSurrogate) -> Iterator[Proxy]:
    with Proxy(otherwise=reads(local)).running() as proxy:
        yield proxy


@pytest.fixture
def make(server: Proxy, local: LocalSurrogate) -> Make:
    def made(**options: Any) -> ServerSurrogate:
        chosen: dict[str, Any] = {"model": "m", "tokenizer": local.tokenizer, **options}
        return ServerSurrogate(server.url, **chosen)

    return made


@pytest.fixture
def folder(local: LocalSurrogate, tmp_path: Path) -> str:
    """A directory with the tokenizer and no weights."""
    local.tokenizer.save_pretrained(tmp_path / "model")
    (tmp_path / "model" / "config.json").write_text('{"model_type": "llama"}')
    return str(tmp_path / "model")


# The same numbers.


@pytest.mark.parametrize("ablation", ["delete", "placeholder", "placeholder:<gone>"])
def test_scores_are_those_of_the_same_model_here(
    server: Proxy, make: Make, local: LocalSurrogate, ablation: str
) -> None:
    masks = np.concatenate([ALL, ALL[3:5]])  # some of them twice
    there = prepare(make(), RAG, "document", ANSWER, ablation=Ablation.of(ablation))
    here = prepare(local, RAG, "document", ANSWER, ablation=Ablation.of(ablation))
    assert there.tokenized.owner.tolist() == here.tokenized.owner.tolist(), "the same features"
    assert there.output_spans == here.output_spans
    assert there.has_question
    ours, theirs = there.score(masks, kl=False), here.score(masks, kl=False)
    np.testing.assert_allclose(ours.logprob, theirs.logprob, atol=1e-5, rtol=0)
    assert ours.tokens.tolist() == theirs.tokens.tolist()
    assert ours.kl is None
    assert ours.exact.all()
    assert ours.tokens_run == ours.tokens[: len(ALL)].sum()
    assert len(server.seen) == len(ALL), "the unmasked prompt once, and nothing twice"
    again = there.score(masks, kl=False)
    assert (again.logprob == ours.logprob).all()
    assert again.tokens_run == 0
    assert len(server.seen) == len(ALL)


def test_what_is_sent(server: Proxy, make: Make, local: LocalSurrogate) -> None:
    prepare(make(), RAG, "document", ANSWER)
    scorer = prepare(local, RAG, "document", ANSWER)
    ids = [*scorer.tokenized.ids.tolist(), *scorer.tokenized.output_ids.tolist()]
    sent = {"model": "m", "prompt": ids, "max_tokens": 1, "temperature": 0, "prompt_logprobs": 0}
    assert server.seen == [sent]


def test_masks_that_leave_the_same_tokens_are_sent_once(server: Proxy, make: Make) -> None:
    scorer = prepare(make(), prompts.from_context(["Hello.", "Hello."], "Who?"), "document", "Me.")
    masks = np.array([[1, 1], [1, 0], [0, 1], [0, 0]], dtype=bool)
    scores = scorer.score(masks, kl=False)
    bodies = [tuple(body["prompt"]) for body in server.seen]
    assert len(bodies) == len(set(bodies)) <= 4
    assert scores.logprob.shape == (4, len(scorer.output_spans))


@pytest.mark.parametrize("options", [{}, {"target": "logit", "kernel": "hamming"}, {"budget": 3}])
def test_an_explanation_is_that_of_the_same_model_here(
    make: Make, local: LocalSurrogate, options: dict[str, Any]
) -> None:
    ours = ropelime.explain(**EXPLAIN, surrogate=make(), **options)
    theirs = ropelime.explain(**EXPLAIN, surrogate=local, **options)
    np.testing.assert_allclose(ours.weights, theirs.weights, atol=1e-4, rtol=0)
    assert [s.index for s in ours.top()] == [s.index for s in theirs.top()]
    assert ours.cost.masks == theirs.cost.masks
    assert ours.config["surrogate"] == {"name": make().name, "served_by": "toy-1"}


def test_progress_and_the_answer_of_many_tokens(make: Make) -> None:
    seen: list[tuple[int, int]] = []
    e = ropelime.explain(**{**EXPLAIN, "progress": lambda *at: seen.append(at)}, surrogate=make())
    assert seen[-1][0] == seen[-1][1]
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert e.cost.tokens == seen[-1][1] + e.surrogate_scores.tokens[0], "the first was scored before"


def test_budgets_other_answers_and_going_on(
    server: Proxy, folder: str, local: LocalSurrogate, make: Make
) -> None:
    """What needs no more than probabilities works as with a model here."""
    for options in ({"instead_of": "The capital is Berlin."}, {"interactions": True}):
        ours = ropelime.explain(**EXPLAIN, surrogate=make(), **options)
        theirs = ropelime.explain(**EXPLAIN, surrogate=local, **options)
        np.testing.assert_allclose(ours.weights, theirs.weights, atol=1e-4, rtol=0)
        assert len(ours.interactions) == len(theirs.interactions)
    few = ropelime.explain(**EXPLAIN, surrogate=f"{server.url}#m#{folder}", budget=3)
    sent = len(server.seen)
    more = few.extend(2, progress=False)  # by its name: another object, so the prompt is read again
    assert len(server.seen) == sent + 3
    theirs = ropelime.explain(**EXPLAIN, surrogate=local, budget=3).extend(2, surrogate=local)
    np.testing.assert_allclose(more.weights, theirs.weights, atol=1e-4, rtol=0)
    ropelime.explain(**EXPLAIN, surrogate=make(), budget="5 seconds")
    cost = prepare(make(), RAG, "document", ANSWER).cost(ALL)
    some = ropelime.explain(**EXPLAIN, surrogate=make(), budget=f"{cost[:5].sum()} tokens")
    assert some.cost.tokens <= cost[:5].sum()


def test_beside_another_model(make: Make, local: LocalSurrogate) -> None:
    both = ropelime.explain(**EXPLAIN, surrogate=[local, make()])
    assert both.config["agreement"] == pytest.approx(1)


# Several at once, and an end at once.


def test_no_more_requests_at_once_than_allowed(
    server: Proxy, make: Make, local: LocalSurrogate
) -> None:
    now, most, lock, answer = 0, 0, threading.Lock(), reads(local)
    full = threading.Event()

    def counting(handler: Handler) -> None:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
            if now == 3:
                full.set()
        full.wait(10)
        answer(handler)
        with lock:
            now -= 1

    scorer = prepare(make(concurrency=3), RAG, "document", ANSWER)
    server.otherwise = counting
    scorer.score(ALL, kl=False)
    assert most == 3


def stuck(server: Proxy) -> threading.Event:
    """Let the server wait until it is released."""
    go = threading.Event()

    def wait(handler: Handler) -> None:
        go.wait(60)
        cut(handler)

    server.otherwise = wait
    return go


def test_an_interruption_stops_it_at_once(server: Proxy, make: Make) -> None:
    scorer = prepare(make(concurrency=2), RAG, "document", ANSWER)
    go = stuck(server)

    def interrupt() -> None:
        while len(server.seen) < 3:
            time.sleep(0.01)
        _thread.interrupt_main()

    # A shell that starts something in the background lets it ignore interruptions.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        threading.Thread(target=interrupt).start()
        with pytest.raises(KeyboardInterrupt):
            scorer.score(ALL, kl=False)
    finally:
        signal.signal(signal.SIGINT, before)
    assert not [t for t in threading.enumerate() if t.name == "ropelime-requests"]
    assert len(server.seen) == 3, "those under way, and no others"
    go.set()


def test_whoever_watches_can_stop_it_while_nothing_comes(server: Proxy, make: Make) -> None:
    scorer = prepare(make(), RAG, "document", ANSWER)
    go = stuck(server)

    def stop(done: int, total: int) -> None:
        assert done == 0 < total
        raise ModelError("enough")

    with pytest.raises(ModelError, match="enough"):
        scorer.score(ALL, kl=False, progress=stop)
    assert not [t for t in threading.enumerate() if t.name == "ropelime-requests"]
    go.set()


def test_it_works_where_an_event_loop_is_running(make: Make) -> None:
    async def notebook() -> ropelime.Explanation:
        e: ropelime.Explanation = ropelime.explain(**EXPLAIN, surrogate=make())
        return e

    assert asyncio.run(notebook()).normalized_weights.sum() == pytest.approx(1)


# What it cannot do is refused before anything is sent.

NOTHING_ELSE = r"log-probability of the output and nothing else. Use preset='faithful'"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"preset": "evidence"}, NOTHING_ELSE),
        ({"preset": "paper"}, NOTHING_ELSE),
        ({"target": "kl"}, NOTHING_ELSE),
        ({"target": "sqrt-kl"}, NOTHING_ELSE),
        ({"target": "shift"}, NOTHING_ELSE),
        ({"kernel": "rope-rwmd"}, NOTHING_ELSE),
        ({"scoring": "cached"}, "not support cached scoring. Use scoring='exact'"),
        ({"also": "evidence"}, NOTHING_ELSE),
        ({"ablation": "in-place"}, "ablation='in-place' does not work with it"),
    ],
)
def test_what_it_cannot_do(server: Proxy, make: Make, options: dict[str, str], message: str) -> None:
    with pytest.raises((InputError, ModelError), match=message):
        ropelime.explain(**{**EXPLAIN, **options}, surrogate=make())
    question = {name: EXPLAIN[name] for name in ("context", "features", "preset", "scoring")} | options
    with pytest.raises((InputError, ModelError), match=message):
        ropelime.ask(
            QUESTION, model="x", base_url=server.url, surrogate=make(), cache=False, **question
        )
    assert not server.seen
    assert not server.looks


def test_the_scorer_itself_refuses_them_too(make: Make) -> None:
    scorer = prepare(make(), RAG, "document", ANSWER)
    with pytest.raises(ModelError, match=NOTHING_ELSE):
        scorer.score(ALL, kl=True)
    with pytest.raises(ModelError, match="does not support cached scoring"):
        scorer.score(ALL, kl=False, cached=True)
    with pytest.raises(InputError, match="first mask"):
        scorer.score(ALL[1:], kl=False)


def test_a_longer_prompt_than_its_window(server: Proxy, make: Make, local: LocalSurrogate) -> None:
    scorer = prepare(local, RAG, "document", ANSWER)
    total = len(scorer.tokenized.ids) + len(scorer.tokenized.output_ids)
    server.models = [{"id": "other", "max_model_len": 3}, {"id": "m", "max_model_len": total}]
    with pytest.raises(InputError, match=rf"and m can read {total - 1} in all. Shorten the prompt"):
        prepare(make(), RAG, "document", ANSWER)
    assert not server.seen
    server.models[1]["max_model_len"] = total + 1  # and one that it must say itself
    tight = prepare(
        make(),
        RAG,
        "document",
        ANSWER,
        ablation=Ablation.of("placeholder:" + "museums and history " * 9),
    )
    with pytest.raises(InputError, match="With placeholders for what is removed"):
        tight.score(ALL, kl=False)
    assert len(server.seen) == 1
    prepare(make(), RAG, "document", ANSWER).score(ALL, kl=False)


# What goes wrong on the way.


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "timeout"),
    [(busy(429), 20.0), (busy(500), 20.0), (busy(503), 20.0), (slow(6.0), 2.0), (cut, 20.0)],
    ids=["429", "500", "503", "slow", "cut"],
)
@pytest.mark.parametrize("when", ["first", "later"])
def test_faults_that_pass_are_survived(
    server: Proxy, make: Make, local: LocalSurrogate, fault: Fault, timeout: float, when: str
) -> None:
    surrogate = make(timeout=timeout)
    server.faults = [fault] if when == "first" else [reads(local), fault, fault]
    e = ropelime.explain(**EXPLAIN, surrogate=surrogate)
    assert e.weights == pytest.approx(ropelime.explain(**EXPLAIN, surrogate=local).weights, abs=1e-4)
    assert len(server.seen) == e.cost.masks + (1 if when == "first" else 2)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (busy(429), r"/v1 answered 429 \(3 tries\): Come back later. Too many requests"),
        (busy(502), r"/v1 answered 502 \(3 tries\): Come back later. Try again later."),
        (cut, r"/v1 cannot be reached \(3 tries\): .*Check the surrogate's address"),
        (cut_after('{"id": "c", "cho'), r"/v1 cannot be reached \(3 tries\)"),
        (slow(6.0), r"sent nothing within 2 s \(3 tries\). Raise the timeout \(timeout=... of ServerS"),
        (raw(200, '{"choices": [{'), "something other than a Completions answer"),
        (raw(200, "<html>Hello</html>", "text/html"), "something other than a Completions answer"),
        (raw(200, '{"choices": []}'), r"other than a Completions answer \(it has no choices\)"),
        (raw(200, '{"error": {"message": "Out of memory"}}'), r"\(Out of memory\)"),
        (raw(200, "[1, 2]"), "something other than a Completions answer"),
        (
            raw(404, '{"error": {"message": "The model `m` does not exist.", "code": 404}}'),
            r"answered 404: The model `m` does not exist. Check the model's name \('m'\) and the surr",
        ),
        (raw(401, '{"error": "Unauthorized"}'), r"refused the key \(401\). Check ROPELIME_SERVER_KEY"),
        (
            raw(400, '{"error": {"message": "Too long"}}'),
            r"answered 400: Too long. It was sent \d+ tok",
        ),
    ],
    ids=lambda value: "" if callable(value) else value[:30],
)
@pytest.mark.parametrize("when", ["first", "later"])
def test_faults_that_stay_are_told(
    server: Proxy, make: Make, fault: Fault, message: str, when: str
) -> None:
    surrogate = make(api_key=SECRET, timeout=2.0 if "sent nothing" in message else 20.0)
    work: Callable[[], Any] = partial(prepare, surrogate, RAG, "document", ANSWER)
    if when == "later":
        work = partial(work().score, ALL, kl=False)
    server.otherwise = fault
    with pytest.raises(ModelError, match=message) as raised:
        work()
    assert SECRET not in str(raised.value)
    assert not [t for t in threading.enumerate() if t.name == "ropelime-requests"]


def test_nobody_there(local: LocalSurrogate) -> None:
    gone = Proxy()
    gone.server.server_close()
    surrogate = ServerSurrogate(gone.url, model="m", tokenizer=local.tokenizer)
    # Once and not three times: who waits for a server that is not there should soon know.
    with pytest.raises(ModelError, match=r"/v1 cannot be reached: .*Check the surrogate's address"):
        prepare(surrogate, RAG, "document", ANSWER)


def _without(given: list[Any]) -> None:
    return None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_without, "without the log-probabilities of the prompt .*llama.cpp"),
        (lambda given: given[1:], r"was sent \d+ tokens and scored \d+: it truncates prompts"),
        (lambda given: [None, *given], r"was sent \d+ tokens and scored \d+: it truncates prompts"),
        (lambda given: [None, {"1": {"logprob": -1.0}}, *given[2:]], "of other tokens than those that"),
        (lambda given: [None, None, *given[2:]], "of other tokens than those that were sent"),
        (lambda given: _all(given, logprob="-1"), "of other tokens than those that were sent"),
        (lambda given: _all(given, logprob=float("nan")), "NaN, infinite or positive"),
        (lambda given: _all(given, logprob=float("-inf")), "NaN, infinite or positive"),
        (lambda given: _all(given, logprob=7.5), "Start vLLM without --logprobs-mode"),
        (
            lambda given: _all(given, decoded_token="x"),
            r"is not that of m at http://.*'x' for the other",
        ),
    ],
)
def test_scores_that_cannot_be_trusted(
    server: Proxy, make: Make, local: LocalSurrogate, change: Callable[[list[Any]], Any], message: str
) -> None:
    server.otherwise = reads(local, change)
    with pytest.raises(ModelError, match=message):
        prepare(make(), RAG, "document", ANSWER)
    assert len(server.seen) == 1


def _all(given: list[Any], **values: Any) -> list[Any]:
    return [None, *({t: {**said, **values} for t, said in entry.items()} for entry in given[1:])]


def test_another_tokenizer_is_told(make: Make) -> None:
    with pytest.raises(ModelError, match=r"is not that of m at http://.*URL#MODEL#TOKENIZER"):
        prepare(make(tokenizer=metaspace("chatml")), RAG, "document", ANSWER)


def test_a_server_that_does_not_send_the_text_of_tokens(
    server: Proxy, make: Make, local: LocalSurrogate
) -> None:
    server.otherwise = reads(local, lambda given: _all(given, decoded_token=None))
    ours = prepare(make(), RAG, "document", ANSWER).score(ALL, kl=False)
    theirs = prepare(local, RAG, "document", ANSWER).score(ALL, kl=False)
    np.testing.assert_allclose(ours.logprob, theirs.logprob, atol=1e-5, rtol=0)
    assert ours.tokens.tolist() == theirs.tokens.tolist()
    assert len(server.seen) == len(ALL)


def test_characters_of_several_tokens_are_no_other_tokenizer(
    server: Proxy, make: Make, local: LocalSurrogate
) -> None:
    prompt = prompts.from_context(["Łódź ✓ 日本", "Berlin."], "Wo?")
    masks = np.array([[1, 1], [0, 1], [1, 0]], dtype=bool)
    ours = prepare(make(), prompt, "document", "→ 日").score(masks, kl=False)
    sent = server.seen[0]["prompt"]
    parts = [token for token in sent if "\ufffd" in local.tokenizer.decode([token])]
    assert len(parts) > 10, "tokens that are parts of a character, in the prompt and in the output"
    assert local.tokenizer.decode(sent).endswith("→ 日")
    theirs = prepare(local, prompt, "document", "→ 日").score(masks, kl=False)
    np.testing.assert_allclose(ours.logprob, theirs.logprob, atol=1e-5, rtol=0)
    assert ours.tokens.tolist() == theirs.tokens.tolist()


# Keys.


def test_the_key_is_its_own_and_stays_here(
    server: Proxy, make: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-closed-0123456789")
    ropelime.explain(**EXPLAIN, surrogate=make())
    assert set(server.keys) == {"none"}, "the answering model's key goes to nobody else"
    server.keys.clear()
    monkeypatch.setenv("ROPELIME_SERVER_KEY", SECRET)
    surrogate = make()
    e = ropelime.explain(**EXPLAIN, surrogate=surrogate)
    assert set(server.keys) == {SECRET}
    e.save(tmp_path / "why.json")
    assert SECRET not in (tmp_path / "why.json").read_text()
    assert SECRET not in repr(surrogate) + repr(vars(surrogate)) + str(surrogate.describe())


# How it is named.


def test_by_its_address(server: Proxy, folder: str, local: LocalSurrogate) -> None:
    named = f"{server.url}#m#{folder}"
    for made in (load_surrogate(named), resolve_surrogate(named)):
        assert isinstance(made, ServerSurrogate)
        assert (made.name, made.base_url) == (named, server.url)
    ours = ropelime.explain(**EXPLAIN, surrogate=f"{server.url}#{folder}")
    assert server.seen[0]["model"] == folder, "one name for both"
    theirs = ropelime.explain(**EXPLAIN, surrogate=local)
    np.testing.assert_allclose(ours.weights, theirs.weights, atol=1e-4, rtol=0)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("http://localhost:8000/v1", "is named as URL#MODEL"),
        ("http://localhost:8000/v1#", "is named as URL#MODEL"),
        ("http://localhost:8000/v1#m#", "is named as URL#MODEL"),
        ("http://localhost:8000/v1#a#b#c", "is named as URL#MODEL"),
        ("http://localhost:8000/v1#mine", r"tokenizer of mine is needed .*URL#MODEL#TOKENIZER"),
        ("http://localhost:8000/v1#mine#yours", "Unknown surrogate 'yours'"),
        ("http://me:pass@localhost/v1#m", "name, a password or a query,.*ROPELIME_SERVER_KEY"),
        ("http://localhost/v1?key=1#m", "name, a password or a query"),
        ("http://#m", "must be an address"),
    ],
)
def test_addresses_that_are_refused(spec: str, message: str) -> None:
    with pytest.raises((InputError, ModelError), match=message) as raised:
        load_surrogate(spec)
    assert "pass@" not in str(raised.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model": " "}, "model must be"),
        ({"concurrency": 0}, "concurrency must be a whole number of at least 1, not 0"),
        ({"retries": -1}, "retries must be a whole number from 0 to 100"),
        ({"timeout": 0}, "timeout must be"),
        ({"tokenizer": object()}, "no character offsets"),
    ],
)
def test_options_that_are_refused(make: Make, options: dict[str, Any], message: str) -> None:
    with pytest.raises((InputError, ModelError), match=message):
        make(**options)


def test_where_it_runs_is_not_ours_to_choose() -> None:
    with pytest.raises(InputError, match="leave out device and dtype"):
        load_surrogate("http://localhost:8000/v1#m", dtype="float32")


def test_the_command(
    server: Proxy, folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "prompt.txt").write_text(" ".join(CHUNKS))
    command = ["explain", "--prompt", f"@{tmp_path / 'prompt.txt'}", "--output", ANSWER]
    command += ["--surrogate", f"{server.url}#m#{folder}"]
    assert main(command) == 1
    assert "Use preset='faithful'" in capsys.readouterr().err
    assert not server.seen
    assert main([*command, "--preset", "faithful", "--json", str(tmp_path / "why.json")]) == 0
    assert ropelime.load(tmp_path / "why.json").config["surrogate"]["name"] == command[-1]
    assert main([*command, "--preset", "faithful", "--device", "cpu"]) == 1


def test_on_the_page_it_has_a_name_and_no_address(server: Proxy, folder: str, tmp_path: Path) -> None:
    for module in ("fastapi", "uvicorn"):
        pytest.importorskip(module, reason="pip install 'ropelime[web]'")
    from web_server import finished, live

    request = {name: EXPLAIN[name] for name in ("context", "question", "output", "features")}
    settings = ServerSettings(tmp_path / "history", surrogates=labelled([f"{server.url}#m#{folder}"]))
    assert list(settings.surrogates) == ["m"]
    with live(settings) as (client, _):
        refused = finished(client, {**request, "preset": "evidence"})
        assert "Use preset='faithful'" in str(refused)
        assert not server.seen
        done = finished(client, {**request, "preset": "faithful"})
        saved = client.get(f"/api/explanations/{done['id']}/explanation.json").text
        server.otherwise = raw(404, '{"error": {"message": "No such model."}}')
        failed = finished(client, {**request, "preset": "faithful"})
    assert json.loads(saved)["config"]["surrogate"] == {"name": "m", "served_by": "toy-1"}
    assert "m answered 404: No such model" in str(failed)
    assert server.url not in saved + str(failed) + str(refused)


def test_without_the_sdk(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "openai", None)
    with pytest.raises(ModelError, match=r"pip install 'ropelime\[ask\]'"):
        make(tokenizer=byte_level("chatml"))
