/* The page: the form, the run, the result, the comparison and the history.

   Everything from a user or the server is put on the page as text. The result is drawn by ropelime.mount,
   the component of the downloaded report. */
(function () {
  "use strict";

  const SOON = 400; // milliseconds before a lost stream is opened again
  const TRIES = 5;
  const FIELDS = ["prompt", "question", "messages", "output", "features", "model", "preset", "scoring", "budget", "seed"];
  const SIZES = {
    token: "tokens", word: "words", sentence: "sentences", paragraph: "paragraphs", document: "documents",
    message: "messages"
  };
  const FITS = { document: "context", message: "messages" };
  const WORDS = {
    preset: {
      evidence: "evidence: what a person would cite", faithful: "faithful: what predicts the answer",
      paper: "paper: the published method"
    },
    scoring: { "": "default of the preset", exact: "exact", cached: "cached: faster, approximate" }
  };
  const $ = (id) => document.getElementById(id);

  let config = null;
  let token = null;
  let job = null; // the running one: { id, abort, state }
  let route = null;
  let mounted = [];
  let visit = 0; // counts routes, so that late results of an old one are dropped

  function make(tag, name, ...children) {
    const element = document.createElement(tag);
    if (name) element.className = name;
    element.append(...children);
    return element;
  }

  function say(text) {
    $("says").textContent = text;
  }

  /* --- storage of this tab: the token, the form, the running job; it may be unavailable --- */
  function recall(key) {
    try {
      return sessionStorage.getItem(`ropelime-${key}`);
    } catch {
      return null;
    }
  }

  function remember(key, value) {
    try {
      if (value === null) sessionStorage.removeItem(`ropelime-${key}`);
      else sessionStorage.setItem(`ropelime-${key}`, value);
    } catch {
      /* full or forbidden: the page works without */
    }
  }

  /* --- the server --- */
  class Refusal extends Error {
    constructor(status, body) {
      super(body.detail || `The server answered ${status}.`);
      this.status = status;
      this.errors = body.errors || [];
    }
  }

  async function ask(path, options = {}) {
    const headers = { ...(options.headers || {}) };
    if (token) headers.Authorization = `Bearer ${token}`;
    let response;
    try {
      response = await fetch(path, { ...options, headers });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new Refusal(0, { detail: "The server cannot be reached. Is it still running?" });
    }
    if (response.ok) return response;
    const body = await response.json().catch(() => ({}));
    if (response.status === 401) show("enter");
    throw new Refusal(response.status, body);
  }

  async function data(path, options) {
    return (await ask(path, options)).json();
  }

  /* --- pages --- */
  function show(name) {
    for (const section of document.querySelectorAll("main > section")) section.hidden = section.id !== name;
    for (const link of document.querySelectorAll("nav a")) {
      if (link.dataset.route === name) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
    const title = $(name).querySelector("h1").textContent;
    document.title = `${title} \u00b7 RoPE-LIME`;
    chip();
  }

  function lost(title, text) {
    $("lost-title").textContent = title;
    $("lost-text").textContent = text;
    show("lost");
  }

  function leave() {
    mounted.forEach((component) => component && component.destroy());
    mounted = [];
  }

  async function go() {
    const parts = location.hash.replace(/^#\/?/, "").split("/");
    const mine = ++visit;
    leave();
    route = parts[0] || "explain";
    try {
      if (route === "explain") show("explain");
      else if (route === "history") await history(mine);
      else if (route === "e") await result(parts[1] || "", mine);
      else if (route === "compare") await compare(parts[1] || "", parts[2] || "", mine);
      else lost("Page not found", "The address is wrong.");
    } catch (error) {
      if (mine === visit && error.status !== 401) lost("This cannot be displayed", error.message);
    }
    if (mine !== visit) return;
    window.scrollTo(0, 0);
    const heading = document.querySelector("main > section:not([hidden]) h1");
    if (heading && started) {
      heading.tabIndex = -1;
      heading.focus({ preventScroll: true });
    }
  }
  let started = false;

  /* --- the form --- */
  function kind() {
    return document.querySelector('input[name="kind"]:checked').value;
  }

  function turn(to) {
    $(`kind-${to}`).checked = true;
    for (const panel of document.querySelectorAll(".panel")) panel.hidden = panel.dataset.kind !== to;
    for (const option of $("features").options) {
      option.disabled = option.value in FITS && FITS[option.value] !== to;
      if (option.disabled && option.selected) $("features").value = "sentence";
    }
  }

  function areas() {
    return Array.from(document.querySelectorAll("#documents textarea"));
  }

  function addDocument(text) {
    const area = make("textarea");
    area.rows = 4;
    area.dir = "auto";
    area.value = text;
    const label = make("label");
    const drop = make("button", "link", "Remove");
    drop.type = "button";
    const box = make("div", "field document", make("div", "row", label, drop), area);
    drop.addEventListener("click", () => {
      const at = areas().indexOf(area);
      box.remove();
      if (!areas().length) addDocument("");
      number();
      areas()[Math.min(at, areas().length - 1)].focus();
      keep();
    });
    $("documents").append(box);
    number();
    return area;
  }

  function number() {
    areas().forEach((area, i) => {
      const box = area.closest(".document");
      area.id = `document-${i + 1}`;
      box.querySelector("label").htmlFor = area.id;
      box.querySelector("label").textContent = `Document ${i + 1}`;
      box.querySelector("button").setAttribute("aria-label", `Remove document ${i + 1}`);
    });
  }

  function setDocuments(texts) {
    $("documents").replaceChildren();
    (texts.length ? texts : [""]).forEach(addDocument);
  }

  function empty() {
    fill({ prompt: "", output: "", features: "sentence" });
    setDocuments([]);
    for (const id of ["question", "messages"]) $(id).value = "";
  }

  function fill(request) {
    clean();
    const to = request.context ? "context" : request.messages ? "messages" : "prompt";
    if (to === "prompt") $("prompt").value = request.prompt || "";
    if (to === "context") {
      setDocuments(request.context);
      $("question").value = request.question || "";
    }
    if (to === "messages") $("messages").value = JSON.stringify(request.messages, null, 2);
    $("output").value = request.output || "";
    turn(to);
    for (const id of ["features", "model", "preset", "scoring"]) {
      const wanted = request[id] || (id === "scoring" ? "" : null);
      if (Array.from($(id).options).some((option) => option.value === wanted)) $(id).value = wanted;
    }
    $("budget").value = request.budget || "";
    $("seed").value = request.seed || 0;
    $("more").open = Boolean(request.budget || request.seed) || request.preset !== "evidence" || Boolean(request.scoring);
    keep();
  }

  /* The request, or null where the page itself finds an error. */
  function collect() {
    const request = { output: $("output").value };
    const to = kind();
    if (to === "prompt") request.prompt = $("prompt").value;
    if (to === "context") {
      const filled = areas().filter((area) => area.value.trim());
      request.context = (filled.length ? filled : areas()).map((area) => area.value);
      if ($("question").value.trim()) request.question = $("question").value;
    }
    if (to === "messages") {
      try {
        request.messages = JSON.parse($("messages").value);
      } catch (error) {
        const blank = !$("messages").value.trim();
        blame("messages", blank ? "It is empty. Paste a list of messages." : `This is not JSON: ${error.message}.`);
        return null;
      }
    }
    for (const id of ["features", "model", "preset", "scoring"]) if ($(id).value) request[id] = $(id).value;
    for (const id of ["budget", "seed"]) {
      const text = $(id).value.trim();
      if (!text) continue;
      if (!/^\d{1,15}$/.test(text)) {
        blame(id, "A whole number is needed.");
        return null;
      }
      request[id] = Number(text);
    }
    return request;
  }

  let keeping = 0;
  function keep() {
    window.clearTimeout(keeping);
    keeping = window.setTimeout(() => {
      const values = Object.fromEntries(FIELDS.map((id) => [id, $(id).value]));
      remember("form", JSON.stringify({ ...values, kind: kind(), documents: areas().map((area) => area.value) }));
    }, 300);
    $("hello").hidden = Boolean($("output").value || $("prompt").value || $("messages").value || areas().some((a) => a.value));
  }

  function restore() {
    let values;
    try {
      values = JSON.parse(recall("form") || "null");
    } catch {
      values = null;
    }
    if (!values) return;
    setDocuments(values.documents || []);
    turn(["prompt", "context", "messages"].includes(values.kind) ? values.kind : "prompt");
    for (const id of FIELDS) {
      const control = $(id);
      const known = !control.options || Array.from(control.options).some((option) => option.value === values[id]);
      if (known && typeof values[id] === "string") control.value = values[id];
    }
    keep();
  }

  /* --- errors, beside the field that is wrong --- */
  function clean() {
    for (const line of document.querySelectorAll(".wrong")) line.remove();
    for (const control of document.querySelectorAll("[aria-invalid]")) {
      control.removeAttribute("aria-invalid");
      if (control.id === "messages") control.setAttribute("aria-describedby", "messages-hint");
      else control.removeAttribute("aria-describedby");
    }
    $("alert").hidden = true;
  }

  function control(field) {
    const [name, place] = field.split(".");
    if (name === "context") {
      const filled = areas().filter((area) => area.value.trim());
      return (filled.length ? filled : areas())[Number(place) || 0] || areas()[0];
    }
    return FIELDS.includes(name) || name === "token" ? $(name) : null;
  }

  function blame(field, message) {
    const at = field ? control(field) : null;
    if (!at) {
      $("alert").textContent = message;
      $("alert").hidden = false;
      return;
    }
    if ($("more").contains(at)) $("more").open = true;
    const line = make("p", "wrong", message);
    line.id = `${at.id}-wrong`;
    const before = $(line.id);
    if (before) before.remove();
    at.insertAdjacentElement("afterend", line);
    at.setAttribute("aria-invalid", "true");
    at.setAttribute("aria-describedby", line.id);
  }

  /* The line is part of the field's description, so screen readers announce it on focus. */
  function complain(error) {
    if (error.errors && error.errors.length) error.errors.forEach((e) => blame(e.field, e.message));
    else blame("", error.message);
    const first = document.querySelector("#form [aria-invalid]");
    if (first) first.focus();
  }

  /* --- a run --- */
  async function run(request) {
    if (job) return;
    clean();
    const body = JSON.stringify(request);
    const size = new Blob([body]).size;
    const most = config.limits.request_bytes;
    if (size > most) {
      blame("", `The request has ${size.toLocaleString()} bytes and this server accepts at most ${most.toLocaleString()}.`);
      return;
    }
    job = { id: null, abort: new AbortController(), state: null };
    busy(true);
    try {
      const state = await data("/api/jobs", {
        method: "POST", body, headers: { "Content-Type": "application/json" }, signal: job.abort.signal
      });
      job.id = state.id;
      remember("job", state.id);
      say("The explanation is running.");
      if (matchMedia("(max-width: 56rem)").matches) $("progress").scrollIntoView({ block: "center" });
      ended(await follow(state));
    } catch (error) {
      ended(null, error);
    }
  }

  /* Follow the stream of events until the job ends; reopen it where it broke. */
  async function follow(state) {
    let tries = 0;
    progress(state);
    while (!["done", "failed", "cancelled"].includes(state.state)) {
      try {
        const response = await ask(`/api/jobs/${job.id}/events`, { signal: job.abort.signal });
        const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
        let rest = "";
        for (;;) {
          const { value, done } = await reader.read();
          if (done) break;
          const events = (rest + value).split("\n\n");
          rest = events.pop();
          for (const event of events) {
            if (!event.startsWith("data: ")) continue;
            state = JSON.parse(event.slice(6));
            progress(state);
            tries = 0;
          }
        }
      } catch (error) {
        if (error.name === "AbortError" || (error.status && error.status !== 429)) throw error;
        if (++tries > TRIES) throw new Refusal(0, { detail: "The connection to the server was lost." });
        await new Promise((resolve) => setTimeout(resolve, SOON));
      }
    }
    return state;
  }

  function progress(state) {
    job.state = state;
    const { done, total, seconds } = state;
    const waiting = state.state === "queued";
    const stage = waiting ? (state.ahead ? `Waiting, ${state.ahead} ahead` : "Waiting") : state.stage;
    $("stage").textContent = stage.charAt(0).toUpperCase() + stage.slice(1);
    if (total && !waiting) $("bar").setAttribute("value", String(done / total));
    else $("bar").removeAttribute("value");
    let left = total && !waiting ? `${Math.floor((100 * done) / total)}%` : "";
    if (left && seconds > 2 && done > 0 && done < total) left += `, about ${span((seconds * (total - done)) / done)} left`;
    $("left").textContent = left;
    chip();
  }

  function span(seconds) {
    return seconds < 90 ? `${Math.ceil(seconds)} s` : `${Math.ceil(seconds / 60)} min`;
  }

  function busy(on) {
    $("progress").hidden = !on;
    $("run").disabled = $("example").disabled = $("first").disabled = on;
    if (on) {
      $("stage").textContent = "Sending";
      $("left").textContent = "";
      $("bar").removeAttribute("value");
      $("stop").disabled = false;
    }
    chip();
  }

  function chip() {
    const away = $("explain").hidden;
    const state = job && job.state;
    $("chip").hidden = !job || !away;
    $("chip").href = "#/";
    $("chip").textContent = state && state.total ? `Scoring, ${Math.floor((100 * state.done) / state.total)}%` : "Waiting";
  }

  function ended(state, error) {
    job = null;
    remember("job", null);
    busy(false);
    if (error) {
      if (error.name !== "AbortError" && error.status !== 401) complain(error);
      return;
    }
    if (state.state === "done") {
      say("The explanation is done.");
      if (!$("explain").hidden) location.hash = `#/e/${state.id}`;
      else {
        $("chip").textContent = "Done: show it";
        $("chip").href = `#/e/${state.id}`;
        $("chip").hidden = false;
      }
    } else if (state.state === "cancelled") say("Cancelled.");
    else complain({ message: state.error, errors: state.field ? [{ field: state.field, message: state.error }] : [] });
  }

  async function stop() {
    $("stop").disabled = true;
    const now = job;
    if (now && now.id) await ask(`/api/jobs/${now.id}`, { method: "DELETE" }).catch(() => now.abort.abort());
    else if (now) now.abort.abort();
    $("run").focus();
  }

  /* After a reload while a job runs: the server waits a moment before it cancels the job. */
  async function resume() {
    const id = recall("job");
    if (!id) return;
    job = { id, abort: new AbortController(), state: null };
    busy(true);
    try {
      ended(await follow(await data(`/api/jobs/${encodeURIComponent(id)}`)));
    } catch (error) {
      ended(null, error.status === 404 ? { name: "AbortError" } : error);
    }
  }

  async function runExample() {
    location.hash = "#/";
    show("explain");
    fill({ ...config.example, model: config.models[0] });
    await run(collect());
  }

  /* --- the result --- */
  function when(summary) {
    const time = make("time", "", new Date(summary.created).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" }));
    time.dateTime = summary.created;
    return time;
  }

  function meta(summary) {
    const facts = [
      `${summary.count.toLocaleString()} ${SIZES[summary.features]}`,
      `scored by ${summary.model}`,
      summary.preset === "evidence" ? "" : `preset ${summary.preset}`,
      summary.scoring === "exact" ? "" : `${summary.scoring} scoring`,
      `in ${summary.seconds.toFixed(1)} s`
    ];
    return [when(summary), ` \u00b7 ${facts.filter(Boolean).join(" \u00b7 ")}`];
  }

  async function result(id, mine) {
    const found = await data(`/api/explanations/${encodeURIComponent(id)}`);
    if (mine !== visit) return;
    show("result");
    document.title = `${found.summary.answer.slice(0, 60)} \u00b7 RoPE-LIME`;
    $("meta").replaceChildren(...meta(found.summary));
    $("versus").href = `#/compare/${found.summary.id}`;
    $("again").onclick = () => {
      fill(found.request);
      location.hash = "#/";
    };
    for (const button of document.querySelectorAll("[data-download]")) {
      button.onclick = () => download(found.summary.id, button.dataset.download);
    }
    mounted.push(window.ropelime.mount($("mount"), found.view));
  }

  async function download(id, file) {
    try {
      const response = await ask(`/api/explanations/${id}/${file}`);
      const name = /filename="([^"]+)"/.exec(response.headers.get("content-disposition") || "");
      const link = make("a");
      link.href = URL.createObjectURL(await response.blob());
      link.download = name ? name[1] : file;
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 10000);
    } catch (error) {
      if (error.status !== 401) lost("It could not be downloaded", error.message);
    }
  }

  /* --- two of them --- */
  function line(summary) {
    return `${summary.answer.slice(0, 50)} (${summary.model}, ${SIZES[summary.features]}, ${new Date(summary.created).toLocaleString()})`;
  }

  async function compare(left, right, mine) {
    const known = (await data("/api/explanations?limit=200")).items;
    if (mine !== visit) return;
    const ids = [left, right];
    const found = await Promise.all(ids.map((id) => (id ? data(`/api/explanations/${encodeURIComponent(id)}`) : null)));
    if (mine !== visit) return;
    show("compare");
    document.querySelectorAll(".side").forEach((side, i) => {
      const choice = side.querySelector("select");
      const options = known.map((summary) => [summary.id, line(summary)]);
      if (found[i] && !known.some((summary) => summary.id === ids[i])) options.push([ids[i], line(found[i].summary)]);
      choice.replaceChildren(new Option(known.length ? "Choose an explanation" : "Nothing has been explained yet", ""));
      for (const [id, text] of options) choice.append(new Option(text, id));
      choice.value = found[i] ? ids[i] : "";
      choice.onchange = () => {
        const chosen = Array.from(document.querySelectorAll(".side select"), (s) => s.value);
        location.hash = `#/compare/${chosen.join("/")}`;
      };
      side.querySelector(".meta").replaceChildren(...(found[i] ? meta(found[i].summary) : []));
      if (found[i]) mounted.push(window.ropelime.mount(side.querySelector(".place"), found[i].view));
    });
    $("difference").textContent = found[0] && found[1] ? difference(found[0], found[1]) : "Choose two explanations to compare two answers, two models or two prompts.";
  }

  function difference(a, b) {
    const sent = (r) => JSON.stringify([r.prompt, r.context, r.question, r.messages]);
    const same = {
      prompt: sent(a.request) === sent(b.request),
      answer: a.request.output === b.request.output,
      model: a.summary.model === b.summary.model,
      size: a.summary.features === b.summary.features
    };
    const names = { prompt: "the prompt", answer: "the answer", model: "the model", size: "the size of the parts" };
    const list = (yes) => Object.keys(names).filter((key) => same[key] === yes).map((key) => names[key]);
    const words = (items) => items.join(", ").replace(/, ([^,]*)$/, " and $1");
    if (!list(false).length) return "The prompt, the answer, the model and the size of the parts are the same in both.";
    const differs = `${words(list(false))} ${list(false).length > 1 ? "differ" : "differs"}`;
    const rest = list(true).length ? `; ${words(list(true))} ${list(true).length > 1 ? "are" : "is"} the same.` : ".";
    return differs.charAt(0).toUpperCase() + differs.slice(1) + rest;
  }

  /* --- the history --- */
  let older = null;
  const ticked = new Set();

  async function history(mine) {
    const page = await data("/api/explanations?limit=50");
    if (mine !== visit) return;
    ticked.clear();
    $("entries").replaceChildren();
    list(page);
    show("history");
  }

  function list(page) {
    page.items.forEach((summary) => $("entries").append(entry(summary)));
    older = page.next;
    $("older").hidden = older === null;
    $("nothing").hidden = $("entries").children.length > 0;
    tick();
  }

  function entry(summary) {
    const box = make("input");
    box.type = "checkbox";
    box.setAttribute("aria-label", `Compare: ${summary.answer}`);
    box.addEventListener("change", () => {
      if (box.checked) ticked.add(summary.id);
      else ticked.delete(summary.id);
      tick();
    });
    const link = make("a", "", make("bdi", "", summary.answer));
    link.href = `#/e/${summary.id}`;
    const top = make("p", "top-feature", `${Math.round(100 * summary.top.score)}% `, make("bdi", "", summary.top.text));
    const about = make("div", "", link, top, make("p", "", make("bdi", "", summary.prompt)), make("p", "", ...meta(summary)));
    const remove = make("button", "link", "Delete");
    remove.type = "button";
    remove.setAttribute("aria-label", `Delete: ${summary.answer}`);
    const item = make("li", "entry", box, about, remove);
    item.dataset.id = summary.id;
    remove.addEventListener("click", () => forget(summary, item, remove));
    return item;
  }

  /* Two presses, so that one by mistake deletes nothing. */
  async function forget(summary, item, button) {
    if (button.dataset.sure === undefined) {
      button.dataset.sure = "";
      button.textContent = "Delete for good?";
      button.setAttribute("aria-label", `Delete for good: ${summary.answer}`);
      say("Press again to delete it for good.");
      return;
    }
    try {
      await ask(`/api/explanations/${summary.id}`, { method: "DELETE" });
    } catch (error) {
      if (error.status !== 404) {
        if (error.status !== 401) lost("It could not be deleted", error.message);
        return;
      }
    }
    const next = item.nextElementSibling || item.previousElementSibling;
    item.remove();
    ticked.delete(summary.id);
    tick();
    say("Deleted.");
    $("nothing").hidden = $("entries").children.length > 0;
    (next ? next.querySelector("a") : $("first")).focus();
  }

  function tick() {
    $("pair").disabled = ticked.size !== 2;
  }

  /* --- files: read by the page and put into the form --- */
  let opening = null;

  async function open(target, files) {
    if (!files.length) return;
    const texts = [];
    for (const file of files) {
      if (file.size > config.limits.request_bytes) {
        blame(target === "documents" ? "context" : target, `${file.name} is larger than this server accepts.`);
        return;
      }
      try {
        texts.push(new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer()));
      } catch {
        blame(target === "documents" ? "context" : target, `${file.name} is not UTF-8 text.`);
        return;
      }
    }
    clean();
    if (target === "documents") {
      const before = areas().map((area) => area.value).filter((text) => text.trim());
      setDocuments([...before, ...texts]);
    } else $(target).value = texts[0].replace(/\n$/, "");
    say(texts.length === 1 ? "The file is in the form." : `${texts.length} files are in the form.`);
    keep();
  }

  function dropping(area, target) {
    area.addEventListener("dragover", (event) => {
      if (!event.dataTransfer.types.includes("Files")) return;
      event.preventDefault();
      area.classList.add("over");
    });
    area.addEventListener("dragleave", () => area.classList.remove("over"));
    area.addEventListener("drop", (event) => {
      area.classList.remove("over");
      if (!event.dataTransfer.files.length) return;
      event.preventDefault();
      open(target(), Array.from(event.dataTransfer.files));
    });
  }

  /* --- the beginning --- */
  function options(id, values, words = {}) {
    $(id).replaceChildren(...values.map((value) => new Option(words[value] || value, value)));
  }

  function connect() {
    $("form").addEventListener("submit", (event) => {
      event.preventDefault();
      if (job) return;
      clean();
      const request = collect();
      if (request) run(request);
      else document.querySelector("#form [aria-invalid]").focus();
    });
    $("form").addEventListener("input", keep);
    $("form").addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) $("form").requestSubmit();
    });
    for (const radio of document.querySelectorAll('input[name="kind"]')) {
      radio.addEventListener("change", () => turn(radio.value));
    }
    $("add").addEventListener("click", () => addDocument("").focus());
    $("clear").addEventListener("click", () => {
      empty();
      $("prompt").focus();
    });
    $("example").addEventListener("click", runExample);
    $("first").addEventListener("click", runExample);
    $("stop").addEventListener("click", stop);
    for (const button of document.querySelectorAll("[data-open]")) {
      button.addEventListener("click", () => {
        opening = button.dataset.open;
        $("file").multiple = opening === "documents";
        $("file").value = "";
        $("file").click();
      });
    }
    $("file").addEventListener("change", () => open(opening, Array.from($("file").files)));
    dropping($("sent"), () => ({ prompt: "prompt", context: "documents", messages: "messages" })[kind()]);
    dropping($("output"), () => "output");
    $("pair").addEventListener("click", () => {
      const order = Array.from($("entries").children, (item) => item.dataset.id).filter((id) => ticked.has(id));
      location.hash = `#/compare/${order.reverse().join("/")}`; // the older one on the left
    });
    $("older").addEventListener("click", async () => {
      try {
        list(await data(`/api/explanations?limit=50&before=${older}`));
      } catch (error) {
        if (error.status !== 401) lost("The history cannot be displayed", error.message);
      }
    });
    $("enter-form").addEventListener("submit", (event) => {
      event.preventDefault();
      clean();
      token = $("token").value.trim();
      remember("token", token);
      $("token").value = "";
      begin();
    });
    /* Links within the page, such as the component's, must not replace the route. */
    document.addEventListener("click", (event) => {
      const link = event.target.closest('a[href^="#"]');
      const to = link && !link.getAttribute("href").startsWith("#/") && $(link.getAttribute("href").slice(1));
      if (!to) return;
      event.preventDefault();
      to.tabIndex = -1;
      to.focus({ preventScroll: true });
      to.scrollIntoView({ block: "start" });
    });
    window.addEventListener("hashchange", go);
  }

  async function begin() {
    try {
      config = await data("/api/config");
    } catch (error) {
      if (error.status === 401) {
        if (token) {
          blame("token", "The token is wrong.");
          remember("token", (token = null));
        }
        $("token").focus();
      } else lost("The server cannot be reached", error.message);
      return;
    }
    options("features", config.features, SIZES);
    options("model", config.models);
    options("preset", config.presets, WORDS.preset);
    options("scoring", ["", ...config.scoring], WORDS.scoring);
    $("features").value = "sentence";
    setDocuments([]);
    turn("prompt");
    restore();
    resume();
    await go();
    started = true;
  }

  const given = /^#token=(.+)$/.exec(location.hash);
  if (given) {
    token = decodeURIComponent(given[1]);
    remember("token", token);
    window.history.replaceState(null, "", "/#/");
  } else token = recall("token");
  connect();
  begin();
})();
