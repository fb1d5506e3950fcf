/**
 * Traces the program of the editor, a TypeScript module that exports `model` and `inputs`: its
 * graph, the faults of its types and its trace at their lines, and the type of every value per mesh
 * dim where it is local SPMD code. TypeScript's compiler, three times as large as the planner, is
 * loaded with this file.
 */
import ts from 'typescript';
import types from 'virtual:types';

import { printGraph } from '../../src/entries/graph.ts';
import { checkTypes } from '../../src/entries/local-spmd.ts';
import { type Graph, ShardwrightError, type TraceOptions } from '../../src/index.ts';
import { wrapConditions } from '../../src/trace/source/wrap-conditions.ts';
import { captureAny } from '../../src/trace/trace.ts';
import type { Answers, Finding } from '../protocol.ts';
import { table } from './model.ts';
import { type Place, placesOf } from './source-map.ts';

const FILE = 'program.ts';

/** The entries of the library that a program may import, by their files. */
const entries = import.meta.glob<object>(
  ['../../src/index.ts', '../../src/entries/*.ts', '!../../src/entries/page.ts'],
  { eager: true },
);

interface Exports {
  readonly model?: unknown;
  readonly default?: unknown;
  readonly inputs?: unknown;
  readonly options?: TraceOptions;
}

/** Runs a program and traces its model; places of its values are lines of the text. */
export async function traced(text: string, mesh: string): Promise<{ readonly graph: Graph }> {
  const code = wrapConditions(text, FILE, { mode: 'rewrite', runtime: 'shardwright/trace' });
  const place = placesOf(code);
  const { address, release } = moduleOf(code);
  try {
    const exports = (await import(/* @vite-ignore */ address)) as Exports;
    const model = exports.model ?? exports.default;
    if (typeof model !== 'function' || exports.inputs === undefined)
      throw new ShardwrightError(
        'E_INPUT',
        `the program exports no ${typeof model === 'function' ? 'inputs' : 'model'}`,
        {
          hint: 'export const inputs = { ... }; export function model(inputs) { ... }',
        },
      );
    const options: TraceOptions = { ...exports.options };
    const on = mesh !== '' && options.mesh !== undefined ? { mesh } : {};
    const { graph } = captureAny(model as (...args: unknown[]) => unknown, exports.inputs, {
      table: table(),
      name: 'program',
      ...options,
      ...on,
    });
    return { graph: placed(graph, address, place) };
  } catch (error) {
    throw atItsLine(error, address, place);
  } finally {
    release();
  }
}

/** What is wrong, the graph, and types per mesh dim. */
export async function checked(text: string, mesh: string): Promise<Answers['program']> {
  const findings = typeFaults(text);
  try {
    const { graph } = await traced(text, mesh);
    return { findings, graph: printGraph(graph), types: localTypes(graph) };
  } catch (error) {
    if (!(error instanceof ShardwrightError)) throw error;
    const { line = 1, column = 1 } = error.details.position ?? {};
    const { hint } = error.details;
    const message = `${error.code} ${error.message}${hint === undefined ? '' : ` (${hint})`}`;
    return { findings: [...findings, { line, column, length: 1, message }], graph: '', types: [] };
  }
}

function localTypes(graph: Graph): string[] {
  if (graph.mesh === undefined) return [];
  const { texts, violations } = checkTypes(graph, { mode: 'strict', table: table() });
  return [
    ...[...texts].map(([name, type]) => `%${name}: ${type}`),
    ...violations.map(({ message, fix }) => `${message}; insert ${fix}`),
  ];
}

/** A module of its own, whose imports of the library lead to the copy that runs here. */
function moduleOf(code: string): { readonly address: string; readonly release: () => void } {
  Object.assign(globalThis, { shardwrightOfPage: entries });
  const blobs: string[] = [];
  const blob = (text: string): string => {
    const made = URL.createObjectURL(new Blob([text], { type: 'text/javascript' }));
    blobs.push(made);
    return made;
  };
  const shim = (file: string): string =>
    Object.keys(entries[file])
      .map((name) => `export const ${name} = globalThis.shardwrightOfPage['${file}'].${name};`)
      .join('\n');
  const runtime = (specifier: string): string => {
    const entry = specifier.replace(/^shardwright\/?/, '');
    const file = `../../src/${entry === '' ? 'index' : `entries/${entry}`}.ts`;
    return file in entries ? blob(shim(file)) : specifier;
  };
  // Same length of line, other columns: the map of the module is read at its own columns, and
  // imports come first on a line.
  const address = blob(
    code.replaceAll(
      /from (['"])(shardwright(?:\/[\w-]+)?)\1/g,
      (_, __: string, specifier: string) => `from ${JSON.stringify(runtime(specifier))}`,
    ),
  );
  return { address, release: () => blobs.forEach((made) => URL.revokeObjectURL(made)) };
}

/** The graph with the places of its values in the text as written. */
function placed(graph: Graph, address: string, place: (at: Place) => Place): Graph {
  return {
    ...graph,
    nodes: graph.nodes.map((node) => {
      const at = placeIn(node.meta.source ?? '', address);
      if (at === undefined) return node;
      const { line, column } = place(at);
      return { ...node, meta: { ...node.meta, source: `${FILE}:${line}:${column}` } };
    }),
    subgraphs: Object.fromEntries(
      Object.entries(graph.subgraphs).map(([name, body]) => [name, placed(body, address, place)]),
    ),
  };
}

function placeIn(text: string, address: string): Place | undefined {
  const at = text.indexOf(address);
  const [, line, column] =
    at < 0 ? [] : (/^:(\d+):(\d+)/.exec(text.slice(at + address.length)) ?? []);
  return line === undefined ? undefined : { line: Number(line), column: Number(column) };
}

/** What a program threw, with the line of the text where it did. */
function atItsLine(error: unknown, address: string, place: (at: Place) => Place): unknown {
  if (error instanceof ShardwrightError) {
    const { position, file } = error.details;
    if (position === undefined || file === FILE) return error;
    return new ShardwrightError(error.code, error.message, {
      ...error.details,
      position: place(position),
      file: FILE,
    });
  }
  const stack = error instanceof Error ? (error.stack ?? '') : '';
  const at = placeIn(stack, address);
  const text = error instanceof Error ? `${error.name}: ${error.message}` : String(error);
  return new ShardwrightError('E_INPUT', `the program fails: ${text}`, {
    file: FILE,
    ...(at === undefined ? {} : { position: place(at) }),
  });
}

const OPTIONS: ts.CompilerOptions = {
  target: ts.ScriptTarget.ES2023,
  module: ts.ModuleKind.ESNext,
  moduleResolution: ts.ModuleResolutionKind.Bundler,
  lib: ['lib.es2023.d.ts'],
  strict: true,
  noEmit: true,
  skipLibCheck: true,
  types: [],
  baseUrl: '/',
  paths: {
    shardwright: ['/shardwright/index.d.ts'],
    'shardwright/*': ['/shardwright/entries/*.d.ts'],
  },
  ignoreDeprecations: '6.0',
};

/** Files of the library never change: each is parsed once. */
const parsed = new Map<string, ts.SourceFile>();

/** What TypeScript says about the program with the library's public types. */
function typeFaults(text: string): Finding[] {
  const path = `/${FILE}`;
  const read = (name: string): string | undefined => (name === path ? text : types[name]);
  const host: ts.CompilerHost = {
    fileExists: (name) => read(name) !== undefined,
    readFile: read,
    getSourceFile: (name, version) => {
      const known = parsed.get(name);
      if (known !== undefined) return known;
      const content = read(name);
      if (content === undefined) return undefined;
      const file = ts.createSourceFile(name, content, version);
      if (name !== path) parsed.set(name, file);
      return file;
    },
    getDefaultLibFileName: () => '/lib/lib.es2023.d.ts',
    getDefaultLibLocation: () => '/lib',
    getCurrentDirectory: () => '/',
    getCanonicalFileName: (name) => name,
    useCaseSensitiveFileNames: () => true,
    getNewLine: () => '\n',
    writeFile: () => undefined,
  };
  const program = ts.createProgram([path], OPTIONS, host);
  const file = program.getSourceFile(path);
  return [...program.getSyntacticDiagnostics(file), ...program.getSemanticDiagnostics(file)].map(
    (d) => {
      const at = file?.getLineAndCharacterOfPosition(d.start ?? 0) ?? { line: 0, character: 0 };
      return {
        line: at.line + 1,
        column: at.character + 1,
        length: d.length ?? 1,
        message: ts.flattenDiagnosticMessageText(d.messageText, ' '),
      };
    },
  );
}
