/**
 * Draws a mesh, given as text (`dp=8,tp=8`): its dims, which the reader can name, size, move, add
 * and remove, and its devices in their hosts. It gives the text of the drawn mesh.
 */
import { FILLS } from '../../src/notations/draw/palette.ts';
import { byId, small } from './elements.ts';

interface Dim {
  readonly name: string;
  readonly size: number;
}

/** Devices that are drawn one by one. */
const MOST_DRAWN = 128;
const COMMON = ['dp', 'tp', 'pp', 'cp', 'ep'];

export class MeshView {
  private dims: readonly Dim[] = [];
  private perHost = 8;
  /** The dim whose groups are coloured; the last where it is gone. */
  private shown = '';

  constructor(private readonly drawn: (text: string) => void) {}

  /** @param text what is not a plain list of dims is drawn as none */
  show(text: string, perHost: number): void {
    this.perHost = perHost;
    const parts = text
      .split(',')
      .map((part) => /^\s*([A-Za-z_][\w.-]*)\s*=\s*(\d{1,7})\s*$/.exec(part));
    this.dims = parts.flatMap((part) =>
      part === null ? [] : [{ name: part[1], size: Number(part[2]) }],
    );
    if (this.dims.length < parts.length) this.dims = [];
    this.drawDims();
    this.drawDevices();
  }

  private change(dims: readonly Dim[], focus?: string): void {
    this.dims = dims;
    // What is typed into keeps its focus; a button is drawn again.
    if (focus === undefined) this.sayNames();
    else {
      this.drawDims();
      byId('q-dims', HTMLElement)
        .querySelector<HTMLElement>(`[data-is="${CSS.escape(focus)}"]`)
        ?.focus();
    }
    this.drawDevices();
    this.drawn(dims.map(({ name, size }) => `${name}=${size}`).join(','));
  }

  private drawDims(): void {
    const at = (k: number, dim: Partial<Dim>): readonly Dim[] =>
      this.dims.map((d, j) => (j === k ? { ...d, ...dim } : d));
    const without = (k: number): readonly Dim[] => this.dims.filter((_, j) => j !== k);
    const rows = this.dims.map(({ name, size }, k) => {
      const row = document.createElement('div');
      row.className = 'dim';
      const act = (text: string, said: string, dims: () => readonly Dim[]): HTMLButtonElement =>
        named(
          small(text, '', () => this.change(dims(), `${text} ${k}`)),
          `${text} ${k}`,
          said,
        );
      const sized = (by: number) => () =>
        at(k, { size: Math.max(1, Math.floor(this.dims[k].size * by)) });
      row.append(
        this.choice(k),
        field(name, `Name of mesh dim ${k + 1}`, (text) => this.change(at(k, { name: text }))),
        field(
          String(size),
          `Size of mesh dim ${k + 1}`,
          (text) => this.change(at(k, { size: Number(text) || 0 })),
          true,
        ),
        act('÷2', '÷2: halve %', sized(0.5)),
        act('×2', '×2: double %', sized(2)),
        ...(k === 0
          ? []
          : [act('↑', 'Move % outwards', () => without(k).toSpliced(k - 1, 0, this.dims[k]))]),
        ...(this.dims.length === 1 ? [] : [act('✕', 'Remove %', () => without(k))]),
      );
      return row;
    });
    const fresh = (): string =>
      COMMON.find((name) => this.dims.every((dim) => dim.name !== name)) ??
      `dim${this.dims.length + 1}`;
    const add = small('Add a mesh dim', 'Add a mesh dim', () =>
      this.change([...this.dims, { name: fresh(), size: 2 }], 'add'),
    );
    byId('q-dims', HTMLElement).replaceChildren(...rows, named(add, 'add', 'Add a mesh dim'));
    this.sayNames();
  }

  /** Names of buttons follow the names of dims. */
  private sayNames(): void {
    for (const [k, row] of byId('q-dims', HTMLElement).querySelectorAll('.dim').entries())
      for (const element of row.querySelectorAll<HTMLElement>('[data-said]'))
        element.setAttribute(
          'aria-label',
          (element.dataset.said ?? '').replace('%', () => this.dims[k].name),
        );
  }

  /** Chooses the dim whose groups are coloured. */
  private choice(k: number): HTMLInputElement {
    const made = document.createElement('input');
    made.type = 'radio';
    made.name = 'q-shown-dim';
    made.checked = this.shownAt === k;
    made.addEventListener('change', () => {
      this.shown = this.dims[k].name;
      this.drawDevices();
    });
    return named(made, `shown ${k}`, 'Colour the groups of %');
  }

  private get shownAt(): number {
    const found = this.dims.findIndex(({ name }) => name === this.shown);
    return found < 0 ? this.dims.length - 1 : found;
  }

  private drawDevices(): void {
    const [place, words] = [
      byId('q-devices-drawn', HTMLElement),
      byId('q-mesh-words', HTMLElement),
    ];
    const total = this.dims.reduce((n, { size }) => n * size, 1);
    place.hidden = this.dims.length === 0 || total < 1;
    words.textContent = '';
    if (place.hidden) return;
    const dim = this.dims[this.shownAt];
    const step = this.dims.slice(this.shownAt + 1).reduce((n, { size }) => n * size, 1);
    /** Number of the group along the dim that a device is of. */
    const groupOf = (device: number): number =>
      Math.floor(device / (step * dim.size)) * step + (device % step);
    const count = Math.min(total, MOST_DRAWN);
    const hosts = Array.from({ length: Math.ceil(count / this.perHost) }, (_, host) => {
      const box = document.createElement('span');
      box.className = this.perHost > 8 ? 'host wide' : 'host';
      const first = host * this.perHost;
      for (let device = first; device < Math.min(count, first + this.perHost); device++) {
        const cell = document.createElement('span');
        cell.textContent = String(device);
        cell.style.background = FILLS[groupOf(device) % FILLS.length];
        cell.classList.toggle('with-first', groupOf(device) === 0);
        box.append(cell);
      }
      return box;
    });
    place.replaceChildren(...hosts);
    const inHosts = Math.ceil(total / this.perHost);
    const many = (n: number, what: string): string =>
      `${n.toLocaleString('en')} ${what}${n === 1 ? '' : 's'}`;
    words.textContent =
      `${many(total, 'device')} in ` +
      `${many(inHosts, 'host')}${total > count ? `, the first ${count} drawn` : ''}. Devices ` +
      `of one colour exchange along ${dim.name}, framed ones with device 0.`;
  }
}

/**
 * An element that is found again when it was drawn anew, and what it is called: `%` stands for its
 * dim.
 */
function named<E extends HTMLElement>(element: E, is: string, said: string): E {
  element.dataset.is = is;
  element.dataset.said = said;
  element.setAttribute('aria-label', said);
  return element;
}

function field(
  value: string,
  name: string,
  changed: (text: string) => void,
  isNumber = false,
): HTMLInputElement {
  const made = document.createElement('input');
  made.value = value;
  made.size = 4;
  made.spellcheck = false;
  if (isNumber) made.inputMode = 'numeric';
  made.setAttribute('aria-label', name);
  made.addEventListener('input', (event) => {
    // The form hears of the mesh, not of its parts.
    event.stopPropagation();
    changed(made.value.trim());
  });
  return made;
}
