"""Any request gets an answer that the API documents, and every job that it accepts comes to its end."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import quote

import httpx

from fuzz.harness import Fuzzer, Step
from fuzz.junk import TEXTS, deep, junk, mutate, unicode_text
from web_server import CHAT, DOCUMENTS, PLAIN, live, settings, wait

_INTERNAL = "Internal error"


def example(rng: Random, schema: Any, known: dict[str, Any], depth: int = 5) -> Any:
    """A value that a JSON schema allows, or nearly."""
    if "$ref" in schema:
        return example(rng, known[schema["$ref"].rpartition("/")[2]], known, depth)
    if "anyOf" in schema:
        return example(rng, rng.choice(schema["anyOf"]), known, depth)
    if "enum" in schema or "const" in schema:
        return rng.choice(schema.get("enum", [schema.get("const")]))
    kind = schema.get("type")
    if kind == "object" and depth:
        own = schema.get("properties", {})
        wanted = [name for name in own if name in schema.get("required", ()) or rng.random() < 0.2]
        return {name: example(rng, own[name], known, depth - 1) for name in wanted} or {"a": junk(rng)}
    if kind == "array" and depth:
        items = schema.get("items", {})
        return [example(rng, items, known, depth - 1) for _ in range(rng.randrange(4))]
    if kind == "string":
        suggested = [
            "word",
            "tiny",
            "hadamard:8",
            "nll",
            "uniform",
            "ridge",
            "placeholder:[x]",
            "9 tokens",
        ]
        return rng.choice(
            [unicode_text(rng, 60), rng.choice(suggested), rng.choice(TEXTS), "One. Two."]
        )
    if kind in ("integer", "number"):
        return rng.choice([0, 1, 2, 7, 63, 2**53 - 1])
    return rng.random() < 0.5 if kind == "boolean" else junk(rng)


class _Client:
    """Sends requests that the description of the API allows, and others."""

    def __init__(self, client: httpx.Client) -> None:
        self.client = client
        described = client.get("/openapi.json").json()
        self.schemas = described["components"]["schemas"]
        self.operations = [
            (method, path, operation)
            for path, methods in described["paths"].items()
            for method, operation in methods.items()
            if not path.endswith("/events")  # a stream, which lasts as long as its job
        ]
        self.names: list[str] = []

    def step(self, rng: Random) -> str:
        if rng.random() < 0.5:
            return self.explain(rng)
        method, path, operation = rng.choice(self.operations)
        query: dict[str, Any] = {}
        for parameter in operation.get("parameters", ()):
            value = example(rng, parameter["schema"], self.schemas) if rng.random() < 0.7 else junk(rng)
            if parameter["in"] == "path":
                value = rng.choice([*self.names[-20:], "0" * 32, str(value)]) or "x"
                path = path.replace(f"{{{parameter['name']}}}", quote(value, safe="", errors="replace"))
            else:
                query[parameter["name"]] = str(value).encode("utf-8", "replace").decode()
        body = self.body(rng) if "requestBody" in operation else None
        headers = {"content-type": "application/json"} if body is not None else {}
        answer = self.client.request(method, path, params=query, content=body, headers=headers)
        return self.checked(answer)

    def body(self, rng: Random) -> bytes:
        request = rng.choice([PLAIN, DOCUMENTS, CHAT])
        if rng.random() < 0.4:
            made = example(rng, self.schemas["ExplainRequest"], self.schemas)
            request = {**request, **made} if rng.random() < 0.5 else made
        request = mutate(rng, request, rng.choice([0, 1, 1, 2, 4]))
        text = json.dumps(request, ensure_ascii=rng.random() < 0.5)
        if rng.random() < 0.05:
            text = text.replace('"output"', f'"question": {deep(rng)[:400_000]}, "output"', 1)
        if rng.random() < 0.05:
            text = text[: rng.randrange(len(text) + 1)]
        return text.encode("utf-8", "surrogatepass")

    def explain(self, rng: Random) -> str:
        headers = {"content-type": "application/json"}
        answer = self.client.post("/api/jobs", content=self.body(rng), headers=headers)
        outcome = self.checked(answer)
        if answer.status_code != 202:
            return outcome
        name = answer.json()["id"]
        if rng.random() < 0.1:
            self.checked(self.client.delete(f"/api/jobs/{name}"))
        state = wait(self.client, name)
        assert _INTERNAL not in (state["error"] or ""), f"{answer.request.content!a}"
        if state["state"] == "done":
            self.names.append(name)
            for ending in ("", "/explanation.json", "/report.html"):
                assert self.client.get(f"/api/explanations/{name}{ending}").status_code == 200
        return f"job {state['state']}"

    def checked(self, answer: httpx.Response) -> str:
        sent = f"{answer.request.method} {answer.request.url!s:.200} {answer.request.content!a:.3000}"
        assert answer.status_code < 500, f"{sent}: {answer.status_code} {answer.text[:300]}"
        if answer.status_code >= 400:
            assert set(answer.json()) == {"detail", "errors"}, f"{sent}: {answer.text[:300]}"
        return f"status {answer.status_code}"


@contextmanager
def start() -> Iterator[Step]:
    """A server in this process with the tiny model and narrow limits."""
    with tempfile.TemporaryDirectory() as folder:
        narrow = {"features": 60, "budget": 60, "answer_tokens": 200, "request_bytes": 500_000}
        with live(settings(Path(folder), **narrow)) as (client, _):
            yield _Client(client).step


FUZZER = Fuzzer("api", start)
