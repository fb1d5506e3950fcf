import { describe, expect, it } from 'vitest';

import { ShardwrightError } from '../../src/errors.ts';
import { leastCostPlan } from '../../src/plan/least-cost-plan.ts';
import { prepare } from '../../src/plan/prepare/prepare.ts';
import { type Clock, Deadline } from '../../src/plan/request/deadline.ts';
import { FULL } from '../support/full.ts';
import { load, request, TABLE } from './support.ts';

/**
 * The time limit holds from the first byte: what comes before the solver asks it too, and says
 * which step used the time.
 */

/** A clock that goes one second at every look: work is counted, whatever the machine. */
function counting(): Clock & { looks: number } {
  return {
    looks: 0,
    now() {
      return this.looks++ * 1e3;
    },
  };
}

const GRAPH = load('torch/mlp/joint.expanded');
const refusal = (looks: number, mesh = 'a=2,b=2'): ShardwrightError | undefined => {
  try {
    prepare(GRAPH, request(mesh), TABLE, new Deadline(looks - 0.5, { clock: counting() }));
    return undefined;
  } catch (error) {
    if (error instanceof ShardwrightError) return error;
    throw error;
  }
};

describe('a limit that comes before the solver', () => {
  it('ends the work at the next look, wherever it comes, and says in which step', () => {
    const clock = counting();
    prepare(GRAPH, request('a=2,b=2'), TABLE, new Deadline(1e9, { clock }));
    const steps = new Set<string>();
    // The first look only starts the clock.
    // Every sixth look, every one with SHARDWRIGHT_FULL.
    for (let looks = 1; looks < clock.looks; looks += FULL ? 1 : 6) {
      const error = refusal(looks);
      expect(error?.code, `${looks} of ${clock.looks}`).toBe('E_TIME_LIMIT');
      expect(error?.details.hint).toContain('raise --time-limit');
      steps.add(/came (.*), before the solver began$/.exec(error?.message ?? '')?.[1] ?? '');
    }
    expect([...steps]).toEqual([
      'while the program was read',
      'while the placements of calls were listed',
      'while redistributions were priced',
    ]);
    expect(refusal(clock.looks)).toBeUndefined();
  });

  it('is asked more often where there is more to do: no step of six dims of two is one long look', () => {
    const looksOn = (mesh: string): number => {
      const clock = counting();
      prepare(GRAPH, request(mesh), TABLE, new Deadline(1e9, { clock }));
      return clock.looks;
    };
    const counts = ['a=2', 'a=2,b=2', 'a=2,b=2,c=2'].map(looksOn);
    // Placements of a matrix grow threefold with each dim; so do the rows of prices.
    expect(counts[1]).toBeGreaterThan(2 * counts[0]);
    expect(counts[2]).toBeGreaterThan(2 * counts[1]);
    // Ended at its tenth look it has not done the rest.
    expect(refusal(10, 'a=2,b=2,c=2,d=2,e=2,f=2')?.code).toBe('E_TIME_LIMIT');
  });

  it('is that of the whole call: preparing takes of what the solver gets', async () => {
    const deadline = new Deadline(5.5, { clock: counting() });
    await expect(
      leastCostPlan(GRAPH, request('a=2,b=2'), { table: TABLE, deadline }),
    ).rejects.toMatchObject({
      code: 'E_TIME_LIMIT',
    });
  });

  it('is not a limit where none was given', () => {
    expect(prepare(GRAPH, request('a=2'), TABLE).left.contradictions).toEqual([]);
  });
});
