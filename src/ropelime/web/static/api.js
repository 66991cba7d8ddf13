/* The page of the API: the content of /openapi.json, put on the page as text. */
(async function () {
  "use strict";

  function make(tag, name, ...children) {
    const element = document.createElement(tag);
    if (name) element.className = name;
    element.append(...children);
    return element;
  }

  document.getElementById("curl").textContent = [
    `curl ${location.origin}/api/jobs -H 'Content-Type: application/json' \\`,
    `  -d '{"prompt": "Ada is a cat. Bo is a dog.", "output": "Bo is a dog."}'`,
    `curl -N ${location.origin}/api/jobs/ID/events              # follow its progress`,
    `curl ${location.origin}/api/explanations/ID                # get the result`,
    `curl '${location.origin}/api/explanations/ID/span?start=0&end=2'`
  ].join("\n");

  const place = document.getElementById("endpoints");
  const schema = await (await fetch("/openapi.json")).json();
  const named = (ref) => schema.components.schemas[ref.split("/").pop()];

  function type(of) {
    if (of.$ref) return of.$ref.split("/").pop();
    if (of.anyOf) return of.anyOf.map(type).join(" or ");
    if (of.enum) return of.enum.map((value) => JSON.stringify(value)).join(", ");
    if (of.type === "array") return `list of ${type(of.items)}`;
    return of.type || "anything";
  }

  const words = new Map();
  for (const [path, methods] of Object.entries(schema.paths)) {
    for (const [method, about] of Object.entries(methods)) {
      const box = make("section", "card endpoint", make("h2", "", `${method.toUpperCase()} ${path}`));
      for (const line of about.description.split("\n\n")) box.append(make("p", "", line));
      const list = make("dl", "");
      const add = (name, text) => list.append(make("dt", "", name), make("dd", "", text));
      for (const entry of about.parameters || []) {
        const about = entry.description || entry.schema.description || "";
        add(entry.name, [type(entry.schema), entry.required ? "required" : "", about].filter(Boolean).join("; "));
      }
      if (about.requestBody) {
        const given = about.requestBody.content["application/json"].schema;
        const body = given.$ref ? named(given.$ref) : given;
        for (const [name, field] of Object.entries(body.properties)) {
          const required = (body.required || []).includes(name) ? "required" : "";
          add(name, [type(field), required, field.description].filter(Boolean).join("; "));
        }
      }
      const refusals = Object.keys(about.responses).filter((code) => code >= "400");
      const [[code, answer]] = Object.entries(about.responses).filter(([c]) => c < "400");
      const given = answer.content && answer.content["application/json"];
      add(code, given && given.schema.$ref ? type(given.schema) : answer.description);
      add("errors", refusals.join(", "));
      refusals.forEach((c) => words.set(c, about.responses[c].description));
      box.append(list);
      place.append(box);
    }
  }
  const list = make("dl", "");
  for (const [code, text] of Array.from(words).sort()) list.append(make("dt", "", code), make("dd", "", text));
  place.prepend(make("section", "card endpoint", make("h2", "", "Errors"), make(
    "p", "", "The body of each says in detail what is wrong, and in errors for which fields."
  ), list));
})();
