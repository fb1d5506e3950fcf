import { describe, expect, test } from 'vitest';

import type { Graph } from '../../../src/graph/types.ts';
import { graphFlops } from '../../../src/ops/flops.ts';
import { joinForwardBackward } from '../../../src/passes/autodiff/from-parts.ts';
import { forwardPart } from '../../../src/passes/dead-code.ts';
import { FULL } from '../../support/full.ts';
import { graphOf, signature, table } from '../joint-support.ts';

/** The 18 pairs of halves, with the work of their joint graphs. */
const PAIRS: readonly (readonly [string, string, number])[] = [
  ['mlp', '', 1_835_008],
  ['mlp', '_inductor', 1_835_008],
  ['mlp-loss', '', 2_684_354_560],
  ['convnet', '', 2_658_048],
  ['resnet18', '', 170_374_594_560],
  ['vit-tiny', '', 122_290_053_120],
  ['bert-base', '', 1_372_789_407_744],
  ['gpt2-2l', '', 0],
  ['llama-tiny', '', 44_564_992],
  ['mixtral-tiny', '', 54_198_784],
  ['mixtral-tiny-grouped', '', 54_198_784],
  ['llama3-8b-2l', '', 102_220_222_169_088],
  ['llama3-8b-2l', '_inductor', 102_220_221_644_800],
  ['hop-cond-joint', '', 0],
  ['hop-map-joint', '', 0],
  ['hop-scan-joint', '', 0],
];
/** Those of 2 layers for longer. */
const DEEP: typeof PAIRS = [
  ['gpt2-12l', '', 7_154_178_195_456],
  ['llama3-8b-32l', '', 860_883_245_334_528],
];

describe('joining the forward and backward halves', () => {
  test.each(FULL ? [...PAIRS, ...DEEP] : PAIRS)('%s%s', (model, kind, flops) => {
    const joined = joinForwardBackward(
      graphOf(model, `forward${kind}`),
      graphOf(model, `backward${kind}`),
    );
    const joint = graphOf(model, `joint${kind}`);
    const work = graphFlops(joined, table);
    const { forward, backward, total } = graphFlops(joint, table);
    expect([work.forward, work.backward, work.total]).toEqual([forward, backward, total]);
    if (flops > 0) expect(work.total).toBe(flops);
    expect(signature(joined)).toEqual(signature(joint));
    expect(Object.keys(joined.subgraphs).length).toBe(Object.keys(joint.subgraphs).length);
  });

  test('values that the backward half recomputes stay there, under names of their own', () => {
    const joined = joinForwardBackward(
      graphOf('llama3-8b-2l', 'forward'),
      graphOf('llama3-8b-2l', 'backward'),
    );
    const names = joined.nodes.map((node) => node.name);
    expect(new Set(names).size).toBe(names.length);
    expect(joined.nodes.length).toBeGreaterThan(graphOf('llama3-8b-2l', 'joint').nodes.length);
  });

  test('a saved value that the forward half lacks is refused by name', () => {
    const forward = graphOf('mlp', 'forward');
    const backward = graphOf('mlp', 'backward');
    const renamed: Graph = {
      ...forward,
      nodes: forward.nodes.map((n) =>
        n.name === 'relu' ? { ...n, name: 'relu_7', target: n.target } : n,
      ),
      outputs: forward.outputs.map((o) => (o.value === 'relu' ? { ...o, value: 'relu_7' } : o)),
    };
    expect(failure(() => joinForwardBackward(renamed, backward))).toMatchObject({
      code: 'E_REF',
      message: `the backward graph takes 'relu', which the forward graph does not have`,
    });
  });

  test('halves of different programs are refused', () => {
    expect(
      failure(() =>
        joinForwardBackward(graphOf('mlp', 'forward'), graphOf('mlp-loss', 'backward')),
      ),
    ).toMatchObject({ code: 'E_TYPE' });
    expect(
      failure(() =>
        joinForwardBackward(graphOf('llama-tiny', 'forward'), graphOf('mlp', 'backward')),
      ),
    ).toMatchObject({ code: 'E_TYPE' });
  });

  test('the forward part of a joint graph is what the forward half computes', () => {
    const forward = forwardPart(graphOf('llama-tiny', 'joint'));
    expect(graphFlops(forward, table).total).toBe(
      graphFlops(graphOf('llama-tiny', 'forward'), table).total,
    );
    expect(
      forward.nodes.some((node) => node.meta.role === 'tangent' || node.meta.phase === 'backward'),
    ).toBe(false);
  });
});

function failure(make: () => unknown): unknown {
  try {
    make();
  } catch (error) {
    return error;
  }
  return undefined;
}
