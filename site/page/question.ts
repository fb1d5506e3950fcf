/** The question of the form. In: what is typed. Out: a `Question`. */
import type { Lists, Question } from '../protocol.ts';
import { DEFAULTS } from './address.ts';
import { byId, fill, input, select, small, textArea } from './elements.ts';
import { MeshView } from './mesh-view.ts';

/** Texts that are typed. */
const FIELDS = [
  'model',
  'mesh',
  'clusters',
  'memory',
  'batch',
  'sequence',
  'layers',
  'devices',
  'microbatches',
  'tokens',
  'price',
] as const;
/** Choices of a list. */
const CHOICES = ['optimizer', 'schedule'] as const;

export class QuestionForm {
  private pins: readonly string[] = [];
  /** Devices of a host, by cluster. */
  private perHost: Readonly<Record<string, number>> = {};
  private readonly mesh: MeshView;

  constructor(private readonly changed: () => void) {
    for (const name of FIELDS) input(`q-${name}`).addEventListener('input', changed);
    for (const name of CHOICES) select(`q-${name}`).addEventListener('change', changed);
    textArea('q-config').addEventListener('input', changed);
    const draw = (): void => this.drawMesh();
    select('q-cluster').addEventListener('change', () => (draw(), changed()));
    input('q-mesh').addEventListener('input', draw);
    this.mesh = new MeshView((text) => {
      input('q-mesh').value = text;
      changed();
    });
  }

  private drawMesh(): void {
    const mesh = input('q-mesh').value;
    this.mesh.show(mesh, this.perHost[select('q-cluster').value] ?? 8);
    // The outermost dim pp is stages: they have a schedule.
    byId('q-stages', HTMLElement).hidden = !/^\s*pp\s*=/.test(mesh);
  }

  get question(): Question {
    const texts = Object.fromEntries(FIELDS.map((name) => [name, input(`q-${name}`).value.trim()]));
    return {
      ...DEFAULTS,
      ...texts,
      cluster: select('q-cluster').value,
      optimizer: select('q-optimizer').value,
      schedule: select('q-schedule').value,
      config: textArea('q-config').value,
      pins: this.pins,
    };
  }

  set question(question: Question) {
    for (const name of FIELDS) input(`q-${name}`).value = question[name];
    for (const name of ['cluster', ...CHOICES] as const) select(`q-${name}`).value = question[name];
    textArea('q-config').value = question.config;
    this.pins = question.pins;
    this.showPins();
    this.drawMesh();
  }

  /**
   * What there is to choose from, the devices of a host of each cluster among it. What is chosen
   * stays; before there was anything it is that of the given question.
   */
  offer({ clusters, optimizers, schedules }: Lists, asked: Question): void {
    this.perHost = clusters;
    const lists = {
      cluster: Object.keys(clusters),
      optimizer: ['', ...optimizers],
      schedule: ['', ...schedules],
    };
    for (const name of ['cluster', ...CHOICES] as const) {
      const before = select(`q-${name}`).value;
      fill(select(`q-${name}`), lists[name]);
      select(`q-${name}`).value = before === '' ? asked[name] : before;
    }
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
