/** Reads the text of `str(graph)` of torch.fx. */

import { suggestion } from '../../errors.ts';
import { exactInteger } from '../../graph/text/token.ts';
import type { Arg, ValueType } from '../../graph/types.ts';
import { eachOperand, NO_KWARGS, setOwn } from '../../graph/value.ts';
import { firstItems } from '../../item-at.ts';
import { MAX_NAME } from '../../text/place.ts';
import { Scanner } from '../file/scan.ts';
import { MAX_NODES } from './parse.ts';
import type { DraftRef, FxClass, FxInput, FxNode, FxReturn } from './record.ts';
import { Annotations } from './text/annotation.ts';
import { isBlank, isName, LineReader } from './text/line-reader.ts';
import { DICTIONARY, namedConstant, torchConstant, WITHOUT_DICTIONARIES } from './text/literal.ts';
import { targetName } from './text/target.ts';

const MAX_NESTING = 256;

/**
 * Reads `str(graph)`: `%mm : [num_users=2] = call_function[target=torch.ops.aten.mm.default](args =
 * (%x, %w), kwargs = {})`. Bodies follow lines `# subgraph NAME`. Strings have no quotes there, so
 * that one with a comma can have several readings; such a text is refused unless the operator
 * admits only one.
 *
 * @param inputs types of the placeholders by name, as annotations (`f32[8, 16]`); the text mostly
 *   has none
 * @throws E_SYNTAX, E_REF, E_DUP, E_TYPE, E_LIMIT, E_UNSUPPORTED, each with line and column
 */
export function parseGraphText(
  text: string,
  file?: string,
  inputs: Readonly<Record<string, string>> = {},
): { root: FxClass; scanner: Scanner } {
  const scanner = new Scanner(text, file);
  return { root: new GraphText(scanner, inputs).read(), scanner };
}

interface Draft extends FxClass {
  readonly classes: Draft[];
}

class GraphText extends LineReader {
  private readonly annotations = new Annotations();
  private nodes = 0;

  constructor(
    scanner: Scanner,
    private readonly types: Readonly<Record<string, string>>,
  ) {
    super(scanner);
  }

  read(): FxClass {
    const bodies = new Map<string, Draft>();
    let name = '';
    let root: Draft | undefined;
    while (this.nextLine()) {
      const line = this.rest();
      if (line === '') continue;
      if (line.startsWith('# subgraph ')) {
        name = line.slice(11).trim();
        if (name.length > MAX_NAME) this.fail('E_LIMIT', `a name of ${name.length} characters`);
        continue;
      }
      if (line.startsWith('#')) continue;
      if (line !== 'graph():') this.expected(`'graph():'`);
      const at = this.pos;
      const graph = this.graph(
        name === '' ? 'Graph' : name.slice(name.lastIndexOf('.') + 1),
        name === '',
      );
      if (name === '') {
        if (root !== undefined)
          this.fail('E_UNSUPPORTED', 'a second graph without a name: the text holds several', at);
        root = graph;
      } else {
        if (bodies.has(name)) this.fail('E_DUP', `subgraph '${name}' is defined twice`, at);
        bodies.set(name, graph);
      }
      name = '';
    }
    if (root === undefined)
      return this.fail(
        'E_SYNTAX',
        `expected 'graph():', found the end of the text`,
        this.scanner.text.length,
      );
    for (const [path, body] of bodies) {
      const dot = path.lastIndexOf('.');
      const owner = dot < 0 ? root : bodies.get(path.slice(0, dot));
      if (owner === undefined)
        this.fail('E_REF', `subgraph '${path}' belongs to no graph of the text`, body.offset);
      owner.classes.push(body);
    }
    return root;
  }

  private graph(name: string, top: boolean): Draft {
    const offset = this.pos;
    const body = new GraphBody(name);
    while (this.nextLine()) {
      const { text } = this.scanner;
      while (this.pos < this.end && isBlank(text.charCodeAt(this.pos))) this.pos++;
      if (this.pos >= this.end || text[this.pos] === '#') continue;
      if (text.startsWith('return', this.pos) && !isName(text.charCodeAt(this.pos + 6))) {
        this.pos += 6;
        const returns = this.returned(body);
        this.checkUsers(body, returns);
        const { inputs, nodes } = body;
        return { name, offset, inputs, nodes, returns, classes: [], joint: false };
      }
      this.statement(body, top);
    }
    return this.fail('E_SYNTAX', `graph ${name} has no return line`, offset);
  }

  /** `%name : TYPE [num_users=1] = kind[target=...](...)` */
  private statement(body: GraphBody, top: boolean): void {
    if (++this.nodes > MAX_NODES) this.fail('E_LIMIT', `more than ${MAX_NODES} nodes`);
    const head = this.head(body);
    const { name, kind, written, offset } = head;
    const ref: DraftRef = { kind: 'value', name };
    switch (kind) {
      case 'placeholder':
        this.placeholder(body, head, top);
        break;
      case 'get_attr':
        body.nodes.push({
          ...draftOf(head, ref),
          kind,
          target: written,
          args: [],
          kwargs: NO_KWARGS,
        });
        break;
      case 'call_function':
      case 'call_method': {
        const target = kind === 'call_method' ? `torch.Tensor.${written}` : targetName(written);
        const { args, kwargs } = this.call(body, target);
        body.nodes.push({ ...draftOf(head, ref), kind: 'call', target, args, kwargs });
        break;
      }
      case 'call_module':
        this.fail(
          'E_UNSUPPORTED',
          `the module ${written} is called`,
          offset,
          'trace to aten operators first (torch.export, AOTAutograd)',
        );
        break;
      default:
        this.fail(
          'E_SYNTAX',
          `expected placeholder, get_attr, call_function or call_method, found '${kind}'`,
          offset,
        );
    }
    body.env.set(name, ref);
    this.blanks();
    if (this.pos < this.end) this.expected('the end of the line');
  }

  /** A statement up to `[target=...]`, and its number of users. */
  private head(body: GraphBody): StatementHead {
    const { text } = this.scanner;
    const { line } = this;
    const offset = this.pos;
    this.expect('%');
    const name = this.name();
    if (body.env.has(name)) this.fail('E_DUP', `'${name}' is defined twice`, offset);
    this.blanks();
    this.expect(':');
    this.blanks();
    const type = this.annotation();
    this.expect('[num_users=');
    const users = /\d{1,9}/y;
    users.lastIndex = this.pos;
    const count = users.exec(text)?.[0] ?? this.expected('a number of users');
    this.pos += count.length;
    this.expect(']');
    this.blanks();
    this.expect('=');
    this.blanks();
    const kind = this.name();
    this.expect('[target=');
    const close = text.indexOf(']', this.pos);
    if (close < 0 || close >= this.end) this.expected(`']'`);
    const written = text.slice(this.pos, close);
    if (written === '' || written.length > MAX_NAME)
      this.fail('E_SYNTAX', 'the target is empty or too long');
    this.pos = close + 1;
    body.users.set(name, { count: Number(count), offset });
    return { name, type, kind, written, offset, line };
  }

  private placeholder(body: GraphBody, head: StatementHead, top: boolean): void {
    const { name, offset, line } = head;
    if (body.nodes.length > 0) this.fail('E_SYNTAX', 'a placeholder follows a call', offset);
    const given =
      top && head.type === undefined && Object.hasOwn(this.types, name)
        ? this.types[name]
        : undefined;
    const type = given === undefined ? head.type : this.given(name, given);
    body.inputs.push({ name, type, offset, line });
    this.pos = this.end; // behind it stands at most a default
  }

  /** `Tensor "f32[8, 16]"`, or nothing. */
  private annotation(): ValueType | undefined {
    const { scanner } = this;
    const { text } = scanner;
    if (text[this.pos] === '[') return undefined;
    const kind = this.name();
    this.blanks();
    if (text[this.pos] !== '"') {
      if (text[this.pos] === '[') return undefined;
      return this.expected(`a type in quotes behind '${kind}'`);
    }
    const close = text.indexOf('"', this.pos + 1);
    if (close < 0 || close >= this.end) this.fail('E_SYNTAX', 'the type has no closing quote');
    scanner.start = this.pos;
    scanner.end = close + 1;
    this.pos = close + 1;
    this.blanks();
    return this.annotations.read(scanner);
  }

  private given(name: string, annotation: string): ValueType {
    const own = new Scanner(`"${annotation}"`, `inputs.${name}`);
    own.end = own.text.length;
    return this.annotations.read(own);
  }

  private call(
    body: GraphBody,
    target: string,
  ): { args: readonly Arg[]; kwargs: Readonly<Record<string, Arg>> } {
    const { text } = this.scanner;
    this.expect('(args = ');
    const args = this.list(body, target, 0);
    this.expect(', kwargs = {');
    let kwargs: Record<string, Arg> | undefined;
    while (text[this.pos] !== '}') {
      const at = this.pos;
      const key = this.name();
      this.expect(': ');
      kwargs ??= {};
      if (Object.hasOwn(kwargs, key)) this.fail('E_SYNTAX', `argument '${key}' is given twice`, at);
      const value = this.value(body, target, 0, '}');
      setOwn(kwargs, key, value);
      if (text.startsWith(', ', this.pos)) this.pos += 2;
      else if (text[this.pos] !== '}') this.expected(`',' or '}'`);
    }
    this.expect('})');
    return { args, kwargs: kwargs ?? NO_KWARGS };
  }

  /** `(a, b)` or `[a, b]`, the position on the bracket. */
  private list(body: GraphBody, target: string, depth: number): Arg[] {
    const { text } = this.scanner;
    if (depth > MAX_NESTING) this.fail('E_LIMIT', `lists nest deeper than ${MAX_NESTING}`);
    const open = text[this.pos];
    const close = open === '(' ? ')' : ']';
    if (open !== '(' && open !== '[') this.expected(`'(' or '['`);
    this.pos++;
    const items: Arg[] = [];
    let bare = false;
    while (text[this.pos] !== close) {
      const at = this.pos;
      const value = this.value(body, target, depth, close);
      // The operator of `with_effects` is a word of its own, before a string.
      const word = typeof value === 'string' && !(target === 'with_effects' && items.length === 1);
      if (word && bare) {
        // Two words side by side may be one string with a comma; einsum takes one string and then a
        // list.
        if (target !== 'aten.einsum.default' || depth > 0) this.ambiguous(at);
        items[items.length - 1] = `${items[items.length - 1] as string}, ${value}`;
      } else items.push(value);
      bare = word;
      if (text.startsWith(', ', this.pos)) this.pos += 2;
      else if (text[this.pos] === ',' && text[this.pos + 1] === close) this.pos++;
      else if (text[this.pos] !== close) this.expected(`',' or '${close}'`);
    }
    this.pos++;
    return items;
  }

  private value(body: GraphBody, target: string, depth: number, close: string): Arg {
    const { text } = this.scanner;
    const c = text[this.pos];
    if (c === '%') {
      this.pos++;
      const at = this.pos;
      return this.reference(this.name(), at, body);
    }
    if (c === '(' || c === '[') return this.list(body, target, depth + 1);
    if (c === '{') return this.fail('E_UNSUPPORTED', DICTIONARY, this.pos, WITHOUT_DICTIONARIES);
    if (text.startsWith('slice(', this.pos)) {
      this.pos += 5;
      const parts = this.list(body, target, depth + 1);
      if (parts.length !== 3)
        this.fail('E_SYNTAX', `slice takes 3 arguments here, got ${parts.length}`);
      const [start, stop, step] = firstItems(parts, 3);
      return { kind: 'slice', start, stop, step };
    }
    return this.word(target, close);
  }

  /** A literal, or a string without quotes: up to `, ` or the closing bracket. */
  private word(target: string, close: string): Arg {
    const { text } = this.scanner;
    const start = this.pos;
    let pos = start;
    while (
      pos < this.end &&
      text[pos] !== close &&
      !(text[pos] === ',' && (text[pos + 1] === ' ' || text[pos + 1] === close))
    )
      pos++;
    if (pos >= this.end) this.expected(`'${close}'`);
    const word = text.slice(start, pos);
    if (word === '' || word.length > MAX_NAME) this.expected('a value');
    this.pos = pos;
    const literal = literalOf(word);
    if (literal !== undefined) return literal;
    // A device is written without `device(...)`; autocast takes its kind as a string.
    if (
      /^(cpu|cuda|meta|xpu|mps|hpu|xla)(:\d{1,6})?$/.test(word) &&
      target !== 'wrap_with_autocast'
    )
      return { kind: 'device', word };
    if (/[,()[\]{}%]/.test(word) && target !== 'aten.einsum.default') this.ambiguous(start);
    return word;
  }

  private ambiguous(at: number): never {
    return this.fail(
      'E_SYNTAX',
      'a string without quotes can be read in several ways here',
      at,
      'print the graph with print_readable(), which writes quotes',
    );
  }

  private reference(name: string, at: number, body: GraphBody): Arg {
    const ref = body.env.get(name);
    if (ref !== undefined) return ref;
    return this.fail(
      'E_REF',
      `'${name}' is not defined`,
      at,
      suggestion(name, [...body.env.keys()], 'values'),
    );
  }

  /** `return (a, b)`, `return [a, None]` or `return a`; names without `%`. */
  private returned(body: GraphBody): FxReturn[] {
    const { text } = this.scanner;
    this.blanks();
    const open = text[this.pos];
    const close = open === '(' ? ')' : open === '[' ? ']' : '';
    if (close === '') return [this.returnEntry(body)];
    this.pos++;
    const entries: FxReturn[] = [];
    for (;;) {
      this.blanks();
      if (text[this.pos] === close) break;
      entries.push(this.returnEntry(body));
      if (text[this.pos] === ',') this.pos++;
      else if (text[this.pos] !== close) this.expected(`',' or '${close}'`);
    }
    this.pos++;
    this.blanks();
    if (this.pos < this.end) this.expected('the end of the line');
    return entries;
  }

  private returnEntry(body: GraphBody): FxReturn {
    const offset = this.pos;
    if (this.scanner.text[offset] === '%') this.pos++;
    if (
      !isName(this.scanner.text.charCodeAt(this.pos)) ||
      /\d/.test(this.scanner.text[this.pos] ?? '')
    )
      this.fail(
        'E_UNSUPPORTED',
        'something else than values and None is returned',
        offset,
        'return a flat list of values',
      );
    const name = this.name();
    if (name === 'None') return { value: null, offset };
    const ref = this.reference(name, offset, body) as DraftRef;
    return { value: ref.name, offset };
  }

  /**
   * The text says how many nodes use a value; a difference means that lines are missing or edited.
   */
  private checkUsers(body: GraphBody, returns: readonly FxReturn[]): void {
    const counted = new Map<string, number>();
    const seen = new Set<string>();
    const count = (name: string): void => {
      if (seen.has(name)) return;
      seen.add(name);
      counted.set(name, (counted.get(name) ?? 0) + 1);
    };
    for (const node of body.nodes) {
      seen.clear();
      eachOperand(node, count);
    }
    seen.clear();
    for (const { value } of returns) if (value !== null) count(value);
    for (const [name, stated] of body.users) {
      const found = counted.get(name) ?? 0;
      if (found !== stated.count)
        this.fail(
          'E_SYNTAX',
          `'${name}' says num_users=${stated.count}, but ${found} nodes use it`,
          stated.offset,
        );
    }
  }
}

/** The part of a statement before its arguments. */
interface StatementHead {
  readonly name: string;
  readonly type: ValueType | undefined;
  readonly kind: string;
  /** The target as it is written. */
  readonly written: string;
  readonly offset: number;
  readonly line: number;
}

/** The parts of a node that its head gives. */
function draftOf(
  { name, type, offset, line }: StatementHead,
  ref: DraftRef,
): Pick<FxNode, 'name' | 'type' | 'offset' | 'line' | 'source' | 'ref'> {
  return { name, type, offset, line, source: undefined, ref };
}

class GraphBody {
  readonly inputs: FxInput[] = [];
  readonly nodes: FxNode[] = [];
  readonly env = new Map<string, DraftRef>();
  readonly users = new Map<string, { readonly count: number; readonly offset: number }>();
  constructor(readonly name: string) {}
}

/** Python literals as `str` prints them; undefined for a word that can only be a string. */
function literalOf(word: string): Arg | undefined {
  if (/^-?\d{1,400}$/.test(word)) return exactInteger(word);
  if (/^-?(\d{1,30}\.\d{0,30}(e[+-]?\d{1,4})?|\d{1,30}e[+-]?\d{1,4})$/.test(word))
    return { kind: 'float', value: Number(word) };
  if (word === '-inf') return { kind: 'float', value: -Infinity };
  if (word.startsWith('torch.')) return torchConstant(word.slice(6));
  return namedConstant(word);
}
