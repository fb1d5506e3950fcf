/** Reads the files of `--ops` and adds the user's rules to the operator table. */

import { existsSync } from 'node:fs';
import { resolve } from 'node:path';
import { pathToFileURL } from 'node:url';

import { ShardwrightError } from '../../errors.ts';
import type { PlacementKind } from '../../mesh/placements/kinds.ts';
import { builtinOperators } from '../../ops/builtin.ts';
import type { OperatorRecord } from '../../ops/record/record.ts';
import type { OperatorTable } from '../../ops/record/table.ts';
import { OperatorRegistry } from '../../ops/registry.ts';
import { readFileText } from '../../platform/read-file.ts';
import { registerTraceHook } from '../../trace/source/register.ts';

/**
 * The built-in operators (`base`) with those of the user's files: a rules file (`.json`), or a
 * program (`.ts`, `.mts`, `.js`, `.mjs`) that exports `operators`, records made by `defineOp`, or
 * `register`, a function of an `OperatorRegistry`, or `kinds` of placement made by `sliceKind`.
 * Programs are run.
 *
 * @throws E_INPUT for a file that is not there or exports neither; E_DUP for a name that is taken;
 *   E_RULES for a malformed rules file
 */
export async function operatorsWith(
  files: readonly string[],
  base = builtinOperators(),
): Promise<OperatorTable> {
  if (files.length === 0) return base;
  const registry = new OperatorRegistry(base);
  const kinds: PlacementKind[] = [];
  for (const path of files) {
    const file = resolve(path);
    if (!existsSync(file))
      throw new ShardwrightError('E_INPUT', `${path}: there is no such file`, { file: path });
    if (path.endsWith('.json'))
      registry.registerRulesFile(readFileText(file, { what: 'rules' }), { site: path });
    else kinds.push(...(await registerFrom(registry, path, file)));
  }
  return registry.table().withKinds(kinds);
}

/** Registers the operators of a program and returns its kinds of placement. */
async function registerFrom(
  registry: OperatorRegistry,
  path: string,
  file: string,
): Promise<readonly PlacementKind[]> {
  if (!/\.m?[jt]s$/.test(path))
    throw new ShardwrightError(
      'E_USAGE',
      `--ops ${path}: operators come from .json, .ts, .mts, .js or .mjs files`,
      {
        file: path,
      },
    );
  registerTraceHook();
  const { operators, register, kinds } = (await import(pathToFileURL(file).href)) as Readonly<
    Record<string, unknown>
  >;
  if (typeof register === 'function') (register as (registry: OperatorRegistry) => void)(registry);
  if (Array.isArray(operators))
    for (const record of operators as readonly unknown[]) {
      if (!isRecord(record))
        throw new ShardwrightError(
          'E_INPUT',
          `${path}: 'operators' holds something that defineOp did not make`,
          {
            file: path,
          },
        );
      registry.registerOp(record, { site: path });
    }
  if (Array.isArray(kinds) && !kinds.every(isKind))
    throw new ShardwrightError(
      'E_INPUT',
      `${path}: 'kinds' holds something that sliceKind did not make`,
      {
        file: path,
      },
    );
  if (Array.isArray(kinds)) return kinds as PlacementKind[];
  if (typeof register === 'function' || Array.isArray(operators)) return [];
  throw new ShardwrightError(
    'E_INPUT',
    `${path} exports neither 'operators' nor 'register' nor 'kinds'`,
    {
      file: path,
      hint: "export const operators = [defineOp('my.op.default', { ... })];",
    },
  );
}

function isKind(value: unknown): value is PlacementKind {
  if (typeof value !== 'object' || value === null) return false;
  const { kind, words, parse } = value as Readonly<Record<string, unknown>>;
  return typeof kind === 'string' && Array.isArray(words) && typeof parse === 'function';
}

function isRecord(value: unknown): value is OperatorRecord {
  if (typeof value !== 'object' || value === null) return false;
  const { name, aliases, schema, infer, shard } = value as Readonly<Record<string, unknown>>;
  const lists = Array.isArray(aliases) && Array.isArray(schema);
  return (
    typeof name === 'string' && lists && typeof infer === 'function' && typeof shard === 'function'
  );
}
