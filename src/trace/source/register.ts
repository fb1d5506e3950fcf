/**
 * `node --import shardwright/register app.ts`: installs the module-loading hook of the source-level
 * front end for this process. Files named `*.model.ts` (js, mts, mjs) and the file on the command
 * line have their conditions wrapped; other TypeScript outside node_modules only loses its types.
 * Needs Node 20.6 or later.
 */

import { createRequire, register } from 'node:module';

import { ShardwrightError } from '../../errors.ts';

interface RegisterOptions {
  /**
   * Files whose conditions are wrapped, as absolute paths, in addition to those named `*.model.*`.
   */
  readonly files?: readonly string[];
  /**
   * `rewrite` (default): what a traced condition becomes is for the trace to say (`controlFlow`,
   * `policy`); `check`: it is an error or ends a region, whatever the trace says.
   */
  readonly mode?: 'check' | 'rewrite';
}

/** The data that the hook's thread is started with. */
export interface HookData {
  readonly files: readonly string[];
  readonly mode: 'check' | 'rewrite';
  /**
   * The target of imports of `shardwright`: the copy that is running, so that models and tracer
   * share one state. Its entries, such as `shardwright/trace`, are in the folder `entries` next to
   * it.
   */
  readonly library: string;
}

/**
 * Installs the hook. A second call adds another one, for other files.
 *
 * @throws E_DEPENDENCY where TypeScript, whose parser reads the programs, is not installed
 */
export function registerTraceHook({ files = [], mode = 'rewrite' }: RegisterOptions = {}): void {
  needTypeScript();
  process.setSourceMapsEnabled(true);
  // The sources run as `.ts` in development and as `.js` in the package.
  const extension = import.meta.url.endsWith('.ts') ? 'ts' : 'js';
  const data: HookData = {
    files,
    mode,
    library: new URL(`../../index.${extension}`, import.meta.url).href,
  };
  register(`./loader.${extension}`, { parentURL: import.meta.url, data });
}

/** The hook runs in a thread whose own error would name a file of the package. */
function needTypeScript(): void {
  try {
    createRequire(import.meta.url).resolve('typescript');
  } catch {
    throw new ShardwrightError(
      'E_DEPENDENCY',
      'programs are read with TypeScript, which is not installed',
      {
        hint: 'npm install --save-dev typescript',
      },
    );
  }
}
