import { ShardwrightError } from '../errors.ts';
import type { Graph, Role } from '../graph/types.ts';
import { importGraph } from '../import/import.ts';
import { readModelFile } from '../import/read.ts';
import { applyRoles } from '../import/roles.ts';
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

/** Reads, imports and corrects a model file. */
export async function loadModel(path: string, options: LoadOptions): Promise<{ graph: Graph; table: OperatorTable; format: string }> {
  const table = builtinOperators();
  const graph = await readGraph(path, options, table);
  const roles: Record<string, Role> = {};
  for (const text of options.role) {
    const [name, role] = pair(text, '--role', 'NAME=parameter');
    const known = ROLES.find((r) => r === role);
    if (known === undefined)
      throw new ShardwrightError('E_USAGE', `--role ${text}: '${role}' is no role`, { hint: `roles: ${ROLES.join(', ')}` });
    Object.defineProperty(roles, name, { value: known, enumerable: true });
  }
  const ties = options.tie.map((text) => pair(text, '--tie', 'a=b'));
  return { graph: applyRoles(graph, { roles, ties }), table };
}

async function readGraph(path: string, options: LoadOptions, table: OperatorTable): Promise<Graph> {
  if (/\.[cm]?ts$/.test(path))
    throw new ShardwrightError('E_UNSUPPORTED', `${path}: a TypeScript model is not read from the command line yet`, {
      hint: 'call trace() and shard() from a script, as examples/mlp.ts does.',
    });
  const bytes = readModelFile(path);
  return importGraph(bytes, {
    file: path,
    ...(options.format !== undefined ? { format: options.format } : {}),
    infer: (node, typeOf) => inferCall(table, node, typeOf),
  });
}

const ROLES: readonly Role[] = ['parameter', 'buffer', 'constant', 'input', 'tangent'];

function pair(text: string, flag: string, form: string): [string, string] {
  const equals = text.indexOf('=');
  if (equals <= 0 || equals === text.length - 1)
    throw new ShardwrightError('E_USAGE', `${flag} '${text}' is not ${form}`);
  return [text.slice(0, equals), text.slice(equals + 1)];
}
