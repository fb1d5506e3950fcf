/**
 * The question of the form, and of the address bar. In: what is typed, or the part of the address
 * after `#`. Out: a `Question`.
 */
import type { Question } from '../protocol.ts';
import { byId, fill, input, select, small } from './elements.ts';
import { MeshView } from './mesh-view.ts';

export const VIEWS = ['plan', 'compare', 'program', 'notations'] as const;
export type View = (typeof VIEWS)[number];

export const DEFAULTS: Question = {
  model: 'demo',
  mesh: 'dp=8,tp=8',
  cluster: 'dgx-h100',
  memory: '',
  batch: '',
  sequence: '',
  layers: '',
  pins: [],
  devices: '8',
};

const FIELDS = ['model', 'mesh', 'memory', 'batch', 'sequence', 'layers', 'devices'] as const;

export class QuestionForm {
  private pins: readonly string[] = [];
  /** Devices of a host, by cluster. */
  private perHost: Readonly<Record<string, number>> = {};
  private readonly mesh: MeshView;

  constructor(private readonly changed: () => void) {
    for (const name of FIELDS) input(`q-${name}`).addEventListener('input', changed);
    const draw = (): void => this.drawMesh();
    select('q-cluster').addEventListener('change', () => (draw(), changed()));
    input('q-mesh').addEventListener('input', draw);
    this.mesh = new MeshView((text) => {
      input('q-mesh').value = text;
      changed();
    });
  }

  private drawMesh(): void {
    this.mesh.show(input('q-mesh').value, this.perHost[select('q-cluster').value] ?? 8);
  }

  get question(): Question {
    const texts = Object.fromEntries(FIELDS.map((name) => [name, input(`q-${name}`).value.trim()]));
    return { ...DEFAULTS, ...texts, cluster: select('q-cluster').value, pins: this.pins };
  }

  set question(question: Question) {
    for (const name of FIELDS) input(`q-${name}`).value = question[name];
    select('q-cluster').value = question.cluster;
    this.pins = question.pins;
    this.showPins();
    this.drawMesh();
  }

  /**
   * The clusters that there are, with the devices of a host of each. The one that is chosen stays;
   * before there were any it is the given one.
   */
  offer(perHost: Readonly<Record<string, number>>, chosen: string): void {
    this.perHost = perHost;
    const before = select('q-cluster').value;
    fill(select('q-cluster'), Object.keys(perHost));
    select('q-cluster').value = before === '' ? chosen : before;
    this.drawMesh();
  }

  /** Adds pins; of one value the last counts. */
  pin(texts: readonly string[]): void {
    for (const text of texts) {
      const node = text.slice(0, text.indexOf('=') + 1);
      this.pins = [...this.pins.filter((pin) => !pin.startsWith(node)), text];
    }
    this.showPins();
    this.changed();
  }

  private showPins(): void {
    byId('q-pins', HTMLElement).replaceChildren(
      ...this.pins.map((pin) => {
        const shown = document.createElement('span');
        shown.className = 'pin';
        const code = document.createElement('code');
        code.textContent = pin;
        shown.append(
          code,
          small('Unpin', `Unpin ${pin}`, () => {
            this.pins = this.pins.filter((other) => other !== pin);
            this.showPins();
            this.changed();
          }),
        );
        return shown;
      }),
    );
  }
}

/**
 * The part of the address after `#` that holds a question: what differs from the defaults. A
 * dropped file does not fit.
 */
export function addressOf(view: View, question: Question): string {
  const parts = new URLSearchParams(view === 'plan' ? [] : [['view', view]]);
  for (const name of [...FIELDS, 'cluster'] as const)
    if (
      question[name] !== DEFAULTS[name] &&
      !(name === 'model' && ['file', 'program'].includes(question[name]))
    )
      parts.set(name, question[name]);
  for (const pin of question.pins) parts.append('pin', pin);
  return parts.toString();
}

/** Words of the command line for the fields of the form. */
const FLAGS = {
  memory: '--memory',
  batch: '--batch',
  sequence: '--seq',
  layers: '--layers',
} as const;

/**
 * The command that asks the same in a terminal. The example that the page opens with is a file of
 * the package.
 *
 * @param file name of the file that was given, where the model is one
 */
export function commandOf(view: View, question: Question, file: string | undefined): string {
  const { model, mesh, cluster, devices } = question;
  const source =
    model === 'demo' ? 'examples/llama3-8b-2l-b16.fx.txt.gz' : model === 'file' ? file : model;
  const words = ['shardwright', view === 'compare' ? 'compare' : 'plan', source ?? 'model.ts'];
  if (view === 'compare') words.push('--devices', devices);
  else words.push('--mesh', mesh);
  words.push('--cluster', cluster);
  for (const [name, flag] of Object.entries(FLAGS) as [keyof typeof FLAGS, string][])
    if (question[name] !== '' && !(view === 'compare' && name === 'layers'))
      words.push(flag, question[name]);
  if (view !== 'compare') for (const pin of question.pins) words.push('--pin', pin);
  return words.map(shellWord).join(' ');
}

function shellWord(word: string): string {
  return /^[\w./=,:@%+-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}

export function readAddress(hash: string): { readonly view: View; readonly question: Question } {
  const parts = new URLSearchParams(hash.replace(/^#/, ''));
  const given = [...FIELDS, 'cluster'].flatMap((name) =>
    parts.has(name) ? [[name, parts.get(name) ?? '']] : [],
  );
  return {
    view: VIEWS.find((view) => view === parts.get('view')) ?? 'plan',
    question: {
      ...DEFAULTS,
      ...(Object.fromEntries(given) as Partial<Question>),
      pins: parts.getAll('pin'),
    },
  };
}
