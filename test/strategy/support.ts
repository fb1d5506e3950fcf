import { dtensorModel } from '../../src/cost/presets/dtensor.ts';
import { GreedyPlanner } from '../../src/cost/redistribution/greedy.ts';
import { Redistributor } from '../../src/cost/redistribution/redistribute.ts';
import { parseMesh } from '../../src/mesh/devices/mesh.ts';
import { ShardingSpace } from '../../src/mesh/sharding/space.ts';
import { builtinOperators } from '../../src/ops/builtin.ts';
import { expandRows } from '../../src/ops/expansion/expand.ts';
import { bindText, parseCall } from '../../src/ops/samples/call-text.ts';
import { type FilledRules, type FillOptions, fillRules } from '../../src/strategy/fill.ts';
import type { Prices } from '../../src/strategy/prices.ts';
import { propagate, type PropagateOptions } from '../../src/strategy/propagate.ts';

/**
 * One call on one mesh, and what propagation makes of given placements, in the words of the tables:
 * `S0R`, `PsPs`.
 */
const operators = builtinOperators();
export const COMPAT = { compat: true } as const;

/** `S0R`, `PsPs`, `SS(0,2)S0` of the tables to the printed form. */
export const spec = (text: string): string =>
  text
    .replaceAll(/SS\((\d),(\d)\)/g, '_S($1, $2)')
    .replaceAll(/(?<!_)S(\d)/g, 'S($1)')
    .replaceAll('Ps', 'P(sum)')
    .replaceAll('Pa', 'P(avg)')
    .replaceAll('Pmin', 'P(min)')
    .replaceAll('Pmax', 'P(max)');

export function setup(
  sizes: readonly number[],
  call: string,
  planner: 'greedy' | 'least' = 'greedy',
) {
  const mesh = parseMesh(sizes.map((n, i) => `m${i}=${n}`).join(','));
  const space = new ShardingSpace(mesh);
  const model = dtensorModel(mesh);
  const prices: Prices =
    planner === 'greedy'
      ? new GreedyPlanner(space, model)
      : new Redistributor(space, model, { merge: false });
  const { record, ctx } = bindText(operators, parseCall(call));
  const ids = (given: readonly string[]): number[] => given.map((text) => space.parse(spec(text)));
  return {
    space,
    record,
    ctx,
    ids,
    prices,
    run: (
      given: readonly string[],
      options: PropagateOptions = { ...COMPAT, search: 'enumerate' },
    ) => {
      const found = propagate(space, record, ctx, ids(given), prices, options);
      const text = (list: readonly number[]): string =>
        list.map((id) => (id < 0 ? '-' : space.text(id))).join(',');
      return {
        ...found,
        text: `${text(found.inputs)}->${text(found.outputs)}`,
        micro: found.cost * 1e6,
      };
    },
    count: (given: readonly string[], options: FillOptions = COMPAT) => {
      const { inputs, outputs } = ctx;
      const filled = fillRules(
        space,
        record.shard(ctx),
        inputs,
        outputs,
        ids(given).map((id) => space.get(id)),
        options,
      );
      return expandRows(space, filled.rules, filled.rows, inputs, outputs, {
        uneven: 'allow',
        unitDims: 'expand',
      }).count;
    },
    filled: (given: readonly string[], options: FillOptions = COMPAT) => {
      const { inputs, outputs } = ctx;
      const filled = fillRules(
        space,
        record.shard(ctx),
        inputs,
        outputs,
        ids(given).map((id) => space.get(id)),
        options,
      );
      return filledText(space, filled, inputs.length);
    },
  };
}

/** `[R, R, R] [P(sum), S(1), S(0)]`: filled rules in the interchange form, results first. */
function filledText(space: ShardingSpace, filled: FilledRules, inputs: number): string[] {
  return filled.rows.map(({ codes, slots }) => {
    const word = (t: number): string =>
      slots[t] === null ? '-' : space.placementOf(codes[t]).text;
    const order = [...codes.keys()];
    return `[${[...order.slice(inputs), ...order.slice(0, inputs)].map(word).join(', ')}]`;
  });
}
