import { describe, expect, it } from 'vitest';

import { parseMesh } from '../../src/mesh/devices/mesh.ts';
import { ShardingSpace } from '../../src/mesh/sharding/space.ts';
import { builtinOperators } from '../../src/ops/builtin.ts';
import { expandRules } from '../../src/ops/expansion/expand.ts';
import { bindText, parseCall } from '../../src/ops/samples/call-text.ts';

/**
 * Colossal-Auto writes a strategy as `out = lhs x rhs`, each a sharding per tensor dim: `S0`, `S1`,
 * `S01` name the mesh axes that cut it. A sum over a cut contraction is all-reduced inside its
 * strategies, pending in ours.
 */
const operators = builtinOperators();

/** Axes that cut each dim: `S01R` is [[0, 1], []]. */
function tokens(text: string): number[][] {
  return [...text.matchAll(/S(\d+)|R/g)].map(([, axes]) => [...(axes ?? '')].map(Number));
}

/** Dims by letter: `Sb0Si1` over `bij` is [[0], [1], []]. */
function letters(text: string, dims: string): number[][] {
  const cut = new Map(
    [...text.matchAll(/S([a-z])(\d+)/g)].map(([, dim, axes]) => [dim, [...axes].map(Number)]),
  );
  return [...dims].map((dim) => cut.get(dim) ?? []);
}

/**
 * `S(0)R` of a list of axes per tensor dim. `order`: the dim of ours that each dim of theirs is.
 */
function placements(
  dims: readonly (readonly number[])[],
  axes: number,
  order = dims.map((_, d) => d),
): string {
  return Array.from({ length: axes }, (_, axis) => {
    const d = dims.findIndex((cut) => cut.includes(axis));
    return d < 0 ? 'R' : `S(${order[d]})`;
  }).join('');
}

/** Our strategies of a call: the tensors asked for and the first result, pending sums reduced. */
function ours(call: string, mesh: string, inputs: readonly number[]): Set<string> {
  const space = new ShardingSpace(parseMesh(mesh));
  const { record, ctx } = bindText(operators, parseCall(call));
  const set = expandRules(space, record.shard(ctx), ctx.inputs, ctx.outputs, { uneven: 'allow' });
  const width = set.inputCount + set.outputCount;
  return new Set(
    Array.from({ length: set.count }, (_, s) => {
      const at = (t: number): string => space.text(set.specs[s * width + t]);
      const out = at(set.inputCount).replaceAll('P(sum)', 'R');
      return [out, ...inputs.map(at)].map((text) => (text === 'R' ? 'RR' : text)).join(' ');
    }),
  );
}

/** `space.text` shortens an all-replicated sharding. */
const whole = (texts: readonly string[]): string =>
  texts.map((t) => (t === 'R' ? 'RR' : t)).join(' ');

const LINEAR =
  'S0S1=S0R×RS1, S1S0=S1R×RS0, S0R=S0S1×S1R, S1R=S1S0×S0R, RS0=RS1×S1S0, RS1=RS0×S0S1, RR=RS0×S0R, RR=RS1×S1R, RS0=RR×RS0, RS1=RR×RS1, S01R=S01R×RR, RR=RS01×S01R, RS01=RR×RS01, RR=RR×RR';
const BMM =
  'Sb01=Sb01×Sb01, Sb0Si1=Sb0Si1×Sb0, Sb1Si0=Sb1Si0×Sb1, Sb0Sj1=Sb0R×Sb0Sj1, Sb1Sj0=Sb1R×Sb1Sj0, Sb0R=Sb0Sk1×Sb0Sk1, Sb1R=Sb1Sk0×Sb1Sk0';
const EMBEDDING =
  'RR=R×RR, S0R=S0×RR, S1R=S1×RR, S0S1=S0×RS1, S1S0=S1×RS0, RS0=R×RS0, RS1=R×RS1, S01R=S01×RR, RS01=R×RS01';
const NORM = 'S0R, S1R, S01R, RR';

interface Generator {
  readonly name: string;
  readonly call: string;
  readonly strategies: string;
  /** One strategy as the text of ours: result, then the inputs that theirs names. */
  readonly read: (out: string, operands: readonly string[]) => string;
  /** Inputs that theirs names. */
  readonly inputs: readonly number[];
}

const GENERATORS: readonly Generator[] = [
  {
    name: 'linear 16 to 32',
    call: 'mm(x[8,16], x[16,32])',
    strategies: LINEAR,
    read: (out, [a, b]) => whole([out, a, b].map((t) => placements(tokens(t), 2))),
    inputs: [0, 1],
  },
  {
    name: 'convolution',
    call: 'convolution(x[8,16,12,12], x[32,16,3,3], None, [1,1], [0,0], [1,1], False, [0,0], 1)',
    strategies: `${LINEAR}, S0R=S0R×RR, S1R=S1R×RR`,
    // Their weight has input channels first, ours output channels.
    read: (out, [a, b]) =>
      whole([
        placements(tokens(out), 2),
        placements(tokens(a), 2),
        placements(tokens(b), 2, [1, 0]),
      ]),
    inputs: [0, 1],
  },
  {
    name: 'bmm',
    call: 'bmm(x[8,16,32], x[8,32,64])',
    strategies: BMM,
    read: (out, [a, b]) =>
      whole(
        [letters(out, 'bij'), letters(a, 'bik'), letters(b, 'bkj')].map((d) => placements(d, 2)),
      ),
    inputs: [0, 1],
  },
  {
    name: 'embedding',
    call: 'embedding(x[32,16], index32[8])',
    strategies: EMBEDDING,
    read: (out, [indices, table]) =>
      whole([out, table, indices].map((t) => placements(tokens(t), 2))),
    inputs: [0, 1],
  },
  {
    name: 'layer norm',
    call: 'native_layer_norm(x[4,16], [16], x[16], x[16], 1e-5)',
    strategies: NORM,
    read: (out) => whole([out, out].map((t) => placements(tokens(t), 2))),
    inputs: [0],
  },
];

describe('the generators of Colossal-Auto on 2x2', () => {
  it.each(GENERATORS)(
    '$name: each of its strategies is one of ours',
    ({ call, strategies, read, inputs }) => {
      const found = ours(call, 'a=2,b=2', inputs);
      for (const text of strategies.split(', ')) {
        const [out, operands = ''] = text.split('=');
        expect(found, text).toContain(read(out, operands.split('×')));
        // With the axes of the result alone exchanged it is not a strategy of theirs, nor of ours.
        const exchanged = out.replaceAll(/\d/g, (axis) => (axis === '0' ? '1' : '0'));
        if (
          operands !== '' &&
          [...exchanged].sort().join() === [...out].sort().join() &&
          exchanged !== out &&
          !out.includes('01')
        )
          expect(found, `${exchanged}=${operands}`).not.toContain(
            read(exchanged, operands.split('×')),
          );
      }
    },
  );

  it('bmm on 1x4: the batch is cut by the axis of four devices', () => {
    expect(ours('bmm(x[8,16,32], x[8,32,64])', 'a=1,b=4', [0, 1])).toContain('RS(0) RS(0) RS(0)');
  });
});
