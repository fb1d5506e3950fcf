/**
 * Asks what another placement of a value would cost. In: a value that was clicked or typed. Out:
 * the difference and why, and a pin.
 */
import type { PlanSource } from '../protocol.ts';
import { button, byId, fill, input } from './elements.ts';
import { Failed } from './planner.ts';

export class WhatIf {
  private pin = '';

  constructor(
    private readonly source: () => PlanSource,
    keep: (pin: string) => void,
  ) {
    byId('w-form', HTMLFormElement).addEventListener('submit', (event) => {
      event.preventDefault();
      void this.price();
    });
    input('w-node').addEventListener('change', () => void this.explain());
    button('w-close').addEventListener('click', () => this.close());
    button('w-keep').addEventListener('click', () => {
      this.close();
      keep(this.pin);
    });
  }

  set nodes(names: readonly string[]) {
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
      const { text, pin } = await this.source().ask({ kind: 'force', node, placement });
      this.pin = pin;
      button('w-keep').hidden = false;
      return text;
    });
  }

  private async say(answer: () => Promise<string>): Promise<void> {
    button('w-keep').hidden = true;
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
