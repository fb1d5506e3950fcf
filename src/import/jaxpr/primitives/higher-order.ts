/**
 * Primitives with bodies: calls, loops, branches and manual regions, as `graph/control.ts`
 * describes them.
 */

import type { Arg, TensorType } from '../../../graph/types.ts';
import { NO_KWARGS } from '../../../graph/value.ts';
import { itemAt } from '../../../item-at.ts';
import type { GraphOfJaxpr } from '../builder.ts';
import type { Lower } from '../equation.ts';
import { specPlacements } from '../shardings.ts';
import type { Literal } from '../text/literal.ts';
import { type Atom, type Equation, isDroppedOutput, type Jaxpr } from '../text/syntax.ts';

/** Parameter that holds the body of a call. */
const BODIES = ['jaxpr', 'call_jaxpr', 'fun_jaxpr'];

const call: Lower = (b, e) => {
  const key = BODIES.find((name) => (e.parameters.get(name)?.bodies.length ?? 0) > 0) ?? 'jaxpr';
  const body = b.jaxprOf(e, key);
  checkInputs(
    b,
    e,
    body.inputs.map((input) => input.type),
    e.operands,
  );
  const name = e.parameters.get('name')?.text;
  const region = /^(remat|remat2|checkpoint)$/.test(e.primitive) ? { region: 'remat' } : NO_KWARGS;
  const graph = b.keep(plain(name ?? e.primitive), b.context.body(body), e.at);
  b.emit(keptResults(b, e, body), 'call', [graph, values(b, e.operands)], region);
};

/**
 * The equation without the results that its body drops: JAX prints `_` both for a result that
 * nothing reads and, in the body of a `jit` that is called once, for the output behind it.
 */
function keptResults(b: GraphOfJaxpr, e: Equation, body: Jaxpr): Equation {
  const isDropped = (i: number): boolean => {
    const output = body.outputs[i];
    return output !== undefined && isDroppedOutput(output);
  };
  const read = e.results.find((result, i) => isDropped(i) && result.name !== '_');
  if (read !== undefined)
    throw b.error(
      'E_REF',
      `'${read.name}' is read, but the body of ${e.primitive} drops it`,
      read.at,
      `name the output of the body, which is '_' now`,
    );
  return { ...e, results: e.results.filter((_, i) => !isDropped(i)) };
}

/**
 * Operands: constants, then carry, then what is scanned; the body's inputs in the order carry,
 * scanned, constants.
 */
const scan: Lower = (b, e) => {
  const body = b.jaxprOf(e, 'jaxpr');
  const consts = b.int(e, 'num_consts');
  const carry = b.int(e, 'num_carry');
  const length = b.int(e, 'length');
  const n = e.operands.length;
  if (consts < 0 || carry < 0 || consts + carry > n || body.inputs.length !== n)
    throw b.error(
      'E_TYPE',
      `scan has ${n} operands, ${consts} constants, a carry of ${carry} and a body of ` +
        `${body.inputs.length} inputs`,
      e.at,
    );
  const [constants, carried, scanned] = [
    e.operands.slice(0, consts),
    e.operands.slice(consts, consts + carry),
    e.operands.slice(consts + carry),
  ];
  const order = [
    ...range(consts, consts + carry),
    ...range(consts + carry, n),
    ...range(0, consts),
  ];
  const graph = b.keep('scan_body', b.context.body(body, order), e.at);
  b.emit(e, 'scan', [graph, values(b, carried), values(b, scanned), values(b, constants)], {
    length,
    reverse: b.bool(e, 'reverse'),
  });
};

/** Operands: constants of the condition, of the body, then the carry. */
const whileLoop: Lower = (b, e) => {
  const [condition, body] = [b.jaxprOf(e, 'cond_jaxpr'), b.jaxprOf(e, 'body_jaxpr')];
  const first = b.int(e, 'cond_nconsts');
  const second = b.int(e, 'body_nconsts');
  const carried = e.operands.slice(first + second);
  const types = e.operands.map((atom) => b.tensor(atom));
  if (
    first < 0 ||
    second < 0 ||
    first + second > e.operands.length ||
    condition.inputs.length !== first + carried.length ||
    body.inputs.length !== second + carried.length
  )
    throw b.error('E_TYPE', 'operands of while do not fit its condition and body', e.at);
  const state = (consts: number): number[] => range(consts, consts + carried.length);
  const test = b.keep(
    'while_cond',
    b.context.body(condition, [
      ...state(first),
      ...range(0, first),
      ...types.slice(first, first + second),
    ]),
    e.at,
  );
  const step = b.keep(
    'while_body',
    b.context.body(body, [...state(second), ...types.slice(0, first), ...range(0, second)]),
    e.at,
  );
  const captured = values(b, e.operands.slice(0, first + second));
  b.emit(e, 'while_loop', [
    test,
    step,
    values(b, carried),
    ...(captured.length > 0 ? [captured] : []),
  ]);
};

/** The first operand is the number of the branch; of two branches, 0 means false. */
const cond: Lower = (b, e) => {
  const { bodies } = b.parameter(e, 'branches');
  const [index, ...operands] = e.operands;
  if (bodies.length === 0 || index === undefined)
    throw b.error('E_REF', 'cond without branches', e.at, 'the bodies are missing from the text');
  for (const body of bodies)
    checkInputs(
      b,
      e,
      body.inputs.map((input) => input.type),
      operands,
    );
  const platform = index.kind === 'variable' ? b.platforms.get(b.value(index).name) : undefined;
  const only = bodies.length === 1 ? 0 : platform;
  if (only !== undefined) {
    const body = bodies[only];
    if (body === undefined)
      throw b.error('E_REF', `branch ${only} of ${bodies.length} is missing`, e.at);
    const graph = b.keep(`branch_${only}`, b.context.body(body), e.at);
    return void b.emit(e, 'call', [graph, values(b, operands)]);
  }
  const graphs = bodies.map((body, i) => b.keep(`branch_${i}`, b.context.body(body), e.at));
  const predicate = bodies.length === 2 ? boolBehind(b, index) : undefined;
  if (predicate === undefined) b.emit(e, 'case', [b.value(index), graphs, values(b, operands)]);
  else b.emit(e, 'cond', [predicate, itemAt(graphs, 1), itemAt(graphs, 0), values(b, operands)]);
};

/** The platform of the clusters that plans are made for, in the words of JAX. */
const PLATFORM = 'cuda';

/**
 * The number of the branch for a platform, as `lax.platform_dependent` writes it: JAX puts a
 * number there when it compiles, and so is it here.
 */
const platformIndex: Lower = (b, e) => {
  const list = b.literal(e, 'platforms');
  const entries =
    list !== undefined && list !== null && typeof list === 'object' && list.kind === 'list'
      ? list.items
      : [];
  const named = entries.findIndex((entry) => strings(entry).includes(PLATFORM));
  const chosen = named >= 0 ? named : entries.indexOf(null);
  const known = entries.flatMap((entry) => strings(entry)).join(', ');
  if (chosen < 0)
    throw b.error(
      'E_UNSUPPORTED',
      `platform_index has branches for ${known} alone, and clusters here are ${PLATFORM} devices`,
      b.at(e, 'platforms'),
      `give lax.platform_dependent a branch ${PLATFORM}= or default=`,
    );
  b.context.notes.add(
    `platform_index over ${known}: the branch ${named >= 0 ? `of ${PLATFORM}` : 'by default'} is ` +
      `taken, as on the ${PLATFORM} devices of a cluster.`,
  );
  const name = b.emit(e, 'stablehlo.constant', [chosen], {
    dtype: { kind: 'dtype', dtype: 'i32' },
    shape: [],
  });
  b.platforms.set(name, chosen);
};

function boolBehind(b: GraphOfJaxpr, index: Atom): Arg | undefined {
  if (b.tensor(index).dtype === 'b8') return b.value(index);
  const { name } = b.value(index);
  const source = b.converted.get(name) ?? null;
  if (
    source === null ||
    typeof source !== 'object' ||
    !('kind' in source) ||
    source.kind !== 'value'
  )
    return undefined;
  const type = b.typeOf(source.name);
  return type.kind === 'tensor' && type.dtype === 'b8' ? source : undefined;
}

/** A region with local types; the shardings of the boundary as text. */
const shardMap: Lower = (b, e) => {
  const body = b.jaxprOf(e, 'jaxpr');
  if (body.inputs.length !== e.operands.length)
    throw b.error('E_TYPE', `${e.operands.length} operands for ${body.inputs.length} inputs`, e.at);
  const specs = (key: string, types: readonly TensorType[]): Arg[] => {
    const list = b.literal(e, key);
    const items: readonly Literal[] =
      list !== undefined && list !== null && typeof list === 'object' && list.kind === 'list'
        ? list.items
        : [];
    return types.map(
      (type, i) => specPlacements(items[i], b.context.mesh, type.shape.length)?.sharding ?? null,
    );
  };
  const manual = b.literal(e, 'manual_axes') ?? b.literal(e, 'newly_manual_axes');
  const graph = b.keep('shard_map_body', b.context.body(body), e.at);
  b.emit(e, 'sdy.manual_computation', [graph, values(b, e.operands)], {
    in_shardings: specs(
      'in_specs',
      e.operands.map((atom) => b.tensor(atom)),
    ),
    out_shardings: specs(
      'out_specs',
      e.results.map((result) => result.type),
    ),
    manual_axes: strings(manual),
  });
};

function strings(value: Literal | undefined): string[] {
  if (value === undefined || value === null || typeof value !== 'object' || value.kind === 'name')
    return [];
  return value.kind === 'string' ? [value.value] : value.items.flatMap(strings);
}

/** An identity whose result has a given sharding. */
const constraint: Lower = (b, e) => {
  const [atom] = e.operands;
  if (atom === undefined) throw b.error('E_TYPE', `${e.primitive} needs an operand`, e.at);
  const target = e.primitive === 'reshard' ? 'sdy.reshard' : 'sdy.sharding_constraint';
  const name = b.emit(e, target, [b.value(atom)]);
  const value = b.literal(e, e.primitive === 'reshard' ? 'dst_sharding' : 'sharding');
  const stated = specPlacements(value, b.context.mesh, b.tensor(atom).shape.length);
  if (stated !== undefined) b.given.push({ value: name, ...stated });
  else
    b.context.unread.add(
      `The sharding that ${e.primitive} states for %${name} is not a PartitionSpec over a mesh ` +
        'of the text; it was left out.',
    );
};

function checkInputs(
  b: GraphOfJaxpr,
  e: Equation,
  wanted: readonly TensorType[],
  operands: readonly Atom[],
): void {
  if (wanted.length !== operands.length)
    throw b.error(
      'E_TYPE',
      `${e.primitive} has ${operands.length} operands, its body ${wanted.length} inputs`,
      e.at,
    );
}

function values(b: GraphOfJaxpr, atoms: readonly Atom[]): Arg[] {
  return atoms.map((atom) => b.value(atom));
}

function range(from: number, to: number): number[] {
  return Array.from({ length: Math.max(0, to - from) }, (_, i) => from + i);
}

function plain(name: string): string {
  const word = name.replaceAll(/[^A-Za-z0-9_]/g, '_');
  return /^[A-Za-z_]/.test(word) ? word : `_${word}`;
}

const CALLS = [
  'jit',
  'pjit',
  'closed_call',
  'core_call',
  'core_closed_call',
  'xla_call',
  'custom_jvp_call',
  'custom_jvp_call_jaxpr',
  'custom_vjp_call',
  'custom_vjp_call_jaxpr',
  'remat',
  'remat2',
  'checkpoint',
  'custom_lin',
  'run_scoped',
  'named_call',
];

const table = new Map<string, Lower>([
  ...CALLS.map((name): [string, Lower] => [name, call]),
  ['scan', scan],
  ['while', whileLoop],
  ['cond', cond],
  ['platform_index', platformIndex],
  ['shard_map', shardMap],
  ['sharding_constraint', constraint],
  ['reshard', constraint],
]);

export function higherOrder(primitive: string): Lower | undefined {
  return table.get(primitive);
}
