/**
 * Megatron's pipeline layout strings: `E` embedding, `t` layer, `m` layer of multi-token
 * prediction, `L` loss, `|` ends a stage, `x*n` repeats a part or a bracketed run, commas say
 * nothing. `Ettt|(tt|)*29,m|L` has 32 stages.
 */

import { checkKinds } from '../../arguments.ts';
import { ShardwrightError } from '../../errors.ts';
import { NotationScanner } from '../../text/scanner.ts';

export type LayoutPart = 'E' | 't' | 'm' | 'L';

/**
 * The contents of every stage, in order; with virtual stages these go round the devices chunk by
 * chunk.
 */
export type PipelineLayout = readonly (readonly LayoutPart[])[];

const PARTS = new Map<string, LayoutPart>([
  ['E', 'E'],
  ['t', 't'],
  ['m', 'm'],
  ['L', 'L'],
]);
const MAX_LENGTH = 2 ** 16;
const MAX_SYMBOLS = 2 ** 16;
const MAX_DEPTH = 32;
const TIMES = /\*\d{1,6}/y;

/**
 * Reads a pipeline layout of Megatron-LM, `Et*4|t*4L`.
 *
 * @param layers of the model; checked when given
 * @throws E_SYNTAX with the column; E_TYPE when the string has another number of layers, or no
 *   embedding first and loss last
 */
export function parsePipelineLayout(text: string, layers?: number): PipelineLayout {
  checkKinds('parsePipelineLayout', {
    text: [text, 'string'],
    layers: [layers, 'number', 'undefined'],
  });
  const symbols = new Reader(text).read();
  const stages: LayoutPart[][] = [[]];
  for (const symbol of symbols)
    if (symbol === '|') stages.push([]);
    else stages[stages.length - 1].push(symbol);
  const flat = stages.flat();
  const count = (part: LayoutPart): number => flat.filter((p) => p === part).length;
  if (count('E') !== 1 || flat[0] !== 'E')
    throw new ShardwrightError(
      'E_TYPE',
      `layout '${text}' has ${count('E')} embeddings, expected one, in front`,
    );
  if (count('L') !== 1 || flat[flat.length - 1] !== 'L')
    throw new ShardwrightError(
      'E_TYPE',
      `layout '${text}' has ${count('L')} losses, expected one, at the end`,
    );
  if (layers !== undefined && count('t') !== layers)
    throw new ShardwrightError(
      'E_TYPE',
      `layout '${text}' has ${count('t')} layers, the model has ${layers}`,
      {
        hint: `write ${layers} times 't' in all; x*n repeats`,
      },
    );
  return stages;
}

/**
 * The string of a layout: runs of equal stages and of equal parts are written as repeats, without
 * commas.
 */
export function formatPipelineLayout(layout: PipelineLayout): string {
  checkKinds('formatPipelineLayout', { layout: [layout, 'lists'] });
  const stages = layout.map((stage) => stage.join(''));
  let out = '';
  for (let i = 0; i < stages.length;) {
    let n = 1;
    while (i + n < stages.length && stages[i + n] === stages[i]) n++;
    // The last stage has no bar after it.
    const runs = i + n === stages.length ? n - 1 : n;
    if (runs > 1) out += `(${stages[i]}|)*${runs}`;
    else if (runs === 1) out += `${stages[i]}|`;
    i += n;
    if (i === stages.length) out += stages[i - 1];
  }
  return out;
}

type Symbol = LayoutPart | '|';

/** Recursive descent over `item (* n)?`, an item being a letter, a bar or a bracketed list. */
class Reader extends NotationScanner {
  constructor(text: string) {
    super(text, MAX_LENGTH, 'a pipeline layout');
  }

  protected override isBlank(char: string): boolean {
    return char === ',' || char === ' ';
  }

  read(): Symbol[] {
    const symbols = this.list(0);
    if (!this.done) this.fail(`unexpected '${this.peek()}'`);
    return symbols;
  }

  private list(depth: number): Symbol[] {
    const out: Symbol[] = [];
    if (depth > MAX_DEPTH) this.fail(`brackets ${depth} deep, at most ${MAX_DEPTH}`);
    for (;;) {
      this.blanks();
      const char = this.peek();
      if (char === '' || char === ')') break;
      const item = this.item(char, depth);
      const times = this.times();
      if (out.length + item.length * times > MAX_SYMBOLS)
        this.fail(`more than ${MAX_SYMBOLS} parts`);
      for (let k = 0; k < times; k++) out.push(...item);
    }
    return out;
  }

  private item(char: string, depth: number): Symbol[] {
    if (char === '(') {
      const opened = this.at++;
      const inner = this.list(depth + 1);
      if (this.take(')')) return inner;
      this.back(opened);
      return this.fail("no ')' for the '('");
    }
    const part = char === '|' ? '|' : PARTS.get(char);
    if (part === undefined) return this.fail(`'${char}' is none of E, t, m, L, |, ( and )`);
    this.at++;
    return [part];
  }

  private times(): number {
    if (this.peek() !== '*') return 1;
    const from = this.at;
    const times = Number(this.match(TIMES)?.slice(1) ?? 0);
    if (times > 0) return times;
    this.back(from);
    return this.fail("expected a number of at least 1 after '*'");
  }

  override fail(message: string): never {
    throw new ShardwrightError('E_SYNTAX', `pipeline layout: ${message} at column ${this.at + 1}`, {
      ...this.place(this.at),
      hint: "as in 'Et*3|(tt|)*14,tL'",
    });
  }
}
