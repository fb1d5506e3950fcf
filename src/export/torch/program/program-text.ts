/**
 * Writes `program.py` from the lowered program: the two Python functions that each device runs.
 * PyTorch runs the text and people read it: it has one call in a line with its local type, modules
 * as comments, collectives by name, and values are dropped after their last use.
 */
import {
  pyComment,
  pyDocstring,
  PyNames,
  pyString,
  pyTuple,
} from '../../../backend/python-text.ts';
import { defined } from '../../../defined.ts';
import { internalError, ShardwrightError } from '../../../errors.ts';
import { bodyResult } from '../../../graph/control.ts';
import { nodesByName, roleName, typesByName } from '../../../graph/nodes.ts';
import type { Arg, Graph, Node } from '../../../graph/types.ts';
import { eachOperand, getOwn, isRef, typeText } from '../../../graph/value.ts';
import { collectiveKind } from '../../../lower/program/collectives.ts';
import type { DeviceProgram } from '../../../lower/program/program.ts';
import type { CollectiveKind } from '../../../mesh/collective-kinds.ts';
import type { ControlForm } from '../../../passes/control/control-form.ts';
import { bytesText } from '../../../units.ts';
import { argumentText, isExchanged, type Names, operatorText } from './arguments.ts';
import { memberRow } from './collective-list.ts';
import { bodiesOf, controlOf, controlText } from './control.ts';
import { flexText, isFlexAttention, packedHelper } from './flex-attention.ts';
import { groupOrder, inverse, permuted } from './group-order.ts';
import { fixedText, type Helper, HELPER_USES, HELPERS } from './helpers.ts';
import { inPlaceCalls } from './in-place.ts';
import { draws, randomText } from './random.ts';
import { callLines, type SplitProgram } from './split.ts';

/** Identifiers that the text itself uses. */
const OWN = [
  'torch',
  'dist',
  'aten',
  'c10d',
  'here',
  'primals',
  'saved',
  'tangents',
  'forward',
  'backward',
  'Here',
  'DeviceMesh',
  'MESH_NAMES',
  'MESH_SIZES',
  'GROUPS',
  'RANK_INTS',
  'slice',
  'float',
  ...HELPERS,
];

const HELPER_OF: Readonly<Record<CollectiveKind, Helper>> = {
  all_reduce: 'all_reduce',
  all_gather: 'all_gather',
  reduce_scatter: 'reduce_scatter',
  all_to_all: 'all_to_all',
  collective_permute: 'permute',
};

/** Helpers that reduce what members have. */
const REDUCING: ReadonlySet<Helper> = new Set<Helper>(['all_reduce', 'reduce_scatter']);

const COALESCED: Readonly<Partial<Record<CollectiveKind, Helper>>> = {
  all_reduce: 'all_reduce_coalesced',
  all_gather: 'all_gather_coalesced',
  reduce_scatter: 'reduce_scatter_coalesced',
};

/**
 * Writes the module.
 *
 * @param head lines of its first comment
 * @throws E_UNSUPPORTED, with the node, for calls that PyTorch does not have
 */
export function programText(
  program: DeviceProgram,
  split: SplitProgram,
  head: readonly string[],
): string {
  const writer = new ProgramWriter(program, split);
  const functions = [...writer.bodies(), writer.forward(), writer.backward()];
  const { mesh, symbols } = program;
  const groups = [...writer.groups].sort();
  const tables = [
    `MESH_NAMES = ${pyTuple(mesh.names.map(pyString))}`,
    `MESH_SIZES = ${pyTuple(mesh.sizes.map(String))}`,
    '# Groups that the collectives run in: the mesh dims that their members differ in.',
    `GROUPS = ${pyTuple(groups.map(pyString))}`,
    '# Integers that differ from device to device, by place in the mesh.',
    ...(symbols.size === 0
      ? ['RANK_INTS = {}']
      : [
          'RANK_INTS = {',
          ...[...symbols].map(
            ([name, values]) => `    ${pyString(name)}: ${pyTuple(values.map(String))},`,
          ),
          '}',
        ]),
  ];
  if (writer.decisions.size > 0)
    tables.push(
      '# Calls of which a value decides what runs, which is read on the host.',
      `DECIDES = ${pyTuple([...writer.decisions].map(pyString))}`,
    );
  if (writer.draws.size > 0)
    tables.push(
      '# Calls that draw random numbers: every device draws what one process draws, so all ' +
        'need one random state.',
      `DRAWS = ${pyTuple([...writer.draws].map(pyString))}`,
    );
  const { imports, here, helper } = fixedText();
  const helpers = writer.helpersInOrder().map(helper);
  const intro = pyDocstring([
    'What each device of the mesh runs: local calls, and collectives where the plan has them.',
    '',
    ...head,
    '',
    'forward(here, primals) returns (outputs, saved); backward(here, saved, tangents) ' +
      'returns one gradient or None for each of',
    'the primals, and empties `saved`. placements.json says what each of them is; ' +
      'collectives.json lists the communication.',
  ]);
  const blocks = [intro.join('\n'), imports, `${tables.join('\n')}\n`, here];
  return [...blocks, ...helpers, ...functions]
    .join('\n')
    .replace(/\n{3,}(?=def |class )/g, '\n\n\n');
}

/** State that the functions of a program share. */
interface ProgramParts {
  readonly program: DeviceProgram;
  readonly groups: Set<string>;
  readonly helpers: Set<Helper>;
  /** Calls that decide by a value, `cond_1 (cond)`. */
  readonly decisions: Set<string>;
  /** Calls that draw, `native_dropout (aten.native_dropout.default)`. */
  readonly draws: Set<string>;
  readonly buckets: SplitProgram['buckets'];
  /** Functions of bodies. */
  readonly functions: ReadonlyMap<Graph, string>;
  /** Memory order of values outside of bodies that do not lie row by row, by name. */
  readonly orders: ReadonlyMap<string, readonly number[]>;
}

class ProgramWriter implements ProgramParts {
  readonly groups = new Set<string>();
  readonly helpers = new Set<Helper>();
  readonly decisions = new Set<string>();
  readonly draws = new Set<string>();
  readonly functions: ReadonlyMap<Graph, string>;
  readonly orders: ReadonlyMap<string, readonly number[]>;
  readonly buckets: SplitProgram['buckets'];

  constructor(
    readonly program: DeviceProgram,
    private readonly split: SplitProgram,
  ) {
    this.buckets = split.buckets;
    this.orders = new Map(
      program.values.flatMap(({ local, inBody, order }) =>
        inBody || order === undefined ? [] : [[local, order] as const],
      ),
    );
    const names = new PyNames(OWN);
    this.functions = new Map(
      bodiesOf(program.graph).map((body, k) => [body, names.of(`${body.name}:${k}`)]),
    );
  }

  helpersInOrder(): Helper[] {
    // Iteration reaches names that are added on the way.
    for (const name of this.helpers)
      for (const used of HELPER_USES[name] ?? []) this.helpers.add(used);
    return HELPERS.filter((name) => this.helpers.has(name));
  }

  /** A function for each body of a loop or a branching, inner ones first. */
  bodies(): string[] {
    return [...this.functions].map(([graph, name]) => {
      const inputs = graph.nodes.filter(({ kind }) => kind === 'placeholder');
      const body = new FunctionText(this, graph);
      const parameters = inputs.map((node) => body.named(node.name));
      const types = bodyResult(graph).map((type) => typeText(type));
      const returned = graph.outputs.map(({ value }) => value);
      body.calls(
        graph.nodes.filter(({ kind }) => kind === 'call'),
        new Set(returned.filter((v) => v !== null)),
      );
      const list = returned.map((value) => (value === null ? 'None' : body.ready(value)));
      body.line(`return [${list.join(', ')}]  # ${pyComment(types.join(', '))}`);
      return `\n\ndef ${name}(${['here', ...parameters].join(', ')}):\n${body.text()}`;
    });
  }

  forward(): string {
    const { inputs, forward, outputs, saved } = this.split;
    const body = new FunctionText(this, this.program.graph);
    body.unpack('primals', inputs, (node) => `${roleName(node)}: ${typeText(node.type)}`);
    body.lay(inputs);
    const returned = outputs.map(({ value }) => value);
    body.calls(forward, new Set([...saved, ...returned.filter((v) => v !== null)]));
    const list = (names: readonly (string | null)[]): string =>
      `[${names.map((name) => (name === null ? 'None' : body.ready(name))).join(', ')}]`;
    body.line(`return ${list(returned)}, ${list(saved)}`);
    return `\n\ndef forward(here, primals):\n${body.text()}`;
  }

  backward(): string {
    const { inputs, tangents, backward, gradients, saved } = this.split;
    const body = new FunctionText(this, this.program.graph);
    const byName = nodesByName(this.program.graph);
    body.unpack(
      'saved',
      saved.flatMap((name) => byName.get(name) ?? []),
      (node) => typeText(node.type),
    );
    body.line('saved.clear()');
    body.unpack('tangents', tangents, (node) => typeText(node.type));
    body.lay(tangents);
    const gradientOf = new Map(gradients.map(({ of, value }) => [of ?? '', value]));
    const returned = inputs.map(
      ({ name, meta }) => gradientOf.get(roleName({ name, meta })) ?? null,
    );
    body.calls(backward, new Set(returned.filter((v) => v !== null)));
    const list = returned.map((name) => (name === null ? 'None' : body.ready(name)));
    body.line(`return [${list.join(', ')}]`);
    return `\n\ndef backward(here, saved, tangents):\n${body.text()}`;
  }
}

/** The lines of one function. */
class FunctionText {
  private readonly lines: string[] = [];
  private readonly names: PyNames;
  private readonly types: ReadonlyMap<string, Node['type']>;
  private readonly integers = new Map<string, string>();
  /** Collectives whose value nothing has asked for yet, with those that were called with them. */
  private readonly open = new Map<
    string,
    readonly { readonly node: Node; readonly after?: string }[]
  >();
  private readonly arguments: Names;
  private inPlace: ReadonlyMap<string, string> = new Map();
  private path: string | undefined;

  constructor(
    private readonly parts: ProgramParts,
    private readonly graph: Graph,
  ) {
    this.names = new PyNames([...OWN, ...parts.functions.values()]);
    this.types = typesByName(graph);
    this.arguments = {
      value: (name) => this.names.of(name),
      integer: (symbol) => {
        const known = this.integers.get(symbol);
        if (known !== undefined) return known;
        const own = this.names.of(
          `int:${symbol.replace(/[^A-Za-z0-9_]+/g, '_').replace(/^_+|_+$/g, '')}`,
        );
        this.integers.set(symbol, own);
        return own;
      },
    };
  }

  text(): string {
    const ints = [...this.integers].map(
      ([symbol, own]) => `    ${own} = RANK_INTS[${pyString(symbol)}][here.rank]`,
    );
    return `${[...ints, ...this.lines].join('\n')}\n`;
  }

  named(name: string): string {
    return this.names.of(name);
  }

  line(text: string): void {
    this.lines.push(`    ${text}`);
  }

  unpack(list: string, nodes: readonly Node[], note: (node: Node) => string): void {
    if (nodes.length === 0) return;
    this.line('(');
    for (const node of nodes)
      this.line(`    ${this.names.of(node.name)},  # ${pyComment(note(node))}`);
    this.line(`) = ${list}`);
  }

  /**
   * Lays inputs in the memory order that they were captured in, where that is not row by row: some
   * kernels give wrong numbers for operands in different orders.
   */
  lay(nodes: readonly Node[]): void {
    for (const { name } of nodes) {
      const order = this.parts.orders.get(name);
      if (order === undefined) continue;
      this.parts.helpers.add('laid');
      const own = this.names.of(name);
      this.line(`${own} = laid(${own}, ${pyTuple(order.map(String))})`);
    }
  }

  /** Identifier of a value that is to be returned, with its collective waited for. */
  ready(name: string): string {
    this.await(name);
    return this.names.of(name);
  }

  /**
   * Writes calls in order; values are dropped after their last use, but for those that are kept.
   */
  calls(nodes: readonly Node[], kept: ReadonlySet<string>): void {
    this.inPlace = inPlaceCalls(nodes, kept);
    const lines = callLines(nodes, this.parts.buckets);
    const last = new Map<string, number>();
    // A collective that nobody reads is waited for at the end.
    const unread = new Set<string>();
    lines.forEach((line, i) => {
      for (const node of line) {
        last.set(node.name, i);
        if (collectiveKind(node.target) !== undefined) unread.add(node.name);
        eachOperand(node, (name) => {
          last.set(name, i);
          unread.delete(name);
        });
      }
    });
    const dying = new Map<number, string[]>();
    for (const [name, i] of last)
      if (!kept.has(name) && !unread.has(name)) dying.set(i, [...(dying.get(i) ?? []), name]);
    lines.forEach((line, i) => {
      for (const node of line) {
        this.module(node);
        eachOperand(node, (name) => this.await(name));
      }
      const [node] = line;
      const last = dying.get(i) ?? [];
      const handed = this.handed(node, last);
      const dead = last
        .filter((name) => handed?.names.has(name) !== true)
        .map((name) => this.names.of(name));
      const drop = dead.length === 0 ? '' : `; del ${dead.join(', ')}`;
      if (line.length > 1) this.bucket(line, drop);
      else
        this.line(
          `${this.names.of(node.name)} = ${this.call(node, handed?.list)}${drop}  # ` +
            `${pyComment(typeText(node.type))}`,
        );
    });
    for (const name of [...this.open.keys()]) this.await(name);
  }

  /** A comment where the module changes. */
  private module({ meta }: Node): void {
    if (meta.path === undefined || meta.path === this.path) return;
    this.path = meta.path;
    this.line(`# ${pyComment(meta.path)}`);
  }

  /** Values that travel together arrive together, and are held until all of them are waited for. */
  private await(name: string): void {
    const members = this.open.get(name);
    if (members === undefined) return;
    this.parts.helpers.add('wait');
    const isAlone = members.length === 1;
    for (const { node, after } of members) {
      const own = this.names.of(node.name);
      this.open.delete(node.name);
      const waited = `wait(${own})`;
      this.line(
        `${own} = ${isAlone && after !== undefined ? `reordered(${waited}, ${after})` : waited}`,
      );
    }
    if (isAlone) return;
    for (const { node, after } of members) {
      const own = this.names.of(node.name);
      if (after !== undefined) this.line(`${own} = reordered(${own}, ${after})`);
    }
  }

  /**
   * The list of a loop's starting values, which the loop empties, where some of them are not read
   * later: only the first trip holds those. Undefined where all of them stay.
   */
  private handed(
    node: Node,
    last: readonly string[],
  ): { list: string; names: ReadonlySet<string> } | undefined {
    const form = controlOf(node, this.graph);
    if (form === undefined || form.kind === 'branch') return undefined;
    const [first, rest] =
      form.kind === 'scan'
        ? [form.init, [...form.xs, ...form.captured]]
        : [form.carry, form.captured];
    const others = new Set(rest.flatMap((arg) => (isRef(arg) ? [arg.name] : [])));
    const names = new Set(
      first.flatMap((arg) =>
        isRef(arg) && last.includes(arg.name) && !others.has(arg.name) ? [arg.name] : [],
      ),
    );
    if (names.size === 0) return undefined;
    const list = this.names.of(`first:${node.name}`);
    const members = first.map((arg) => argumentText(arg, this.arguments)).join(', ');
    const dropped = [...names].map((name) => this.names.of(name)).join(', ');
    this.line(`${list} = [${members}]; del ${dropped}`);
    return { list, names };
  }

  private call(node: Node, start: string | undefined): string {
    const kind = collectiveKind(node.target);
    if (kind !== undefined) return this.collective(node, kind);
    const [first] = node.args;
    if (node.target === 'operator.getitem' && first !== undefined && isRef(first))
      return `${this.names.of(first.name)}[${Number(node.args[1])}]`;
    const form = controlOf(node, this.graph);
    if (form !== undefined) return this.control(node, form, start);
    if (isFlexAttention(node)) {
      this.parts.helpers.add(node.target);
      return flexText(node, {
        argument: (arg) => argumentText(arg, this.arguments),
        body: (name) => this.bodyNamed(name),
      });
    }
    const packed = packedHelper(node);
    if (packed !== undefined) {
      this.parts.helpers.add(packed);
      return `${packed}(${['here', ...this.list(node)].join(', ')})`;
    }
    if (draws(this.parts.program, node)) this.parts.draws.add(`${node.name} (${node.target})`);
    const drawn = randomText(this.parts.program, node, this.list(node));
    if (drawn !== undefined) {
      for (const name of drawn.helpers) this.parts.helpers.add(name);
      return drawn.text;
    }
    // A call without operands makes its tensor where the program runs, whether or not the graph
    // says so.
    let made = !Object.hasOwn(node.kwargs, 'device');
    eachOperand(node, () => (made = false));
    const list = [...this.list(node), ...(made ? ['device=here.device'] : [])];
    const target = this.inPlace.get(node.name) ?? node.target;
    return `${operatorText({ ...node, target })}(${list.join(', ')})`;
  }

  /** The function of a body of this graph. */
  private bodyNamed(name: string): string {
    const body = getOwn(this.graph.subgraphs, name);
    const written = body === undefined ? undefined : this.parts.functions.get(body);
    if (written === undefined) throw internalError(`the program has no body @${name}`);
    return written;
  }

  private control(node: Node, form: ControlForm, start: string | undefined): string {
    const { program, functions, helpers, decisions } = this.parts;
    const argument = (arg: Arg): string => argumentText(arg, this.arguments);
    const typeOf = (name: string): Node['type'] => this.types.get(name) ?? { kind: 'none' };
    const body = (graph: Graph): string => functions.get(graph) ?? '';
    const written = controlText(node, form, { program, typeOf, argument, body }, start);
    for (const name of written.helpers) helpers.add(name);
    if (written.decides) decisions.add(`${node.name} (${node.target})`);
    return written.text;
  }

  private list(node: Pick<Node, 'args' | 'kwargs' | 'name'>): string[] {
    try {
      const args = node.args.map((arg) => argumentText(arg, this.arguments));
      for (const [key, arg] of Object.entries(node.kwargs)) {
        if (!/^[A-Za-z_][A-Za-z0-9_]*$/.test(key))
          throw new ShardwrightError('E_UNSUPPORTED', `'${key}' is not a name of a keyword`);
        args.push(`${key}=${argumentText(arg, this.arguments)}`);
      }
      return args;
    } catch (error) {
      throw error instanceof ShardwrightError ? error.with({ node: node.name }) : error;
    }
  }

  /**
   * A collective; where the plan's order of members is not PyTorch's, its parts are put in order
   * before or after.
   */
  private collective(node: Node, kind: CollectiveKind): string {
    const { group, order } = groupOrder(this.parts.program.mesh, node);
    this.parts.groups.add(group);
    const helper = HELPER_OF[kind];
    this.parts.helpers.add(helper);
    if (kind === 'collective_permute') {
      const value = argumentText(node.args[0], this.arguments);
      const targets = permuted(node.args[1], order);
      return `${this.helperCall(node, helper)}${value}, ${targets}, ${pyString(group)})`;
    }
    const { sent, rest, after } = this.sides(node, kind, order);
    this.open.set(node.name, [{ node, ...defined({ after }) }]);
    return `${this.helperCall(node, helper)}${[sent, ...rest, pyString(group)].join(', ')})`;
  }

  /** The start of a call of a helper, through another one for numbers that no backend takes. */
  private helperCall(node: Node, helper: Helper): string {
    const { type } = node;
    if (type.kind !== 'tensor' || isExchanged(type.dtype)) return `${helper}(here, `;
    const around = REDUCING.has(helper) ? 'widened' : 'exchanged';
    this.parts.helpers.add(around);
    return `${around}(${helper}, here, `;
  }

  /** Collectives of one kind, reduction and group as one call. */
  private bucket(nodes: readonly Node[], drop: string): void {
    const [first] = nodes;
    const kind = collectiveKind(first.target);
    const helper = kind === undefined ? undefined : COALESCED[kind];
    if (kind === undefined || helper === undefined)
      throw internalError(`${first.name} is called with others`);
    const { group, order } = groupOrder(this.parts.program.mesh, first);
    this.parts.groups.add(group);
    this.parts.helpers.add(helper);
    const sides = nodes.map((node) => ({ node, ...this.sides(node, kind, order) }));
    const args = [
      `[${sides.map(({ sent }) => sent).join(', ')}]`,
      ...sides[0].rest,
      pyString(group),
    ];
    for (const { name } of nodes) this.open.set(name, sides);
    this.line('(');
    for (const { name, type } of nodes)
      this.line(`    ${this.names.of(name)},  # ${pyComment(typeText(type))}`);
    const bytes = nodes.reduce(
      (sum, node) => sum + memberRow(this.parts.program, node, this.types).bytes,
      0,
    );
    this.line(
      `) = ${helper}(here, ${args.join(', ')})${drop}  # a bucket of ${nodes.length}, ` +
        `${bytesText(bytes)}`,
    );
  }

  /**
   * The value that a collective sends, its arguments between that and the group, and the order of
   * the parts that arrive.
   */
  private sides(node: Node, kind: CollectiveKind, order: readonly number[] | undefined): Sides {
    const value = argumentText(node.args[0], this.arguments);
    const rest = node.args.slice(1, -1).map((arg: Arg) => argumentText(arg, this.arguments));
    if (order === undefined || kind === 'all_reduce') return { sent: value, rest };
    this.parts.helpers.add('reordered');
    const sent =
      kind === 'all_gather' ? value : `reordered(${value}, (${inverse(order).join(', ')},))`;
    return {
      sent,
      rest,
      ...(kind === 'reduce_scatter' ? {} : { after: `(${order.join(', ')},)` }),
    };
  }
}

interface Sides {
  readonly sent: string;
  readonly rest: readonly string[];
  readonly after?: string;
}
