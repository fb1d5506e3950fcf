/** Runs a model script and gives the graph that it captures. */

import { existsSync } from 'node:fs';
import { basename, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';

import { ShardwrightError } from '../../errors.ts';
import { LOCAL_MAP } from '../../graph/local-map.ts';
import type { Graph } from '../../graph/types.ts';
import type { OperatorTable } from '../../ops/record/table.ts';
import { spmdName } from '../../ops/spmd/operators.ts';
import { registerTraceHook } from '../../trace/source/register.ts';
import { captureAny, type TraceOptions } from '../../trace/trace.ts';
import { scriptError } from './script-error.ts';

/**
 * Runs a model file and traces what it exports: `model` (or the default export), a function;
 * `inputs`, what it takes; optionally `options` of `trace`. The source-level front end watches the
 * file's conditions.
 *
 * @param mesh what per-device code is traced on, in place of the mesh that the file names; programs
 *   without it name no mesh more
 * @throws E_INPUT for a file that lacks an export or throws; E_SYNTAX; what `trace` throws
 */
export async function traceScript(
  path: string,
  table: OperatorTable,
  mesh?: string,
): Promise<Graph> {
  const file = resolve(path);
  if (!existsSync(file))
    throw new ShardwrightError('E_INPUT', `${path}: there is no such file`, { file: path });
  registerTraceHook({ files: [file] });
  const module = await guarded(file, () => import(pathToFileURL(file).href) as Promise<Exports>);
  const model = module.model ?? module.default;
  const missing = (name: string, what: string): never => {
    throw new ShardwrightError('E_INPUT', `${path} has no export '${name}'`, {
      file: path,
      hint: `export ${what}`,
    });
  };
  if (model === undefined) return missing('model', 'function model({ x }) { ... }');
  if (typeof model !== 'function')
    throw new ShardwrightError(
      'E_INPUT',
      `the model that ${path} exports is a ${typeof model}, not a function`,
      {
        file: path,
        hint: 'export function model({ x }) { ... }',
      },
    );
  if (module.inputs === undefined)
    return missing('inputs', 'const inputs = { x: spec([8, 128]) };');
  const options = (module.options ?? {}) as TraceOptions;
  const name = options.name ?? basename(path).replace(/(\.model)?\.m?[jt]s$/, '');
  const traced = (on: Pick<TraceOptions, 'mesh'>): Promise<Graph> =>
    guarded(
      file,
      () =>
        captureAny(model as (...args: unknown[]) => unknown, module.inputs, {
          table,
          ...options,
          ...on,
          name,
        }).graph,
    );
  if (mesh === undefined || mesh === options.mesh) return traced({});
  if (options.mesh === undefined) {
    const { mesh: _, ...graph } = await traced({ mesh });
    return isPerDevice(graph) || graph.given !== undefined ? { ...graph, mesh } : graph;
  }
  const graph = await traced({});
  return isPerDevice(graph) ? traced({ mesh }) : graph;
}

/**
 * Tells whether the program depends on the mesh of its trace, by the sizes of its pieces or by its
 * axes.
 */
function isPerDevice({ nodes, subgraphs }: Graph): boolean {
  const speaks = ({ target }: Graph['nodes'][number]): boolean =>
    target === LOCAL_MAP || spmdName(target) !== undefined;
  return nodes.some(speaks) || Object.values(subgraphs).some(isPerDevice);
}

type Exports = Readonly<Record<string, unknown>>;

/** Runs the user's code; what it throws comes out as an error with its place. */
async function guarded<T>(file: string, run: () => T | Promise<T>): Promise<T> {
  try {
    return await run();
  } catch (error) {
    throw await scriptError(error, file);
  }
}
