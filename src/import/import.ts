import { ShardwrightError, suggestion } from '../errors.ts';
import { lintGraph } from '../graph/lint.ts';
import { parseGraph } from '../graph/parse.ts';
import { stampPhases } from '../graph/phases.ts';
import type { Graph } from '../graph/types.ts';
import { detectFormat } from './detect.ts';
import { FORMAT_NAMES, FORMATS, READABLE, isFormat, type Format } from './formats.ts';
import { GraphMaker, type Infer } from './fx/graph.ts';
import { parseFx } from './fx/parse.ts';
import { exportedSignature, signatureStart } from './fx/exported.ts';
import { signatureOf } from './fx/signature.ts';
import { applyRoles, type RoleCorrections } from './roles.ts';
import { decodeUtf8, gunzip, type UnpackLimits } from './unpack.ts';

export type { Infer } from './fx/graph.ts';

export interface ImportOptions extends RoleCorrections, UnpackLimits {
  /** Format, where content detection is not wanted. */
  readonly format?: Format;
  /** Name of the graph; the name of its class by default. */
  readonly name?: string;
  /** File name for messages. */
  readonly file?: string;
  /** Operator rules: types of calls without annotation, and the check of all others. */
  readonly infer?: Infer;
}

export interface Imported {
  readonly graph: Graph;
  readonly format: Format;
}

/**
 * Reads a graph of any format we can read; packed or not. The result is complete, linted and has its phases set.
 *
 * @throws E_FORMAT_UNKNOWN, E_UNSUPPORTED, E_ENCODING, E_ARCHIVE, E_LIMIT, E_SYNTAX, E_REF, E_DUP, E_TYPE, E_UNKNOWN_OP,
 *   E_GRAPH_PARSE, E_GRAPH_LINT; each with place and remedy. Nothing half-done is returned.
 */
export function importGraph(input: Uint8Array | string, options: ImportOptions = {}): Graph {
  return importModel(input, options).graph;
}

/** Like `importGraph`, with the format that was found. */
export function importModel(input: Uint8Array | string, options: ImportOptions = {}): Imported {
  try {
    const bytes = typeof input === 'string' ? input : gunzip(input, options);
    const format = chosenFormat(options.format) ?? detectFormat(bytes);
    if (!READABLE.includes(format))
      throw new ShardwrightError(
        'E_UNSUPPORTED',
        `this is ${FORMATS[format].title} (${format}), which this version does not read yet`,
        {
          hint: `formats it reads: ${READABLE.map((f) => `${f} (${FORMATS[f].names})`).join(', ')}`,
        },
      );
    const text = withoutMark(typeof bytes === 'string' ? bytes : decodeUtf8(bytes));
    const graph = format === 'swgraph' ? readSwgraph(text, options) : readFx(text, format, options);
    const corrected = options.roles === undefined && options.ties === undefined ? graph : applyRoles(graph, options);
    return { graph: corrected, format };
  } catch (error) {
    if (error instanceof ShardwrightError && options.file !== undefined) throw error.with({ file: options.file });
    throw error;
  }
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
  const graph = parseGraph(text, options.file);
  if (options.infer !== undefined) lintGraph(graph, options.infer);
  return options.name === undefined ? graph : { ...graph, name: options.name };
}

function readFx(text: string, format: Format, options: ImportOptions): Graph {
  const end = format === 'exported-program' ? signatureStart(text) : undefined;
  const { root, scanner } = parseFx(text, options.file, end?.classEnd, end?.classStart);
  const stated = end === undefined ? undefined : exportedSignature(text, end, root, scanner);
  const signature = stated?.signature ?? signatureOf(root, scanner);
  const made = new GraphMaker(scanner, options.infer).make(root, options.name ?? root.name, signature);
  const graph = stated?.dims === undefined ? made : { ...made, dims: stated.dims };
  lintGraph(graph);
  stampPhases(graph);
  return graph;
}
