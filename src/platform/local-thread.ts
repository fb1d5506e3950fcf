/**
 * A thread that is none: its code runs in the thread that asks, one turn of the event loop later.
 * Messages are copied as between threads, so that neither side sees what the other changes. What it
 * computes cannot be ended from outside.
 */
import { internalError } from '../errors.ts';
import type { Thread, ThreadCode, ThreadPort } from './types.ts';

type Listener = (value: never) => unknown;

export function localThread({ body }: ThreadCode, data: unknown): Thread {
  const outside = new Listeners();
  const inside = new Listeners();
  let isOver = false;
  const failed = (fault: unknown): void => {
    if (!isOver)
      void outside.tell('error', fault instanceof Error ? fault : new Error(String(fault)));
  };
  const port: ThreadPort = {
    postMessage: (message) => {
      if (!isOver) void outside.tell('message', structuredClone(message));
    },
    on: (event, listen) => inside.add(event, listen),
  };
  const started = new Promise((resolve) => setTimeout(resolve)).then(async () => {
    if (body === undefined) throw internalError('this code needs a thread, and there is none');
    if (!isOver) await (await body())(port, data as never);
  });
  started.catch(failed);
  return {
    on: (event, listen) => outside.add(event, listen),
    off: (event, listen) => outside.delete(event, listen),
    removeAllListeners: () => outside.clear(),
    postMessage: (message) => {
      const copy: unknown = structuredClone(message);
      void started.then(() => (isOver ? undefined : inside.tell('message', copy))).catch(failed);
    },
    terminate: () => {
      isOver = true;
      return Promise.resolve();
    },
    ref: () => undefined,
    unref: () => undefined,
  };
}

class Listeners {
  private readonly by = new Map<string, Set<Listener>>();

  add(event: string, listen: Listener): void {
    this.by.set(event, (this.by.get(event) ?? new Set()).add(listen));
  }

  delete(event: string, listen: Listener): void {
    this.by.get(event)?.delete(listen);
  }

  clear(): void {
    this.by.clear();
  }

  /** Resolves when all listeners are done. */
  async tell(event: string, value: unknown): Promise<void> {
    for (const listen of [...(this.by.get(event) ?? [])]) await listen(value as never);
  }
}
