import { beforeAll, describe, expect, it } from 'vitest';

import { Deadline } from '../../../src/plan/request/deadline.ts';
import type { Comparison } from '../../../src/recipes/compare/comparison.ts';
import { mergeComparisons } from '../../../src/recipes/compare/conclude-comparison.ts';
import { stoppedText } from '../../../src/report/text/sweep.ts';
import { compareModel } from '../../../src/sweep/compare-model.ts';
import type { SweepQuestion } from '../../../src/sweep/model/question.ts';
import { TABLE } from '../../plan/support.ts';
import { FULL } from '../../support/full.ts';

const QUESTION: SweepQuestion = {
  model: 'small',
  config: JSON.stringify({
    model_type: 'llama',
    hidden_size: 512,
    intermediate_size: 1536,
    num_attention_heads: 8,
    num_key_value_heads: 8,
    num_hidden_layers: 4,
    vocab_size: 4096,
    torch_dtype: 'bfloat16',
  }),
  devices: 4,
  cluster: 'dgx-h100',
  sequence: 256,
  globalBatch: 16,
  cost: 'nccl',
};

/** A comparison that is stopped after so many looks at the clock. */
function stoppedAfter(looks: number): Promise<Comparison> {
  let now = 0;
  const deadline = new Deadline(looks / 1e3, { clock: { now: () => now++ } });
  return compareModel(QUESTION, {
    table: TABLE,
    threads: 1,
    whatIf: false,
    plans: ['dp', 'fsdp', 'fsdp+tp+sp', 'fsdp+ulysses', 'fsdp+cp', 'pp+fsdp'],
    deadline,
  });
}

describe('a comparison that is stopped', () => {
  let whole: Comparison;
  beforeAll(async () => {
    whole = await stoppedAfter(Infinity);
  });

  it('knows a bound that no recipe is below, and says how far the best so far may be from it', async () => {
    const fastest = Math.min(...whole.plans.filter((p) => p.fits).map((p) => p.seconds));
    const seen = new Set<number>();
    for (const looks of FULL ? [6, 10, 14, 20, 30] : [14, 30]) {
      const part = await stoppedAfter(looks).catch(() => undefined);
      const bound = part?.stopped?.boundSeconds;
      if (part === undefined || bound === undefined) continue;
      const best = part.plans.find((p) => p.name === part.best);
      expect(best?.seconds).toBeGreaterThanOrEqual(fastest);
      expect(bound).toBeLessThanOrEqual(fastest);
      expect(bound).toBeGreaterThan(fastest / 4);
      seen.add(part.plans.length);
    }
    expect(seen.size).toBeGreaterThan(1);
    expect(whole.stopped).toBeUndefined();
  });

  it('a stopped comparison says how far its best can be from the best recipe', () => {
    const stopped = { by: 'time limit', notAsked: ['3 programs'] } as const;
    expect(stoppedText({ ...stopped, boundSeconds: 3 }, 4)).toBe(
      'time limit: the best so far; no recipe that fits as surely has a step below 3.00 s, 25.0 % less; not asked: 3 programs',
    );
    expect(stoppedText({ ...stopped, boundSeconds: 4 }, 4)).toBe(
      'time limit: the best so far; no recipe that fits as surely is faster; not asked: 3 programs',
    );
    expect(stoppedText(stopped, 4)).toBe('time limit: the best so far; not asked: 3 programs');
  });

  it('of pieces the least bound counts, and the best of those that were done', () => {
    const best = whole.plans.find((p) => p.name === whole.best)?.seconds ?? 0;
    const cut = (boundSeconds?: number): Comparison => ({
      ...whole,
      stopped: {
        by: 'time limit',
        notAsked: [],
        ...(boundSeconds === undefined ? {} : { boundSeconds }),
      },
    });
    expect(mergeComparisons([whole, cut(best / 2)]).stopped?.boundSeconds).toBe(best / 2);
    expect(mergeComparisons([whole, cut(2 * best)]).stopped?.boundSeconds).toBe(best);
    expect(mergeComparisons([cut(), cut(best)]).stopped?.boundSeconds).toBeUndefined();
  });
});
