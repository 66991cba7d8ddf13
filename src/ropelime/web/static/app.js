/* The page: the form, the job, the result, the comparison, the history and the runs of agents.

   Everything from a user or the server is put on the page as text. A result is drawn by ropelime.mount and
   a run by ropelime.timeline, the components of the downloaded pages. */
(function () {
  "use strict";

  const SOON = 400; // milliseconds before a lost stream is opened again
  const TRIES = 5;
  const SHOWN = 0.1; // share from which a part is named for a sentence that was ranked at once
  const GIVEN = ["prompt", "question", "messages", "output", "features", "surrogate"];
  const SIZES = {
    token: "tokens", word: "words", sentence: "sentences", paragraph: "paragraphs", document: "documents",
    message: "messages", spans: "spans"
  };
  const PARENTS = { "run-view": "runs" }; // pages that belong to another one
  const CHANGES = 8; // rows of a comparison
  const FITS = { document: "context", message: "messages" };
  const $ = (id) => document.getElementById(id);

  let config = null;
  let token = null;
  let job = null; // the running one: { id, abort, state }
  let route = null;
  let mounted = [];
  let stepping = null; // the step of a run that is being explained: { id, abort }
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

  /* A token, or null where it could not be sent: all are printable ASCII. */
  function sendable(text) {
    return /^[!-~]+$/.test(text) ? text : null;
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
      if (link.dataset.route === (PARENTS[name] || name)) link.setAttribute("aria-current", "page");
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
    if (stepping) stepping.abort.abort();
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
      else if (route === "runs") await runs(mine);
      else if (route === "run") await runView(parts[1] || "", mine);
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

  /* --- the options: a control for each that the server names, with its help --- */
  function option(name) {
    return config.options.find((known) => known.name === name);
  }

  function panel() {
    return config.options.filter((known) => known.name !== "features");
  }

  function build() {
    $("features").replaceChildren(...option("features").choices.map((size) => new Option(SIZES[size] || size, size)));
    $("features").title = sentence(option("features").help);
    $("surrogate").replaceChildren(...config.surrogates.map((label) => new Option(label, label)));
    $("options").replaceChildren(...panel().map(field));
    if (config.surrogates.length > 1) $("options").append(others());
    setFeatures(option("features").default);
    setSurrogates(config.surrogates.slice(0, 1));
    for (const known of panel()) put(known, known.default);
  }

  function sentence(text) {
    return `${text.charAt(0).toUpperCase()}${text.slice(1)}.`;
  }

  function field(known) {
    const name = known.name.replace(/_/g, " ");
    const label = make("label", "", sentence(name).slice(0, -1));
    const help = make("p", "aside", sentence(known.help));
    const input = input_of(known);
    input.id = label.htmlFor = known.name;
    help.id = `${known.name}-help`;
    input.setAttribute("aria-describedby", help.id);
    const box = make("div", "field", label, input, help);
    if (known.kind === "switch") label.prepend(input, " ");
    if (known.kind === "text" && known.choices.length) {
      const list = make("datalist");
      list.id = `${known.name}-choices`;
      list.append(...known.choices.map((choice) => new Option(choice, choice)));
      input.setAttribute("list", list.id);
      box.append(list);
    }
    return box;
  }

  function input_of(known) {
    if (known.kind === "choice") {
      const none = known.default === null ? [new Option("not set", "")] : [];
      const select = make("select");
      select.append(...none, ...known.choices.map((choice) => new Option(choice, choice)));
      return select;
    }
    const input = make(known.kind === "text" && !known.choices.length ? "textarea" : "input");
    if (known.kind === "switch") input.type = "checkbox";
    else input.placeholder = String(known.default ?? "not set");
    if (known.kind === "number") input.inputMode = "numeric";
    input.spellcheck = false;
    return input;
  }

  /* The value of a control; what is left empty is the default. */
  function take(known) {
    const input = $(known.name);
    if (known.kind === "switch") return input.checked;
    const text = input.value.trim();
    if (!text) return known.default;
    return known.kind === "number" ? Number(text) : input.value;
  }

  function put(known, value) {
    const input = $(known.name);
    if (known.kind === "switch") input.checked = value === true;
    else input.value = value === known.default && known.kind !== "choice" ? "" : String(value ?? "");
  }

  function changed(known) {
    return take(known) !== known.default;
  }

  /* Spans in place of a granularity come from requests of other clients; the form keeps them. */
  function setFeatures(wanted) {
    const value = typeof wanted === "string" ? wanted : JSON.stringify(wanted);
    const known = Array.from($("features").options);
    known.filter((each) => each.value.startsWith("[")).forEach((each) => each.remove());
    if (typeof wanted !== "string") $("features").append(new Option(`the ${wanted.length} spans of the request`, value));
    $("features").value = value;
    if ($("features").selectedIndex < 0) $("features").value = option("features").default;
  }

  /* Further surrogates, whose weights are averaged with those of the first. */
  function others() {
    const group = make("fieldset", "field others", make("legend", "", "Average with"));
    for (const label of config.surrogates) {
      const box = make("input");
      box.type = "checkbox";
      box.value = label;
      group.append(make("label", "", box, " ", make("bdi", "", label)));
    }
    group.append(make("p", "aside", "Other surrogates that score the answer too; the weights of all are averaged."));
    return group;
  }

  function boxes() {
    return Array.from(document.querySelectorAll("#options .others input"));
  }

  function averaged() {
    return boxes().filter((box) => box.checked && !box.disabled).map((box) => box.value);
  }

  function setSurrogates(labels) {
    if (config.surrogates.includes(labels[0])) $("surrogate").value = labels[0];
    for (const box of boxes()) box.checked = labels.slice(1).includes(box.value);
    pickSurrogate();
  }

  function pickSurrogate() {
    for (const box of boxes()) box.closest("label").hidden = box.disabled = box.value === $("surrogate").value;
  }

  /* --- the form --- */
  function kind() {
    return document.querySelector('input[name="kind"]:checked').value;
  }

  function turn(to) {
    $(`kind-${to}`).checked = true;
    for (const panel of document.querySelectorAll(".panel")) panel.hidden = panel.dataset.kind !== to;
    for (const option of $("features").options) {
      option.disabled = Object.hasOwn(FITS, option.value) && FITS[option.value] !== to;
      if (option.disabled && option.selected) $("features").value = "sentence";
    }
  }

  function areas() {
    return Array.from(document.querySelectorAll("#documents textarea"));
  }

  /* A document is a text, or a text with its source and page, which the form keeps. */
  function addDocument(given) {
    const { text, ...origin } = typeof given === "string" ? { text: given } : given;
    const area = make("textarea");
    area.rows = 4;
    area.dir = "auto";
    area.value = text;
    area.origin = origin;
    const label = make("label");
    const from = [origin.source, origin.page ? `page ${origin.page}` : ""].filter(Boolean).join(", ");
    const source = make("bdi", "aside", from);
    const drop = make("button", "link", "Remove");
    drop.type = "button";
    const box = make("div", "field document", make("div", "row", make("span", "", label, " ", source), drop), area);
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

  function documentOf(area) {
    return Object.keys(area.origin).length ? { ...area.origin, text: area.value } : area.value;
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

  function setDocuments(given) {
    $("documents").replaceChildren();
    (given.length ? given : [""]).forEach(addDocument);
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
    setFeatures(request.features || option("features").default);
    setSurrogates(request.surrogate ? [].concat(request.surrogate) : config.surrogates.slice(0, 1));
    for (const known of panel()) put(known, request[known.name] ?? known.default);
    $("more").open = panel().some((known) => changed(known)) || averaged().length > 0;
    keep();
  }

  /* The request, or null where the page itself finds an error. */
  function collect() {
    const request = { output: $("output").value };
    const to = kind();
    if (to === "prompt") request.prompt = $("prompt").value;
    if (to === "context") {
      const filled = areas().filter((area) => area.value.trim());
      request.context = (filled.length ? filled : areas()).map(documentOf);
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
      const last = Array.isArray(request.messages) ? request.messages[request.messages.length - 1] : null;
      if (!request.output.trim() && last && last.role === "assistant") {
        request.output = answerOf(last);
        request.messages = request.messages.slice(0, -1);
      }
    }
    const features = $("features").value;
    request.features = features.startsWith("[") ? JSON.parse(features) : features;
    request.surrogate = averaged().length ? [$("surrogate").value, ...averaged()] : $("surrogate").value;
    for (const known of panel()) {
      if (known.kind === "number" && !/^\d{0,15}$/.test($(known.name).value.trim())) {
        blame(known.name, "A whole number is needed.");
        return null;
      }
      if (changed(known)) request[known.name] = take(known);
    }
    return request;
  }

  /* A message of the assistant as text: its content, and a line for each tool call. */
  function answerOf(message) {
    const parts = Array.isArray(message.content) ? message.content.map((part) => (part && part.text) || "") : [message.content];
    const calls = Array.isArray(message.tool_calls) ? message.tool_calls : [];
    const lines = calls.filter((call) => call && call.function).map((call) => {
      let given = call.function.arguments || {};
      try {
        given = typeof given === "string" ? JSON.parse(given) : given;
      } catch {
        /* not JSON: it stays a text */
      }
      return JSON.stringify({ name: call.function.name, arguments: given });
    });
    return [...parts, ...lines].filter((text) => typeof text === "string" && text.trim()).join("\n");
  }

  let keeping = 0;
  function keep() {
    window.clearTimeout(keeping);
    keeping = window.setTimeout(() => {
      const values = Object.fromEntries(GIVEN.map((id) => [id, $(id).value]));
      const chosen = Object.fromEntries(panel().map((known) => [known.name, take(known)]));
      const rest = { kind: kind(), documents: areas().map(documentOf), options: chosen, averaged: averaged() };
      remember("form", JSON.stringify({ ...values, ...rest }));
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
    if (typeof values.features === "string" && values.features.startsWith("[")) setFeatures(JSON.parse(values.features));
    for (const id of GIVEN) {
      const control = $(id);
      const known = !control.options || Array.from(control.options).some((each) => each.value === values[id]);
      if (known && typeof values[id] === "string") control.value = values[id];
    }
    setSurrogates([$("surrogate").value, ...(values.averaged || [])]);
    for (const known of panel()) put(known, (values.options || {})[known.name] ?? known.default);
    keep();
  }

  /* --- errors, beside the field that is wrong --- */
  function clean() {
    for (const line of document.querySelectorAll(".wrong")) line.remove();
    for (const control of document.querySelectorAll("[aria-invalid]")) {
      control.removeAttribute("aria-invalid");
      const help = control.getAttribute("aria-describedby").split(" ").slice(1).join(" ");
      if (help) control.setAttribute("aria-describedby", help);
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
    return GIVEN.includes(name) || name === "token" || (config && option(name)) ? $(name) : null;
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
    const help = (at.getAttribute("aria-describedby") || "").split(" ").filter((id) => id && id !== line.id);
    at.setAttribute("aria-invalid", "true");
    at.setAttribute("aria-describedby", [line.id, ...help].join(" "));
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
      const state = await data("/api/jobs?stream=true", {
        method: "POST", body, headers: { "Content-Type": "application/json" }, signal: job.abort.signal
      });
      job.id = state.id;
      remember("job", state.id);
      say("The explanation is running.");
      if (matchMedia("(max-width: 56rem)").matches) $("progress").scrollIntoView({ block: "center" });
      ended(await follow(state, job, progress));
    } catch (error) {
      ended(null, error);
    }
  }

  /* Follow the stream of events until the job ends; reopen it where it broke. */
  async function follow(state, of, draw) {
    let tries = 0;
    draw(state);
    while (!["done", "failed", "cancelled"].includes(state.state)) {
      try {
        const response = await ask(`/api/jobs/${of.id}/events`, { signal: of.abort.signal });
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
            draw(state);
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

  function stageOf(state) {
    const waiting = state.ahead ? `Waiting, ${state.ahead} ahead` : "Waiting";
    const stage = state.state === "queued" ? waiting : state.stage;
    return stage.charAt(0).toUpperCase() + stage.slice(1);
  }

  function progress(state) {
    job.state = state;
    const { done, total, seconds } = state;
    const waiting = state.state === "queued";
    $("stage").textContent = stageOf(state);
    if (total && !waiting) $("bar").setAttribute("value", String(done / total));
    else $("bar").removeAttribute("value");
    let left = total && !waiting ? `${Math.floor((100 * done) / total)}%` : "";
    if (left && seconds > 2 && done > 0 && done < total) left += `, about ${span((seconds * (total - done)) / done)} left`;
    $("left").textContent = left;
    ranked(state.sentences);
    chip();
  }

  /* The sentences of the answer that were ranked so far; none are taken back. */
  function ranked(sentences) {
    $("sentences").hidden = !sentences.length;
    for (const { text, top } of sentences.slice($("ranked").children.length)) {
      const line = make("li", "", text);
      for (const part of top.filter((each) => each.normalized_weight >= SHOWN)) {
        line.append(make("span", "aside", `${Math.round(100 * part.normalized_weight)}% ${part.text}`));
      }
      $("ranked").append(line);
    }
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
      $("ranked").replaceChildren();
      $("sentences").hidden = true;
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
      ended(await follow(await data(`/api/jobs/${encodeURIComponent(id)}`), job, progress));
    } catch (error) {
      ended(null, error.status === 404 ? { name: "AbortError" } : error);
    }
  }

  async function runExample() {
    location.hash = "#/";
    show("explain");
    fill(config.example);
    await run(collect());
  }

  /* --- the result --- */
  function when(summary) {
    const time = make("time", "", new Date(summary.created).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" }));
    time.dateTime = summary.created;
    return time;
  }

  /* What tells a result from others; the report below it has the rest. */
  function meta(summary) {
    const facts = [
      `${summary.count.toLocaleString()} ${SIZES[summary.features]}`,
      `scored by ${summary.surrogate.join(" and ")} in ${summary.seconds.toFixed(1)} s`
    ];
    if (summary.preset !== option("preset").default) facts.push(`preset ${summary.preset}`);
    return [when(summary), ` \u00b7 ${facts.join(" \u00b7 ")}`];
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
      button.onclick = () => download(`/api/explanations/${found.summary.id}/${button.dataset.download}`);
    }
    mounted.push(window.ropelime.mount($("mount"), found.view));
  }

  async function download(path) {
    const file = path.split("/").pop();
    try {
      const response = await ask(path);
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
    return `${summary.answer.slice(0, 50)} (${summary.surrogate.join(" and ")}, ${SIZES[summary.features]}, ${new Date(summary.created).toLocaleString()})`;
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
    changes(...found);
    $("difference").textContent = found[0] && found[1] ? difference(found[0], found[1]) : "Choose two explanations to compare two answers, two surrogates or two prompts.";
  }

  /* The parts whose shares differ most; parts are the same where their text is, in their order. */
  function changes(a, b) {
    $("changes").hidden = !a || !b;
    if (!a || !b) return;
    const rows = new Map();
    [a, b].forEach((found, side) => {
      const texts = found.view.features.map(() => "");
      found.view.prompt.forEach((block) => block.pieces.forEach((piece) => {
        if (piece.feature !== null) texts[piece.feature] += piece.text;
      }));
      const seen = new Map();
      texts.forEach((text, i) => {
        const time = (seen.get(text.trim()) || 0) + 1;
        seen.set(text.trim(), time);
        const key = `${time} ${text.trim()}`;
        if (!rows.has(key)) rows.set(key, { text: text.trim(), shares: [null, null] });
        rows.get(key).shares[side] = found.view.features[i].score;
      });
    });
    const sorted = Array.from(rows.values()).sort((x, y) => Math.abs(gap(y)) - Math.abs(gap(x)));
    const percent = (share) => (share === null ? "not there" : `${Math.round(100 * share)}%`);
    $("changes-rows").replaceChildren(...sorted.slice(0, CHANGES).map((row) => {
      const head = make("th", "", make("bdi", "", row.text.length > 160 ? `${row.text.slice(0, 160)}\u2026` : row.text));
      head.scope = "row";
      const points = Math.round(100 * gap(row));
      const by = `${points > 0 ? "+" : points < 0 ? "\u2212" : ""}${Math.abs(points)} points`;
      return make("tr", "", head, ...row.shares.map((share) => make("td", "", percent(share))), make("td", "", points ? by : "same"));
    }));
    const first = [0, 1].map((side) => Array.from(rows.values()).reduce((x, y) => ((y.shares[side] || 0) > (x.shares[side] || 0) ? y : x)));
    const moved = sorted.reduce((sum, row) => sum + Math.abs(gap(row)), 0) / 2;
    const leads = first[0] === first[1] ? "The same part is first in both." : "Another part is first on the right.";
    $("changes-lead").textContent = `${leads} ${Math.round(100 * moved)}% of all weight lies on other parts.`;
  }

  function gap(row) {
    return (row.shares[1] || 0) - (row.shares[0] || 0);
  }

  function difference(a, b) {
    const sent = (r) => JSON.stringify([r.prompt, r.context, r.question, r.messages]);
    const how = (r) => JSON.stringify(panel().map((known) => r[known.name]));
    const same = {
      prompt: sent(a.request) === sent(b.request),
      answer: a.request.output === b.request.output,
      surrogate: a.summary.surrogate.join() === b.summary.surrogate.join(),
      features: JSON.stringify(a.request.features) === JSON.stringify(b.request.features),
      options: how(a.request) === how(b.request)
    };
    const names = {
      prompt: "the prompt", answer: "the answer", surrogate: "the surrogate", features: "the kind of features",
      options: "the options"
    };
    const list = (yes) => Object.keys(names).filter((key) => same[key] === yes).map((key) => names[key]);
    const words = (items) => items.join(", ").replace(/, ([^,]*)$/, " and $1");
    const all = Object.values(names).join(", ").replace(/, ([^,]*)$/, " and $1");
    if (!list(false).length) return `${all.charAt(0).toUpperCase()}${all.slice(1)} are the same in both.`;
    const differs = `${words(list(false))} ${list(false).length > 1 || !same.options ? "differ" : "differs"}`;
    const rest = list(true).length ? `; ${words(list(true))} ${list(true).length > 1 ? "are" : "is"} the same.` : ".";
    return differs.charAt(0).toUpperCase() + differs.slice(1) + rest;
  }

  /* --- the history --- */
  let older = null;
  const ticked = new Set();

  async function history(mine) {
    await find(mine);
    if (mine === visit) show("history");
  }

  /* The explanations that have the words of the search, or all. */
  let finding = 0;
  async function find(mine, number = ++finding) {
    const page = await data(`/api/explanations?limit=50&words=${encodeURIComponent($("search").value)}`);
    if (mine !== visit || number !== finding) return;
    ticked.clear();
    $("entries").replaceChildren();
    list(page);
  }

  function list(page) {
    page.items.forEach((summary) => $("entries").append(entry(summary)));
    page.damaged.forEach((id) => $("entries").append(damaged(id)));
    older = page.next;
    $("older").hidden = older === null;
    const none = $("entries").children.length === 0;
    const searched = $("search").value.trim() !== "";
    $("nothing").hidden = !none || searched;
    $("no-match").hidden = !none || !searched;
    $("find").hidden = none && !searched;
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
    const top = make("p", "top-feature", `${Math.round(100 * summary.top.normalized_weight)}% `, make("bdi", "", summary.top.text));
    const about = make("div", "", link, top, make("p", "", make("bdi", "", summary.prompt)), make("p", "", ...meta(summary)));
    return listed(`/api/explanations/${summary.id}`, summary.id, summary.answer, box, about);
  }

  /* What is damaged can only be deleted. */
  function damaged(id, kept = "explanations") {
    const words = `Entry ${id.slice(0, 8)} is damaged`;
    return listed(`/api/${kept}/${id}`, id, words, make("span"), make("div", "", make("p", "", `${words} and cannot be displayed.`)));
  }

  function listed(path, id, words, ...parts) {
    const remove = make("button", "link", "Delete");
    remove.type = "button";
    remove.setAttribute("aria-label", `Delete: ${words}`);
    const item = make("li", "entry", ...parts, remove);
    item.dataset.id = id;
    remove.addEventListener("click", () => forget(path, words, item, remove));
    return item;
  }

  /* Two presses, so that one by mistake deletes nothing. */
  async function forget(path, words, item, button) {
    if (button.dataset.sure === undefined) {
      button.dataset.sure = "";
      button.textContent = "Delete for good?";
      button.setAttribute("aria-label", `Delete for good: ${words}`);
      say("Press again to delete it for good.");
      return;
    }
    try {
      await ask(path, { method: "DELETE" });
    } catch (error) {
      if (error.status !== 404) {
        if (error.status !== 401) lost("It could not be deleted", error.message);
        return;
      }
    }
    const next = item.nextElementSibling || item.previousElementSibling;
    item.remove();
    ticked.delete(item.dataset.id);
    tick();
    say("Deleted.");
    $("nothing").hidden = $("entries").children.length > 0;
    (next ? next.querySelector("a, button") : $("runs").hidden ? $("first") : $("open-run")).focus();
  }

  function tick() {
    $("pair").disabled = ticked.size !== 2;
  }

  /* --- runs of agents --- */
  let olderRuns = null;

  async function runs(mine) {
    const page = await data("/api/runs?limit=50");
    if (mine !== visit) return;
    $("run-entries").replaceChildren();
    $("run-wrong").hidden = true;
    listRuns(page);
    show("runs");
  }

  function listRuns(page) {
    page.items.forEach((run) => {
      const link = make("a", "", make("bdi", "", run.name));
      link.href = `#/run/${run.id}`;
      const facts = make("p", "", when(run), ` \u00b7 ${run.form} \u00b7 ${run.steps.toLocaleString()} steps, ${run.models.toLocaleString()} calls of models`);
      $("run-entries").append(listed(`/api/runs/${run.id}`, run.id, run.name, make("span"), make("div", "", link, facts)));
    });
    page.damaged.forEach((id) => $("run-entries").append(damaged(id, "runs")));
    olderRuns = page.next;
    $("older-runs").hidden = olderRuns === null;
  }

  /* The text of a file; a compressed one is unpacked here, up to what the server accepts. */
  async function textOf(file) {
    let bytes = new Uint8Array(await file.arrayBuffer());
    if (bytes[0] === 0x1f && bytes[1] === 0x8b) {
      const parts = [];
      let size = 0;
      const reader = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip")).getReader();
      for (;;) {
        const { value, done } = await reader.read();
        if (done) break;
        parts.push(value);
        size += value.length;
        if (size > config.limits.request_bytes) throw new Refusal(0, { detail: `${file.name} is larger than this server accepts.` });
      }
      bytes = new Uint8Array(await new Blob(parts).arrayBuffer());
    }
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  }

  async function openRun(file) {
    const wrong = (text) => {
      $("run-wrong").textContent = text;
      $("run-wrong").hidden = false;
    };
    $("run-wrong").hidden = true;
    $("open-run").disabled = true;
    try {
      const text = await textOf(file).catch((error) => {
        if (error instanceof Refusal) throw error;
        throw new Refusal(0, { detail: `${file.name} is not UTF-8 text. Convert a log of Inspect first: inspect log convert --to json.` });
      });
      const body = JSON.stringify({ name: file.name, text });
      const size = new Blob([body]).size;
      const most = config.limits.request_bytes;
      if (size > most) wrong(`${file.name} takes ${size.toLocaleString()} bytes and this server accepts at most ${most.toLocaleString()}.`);
      else {
        const found = await data("/api/runs", { method: "POST", body, headers: { "Content-Type": "application/json" } });
        location.hash = `#/run/${found.summary.id}`;
      }
    } catch (error) {
      if (error.status !== 401) wrong(error.message);
    }
    $("open-run").disabled = false;
  }

  async function runView(id, mine) {
    const found = await data(`/api/runs/${encodeURIComponent(id)}`);
    if (mine !== visit) return;
    show("run-view");
    document.title = `${found.summary.name} \u00b7 RoPE-LIME`;
    drawRun(found);
    $("run-download").onclick = () => download(`/api/runs/${found.summary.id}/run.html`);
  }

  function drawRun(found) {
    mounted.forEach((component) => component.destroy());
    const id = found.summary.id;
    mounted = [window.ropelime.timeline($("timeline"), found.view, {
      explain: (number) => explainSteps(id, [number]),
      report: (step) => `#/e/${found.explained[step.number]}`
    })];
    const left = found.view.steps.filter((step) => step.explainable && !step.why).map((step) => step.number);
    $("all-steps").hidden = left.length < 2;
    $("all-steps").textContent = left.length === found.view.steps.filter((step) => step.explainable).length
      ? `Explain all ${left.length} steps` : `Explain the other ${left.length} steps`;
    $("all-steps").onclick = () => explainSteps(id, left);
  }

  /* One after the other; leaving the page stops it, and what is done stays. */
  async function explainSteps(id, numbers) {
    if (stepping) return;
    const mine = visit;
    stepping = { id: null, abort: new AbortController() };
    $("all-steps").disabled = true;
    try {
      for (const number of numbers) {
        if (!(await explainStep(id, number, mine)) || mine !== visit) break;
      }
    } finally {
      stepping = null;
      $("all-steps").disabled = false;
    }
  }

  async function explainStep(id, number, mine) {
    const note = document.querySelector(`#step-${number} .tl-note`);
    const stage = make("span", "", "Sending");
    const bar = make("progress");
    bar.setAttribute("aria-label", `Progress of step ${number}`);
    const stop = make("button", "button", "Cancel");
    stop.type = "button";
    stop.addEventListener("click", () => {
      stop.disabled = true;
      if (stepping && stepping.id) ask(`/api/jobs/${stepping.id}`, { method: "DELETE" }).catch(() => {});
    });
    const before = Array.from(note.childNodes);
    note.replaceChildren(make("div", "tl-progress", stage, bar, stop));
    if (document.activeElement === document.body) stop.focus();
    let error = "";
    try {
      const sent = await data(`/api/runs/${id}/steps/${number}`, {
        method: "POST", body: "{}", headers: { "Content-Type": "application/json" }, signal: stepping.abort.signal
      });
      stepping.id = sent.id;
      say(`Step ${number} is being explained.`);
      const state = await follow(sent, stepping, (now) => {
        stage.textContent = stageOf(now);
        if (now.total && now.state === "running") bar.value = now.done / now.total;
      });
      if (state.state === "failed") error = state.error;
      if (state.state === "done") {
        const found = await data(`/api/runs/${id}`);
        if (mine !== visit) return false;
        drawRun(found);
        say(`Step ${number} is explained.`);
        const at = $(`step-${number}`);
        at.tabIndex = -1;
        at.focus({ preventScroll: true });
        at.scrollIntoView({ block: "nearest" });
        return true;
      }
    } catch (failure) {
      if (failure.name !== "AbortError" && failure.status !== 401) error = failure.message;
    }
    note.replaceChildren(...before);
    if (error) {
      const line = make("p", "wrong", error);
      line.setAttribute("role", "alert");
      note.append(line);
    }
    if (mine === visit) note.querySelector("button").focus();
    return false;
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
      const before = areas().filter((area) => area.value.trim()).map(documentOf);
      setDocuments([...before, ...texts.map((text, i) => ({ text, source: files[i].name }))]);
    } else $(target).value = texts[0].replace(/\n$/, "");
    say(texts.length === 1 ? "The file is in the form." : `${texts.length} files are in the form.`);
    keep();
  }

  function dropping(area, take) {
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
      take(Array.from(event.dataTransfer.files));
    });
  }

  /* --- the beginning --- */
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
    $("surrogate").addEventListener("change", pickSurrogate);
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
    const targets = { prompt: "prompt", context: "documents", messages: "messages" };
    dropping($("sent"), (files) => open(targets[kind()], files));
    dropping($("output"), (files) => open("output", files));
    dropping($("drop"), (files) => openRun(files[0]));
    $("open-run").addEventListener("click", () => {
      $("run-file").value = "";
      $("run-file").click();
    });
    $("run-file").addEventListener("change", () => $("run-file").files.length && openRun($("run-file").files[0]));
    let typing = 0;
    $("search").addEventListener("input", () => {
      window.clearTimeout(typing);
      typing = window.setTimeout(() => find(visit).catch((error) => {
        if (error.status !== 401) lost("The history cannot be displayed", error.message);
      }), 250);
    });
    $("older-runs").addEventListener("click", async () => {
      try {
        listRuns(await data(`/api/runs?limit=50&before=${olderRuns}`));
      } catch (error) {
        if (error.status !== 401) lost("The runs cannot be displayed", error.message);
      }
    });
    $("pair").addEventListener("click", () => {
      const order = Array.from($("entries").children, (item) => item.dataset.id).filter((id) => ticked.has(id));
      location.hash = `#/compare/${order.reverse().join("/")}`; // the older one on the left
    });
    $("older").addEventListener("click", async () => {
      try {
        list(await data(`/api/explanations?limit=50&before=${older}&words=${encodeURIComponent($("search").value)}`));
      } catch (error) {
        if (error.status !== 401) lost("The history cannot be displayed", error.message);
      }
    });
    $("enter-form").addEventListener("submit", (event) => {
      event.preventDefault();
      clean();
      token = sendable($("token").value.trim());
      remember("token", token);
      $("token").value = "";
      if (token) begin();
      else blame("token", "The token is wrong.");
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
    build();
    setDocuments([]);
    turn("prompt");
    restore();
    resume();
    await go();
    started = true;
  }

  const given = /^#token=(.*)$/.exec(location.hash);
  if (given) {
    try {
      token = sendable(decodeURIComponent(given[1]));
    } catch {
      token = null; // copied badly: the page asks for it
    }
    remember("token", token);
    window.history.replaceState(null, "", "/#/");
  } else token = recall("token");
  connect();
  begin();
})();
