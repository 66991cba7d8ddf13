/* The explanation as a component: ropelime.mount(element, payload) builds it, destroy() removes it.

   ropelime.views.html.payload makes the payload. All of it is put on the page as text. The weights of a
   part of the answer are computed here, from the weights of its tokens. */
(function () {
  "use strict";

  const ROWS = 10; // of the ranking, before "Show all"
  const STOPS = 24; // more parts than this are one tab stop, and the arrow keys move between them
  const MARKED = 5; // features that carry their rank in the prompt
  const FLOWS = 200; // not in blocks of more features: a mark moves all words after it, which is slow
  const CUT = 240; // characters of a feature in the ranking
  const TICKS = 40; // features that are marked on the strip beside a long prompt
  const STEPS = 40; // of a shade
  const LEADS = 0.2; // the smallest normalised weight that the headline reports as the finding
  const LONG = 12000; // characters of a prompt from which what has no weight is folded
  const LIGHT = 0.05; // of the largest weight, in every sentence of the answer: less is folded
  const AROUND = 80; // characters on either side of a part with a weight that are never folded
  const LEAST = 240; // characters that are worth a fold
  const UNITS = { document: "chunk", spans: "part" }; // what features are called, if not by their granularity
  const MODES = ["sentence", "token"]; // what can be selected in the answer
  const NOTHING = 1e-9; // a smaller share is rounding: the feature has none
  let mounted = 0;

  function make(tag, name, ...children) {
    const element = document.createElement(tag);
    if (name) element.className = name;
    element.append(...children);
    return element;
  }

  function percent(part) {
    const value = 100 * part;
    return (value >= 9.95 || value === 0 ? value.toFixed(0) : value < 0.05 ? "<0.1" : value.toFixed(1)) + "%";
  }

  /* A chance, to whole per cent: it is not known better. */
  function chance(part) {
    return part < 0.005 ? "<1%" : part > 0.995 ? ">99%" : `${Math.round(100 * part)}%`;
  }

  function number(value) {
    const size = Math.abs(value);
    if (size === 0) return "0";
    return size >= 1000 ? size.toFixed(0) : size < 0.0005 ? size.toExponential(1) : String(+size.toPrecision(3));
  }

  function signed(value) {
    return (value < 0 ? "\u2212" : "+") + number(value);
  }

  function plain(value) {
    return (value < 0 ? "\u2212" : "") + number(value);
  }

  function cut(text, most) {
    const line = text.slice(0, 2 * most).replace(/\s+/g, " ").trim();
    return line.length > most ? line.slice(0, most).trimEnd() + "\u2026" : line;
  }

  function set(element, name, value) {
    if (element.getAttribute(name) !== value) {
      if (value === null) element.removeAttribute(name);
      else element.setAttribute(name, value);
    }
  }

  /* Shade an element by a weight between -1 and 1. Coarse steps save time: most of a thousand features
     keep their shade when another part of the answer is selected. */
  function shade(element, weight) {
    const depth = Math.round(STEPS * Math.abs(weight));
    const key = (weight < 0 ? -1 : 1) * depth;
    if (element.shaded === key) return;
    element.shaded = key;
    element.style.setProperty("--depth", String(depth / STEPS));
    set(element, "data-sign", depth === 0 ? null : weight < 0 ? "opposes" : "supports");
  }

  /* Arrow keys, Home and End move within a group; a large group is a single tab stop. */
  function group(container, items) {
    const one = items.length > STOPS;
    let current = 0;
    items.forEach((item, i) => item.setAttribute("tabindex", one && i !== 0 ? "-1" : "0"));
    function enter(i) {
      if (one) {
        items[current].setAttribute("tabindex", "-1");
        items[i].setAttribute("tabindex", "0");
      }
      current = i;
    }
    const places = new Map(items.map((item, i) => [item, i]));
    const focus = (event) => places.has(event.target) && enter(places.get(event.target));
    const press = (event) => {
      if (!places.has(event.target)) return;
      const i = places.get(event.target);
      const step = { ArrowRight: i + 1, ArrowDown: i + 1, ArrowLeft: i - 1, ArrowUp: i - 1, Home: 0 };
      const to = event.key === "End" ? items.length - 1 : step[event.key];
      if (to === undefined) return;
      event.preventDefault();
      const item = items[Math.max(0, Math.min(items.length - 1, to))];
      item.setAttribute("tabindex", "0");
      item.focus();
    };
    container.addEventListener("focusin", focus);
    container.addEventListener("keydown", press);
    return () => {
      container.removeEventListener("focusin", focus);
      container.removeEventListener("keydown", press);
    };
  }

  function mount(host, data) {
    const id = `ropelime-${++mounted}`;
    const features = data.features;
    const n = features.length;
    const tokens = n ? data.token_weights[0].length : 0;
    const texts = new Array(n).fill("");
    data.prompt.forEach((block) => block.pieces.forEach((piece) => {
      if (piece.feature !== null) texts[piece.feature] += piece.text;
    }));

    /* sums[t * n + i]: the weight of feature i over the tokens before t; a part is a difference of two. */
    const sums = new Float64Array((tokens + 1) * n);
    let largestOfToken = 0;
    for (let i = 0; i < n; i++) {
      const own = data.token_weights[i];
      for (let t = 0; t < tokens; t++) {
        sums[(t + 1) * n + i] = sums[t * n + i] + own[t];
        largestOfToken = Math.max(largestOfToken, Math.abs(own[t]));
      }
    }

    /* Only the whole answer has shared ranks: they come from intervals, which its parts do not have. */
    function ranked(weights, scores, places, known) {
      const order = known || Array.from(weights, (_, i) => i).sort((a, b) => scores[b] - scores[a] || a - b);
      const rank = new Array(n);
      order.forEach((i, place) => (rank[i] = place + 1));
      const largest = weights.reduce((most, weight) => Math.max(most, Math.abs(weight)), 0);
      const shares = Array.from(weights, (weight, i) => weight !== 0 && scores[i] > NOTHING);
      return { weights, scores, shares, order, rank, largest, place: places || rank.map(String) };
    }

    const whole = ranked(
      features.map((f) => f.weight), features.map((f) => f.score), features.map((f) => f.rank), data.order
    );
    const spoken = (place) => (place.endsWith("=") ? `shared rank ${place.slice(0, -1)}` : `rank ${place}`);

    function ofTokens(first, last) {
      const weights = new Float64Array(n);
      const by = data.mean ? last - first : 1;
      let total = 0;
      for (let i = 0; i < n; i++) {
        weights[i] = (sums[last * n + i] - sums[first * n + i]) / by;
        total += Math.abs(weights[i]);
      }
      return ranked(weights, Array.from(weights, (w) => (total > 0 ? Math.abs(w) / total : 1 / n)));
    }

    /* One of several, as a row of labels. */
    function choice(legend, labels, pick) {
      const box = make("fieldset", "rl-modes", make("legend", "rl-hidden", legend));
      const radios = labels.map((text, i) => {
        const radio = make("input");
        radio.type = "radio";
        radio.name = `${id}-${legend}`;
        radio.id = `${id}-${text}`;
        radio.addEventListener("change", () => pick(i));
        const label = make("label", "", text);
        label.htmlFor = radio.id;
        box.append(radio, label);
        return radio;
      });
      return { box, radios };
    }

    /* Whether a sentence of the answer comes from the prompt, in words. */
    const grounding = data.answer.grounding;
    const missing = grounding.filter((each) => !each.grounded).length;
    function origin({ probability, grounded }) {
      return `${grounded ? "" : "No source \u00b7 "}Comes from the prompt: ${chance(probability)}`;
    }
    function origins() {
      const many = grounding.length;
      if (many === 0) return "";
      if (missing === 0) return many === 1 ? "It comes from the prompt." : `${many === 2 ? "Both" : `All ${many}`} sentences come from the prompt.`;
      if (missing === many) return many === 1 ? "It has no source in the prompt." : `None of its ${many} sentences has a source in the prompt.`;
      return `${missing} of ${many} sentences ${missing === 1 ? "has" : "have"} no source in the prompt.`;
    }

    const root = make("div", "ropelime");

    /* --- the head: the finding in one sentence, and whether to trust it --- */
    const first = whole.order[0];
    const quote = make("q", "", cut(texts[first], 160));
    quote.setAttribute("dir", "auto");
    const size = make("strong", "", percent(whole.scores[first]));
    const lead = make("p", "rl-lead");
    if (data.verified && data.verified.seen) lead.append("Without ", quote, ` ${data.verified.model} answers differently.`);
    else if (whole.largest === 0) lead.append("Every part of the prompt has zero weight.");
    else if (missing > 0 && missing === grounding.length) lead.append("No source for this answer was found in the prompt.");
    else if (whole.scores[first] < LEADS) lead.append("No single part stands out: ", quote, " has ", size, " of all weight.");
    else if (whole.weights[first] < 0) lead.append(quote, " opposes it, with ", size, " of all weight.");
    else lead.append(quote, " carries ", size, " of it.");
    const verdict = make("a", data.warnings.length ? "rl-verdict rl-verdict-warn" : "rl-verdict");
    verdict.href = `#${id}-trust`;
    const count = data.warnings.length;
    verdict.append(count === 0 ? "No warnings" : count === 1 ? "1 warning" : `${count} warnings`);
    if (data.trust) verdict.prepend(`Trust ${chance(data.trust.value)} \u00b7 `);
    const head = make("div", "rl-head", lead, verdict);

    /* --- the prompt --- */
    const pieces = Array.from({ length: n }, () => []); // a feature can span several blocks
    const marks = new Array(n);
    const foldOf = new Array(n); // the fold that a feature is in, until that is unfolded
    const folds = [];
    const prompt = make("div");
    const size_of = (some) => some.reduce((sum, piece) => sum + piece.text.length, 0);
    const light = data.prompt.reduce((sum, block) => sum + size_of(block.pieces), 0) > LONG ? lightest() : null;

    /* Which features have hardly a weight: neither in the whole answer nor in one of its sentences. */
    function lightest() {
      const found = new Uint8Array(n).fill(1);
      const views = data.answer.sentences.map(([a, b]) => (i) => Math.abs(sums[b * n + i] - sums[a * n + i]));
      for (const weigh of [(i) => Math.abs(whole.weights[i]), ...views]) {
        let most = 0;
        for (let i = 0; i < n; i++) most = Math.max(most, weigh(i));
        for (let i = 0; most > 0 && i < n; i++) if (weigh(i) >= LIGHT * most) found[i] = 0;
      }
      whole.order.slice(0, ROWS).forEach((i) => whole.shares[i] && (found[i] = 0));
      return found;
    }

    function write(text, piece, flows) {
      const font = piece.code ? " rl-code" : "";
      const space = piece.code ? (white) => make("span", "rl-code", white) : (white) => white;
      if (piece.feature === null) {
        text.append(make("span", `rl-pinned${font}`, piece.text));
        return;
      }
      const body = piece.text.trim();
      if (!body) {
        text.append(piece.text);
        return;
      }
      const from = piece.text.indexOf(body);
      const span = make("span", `rl-feature${font}`, body);
      span.setAttribute("role", "button");
      span.setAttribute("aria-pressed", "false");
      span.dataset.feature = piece.feature;
      pieces[piece.feature].push(span);
      marks[piece.feature] = flows;
      text.append(space(piece.text.slice(0, from)), span, space(piece.text.slice(from + body.length)));
    }

    /* The pieces of a block in runs that are folded or not; pinned text stays with the run before it. */
    function runs(block) {
      const some = block.pieces;
      const open = some.map((piece) => !light || (piece.feature !== null && !light[piece.feature]));
      if (!some.some((piece) => piece.feature !== null)) open.fill(true);
      const heavy = open.slice();
      for (const [from, step] of [[0, 1], [some.length - 1, -1]]) {
        for (let i = from, room = 0; i >= 0 && i < some.length; i += step) {
          if (room > 0) open[i] = true;
          room = heavy[i] ? AROUND : room - some[i].text.length;
        }
      }
      const found = [];
      some.forEach((piece, i) => {
        const last = found[found.length - 1];
        if (last && last.open === open[i]) last.pieces.push(piece);
        else found.push({ open: open[i], pieces: [piece] });
      });
      found.forEach((run) => (run.open = run.open || (found.length > 1 && size_of(run.pieces) < LEAST)));
      return found;
    }

    /* "12 sentences without weight"; a feature may be in several pieces. */
    function weightless(some) {
      const inside = new Set(some.map((piece) => piece.feature).filter((i) => i !== null));
      const share = [...inside].reduce((sum, i) => sum + (whole.shares[i] ? whole.scores[i] : 0), 0);
      const unit = UNITS[data.granularity] || data.granularity || "part";
      const many = `${inside.size.toLocaleString("en")} ${unit}${inside.size === 1 ? "" : "s"}`;
      return `${many} ${share > 0 ? `with ${percent(share)} of all weight` : "without weight"}`;
    }

    /* Folded text is one node, which the browser's search finds and opens; its parts are made when somebody
       wants to use them, and not by the search, whose match would be lost. */
    function folded(place) {
      const summary = make("summary");
      const details = make("details", "rl-folded", summary);
      const held = { details, texts: [], count: 0, pieces: [] };
      summary.addEventListener("click", () => unfold(held));
      details.addEventListener("pointerdown", () => details.open && unfold(held));
      details.addEventListener("toggle", () => regroup());
      folds.push(held);
      place.append(details);
      return held;
    }
    function into(held, text, some, flows) {
      held.texts.push([text, some, flows]);
      held.pieces.push(...some);
      some.forEach((piece) => piece.feature !== null && (foldOf[piece.feature] = held));
      text.textContent = some.map((piece) => piece.text).join("");
    }
    function unfold(held) {
      if (!held.texts) return;
      const made = held.texts;
      held.texts = null;
      for (const [text, some, flows] of made) {
        text.textContent = "";
        some.forEach((piece) => {
          write(text, piece, flows);
          foldOf[piece.feature] = undefined;
        });
      }
      drawPrompt();
      regroup();
    }

    let closed = null; // a fold of whole blocks, which those that follow join
    for (const block of data.prompt) {
      const box = make("div", "rl-block");
      const flows = block.pieces.length <= FLOWS;
      if (block.label) {
        const label = make("p", "rl-label", block.label);
        label.setAttribute("dir", "auto");
        box.append(label);
      }
      const cuts = runs(block);
      const text = make("div", "rl-words");
      text.setAttribute("dir", "auto");
      box.append(text);
      if (cuts.length === 1 && !cuts[0].open) {
        closed = closed || folded(prompt);
        closed.count += 1;
        closed.details.append(box);
        into(closed, text, block.pieces, flows);
        continue;
      }
      closed = null;
      for (const run of cuts) {
        if (run.open) run.pieces.forEach((piece) => write(text, piece, flows));
        else into(folded(text), text.lastChild.appendChild(make("div")), run.pieces, flows);
      }
      prompt.append(box);
    }
    for (const held of folds) {
      const many = held.count > 1 ? `${held.count.toLocaleString("en")} blocks, ` : "";
      held.details.firstChild.textContent = `\u22ef ${many}${weightless(held.pieces)}`;
    }
    const legend = make("p", "rl-legend");
    const samples = data.signs
      ? [["supports", "+ supports the answer"], ["opposes", "\u2212 opposes it"]]
      : [["supports", "supports the answer"]];
    for (const [sign, word] of samples) {
      const sample = make("span", "rl-sample", word);
      sample.dataset.sign = sign;
      legend.append(sample);
    }
    const promptTitle = make("h2", "", "Prompt");
    promptTitle.id = `${id}-prompt`;
    const strip = make("div", "rl-strip");
    strip.setAttribute("aria-hidden", "true"); // the ranking has the same content
    const ticks = [];
    while (n > STOPS && ticks.length < TICKS) ticks.push(strip.appendChild(make("span", "rl-tick")));
    const middles = []; // where each feature lies in the prompt, between 0 and 1
    const length = data.prompt.reduce((sum, block) => {
      block.pieces.forEach((piece) => {
        if (piece.feature !== null) middles[piece.feature] = sum + piece.text.length / 2;
        sum += piece.text.length;
      });
      return sum;
    }, 0);
    const unfoldAll = make("button", "rl-unfold", "Unfold all");
    unfoldAll.type = "button";
    unfoldAll.hidden = folds.length === 0;
    unfoldAll.addEventListener("click", () => {
      const open = folds.some((held) => !held.details.open);
      folds.forEach((held) => (held.details.open = open) && unfold(held));
      unfoldAll.textContent = open ? "Fold" : "Unfold all";
    });
    const promptBox = make(
      "section", "rl-card rl-prompt", make("div", "rl-bar", promptTitle, legend, unfoldAll),
      ticks.length ? make("div", "rl-long", prompt, strip) : prompt
    );
    promptBox.setAttribute("aria-labelledby", promptTitle.id);
    promptTitle.after(make(
      "p", "rl-hidden", "Arrow keys move between parts, Enter pins one or unfolds, Escape releases it."
    ));

    /* --- the answer --- */
    const answer = make("p", "rl-words rl-answer-text");
    answer.setAttribute("dir", "auto");
    const tokenSpans = [];
    const sentenceSpans = data.answer.sentences.map(([a, b], i) => {
      const span = make("span", "rl-sentence");
      span.dataset.part = `${a},${b}`;
      span.dataset.source = grounding[i].grounded ? "found" : "none";
      span.title = origin(grounding[i]);
      return span;
    });
    let sentence = 0;
    for (const piece of data.answer.pieces) {
      const font = piece.code ? " rl-code" : "";
      if (!piece.tokens) {
        answer.append(make("span", `rl-pinned${font}`, piece.text));
        continue;
      }
      const [a, b] = piece.tokens;
      const body = piece.text.trim();
      const from = body ? piece.text.indexOf(body) : 0;
      const span = make("span", `rl-token${font}`, body || piece.text);
      span.dataset.part = `${a},${b}`;
      tokenSpans.push(span);
      while (sentence < sentenceSpans.length && data.answer.sentences[sentence][1] <= a) sentence++;
      const inside = sentence < sentenceSpans.length && data.answer.sentences[sentence][0] <= a;
      const place = inside ? sentenceSpans[sentence] : answer;
      const before = body ? piece.text.slice(0, from) : "";
      if (inside && !place.parentNode) answer.append(before, place);
      else place.append(before);
      place.append(span, body ? piece.text.slice(from + body.length) : "");
    }
    /* A label of its own would be part of the sentence's text. */
    sentenceSpans.forEach((span) => {
      if (!span.parentNode) return;
      const found = span.dataset.source === "found";
      const label = make("span", "rl-source", found ? "\u2713" : "no source");
      label.dataset.source = span.dataset.source;
      label.title = span.title;
      if (found) label.setAttribute("aria-hidden", "true"); // the description of the sentence says it
      span.after("\u00a0", label);
    });
    const words = { sentence: sentenceSpans.filter((s) => s.parentNode), token: tokenSpans };
    const modes = choice("What to select in the answer", ["Sentences", "Tokens"], (i) => choose(MODES[i]));
    const answerTitle = make("h2", "", "Answer");
    answerTitle.id = `${id}-answer`;
    const shown = make("p", "rl-shown");
    const from = make("p", "rl-origin");
    const clear = make("button", "rl-clear", "Clear");
    clear.type = "button";
    const answerBox = make(
      "section", "rl-card rl-answer", make("div", "rl-bar", answerTitle, modes.box), answer,
      make("div", "rl-foot", make("div", "rl-about", from, shown), clear)
    );
    answerBox.setAttribute("aria-labelledby", answerTitle.id);

    /* --- one feature --- */
    const big = make("span", "rl-big");
    const what = make("span", "rl-what");
    const range = make("p", "rl-figures rl-range");
    const figures = make("p", "rl-figures");
    const signals = make("p", "rl-figures rl-signals");
    const computed = make("details", "rl-figures rl-computed", make("summary", "", "Figures"), figures, signals);
    const excerpt = make("p", "rl-excerpt");
    excerpt.setAttribute("dir", "auto");
    const detail = make("div", "rl-card rl-detail", make("p", "rl-detail-head", big, what), range, excerpt, computed);

    /* --- the ranking --- */
    const list = make("ol", "rl-ranking");
    const rows = [];
    const more = make("button", "rl-more");
    more.type = "button";
    let all = false;
    const rankingTitle = make("h2", "", "Ranking");
    rankingTitle.id = `${id}-ranking`;
    let summed = false; // whether documents or messages are ranked, not their parts
    const by = choice("What to rank", ["Parts", data.groups.title], (i) => {
      summed = i === 1;
      all = false;
      drawRanking();
      drawMarks();
    });
    by.radios[0].checked = true;
    const rankingBar = make("div", "rl-bar", rankingTitle, data.groups.sums.length > 1 ? by.box : "");
    const rankingBox = make("section", "rl-card rl-rank", rankingBar, list, more);
    rankingBox.setAttribute("aria-labelledby", rankingTitle.id);

    function row() {
      const parts = {};
      for (const name of ["rank", "percent", "sign", "words", "says"]) parts[name] = make("span", `rl-row-${name}`);
      parts.words.setAttribute("dir", "auto");
      parts.says.className = "rl-hidden";
      parts.figure = make("span", "", parts.says, parts.sign, parts.percent);
      parts.fill = make("span", "rl-fill");
      parts.whisker = make("span", "rl-whisker");
      const track = make("span", "rl-track", parts.fill, parts.whisker);
      for (const part of [parts.rank, parts.sign, track]) part.setAttribute("aria-hidden", "true");
      parts.button = make("button", "rl-row", parts.rank, parts.words, parts.figure, track);
      parts.button.type = "button";
      list.append(make("li", "", parts.button));
      return parts;
    }

    /* --- how far to trust it, and the fold --- */
    const trustTitle = make("h2", "", "How far to trust it");
    trustTitle.id = `${id}-trust`;
    const trust = make("section", "rl-card rl-trust", trustTitle);
    trust.setAttribute("aria-labelledby", trustTitle.id);
    function meter(size) {
      const bar = make("span", "rl-meter");
      bar.style.setProperty("--size", String(size));
      bar.setAttribute("aria-hidden", "true");
      return bar;
    }
    if (data.trust && data.trust.verdicts.length) {
      const verdicts = make("ul", "rl-verdicts");
      for (const { title, probability, text } of data.trust.verdicts) {
        const judged = make("span", "rl-judged", title, make("span", "rl-hidden", ": "));
        const likely = make("span", "rl-chance", make("strong", "", chance(probability)), meter(probability));
        verdicts.append(make("li", "", judged, likely, make("span", "rl-says", text)));
      }
      const least = data.trust.verdicts.find((each) => each.probability === data.trust.value);
      const from = least ? `, from \u201c${least.title}\u201d.` : `. ${data.trust.text}`;
      trust.append(make("p", "rl-summary", "Trust ", make("strong", "", chance(data.trust.value)), from), verdicts);
    } else if (data.trust) { // of several surrogates, or of an older release
      const size = data.trust.value;
      trust.append(make("p", "rl-trust-line", make("strong", "", chance(size)), meter(size), data.trust.text));
    }
    if (data.verified) {
      const calls = make("dl", "rl-facts");
      for (const call of data.verified.calls) {
        const answer = make("dd", "", cut(call.after, CUT));
        answer.setAttribute("dir", "auto");
        calls.append(make("div", "", make("dt", "", call.sent), make("dd", "rl-value", call.outcome), answer));
      }
      trust.append(make("p", "rl-fine", data.verified.title), calls);
    }
    if (data.warnings.length) {
      trust.append(make("ul", "rl-warnings", ...data.warnings.map((text) => make("li", "", text))));
    } else {
      trust.append(make("p", "rl-fine", "No check raised a warning."));
    }
    if (data.findings.length) trust.append(make("ul", "rl-findings", ...data.findings.map((text) => make("li", "", text))));
    trust.append(make("p", "rl-caveat", "Measured with a small open model, the surrogate: evidence about the model that gave the answer, not proof."));
    const facts = make("dl", "rl-facts");
    for (const [name, value, meaning] of data.diagnostics) {
      facts.append(make("div", "", make("dt", "", name), make("dd", "rl-value", value), make("dd", "", meaning)));
    }
    const fold = make("details", "rl-card rl-fold", make("summary", "", "Diagnostics, cost and configuration"), facts);
    if (data.notes.length) fold.append(make("ul", "rl-notes", ...data.notes.map((text) => make("li", "", text))));
    for (const table of [data.cost, data.config]) {
      const entries = make("dl", "rl-table");
      for (const [name, value] of table) entries.append(make("div", "", make("dt", "", name), make("dd", "", value)));
      fold.append(entries);
    }

    const says = make("p", "rl-hidden");
    says.setAttribute("role", "status");
    const main = make("div", "rl-main", promptBox, trust, fold);
    const side = make("div", "rl-side", answerBox, detail, rankingBox);
    root.append(head, make("div", "rl-grid", main, side), says);
    host.append(root);

    /* --- the selection: pointing wins over focus, and focus over what was clicked --- */
    const parts = { point: null, focus: null, pin: null };
    const chosen = { point: null, focus: null, pin: null };
    const selected = (state) => state.point ?? state.focus ?? state.pin;
    let part; // "first,last" of the output tokens that the prompt is shaded for; null is all
    let feature;
    let view = whole;
    let frame = 0;
    let timer = 0;
    let leave = () => {};
    let leaveRows = () => {};
    let leavePrompt = () => {};
    let lit = []; // elements that are outlined because their feature is selected
    let pressed = null;

    function choose(mode) {
      leave();
      parts.point = parts.focus = parts.pin = null;
      modes.radios[MODES.indexOf(mode)].checked = true;
      for (const name of MODES) {
        for (const span of words[name]) {
          for (const key of ["role", "tabindex", "aria-pressed"]) span.removeAttribute(key);
        }
      }
      for (const span of words[mode]) {
        span.setAttribute("role", "button");
        span.setAttribute("aria-pressed", "false");
      }
      answer.dataset.mode = mode;
      part = undefined; // what is said about it depends on the mode
      leave = words[mode].length ? group(answer, words[mode]) : () => {};
      later();
    }

    function later() {
      if (!frame) frame = requestAnimationFrame(draw);
    }

    function draw() {
      frame = 0;
      const newPart = selected(parts);
      const newFeature = selected(chosen);
      if (newPart !== part) {
        part = newPart;
        view = part === null ? whole : ofTokens(...part.split(",").map(Number));
        drawPrompt();
        drawRanking();
        drawPart();
      }
      if (newFeature !== feature) {
        feature = newFeature;
        drawTokens();
      }
      drawMarks();
      drawDetail();
      window.clearTimeout(timer);
      timer = window.setTimeout(() => say(), 150);
    }

    function drawPrompt() {
      for (let i = 0; i < n; i++) {
        const depth = view.largest > 0 ? view.weights[i] / view.largest : 0;
        const marked = marks[i] && view.rank[i] <= MARKED && view.shares[i];
        for (const span of pieces[i]) {
          shade(span, depth);
          set(span, "data-rank", marked ? view.place[i] : null);
        }
      }
      ticks.forEach((tick, place) => {
        const i = view.order[place];
        shade(tick, view.largest > 0 ? view.weights[i] / view.largest : 0);
        tick.style.setProperty("--at", (middles[i] / length).toFixed(4));
      });
    }

    function partText() {
      const [a, b] = part.split(",").map(Number);
      const inside = data.answer.pieces.filter((p) => p.tokens && p.tokens[0] < b && p.tokens[1] > a);
      return cut(inside.map((p) => p.text).join(""), 80) || "white space";
    }

    /* What is known of the sentence that a part of the answer lies in. */
    function partOrigin() {
      const [a] = part.split(",").map(Number);
      const at = data.answer.sentences.findIndex(([start, end]) => start <= a && a < end);
      return at < 0 ? "" : origin(grounding[at]);
    }

    function drawPart() {
      from.textContent = part === null ? origins() : partOrigin();
      shown.replaceChildren();
      if (part === null) shown.append(`Choose a ${answer.dataset.mode} to see what carried it.`);
      else {
        const quoted = make("q", "", partText());
        quoted.setAttribute("dir", "auto");
        shown.append("Shaded for ", quoted);
      }
      for (const span of words[answer.dataset.mode]) {
        set(span, "data-on", span.dataset.part === part ? "" : null);
      }
    }

    function drawTokens() {
      for (const span of tokenSpans) {
        if (feature === null || largestOfToken === 0) shade(span, 0);
        else {
          const [a, b] = span.dataset.part.split(",").map(Number);
          shade(span, (sums[b * n + feature] - sums[a * n + feature]) / (b - a) / largestOfToken);
        }
      }
    }

    function drawMarks() {
      for (const span of words[answer.dataset.mode]) {
        set(span, "aria-pressed", String(span.dataset.part === parts.pin));
      }
      clear.hidden = parts.pin === null && chosen.pin === null;
      lit.forEach((element) => set(element, "data-on", null));
      lit = [];
      if (feature !== null) {
        lit.push(...pieces[feature]);
        const own = rows.find((at) => at.button.dataset.feature === String(feature));
        if (own) lit.push(own.button);
      }
      lit.forEach((element) => set(element, "data-on", ""));
      const press = (value) => pressed !== null && pieces[pressed].forEach((e) => set(e, "aria-pressed", value));
      press("false");
      pressed = chosen.pin;
      press("true");
    }

    /* The description of one feature; intervals and signals exist for the whole answer only. */
    function account(i) {
      const weight = view.weights[i];
      const side = weight < 0 ? "opposes" : "supports";
      const object = part === null ? "the answer" : "this part";
      const lines = [data.signs ? `weight ${signed(weight)} ${data.unit}` : `weight ${number(weight)} (${data.unit})`];
      const { interval, score_interval: normalised } = features[i];
      if (part === null && interval && data.signs) lines.push(`90% interval ${plain(interval[0])} to ${plain(interval[1])}`);
      const ends = part === null && normalised ? `90% interval ${percent(normalised[0])} to ${percent(normalised[1])}` : "";
      const own = part === null ? Object.entries(data.signals) : [];
      return {
        size: view.shares[i] ? percent(view.scores[i]) : "\u2013",
        signals: own.map(([name, sizes]) => `${name} ${percent(sizes[i])}`),
        what: view.shares[i]
          ? `${side} ${object} \u00b7 ${spoken(view.place[i])} of ${n.toLocaleString("en")}`
          : `no share in ${object}`,
        ends,
        lines
      };
    }

    /* The selected feature, or the first of the ranking. */
    function drawDetail() {
      const i = feature ?? view.order[0];
      const { size, what: text, ends, lines, signals: own } = account(i);
      big.textContent = size;
      what.textContent = text;
      range.textContent = ends || "\u00a0"; // of one height, so that nothing below moves
      figures.textContent = lines.join(" \u00b7 ");
      signals.textContent = own.join(" \u00b7 ");
      signals.hidden = own.length === 0;
      excerpt.textContent = cut(texts[i], CUT);
      set(detail, "data-sign", view.weights[i] < 0 ? "opposes" : "supports");
    }

    /* The documents or messages, each with the sum over its parts. */
    function groups() {
      const sum = ({ features: own }) => own.reduce((all, i) => all + view.scores[i], 0);
      const found = data.groups.sums.map((each) => ({ ...each, score: sum(each) })).sort((a, b) => b.score - a.score);
      return found.map((each, place) => ({
        text: each.label, score: each.score, shared: each.score > NOTHING, sign: "supports", signed: false,
        place: String(place + 1), feature: each.features.reduce((a, b) => (view.scores[b] > view.scores[a] ? b : a)), ends: null
      }));
    }

    function entry(i) {
      return {
        text: texts[i], score: view.scores[i], shared: view.shares[i], sign: view.weights[i] < 0 ? "opposes" : "supports",
        signed: data.signs, place: view.place[i], feature: i, ends: part === null ? features[i].score_interval : null
      };
    }

    function drawRanking() {
      const entries = summed ? groups() : view.order.map(entry);
      const many = all ? entries.length : Math.min(ROWS, entries.length);
      if (rows.length !== many) {
        while (rows.length < many) rows.push(row());
        while (rows.length > many) rows.pop().button.parentNode.remove();
        leaveRows();
        leaveRows = group(list, rows.map((at) => at.button));
      }
      const sizes = entries.map((each) => Math.max(each.score, each.ends ? each.ends[1] : 0));
      const top = sizes.reduce((most, size) => Math.max(most, size), 1e-12);
      rows.forEach((at, place) => {
        const { text, score, shared, sign, signed, place: rank, feature: i, ends } = entries[place];
        at.button.dataset.feature = i;
        at.button.dataset.sign = sign;
        at.rank.textContent = rank;
        at.percent.textContent = shared ? percent(score) : "no share";
        set(at.button, "data-share", shared ? null : "none");
        at.sign.textContent = !shared || !signed ? "" : sign === "opposes" ? "\u2212" : "+";
        at.says.textContent = `, ${spoken(rank)}, ${shared && !summed ? `${sign}, ` : ""}`;
        at.words.textContent = cut(text, CUT);
        at.fill.hidden = !shared;
        at.fill.style.setProperty("--size", (score / top).toFixed(4));
        at.whisker.hidden = !ends || ends[1] <= NOTHING;
        if (ends) {
          at.whisker.style.setProperty("--low", (ends[0] / top).toFixed(4));
          at.whisker.style.setProperty("--high", (ends[1] / top).toFixed(4));
        }
      });
      more.hidden = entries.length <= ROWS;
      const none = entries.filter((each) => !each.shared).length;
      const without = none ? `; ${none.toLocaleString("en")} of them ${none === 1 ? "has" : "have"} no share` : "";
      more.textContent = all ? `Show the first ${ROWS}` : `Show all ${entries.length.toLocaleString("en")}${without}`;
    }

    let said = "";
    function say() {
      let text = "";
      if (feature !== null) {
        const { size, what: words, ends, lines, signals: own } = account(feature);
        text = [size, words, ends, ...(computed.open ? [...lines, ...own] : [])].filter(Boolean).join(", ");
      } else if (part !== null) {
        const top = view.order.slice(0, 3).filter((i) => view.shares[i]).map((i) => `${percent(view.scores[i])} ${cut(texts[i], 60)}`);
        text = `For \u201c${partText()}\u201d: ${[partOrigin(), ...top].filter(Boolean).join("; ")}`;
      }
      if (text !== said) says.textContent = said = text;
    }

    /* --- events: one listener of each kind for a whole group --- */
    function follow(container, selector, state, value) {
      const found = (event) => {
        const at = event.target.closest ? event.target.closest(selector) : null;
        return at && container.contains(at) ? value(at) : null;
      };
      const to = (key, result) => {
        if (state[key] !== result) {
          state[key] = result;
          later();
        }
      };
      container.addEventListener("pointerover", (e) => e.pointerType !== "touch" && to("point", found(e)));
      container.addEventListener("pointerleave", (e) => to("point", null));
      container.addEventListener("focusin", (e) => e.target.matches(":focus-visible") && to("focus", found(e)));
      container.addEventListener("focusout", (e) => to("focus", null));
      container.addEventListener("click", (e) => {
        const at = found(e);
        if (at !== null) to("pin", state.pin === at ? null : at);
      });
      container.addEventListener("keydown", (e) => {
        if (e.target.getAttribute("role") === "button" && (e.key === "Enter" || e.key === " ")) {
          e.preventDefault();
          e.target.click();
        }
      });
    }

    follow(prompt, ".rl-feature", chosen, (at) => Number(at.dataset.feature));
    follow(list, ".rl-row", chosen, (at) => Number(at.dataset.feature));
    follow(answer, "[data-part][role]", parts, (at) => at.dataset.part);
    /* A clicked feature may be far up or down a long prompt. */
    function reveal(i) {
      if (foldOf[i]) unfold(foldOf[i]);
      for (let at = pieces[i][0].parentNode; at !== prompt; at = at.parentNode) if (at.tagName === "DETAILS") at.open = true;
      const { top, bottom } = pieces[i][0].getBoundingClientRect();
      if (top < 0 || bottom > window.innerHeight) pieces[i][0].scrollIntoView({ block: "center" });
    }
    list.addEventListener("click", () => chosen.pin !== null && reveal(chosen.pin));
    answer.addEventListener("click", () => {
      if (parts.pin === null) return;
      cancelAnimationFrame(frame);
      draw();
      reveal(view.order[0]);
    });
    strip.addEventListener("click", (event) => {
      const box = strip.getBoundingClientRect();
      const at = ((event.clientY - box.top) / box.height) * length;
      const near = (best, middle, i) => (Math.abs(middle - at) < Math.abs(middles[best] - at) ? i : best);
      reveal(middles.reduce(near, 0));
    });
    function reset() {
      parts.pin = chosen.pin = parts.point = chosen.point = null;
      later();
    }
    clear.addEventListener("click", reset);
    root.addEventListener("keydown", (event) => event.key === "Escape" && reset());
    more.addEventListener("click", () => {
      all = !all;
      drawRanking();
      drawMarks();
    });

    /* A closed fold would be missing in print. */
    const wasOpen = () => ((fold.dataset.open = String(fold.open)), (fold.open = true));
    const asBefore = () => (fold.open = fold.dataset.open === "true");
    computed.addEventListener("toggle", () => later());
    window.addEventListener("beforeprint", wasOpen);
    window.addEventListener("afterprint", asBefore);

    /* What is in a closed fold cannot be reached by keys; its line can. */
    function regroup() {
      leavePrompt();
      const all = [...prompt.querySelectorAll(".rl-feature, summary")];
      const away = (item) => item.tagName !== "SUMMARY" && item.closest("details:not([open])");
      leavePrompt = group(prompt, all.filter((item) => !away(item)));
    }
    regroup();
    choose(words.sentence.length > 1 ? "sentence" : "token");
    cancelAnimationFrame(frame);
    draw();

    return {
      destroy() {
        cancelAnimationFrame(frame);
        window.clearTimeout(timer);
        window.removeEventListener("beforeprint", wasOpen);
        window.removeEventListener("afterprint", asBefore);
        root.remove();
      }
    };
  }

  window.ropelime = Object.assign(window.ropelime || {}, { mount });
})();
