/**
 * The worker that plans, as functions that give promises. Progress is reported on the way. A
 * question that replaces a running one ends its worker, because nothing else ends a computation; a
 * stop lets it answer with the best so far.
 */
import type { Answers, Ask, Fault, Kind, Moment, Reply } from '../protocol.ts';

export interface Hears {
  readonly moment?: (moment: Moment) => void;
  readonly step?: (text: string) => void;
  readonly summary?: (text: string) => void;
}

/** What a question failed with. */
export class Failed extends Error {
  constructor(readonly fault: Fault) {
    super(fault.message);
  }
}

interface Waiting {
  readonly hears: Hears;
  readonly resolve: (answer: Answers[Kind]) => void;
  readonly reject: (fault: Failed) => void;
}

type Plain<A extends Ask = Ask> = A extends unknown ? Omit<A, 'stop'> : never;

/** Questions that take a while, and can be stopped. */
const STOPPED: ReadonlySet<Kind> = new Set(['plan', 'compare', 'tune', 'force']);

export class Planner {
  private worker: Worker | undefined;
  private readonly waiting = new Map<number, Waiting>();
  private last = 0;
  private stopRun: string | undefined;

  /** @param ask the kind decides what the answer is */
  ask<K extends Kind>(ask: Plain & { readonly kind: K }, hears: Hears = {}): Promise<Answers[K]> {
    const worker = (this.worker ??= this.start());
    const id = ++this.last;
    const stops = STOPPED.has(ask.kind);
    if (stops) this.stopRun = URL.createObjectURL(new Blob(['go']));
    worker.postMessage({ id, ask: stops ? { ...ask, stop: this.stopRun } : ask });
    return new Promise((resolve, reject) => {
      this.waiting.set(id, { hears, resolve: (answer) => resolve(answer as Answers[K]), reject });
    });
  }

  get isBusy(): boolean {
    return this.waiting.size > 0;
  }

  /** Asks the search to end with the best that it has. */
  stop(): void {
    if (this.stopRun !== undefined) URL.revokeObjectURL(this.stopRun);
    this.stopRun = undefined;
  }

  /** Ends the worker and forgets what it was asked; the next question starts another one. */
  end(): void {
    this.stop();
    this.worker?.terminate();
    this.worker = undefined;
    const fault = { code: 'E_INTERRUPTED', message: 'stopped', hint: '' };
    for (const { reject } of this.waiting.values()) reject(new Failed(fault));
    this.waiting.clear();
  }

  private start(): Worker {
    const worker = new Worker(new URL('../worker/main.ts', import.meta.url), { type: 'module' });
    worker.addEventListener('message', ({ data }: MessageEvent<Reply>) => this.hear(data));
    worker.addEventListener('error', (event) => {
      const fault = {
        code: 'E_INTERNAL',
        message: event.message,
        hint: 'the page may have run out of memory',
      };
      for (const { reject } of this.waiting.values()) reject(new Failed(fault));
      this.waiting.clear();
      this.end();
    });
    return worker;
  }

  private hear(reply: Reply): void {
    const waiting = this.waiting.get(reply.id);
    if (waiting === undefined) return;
    if (reply.kind === 'moment') waiting.hears.moment?.(reply.moment);
    else if (reply.kind === 'step') waiting.hears.step?.(reply.text);
    else if (reply.kind === 'summary') waiting.hears.summary?.(reply.text);
    else {
      this.waiting.delete(reply.id);
      if (reply.kind === 'answer') waiting.resolve(reply.answer);
      else waiting.reject(new Failed(reply.fault));
    }
  }
}
