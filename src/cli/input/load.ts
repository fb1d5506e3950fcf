/** Takes a model argument (file, stdin, script, config, name) and gives its graph with the corrections made on the way. */

import { basename } from 'node:path';
import { ShardwrightError } from '../../errors.ts';
import type { SizeValues } from '../../graph/text/size-value.ts';
import type { Graph } from '../../graph/types.ts';
import { inferBy } from '../../import/complete/infer.ts';
import { FORMAT_NAMES, isFormat } from '../../import/formats.ts';
import type { ProgramCounts } from '../../import/types.ts';
import { importOnDemand } from '../../import/on-demand.ts';
import { readModelFile } from '../../import/file/read.ts';
import { GIVABLE_ROLES, type GivableRole } from '../../import/complete/roles.ts';
import type { VocabularyPadding } from '../../models/vocabulary.ts';
import type { OperatorTable } from '../../ops/record/table.ts';
import { atSizes } from '../../passes/sizes/fix-sizes.ts';
import { shownPath } from '../../read-file.ts';
import { configModel, namedModel, refuseSizes, type BuiltModel, type SizeFlags } from './load-config.ts';
import { operatorsWith } from './load-operators.ts';
import { parseCount } from './options.ts';
import { isScript } from './script-name.ts';

export interface LoadOptions extends SizeFlags {
  readonly format?: string;
  /** `NAME=parameter` corrections. */
  readonly role: readonly string[];
  /** `a=b` parameters that are one tensor. */
  readonly tie: readonly string[];
  /** The leading outputs replace the leading inputs. */
  readonly trainStep?: boolean;
  /** `NAME=f32[8, 16]`: types of inputs that the file does not state. */
  readonly input?: readonly string[];
  /** Files with operators and rules of the user. */
  readonly ops?: readonly string[];
  /** Leaves free what the file says of shardings. */
  readonly ignoreShardings?: boolean;
  /** Which graph of a log. */
  readonly select?: string;
  /** `s77=64`: values of the sizes that the model leaves open. */
  readonly size?: readonly string[];
  /** What the per-device code of a program is traced on. */
  readonly mesh?: string;
}

export interface LoadedModel {
  readonly graph: Graph;
  /** The graph with the sizes open that `--size` fixed, and what it fixed them at. */
  readonly open: Graph;
  readonly sizes: SizeValues;
  readonly table: OperatorTable;
  readonly format: string;
  readonly counts?: ProgramCounts;
  /** Of the vocabulary of a model that was built, where it was asked for. */
  readonly padding?: VocabularyPadding;
}

/** Reads, imports and corrects a model file (`-`: stdin); a program is run and traced, a config or the name of a model is built. */
export async function loadModel(path: string, options: LoadOptions): Promise<LoadedModel> {
  const read = await readModel(path, options);
  const sizes = new Map<string, number>();
  for (const text of options.size ?? []) {
    const [name, value] = pair(text, '--size', 'NAME=VALUE');
    sizes.set(name, parseCount(value, '--size'));
  }
  return { ...read, graph: sizes.size === 0 ? read.graph : atSizes(read.graph, sizes), open: read.graph, sizes };
}

type ReadModel = Omit<LoadedModel, 'open' | 'sizes'>;

async function readModel(path: string, options: LoadOptions): Promise<ReadModel> {
  const { format } = options;
  if (isScript(path)) return loadScript(path, options);
  if (format !== undefined && !isFormat(format))
    throw new ShardwrightError('E_USAGE', `--format '${format}' is no format`, {
      hint: `formats: ${FORMAT_NAMES.join(', ')}`,
    });
  const table = await operatorsWith(options.ops ?? []);
  const named = await namedModel(path, options, table);
  if (named !== undefined) return ofConfig(path, named, table, options);
  const bytes = readModelFile(path);
  const configured = await configModel(bytes, path, format, options, table);
  if (configured !== undefined) return ofConfig(path, configured, table, options);
  refuseSizes(path, options);
  const roles: Record<string, GivableRole> = {};
  for (const text of options.role) {
    const [name, role] = pair(text, '--role', 'NAME=parameter');
    const known = GIVABLE_ROLES.find((r) => r === role);
    if (known === undefined)
      throw new ShardwrightError('E_USAGE', `--role ${text}: '${role}' is no role`, {
        hint: `roles: ${GIVABLE_ROLES.join(', ')}`,
      });
    Object.defineProperty(roles, name, { value: known, enumerable: true });
  }
  const imported = await importOnDemand(bytes, {
    file: shownPath(path),
    name: path === '-' ? 'stdin' : modelName(path),
    roles,
    ties: options.tie.map((text) => pair(text, '--tie', 'a=b')),
    infer: inferBy(table),
    ...(format !== undefined ? { format } : {}),
    ...(options.input !== undefined ? { inputs: inputTypes(options.input) } : {}),
    ...(options.select !== undefined ? { select: options.select } : {}),
    ...(options.trainStep === true ? { trainStep: true } : {}),
    ...(options.ignoreShardings === true ? { ignoreShardings: true } : {}),
  });
  return { ...imported, table };
}

/** A config decides roles, ties and inputs, so corrections from outside are refused. */
function ofConfig(path: string, built: BuiltModel, table: OperatorTable, options: LoadOptions): ReadModel {
  const { role, tie, input = [], select, trainStep = false } = options;
  if (role.length > 0 || tie.length > 0 || input.length > 0 || select !== undefined || trainStep)
    throw new ShardwrightError('E_USAGE', `${path} is built from a config: --role, --tie, --train-step, --input and --select are for graph files`, {
      hint: '--batch, --seq, --dtype, --layers, --training and --pad-vocab choose what is built.',
    }); // prettier-ignore
  return { ...built, table, format: 'hf-config' };
}

/** A program states roles and ties itself, so corrections from outside are refused. */
async function loadScript(path: string, options: LoadOptions): Promise<ReadModel> {
  const { format, role, tie, trainStep = false } = options;
  refuseSizes(path, options);
  if (format !== undefined || role.length > 0 || tie.length > 0 || trainStep)
    throw new ShardwrightError(
      'E_USAGE',
      `${path} is a program: --format, --role, --tie and --train-step are for graph files`,
      {
        hint: 'state roles in the program, with param, buffer and spec.',
      },
    );
  const { traceScript } = await import('./load-script.ts');
  const table = await operatorsWith(options.ops ?? []);
  return { graph: await traceScript(path, table, options.mesh), table, format: 'trace' };
}

function inputTypes(texts: readonly string[]): Record<string, string> {
  const types: Record<string, string> = {};
  for (const text of texts) {
    const [name, value] = pair(text, '--input', 'NAME=f32[8, 16]');
    Object.defineProperty(types, name, { value, enumerable: true });
  }
  return types;
}

/** `llama` of `models/llama.fx.txt.gz`, on one line. */
function modelName(path: string): string {
  return basename(path)
    .replace(/(\.(gz|txt|py|fx|readable|swg|mlir|jaxpr|pt2|onnx|json|model|graph|ep|log))+$/, '')
    .replace(/[\r\n]+/g, ' ');
}

function pair(text: string, flag: string, form: string): [string, string] {
  const equals = text.indexOf('=');
  if (equals <= 0 || equals === text.length - 1)
    throw new ShardwrightError('E_USAGE', `${flag} '${text}' is not ${form}`, {
      hint: `write ${flag} ${form}, a name of the model on its left.`,
    });
  return [text.slice(0, equals), text.slice(equals + 1)];
}
