/**
 * Builds a region of per-device code from its body, the types of its inputs and the claims about
 * its results. Every cast is written into the body, all values get types, and the claims are
 * checked; an error says which cast is missing. Source: `shard_map` of JAX with `check_vma`.
 */
import { defined } from '../defined.ts';
import { ShardwrightError } from '../errors.ts';
import { NameSet } from '../graph/names.ts';
import type { Graph, Node, ValueRef } from '../graph/types.ts';
import { isRef, mapOperands } from '../graph/value.ts';
import { type AxisType, chunksOf, cutOf, type LocalType, S } from '../mesh/local-types/types.ts';
import type { OperatorTable } from '../ops/record/table.ts';
import { sourceWords, spmdName, spmdTarget } from '../ops/spmd/operators.ts';
import {
  fixText,
  type InsertedCast,
  isTuple,
  type Known,
  type TypedAxis,
  typeIn,
} from './typed.ts';
import { Typer } from './typer.ts';

/**
 * The claim of a result's spec on an axis; undefined where it claims nothing, so that the value
 * must be equal there. `own` takes the value as what it is, and pieces as rows of dim 0: what one
 * region keeps for another.
 */
export type Claim = AxisType | 'own' | undefined;

export interface CheckedRegion {
  readonly body: Graph;
  /** One type for each result and axis: what it leaves the region as. */
  readonly outSpecs: readonly (readonly AxisType[])[];
  /** Types of the values of the body, by name; of bodies inside it as `body/name`. */
  readonly types: ReadonlyMap<string, LocalType>;
  /** Values as JAX prints them, by name. */
  readonly texts: ReadonlyMap<string, string>;
}

interface RegionInput {
  readonly body: Graph;
  readonly axes: readonly { readonly name: string; readonly size: number }[];
  /** For each input and axis: its type outside. */
  readonly inSpecs: readonly (readonly AxisType[])[];
  readonly claims: readonly (readonly Claim[])[];
  readonly autoCast: boolean;
}

/**
 * Types a region.
 *
 * @throws E_SPMD_TYPE with the first law that is broken, the cast to insert and the place in the
 *   source
 */
export function checkRegion(table: OperatorTable, region: RegionInput): CheckedRegion {
  const { autoCast } = region;
  const axes = region.axes.flatMap(({ name, size }): TypedAxis[] =>
    size > 1 ? [{ name, size, meaning: 'manual' }] : [],
  );
  const place = axes.map(({ name }) => region.axes.findIndex((axis) => axis.name === name));
  const inputs = region.inSpecs.map((spec) =>
    place.map((a): Known => (cutOf(spec[a]) === undefined ? spec[a] : 'V')),
  );
  const typer = new Typer(table, axes, { autoCast });
  const found = typer.run(region.body, inputs);
  throwFirst(typer);
  const leaving = new Leaving(typer, region.body, axes);
  const outSpecs = found.map((typed, k) =>
    region.axes.map((_, a): AxisType => {
      const at = place.indexOf(a);
      const claim = region.claims[k]?.[a];
      if (at < 0) return claim === undefined || claim === 'own' ? 'I' : claim;
      return leaving.as(k, at, typed === null || isTuple(typed) ? undefined : typed[at], claim);
    }),
  );
  throwFirst(typer);
  const body = settled(withCasts(region.body, typer.casts, leaving.casts), region.body, typer);
  const again = new Typer(table, axes, { autoCast: false });
  again.run(body, inputs);
  throwFirst(again);
  return { body, outSpecs, ...namesOf(again, body) };
}

/** A result of a region on one axis. */
interface LeavingResult {
  readonly k: number;
  readonly axis: TypedAxis;
  readonly name: string;
}

/** The types of results as they leave the region, and the casts that give them these types. */
class Leaving {
  readonly casts: InsertedCast[][] = [];

  constructor(
    private readonly typer: Typer,
    private readonly body: Graph,
    private readonly axes: readonly TypedAxis[],
  ) {}

  as(k: number, a: number, type: Known, claim: Claim): AxisType {
    const result: LeavingResult = {
      k,
      axis: this.axes[a],
      name: this.body.outputs[k].value ?? '',
    };
    if (type === undefined)
      return this.refuse(
        result,
        `its type on ${result.axis.name} is not known`,
        'give its inputs types',
      );
    if (claim === undefined) return this.unclaimed(result, type);
    if (claim === 'own')
      return type === 'number' ? 'I' : chunksOf(type) || type === 'V' ? S(0) : type;
    return cutOf(claim) !== undefined
      ? this.cut(result, type, claim)
      : this.whole(result, type, claim);
  }

  /** An axis that the out spec does not name: the value must be equal on its ranks. */
  private unclaimed(result: LeavingResult, type: Exclude<Known, undefined>): AxisType {
    if (type === 'I' || type === 'R') return type;
    if (type === 'number') return 'I';
    const { name, axis } = result;
    return this.refuse(
      result,
      `replication over ${axis.name} is required by its out spec, which does not name that ` +
        `axis, but the value may vary over {${axis.name}}`,
      type === 'P'
        ? `all_reduce(${name}, "${axis.name}", P→I)`
        : `name ${axis.name} in the out spec, add up addends with ` +
            `all_reduce(outPartial(${name}, "${axis.name}"), "${axis.name}", P→I), or join ` +
            `pieces with all_gather(${name}, "${axis.name}", V→I)`,
    );
  }

  /** The out spec joins pieces. */
  private cut(result: LeavingResult, type: Exclude<Known, undefined>, claim: AxisType): AxisType {
    if (type === 'V' || type === 'number') return claim;
    if (type !== 'P' && this.typer.autoCast) {
      this.cast(result, type, 'V');
      return claim;
    }
    const { name, axis } = result;
    return this.refuse(
      result,
      `its out spec says ${claim} on ${axis.name}, it is ${type}`,
      type === 'P'
        ? `reduce_scatter(${name}, "${axis.name}", P→${claim})`
        : `convert(${name}, "${axis.name}", ${type}→${claim})`,
    );
  }

  /** The out spec names a type without a cut. */
  private whole(result: LeavingResult, type: Exclude<Known, undefined>, claim: AxisType): AxisType {
    if (type === claim || (type === 'number' && claim !== 'P')) return claim;
    if (type === 'I' && claim === 'R' && this.typer.autoCast) {
      this.cast(result, 'I', 'R');
      return claim;
    }
    const { name, axis } = result;
    const fix =
      claim === 'P'
        ? type === 'V'
          ? `reinterpret(${name}, "${axis.name}", V→P)`
          : `convert(${name}, "${axis.name}", ${type}→P)`
        : type === 'P'
          ? `all_reduce(${name}, "${axis.name}", P→${claim})`
          : type === 'V'
            ? `all_gather(${name}, "${axis.name}", V→${claim})`
            : `make it ${claim} where it is made: dst ${claim}`;
    return this.refuse(result, `its out spec says ${claim} on ${axis.name}, it is ${type}`, fix);
  }

  private cast({ k, axis, name }: LeavingResult, src: AxisType, dst: AxisType): void {
    const op = src === 'I' && dst === 'R' ? 'convert' : 'reinterpret';
    (this.casts[k] ??= []).push({ graph: this.body, node: '', value: name, axis, op, src, dst });
  }

  private refuse({ k, name }: LeavingResult, message: string, fix: string): never {
    const text = this.typer.textOf(this.body, name);
    const { source } = this.body.nodes.find((node) => node.name === name)?.meta ?? {};
    throw new ShardwrightError(
      'E_SPMD_TYPE',
      `result ${k} of the region, %${name}: ${text}: ` +
        `${message}${source === undefined ? '' : ` at ${source}`}`,
      {
        node: name,
        hint: fix,
        ...placeOf(source),
      },
    );
  }
}

function throwFirst(typer: Typer): void {
  const [first] = typer.violations;
  if (first === undefined) return;
  throw new ShardwrightError('E_SPMD_TYPE', first.message, {
    node: first.node,
    hint: fixText(first.fix),
    ...placeOf(first.source),
  });
}

/** `net.ts:2:54` as a file and a position. */
function placeOf(
  source: string | undefined,
): Pick<ShardwrightError['details'], 'file' | 'position'> {
  const [, file, line, column] = /^(.*):(\d+):(\d+)$/.exec(source ?? '') ?? [];
  return file === undefined
    ? {}
    : { file, position: { line: Number(line), column: Number(column) } };
}

/**
 * The graph with casts before the uses that want them; uses of one value in one type share the
 * cast.
 */
function withCasts(
  graph: Graph,
  casts: readonly InsertedCast[],
  results: readonly (readonly InsertedCast[] | undefined)[] = [],
): Graph {
  const subgraphs = Object.fromEntries(
    Object.entries(graph.subgraphs).map(([name, body]) => [name, withCasts(body, casts)]),
  );
  const own = casts.filter((cast) => cast.graph === graph);
  if (own.length === 0 && results.every((list) => list === undefined || list.length === 0))
    return { ...graph, subgraphs };
  const writer = new CastWriter(graph);
  for (const node of graph.nodes)
    writer.add(
      node,
      own.filter((cast) => cast.node === node.name),
    );
  const outputs = graph.outputs.map((output, k) => {
    const list = results[k];
    return list === undefined || output.value === null
      ? output
      : { ...output, value: writer.castTo(output.value, list, {}) };
  });
  return { ...graph, nodes: writer.nodes, outputs, subgraphs };
}

/** Writes the nodes of a graph with the casts between them. */
class CastWriter {
  readonly nodes: Node[] = [];
  private readonly taken: NameSet;
  private readonly made = new Map<string, string>();

  constructor(private readonly graph: Graph) {
    this.taken = new NameSet(graph.nodes.map(({ name }) => name));
  }

  /** Adds a node after the casts that it wants of its operands. */
  add(node: Node, wanted: readonly InsertedCast[]): void {
    if (wanted.length === 0) {
      this.nodes.push(node);
      return;
    }
    const names = new Map<string, string>();
    for (const value of new Set(wanted.map((cast) => cast.value))) {
      const casts = wanted.filter((cast) => cast.value === value);
      names.set(value, this.castTo(value, casts, node.meta));
    }
    this.nodes.push(mapOperands(node, (name) => names.get(name) ?? name));
  }

  /** Name of a value after some casts. */
  castTo(value: string, casts: readonly InsertedCast[], { phase, source }: Node['meta']): string {
    return casts.reduce((from, { axis, op, src, dst }) => {
      const key = `${from} ${axis.name} ${src} ${dst}`;
      const known = this.made.get(key);
      if (known !== undefined) return known;
      const name = this.taken.take(op);
      this.made.set(key, name);
      const ref: ValueRef = { kind: 'value', name: from };
      this.nodes.push({
        name,
        kind: 'call',
        target: spmdTarget(op),
        args: [ref, axis.name, axis.size, src, dst],
        kwargs: {},
        type: typeIn(this.graph, value),
        meta: {
          ...defined({ phase, source }),
        },
      });
      return name;
    }, value);
  }
}

/** Verbs that change the type of a value alone. */
const CASTS: ReadonlySet<string> = new Set(['reinterpret', 'convert']);

/**
 * The graph with every verb that takes several types written for the one that its operand has. A
 * cast to what the operand is already goes.
 *
 * @param typed the same graph without casts, as it was typed
 */
function settled(graph: Graph, typed: Graph, typer: Typer): Graph {
  const subgraphs = Object.fromEntries(
    Object.entries(graph.subgraphs).map(([name, body]) => [
      name,
      settled(body, typed.subgraphs[name], typer),
    ]),
  );
  const own = typer.settled.get(typed);
  const renamed = new Map<string, string>();
  const nodes = graph.nodes.flatMap((node): Node[] => {
    const now = mapOperands(node, (name) => renamed.get(name) ?? name);
    const [x, axis, size, word, dst] = node.args;
    if (spmdName(node.target) === undefined || typeof word !== 'string') return [now];
    // An axis of one rank has no types.
    const src = own?.get(node.name) ?? (size === 1 ? sourceWords(word)[0] : word);
    if (src === word) return [now];
    if (src === dst && isRef(x) && CASTS.has(spmdName(node.target) ?? '')) {
      renamed.set(node.name, renamed.get(x.name) ?? x.name);
      return [];
    }
    return [{ ...now, args: [now.args[0], axis, size, src, dst] }];
  });
  const outputs = graph.outputs.map((output) => ({
    ...output,
    value: output.value === null ? null : (renamed.get(output.value) ?? output.value),
  }));
  return { ...graph, nodes, outputs, subgraphs };
}

function namesOf(typer: Typer, body: Graph): Pick<CheckedRegion, 'types' | 'texts'> {
  const types = new Map<string, LocalType>();
  const texts = new Map<string, string>();
  const walk = (graph: Graph, prefix: string): void => {
    for (const [name, typed] of typer.types.get(graph) ?? []) {
      if (isTuple(typed)) continue;
      types.set(`${prefix}${name}`, typer.localType(typed));
      texts.set(`${prefix}${name}`, typer.text(typeIn(graph, name), typed));
    }
    for (const [name, inner] of Object.entries(graph.subgraphs)) walk(inner, `${prefix}${name}/`);
  };
  walk(body, '');
  return { types, texts };
}
