/**
 * Puts the placements of a plan on the values of the whole program, in its bodies too, for a
 * partitioner that chooses the collectives itself: one constraint where a value is made, and one
 * where it is read in another placement.
 */
import type { ExportSource } from '../../backend/target.ts';
import { nodesByName } from '../../graph/nodes.ts';
import type { Graph } from '../../graph/types.ts';
import { parseSharding } from '../../mesh/sharding/parse.ts';
import type { Sharding } from '../../mesh/sharding/sharding.ts';
import { plannedProgram } from '../../plan/record/planned.ts';
import type { HloCode, Val } from './code.ts';
import { plannedNames } from './planned-names.ts';
import type { Constraints } from './program.ts';

/** A sharding in the words of a partitioner, or why it has none. */
export type ShardingText = { readonly text: string } | { readonly refused: string };

interface ConstrainedProgram {
  /** The program as it was planned, to be written. */
  readonly program: Graph;
  readonly constraints: Constraints;
  /** Uses that carry no constraint, as there is no text for what the plan says; so far. */
  readonly unsaid: () => number;
}

/** @throws E_PLAN when the plan is not of this graph */
export function planConstraints(
  { program, plan, mesh, table }: ExportSource,
  textOf: (sharding: Sharding, shape: readonly number[]) => ShardingText,
): ConstrainedProgram {
  const planned = plannedProgram(program, plan, table);
  const nodes = nodesByName(plan);
  const texts = new Map<string, ShardingText>();
  const said = new Map<number, string>();
  // By block: a value that several calls read elsewhere is brought there once, as in the plan.
  const brought = new WeakMap<HloCode['code'], Map<string, Val>>();
  let unsaid = 0;
  const sharded = (placement: string, shape: readonly number[]): ShardingText => {
    const key = `${placement} ${shape.join()}`;
    let found = texts.get(key);
    if (found === undefined) {
      found = textOf(parseSharding(placement, mesh, { kinds: table.kinds }), shape);
      texts.set(key, found);
    }
    return found;
  };
  const constrained = (hlo: HloCode, value: Val, text: string): Val => {
    // A number lies everywhere, and nothing has to be said twice.
    if (value.shape.length === 0 || said.get(value.id) === text) return value;
    let block = brought.get(hlo.code);
    if (block === undefined) brought.set(hlo.code, (block = new Map<string, Val>()));
    const key = `${value.id} ${text}`;
    const known = block.get(key);
    if (known !== undefined) return known;
    const [out] = hlo.emit('constraint', [value], [value], { sharding: text });
    said.set(out.id, text);
    block.set(key, out);
    return out;
  };
  return {
    program: planned.program,
    unsaid: () => unsaid,
    constraints: {
      names: planned.opened === undefined ? new Map() : plannedNames(planned.opened),
      sameAs: (call) => {
        const node = nodes.get(call);
        return node?.target === 'operator.getitem' ? undefined : node?.aliasOf;
      },
      use: (hlo, call, input, value) => {
        const read = nodes.get(call)?.inputs.at(input);
        if (read === undefined) return value;
        const text = sharded(read, value.shape);
        if ('text' in text) return constrained(hlo, value, text.text);
        unsaid++;
        return value;
      },
      made: (hlo, name, result, value) => {
        const placement = nodes.get(name)?.outputs.at(result);
        const text = placement === undefined ? undefined : sharded(placement, value.shape);
        return text !== undefined && 'text' in text ? constrained(hlo, value, text.text) : value;
      },
    },
  };
}
