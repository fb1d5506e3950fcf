/** The source front end as a Vite plugin, for test runners without module hooks. */

import { resolve } from 'node:path';

import { wrapConditions, type WrapOptions } from './wrap-conditions.ts';

/** The part of a Vite plugin that is needed here. */
interface ConditionPlugin {
  readonly name: string;
  readonly enforce: 'pre';
  transform(code: string, id: string): { code: string; map: null } | undefined;
}

/**
 * The source-level front end as a Vite plugin: test runners do not run module hooks.
 *
 * As with `shardwright/register` the mode is `rewrite` by default: the trace decides the treatment
 * of a condition.
 *
 * @param options.files absolute paths in addition to those named `*.model.*`
 */
export function wrapConditionsPlugin(
  options: WrapOptions & { readonly files?: readonly string[] } = {},
): ConditionPlugin {
  const files = new Set((options.files ?? []).map((file) => resolve(file)));
  return {
    name: 'shardwright-conditions',
    enforce: 'pre',
    transform(code, id) {
      const [path] = id.split('?');
      if (path.includes('/node_modules/')) return undefined;
      if (!/\.model\.(ts|js|mts|mjs)$/.test(path) && !files.has(path)) return undefined;
      // The text ends in its own source map.
      return { code: wrapConditions(code, path, { mode: 'rewrite', ...options }), map: null };
    },
  };
}

export { wrapConditions };
