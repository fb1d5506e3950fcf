/** Reads an ONNX model into a graph, with counts of what the file holds. */

import { ShardwrightError } from '../../errors.ts';
import { DTYPE_BYTES, type Graph } from '../../graph/types.ts';
import { builtinOperators } from '../../ops/builtin.ts';
import { inferCall } from '../../ops/record/infer.ts';
import { product } from '../../product.ts';
import type { Infer } from '../complete/infer.ts';
import { ModelContext } from './context.ts';
import { type OnnxModel, readModel } from './file/model.ts';
import { GraphLowering } from './lower.ts';

const IR_VERSIONS = [3, 14] as const;
const OPSETS = [7, 28] as const;

interface OnnxOptions {
  readonly name?: string;
  readonly infer?: Infer;
}

/** Counts of the file itself: nodes of the main graph, operators, initializers. */
interface OnnxCounts {
  readonly nodes: number;
  readonly ops: Readonly<Record<string, number>>;
  readonly parameters: {
    readonly count: number;
    readonly elements: number;
    readonly bytes: number;
  };
}

/**
 * Reads an ONNX model into the aten vocabulary; `meta.original` keeps the ONNX operator.
 * Initializers of floating type are parameters, others constants; their contents are read only
 * where they are sizes or scalars, so that external data need not be there.
 *
 * @throws E_SYNTAX and E_ENCODING with the byte, E_VERSION, E_LIMIT; E_REF, E_DUP, E_TYPE,
 *   E_UNSUPPORTED with the node; E_UNKNOWN_OP for all operators that neither a rule nor the file
 *   types
 */
export function importOnnx(
  bytes: Uint8Array,
  options: OnnxOptions = {},
): { graph: Graph; counts: OnnxCounts } {
  const model = readModel(bytes);
  checkVersions(model);
  const table = options.infer === undefined ? builtinOperators() : undefined;
  const infer: Infer =
    options.infer ??
    ((call, typeOf) => (table === undefined ? undefined : inferCall(table, call, typeOf)));
  const context = new ModelContext(model, infer);
  const lowering = new GraphLowering(context, model.graph, undefined, 0);
  const made = lowering.main(
    options.name ?? (model.graph.name === '' ? 'main_graph' : model.graph.name),
  );
  const unknown = context.unknownError();
  if (unknown !== undefined) throw unknown;
  const notes = [
    'ONNX states no roles: initializers of floating type count as parameters; --role ' +
      'NAME=constant corrects this.',
  ];
  return { graph: { ...made, notes }, counts: countsOf(model) };
}

function checkVersions({ irVersion, opsets }: OnnxModel): void {
  const refuse = (what: string, found: number, [low, high]: readonly [number, number]): never => {
    throw new ShardwrightError(
      'E_VERSION',
      `the model has ${what} ${found}, this reader knows ${low} to ${high}`,
      {
        hint: 'convert it with onnx.version_converter, or export it again',
      },
    );
  };
  if (irVersion < IR_VERSIONS[0] || irVersion > IR_VERSIONS[1])
    refuse('IR version', irVersion, IR_VERSIONS);
  const opset = opsets.get('') ?? 1;
  if (opset < OPSETS[0] || opset > OPSETS[1]) refuse('opset', opset, OPSETS);
}

function countsOf({ graph }: OnnxModel): OnnxCounts {
  const byName = new Map<string, number>();
  for (const { op, domain } of graph.nodes) {
    const name = domain === '' ? op : `${domain}.${op}`;
    byName.set(name, (byName.get(name) ?? 0) + 1);
  }
  let elements = 0;
  let bytes = 0;
  for (const { dims, dtype } of graph.initializers) {
    const count = product(dims);
    elements += count;
    bytes += count * DTYPE_BYTES[dtype];
  }
  const ops = Object.create(null) as Record<string, number>;
  for (const [name, n] of [...byName].sort(([a], [b]) => (a < b ? -1 : 1))) ops[name] = n;
  return {
    nodes: graph.nodes.length,
    ops,
    parameters: { count: graph.initializers.length, elements, bytes },
  };
}
