import { describe, expect, it } from 'vitest';

import type { Inspection } from '../../../../src/cli/commands/reading/inspect.ts';
import { FULL } from '../../../support/full.ts';
import { answerKey, cli, fixture, JOINT_MODELS } from '../../support.ts';

interface Key {
  readonly graph: { readonly nodes: number; readonly by_op: Readonly<Record<string, number>> };
  readonly params: { readonly count: number; readonly numel: number };
  readonly flops: { readonly total: number };
}

// A tied weight is listed once per name in the text; the key counts it once.
const TIED: Readonly<Record<string, readonly string[]>> = {
  'gpt2-2l': ['model.transformer.wte.weight=model.lm_head.weight'],
  'gpt2-12l': ['model.transformer.wte.weight=model.lm_head.weight'],
  'bert-base': [
    'model.bert.embeddings.word_embeddings.weight=model.cls.predictions.decoder.weight',
    'model.cls.predictions.bias=model.cls.predictions.decoder.bias',
  ],
};

async function inspect(
  model: string,
  text: string,
  ...flags: readonly string[]
): Promise<Inspection> {
  const run = await cli('inspect', fixture(model, text), '--json', ...flags);
  expect(run.err).toBe('');
  expect(run.code).toBe(0);
  return JSON.parse(run.out) as Inspection;
}

/** The same programs with another batch, or with more of the same layers. */
const LIKE_OTHERS = new Set([
  'llama3-8b-2l-b16',
  'llama3-8b-4l-b64',
  'llama3-8b-32l-b16',
  'gpt2-12l',
]);

describe('inspect agrees with what PyTorch counted', () => {
  for (const model of JOINT_MODELS.filter((name) => FULL || !LIKE_OTHERS.has(name))) {
    for (const text of ['joint.expanded', 'joint.readable']) {
      it(`${model} ${text}: nodes, operators, FLOPs`, async () => {
        const key = answerKey<Key>(model);
        const found = await inspect(model, text);
        expect(found.nodes).toBe(key.graph.nodes);
        expect(found.ops).toEqual(key.graph.by_op);
        expect(found.flops.total).toBe(key.flops.total);
        expect(found.unknownOps).toEqual([]);
      });
    }
    it(`${model}: parameters`, async () => {
      const key = answerKey<Key>(model);
      const found = await inspect(
        model,
        'joint.expanded',
        ...(TIED[model] ?? []).flatMap((tie) => ['--tie', tie]),
      );
      expect(found.parameters).toBe(key.params.numel);
      expect(found.parameterCount).toBe(key.params.count);
    });
  }

  it('a tied weight counts twice until it is tied', async () => {
    const loose = await inspect('gpt2-2l', 'joint.expanded');
    const tied = await inspect('gpt2-2l', 'joint.expanded', '--tie', TIED['gpt2-2l'][0]);
    expect(loose.parameters - tied.parameters).toBe(50257 * 768);
  });

  it('llama3-8b-32l: 8,030,261,248 parameters and 860.883 TFLOP forward + backward', async () => {
    const { out } = await cli('inspect', fixture('llama3-8b-32l'));
    expect(out).toContain('8,030,261,248');
    expect(out).toContain('860.883 TFLOP');
  });
});
