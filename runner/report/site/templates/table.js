// The table of a page: DataTables sorts and divides it, and the form above it filters it. The part of the address
// behind # keeps the form.
(async () => {
  const {default: DataTable, set_or_remove_dark_class: followColours} = await import(DATATABLES);
  followColours();
  const form = document.getElementById("filters"), element = document.getElementById("rows");
  const filters = new Map([...element.tBodies[0].rows].map(row => [row, JSON.parse(row.dataset.filters)]));
  const last = element.tHead.rows[0].cells.length - 1;

  const table = new DataTable(element, {
    autoWidth: false,
    columnDefs: [{targets: last, visible: false}],
    createdRow: row => row.cells[0].prepend(opener()),
    language: {info: "_START_ to _END_ of _TOTAL_", infoFiltered: "(_MAX_ in all)", zeroRecords: "No row has all of these."},
    layout: {topStart: null, topEnd: null, bottomStart: "info", bottomEnd: "paging"},
    order: [],
    pageLength: 25,
  });
  table.search.fixed("filters", (_text, _data, index) => {
    const of = filters.get(table.row(index).node());
    return Object.entries(of).every(([name, value]) => ["", value].includes(form.elements[name].value));
  });

  function opener() {
    const button = Object.assign(document.createElement("button"), {type: "button", className: "open"});
    button.setAttribute("aria-expanded", "false");
    button.setAttribute("aria-label", "More of this row");
    return button;
  }

  function filtered() {
    table.search(form.elements.contains.value).draw();
  }

  function usual(name) {
    return [...form.elements[name].options ?? []].find(option => option.defaultSelected)?.value ?? "";
  }

  function read() {
    const kept = new URLSearchParams(location.hash.slice(1));
    for (const {name, options} of [...form.elements].filter(field => field.name)) {
      const value = kept.get(name) ?? usual(name), known = !options || [...options].some(option => option.value === value);
      form.elements[name].value = known ? value : usual(name);
    }
    filtered();
  }

  function keep() {
    const chosen = [...new FormData(form)].filter(([name, value]) => value !== usual(name));
    history.replaceState(null, "", "#" + new URLSearchParams(chosen));
    filtered();
  }

  element.addEventListener("click", event => {
    const button = event.target.closest("button.open");
    if (!button) return;
    const row = table.row(button.closest("tr")), shown = row.child.isShown();
    shown ? row.child.hide() : row.child(row.data()[last], "opened").show();
    button.setAttribute("aria-expanded", String(!shown));
  });
  form.addEventListener("input", keep);
  form.addEventListener("reset", () => setTimeout(keep));
  form.addEventListener("submit", event => event.preventDefault());
  addEventListener("hashchange", read);
  read();
})();
