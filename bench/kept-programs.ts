/**
 * Keeps priced programs of data ranks on disk, so that a bench that stops goes on where it was. In:
 * a solver's question and requests. Out: what it answered before, else its answer, which is kept. A
 * directory belongs to one state of the source: nothing here notices that prices have changed.
 */

import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { deserialize, serialize } from 'node:v8';

import { CoreSolver } from '../src/sweep/rank/rank-price.ts';

type Pricing = InstanceType<typeof CoreSolver>;

/** A solver whose answers are kept in a directory. */
export class KeptSolver extends CoreSolver {
  constructor(
    private readonly directory: string,
    ...rest: ConstructorParameters<typeof CoreSolver>
  ) {
    super(...rest);
    mkdirSync(directory, { recursive: true });
  }

  /**
   * Everything that programs depend on: neither devices nor batch, nor how data ranks move states.
   */
  private pathOf(what: unknown): string {
    const { devices: _, globalBatch: __, model: ___, software, ...rest } = this.question;
    const { gradientBytes: _g, bucket: _b, state: _s, ...kernels } = software ?? {};
    const text = JSON.stringify([rest, kernels, what]);
    return join(this.directory, createHash('sha256').update(text).digest('hex').slice(0, 32));
  }

  override async priceUnder(
    ...args: Parameters<Pricing['priceUnder']>
  ): ReturnType<Pricing['priceUnder']> {
    const path = this.pathOf(['price', args[0], args[1]]);
    if (existsSync(path))
      return (deserialize(readFileSync(path)) as [Awaited<ReturnType<Pricing['priceUnder']>>])[0];
    const found = await super.priceUnder(...args);
    writeFileSync(path, serialize([found]));
    return found;
  }

  override routed(...args: Parameters<Pricing['routed']>): ReturnType<Pricing['routed']> {
    const path = this.pathOf(['routed', ...args]);
    if (existsSync(path))
      return (deserialize(readFileSync(path)) as [ReturnType<Pricing['routed']>])[0];
    const found = super.routed(...args);
    writeFileSync(path, serialize([found]));
    return found;
  }
}
