/**
 * Runs a program and captures the regions between reads of host values as graphs (policy
 * `regions`).
 */

import { defined } from '../../defined.ts';
import { internalError, ShardwrightError } from '../../errors.ts';
import { GraphBuilder } from '../../graph/build.ts';
import { placeholdersOf } from '../../graph/control.ts';
import type { Graph, Node, Output } from '../../graph/types.ts';
import { eachGraphRef, eachOperand, getOwn } from '../../graph/value.ts';
import { valueOf } from '../control/traced-values.ts';
import { refusal } from '../errors/refusal.ts';
import type { ControlDecision, ControlFlow, ControlSite } from '../record/control-interface.ts';
import { needRecorder, stopping } from '../record/recorder.ts';
import {
  captureAny,
  type InputTree,
  type OutputTree,
  type TracedArguments,
  type TraceOptions,
} from '../trace.ts';

/**
 * Policy `regions`: the program runs as it is, and each condition on a tensor, `item()` and
 * `toArray()` ends a region, whose graph is then run for the value. There is one graph for each
 * region and each sequence of values read before it. A later region takes the values of earlier
 * ones that it reads. The function is traced again for each sequence, so it must be deterministic.
 * There is no plan for the whole program, and none can be exported: it has no one graph.
 */
export interface Region {
  /** Values read before this region: `[true, 3]`. */
  readonly path: readonly HostRead[];
  /** The same as guards: `item#1 == true`. */
  readonly guards: readonly string[];
  /**
   * Returns the value that is read at its end, if one is, then what later regions are known to
   * read, then what the program returns.
   */
  readonly graph: Graph;
  /** The condition at which it ends; undefined for one that returns. */
  readonly site?: ControlSite;
}

/**
 * A value that the program read of a tensor: a condition, a number, or the numbers of `toArray()`.
 */
export type HostRead = boolean | number | readonly number[];

/** Runs a graph: one value for each placeholder in order, one for each output. */
type RunGraph<V> = (graph: Graph, inputs: readonly V[]) => readonly V[];

/** How a program that reads tensors on the host is captured. */
export interface RegionOptions extends Omit<TraceOptions, 'control' | 'policy' | 'checkTwice'> {
  /** The program must be one graph: reading a tensor is E_DATA_DEPENDENT. Default false. */
  readonly fullgraph?: boolean;
  /** Most reads in one run. Default 64. */
  readonly maxRegions?: number;
}

interface Part {
  readonly path: readonly HostRead[];
  readonly site?: ControlSite;
  /**
   * All nodes recorded up to the end of the region, and how many of the calls belong to earlier
   * regions.
   */
  readonly whole: Graph;
  readonly from: number;
  /** The value that is read at its end. */
  readonly condition?: string;
  /** Own values that later regions read, in the order in which they were found out. */
  readonly read: Set<string>;
}

/** The end of a region, on its way out of the traced function. */
class RegionEnd extends Error {
  constructor(
    readonly graph: Graph,
    readonly condition: string,
    readonly site: ControlSite,
  ) {
    super('the region ends here');
  }
}

/** The regions of one function, made as runs need them. */
export class RegionCapture<const I> {
  private readonly parts = new Map<string, Part>();

  /**
   * @param fn as for `trace`, its source transformed by the front end (mode `regions` or `check`)
   */
  constructor(
    private readonly fn: (...args: TracedArguments<I>) => OutputTree,
    private readonly inputs: I & InputTree,
    private readonly options: RegionOptions = {},
  ) {}

  /** All regions so far, in the order of their making. */
  get regions(): readonly Region[] {
    return [...this.parts.values()].map((part) => this.regionOf(part));
  }

  /** One line for every region that ended where a tensor was read. */
  get report(): readonly ControlDecision[] {
    return [...this.parts.values()].flatMap(({ site, path }) =>
      site === undefined
        ? []
        : [
            {
              ...site,
              policy: 'regions' as const,
              reason:
                `${site.kind.endsWith(')') ? 'a tensor is read' : 'a tensor decides'}; region ` +
                `${path.length} ends here`,
            },
          ],
    );
  }

  /**
   * Runs the program: each region's graph on the values that it reads.
   *
   * @param values one for each placeholder of the first region, in order
   * @param numbers the elements of a value, row by row; for programs that use `item()` or
   *   `toArray()`
   * @returns what the program returns, in order
   * @throws E_DATA_DEPENDENT with `fullgraph`; E_LIMIT beyond `maxRegions`; E_USAGE for `item()`
   *   without `numbers`
   */
  run<V>(
    values: readonly V[],
    runGraph: RunGraph<V>,
    truth: (value: V) => boolean,
    numbers?: (value: V) => readonly number[],
  ): V[] {
    const path: HostRead[] = [];
    const known = new Map<string, V>();
    const run: Part[] = [];
    for (;;) {
      const part = this.part(path);
      if (run.length === 0)
        placeholdersOf(part.whole).forEach((node, i) => known.set(node.name, values[i]));
      run.push(part);
      this.ask(part, run);
      // A region that must now return more than it did is recomputed; regions are pure, so its
      // values are the same.
      for (const earlier of run.slice(0, -1))
        if ([...earlier.read].some((name) => !known.has(name)))
          this.execute(earlier, known, runGraph);
      const outputs = this.execute(part, known, runGraph);
      if (part.condition === undefined) return outputs;
      path.push(readOf(part, outputs[0], truth, numbers));
      const limit = this.options.maxRegions ?? 64;
      if (path.length > limit)
        throw new ShardwrightError(
          'E_LIMIT',
          `the program reads more than ${limit} values in one run`,
          {
            hint: 'write the loop with whileLoop, or raise maxRegions',
          },
        );
    }
  }

  private execute<V>(part: Part, known: Map<string, V>, runGraph: RunGraph<V>): V[] {
    const { graph } = this.regionOf(part);
    const inputs = placeholdersOf(graph).map(({ name }) => {
      const value = known.get(name);
      if (value === undefined)
        throw internalError(`region ${part.path.length} reads ${name}, which no region made`);
      return value;
    });
    const outputs = [...runGraph(graph, inputs)];
    graph.outputs.forEach(({ value }, i) => {
      if (value !== null) known.set(value, outputs[i]);
    });
    return part.condition === undefined ? outputs.slice(part.read.size) : outputs;
  }

  /** The region after these values; traced at its first use. */
  private part(path: readonly HostRead[]): Part {
    const key = keyOf(path);
    const found = this.parts.get(key);
    if (found !== undefined) return found;
    const before = path.length === 0 ? undefined : this.parts.get(keyOf(path.slice(0, -1)));
    const from = before === undefined ? 0 : callsOf(before.whole).length;
    const part = this.traced([...path], from);
    this.parts.set(key, part);
    return part;
  }

  private traced(path: readonly HostRead[], from: number): Part {
    let next = 0;
    const read = (value: unknown, site: ControlSite): HostRead => {
      const traced = valueOf(value, 'what is read');
      const recorder = needRecorder(site.kind);
      if (recorder !== recorder.trace.root || this.options.fullgraph === true)
        throw stopping(
          refusal(
            'E_DATA_DEPENDENT',
            `Data-dependent branching: %${traced.name} decides in '${site.kind}'`,
            { source: site.position },
            {
              hint:
                this.options.fullgraph === true
                  ? 'drop fullgraph, or use cond, whileLoop or where.'
                  : 'a region cannot end inside the body of an operator: use cond or where there.',
            },
          ),
        );
      if (next < path.length) return path[next++];
      throw stopping(new RegionEnd(recorder.finish(), traced.name, site));
    };
    const control: ControlFlow = {
      condition: (value, site) => read(value, site) === true,
      read: (value, site) => {
        const found = read(value, site);
        return typeof found === 'object' ? found : [Number(found)];
      },
    };
    try {
      const { graph } = captureAny(
        this.fn as unknown as (...args: unknown[]) => unknown,
        this.inputs,
        { ...this.options, control, checkTwice: false },
      );
      return { path, whole: graph, from, read: new Set() };
    } catch (error) {
      if (!(error instanceof RegionEnd)) throw error;
      return {
        path,
        whole: error.graph,
        from,
        site: error.site,
        condition: error.condition,
        read: new Set(),
      };
    }
  }

  /** Tells the earlier regions of the run what this one reads of theirs. */
  private ask(part: Part, run: readonly Part[]): void {
    const owners = new Map<string, Part>();
    for (const earlier of run.slice(0, -1))
      for (const node of ownCalls(earlier)) owners.set(node.name, earlier);
    for (const name of readBy(part)) owners.get(name)?.read.add(name);
  }

  private regionOf(part: Part): Region {
    const { whole, path, site, condition, read } = part;
    const own = ownCalls(part);
    const builder = new GraphBuilder(`${whole.name}_region_${path.length}`);
    const needed = readBy(part);
    const first = part.path.length === 0;
    for (const node of whole.nodes) {
      // The first region takes all inputs of the program; a later one takes what it reads.
      if (
        node.kind === 'placeholder'
          ? first || needed.has(node.name)
          : needed.has(node.name) && !own.has(node)
      ) {
        const meta =
          node.kind === 'placeholder' ? node.meta : { role: 'input' as const, roleName: node.name };
        builder.placeholder(node.name, node.type, meta);
      }
    }
    for (const node of own) {
      eachGraphRef(node, (name) => {
        const body = getOwn(whole.subgraphs, name);
        if (body !== undefined) builder.subgraph(name, body);
      });
      builder.keep(node);
    }
    let index = 0;
    const returned: readonly Output[] = condition === undefined ? whole.outputs : [];
    for (const value of [
      ...(condition === undefined ? [] : [condition]),
      ...read,
      ...returned.map((o) => o.value),
    ])
      builder.output({ value, role: 'output', index: index++ });
    const guards = path.map((read, i) => `item#${i + 1} == ${JSON.stringify(read)}`);
    return { path, guards, graph: builder.build(), ...defined({ site }) };
  }
}

/** Traces `fn` region by region. */
export function captureRegions<const I>(
  fn: (...args: TracedArguments<I>) => OutputTree,
  inputs: I & InputTree,
  options: RegionOptions = {},
): RegionCapture<I> {
  return new RegionCapture(fn, inputs, options);
}

/** The host's value of what a region ends with. */
function readOf<V>(
  { site }: Part,
  value: V,
  truth: (value: V) => boolean,
  numbers: ((value: V) => readonly number[]) | undefined,
): HostRead {
  if (site?.kind !== 'item()' && site?.kind !== 'toArray()') return truth(value);
  if (numbers === undefined)
    throw new ShardwrightError(
      'E_USAGE',
      `the program uses ${site.kind} at ${site.position}; run() needs \`numbers\``,
      {
        hint: 'give run() a fourth argument: the elements of a value.',
      },
    );
  const list = numbers(value);
  return site.kind === 'item()' ? list[0] : list;
}

/** Sequences of reads, told apart: true is not 1, and -0 is not 0. */
function keyOf(path: readonly HostRead[]): string {
  const text = (read: boolean | number): string => (Object.is(read, -0) ? '-0' : String(read));
  return path
    .map((read) => (typeof read === 'object' ? `[${read.map(text).join(' ')}]` : text(read)))
    .join(',');
}

function callsOf(graph: Graph): Node[] {
  return graph.nodes.filter((node) => node.kind !== 'placeholder');
}

function ownCalls({ whole, from }: Part): Set<Node> {
  return new Set(callsOf(whole).slice(from));
}

/** Values of earlier regions and of the program's inputs that a region reads or returns. */
function readBy(part: Part): Set<string> {
  const own = ownCalls(part);
  const made = new Set([...own].map((node) => node.name));
  const read = new Set<string>();
  const see = (name: string): void => void (made.has(name) || read.add(name));
  for (const node of own) eachOperand(node, see);
  if (part.condition !== undefined) see(part.condition);
  else for (const { value } of part.whole.outputs) if (value !== null) see(value);
  return read;
}
