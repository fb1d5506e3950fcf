/**
 * Answers a question about one call of an operator, given as text: its rules, the strategies that
 * they make on a mesh, and the cheapest one from given placements of its inputs.
 */

import { checkKinds } from '../arguments.ts';
import { loadCluster } from '../cost/hardware/load-cluster.ts';
import { collectiveModel, defaultCostPreset } from '../cost/presets/presets.ts';
import type { RedistributionPlan } from '../cost/redistribution/plan.ts';
import { Redistributor } from '../cost/redistribution/redistribute.ts';
import { defined } from '../defined.ts';
import { internalError, ShardwrightError, suggestion, wrongArgument } from '../errors.ts';
import { DTYPE_BYTES } from '../graph/types.ts';
import { type DeviceMesh, parseMesh } from '../mesh/devices/mesh.ts';
import type { PlacementKinds } from '../mesh/placements/kinds.ts';
import type { Placement } from '../mesh/placements/placement.ts';
import type { Sharding } from '../mesh/sharding/sharding.ts';
import { ShardingSpace } from '../mesh/sharding/space.ts';
import { parseAnySharding } from '../notations/einshard/on-mesh.ts';
import { builtinOperators } from '../ops/builtin.ts';
import { type ExpandOptions, expandRules } from '../ops/expansion/expand.ts';
import type { OperatorRecord, TensorMeta, TypedContext } from '../ops/record/record.ts';
import type { Rule } from '../ops/record/rule.ts';
import type { OperatorTable } from '../ops/record/table.ts';
import { bindText, callOf } from '../ops/samples/call-text.ts';
import { propagate } from './propagate.ts';

/** A call of an operator on types; its `rules`, `inputs` and `outputs` are what `admit` takes. */
export interface OperatorCall {
  /** Canonical name. */
  readonly target: string;
  readonly text: string;
  /** Global types of the tensor inputs, in schema order. */
  readonly inputs: readonly TensorMeta[];
  /** Global types of the results; null where masked off. */
  readonly outputs: readonly (TensorMeta | null)[];
  /** Rules for one mesh dim, without the one that replicates everything. */
  readonly rules: readonly Rule[];
  readonly record: OperatorRecord;
  readonly context: TypedContext;
}

/** One placement for each input and result. */
export interface Strategy {
  readonly inputs: readonly Sharding[];
  /** Null where masked off. */
  readonly outputs: readonly (Sharding | null)[];
  /** The rule taken on each mesh dim. */
  readonly rules: readonly Rule[];
}

/** The strategy that a call takes by itself, and the moves of its inputs with their seconds. */
export interface Propagated extends Strategy {
  /** Seconds of all moves together. */
  readonly seconds: number;
  /** The steps that bring each input where the strategy wants it; none where it stays. */
  readonly moves: readonly RedistributionPlan[];
}

/** The cluster, the cost preset and the cuts of a propagated call. */
export interface PropagateCallOptions {
  /** Id of a node design (`dgx-h100`) or the JSON text of a cluster. */
  readonly cluster: string;
  /** Cost preset, see `COST_PRESETS`; default that of the cluster, `defaultCostPreset`. */
  readonly cost?: string;
  /** `allow` if a dim may be cut into unequal pieces. Default `allow`. */
  readonly uneven?: 'allow' | 'forbid';
  /** Kinds of placement that the texts may use; default the built-in ones. */
  readonly kinds?: PlacementKinds;
}

/**
 * Reads a call such as `aten.mm.default(f32[64,32], f32[32,16])` or `sum.dim_IntList(bf16[8,16],
 * [-1], True)`. A name without namespace is ATen, one without overload is `default`; literals are
 * Python's.
 *
 * @throws E_UNKNOWN_OP for a name that the table does not have, E_SAMPLE for arguments that cannot
 *   be read, E_TYPE for ones that do not fit
 */
export function operatorCall(
  text: string,
  table: OperatorTable = builtinOperators(),
): OperatorCall {
  checkKinds('operatorCall', { text: [text, 'string'], table: [table, 'operators'] });
  const [, name, args] = /^\s*([^\s(]+)\s*\((.*)\)\s*$/s.exec(text) ?? [];
  if (name === undefined)
    throw new ShardwrightError('E_SAMPLE', `'${text}' is not a call of an operator`, {
      hint: "write for example 'aten.mm.default(f32[64,32], f32[32,16])'.",
    });
  const record =
    table.get(name) ??
    table.get(`aten.${name}`) ??
    table.get(`aten.${name}.default`) ??
    table.get(`${name}.default`);
  if (record === undefined)
    throw new ShardwrightError('E_UNKNOWN_OP', `there is no operator '${name}'`, {
      hint: suggestion(name, table.names(), 'operators'),
    });
  const { ctx } = bindText(table, callOf(record.name, args));
  return {
    target: record.name,
    text,
    inputs: ctx.inputs,
    outputs: ctx.outputs,
    rules: record.shard(ctx),
    record,
    context: ctx,
  };
}

/**
 * Every way to run the call on a mesh: its rules combined over the mesh dims, without those that
 * cut what cannot be cut.
 *
 * @param mesh a mesh, or its text: `dp=2,tp=4`
 * @param options `cuts`: further cuts that rules may be taken with, those of user-made kinds too
 */
export function expandCall(
  call: OperatorCall,
  mesh: DeviceMesh | string,
  options: { readonly uneven?: ExpandOptions['uneven']; readonly cuts?: readonly Placement[] } = {},
): readonly Strategy[] {
  checkKinds('expandRules', {
    call: [call, 'call'],
    mesh: [mesh, 'string', 'mesh'],
    options: [options, 'record', 'undefined'],
  });
  if (
    call.rules.some(
      ({ inputs, outputs }) =>
        inputs.length !== call.inputs.length || outputs.length !== call.outputs.length,
    )
  )
    throw wrongArgument(
      'expandRules',
      'call',
      'a call with rules of other tensors',
      'see operatorCall.',
    );
  const space = new ShardingSpace(meshOf(mesh));
  const { uneven = 'allow', cuts } = options;
  const set = expandRules(space, call.rules, call.inputs, call.outputs, {
    uneven,
    ...defined({ cuts }),
  });
  const width = set.inputCount + set.outputCount;
  return Array.from({ length: set.count }, (_, s) => {
    const ids = set.specs.subarray(s * width, (s + 1) * width);
    const rules = set.choice.subarray(s * space.meshRank, (s + 1) * space.meshRank);
    return {
      ...strategyOf(space, ids, set.inputCount),
      rules: Array.from(rules, (r) => set.rules[r]),
    };
  });
}

/**
 * The strategy that is cheapest to reach from given placements of the inputs, what a step of eager
 * propagation takes: one that moves nothing if there is one, else the least seconds of
 * redistribution. The call's own time is not counted.
 *
 * @param given the sharding of each input, `S(0)R`
 * @throws E_PLACEMENT for other numbers of inputs or placements, or where no strategy can be
 *   reached
 */
export function propagateCall(
  call: OperatorCall,
  mesh: DeviceMesh | string,
  given: readonly (Sharding | string)[],
  options: PropagateCallOptions,
): Propagated {
  checkKinds('propagate', {
    call: [call, 'call'],
    mesh: [mesh, 'string', 'mesh'],
    given: [given, 'list'],
    options: [options, ['cluster']],
  });
  const { uneven = 'allow', kinds } = options;
  const cluster = loadCluster(options.cluster);
  const on = meshOf(mesh);
  const space = new ShardingSpace(on);
  const read = (text: string, i: number): Sharding =>
    parseAnySharding(text, on, {
      shape: call.inputs[i]?.shape ?? [],
      ...defined({ kinds }),
    });
  const from = given.map((sharding, i) =>
    space.intern(typeof sharding === 'string' ? read(sharding, i) : sharding),
  );
  const prices = new Redistributor(
    space,
    collectiveModel(options.cost ?? defaultCostPreset(cluster), cluster, on),
  );
  const found = propagate(space, call.record, call.context, from, prices, { fill: 'all', uneven });
  const moves = call.inputs.map(({ shape, dtype }, i) => {
    const move = prices.plan({ shape, itemBytes: DTYPE_BYTES[dtype] }, from[i], found.inputs[i]);
    return move ?? raise(internalError(`input ${i} of ${call.target} has a price and no way`));
  });
  const ids = [...found.inputs, ...found.outputs];
  return {
    ...strategyOf(space, ids, found.inputs.length),
    rules: found.rules,
    seconds: found.cost,
    moves,
  };
}

function raise(error: Error): never {
  throw error;
}

function meshOf(mesh: DeviceMesh | string): DeviceMesh {
  return typeof mesh === 'string' ? parseMesh(mesh) : mesh;
}

function strategyOf(
  space: ShardingSpace,
  ids: ArrayLike<number>,
  inputs: number,
): Omit<Strategy, 'rules'> {
  const shardings = Array.from(ids, (id) => (id < 0 ? null : space.get(id)));
  return { inputs: shardings.slice(0, inputs) as Sharding[], outputs: shardings.slice(inputs) };
}
