/**
 * A flag of the command line is one record with its name, help text, default, reader and the part
 * of a request that it sets. This file defines the record and reads the texts of a command line
 * into values that the records type.
 */
import { defined } from '../../../defined.ts';
import type { PlanRequest } from '../../../plan/request/request.ts';

/**
 * Reads the text of a flag. Slow modules are imported when there is something to read. @throws
 * E_USAGE that names the flag
 */
export interface Read<T> {
  (text: string, flag: string): T | Promise<T>;
  /** All texts that it takes, where they are a fixed list. */
  readonly words?: readonly string[];
}

/** The part of a request that a value of a flag sets. */
type Sets<T> = (value: Exclude<T, undefined>, request: PlanRequest) => Partial<PlanRequest>;

/** One flag; `T` is the type of its value, with `undefined` where it may be absent. */
export interface Flag<T> {
  /** Its names and its argument, as the help prints them: `-o, --output <dir>`. */
  readonly usage: string;
  readonly help: string;
  /** Reads the argument; absent for a switch, which takes none. */
  readonly read?: Read<unknown>;
  /** The text that is read where the flag is absent; the help prints it. */
  readonly initial?: string;
  readonly isRequired?: true;
  /** The flag may be given several times; its value is a list. */
  readonly isList?: true;
  /**
   * The part of a request that it sets. (It is a method, so that a flag of one type is a flag of
   * unknown type.)
   */
  sets?(value: Exclude<T, undefined>, request: PlanRequest): Partial<PlanRequest>;
  /** Never there: it carries the type. */
  readonly type?: () => T;
}

/** Flags by the names of their values: `timeLimit` of `--time-limit`. */
export type Flags = Readonly<Record<string, Flag<unknown>>>;

type ValueOf<F> = F extends { readonly type?: () => infer T } ? T : never;
type OptionalKey<F> = { [K in keyof F]: undefined extends ValueOf<F[K]> ? K : never }[keyof F];

/**
 * Values of flags. A flag that may be absent is an optional field; a list is empty where its flag
 * is absent.
 */
export type Given<F extends Flags> = {
  readonly [K in Exclude<keyof F, OptionalKey<F>>]: ValueOf<F[K]>;
} & { readonly [K in OptionalKey<F>]?: Exclude<ValueOf<F[K]>, undefined> };

/** Any text is a value. */
export const text: Read<string> = (value) => value;

/** A flag with one argument. */
export function value<T>(
  usage: string,
  help: string,
  read: Read<T>,
  sets?: Sets<T>,
): Flag<T | undefined> {
  return { usage, help, read, ...defined({ sets: sets }) };
}

/** A flag with one argument that may be given several times. */
export function list<T>(
  usage: string,
  help: string,
  read: Read<T>,
  sets?: Sets<readonly T[]>,
): Flag<readonly T[]> {
  return {
    usage,
    help: `${help}; repeatable`,
    read,
    isList: true,
    ...defined({ sets }),
  };
}

/** A flag without an argument: its value is true where the flag is given. */
export function on(usage: string, help: string, sets?: Sets<true>): Flag<true | undefined> {
  return { usage, help, ...defined({ sets: sets }) };
}

/** A flag `--no-name`: its value is false where the flag is given. */
export function off(usage: `--no-${string}`, help: string, sets?: Sets<boolean>): Flag<boolean> {
  return { usage, help, ...defined({ sets }) };
}

/** The flag with a default. */
export function or<T>(flag: Flag<T | undefined>, initial: string): Flag<T> {
  return { ...(flag as Flag<T>), initial };
}

/** The flag where a command cannot do without it. */
export function required<T>(flag: Flag<T | undefined>): Flag<T> {
  return { ...(flag as Flag<T>), isRequired: true };
}

/** The long name of the flag of a value, `--time-limit` of `timeLimit`. */
export function longName(key: string): string {
  return `--${key.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)}`;
}

/**
 * Reads what stood on the command line, in the order of the records.
 *
 * @param texts by the names of the values; true and false for switches
 * @throws what the first reader throws that refuses its text
 */
export async function readFlags<F extends Flags>(
  flags: F,
  texts: Readonly<Record<string, string | boolean | readonly string[] | undefined>>,
): Promise<Given<F>> {
  const values: Record<string, unknown> = {};
  for (const [key, flag] of Object.entries(flags)) {
    const { read, isList, initial } = flag;
    const given = texts[key] ?? initial ?? (isList === true ? [] : undefined);
    if (given === undefined) continue;
    const one = (item: string): unknown => read?.(item, longName(key));
    if (typeof given === 'boolean') values[key] = given;
    else if (typeof given === 'string') values[key] = await one(given);
    else {
      const items: unknown[] = [];
      for (const item of given) items.push(await one(item));
      values[key] = items;
    }
  }
  return values as Given<F>;
}

/**
 * The request that the values of flags ask for.
 *
 * @param values of the flags; a field without a value stays as it is in `base`
 */
export function requestOfFlags<F extends Flags>(
  flags: F,
  values: Given<F>,
  base: PlanRequest,
): PlanRequest {
  let request = base;
  for (const [key, flag] of Object.entries(flags)) {
    const given = (values as Readonly<Record<string, unknown>>)[key];
    if (given !== undefined && flag.sets !== undefined)
      request = { ...request, ...flag.sets(given, request) };
  }
  return request;
}
