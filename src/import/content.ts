/**
 * Takes the bytes of a model file, finds the format and reads it with the reader of that format.
 */

import { defined } from '../defined.ts';
import { ShardwrightError, suggestion } from '../errors.ts';
import type { Retype } from '../graph/lint.ts';
import { parseGraph } from '../graph/text/parse.ts';
import type { Arg, Graph, ValueType } from '../graph/types.ts';
import { eachOperand, isList } from '../graph/value.ts';
import { builtinOperators } from '../ops/builtin.ts';
import { withoutOuterCall } from '../passes/control/inline-calls.ts';
import { isXlaProgram } from '../passes/fusion/xla-loops.ts';
import { withStepPhases } from '../passes/training/step-phases.ts';
import { decodeUtf8 } from '../utf8.ts';
import { complete } from './complete/complete.ts';
import type { Infer } from './complete/infer.ts';
import { applyRoles } from './complete/roles.ts';
import { withStepRoles } from './complete/step-roles.ts';
import { lookEqualNotes } from './complete/tie-notes.ts';
import { asTrainStep, trainStepNotes } from './complete/train-step.ts';
import { detectFormat } from './detect.ts';
import { gunzip } from './file/unpack.ts';
import { type Format, FORMAT_NAMES, FORMATS, isFormat, READABLE } from './formats.ts';
import { withBoundary } from './fx/device-program.ts';
import { exportedSignature, signatureStart } from './fx/exported.ts';
import { GraphMaker } from './fx/graph.ts';
import { parseGraphText } from './fx/graph-text.ts';
import { parseFx } from './fx/parse.ts';
import { reproInputs, type ReproParts, reproParts } from './fx/repro.ts';
import { signatureOf } from './fx/signature.ts';
import { inLog, readTorchLog, readTorchTrace, selectGraph } from './fx/text/log.ts';
import type { ForeignReader, Imported, ImportOptions } from './types.ts';

/** Formats with a reader of their own; the others are read here. */
const FOREIGN_FORMATS = ['onnx', 'pt2', 'pt2-json', 'stablehlo', 'jaxpr'] as const;
export type ForeignFormat = (typeof FOREIGN_FORMATS)[number];

export const isForeign = (format: Format): format is ForeignFormat =>
  (FOREIGN_FORMATS as readonly Format[]).includes(format);

/** The unpacked content and its format, stated or found. @throws as `importGraph` */
export function contentOf(
  input: Uint8Array | string,
  options: ImportOptions,
): { readonly content: Uint8Array | string; readonly format: Format } {
  return inFile(options, () => {
    const content = typeof input === 'string' ? input : gunzip(input, options);
    return { content, format: chosenFormat(options.format) ?? detectFormat(content) };
  });
}

/** Reads unpacked content of a known format. @throws as `importGraph` */
export function importContent(
  content: Uint8Array | string,
  format: Format,
  options: ImportOptions,
  foreign: ForeignReader | undefined,
): Imported {
  return inFile(options, () => {
    refuseUnreadable(format);
    const { graph: written, counts } = readFormat(content, format, options, foreign);
    // What a step does is seen in its own lines, not in a call of them.
    const isNested = format === 'jaxpr' || format === 'stablehlo';
    const graph = isNested ? withoutOuterCall(written) : written;
    const { roles = {}, ties = [] } = options;
    const hasTies = ties.length > 0 || (options.ties !== undefined && graph.ties !== undefined);
    const corrected = hasTies || Object.keys(roles).length > 0 ? applyRoles(graph, options) : graph;
    const given = new Set(Object.keys(roles));
    const step = options.trainStep === true ? asTrainStep(corrected) : corrected;
    const read = format === 'swgraph' ? step : noted(withStepRoles(step, given));
    // A program of JAX says nowhere where its backward pass begins.
    const isOpen = format !== 'swgraph' && isXlaProgram(read);
    const phases = isOpen ? withStepPhases(read, builtinOperators()) : read;
    return { graph: phases, format, ...defined({ counts }) };
  });
}

function noted(graph: Graph): Graph {
  const more = [...lookEqualNotes(graph), ...trainStepNotes(graph)];
  return more.length === 0 ? graph : { ...graph, notes: [...(graph.notes ?? []), ...more] };
}

/** Errors name the file that was being read. */
function inFile<T>(options: ImportOptions, read: () => T): T {
  try {
    return read();
  } catch (error) {
    if (error instanceof ShardwrightError && options.file !== undefined)
      throw error.with({ file: options.file });
    throw error;
  }
}

function refuseUnreadable(format: Format): void {
  if (format === 'hlo')
    throw new ShardwrightError(
      'E_UNSUPPORTED',
      'this is HLO text, the program of one device as a compiler made it, and not a graph to plan',
      {
        hint:
          'import the program before compilation (StableHLO: jax.jit(f).lower(...).as_text()); ' +
          '`shardwright inspect FILE` and readHlo list what the compiler communicates',
      },
    );
  if (!READABLE.includes(format))
    throw new ShardwrightError(
      'E_UNSUPPORTED',
      `this is ${FORMATS[format].title} (${format}), which this version does not read yet`,
      {
        hint: `formats it reads: ${READABLE.map((f) => `${f} (${FORMATS[f].names})`).join(', ')}`,
      },
    );
}

function readFormat(
  bytes: Uint8Array | string,
  format: Format,
  options: ImportOptions,
  foreign: ForeignReader | undefined,
): Omit<Imported, 'format'> {
  if (foreign?.kind === 'binary') return foreign.read(binary(bytes, format), options);
  const text = withoutMark(typeof bytes === 'string' ? bytes : decodeUtf8(bytes));
  if (foreign !== undefined) return foreign.read(text, options);
  if (format === 'torch-log' || format === 'torch-trace')
    return { graph: readLog(text, format, options) };
  return {
    graph: format === 'swgraph' ? readSwgraph(text, options) : readFx(text, format, options),
  };
}

function binary(bytes: Uint8Array | string, format: Format): Uint8Array {
  if (typeof bytes !== 'string') return bytes;
  throw new ShardwrightError(
    'E_ENCODING',
    `${FORMATS[format].title} is binary, but a text was given`,
    {
      hint: 'give the bytes of the file',
    },
  );
}

function chosenFormat(format: string | undefined): Format | undefined {
  if (format === undefined || isFormat(format)) return format;
  throw new ShardwrightError('E_FORMAT_UNKNOWN', `there is no format '${format}'`, {
    hint: suggestion(format, FORMAT_NAMES, 'formats'),
  });
}

function withoutMark(text: string): string {
  return text.startsWith('\ufeff') ? text.slice(1) : text;
}

function readSwgraph(text: string, options: ImportOptions): Graph {
  const graph = parseGraph(text, options.file, sized(options.infer));
  return options.name === undefined ? graph : { ...graph, name: options.name };
}

/** Rules compute with numbers: where a size has no example, the stated type is kept. */
function sized(infer: Infer | undefined): Retype | undefined {
  if (infer === undefined) return undefined;
  return (node, typeOf) => {
    let unknown = isOpen(node.type);
    eachOperand(node, (name) => (unknown ||= isOpen(typeOf(name))));
    for (const arg of [...node.args, ...Object.values(node.kwargs)]) unknown ||= holdsOpenSize(arg);
    return unknown ? undefined : infer(node, typeOf);
  };
}

function isOpen(type: ValueType): boolean {
  if (type.kind === 'tuple') return type.items.some(isOpen);
  if (type.kind === 'sym') return true;
  return (
    type.kind === 'tensor' &&
    type.shape.some((dim) => typeof dim !== 'number' && dim.example === undefined)
  );
}

function holdsOpenSize(arg: Arg): boolean {
  if (isList(arg)) return arg.some(holdsOpenSize);
  return (
    arg !== null && typeof arg === 'object' && arg.kind === 'size' && arg.size.example === undefined
  );
}

/** One graph of a log; errors and lines are those of the log. */
function readLog(text: string, format: 'torch-log' | 'torch-trace', options: ImportOptions): Graph {
  const content = format === 'torch-log' ? readTorchLog(text) : readTorchTrace(text);
  const chosen = selectGraph(content, options.select);
  try {
    const inner = chosen.artifact === 'exported_program' ? 'exported-program' : 'fx';
    const graph = readFx(chosen.text, inner, options);
    const moved = withLines(graph, chosen.lines);
    return content.notes.length === 0
      ? moved
      : { ...moved, notes: [...(moved.notes ?? []), ...content.notes] };
  } catch (error) {
    throw error instanceof ShardwrightError ? inLog(error, chosen) : error;
  }
}

function withLines(graph: Graph, lines: readonly number[]): Graph {
  const nodes = graph.nodes.map((node) => {
    const line = node.meta.line === undefined ? undefined : lines[node.meta.line - 1];
    return line === undefined ? node : { ...node, meta: { ...node.meta, line } };
  });
  const bodies = Object.entries(graph.subgraphs).map(
    ([name, body]) => [name, withLines(body, lines)] as const,
  );
  return { ...graph, nodes, subgraphs: Object.fromEntries(bodies) };
}

function readFx(text: string, format: Format, options: ImportOptions): Graph {
  if (format === 'fx-graph') {
    const { root, scanner } = parseGraphText(text, options.file, options.inputs);
    const signature = signatureOf(root, scanner);
    const made = new GraphMaker(scanner, options.infer).make(
      root,
      options.name ?? root.name,
      signature,
    );
    return complete(withBoundary(made, text, scanner));
  }
  const repro = format === 'fx' ? reproParts(text) : undefined;
  if (repro !== undefined) return readRepro(text, repro, options);
  const end = format === 'exported-program' ? signatureStart(text) : undefined;
  const { root, scanner } = parseFx(text, options.file, end?.classEnd, end?.classStart);
  const stated = end === undefined ? undefined : exportedSignature(text, end, root, scanner);
  const signature = stated?.signature ?? signatureOf(root, scanner);
  const made = new GraphMaker(scanner, options.infer).make(
    root,
    options.name ?? root.name,
    signature,
  );
  const whole = withBoundary(made, text, scanner);
  return complete(stated?.dims === undefined ? whole : { ...whole, dims: stated.dims });
}

/**
 * Reads a repro of Inductor: the types of the inputs come after the class, and all others follow
 * from them.
 */
function readRepro(text: string, parts: ReproParts, options: ImportOptions): Graph {
  const parsed = parseFx(text, options.file, parts.classEnd, parts.classStart);
  const { root, notes } = reproInputs(parsed.root, parts, parsed.scanner);
  const maker = new GraphMaker(parsed.scanner, options.infer);
  const made = maker.make(root, options.name ?? root.name, signatureOf(root, parsed.scanner));
  return complete(
    notes.length === 0 ? made : { ...made, notes: [...(made.notes ?? []), ...notes] },
  );
}
