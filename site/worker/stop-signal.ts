/**
 * A signal that a computing worker can look at. In: the address of a blob that the page made. Out:
 * an `AbortSignal` that is aborted once the page has taken the blob away. A worker that computes
 * hears no message, and memory shared with the page is only there on cross-origin isolated pages; a
 * synchronous request of a blob works on every page, and asks no network.
 */
import { ShardwrightError } from '../../src/entries/page.ts';

/** Milliseconds from one look to the next: a look takes about one. */
const EVERY = 100;

export class StopSignal extends EventTarget implements AbortSignal {
  onabort: AbortSignal['onabort'] = null;
  private readonly address: string;
  private isAborted = false;
  private looked = performance.now();

  constructor(address: string) {
    super();
    this.address = address;
  }

  get aborted(): boolean {
    const now = performance.now();
    if (this.isAborted || now - this.looked < EVERY) return this.isAborted;
    this.looked = now;
    if (isGone(this.address)) {
      this.isAborted = true;
      this.dispatchEvent(new Event('abort'));
    }
    return this.isAborted;
  }

  get reason(): unknown {
    return this.isAborted
      ? new ShardwrightError('E_INTERRUPTED', 'stopped before there was a plan')
      : undefined;
  }

  throwIfAborted(): void {
    if (this.aborted) throw this.reason;
  }
}

function isGone(address: string): boolean {
  const request = new XMLHttpRequest();
  try {
    request.open('GET', address, false);
    request.send();
    return request.status !== 200;
  } catch {
    return true;
  }
}
