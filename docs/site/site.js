// Tables: the headings of a wide one as labels of its cells, and the two with filters. Both work from a file.
const make = (tag, properties = {}, ...inside) => {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...inside);
  return element;
};
function label(table) {
  const headings = [...table.querySelectorAll("thead th")].map(heading => heading.textContent);
  if (headings.length < 4 || headings.length > 8) return; // a matrix scrolls
  table.dataset.cards = "";
  for (const row of table.tBodies[0].rows) [...row.cells].forEach((cell, i) => { cell.dataset.label = headings[i]; });
}
function filterTable({columns, filters, usual, rows}, place) {
  const select = name => make("select", {name}, make("option", {value: "", textContent: "all"}),
    ...filters[name].map(value => make("option", {textContent: value})));
  const form = make("form", {className: "filters"}, ...Object.keys(filters).map(name => make("label", {}, name, select(name))),
    make("label", {}, "contains", make("input", {type: "search", name: "text"})),
    make("button", {type: "reset", textContent: "Clear"}));
  const count = make("p"), body = make("tbody"), more = make("button", {className: "more", type: "button", textContent: "Show more"});
  let shown = 25, sorted = null;
  const sorter = i => make("button", {type: "button", title: "Sort", textContent: columns[i], onclick: () => {
    sorted = {i, sign: sorted?.i === i ? -sorted.sign : 1};
    draw();
  }});
  const table = make("table", {}, make("thead", {}, make("tr", {}, ...columns.map((_, i) => make("th", {scope: "col"}, sorter(i))))), body);
  const text = row => [...row.cells, row.under, ...Object.values(row.more)].join(" ").toLowerCase();
  const details = row => make("details", {}, make("summary", {textContent: row.cells[0]}),
    make("dl", {}, ...Object.entries(row.more).flatMap(([name, value]) => [make("dt", {textContent: name}), make("dd", {textContent: value})])),
    ...Object.entries(row.links).flatMap(([name, href]) => [make("a", {href, textContent: name}), " "]));
  const line = row => make("tr", {}, make("td", {}, details(row), make("small", {textContent: row.under})),
    ...row.cells.slice(1).map(cell => make("td", {textContent: cell})));
  const compare = ({i, sign}) => (a, b) => {
    const [x, y] = [a, b].map(row => row.order[columns[i]] !== undefined ? row.order[columns[i]] : row.cells[i]);
    return x === null || y === null ? (x === null) - (y === null) : sign * (typeof x === "number" ? x - y : x.localeCompare(y));
  };
  function draw() {
    const wanted = form.text.value.toLowerCase();
    const chosen = rows.filter(row => text(row).includes(wanted) &&
      Object.entries(row.filters).every(([name, value]) => ["", value].includes(form[name].value)));
    if (sorted) chosen.sort(compare(sorted));
    body.replaceChildren(...chosen.slice(0, shown).map(line));
    label(table);
    more.hidden = chosen.length <= shown;
    count.textContent = `${chosen.length} of ${rows.length} rows`;
  }
  function read() {
    const address = new URLSearchParams(location.hash.slice(1));
    for (const {name} of [...form].filter(field => field.name)) form[name].value = address.get(name) ?? usual[name] ?? "";
    draw();
  }
  function keep() {
    const chosen = [...new FormData(form)].filter(([name, value]) => value !== (usual[name] ?? ""));
    history.replaceState(null, "", "#" + new URLSearchParams(chosen));
    shown = 25;
    draw();
  }
  more.onclick = () => { shown += 100; draw(); };
  form.addEventListener("input", keep);
  form.addEventListener("reset", event => { event.preventDefault(); history.replaceState(null, "", "#"); read(); });
  form.addEventListener("submit", event => event.preventDefault());
  addEventListener("hashchange", read);
  place.append(form, count, table, more);
  read();
}
const place = document.getElementById("filter-table");
if (place) filterTable(ROWS, place);
document.querySelectorAll(".md-typeset table:not([class])").forEach(label);
