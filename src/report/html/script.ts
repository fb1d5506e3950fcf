/**
 * What the page does beyond being read: the light/dark switch, sorting, opening everything for print. Without scripts the page
 * is complete. It is plain browser code, kept as text because it runs in the reader's browser.
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
      });
    });
  }
  const closed = new Set();
  addEventListener('beforeprint', () => {
    for (const box of document.querySelectorAll('details:not([open])')) if (box.dataset.print !== 'no') { closed.add(box); box.open = true; }
  });
  addEventListener('afterprint', () => { for (const box of closed) box.open = false; closed.clear(); });
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
