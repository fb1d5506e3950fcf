/**
 * Keeps the folders of plans that the page may still ask about, under names that nobody can guess.
 * The oldest are removed first, and all of them with the server.
 */
import { randomBytes } from 'node:crypto';
import { rmSync } from 'node:fs';

const MOST = 4;

export class KeptPlans {
  /** By name, oldest first. */
  private readonly folders = new Map<string, string>();

  /** Owns the folder from now on. */
  keep(folder: string): string {
    const name = randomBytes(12).toString('hex');
    this.folders.set(name, folder);
    for (const [oldest] of [...this.folders].slice(0, -MOST)) this.drop(oldest);
    return name;
  }

  folder(name: string): string | undefined {
    return this.folders.get(name);
  }

  has(folder: string): boolean {
    return [...this.folders.values()].includes(folder);
  }

  close(): void {
    for (const name of [...this.folders.keys()]) this.drop(name);
  }

  private drop(name: string): void {
    rmSync(this.folders.get(name) ?? '', { recursive: true, force: true });
    this.folders.delete(name);
  }
}
