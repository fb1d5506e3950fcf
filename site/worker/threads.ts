/**
 * Threads of the planner as workers of this worker. In: the name of a task and what it starts with.
 * Out: a thread; its worker loads the script of this one, which sees by its name that it is a
 * thread.
 */
import { sweepThread } from '../../src/entries/page.ts';
import { provideThreads } from '../../src/platform/browser.ts';
import type { Thread, ThreadPort } from '../../src/platform/types.ts';

const TASKS: Readonly<Record<string, (port: ThreadPort, data: never) => void>> = {
  sweep: sweepThread,
};
const NAME = 'thread ';
/** Most threads: each takes some 100 MB. */
const MOST = 4;

export function threadCount(): number {
  return Math.max(1, Math.min(MOST, navigator.hardwareConcurrency));
}

/** Tells whether this worker is such a thread; then it does its task from now on. */
export function runsAsThread(): boolean {
  if (!self.name.startsWith(NAME)) return false;
  const task = TASKS[self.name.slice(NAME.length)];
  const port: ThreadPort = {
    postMessage: (message) => self.postMessage(message),
    on: (_, listen) =>
      self.addEventListener('message', ({ data }: MessageEvent) => void listen(data as never)),
  };
  // The first message is what it starts with.
  self.addEventListener('message', ({ data }: MessageEvent) => task(port, data as never), {
    once: true,
  });
  return true;
}

export function startThreadsAsWorkers(): void {
  provideThreads((task, start) => new WorkerThread(task, start));
}

class WorkerThread implements Thread {
  private readonly worker: Worker;
  private readonly listeners: {
    readonly event: string;
    readonly listen: unknown;
    readonly heard: (event: Event) => void;
  }[] = [];

  constructor(task: string, start: unknown) {
    this.worker = new Worker(self.location.href, { type: 'module', name: `${NAME}${task}` });
    this.worker.postMessage(start);
  }

  on<T>(event: 'message' | 'error' | 'exit', listen: (value: T) => void): void {
    const heard = (given: Event): void =>
      listen(
        (given instanceof MessageEvent
          ? given.data
          : new Error((given as ErrorEvent).message)) as T,
      );
    this.listeners.push({ event, listen, heard });
    this.worker.addEventListener(event, heard);
  }

  off<T>(event: 'message' | 'error' | 'exit', listen: (value: T) => void): void {
    for (const known of this.listeners)
      if (known.event === event && known.listen === listen)
        this.worker.removeEventListener(event, known.heard);
  }

  removeAllListeners(): void {
    for (const { event, heard } of this.listeners.splice(0))
      this.worker.removeEventListener(event, heard);
  }

  postMessage(message: unknown): void {
    this.worker.postMessage(message);
  }

  terminate(): Promise<void> {
    this.worker.terminate();
    return Promise.resolve();
  }

  /** A page waits for no thread. */
  ref(): void {}
  unref(): void {}
}
