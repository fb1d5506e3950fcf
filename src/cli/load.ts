import { basename } from 'node:path';
import { ShardwrightError } from '../errors.ts';
import type { Graph } from '../graph/types.ts';
import { FORMAT_NAMES, isFormat } from '../import/formats.ts';
import { importModel } from '../import/import.ts';
import { readModelFile } from '../import/read.ts';
import { GIVABLE_ROLES, type GivableRole } from '../import/roles.ts';
import { builtinOperators } from '../ops/builtin.ts';
import { inferCall } from '../ops/infer.ts';
import type { OperatorTable } from '../ops/table.ts';

export interface LoadOptions {
  readonly format?: string;
  /** `NAME=parameter` corrections. */
  readonly role: readonly string[];
  /** `a=b` parameters that are one tensor. */
  readonly tie: readonly string[];
}

export interface LoadedModel {
  readonly graph: Graph;
  readonly table: OperatorTable;
  readonly format: string;
}

/** Reads, imports and corrects a model file. */
export function loadModel(path: string, options: LoadOptions): LoadedModel {
  if (/\.[cm]?ts$/.test(path))
    throw new ShardwrightError('E_UNSUPPORTED', `${path}: a TypeScript model is not read from the command line yet`, {
      hint: 'call trace() and shard() from a script, as examples/mlp.ts does.',
    });
  const { format } = options;
  if (format !== undefined && !isFormat(format))
    throw new ShardwrightError('E_USAGE', `--format '${format}' is no format`, {
      hint: `formats: ${FORMAT_NAMES.join(', ')}`,
    });
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
  const table = builtinOperators();
  const imported = importModel(readModelFile(path), {
    file: path,
    name: modelName(path),
    roles,
    ties: options.tie.map((text) => pair(text, '--tie', 'a=b')),
    infer: (node, typeOf) => inferCall(table, node, typeOf),
    ...(format !== undefined ? { format } : {}),
  });
  return { ...imported, table };
}

/** `llama` of `models/llama.fx.txt.gz`. */
function modelName(path: string): string {
  return basename(path).replace(/(\.(gz|txt|py|fx|readable|swg))+$/, '');
}

function pair(text: string, flag: string, form: string): [string, string] {
  const equals = text.indexOf('=');
  if (equals <= 0 || equals === text.length - 1)
    throw new ShardwrightError('E_USAGE', `${flag} '${text}' is not ${form}`);
  return [text.slice(0, equals), text.slice(equals + 1)];
}
