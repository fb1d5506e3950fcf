/**
 * Defaults of flags that a team does not type each time: a file `.shardwright.yaml` in the working
 * directory or above it, and `SHARDWRIGHT_CLUSTER`. The command prints the source of each. The
 * command line goes before the variable, and that before the file.
 */
import { existsSync } from 'node:fs';
import { dirname, isAbsolute, join, relative, resolve } from 'node:path';

import { ShardwrightError, suggestion } from '../../errors.ts';
import { readFileText } from '../../platform/read-file.ts';
import { placeAt } from '../../text/place.ts';
import { readYaml } from '../../text/yaml.ts';
import { type Flag, type Flags, longName } from './flags/flag.ts';

/** Where a command line runs, as far as it may matter. */
export interface Surroundings {
  readonly folder: string;
  readonly cluster: string | undefined;
}

/** The folder and the environment of this process. */
export function surroundings(): Surroundings {
  return { folder: process.cwd(), cluster: process.env['SHARDWRIGHT_CLUSTER'] };
}

interface Default {
  readonly text: string | boolean | readonly string[];
  /** The file or the variable that states it. */
  readonly from: string;
}

/** By the names of the values of flags. */
export type Defaults = ReadonlyMap<string, Default>;

const FILE = '.shardwright.yaml';
const HINT = `${FILE} has flags without their dashes: cluster: h100, seq: 4096, compiled: true.`;
/**
 * Flags that a file has no say in: what runs a program, or writes or opens a file, stands on the
 * command line.
 */
const NEVER: ReadonlySet<string> = new Set(['ops', 'output', 'open', 'port', 'allowPrograms']);

/**
 * @param flags of all commands: a name that none has is refused
 * @throws E_INPUT with the place, for a file that is not of flags
 */
export function readDefaults({ folder, cluster }: Surroundings, flags: readonly Flags[]): Defaults {
  const found = new Map<string, Default>();
  const path = fileFor(folder);
  if (path !== undefined)
    for (const [key, one] of fileDefaults(path, folder, flags)) found.set(key, one);
  if (cluster !== undefined && cluster !== '')
    found.set('cluster', { text: cluster, from: 'SHARDWRIGHT_CLUSTER' });
  return found;
}

/**
 * The file of a folder, or of one above it in its repository. Outside of a repository only its own:
 * a folder for temporary files belongs to everybody.
 */
function fileFor(folder: string): string | undefined {
  const above = [resolve(folder)];
  for (let at = above[0] ?? ''; !existsSync(join(at, '.git'));) {
    const next = dirname(at);
    if (next === at)
      return above
        .slice(0, 1)
        .map((one) => join(one, FILE))
        .find(existsSync);
    above.push((at = next));
  }
  return above.map((one) => join(one, FILE)).find(existsSync);
}

function* fileDefaults(
  path: string,
  folder: string,
  flags: readonly Flags[],
): Generator<readonly [string, Default]> {
  const text = readFileText(path, { what: 'file of defaults', hint: HINT });
  const from = relative(folder, path);
  const value = readYaml(text, from, HINT);
  if (value === null) return;
  const fail = (message: string, name: string, hint = HINT): never => {
    const at = new RegExp(`^${name.replace(/[^\w-]/g, '.')}\\s*:`, 'm').exec(text)?.index;
    const place = at === undefined ? { file: from } : placeAt(text, at, from);
    throw new ShardwrightError('E_INPUT', message, { ...place, hint });
  };
  if (typeof value !== 'object' || Array.isArray(value)) return fail('no flags are in it', '');
  const keys = new Set(flags.flatMap((one) => Object.keys(one)).filter((key) => !NEVER.has(key)));
  for (const [name, stated] of Object.entries(value)) {
    const key = name.replace(/-(\w)/g, (_, letter: string) => letter.toUpperCase());
    if (NEVER.has(key)) fail(`'${name}' is for the command line alone`, name);
    if (!keys.has(key))
      fail(`there is no flag '${name}'`, name, suggestion(name, [...keys].map(plain), 'flags'));
    const flag = flags.find((one) => one[key] !== undefined)?.[key];
    const texts = textsOf(flag, stated, dirname(path));
    if (texts === undefined)
      fail(`'${name}' is ${JSON.stringify(stated)}, not ${wanted(flag)}`, name);
    else yield [key, { text: texts, from }];
  }
}

const plain = (key: string): string => longName(key).slice(2);

function wanted(flag: Flag<unknown> | undefined): string {
  return flag?.read === undefined ? 'true or false' : 'text or number';
}

/** The texts of a value, paths as seen from the file; undefined for one of another kind. */
function textsOf(
  flag: Flag<unknown> | undefined,
  stated: unknown,
  folder: string,
): Default['text'] | undefined {
  if (flag?.read === undefined) return typeof stated === 'boolean' ? stated : undefined;
  const isPath = (text: string): boolean =>
    /<(file|dir|[\w-]+\.\w+)>/.test(flag.usage) ||
    (/--cluster/.test(flag.usage) && text.endsWith('.json'));
  const one = (item: unknown): string | undefined => {
    if (typeof item !== 'string' && typeof item !== 'number') return undefined;
    const text = String(item);
    return isPath(text) && !isAbsolute(text) ? join(folder, text) : text;
  };
  if (!Array.isArray(stated)) return one(stated);
  const items = stated.flatMap((item) => one(item) ?? []);
  if (items.length < stated.length) return undefined;
  return flag.isList === true ? items : items.join(',');
}

type Texts = Readonly<Record<string, string | boolean | readonly string[] | undefined>>;

/** Flags that say the same thing in two ways: a default gives way where the other is given. */
const OTHERS: Readonly<Record<string, string>> = {
  mesh: 'devices',
  devices: 'mesh',
  training: 'forward',
  forward: 'training',
  for: 'framework',
  framework: 'for',
};

/**
 * The texts of a command line with the defaults for what is not on it, and which were used.
 *
 * @param isGiven whether the command line has a flag
 */
export function withDefaults(
  flags: Flags,
  texts: Texts,
  defaults: Defaults,
  isGiven: (key: string) => boolean,
): { readonly texts: Texts; readonly used: readonly string[] } {
  const all = { ...texts };
  const used: string[] = [];
  for (const [key, { text, from }] of defaults) {
    const flag = flags[key];
    if (flag === undefined || isGiven(key) || isGiven(OTHERS[key] ?? key)) continue;
    all[key] = flag.isList === true && typeof text === 'string' ? [text] : text;
    const value = typeof text === 'boolean' ? (text ? '' : ' off') : ` ${String(text)}`;
    used.push(`${longName(key)}${value} (${from})`);
  }
  return { texts: all, used };
}
