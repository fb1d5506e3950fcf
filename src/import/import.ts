/** Reads a graph of any known format, packed or not, into a complete and linted graph. */

import { checkOptions, isReadable, valueText, wrongArgument } from '../errors.ts';
import type { Graph } from '../graph/types.ts';
import { builtinOperators } from '../ops/builtin.ts';
import { type Infer, inferBy } from './complete/infer.ts';
import { contentOf, type ForeignFormat, importContent, isForeign } from './content.ts';
import { jaxprReader } from './jaxpr/foreign.ts';
import { stablehloReader } from './mlir/foreign.ts';
import { onnxReader } from './onnx/foreign.ts';
import { archiveReader, programJsonReader } from './pt2/foreign.ts';
import type { ForeignReader, Imported, ImportOptions } from './types.ts';

export type { Infer } from './complete/infer.ts';
export type { Imported, ImportOptions, ProgramCounts } from './types.ts';

/** Options of `importGraph`. */
export interface GraphImportOptions extends Omit<ImportOptions, 'infer'> {
  /**
   * Operator rules: types of calls that the file leaves out, and the check of all that it states.
   * Those of the built-in operators by default; false takes the file at its word.
   */
  readonly infer?: Infer | false;
}

const OPTIONS: Readonly<Record<keyof GraphImportOptions, true>> = {
  roles: true,
  ties: true,
  maxBytes: true,
  maxRatio: true,
  format: true,
  name: true,
  file: true,
  infer: true,
  inputs: true,
  select: true,
  trainStep: true,
  ignoreShardings: true,
};

/**
 * Reads a graph of any format we can read; packed or not. The result is complete, linted, has its
 * types compared with the operators' own and its phases set.
 *
 * @throws E_FORMAT_UNKNOWN, E_UNSUPPORTED, E_ENCODING, E_ARCHIVE, E_LIMIT, E_SYNTAX, E_REF, E_DUP,
 *   E_TYPE, E_UNKNOWN_OP, E_GRAPH_PARSE, E_GRAPH_LINT; each with place and remedy. Nothing
 *   half-done is returned.
 *
 * @example
 * ```ts
 * import { importGraph } from 'shardwright';
 *
 * const graph = importGraph(`class GraphModule(torch.nn.Module):
 *     def forward(self, x: "f32[4, 8]"):
 *         relu: "f32[4, 8]" = torch.ops.aten.relu.default(x)
 *         return relu
 * `);
 * console.log(graph.nodes.map(({ name }) => name).join(' ')); // x relu
 * ```
 */
export function importGraph(input: Uint8Array | string, options: GraphImportOptions = {}): Graph {
  checkOptions('importGraph', options, OPTIONS);
  const { infer: given, ...rest } = options;
  if (given === false) return importModel(input, rest).graph;
  return importModel(input, { ...rest, infer: given ?? builtinInfer() }).graph;
}

function builtinInfer(): Infer {
  return inferBy(builtinOperators());
}

const READERS: Readonly<Record<ForeignFormat, ForeignReader>> = {
  onnx: onnxReader,
  pt2: archiveReader,
  'pt2-json': programJsonReader,
  stablehlo: stablehloReader,
  jaxpr: jaxprReader,
};

/** Like `importGraph`, with the format that was found; types are compared only with `infer`. */
export function importModel(input: Uint8Array | string, options: ImportOptions = {}): Imported {
  if (typeof input !== 'string' && !(isReadable(input) && input instanceof Uint8Array))
    throw wrongArgument(
      'importGraph',
      'content',
      valueText(input),
      'give the text or the bytes of a file.',
    );
  const { content, format } = contentOf(input, options);
  return importContent(content, format, options, isForeign(format) ? READERS[format] : undefined);
}
