/**
 * Writes the program of one pipeline stage from what it makes, receives, sends and returns. What it
 * receives is an input (on the way back, a tangent); what it sends is a result (on the way back,
 * the gradient of the input that it travels with).
 */

import { defined, nonEmpty } from '../../defined.ts';
import { lintGraph } from '../../graph/lint.ts';
import { FreeNames } from '../../graph/names.ts';
import { roleName } from '../../graph/nodes.ts';
import { indexGraph } from '../../graph/order.ts';
import { phased } from '../../graph/phases.ts';
import type { Graph, Node, NodeMeta, Output } from '../../graph/types.ts';
import { eachGraphRef, getOwn, NO_KWARGS, sameType, setOwn, without } from '../../graph/value.ts';
import { firstOfWhatIsLeft } from '../dead-code.ts';
import type { Dataflow } from './dataflow.ts';
import type { StageNeeds } from './needs.ts';
import type { StageResult } from './results.ts';

/** A value that goes from a stage to the next, or back. */
export interface Message {
  /** Name of the value: that of the whole program, in both stages. */
  readonly value: string;
  /** Position among the results of the stage that sends it. */
  readonly output: number;
}

/** The program of one stage. */
export interface StageGraph {
  readonly graph: Graph;
  /** Values that it receives from the stage in front: inputs of `graph`, by name. */
  readonly receives: readonly string[];
  /** Values that it receives from the stage behind: tangents of `graph`, by name. */
  readonly receivesBack: readonly string[];
  readonly sends: readonly Message[];
  readonly sendsBack: readonly Message[];
  /**
   * Results of the whole program that it returns, by their positions there and here; a part is one
   * of several gradients that are summed.
   */
  readonly results: readonly {
    readonly whole: number;
    readonly own: number;
    readonly isPart: boolean;
  }[];
}

/** Everything that the stages of a program were found to have. */
interface StageContents {
  readonly flow: Dataflow;
  readonly needs: readonly StageNeeds[];
  readonly results: readonly StageResult[];
}

/** The program of stage `s`. */
export function writeStage(contents: StageContents, s: number): StageGraph {
  return new StageWriter(contents, s).write();
}

class StageWriter {
  private readonly graph: Graph;
  private readonly needs: StageNeeds;
  private readonly results: readonly StageResult[];
  /** Messages, ascending by position in the whole graph. */
  private readonly sends: readonly number[];
  private readonly sendsBack: readonly number[];
  /** The message forward that a message back travels with, at the boundary behind and in front. */
  private readonly behind: ReadonlyMap<number, number>;
  private readonly front: ReadonlyMap<number, number>;
  private readonly inputNames = new Map<number, string>();

  constructor(
    private readonly contents: StageContents,
    private readonly s: number,
  ) {
    const { flow, needs, results } = contents;
    this.graph = flow.graph;
    this.needs = needs[s];
    this.results = results.filter(({ stage }) => stage === s);
    this.sends = ascending(needs[s + 1]?.receives ?? []);
    this.sendsBack = ascending(needs[s - 1]?.receivesBack ?? []);
    this.behind = paired(this.graph, this.sends, ascending(this.needs.receivesBack));
    this.front = paired(this.graph, ascending(this.needs.receives), this.sendsBack);
  }

  write(): StageGraph {
    const { graph, s, results, sends, sendsBack } = this;
    const placeholders = this.placeholders();
    const outputs = this.outputs();
    const nodes = [...placeholders, ...this.calls()];
    const names = new Set(nodes.map(({ name }) => name));
    const ties = (graph.ties ?? [])
      .map((group) => group.filter((name) => this.hasParameter(placeholders, name)))
      .filter((group) => group.length > 1);
    const given = (graph.given ?? []).filter(
      ({ value }) => value !== undefined && names.has(value),
    );
    const stage: Graph = {
      name: `${graph.name}.${s}`,
      nodes,
      outputs,
      subgraphs: bodiesOf(graph, nodes),
      ...nonEmpty({ notes: graph.notes ?? [], ties, given }),
      ...defined({ mesh: graph.mesh, dims: graph.dims }),
    };
    lintGraph(stage);
    const messages = (list: readonly number[], first: number): Message[] =>
      list.map((v, k) => ({ value: graph.nodes[v].name, output: first + k }));
    return {
      graph: this.withPhases(stage),
      receives: ascending(this.needs.receives).map((v) => graph.nodes[v].name),
      receivesBack: ascending(this.needs.receivesBack).map((v) => graph.nodes[v].name),
      sends: messages(sends, results.length),
      sendsBack: messages(sendsBack, results.length + sends.length),
      results: results.map(({ whole, isPart }, own) => ({ whole, own, isPart })),
    };
  }

  private hasParameter(placeholders: readonly Node[], name: string): boolean {
    return placeholders.some((node) => node.meta.role === 'parameter' && roleName(node) === name);
  }

  /** Inputs of the program, then what comes from in front, then tangents. */
  private placeholders(): Node[] {
    const { graph, needs } = this;
    const own = ascending(needs.own).flatMap((v) =>
      graph.nodes[v].kind === 'placeholder' ? [graph.nodes[v]] : [],
    );
    const isTangent = ({ meta }: Node): boolean => meta.role === 'tangent';
    const taken = new Set(own.flatMap((node) => (isTangent(node) ? [] : [roleName(node)])));
    const free = new FreeNames(taken);
    const received = ascending(needs.receives).map((v): Node => {
      const name = free.near(graph.nodes[v].name);
      taken.add(name);
      this.inputNames.set(v, name);
      return boundary(graph.nodes[v], { role: 'input', roleName: name });
    });
    const tangents = own.filter(isTangent).map((node): Node => ({
      ...node,
      meta: { ...node.meta, roleIndex: this.indexOfOutput(node.meta.roleIndex) },
    }));
    let loose = this.outputCount();
    const receivedBack = ascending(needs.receivesBack).map((v): Node => {
      const sent = this.behind.get(v);
      const roleIndex = sent === undefined ? loose++ : this.indexOfSend(sent);
      return boundary(graph.nodes[v], { role: 'tangent', roleIndex });
    });
    return [...own.filter((node) => !isTangent(node)), ...received, ...tangents, ...receivedBack];
  }

  /** The index of a result of the whole program among the results of the stage. */
  private indexOfOutput(index: number | undefined): number {
    const own = this.userResults().findIndex(
      ({ whole }) => this.graph.outputs[whole].index === index,
    );
    // The tangent of a result that the stage does not return belongs to none of its own.
    return own < 0 ? this.outputCount() + (index ?? 0) + this.needs.receivesBack.size : own;
  }

  private userResults(): StageResult[] {
    return this.results.filter(({ whole }) => this.graph.outputs[whole].role === 'output');
  }

  private indexOfSend(v: number): number {
    return this.userResults().length + this.sends.indexOf(v);
  }

  /** Results that are neither gradients nor mutations: those of the user, and messages. */
  private outputCount(): number {
    return this.userResults().length + this.sends.length + this.sendsBack.length;
  }

  private outputs(): Output[] {
    const { graph, results, sends, sendsBack } = this;
    let index = 0;
    const own = results.map(({ whole, at, owner }): Output => {
      const output = { ...graph.outputs[whole], value: graph.nodes[at].name };
      if (output.role === 'output') return { ...output, index: index++ };
      return owner === undefined ? output : { ...output, of: roleName(graph.nodes[owner]) };
    });
    const sent = sends.map((v): Output => ({
      value: graph.nodes[v].name,
      role: 'output',
      index: index++,
    }));
    const back = sendsBack.map((v): Output => {
      const value = graph.nodes[v].name;
      const of = this.inputNames.get(this.front.get(v) ?? -1);
      return of === undefined
        ? { value, role: 'output', index: index++ }
        : { value, role: 'grad', of };
    });
    return [...own, ...sent, ...back];
  }

  private calls(): Node[] {
    const { graph, needs } = this;
    const calls = ascending(needs.own).flatMap((v) =>
      graph.nodes[v].kind === 'placeholder' ? [] : [graph.nodes[v]],
    );
    const names = new Set(calls.map(({ name }) => name));
    return firstOfWhatIsLeft(calls).map((node) =>
      node.meta.of === undefined || names.has(node.meta.of)
        ? node
        : { ...node, meta: without(node.meta, 'of') },
    );
  }

  /** Phases as they were; what only the backward pass reads may be another in a stage. */
  private withPhases(stage: Graph): Graph {
    const { flow } = this.contents;
    const isBackward = (name: string): boolean =>
      flow.parts[flow.index.position.get(name) ?? -1] === 'backward';
    const phases = stage.nodes.map(({ name }) => (isBackward(name) ? 'backward' : 'forward'));
    if (!phases.includes('backward')) return phased(stage, phases, new Uint8Array(phases.length));
    const { position, operandStart, operands } = indexGraph(stage);
    const needed = new Uint8Array(stage.nodes.length);
    for (const { role, value } of stage.outputs)
      if (role !== 'grad' && value !== null && !isBackward(value))
        needed[position.get(value) ?? 0] = 1;
    for (let i = stage.nodes.length - 1; i >= 0; i--)
      if (needed[i] === 1)
        for (let k = operandStart[i]; k < operandStart[i + 1]; k++) needed[operands[k]] = 1;
    const savedOnly = stage.nodes.map(({ kind }, i) => (kind === 'call' ? 1 - needed[i] : 0));
    return phased(stage, phases, Uint8Array.from(savedOnly));
  }
}

/** The input that stands for a value of another stage. */
function boundary({ name, type }: Node, meta: NodeMeta): Node {
  return { name, kind: 'placeholder', target: name, args: [], kwargs: NO_KWARGS, type, meta };
}

/** Messages back, each with a message forward of its type that no other travels with. */
function paired(
  { nodes }: Graph,
  forward: readonly number[],
  back: readonly number[],
): Map<number, number> {
  const left = new Set(forward);
  const found = new Map<number, number>();
  for (const w of back) {
    const v = [...left].find((one) => sameType(nodes[one].type, nodes[w].type));
    if (v === undefined) continue;
    left.delete(v);
    found.set(w, v);
  }
  return found;
}

/** The bodies that these calls name, with those that the bodies name in their own graphs. */
function bodiesOf(graph: Graph, nodes: readonly Node[]): Record<string, Graph> {
  const bodies: Record<string, Graph> = {};
  const take = (name: string): void => {
    const body = getOwn(graph.subgraphs, name);
    if (body !== undefined) setOwn(bodies, name, body);
  };
  for (const node of nodes) {
    eachGraphRef(node, take);
    if (node.kind === 'get_attr') take(node.target);
  }
  return bodies;
}

function ascending(positions: Iterable<number>): number[] {
  return [...positions].sort((a, b) => a - b);
}
