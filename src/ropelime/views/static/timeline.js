/* A run of an agent as a component: ropelime.timeline(element, data, options) builds it, destroy() removes it.

   ropelime.views.timeline makes the data. All of it is put on the page as text. options.explain(step, place)
   is called for a step that is not explained yet; options.report(step) gives the address of its report. */
(function () {
  "use strict";

  const LONG = 320; // characters of an output that are shown before it is opened
  const NAMED = 0.04; // the smallest share that is written behind a part
  const SMALL = 0.02; // influences below are folded, where there are several
  const HOPS = 8; // steps that an action is traced back through
  const STEPS = 40; // of a shade
  const KINDS = { model: "Model", tool: "Tool", retrieval: "Retrieval", agent: "Agent", other: "Step" };
  const ROLES = { system: "System prompt", user: "User", assistant: "Its own words", tool: "Tool output" };

  function make(tag, name, ...children) {
    const element = document.createElement(tag);
    if (name) element.className = name;
    element.append(...children);
    return element;
  }

  function words(name, text) {
    const element = make("span", name, text);
    element.setAttribute("dir", "auto");
    return element;
  }

  function percent(part) {
    return part > 0 && part < 0.005 ? "<1%" : `${Math.round(100 * part)}%`;
  }

  function count(number, noun) {
    return `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;
  }

  function timeline(host, data, options = {}) {
    const steps = new Map(data.steps.map((step) => [step.number, step]));
    const root = make("div", "ropelime tl");

    /* --- the head: how many actions a tool's output caused, and what was read --- */
    function link(number, text) {
      const anchor = make("a", "", text || `step ${number}`);
      anchor.href = `#step-${number}`;
      return anchor;
    }

    function listed(numbers) {
      return numbers.flatMap((number, i) => [i === 0 ? "" : i === numbers.length - 1 ? " and " : ", ", link(number)]);
    }

    function lead() {
      const made = data.steps.flatMap((step) => (step.why ? step.why.decisions.map((each) => [step.number, each.verdict]) : []));
      const of = (verdict) => made.filter(([, each]) => each === verdict);
      const line = make("p", "rl-lead");
      const all = made.length === 1 ? "The explained action" : `All ${made.length} explained actions`;
      const were = made.length === 1 ? "was" : "were";
      if (!made.length) line.append("No step is explained yet.");
      else if (of("tool").length) {
        const many = of("tool").length;
        const where = Array.from(new Set(of("tool").map(([number]) => number)));
        line.append(`${many} of ${count(made.length, "explained action")} ${many === 1 ? "was" : "were"} caused by the output of a tool: `, ...listed(where), ".");
      } else if (of("user").length === made.length) line.append(`${all} ${were} asked for by the user.`);
      else line.append(`${of("user").length} of ${count(made.length, "explained action")} ${of("user").length === 1 ? "was" : "were"} asked for by the user; the rest is unclear.`);
      return line;
    }

    const models = data.steps.filter((step) => step.kind === "model").length;
    const facts = [data.name, data.form, count(data.steps.length, "step"), `${count(models, "call")} of models`];
    root.append(make("div", "rl-head tl-lead", lead()), make("p", "tl-about", facts.join(" \u00b7 ")));
    if (data.problems.length) {
      const list = make("ul", "rl-warnings", ...data.problems.map((text) => make("li", "", text)));
      root.append(make("details", "rl-card tl-problems", make("summary", "", `${count(data.problems.length, "part")} of the file could not be read`), list));
    }

    /* --- text: long ones are opened by a press --- */
    function long(text, code) {
      const name = code ? "rl-words rl-code" : "rl-words";
      const whole = () => {
        const box = make("div", name, text);
        box.setAttribute("dir", "auto");
        return box;
      };
      if (text.length <= LONG) return whole();
      const begin = words("tl-begin", text.slice(0, LONG).replace(/\s+/g, " ").trimEnd() + "\u2026");
      const summary = make("summary", "", begin, make("span", "tl-all", "all of it"));
      const box = make("details", "tl-long", summary);
      box.addEventListener("toggle", () => box.open && box.children.length === 1 && box.append(whole()));
      return box;
    }

    function fold(title, ...children) {
      return make("details", "tl-fold", make("summary", "", title), ...children);
    }

    /* --- the parts of a message, shaded by their share in an action --- */
    function message(step, decision, index, largest) {
      const given = step.why.messages[index];
      const own = given.features.reduce((sum, i) => sum + (i === null ? 0 : decision.shares[i]), 0);
      const label = make("p", "rl-label", `Message ${index + 1} \u00b7 ${ROLES[given.role] || given.role}`);
      if (given.name) label.append(" of ", words("", given.name));
      label.append(` \u00b7 ${percent(own)}`);
      if (given.from !== null) label.append(given.role === "tool" ? " \u00b7 called in " : " \u00b7 written in ", link(given.from));
      const text = make("div", "rl-words tl-words");
      text.setAttribute("dir", "auto");
      data.texts[given.text].forEach(([piece, code], place) => {
        const i = given.features[place];
        const share = i === null ? 0 : decision.shares[i];
        const body = piece.trim();
        if (!body) {
          text.append(piece);
          return;
        }
        const from = piece.indexOf(body);
        const span = make("span", i === null ? "rl-pinned" : "rl-feature", body);
        if (code) span.classList.add("rl-code");
        const depth = Math.round((STEPS * share) / largest);
        span.style.setProperty("--depth", String(depth / STEPS));
        if (share >= NAMED) span.dataset.rank = percent(share);
        const space = code ? (white) => make("span", "rl-code", white) : (white) => white;
        text.append(space(piece.slice(0, from)), span, space(piece.slice(from + body.length)));
      });
      const box = make("div", "tl-message", label, text);
      box.show = () => {
        const strongest = Array.from(text.querySelectorAll("[data-rank]")).sort((a, b) => parseFloat(b.dataset.rank) - parseFloat(a.dataset.rank))[0];
        if (text.scrollHeight > text.clientHeight + 1) {
          text.tabIndex = 0; // it scrolls
          text.setAttribute("role", "group");
          text.setAttribute("aria-label", `Text of message ${index + 1}`);
          if (strongest) text.scrollTop = strongest.offsetTop - text.offsetTop - text.clientHeight / 3;
        }
      };
      return box;
    }

    function influence(step, decision, each, largest) {
      const fill = make("span", "rl-fill");
      fill.style.setProperty("--size", String(each.share));
      const track = make("span", "rl-track", fill);
      if (each.interval[1] > each.interval[0]) {
        const whisker = make("span", "rl-whisker");
        whisker.style.setProperty("--low", String(each.interval[0]));
        whisker.style.setProperty("--high", String(each.interval[1]));
        track.append(whisker);
      }
      track.setAttribute("aria-hidden", "true");
      const name = words("tl-who", each.name.charAt(0).toUpperCase() + each.name.slice(1));
      const twin = decision.influences.some((other) => other !== each && other.name === each.name);
      if (twin) name.append(` (message ${each.messages[0] + 1})`);
      const size = make("strong", "tl-share", percent(each.share));
      size.title = `90% interval ${percent(each.interval[0])} to ${percent(each.interval[1])}`;
      const box = make("details", "tl-bar", make("summary", "", name, track, size));
      box.dataset.decider = each.decider;
      box.addEventListener("toggle", () => {
        if (!box.open || box.children.length > 1) return;
        const messages = each.messages.map((index) => message(step, decision, index, largest));
        box.append(...messages);
        messages.forEach((each) => each.show());
      });
      return box;
    }

    function influences(step, decision) {
      const largest = Math.max(1e-12, ...decision.shares);
      const rows = decision.influences.map((each) => influence(step, decision, each, largest));
      const large = decision.influences.filter((each) => each.share >= SMALL).length;
      const rest = rows.splice(Math.max(large, 1));
      if (rest.length === 1) rows.push(...rest);
      else if (rest.length) rows.push(fold(`${rest.length} others, each below ${percent(SMALL)}`, ...rest));
      return make("div", "tl-bars", ...rows);
    }

    /* --- where an action came from: the strongest message, the step that wrote it, and so on --- */
    function trail(step, decision) {
      const list = make("ol", "tl-trail");
      const seen = new Set([step.number]);
      let [at, here] = [step, decision];
      for (let hop = 0; hop < HOPS && here && here.influences.length; hop++) {
        const [first] = here.influences;
        const sum = (index) => at.why.messages[index].features.reduce((all, i) => all + (i === null ? 0 : here.shares[i]), 0);
        const best = at.why.messages[first.messages.reduce((a, b) => (sum(b) > sum(a) ? b : a))];
        const item = make("li", "", `${percent(first.share)} `, words("", first.name));
        list.append(item);
        if (best.from === null || seen.has(best.from)) break;
        seen.add(best.from);
        const next = steps.get(best.from);
        item.append(best.role === "tool" ? ", called in " : ", written in ", link(best.from));
        if (!next.why) {
          item.append(" (not explained)");
          break;
        }
        [at, here] = [next, next.why.decisions[best.call] || next.why.decisions[0]];
      }
      const one = list.children.length === 1 && !list.querySelector("a");
      return one ? null : make("div", "tl-back", make("p", "rl-label", "Traced back"), list);
    }

    function decided(step, decision, many) {
      const badge = make("span", "rl-badge", decision.verdict);
      badge.dataset.verdict = decision.verdict;
      const said = make("p", "tl-verdict", badge, words("", decision.text));
      const box = make("div", "tl-decision");
      box.setAttribute("role", "group");
      box.setAttribute("aria-label", `Who decided in step ${step.number}`);
      if (many) box.append(make("p", "rl-code tl-action", decision.action));
      box.append(said, influences(step, decision));
      const back = trail(step, decision);
      if (back) box.append(back);
      return box;
    }

    /* --- the steps --- */
    function when(step) {
      const facts = [];
      if (step.started) {
        const time = make("time", "", new Date(step.started).toLocaleTimeString(undefined, { timeStyle: "medium" }));
        time.dateTime = step.started;
        time.title = step.started;
        facts.push(time);
      }
      if (step.seconds !== null) facts.push(`${step.seconds.toLocaleString("en", { maximumFractionDigits: 1 })} s`);
      if (step.messages) facts.push(count(step.messages, "message"));
      return make("span", "tl-when", ...facts.flatMap((fact, i) => (i ? [" \u00b7 ", fact] : [fact])));
    }

    function call(each) {
      return make("div", "rl-words rl-code tl-call", `${each.name}(${each.arguments})`);
    }

    function item(step) {
      const title = make("h2", "", `${step.number}. ${KINDS[step.kind] || step.kind}`);
      const name = step.model || step.name || (step.calls.length === 1 && step.kind === "tool" ? step.calls[0].name : "");
      if (name) title.append(" ", words("tl-name", name));
      const box = make("li", "rl-card tl-step", make("div", "tl-head", title, when(step)));
      box.id = `step-${step.number}`;
      box.dataset.kind = step.kind;
      if (step.reasoning) box.append(fold("Reasoning", make("div", "rl-words", step.reasoning)));
      if (step.kind === "tool") box.append(...step.calls.map(call));
      if (step.text) box.append(long(step.text, step.code));
      if (step.kind !== "tool") box.append(...step.calls.map(call));
      if (step.documents.length) {
        const found = step.documents.map((each) => make("li", "", make("p", "rl-label", each.source || "Document"), long(each.text, false)));
        box.append(fold(count(step.documents.length, "document"), make("ul", "tl-documents", ...found)));
      }
      if (step.why) {
        const many = step.why.decisions.length > 1;
        box.append(...step.why.decisions.map((decision) => decided(step, decision, many)));
        if (options.report) {
          const full = make("a", "", "All figures of this step");
          full.href = options.report(step);
          box.append(make("p", "tl-note", full));
        }
      } else if (step.explainable) box.append(unexplained(step));
      return box;
    }

    function unexplained(step) {
      const note = make("div", "tl-note", make("span", "", "Not explained."));
      if (options.explain) {
        const button = make("button", "button", "Explain this step");
        button.type = "button";
        button.setAttribute("aria-label", `Explain step ${step.number}`);
        button.addEventListener("click", () => options.explain(step.number, note));
        note.replaceChildren(button);
      }
      return note;
    }

    const runs = Array.from(new Set(data.steps.map((step) => step.run)));
    const list = make("ol", "tl-steps");
    let run = null;
    for (const step of data.steps) {
      if (runs.length > 1 && step.run !== run) {
        run = step.run;
        list.append(make("li", "tl-run", `Run ${runs.indexOf(run) + 1} of ${runs.length}`, run ? ": " : "", words("", run)));
      }
      list.append(item(step));
    }
    root.append(list);
    host.append(root);

    return {
      destroy() {
        root.remove();
      }
    };
  }

  window.ropelime = Object.assign(window.ropelime || {}, { timeline });
})();
