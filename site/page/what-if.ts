/**
 * Asks what other placements of values would cost, one on top of another, with undo and redo. In: a
 * value that was clicked or typed. Out: the difference and why, and pins.
 */
import type { PlanSource, WhatIfAnswer } from '../protocol.ts';
import { button, byId, fill, input } from './elements.ts';
import { Failed } from './planner.ts';

export class WhatIf {
  private pins: readonly string[] = [];

  constructor(
    private readonly source: () => PlanSource,
    keep: (pins: readonly string[]) => void,
  ) {
    byId('w-form', HTMLFormElement).addEventListener('submit', (event) => {
      event.preventDefault();
      void this.price();
    });
    input('w-node').addEventListener('change', () => void this.explain());
    button('w-close').addEventListener('click', () => this.close());
    button('w-keep').addEventListener('click', () => {
      this.close();
      keep(this.pins);
    });
    for (const kind of ['undo', 'redo'] as const)
      button(`w-${kind}`).addEventListener('click', () => void this.move(kind));
    document.addEventListener('keydown', (event) => {
      const kind = moveOf(event);
      if (kind === undefined || byId('w-panel', HTMLElement).hidden) return;
      event.preventDefault();
      if (!button(`w-${kind}`).disabled) void this.move(kind);
    });
  }

  /** The values of a plan that just came: nothing is asked of it yet. */
  set nodes(names: readonly string[]) {
    this.show({ pins: [], canUndo: false, canRedo: false });
    fill(byId('w-nodes', HTMLDataListElement), names.slice(0, 5000));
  }

  open(node: string): void {
    byId('w-panel', HTMLElement).hidden = false;
    input('w-node').value = node;
    input('w-placement').value = '';
    void this.explain();
  }

  close(): void {
    byId('w-panel', HTMLElement).hidden = true;
  }

  private async explain(): Promise<void> {
    await this.say(async () => {
      byId('w-answer', HTMLElement).textContent = 'Reading its strategies ...';
      const { text, placements } = await this.source().ask({
        kind: 'explain',
        node: input('w-node').value.trim(),
      });
      fill(byId('w-placements', HTMLDataListElement), placements);
      return text;
    });
  }

  private async price(): Promise<void> {
    const [node, placement] = [input('w-node').value.trim(), input('w-placement').value.trim()];
    if (placement === '') return this.explain();
    await this.say(async () => {
      byId('w-answer', HTMLElement).textContent = 'Planning again with it ...';
      const asked = { kind: 'force', node, placement } as const;
      return this.show(await this.source().ask(asked)).text;
    });
  }

  private async move(kind: 'undo' | 'redo'): Promise<void> {
    await this.say(async () => this.show(await this.source().ask({ kind })).text);
  }

  /** Sets the buttons to what can be done now. */
  private show<A extends Omit<WhatIfAnswer, 'text'>>(answer: A): A {
    this.pins = answer.pins;
    button('w-undo').disabled = !answer.canUndo;
    button('w-redo').disabled = !answer.canRedo;
    button('w-keep').hidden = answer.pins.length === 0;
    return answer;
  }

  private async say(answer: () => Promise<string>): Promise<void> {
    const place = byId('w-answer', HTMLElement);
    try {
      place.textContent = await answer();
    } catch (error) {
      if (!(error instanceof Failed)) throw error;
      place.textContent = [error.fault.message, error.fault.hint]
        .filter((t) => t !== '')
        .join('\n');
    }
  }
}

/**
 * Ctrl+Z and Ctrl+Shift+Z or Ctrl+Y (Command on a Mac). In a field they are the field's own, which
 * takes its typing back.
 */
function moveOf(event: KeyboardEvent): 'undo' | 'redo' | undefined {
  if (event.target instanceof HTMLInputElement || event.target instanceof HTMLTextAreaElement)
    return undefined;
  if (!(event.ctrlKey || event.metaKey) || event.altKey) return undefined;
  const key = event.key.toLowerCase();
  if (key === 'z') return event.shiftKey ? 'redo' : 'undo';
  return key === 'y' ? 'redo' : undefined;
}
