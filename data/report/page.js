/*
 * The script of a report: the light/dark switch, tables that sort and filter, details that open
 * for print, and the strategies of the node that is picked. The page is complete without it.
 */
'use strict';

function switchTheme() {
  const root = document.documentElement;
  const button = document.querySelector('button.theme');
  const prefersDark = matchMedia('(prefers-color-scheme: dark)');
  const isDark = () => (root.dataset.theme ? root.dataset.theme === 'dark' : prefersDark.matches);
  const label = () => {
    const other = isDark() ? 'Light' : 'Dark';
    button.textContent = other;
    button.setAttribute('aria-label', 'Switch to the ' + other.toLowerCase() + ' theme');
  };
  button.hidden = false;
  button.addEventListener('click', () => {
    root.dataset.theme = isDark() ? 'light' : 'dark';
    label();
  });
  prefersDark.addEventListener('change', label);
  label();
}

/** One table of all rows, which sorts and filters as a whole. The first ones are shown. */
function joinRows(table, box) {
  const body = table.tBodies[0];
  const first = body.rows.length;
  body.append(...box.querySelector('tbody').rows);
  const line = document.createElement('p');
  const find = document.createElement('input');
  const more = document.createElement('button');
  const count = document.createElement('span');
  let isWhole = false;
  line.className = 'find';
  find.type = 'search';
  find.placeholder = 'Filter, such as fsdp tp=2';
  find.setAttribute('aria-label', 'Filter the rows');
  more.type = 'button';
  count.setAttribute('role', 'status');
  const render = () => {
    const words = find.value.toLowerCase().split(/\s+/).filter(Boolean);
    let found = 0;
    for (const row of body.rows) {
      const text = row.textContent.toLowerCase();
      const fits = words.every((word) => text.includes(word));
      if (fits) found++;
      row.hidden = !fits || (!isWhole && found > first);
    }
    const shown = Math.min(found, isWhole ? found : first);
    count.textContent = shown + ' of ' + found + ' rows' + (words.length > 0 ? ' found' : '');
    more.hidden = found <= first;
    more.textContent = isWhole ? 'Show fewer' : 'Show all ' + found;
  };
  find.addEventListener('input', render);
  more.addEventListener('click', () => {
    isWhole = !isWhole;
    render();
  });
  line.append(find, more, count);
  table.parentElement.before(line);
  box.remove();
  render();
  return render;
}

/** Sorts the rows by a column: by numbers where every cell has one, otherwise by text. */
function sortRows(body, column, isUp) {
  const key = (row) => row.cells[column].dataset.value ?? row.cells[column].textContent;
  const rows = [...body.rows];
  const isNumeric = rows.every((row) => row.cells[column].dataset.value !== undefined);
  rows.sort((a, b) => (isNumeric ? Number(key(a)) - Number(key(b)) : key(a).localeCompare(key(b))));
  if (!isUp) rows.reverse();
  body.append(...rows);
}

function makeSortable(table) {
  const box = table.parentElement.nextElementSibling;
  const render = box && box.matches('details.more') ? joinRows(table, box) : () => {};
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const sorter = document.createElement('button');
    sorter.type = 'button';
    sorter.textContent = head.textContent;
    head.replaceChildren(sorter);
    sorter.addEventListener('click', () => {
      const isUp = head.getAttribute('aria-sort') === 'descending';
      for (const other of heads) other.removeAttribute('aria-sort');
      head.setAttribute('aria-sort', isUp ? 'ascending' : 'descending');
      sortRows(table.tBodies[0], column, isUp);
      render();
    });
  });
}

function openForPrint() {
  const closed = new Set();
  addEventListener('beforeprint', () => {
    for (const box of document.querySelectorAll('details:not([open])'))
      if (box.dataset.print !== 'no') {
        closed.add(box);
        box.open = true;
      }
  });
  addEventListener('afterprint', () => {
    for (const box of closed) box.open = false;
    closed.clear();
  });
}

function element(tag, text, className) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

const UNITS = [
  [1, 's'],
  [1e-3, 'ms'],
  [1e-6, 'µs'],
  [1e-9, 'ns'],
];

/** Three digits with a unit, as the report itself prints seconds. */
function time(seconds) {
  if (seconds === null || seconds === undefined) return '–';
  if (seconds === 0) return '0 s';
  const size = Math.abs(seconds);
  const [unit, name] = UNITS.find(([unit]) => size >= unit * 0.9995) || UNITS[3];
  const amount = size / unit;
  const digits = amount >= 999.5 ? amount.toFixed(0) : amount.toPrecision(3);
  return (seconds < 0 ? '-' : '') + digits + ' ' + name;
}

const STRATEGY_HEADS = [
  ['Strategy'],
  [''],
  ['Local', 'number'],
  ['Compute', 'number'],
  ['Moves in', 'number'],
  ['Moves out', 'number'],
];

function strategyRow(strategy) {
  const row = element('tr');
  const spec = element('td', undefined, 'name');
  spec.append(element('code', strategy.spec));
  const isMore = strategy.localSeconds > 0;
  row.append(
    spec,
    element('td', strategy.class + (strategy.reason ? ': ' + strategy.reason : '')),
    element('td', (isMore ? '+' : '') + time(strategy.localSeconds), 'number'),
    element('td', time(strategy.computeSeconds), 'number'),
    element('td', time(strategy.inSeconds), 'number'),
    element('td', time(strategy.outSeconds), 'number'),
  );
  return row;
}

/** The strategies of a node in the panel. */
function showStrategies(panel, found) {
  panel.replaceChildren();
  if (!found) return;
  const count =
    found.target + ', ' + found.strategies + ' strategies; the chosen one and the nearest:';
  panel.append(element('h3', found.node), element('p', count, 'soft'));
  const table = element('table');
  const head = element('tr');
  for (const [text, className] of STRATEGY_HEADS) head.append(element('th', text, className));
  table.append(element('thead'), element('tbody'));
  table.tHead.append(head);
  table.tBodies[0].append(...found.nearest.map(strategyRow));
  const box = element('div', undefined, 'scroll');
  box.tabIndex = 0;
  box.append(table);
  const local =
    'Local: seconds more than the chosen strategy, with everything around the node as it is. ';
  panel.append(box, element('p', local + found.limits.join(' '), 'soft'));
}

const STEPS = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };

/** A node shows its strategies at a click or Enter. The arrow keys go from node to node. */
function pickNodes() {
  const nodes = [...document.querySelectorAll('.node')];
  const panel = document.getElementById('strategies');
  if (nodes.length === 0 || !panel) return;
  const report = JSON.parse(document.getElementById('shardwright-report').textContent);
  const explain = report.explain || [];
  const show = (index) => {
    for (const node of nodes) node.classList.toggle('picked', node === nodes[index]);
    showStrategies(panel, explain[index]);
  };
  const go = (index) => {
    for (const node of nodes) node.tabIndex = -1;
    nodes[index].tabIndex = 0;
    nodes[index].focus();
  };
  nodes.forEach((node, index) => {
    node.tabIndex = index === 0 ? 0 : -1;
    node.addEventListener('click', () => {
      go(index);
      show(index);
    });
    node.addEventListener('keydown', (event) => {
      const step = STEPS[event.key];
      if (step) go(Math.min(nodes.length - 1, Math.max(0, index + step)));
      else if (event.key === 'Enter' || event.key === ' ') show(index);
      else return;
      event.preventDefault();
    });
  });
}

function openAllLines() {
  for (const all of document.querySelectorAll('button.all')) {
    all.hidden = false;
    all.addEventListener('click', () => {
      const boxes = [...document.querySelectorAll('#program-lines details')];
      const open = boxes.some((box) => !box.open);
      for (const box of boxes) box.open = open;
      all.textContent = open ? 'Close all' : 'Open all';
    });
  }
}

switchTheme();
document.querySelectorAll('table.sortable').forEach(makeSortable);
openForPrint();
pickNodes();
openAllLines();
