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
import type { Vjps } from '../../ops/vjp/vjp.ts';
import { readFileText } from '../../platform/read-file.ts';
import type { CustomOp } from '../../trace/custom/custom-op.ts';
import { registerTraceHook } from '../../trace/source/register.ts';

/**
 * The built-in operators (`base`) with those of the user's files: a rules file (`.json`), or a
 * program (`.ts`, `.mts`, `.js`, `.mjs`) that exports `operators`, made by `defineOp` or
 * `customOp`, or `register`, a function of an `OperatorRegistry`, or `kinds` of placement made by
 * `sliceKind`. Programs are run.
 *
 * @throws E_INPUT for a file that is not there or exports neither; E_DUP for a name that is taken;
 *   E_RULES for a malformed rules file
 */
export async function operatorsWith(
  files: readonly string[],
  base = builtinOperators(),
): Promise<OperatorTable> {
  return (await derivedOperatorsWith(files, base)).table;
}

/** Operators, and the derivatives that the user's files state. */
interface DerivedOperators {
  readonly table: OperatorTable;
  readonly vjps: Vjps;
}

/** The same, with the derivatives of what `customOp` made. */
export async function derivedOperatorsWith(
  files: readonly string[],
  base = builtinOperators(),
): Promise<DerivedOperators> {
  if (files.length === 0) return { table: base, vjps: {} };
  const registry = new OperatorRegistry(base);
  const kinds: PlacementKind[] = [];
  const vjps: Record<string, Vjps[string]> = {};
  for (const path of files) {
    const file = resolve(path);
    if (!existsSync(file))
      throw new ShardwrightError('E_INPUT', `${path}: there is no such file`, { file: path });
    if (path.endsWith('.json')) registerRules(registry, path, file);
    else {
      const program = await registerFrom(registry, path, file);
      kinds.push(...program.kinds);
      Object.assign(vjps, program.vjps);
    }
  }
  return { table: registry.table().withKinds(kinds), vjps };
}

/** Registers what a file of rules states. @throws an error that names the file */
function registerRules(registry: OperatorRegistry, path: string, file: string): void {
  const text = readFileText(file, { what: 'rules' });
  try {
    registry.registerRulesFile(text, { site: path });
  } catch (error) {
    throw error instanceof ShardwrightError ? error.with({ file: path }) : error;
  }
}

/** Registers the operators of a program; returns its kinds of placement and its derivatives. */
async function registerFrom(
  registry: OperatorRegistry,
  path: string,
  file: string,
): Promise<{ readonly kinds: readonly PlacementKind[]; readonly vjps: Vjps }> {
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
  const vjps: Record<string, Vjps[string]> = {};
  if (Array.isArray(operators))
    for (const operator of operators as readonly unknown[]) {
      const made = isRecord(operator) ? { record: operator, vjps: {} } : operator;
      if (!isCustomOp(made))
        throw new ShardwrightError(
          'E_INPUT',
          `${path}: 'operators' holds something that neither defineOp nor customOp made`,
          {
            file: path,
          },
        );
      registry.registerOp(made.record, { site: path });
      Object.assign(vjps, made.vjps);
    }
  if (Array.isArray(kinds) && !kinds.every(isKind))
    throw new ShardwrightError(
      'E_INPUT',
      `${path}: 'kinds' holds something that sliceKind did not make`,
      {
        file: path,
      },
    );
  if (Array.isArray(kinds)) return { kinds: kinds as PlacementKind[], vjps };
  if (typeof register === 'function' || Array.isArray(operators)) return { kinds: [], vjps };
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

function isCustomOp(value: unknown): value is Pick<CustomOp, 'record' | 'vjps'> {
  if (typeof value !== 'object' || value === null) return false;
  const { record, vjps } = value as Readonly<Record<string, unknown>>;
  return isRecord(record) && typeof vjps === 'object' && vjps !== null;
}

function isRecord(value: unknown): value is OperatorRecord {
  if (typeof value !== 'object' || value === null) return false;
  const { name, aliases, schema, infer, shard } = value as Readonly<Record<string, unknown>>;
  const lists = Array.isArray(aliases) && Array.isArray(schema);
  return (
    typeof name === 'string' && lists && typeof infer === 'function' && typeof shard === 'function'
  );
}
