// Building elements. Texts are always set through textContent, never as HTML: policy names and
// errors come from servers that are polled.

/**
 * Creates an element. `attributes.class`, `text` and `onclick`-like listeners are set as such;
 * everything else becomes an attribute. Children that are null or undefined are left out.
 */
export const el = (tag, attributes = {}, ...children) => {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "text") element.textContent = value;
    else if (name === "class") element.className = value;
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
};

export const svg = (tag, attributes = {}, ...children) => {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
};

/** Sets the text of an element only if it differs, so that a live page does not disturb readers. */
export const setText = (element, text) => {
  if (element.textContent !== text) element.textContent = text;
};

export const setAttribute = (element, name, value) => {
  if (element.getAttribute(name) !== String(value)) element.setAttribute(name, value);
};

/** A table whose rows are stacked on a narrow screen. The first column names the row; a cell is a text, or has a `text` and a `class`. */
export const table = (columns, rows) =>
  el("table", { class: "stacked", role: "table" },
    el("thead", { role: "rowgroup" }, el("tr", { role: "row" }, columns.map((name, index) => el("th", { scope: "col", role: "columnheader", class: rows[0]?.[index]?.class, text: name })))),
    el("tbody", { role: "rowgroup" }, rows.map((cells) => el("tr", { role: "row" }, cells.map((cell, index) => (index === 0
      ? el("th", { scope: "row", role: "rowheader", text: cell })
      : el("td", { role: "cell", "data-label": columns[index], class: cell?.class, text: cell?.text ?? cell })))))));
