"""What each accelerator of the scoring engine gains, end to end: every one left out in turn.

Each configuration runs in fresh processes, because the allocator's settings, the threads' settings and
compiled layers belong to a process. Inside, the engine is changed by replacing functions; the package
itself is not touched. Needs the package (``--src DIR``, by default ``src`` beside this file, or an
installed one), torch and transformers, and HotpotQA's dev distractor file. Modules that a release of the
package does not have are taken as switched off; what cannot be measured then is left out and says so.

    python benchmarks_accelerators.py --data hotpotqa.json --rounds 3 --out rows.jsonl
    python benchmarks_accelerators.py --summary rows.jsonl

Two tasks: "default", a default explanation of a prompt of ten paragraphs, and "exact", 64 exact readings
of random halves of it with the full prompt before them.
"""

from __future__ import annotations

import argparse
import fcntl
import importlib
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager, nullcontext
from pathlib import Path

HERE = Path(__file__).resolve().parent
PACKAGE = "ropelime.surrogate"
MASKS = 64
DISTURBED = 0.10  # of the cores, used by others while a task ran

# What a configuration leaves out or replaces, by the names of the functions below.
OFF = ("threads", "allocator", "norms", "tiles", "short_end", "cpu_attention")
CONFIGURATIONS = {
    "all": (),
    "loop": ("threads", "allocator", "singly"),
    "bare": OFF,
    "no-cpu-attention": ("cpu_attention",),
    "sdpa-causal": ("sdpa_causal",),
    "plain-blocks": ("plain_blocks",),
    "loop-cached-batch": ("threads", "allocator", "cached_batch"),
    "bare-plain-blocks": (*OFF[:-1], "plain_blocks"),
    "no-norms": ("norms",),
    "no-allocator": ("allocator",),
    "no-threads": ("threads",),
    "no-spin": ("spin",),
    "no-caches": ("caches",),
    "no-short-end": ("short_end",),
    "no-tiles": ("tiles",),
    "fused": ("fused",),
    "compiled": ("compiled",),
}
ONLY_DEFAULT = ("loop-cached-batch",)


class Missing(Exception):
    """The package has nothing of this kind to leave out."""


def module(name, *attributes):
    try:
        found = importlib.import_module(f"{PACKAGE}.{name}")
    except ImportError as error:
        raise Missing(f"no module {PACKAGE}.{name} ({error})") from None
    for attribute in attributes:
        if not hasattr(found, attribute):
            raise Missing(f"{PACKAGE}.{name} has no {attribute}")
    return found


# --- What is done before torch is imported -------------------------------------------------------------


def threads():
    """Neither spinning, caches nor the number of threads are set."""
    own = module("threads", "before_torch", "limit")
    own.before_torch = lambda: None
    own.limit = lambda number, **_: number


def spin():
    """Waiting threads spin as long as the OpenMP runtime lets them; the rest is set."""
    module("threads", "_SPIN")._SPIN = {}


def caches():
    """torch's caches of code for matrix products keep their sizes; the rest is set."""
    module("threads", "_CACHES")._CACHES = {}


def allocator():
    """Freed memory goes back to the system as the C library wants; nothing is trimmed after a run."""
    own = module("allocator", "freed_memory_kept")

    @contextmanager
    def nothing():
        yield

    own.freed_memory_kept, own.give_back = nothing, lambda: None


# --- What is done before the model is loaded ------------------------------------------------------------


def tiles():
    """Weights stay as they are; attention on processors with tiles is not touched by this."""
    module("tiles", "can_lay_out").can_lay_out = lambda: False


def short_end():
    """The last feed-forward part runs over all tokens."""
    module("engine", "_short_end")._short_end = lambda *_: nullcontext()


def cpu_attention():
    """Every segment by what transformers calls "sdpa", with a mask."""
    module("attention", "_PRODUCTS")._PRODUCTS = ()


def sdpa_causal():
    """The same, but without a mask and causal where a segment looks back at nothing."""
    from torch.nn import functional

    own = module("attention", "_PRODUCTS", "Packed", "ALL_ATTENTION_FUNCTIONS")
    own._PRODUCTS = ()
    masked, usual = own.Packed._mask, own.ALL_ATTENTION_FUNCTIONS["sdpa"]

    def mask(self, number, queries, window, dtype, device):
        if window is None and queries == len(self.chunk.segments[number].keys):
            return None
        return masked(self, number, queries, window, dtype, device)

    def attention(module, q, k, v, mask, *, scaling, dropout, **options):
        if mask is not None:
            return usual(module, q, k, v, mask, scaling=scaling, dropout=dropout, **options)
        made = functional.scaled_dot_product_attention(
            q, k, v, is_causal=True, scale=scaling, enable_gqa=True
        )
        return made.transpose(1, 2), None

    own.Packed._mask = mask
    own.ALL_ATTENTION_FUNCTIONS = {"sdpa": attention}


def plain_blocks():
    """Two matrix products and a softmax over blocks of queries, without memory that is kept."""
    import torch

    own = module("attention", "cpu_attention", "has_tiles")
    own.has_tiles = lambda: False

    def blocks(query, key, value, scaling, step=128):
        heads, count, width = query.shape[1:]
        groups, past = key.shape[1], key.shape[2] - count
        scale = width**-0.5 if scaling is None else scaling
        q = (query[0] * scale).view(groups, -1, count, width)
        k, v = key[0].transpose(1, 2), value[0]
        future = torch.full((step, step), -torch.inf, dtype=q.dtype).triu_(1)
        out = []
        for start in range(0, count, step):
            part = q[:, :, start : start + step]
            rows = part.shape[2]
            seen = past + start + rows
            scores = part.flatten(1, 2) @ k[:, :, :seen]
            scores.view(groups, -1, rows, seen)[..., seen - rows :] += future[:rows, :rows]
            made = scores.softmax(-1) @ v[:, :seen]
            out.append(made.view(heads, rows, -1))
        return torch.cat(out, 1).transpose(0, 1)[None]

    own.cpu_attention.blocks = blocks


def fused():
    """torch's fused kernel over blocks of queries, as it is used on processors with tiles."""
    own = module("attention", "cpu_attention", "has_tiles")
    own.has_tiles = lambda: True


# --- What is done with the loaded surrogate -------------------------------------------------------------


def norms(surrogate):
    """The model's own norms."""
    if not hasattr(surrogate.engine, "_norms"):
        raise Missing("the engine has no _norms")
    surrogate.engine._norms = []


def singly(surrogate):
    """One row after the other as the model itself runs it."""
    surrogate.engine._packs = False


def cached_batch(surrogate, batch=16):
    """The prompt once into a plain cache, then the tails of all masks in batches without padding.

    A 4D mask hides the removed features. For cheap readings only; nothing of the engine is used.
    """
    import numpy as np
    import torch
    from transformers import DynamicCache

    from ropelime.surrogate.engine import Piece

    model = surrogate.model

    def run(rows, take, **_):
        device = surrogate.device
        prompt, *tails = rows
        if not prompt.whole or prompt.outputs or any(row.whole for row in tails):
            raise ValueError("only cheap readings of one prompt can be run this way")
        past = len(tails[0].sees)  # the tails run what follows themselves
        held = DynamicCache()
        ids = torch.as_tensor(prompt.ids[:past], device=device)[None]
        model(input_ids=ids, past_key_values=held, use_cache=True, logits_to_keep=1)
        for start in range(0, len(tails), batch):
            some = tails[start : start + batch]  # all of the same length
            ids, positions, sees = (
                torch.as_tensor(np.stack([getattr(row, name) for row in some]), device=device)
                for name in ("ids", "positions", "sees")
            )
            count, length = ids.shape
            cache = DynamicCache()
            for number, layer in enumerate(held.layers):
                k, v = (t.expand(count, -1, -1, -1) for t in (layer.keys, layer.values))
                cache.update(k, v, number)
            causal = torch.ones(length, length, dtype=torch.bool, device=device).tril()
            mask = torch.cat(
                [
                    sees[:, None, None].expand(-1, 1, length, -1),
                    causal.expand(count, 1, -1, -1),
                ],
                -1,
            )
            logits = model(
                input_ids=ids,
                position_ids=positions,
                attention_mask=mask,
                past_key_values=cache,
                use_cache=True,
                logits_to_keep=some[0].outputs,
            ).logits
            outputs = np.arange(-some[0].outputs, 0)
            readings = [np.stack([np.full(len(outputs), row.index), outputs], 1) for row in some]
            take(Piece(np.concatenate(readings), logits.flatten(0, 1), [], some, {}, {}))
        return np.array([past, *(row.length for row in tails)]), ""

    surrogate.engine.run = run


BEFORE_TORCH = {"threads": threads, "spin": spin, "caches": caches, "allocator": allocator}
BEFORE_LOADING = {
    "tiles": tiles,
    "short_end": short_end,
    "cpu_attention": cpu_attention,
    "sdpa_causal": sdpa_causal,
    "plain_blocks": plain_blocks,
    "fused": fused,
}
AFTER_LOADING = {"norms": norms, "singly": singly, "cached_batch": cached_batch}


def patched(changes, among, *arguments, lenient):
    """Make the changes of one stage; where a configuration makes many, what is not there is off."""
    for name in changes:
        if name in among:
            try:
                among[name](*arguments)
            except Missing:
                if not lenient:
                    raise


# --- One process ----------------------------------------------------------------------------------------


def loop_score(surrogate, scorer, masks):
    """One masked prompt after the other, as in ``surrogate/loop.py``, logits of the answer only."""
    import numpy as np
    import torch

    sequences, device = scorer.sequences, surrogate.device
    output = torch.as_tensor(sequences.output_ids, device=device)
    count, found, tokens = len(output), [], 0
    with torch.inference_mode():
        for number, mask in enumerate(masks):
            row = sequences.row(number, mask)
            ids = torch.cat([torch.as_tensor(row.ids, device=device), output[-1:]])
            logits = surrogate.model(
                input_ids=ids[None], use_cache=False, logits_to_keep=count + 1
            ).logits[0]
            said = logits[-count - 1 : -1].float().log_softmax(-1)
            found.append(said.gather(-1, output[:, None])[:, 0].double().cpu().numpy())
            tokens += len(ids)
    return np.stack(found), tokens


def busy(cores):
    """Jiffies that each of some cores was not idle, in seconds, steal and all."""
    try:
        lines = Path("/proc/stat").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    total = 0
    for line in lines:
        name, *values = line.split()
        if name.startswith("cpu") and name[3:].isdigit() and int(name[3:]) in cores:
            user, nice, system, _, _, irq, soft, steal = map(int, values[:8])
            total += user + nice + system + irq + soft + steal
    return total / os.sysconf("SC_CLK_TCK")


def timed(work):
    cores = os.sched_getaffinity(0)
    before, own, start = busy(cores), time.process_time(), time.perf_counter()
    result = work()
    seconds = time.perf_counter() - start
    own, after = time.process_time() - own, busy(cores)
    others = None if before is None else max(0.0, (after - before - own) / (seconds * len(cores)))
    return result, {"seconds": round(seconds, 4), "processor": round(own, 3), "others": others}


def example(path, number):
    """Paragraphs, question and answer of one example with ten paragraphs."""
    entries = json.loads(Path(path).read_text(encoding="utf-8"))
    entry = [e for e in entries if len(e["context"]) == 10][number]
    return ["".join(sentences) for _, sentences in entry["context"]], entry["question"], entry["answer"]


def child(options):
    """Run one configuration; rows go to standard output, readings into a file."""
    name = options.child
    changes, lenient = CONFIGURATIONS[name], name.startswith(("bare", "loop"))
    if options.cores:
        os.sched_setaffinity(0, cores_of(options.cores))
    if options.device == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    if options.src:
        sys.path.insert(0, options.src)
    patched(changes, BEFORE_TORCH, lenient=lenient)
    try:
        module("threads", "before_torch").before_torch()
    except Missing:
        pass
    patched(changes, BEFORE_LOADING, lenient=lenient)
    import numpy as np
    import torch
    import transformers

    import ropelime
    from ropelime.prompt import from_context
    from ropelime.samplers import resolve_sampler
    from ropelime.surrogate import load_surrogate

    more = {"compiled": True} if "compiled" in changes else {}
    surrogate, loading = timed(
        lambda: load_surrogate(options.model, device=options.device, dtype=options.dtype, **more)
    )
    patched(changes, AFTER_LOADING, surrogate, lenient=lenient)
    context, question, answer = example(options.data, options.example)
    facts = {
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "threads": torch.get_num_threads(),
        "dtype": str(surrogate.model.dtype).removeprefix("torch."),
        "device": str(surrogate.device),
        "cores": sorted(os.sched_getaffinity(0)),
    }
    if surrogate.device.type == "cuda":
        facts["gpu"] = torch.cuda.get_device_name(surrogate.device)

    def explained(chunks):
        return ropelime.explain(
            context=chunks, question=question, output=answer, surrogate=surrogate, progress=False
        )

    def say(task, tokens, measured, **others):
        print(json.dumps({"task": task, "tokens": tokens, **measured, **others, **facts}), flush=True)

    say("loading", 0, loading)
    _, first = timed(lambda: explained(context[:1]))
    say("first-use", 0, first)
    saved = {}
    if options.busy:  # pinned to one of the cores, so that it is always in the way
        other = subprocess.Popen(
            [sys.executable, "-c", "import os\nos.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
             "while os.getppid() != 1: pass"]
        )
    for repeat in range(options.repeats):
        e, measured = timed(lambda: explained(context))
        say("default", int(e.passes.scored), measured, repeat=repeat, masks=len(e.passes.masks))
        saved["default"], saved["kl"] = e.passes.logprob, e.passes.kl
    if name not in ONLY_DEFAULT and not options.only_default:
        scorer = surrogate.prepare(from_context(context, question), "sentence", answer)
        n = len(scorer.features)
        drawn = resolve_sampler(f"hadamard:{MASKS}").sample(n, budget=None, rng=np.random.default_rng(0))
        masks = np.concatenate([np.ones((1, n), dtype=bool), drawn.masks])
        if "singly" in changes:
            (saved["exact"], tokens), measured = timed(lambda: loop_score(surrogate, scorer, masks))
        else:
            passes, measured = timed(lambda: scorer.score(masks, kl=False))
            saved["exact"], tokens = passes.logprob, int(passes.scored)
        say("exact", tokens, measured, repeat=0, masks=len(masks), features=n)
    if options.busy:
        other.kill()
        other.wait()
    np.savez(options.readings, **saved)


# --- All of them ----------------------------------------------------------------------------------------


def cores_of(text):
    """{0, 1, 2} out of "0-2" or "0,1,2"."""
    found = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    return found


def cpu_name():
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


@contextmanager
def alone(path):
    """Nobody else who respects the lock measures or computes meanwhile."""
    if not path:
        yield 0.0
        return
    with open(path, "a") as file:
        start = time.perf_counter()
        fcntl.flock(file, fcntl.LOCK_EX)
        yield time.perf_counter() - start


def begun(options, name, number, cores):
    """Start one configuration."""
    readings = Path(f"{options.out}.readings") / f"{name}-{number}.npz"
    readings.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, __file__, "--child", name, "--readings", str(readings)]
    for option in ("data", "device", "dtype", "model", "src", "repeats", "example"):
        if (value := getattr(options, option)) is not None:
            command += [f"--{option}", str(value)]
    if options.only_default:
        command.append("--only-default")
    if cores:
        command += ["--cores", ",".join(map(str, sorted(cores)))]
    environment = dict(os.environ)
    if name == "compiled":  # what earlier processes compiled is not found again
        environment["TORCHINDUCTOR_CACHE_DIR"] = tempfile.mkdtemp(prefix="inductor-")
    errors = tempfile.TemporaryFile("w+")
    if options.busy:
        command.append("--busy")
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment
    )
    return process, errors, readings


def ended(options, started, facts):
    """Write down what a configuration gave, once it has ended."""
    process, errors, readings = started
    lines = [line for line in process.communicate()[0].splitlines() if line.startswith("{")]
    rows = [{**facts, **json.loads(line)} for line in lines]
    if process.returncode:
        errors.seek(0)
        last = [line for line in errors.read().splitlines() if line.strip()][-1:]
        rows = [{**facts, "task": "failed", "why": "".join(last)[:300]}]
    for row in rows:
        if row["task"] in ("default", "exact"):
            row["difference"] = difference(options, readings, row["task"])
            row["disturbed"] = bool((row.get("others") or 0) > DISTURBED)
    with open(options.out, "a", encoding="utf-8") as file:
        for row in rows:
            file.write(json.dumps(row) + "\n")
    shown = [
        f"{row['task']} {row['seconds']:.2f}s"
        + (f" (others {row['others']:.0%}!)" if row.get("disturbed") else "")
        + (f" ±{row['difference']:.3f}" if row.get("difference") is not None else "")
        for row in rows
        if "seconds" in row
    ] or [row.get("why", "") for row in rows]
    load = f" LOAD {facts['load']:.1f} before" if facts["load"] > len(os.sched_getaffinity(0)) else ""
    print(f"{facts['round']} {facts['configuration']:<18}", "; ".join(shown), load, flush=True)


def difference(options, readings, task):
    """How far log-probabilities are from those of ``all``, at most."""
    import numpy as np

    own = sorted(readings.parent.glob("all-*.npz"))
    if not own:
        return None
    with np.load(own[0]) as reference, np.load(readings) as found:
        if task not in reference or task not in found or reference[task].shape != found[task].shape:
            return None
        return round(float(np.abs(reference[task] - found[task]).max()), 5)


def done_before(out):
    """(configuration, round) that the file holds already."""
    if not Path(out).exists():
        return set()
    rows = map(json.loads, Path(out).read_text(encoding="utf-8").splitlines())
    return {(row["configuration"], row["round"]) for row in rows if row["task"] in ("default", "failed")}


def measure(options):
    names = options.configurations.split(",") if options.configurations else list(CONFIGURATIONS)
    if unknown := [name for name in names if name not in CONFIGURATIONS]:
        raise SystemExit(f"unknown: {', '.join(unknown)}; known: {', '.join(CONFIGURATIONS)}")
    cores = sorted(cores_of(options.cores)) if options.cores else sorted(os.sched_getaffinity(0))
    pairs = [cores[i : i + 2] for i in range(0, len(cores) - 1, 2)]
    known = done_before(options.out)
    for number in range(options.first_round, options.first_round + options.rounds):
        order = names if number % 2 else names[::-1]
        left = [name for name in order if (name, number) not in known]
        wide = len(pairs) if options.parallel else 1
        for start in range(0, len(left), wide):
            with alone(options.lock) as waited:
                begin = []
                for at, name in enumerate(left[start : start + wide]):
                    own = pairs[(at + number) % wide] if options.parallel else cores
                    facts = {
                        "configuration": name,
                        "round": number,
                        "cpu": cpu_name(),
                        "time": time.strftime("%Y-%m-%dT%H:%M:%S"),
                        "load": os.getloadavg()[0],
                        "waited": round(waited, 1),
                        "parallel": options.parallel,
                        "busy": options.busy,
                    }
                    begin.append((begun(options, name, number, own if options.cores else None), facts))
                for started, _ in begin:
                    started[0].wait()
                for started, facts in begin:
                    ended(options, started, facts)


def summary(files):
    """Print the Markdown table."""
    rows = [json.loads(line) for file in files for line in Path(file).read_text("utf-8").splitlines()]
    timed_rows = [row for row in rows if row["task"] in ("default", "exact", "first-use")]
    places = sorted({(r["cpu"], r.get("gpu", ""), r["torch"], r["dtype"]) for r in timed_rows})
    for place in places:
        own = [r for r in timed_rows if (r["cpu"], r.get("gpu", ""), r["torch"], r["dtype"]) == place]
        print(f"\n{', '.join(filter(None, place))}, {own[0]['threads']} threads; "
              f"{sum(r.get('disturbed', False) for r in own)} of {len(own)} timings were disturbed by other "
              "programs and left out; ~ where there are no others\n")
        print("| configuration | default, s (range) | against all | by round | exact, s (range) "
              "| against all | by round | tokens | off by at most | n |")
        print("|---|---|---|---|---|---|---|---|---|---|")
        for name in dict.fromkeys([*CONFIGURATIONS, *(r["configuration"] for r in own)]):
            mine = [r for r in own if r["configuration"] == name and r["task"] != "first-use"]
            if not mine:
                continue
            cells = []
            for task in ("default", "exact"):
                cells += cells_of(own, name, task)
            tokens = " / ".join(f"{t:,}" for t in dict.fromkeys(r["tokens"] for r in mine))
            off = max((r["difference"] for r in mine if r["difference"] is not None), default=None)
            counts = [sum(r["task"] == task for r in mine) for task in ("default", "exact")]
            shown = "" if off is None else f"{off:.3f}"
            print(f"| {name} | {' | '.join(cells)} | {tokens} | {shown} | {counts[0]} + {counts[1]} |")
        first = [r["seconds"] for r in own if (r["configuration"], r["task"]) == ("compiled", "first-use")]
        if first:
            print(f"\nFirst use of compiled layers: {', '.join(f'{s:.1f}' for s in first)} s.")
    for row in rows:
        if row["task"] == "failed":
            print(f"\n{row['configuration']}, round {row['round']}: {row['why']}")


def cells_of(rows, name, task):
    """Median with range, gain against ``all``, and the same as the median over rounds."""

    def by_round(which):
        own = [row for row in rows if (row["configuration"], row["task"]) == (which, task)]
        found = {}
        for row in [row for row in own if not row.get("disturbed")] or own:
            found.setdefault(row["round"], []).append(row["seconds"])
        return found

    mine, base = by_round(name), by_round("all")
    seconds = [s for each in mine.values() for s in each]
    if not seconds:
        return ["", "", ""]
    median = statistics.median(seconds)
    undisturbed = any(
        (row["configuration"], row["task"], row.get("disturbed")) == (name, task, False) for row in rows
    )
    cell = f"{'' if undisturbed else '~'}{median:.2f} ({min(seconds):.2f}-{max(seconds):.2f})"
    if not base or name == "all":
        return [cell, "", ""]
    against = median / statistics.median(s for each in base.values() for s in each) - 1
    paired = [
        statistics.median(mine[number]) / statistics.median(base[number]) - 1
        for number in mine
        if number in base
    ]
    return [cell, f"{against:+.0%}", f"{statistics.median(paired):+.0%}" if paired else ""]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--configurations", help=f"of {', '.join(CONFIGURATIONS)}")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--first-round", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=3, help="default explanations a process")
    parser.add_argument("--only-default", action="store_true", help="leave out the exact readings")
    parser.add_argument("--data", default="/work/shared/data/hotpotqa_dev_distractor_subset.json")
    parser.add_argument("--example", type=int, default=0)
    parser.add_argument("--out", default="/tmp/accelerators-amd.jsonl")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype")
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--src", default=str(HERE / "src") if (HERE / "src/ropelime").is_dir() else None)
    parser.add_argument("--cores", help="such as 0-1; with --parallel all that may be used, 0-15")
    parser.add_argument("--parallel", action="store_true", help="a round at once, two cores each")
    parser.add_argument("--busy", action="store_true", help="another program keeps one core busy")
    parser.add_argument("--lock", default="/tmp/cpu.lock", help="taken while a process runs; '' for none")
    parser.add_argument("--summary", nargs="+", metavar="FILE")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--readings", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.summary:
        summary(options.summary)
    elif options.child:
        child(options)
    else:
        measure(options)


if __name__ == "__main__":
    main()
