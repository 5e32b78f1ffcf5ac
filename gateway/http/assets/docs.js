// Shows every route of /openapi.json with its fields and a form to try it.
const main = document.getElementById("routes");
const token = document.getElementById("token");

function make(tag, text, ...children) {
  const node = document.createElement(tag);
  if (text) node.textContent = text;
  node.append(...children);
  return node;
}

function example(schema, all, depth = 0) {
  if (!schema || depth > 6) return null;
  if (schema.$ref) return example(all[schema.$ref.split("/").pop()], all, depth + 1);
  if (schema.const !== undefined) return schema.const;
  if (schema.enum) return schema.enum[0];
  const variant = (schema.anyOf || schema.oneOf || []).find((one) => one.type !== "null");
  if (variant) return example(variant, all, depth + 1);
  if (schema.type === "object") {
    const fields = {};
    for (const name of schema.required || []) fields[name] = example(schema.properties[name], all, depth + 1);
    return fields;
  }
  if (schema.type === "array") return schema.minItems ? [example(schema.items, all, depth + 1)] : [];
  return { string: "", integer: 0, number: 0, boolean: false }[schema.type] ?? null;
}

function tryForm(method, path, operation, all) {
  const form = make("form");
  const inputs = operation.parameters.map((parameter) => {
    const input = make("input");
    input.required = parameter.required;
    input.placeholder = parameter.description;
    form.append(make("label", `${parameter.name} (${parameter.in}) `, input), make("br"));
    return [parameter, input];
  });
  const schema = operation.requestBody?.content["application/json"].schema;
  const body = schema ? make("textarea") : null;
  if (body) {
    body.value = JSON.stringify(example(schema, all), null, 2);
    body.setAttribute("aria-label", "request body");
    form.append(body);
  }
  const answer = make("pre");
  form.append(make("button", "Send"), answer);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    let url = path;
    const query = new URLSearchParams();
    for (const [parameter, input] of inputs) {
      if (parameter.in === "path") url = url.replace(`{${parameter.name}}`, encodeURIComponent(input.value));
      else if (input.value) query.set(parameter.name, input.value);
    }
    const headers = body ? { "Content-Type": "application/json" } : {};
    if (token.value) headers.Authorization = `Bearer ${token.value}`;
    const response = await fetch(query.size ? `${url}?${query}` : url, { method, headers, body: body?.value });
    answer.textContent = `${response.status}\n${await response.text()}`;
  });
  return form;
}

const description = await (await fetch("/openapi.json")).json();
const all = description.components.schemas;
main.replaceChildren();
for (const [path, methods] of Object.entries(description.paths)) {
  for (const [method, operation] of Object.entries(methods)) {
    const verb = make("span", method.toUpperCase());
    verb.className = "method";
    const block = make("details", "", make("summary", "", verb, make("code", path), ` ${operation.summary}`));
    const schema = operation.requestBody?.content["application/json"].schema;
    if (schema) {
      const fields = schema.$ref ? all[schema.$ref.split("/").pop()] : schema;
      block.append(make("h3", "Body"), make("pre", JSON.stringify(fields, null, 2)));
    }
    block.append(make("h3", "Try it"), tryForm(method.toUpperCase(), path, operation, all));
    main.append(block);
  }
}
