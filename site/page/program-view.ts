/**
 * The view of a program: editor, findings at their lines, graph and types beside it. All of it is
 * loaded when it is opened.
 */
import EXPERTS from '../programs/experts.ts?raw';
import SPMD from '../programs/local-spmd.ts?raw';
import SCAN from '../programs/scan.ts?raw';
import SMALL from '../programs/small-mlp.ts?raw';
import type { Editor } from './editor.ts';
import { button, byId, fill, select, settled } from './elements.ts';
import { Failed, Planner } from './planner.ts';

const EXAMPLES: Readonly<Record<string, string>> = {
  'a small MLP': SMALL,
  'local SPMD code, types per mesh dim': SPMD,
  'a recurrent network as a loop (scan)': SCAN,
  'a mixture of experts': EXPERTS,
};

export class ProgramView {
  /** Of its own, so that typing waits for no plan; the compiler is loaded there. */
  private readonly planner = new Planner();
  private editor: Editor | undefined;
  private asked = 0;
  /** A program that came with the address: code of a stranger, which runs when the reader says so. */
  private held: string | undefined;

  constructor(
    private readonly mesh: () => string,
    private readonly changed: () => void,
  ) {
    button('q-trace').addEventListener('click', () => {
      this.held = undefined;
      void this.check();
    });
    fill(select('q-example'), Object.keys(EXAMPLES));
    select('q-example').addEventListener('change', () => this.choose());
  }

  get text(): string {
    return this.editor?.text ?? SMALL;
  }

  /** The text; empty where it is one of the examples. */
  get own(): string {
    const text = this.held ?? this.text;
    return Object.values(EXAMPLES).includes(text) ? '' : text;
  }

  get isHeld(): boolean {
    return this.held !== undefined;
  }

  /** Shows a program of an address. It does not run until the reader has looked at it. */
  hold(text: string): void {
    if (text === this.own) return;
    this.held = text;
    if (this.editor !== undefined) this.editor.text = text;
  }

  async open(): Promise<void> {
    if (this.editor !== undefined) return;
    byId('q-findings', HTMLElement).textContent = 'Loading TypeScript (4 MB) to trace the program.';
    const { openEditor } = await import('./editor.ts');
    const soon = settled(300, () => {
      this.changed();
      void this.check();
    });
    this.editor ??= openEditor(byId('q-editor', HTMLElement), this.held ?? SMALL, soon);
    await this.check();
  }

  private choose(): void {
    this.held = undefined;
    if (this.editor !== undefined) this.editor.text = EXAMPLES[select('q-example').value];
  }

  private async check(): Promise<void> {
    const mine = ++this.asked;
    const isHeld = this.held !== undefined;
    button('q-trace').hidden = !isHeld;
    button('q-plan-program').disabled = isHeld;
    if (isHeld) {
      byId('q-findings', HTMLElement).textContent =
        'This program came with the link and has not run. Read it, then trace it.';
      return;
    }
    const [graph, types] = [byId('q-graph', HTMLElement), byId('q-types', HTMLElement)];
    try {
      const found = await this.planner.ask({
        kind: 'program',
        text: this.text,
        mesh: this.mesh(),
      });
      if (mine !== this.asked) return;
      this.editor?.show(found.findings);
      if (found.graph !== '') graph.textContent = found.graph;
      types.hidden = found.types.length === 0;
      types.textContent = found.types.join('\n');
      byId('q-findings', HTMLElement).textContent = found.findings
        .map((f) => `line ${f.line}: ${f.message}`)
        .join('\n');
      button('q-plan-program').disabled = found.graph === '';
    } catch (error) {
      if (!(error instanceof Failed)) throw error;
      if (mine === this.asked) byId('q-findings', HTMLElement).textContent = error.fault.message;
    }
  }
}
