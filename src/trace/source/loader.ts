/** The hook itself, run by Node in a thread of its own; `register.ts` starts it. */

import { existsSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import type { InitializeHook, LoadHook, ResolveHook } from 'node:module';
import { extname } from 'node:path';
import { fileURLToPath } from 'node:url';

import type { HookData } from './register.ts';
import { stripTypes, wrapConditions } from './wrap-conditions.ts';

const MODEL = /\.model\.(ts|js|mts|mjs)$/;
const TYPESCRIPT = /\.m?ts$/;

let data: HookData = { files: [], mode: 'check', library: '' };

export const initialize: InitializeHook<HookData> = (given) => {
  data = given;
};

export const resolve: ResolveHook = (specifier, context, next) =>
  next(ownEntry(specifier) ?? specifier, context);

/** The file of the running copy for `shardwright` and the entries beside it. */
function ownEntry(specifier: string): string | undefined {
  if (data.library === '') return undefined;
  if (specifier === 'shardwright') return data.library;
  const [, name] = /^shardwright\/([\w-]+)$/.exec(specifier) ?? [];
  if (name === undefined) return undefined;
  const file = new URL(`entries/${name}${extname(data.library)}`, data.library);
  return existsSync(file) ? file.href : undefined;
}

export const load: LoadHook = async (url, context, next) => {
  const path = sourcePath(url);
  if (path === undefined) return next(url, context);
  const wrapped = MODEL.test(path) || data.files.includes(path);
  if (!wrapped && !TYPESCRIPT.test(path)) return next(url, context);
  const source = await readFile(path, 'utf8');
  const text = wrapped
    ? wrapConditions(source, path, { mode: data.mode })
    : stripTypes(source, path);
  return { format: 'module', source: text, shortCircuit: true };
};

/** Path of a file that may be transformed: no dependency, and nothing of the library. */
function sourcePath(url: string): string | undefined {
  if (!url.startsWith('file://')) return undefined;
  const path = fileURLToPath(url.replace(/[?#].*$/, ''));
  const library = data.library === '' ? undefined : fileURLToPath(new URL('./', data.library));
  if (path.includes('/node_modules/') || (library !== undefined && path.startsWith(library)))
    return undefined;
  return path;
}
