/**
 * The planner of this machine behind the page (`shardwright serve`). In: a question and a file.
 * Out: the report and a plan that can be asked as the page's own. A page that was not given by that
 * server does not say that there is a planner, and asks nobody.
 */
import type { NodeExplanation } from '../../src/plan/questions/explain.ts';
import { NOTHING_ASKED } from '../../src/report/text/explain.ts';
import { explanationAnswer } from '../explanation.ts';
import type { Answers, Fault, PlanAsk, Question, WhatIfAnswer } from '../protocol.ts';
import { Failed, type Hears } from './planner.ts';

interface Made {
  readonly plan: string;
  readonly html: string;
  readonly files: Readonly<Record<string, string>>;
}

type Line =
  | { readonly step: string }
  | { readonly summary: string }
  | { readonly fault: Fault }
  | { readonly printed: string }
  | Made;

export function hasLocalPlanner(): boolean {
  return document.querySelector('meta[name="shardwright-planner"]') !== null;
}

/** A plan that the machine keeps. */
export class LocalPlan {
  readonly html: string;
  private readonly plan: string;
  private readonly files: Readonly<Record<string, Uint8Array>>;
  /** Placements that were priced, with what was printed; the first `done` are not taken back. */
  private readonly priced: { readonly pin: string; readonly text: string }[] = [];
  private done = 0;

  constructor({ plan, html, files }: Made) {
    this.html = html;
    this.plan = plan;
    this.files = Object.fromEntries(
      Object.entries(files).map(([name, base64]) => [
        name,
        Uint8Array.from(atob(base64), (c) => c.charCodeAt(0)),
      ]),
    );
  }

  get nodes(): readonly string[] {
    const text = new TextDecoder().decode(this.files['plan.json']);
    return (JSON.parse(text) as { readonly nodes: readonly { readonly name: string }[] }).nodes.map(
      ({ name }) => name,
    );
  }

  /** @throws Failed with what the planner says */
  async ask<K extends PlanAsk['kind']>(ask: PlanAsk & { readonly kind: K }): Promise<Answers[K]> {
    return (await this.answer(ask)) as Answers[K];
  }

  private get pins(): readonly string[] {
    return this.priced.slice(0, this.done).map(({ pin }) => pin);
  }

  /** Takes a priced placement back or up; what was printed for it is shown again. */
  private move(by: -1 | 1): WhatIfAnswer {
    this.done = Math.max(0, Math.min(this.priced.length, this.done + by));
    return {
      text: this.priced[this.done - 1]?.text ?? NOTHING_ASKED,
      pins: this.pins,
      canUndo: this.done > 0,
      canRedo: this.done < this.priced.length,
    };
  }

  private async answer(ask: PlanAsk): Promise<Answers[PlanAsk['kind']]> {
    if (ask.kind === 'folder') return { files: this.files };
    if (ask.kind === 'undo' || ask.kind === 'redo') return this.move(ask.kind === 'undo' ? -1 : 1);
    const at = this.done;
    const before = this.pins;
    const last = await linesOf('/ask', {
      ...ask,
      plan: this.plan,
      ...(ask.kind === 'force' ? { before } : {}),
    });
    if (!('printed' in last)) throw failed('the local planner gave another answer');
    const { printed } = last;
    switch (ask.kind) {
      case 'explain':
        return explanationAnswer(JSON.parse(printed) as NodeExplanation);
      case 'force':
        this.priced.splice(at, Infinity, {
          pin: `${ask.node}=${ask.placement}`,
          text: printed.slice(printed.lastIndexOf('\nforce ') + 1),
        });
        this.done = at;
        return this.move(1);
      case 'export': {
        const { files } = JSON.parse(printed) as Exported;
        const bytes = Object.entries(files).map(
          ([name, text]) => [name, new TextEncoder().encode(text)] as const,
        );
        return { files: Object.fromEntries(bytes) };
      }
    }
  }
}

interface Exported {
  readonly files: Readonly<Record<string, string>>;
}

/** @throws Failed with what the planner says */
export async function planLocally(
  question: Question,
  file: { readonly name: string; readonly bytes: Uint8Array },
  hears: Hears,
  signal: AbortSignal,
): Promise<LocalPlan> {
  const { mesh, cluster, memory, batch, sequence, layers, pins } = question;
  const { optimizer, schedule, microbatches } = question;
  const asked = {
    ...{ name: file.name, mesh, cluster, memory, batch, sequence, layers, pins },
    ...{ optimizer, schedule, microbatches },
  };
  const last = await linesOf('/plan', asked, {
    body: file.bytes as BlobPart as Blob,
    hears,
    signal,
  });
  if (!('html' in last)) throw failed('the local planner gave another answer');
  return new LocalPlan(last);
}

const failed = (message: string, code = 'E_IO'): Failed => new Failed({ code, message, hint: '' });

interface Sent {
  readonly body?: Blob;
  readonly hears?: Hears;
  readonly signal?: AbortSignal;
}

/** Asks the server; tells of its steps, gives its last line. */
async function linesOf(
  path: string,
  question: object,
  { body, hears = {}, signal }: Sent = {},
): Promise<Exclude<Line, { readonly fault: Fault }>> {
  const stopped = (error: unknown): unknown =>
    signal?.aborted === true ? failed('stopped', 'E_INTERRUPTED') : error;
  let response: Response;
  try {
    response = await fetch(path, {
      method: 'POST',
      headers: { 'x-question': encodeURIComponent(JSON.stringify(question)) },
      ...(body === undefined ? {} : { body }),
      ...(signal === undefined ? {} : { signal }),
    });
  } catch (error) {
    throw stopped(failed(`the local planner does not answer: ${String(error)}`));
  }
  let rest = '';
  const decoder = new TextDecoder();
  try {
    for await (const chunk of response.body as unknown as AsyncIterable<Uint8Array>) {
      const lines = (rest + decoder.decode(chunk, { stream: true })).split('\n');
      rest = lines.pop() ?? '';
      for (const text of lines) {
        const line = JSON.parse(text) as Line;
        if ('fault' in line) throw new Failed(line.fault);
        if ('step' in line) hears.step?.(line.step);
        else if ('summary' in line) hears.summary?.(line.summary);
        else return line;
      }
    }
  } catch (error) {
    throw stopped(error);
  }
  throw failed('the local planner ended without an answer');
}
