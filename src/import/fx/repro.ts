/**
 * Python files that Inductor writes to repeat a compilation: `class Repro` without any types, and
 * `load_args`, which makes one value for every input in order: `reader.storage(hash, bytes)`,
 * `reader.tensor(storage, shape, stride, dtype=...)`, `reader.symint(8, expr='s33')`. Only these
 * lines are read; nothing of the file is run.
 */

import { suggestion } from '../../errors.ts';
import { type Dim, type DType, DTYPE_BYTES, type ValueType } from '../../graph/types.ts';
import { tensorType } from '../../graph/value.ts';
import { itemAt } from '../../item-at.ts';
import type { Scanner } from '../file/scan.ts';
import type { FxClass, FxInput } from './record.ts';
import { pythonString, torchConstant } from './text/literal.ts';

export interface ReproParts {
  readonly classStart: number;
  /** Offset of the first line behind the class. */
  readonly classEnd: number;
}

const MAX_RANK = 64;
const MAX_LIST = 10_000;

/** The place of the class; undefined for a text without `class Repro`. */
export function reproParts(text: string): ReproParts | undefined {
  const classStart = text.startsWith('class Repro(') ? 0 : text.indexOf('\nclass Repro(') + 1;
  if (classStart === 0 && !text.startsWith('class Repro(')) return undefined;
  for (let pos = text.indexOf('\n', classStart) + 1; pos > 0; pos = text.indexOf('\n', pos) + 1)
    if (/^[^\s#]/.test(text.slice(pos, pos + 1))) return { classStart, classEnd: pos };
  return { classStart, classEnd: text.length };
}

/**
 * The class with the types that `load_args` gives its inputs.
 *
 * @returns notes: which rank of which groups the program is, where it communicates
 * @throws E_SYNTAX, E_REF, E_DUP, E_TYPE, E_UNSUPPORTED, E_LIMIT with line and column
 */
export function reproInputs(
  root: FxClass,
  parts: ReproParts,
  scanner: Scanner,
): { root: FxClass; notes: string[] } {
  const reader = new ArgumentReader(scanner, parts);
  const made = reader.read();
  if (made.length !== root.inputs.length)
    scanner.fail(
      'E_TYPE',
      `load_args makes ${made.length} values, forward takes ${root.inputs.length}`,
      reader.at,
      'the file may be cut or edited',
    );
  const inputs = root.inputs.map((input, i): FxInput => {
    const { name, type, at } = itemAt(made, i);
    if (name !== undefined && name !== input.name)
      scanner.fail(
        'E_REF',
        `value ${i} of load_args is '${name}', input ${i} of forward is '${input.name}'`,
        at,
        'keep their order',
      );
    return { ...input, type };
  });
  return { root: { ...root, inputs }, notes: groupNotes(scanner.text.slice(parts.classEnd)) };
}

interface Made {
  /** The name in the comment after the line. */
  readonly name: string | undefined;
  readonly type: ValueType;
  readonly at: number;
}
interface Part {
  readonly text: string;
  readonly at: number;
}

class ArgumentReader {
  /** Offset of `def load_args`. */
  at: number;
  private readonly made: Made[] = [];
  /** Bytes of every storage; undefined where they are symbolic. */
  private readonly storages = new Map<string, number | undefined>();
  /** Values that symbols had when the file was written. */
  private readonly examples = new Map<string, number>();

  constructor(
    private readonly scanner: Scanner,
    private readonly parts: ReproParts,
  ) {
    this.at = parts.classEnd;
  }

  read(): Made[] {
    const { scanner, parts } = this;
    const { text } = scanner;
    for (const [, name = '', value] of text
      .slice(0, parts.classStart)
      .matchAll(/^(\w{1,64}) = (\d{1,15})$/gm))
      this.examples.set(name, Number(value));
    const head = /^def load_args\((\w+)\):/m.exec(text.slice(parts.classEnd));
    if (head === null)
      return scanner.fail(
        'E_SYNTAX',
        `expected 'def load_args(reader):' behind the class, which gives the types of the inputs`,
        parts.classEnd,
        'keep the whole file',
      );
    this.at = parts.classEnd + head.index;
    let pos = text.indexOf('\n', this.at) + 1;
    for (; pos > 0 && pos < text.length;) {
      const stop = text.indexOf('\n', pos);
      const end = stop < 0 ? text.length : stop;
      const line = text.slice(pos, end).trimEnd();
      if (/^\S/.test(line)) break;
      const code = line.trimStart();
      if (code !== '' && !code.startsWith('#')) this.line(code, pos + line.length - code.length);
      pos = end + 1;
    }
    return this.made;
  }

  private line(code: string, at: number): void {
    const { scanner } = this;
    const call = /^(?:(\w{1,64}) = )?reader\.(\w{1,64})\(/.exec(code);
    if (call === null)
      return scanner.fail(
        'E_SYNTAX',
        `expected a call of reader, found '${code.slice(0, 40)}'`,
        at,
      );
    const [whole, target, method] = call;
    const { args, end } = this.arguments(code, whole.length, at);
    const behind = code.slice(end).trim();
    const name = /^# (\w{1,4096})$/.exec(behind)?.[1];
    if (behind !== '' && !behind.startsWith('#'))
      scanner.fail(
        'E_SYNTAX',
        `expected the end of the line, found '${behind.slice(0, 40)}'`,
        at + end,
      );
    if (method === 'storage' && target !== undefined) return this.storage(target, args, at);
    const type =
      method === 'tensor'
        ? this.tensor(args, at)
        : method === 'symint'
          ? this.symint(args, at)
          : undefined;
    if (type === undefined)
      return scanner.fail(
        'E_UNSUPPORTED',
        `reader.${method}: an input that is neither a tensor nor a size`,
        at,
        'graphs hold tensors and sizes',
      );
    this.made.push({ name, type, at });
  }

  private storage(target: string, args: readonly Part[], at: number): void {
    const { scanner, storages } = this;
    if (storages.has(target))
      scanner.fail('E_DUP', `'${target}' is defined twice`, at, 'rename one of them');
    const bytes = args[1]?.text;
    if (bytes === undefined)
      return scanner.fail('E_SYNTAX', 'a storage needs its number of bytes', at);
    storages.set(target, /^\d{1,15}$/.test(bytes) ? Number(bytes) : undefined);
  }

  private tensor(args: readonly Part[], at: number): ValueType {
    const { scanner } = this;
    const [storage, sizes, third] = args;
    if (storage === undefined || sizes === undefined)
      return scanner.fail('E_SYNTAX', 'a tensor needs a storage and its sizes', at);
    if (!this.storages.has(storage.text))
      scanner.fail(
        'E_REF',
        `storage '${storage.text}' is not defined`,
        storage.at,
        suggestion(storage.text, [...this.storages.keys()], 'storages'),
      );
    const shape = this.dims(sizes);
    const stride = third === undefined || isKeyword(third) ? undefined : this.dims(third);
    this.checkKeywords(args.slice(stride === undefined ? 2 : 3));
    if (stride !== undefined && stride.length !== shape.length)
      scanner.fail(
        'E_TYPE',
        `${shape.length} sizes but ${stride.length} strides`,
        third?.at ?? at,
        'write one stride a size',
      );
    const dtype = this.dtype(args);
    const offset = Number(keyword(args, 'storage_offset')?.text ?? 0);
    this.checkBytes(storage, shape, stride, offset, dtype);
    return tensorType(dtype, shape, stride);
  }

  private checkKeywords(args: readonly Part[]): void {
    const wrong = args.find((part) => !isKeyword(part));
    if (wrong !== undefined)
      this.scanner.fail(
        'E_SYNTAX',
        `expected key=value, found '${wrong.text.slice(0, 40)}'`,
        wrong.at,
      );
  }

  private dtype(args: readonly Part[]): DType {
    const stated = keyword(args, 'dtype');
    if (stated === undefined) return 'f32';
    const value = stated.text.startsWith('torch.')
      ? torchConstant(stated.text.slice(6))
      : undefined;
    if (value !== null && typeof value === 'object' && 'kind' in value && value.kind === 'dtype')
      return value.dtype;
    return this.scanner.fail(
      'E_TYPE',
      `'${stated.text}' is not a dtype`,
      stated.at,
      'as in dtype=torch.int64',
    );
  }

  /** Checks that the elements of a tensor lie within its storage. */
  private checkBytes(
    storage: Part,
    shape: readonly Dim[],
    stride: readonly Dim[] | undefined,
    offset: number,
    dtype: DType,
  ): void {
    const bytes = this.storages.get(storage.text);
    if (bytes === undefined || shape.includes(0)) return;
    let last = offset;
    for (let d = shape.length - 1, step: Dim = 1; d >= 0; d--) {
      const size = shape[d];
      const own = stride === undefined ? step : stride[d];
      if (typeof size !== 'number' || typeof own !== 'number' || typeof step !== 'number') return;
      last += (size - 1) * own;
      step *= size;
    }
    if ((last + 1) * DTYPE_BYTES[dtype] > bytes)
      this.scanner.fail(
        'E_TYPE',
        `the tensor needs ${(last + 1) * DTYPE_BYTES[dtype]} bytes, '${storage.text}' has ${bytes}`,
        storage.at,
        'correct the sizes or the dtype',
      );
  }

  private symint(args: readonly Part[], at: number): ValueType {
    const value = args[0]?.text ?? '';
    if (!/^-?\d{1,15}$/.test(value))
      return this.scanner.fail('E_SYNTAX', 'a size needs its value', at, 'as in reader.symint(8)');
    this.checkKeywords(args.slice(1));
    const stated = keyword(args, 'expr');
    const expr = stated === undefined ? value : pythonString(stated.text);
    if (stated !== undefined) this.examples.set(expr, Number(value));
    return { kind: 'sym', expr };
  }

  /** `(8, s33)`: sizes of a tuple. */
  private dims({ text, at }: Part): Dim[] {
    const { scanner } = this;
    if (!text.startsWith('('))
      scanner.fail('E_SYNTAX', `expected sizes such as (8, 128), found '${text.slice(0, 40)}'`, at);
    const { args, end } = this.arguments(text, 1, at);
    if (end < text.length)
      scanner.fail(
        'E_SYNTAX',
        `expected ',' or ')', found '${text.slice(end, end + 40).trim()}'`,
        at + end,
      );
    if (args.length > MAX_RANK)
      scanner.fail('E_LIMIT', `more than ${MAX_RANK} dims`, at, 'no tensor has so many dims');
    return args.map((part): Dim => {
      if (/^\d{1,15}$/.test(part.text)) return Number(part.text);
      if (!/^[\w\s+*/()%.,-]{1,4096}$/.test(part.text) || /^[-\d.]+$/.test(part.text))
        scanner.fail('E_TYPE', `'${part.text.slice(0, 40)}' is not a size`, part.at);
      const example = this.examples.get(part.text);
      return example === undefined ? { sym: part.text } : { sym: part.text, example };
    });
  }

  /** Parts between commas from behind an opening bracket; `end` is behind the closing one. */
  private arguments(code: string, from: number, base: number): { args: Part[]; end: number } {
    const { scanner } = this;
    const args: Part[] = [];
    let depth = 0;
    let start = from;
    const push = (to: number): void => {
      const text = code.slice(start, to);
      const lead = text.length - text.trimStart().length;
      if (text.trim() !== '') args.push({ text: text.trim(), at: base + start + lead });
      // A comma may follow the last value only.
      else if (code[to] === ',') scanner.fail('E_SYNTAX', `expected a value, found ','`, base + to);
      if (args.length > MAX_LIST)
        scanner.fail('E_LIMIT', `more than ${MAX_LIST} values in one list`, base + start);
      start = to + 1;
    };
    for (let i = from; i < code.length; i++) {
      const c = code[i];
      if (c === "'" || c === '"') {
        const close = code.indexOf(c, i + 1);
        if (close < 0)
          scanner.fail(
            'E_SYNTAX',
            'the string has no closing quote',
            base + i,
            'the text seems to be cut here',
          );
        i = close;
      } else if (c === '(' || c === '[' || c === '{') depth++;
      else if (c === ')' || c === ']' || c === '}') {
        if (depth === 0) {
          push(i);
          return { args, end: i + 1 };
        }
        depth--;
      } else if (c === ',' && depth === 0) push(i);
    }
    return scanner.fail(
      'E_SYNTAX',
      `expected ')', found the end of the line`,
      base + code.length,
      'the text seems to be cut here',
    );
  }
}

function isKeyword({ text }: Part): boolean {
  return /^\w+=/.test(text);
}

/** The value of `key=value`. */
function keyword(args: readonly Part[], key: string): Part | undefined {
  const found = args.find(({ text }) => text.startsWith(`${key}=`));
  if (found === undefined) return undefined;
  return { text: found.text.slice(key.length + 1).trim(), at: found.at + key.length + 1 };
}

/**
 * Process groups of a program that communicates, as `setup_fake_process_groups` or `get_pg_config`
 * name them.
 */
function groupNotes(text: string): string[] {
  if (!/\b(setup_fake_process_groups|get_pg_config)\b/.test(text)) return [];
  const groups = [
    ...text.matchAll(/['"]([^'"\n]{1,200})['"]: \{'size': (\d{1,9}), 'rank': (\d{1,9})\}/g),
  ].slice(0, 50);
  if (groups.length === 0) return [];
  const list = groups.map(([, name, size, rank]) => `rank ${rank} of ${size} in group '${name}'`);
  return [`This is the program of one device, already sharded: ${list.join(', ')}.`];
}
