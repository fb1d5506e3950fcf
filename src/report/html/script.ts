/**
 * The scripts of the page: the light/dark switch, sorting, opening everything for print. Without
 * scripts the page is complete. The code is plain browser code, kept as text because it runs in the
 * reader's browser.
 */
export const PAGE_SCRIPT = `
'use strict';
(() => {
  const root = document.documentElement;
  const button = document.querySelector('button.theme');
  const dark = () => root.dataset.theme ? root.dataset.theme === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
  const label = () => { button.textContent = dark() ? 'Light' : 'Dark'; button.setAttribute('aria-label', 'Switch to the ' + (dark() ? 'light' : 'dark') + ' theme'); };
  button.hidden = false;
  button.addEventListener('click', () => { root.dataset.theme = dark() ? 'light' : 'dark'; label(); });
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', label);
  label();
  for (const table of document.querySelectorAll('table.sortable')) {
    const body = table.tBodies[0];
    const box = table.parentElement.nextElementSibling;
    let render = () => {};
    if (box && box.matches('details.more')) {
      // One table of all rows, which sorts and filters as a whole; the first ones are shown.
      const first = body.rows.length;
      body.append(...box.querySelector('tbody').rows);
      const all = body.rows.length;
      const line = document.createElement('p');
      const find = document.createElement('input');
      const more = document.createElement('button');
      const count = document.createElement('span');
      let whole = false;
      line.className = 'find';
      find.type = 'search';
      find.placeholder = 'Filter, such as fsdp tp=2';
      find.setAttribute('aria-label', 'Filter the rows');
      more.type = 'button';
      count.setAttribute('role', 'status');
      render = () => {
        const words = find.value.toLowerCase().split(/\\s+/).filter(Boolean);
        let found = 0;
        for (const row of body.rows) {
          const text = row.textContent.toLowerCase();
          const fits = words.every((word) => text.includes(word));
          if (fits) found++;
          row.hidden = !fits || (!whole && found > first);
        }
        count.textContent = Math.min(found, whole ? found : first) + ' of ' + found + ' rows' + (words.length > 0 ? ' found' : '');
        more.hidden = found <= first;
        more.textContent = whole ? 'Show fewer' : 'Show all ' + found;
      };
      find.addEventListener('input', render);
      more.addEventListener('click', () => { whole = !whole; render(); });
      line.append(find, more, count);
      table.parentElement.before(line);
      box.remove();
      render();
    }
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => {
      const sorter = document.createElement('button');
      sorter.type = 'button';
      sorter.textContent = head.textContent;
      head.replaceChildren(sorter);
      sorter.addEventListener('click', () => {
        const up = head.getAttribute('aria-sort') === 'descending';
        for (const other of heads) other.removeAttribute('aria-sort');
        head.setAttribute('aria-sort', up ? 'ascending' : 'descending');
        const key = (row) => row.cells[column].dataset.value ?? row.cells[column].textContent;
        const rows = [...body.rows];
        const numeric = rows.every((row) => row.cells[column].dataset.value !== undefined);
        rows.sort((a, b) => numeric ? Number(key(a)) - Number(key(b)) : key(a).localeCompare(key(b)));
        if (!up) rows.reverse();
        body.append(...rows);
        render();
      });
    });
  }
  const closed = new Set();
  addEventListener('beforeprint', () => {
    for (const box of document.querySelectorAll('details:not([open])')) if (box.dataset.print !== 'no') { closed.add(box); box.open = true; }
  });
  addEventListener('afterprint', () => { for (const box of closed) box.open = false; closed.clear(); });
  const nodes = [...document.querySelectorAll('.node')];
  const panel = document.getElementById('strategies');
  if (nodes.length > 0 && panel) {
    const explain = JSON.parse(document.getElementById('shardwright-report').textContent).explain || [];
    const element = (tag, text, cls) => { const e = document.createElement(tag); if (text !== undefined) e.textContent = text; if (cls) e.className = cls; return e; };
    const digits = (x) => x >= 999.5 ? x.toFixed(0) : x.toPrecision(3);
    const time = (s) => {
      if (s === null || s === undefined) return '\u2013';
      if (s === 0) return '0 s';
      const [unit, name] = [[1, 's'], [1e-3, 'ms'], [1e-6, '\u00b5s'], [1e-9, 'ns']].find(([u]) => Math.abs(s) >= u * 0.9995) || [1e-9, 'ns'];
      return (s < 0 ? '-' : '') + digits(Math.abs(s) / unit) + ' ' + name;
    };
    const show = (index) => {
      for (const node of nodes) node.classList.toggle('picked', node === nodes[index]);
      const found = explain[index];
      panel.replaceChildren();
      if (!found) return;
      panel.append(element('h3', found.node), element('p', found.target + ', ' + found.strategies + ' strategies; the chosen one and the nearest:', 'soft'));
      const table = element('table');
      const head = element('tr');
      for (const [text, cls] of [['Strategy'], [''], ['Local', 'number'], ['Compute', 'number'], ['Moves in', 'number'], ['Moves out', 'number']]) head.append(element('th', text, cls));
      table.append(element('thead'), element('tbody'));
      table.tHead.append(head);
      for (const c of found.nearest) {
        const row = element('tr');
        const spec = element('td', undefined, 'name');
        spec.append(element('code', c.spec));
        const local = c.localSeconds === null ? '\u2013' : (c.localSeconds > 0 ? '+' : '') + time(c.localSeconds);
        row.append(spec, element('td', c.class + (c.reason ? ': ' + c.reason : '')), element('td', local, 'number'), element('td', time(c.computeSeconds), 'number'), element('td', time(c.inSeconds), 'number'), element('td', time(c.outSeconds), 'number'));
        table.tBodies[0].append(row);
      }
      const box = element('div', undefined, 'scroll');
      box.tabIndex = 0;
      box.append(table);
      panel.append(box, element('p', 'Local: seconds more than the chosen strategy, with everything around the node as it is. ' + found.limits.join(' '), 'soft'));
    };
    const go = (index) => { for (const node of nodes) node.tabIndex = -1; nodes[index].tabIndex = 0; nodes[index].focus(); };
    nodes.forEach((node, index) => {
      node.tabIndex = index === 0 ? 0 : -1;
      node.addEventListener('click', () => { go(index); show(index); });
      node.addEventListener('keydown', (event) => {
        const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
        if (step) go(Math.min(nodes.length - 1, Math.max(0, index + step)));
        else if (event.key === 'Enter' || event.key === ' ') show(index);
        else return;
        event.preventDefault();
      });
    });
  }
  for (const all of document.querySelectorAll('button.all')) {
    all.hidden = false;
    all.addEventListener('click', () => {
      const boxes = [...document.querySelectorAll('#program-lines details')];
      const open = boxes.some((box) => !box.open);
      for (const box of boxes) box.open = open;
      all.textContent = open ? 'Close all' : 'Open all';
    });
  }
})();
`.trim();
