/**
 * Advises on collectives that a typed program can save, one sentence for each place in a graph with
 * verbs and regions of per-device code: casts that several branches or all trips of a loop repeat,
 * sums that are reduced before they are added, reductions of which only a piece is kept, inputs of
 * a region that it casts to R itself. Source: the rules of thumb of the spmd_types design notes.
 */
import { placeholdersOf } from '../graph/control.ts';
import { LOCAL_MAP, localMapCall } from '../graph/local-map.ts';
import { indexGraph } from '../graph/order.ts';
import type { Arg, Graph, Node } from '../graph/types.ts';
import { getOwn, isGraphRef, isList, isRef } from '../graph/value.ts';
import {
  collectiveOf,
  type PrimitiveName,
  transposeOf,
  verbBetween,
} from '../mesh/local-types/primitives.ts';
import { type AxisType, cutOf, isAxisType } from '../mesh/local-types/types.ts';
import { spmdName } from '../ops/spmd/operators.ts';
import { typeIn } from './typed.ts';

/** A place where fewer collectives are enough, and the edit that saves them. */
export interface Advice {
  /** The nodes that it speaks of; those of a body as `body/node`. */
  readonly nodes: readonly string[];
  readonly meshDim: string;
  readonly advice: string;
}

/** A verb as its call says it. */
interface Verb {
  readonly node: Node;
  readonly op: PrimitiveName;
  readonly x: string;
  readonly axis: string;
  readonly src: AxisType;
  readonly dst: AxisType;
}

/** Advice for a graph and the bodies in it, in the order of the program. */
export function adviceFor(graph: Graph, prefix = ''): Advice[] {
  const verbs = graph.nodes.flatMap((node) => verbOf(node) ?? []);
  const own = [
    ...sharedCasts(graph, verbs),
    ...castsInLoops(graph),
    ...lateReductions(graph, verbs),
    ...scattered(graph, verbs),
    ...reducedInputs(graph),
  ];
  const named = own.map((found) => ({
    ...found,
    nodes: found.nodes.map((name) => `${prefix}${name}`),
  }));
  const inner = Object.entries(graph.subgraphs).flatMap(([name, body]) =>
    adviceFor(body, `${prefix}${name}/`),
  );
  return [...named, ...inner];
}

function verbOf(node: Node): Verb | undefined {
  const name = spmdName(node.target);
  const [x, axis, size, src, dst] = node.args;
  if (name === undefined || x === undefined || !isRef(x) || typeof axis !== 'string' || size === 1)
    return undefined;
  if (!isAxisType(src) || !isAxisType(dst)) return undefined;
  return {
    node,
    op: name === 'redistribute' ? verbBetween(src, dst) : (name as PrimitiveName),
    x: x.name,
    axis,
    src,
    dst,
  };
}

/** `1 all_reduce`, of verbs that are run so often. */
function runs(verb: Verb, times: number): string {
  const here = collectiveOf(verb.op);
  const back = transposeOf(verb).flatMap(({ op }) => collectiveOf(op) ?? []);
  const text = (kind: string): string => `${times} ${kind}`;
  const parts = [
    ...(here === undefined ? [] : [text(here)]),
    ...back.map((kind) => `${text(kind)} in the gradient`),
  ];
  return parts.join(' and ');
}

function sharedCasts(graph: Graph, verbs: readonly Verb[]): Advice[] {
  // A value under another type statement is the same value.
  const stated = new Map(
    graph.nodes.flatMap(({ name, target, args: [x] }) =>
      spmdName(target) === 'assert_type' && x !== undefined && isRef(x)
        ? [[name, x.name] as const]
        : [],
    ),
  );
  const origin = (name: string): string => {
    const from = stated.get(name);
    return from === undefined ? name : origin(from);
  };
  const groups = new Map<string, Verb[]>();
  for (const verb of verbs) {
    if (runs(verb, 1) === '') continue;
    const key = [origin(verb.x), verb.axis, verb.op, verb.src, verb.dst].join(' ');
    groups.set(key, [...(groups.get(key) ?? []), verb]);
  }
  return [...groups.values()].flatMap((same): Advice[] => {
    const [{ axis, op, src, dst, x }] = same;
    if (same.length < 2) return [];
    return [
      {
        nodes: same.map(({ node }) => node.name),
        meshDim: axis,
        advice:
          `${op}(${x}, "${axis}", ${src}→${dst}) occurs ${same.length} times: write it once ` +
          `and share its result, which runs ${runs(same[0], 1)} instead of ` +
          `${runs(same[0], same.length)}`,
      },
    ];
  });
}

/**
 * Casts in a loop of what is the same on every trip: before the loop they run, and their gradients
 * are reduced, once.
 */
function castsInLoops(graph: Graph): Advice[] {
  return graph.nodes.flatMap((node): Advice[] => {
    const lists =
      node.target === 'scan'
        ? [1, 2, 3]
        : node.target === 'map' || node.target === 'map_impl'
          ? [1, 2]
          : [];
    const [called] = node.args;
    const body =
      called !== undefined && isGraphRef(called) ? getOwn(graph.subgraphs, called.name) : undefined;
    if (lists.length === 0 || body === undefined) return [];
    const members = lists.map((at) => listAt(node, at));
    const captured = new Set(
      placeholdersOf(body)
        .slice(members.slice(0, -1).flat().length)
        .map(({ name }) => name),
    );
    const times = trips(graph, node, members.at(-2) ?? []);
    return body.nodes.flatMap((inner): Advice[] => {
      const verb = verbOf(inner);
      if (
        verb === undefined ||
        !captured.has(verb.x) ||
        times === undefined ||
        times < 2 ||
        runs(verb, 1) === ''
      )
        return [];
      const { op, x, axis, src, dst } = verb;
      return [
        {
          nodes: [node.name, `${body.name}/${inner.name}`],
          meshDim: axis,
          advice:
            `${op}(${x}, "${axis}", ${src}→${dst}) is in a loop of ${times} trips: write ` +
            `it before the loop, which runs ${runs(verb, 1)} instead of ${runs(verb, times)}`,
        },
      ];
    });
  });
}

function listAt({ args }: Node, at: number): readonly Arg[] {
  const list: Arg | undefined = args[at];
  return list !== undefined && isList(list) ? list : [];
}

/** Trips of a scan or a map: rows of what it goes over, else what it states. */
function trips(graph: Graph, node: Node, rows: readonly Arg[]): number | undefined {
  const [first] = rows;
  const type = first !== undefined && isRef(first) ? typeIn(graph, first.name) : undefined;
  const size = type?.kind === 'tensor' ? type.shape[0] : getOwn(node.kwargs, 'length');
  return typeof size === 'number' ? size : undefined;
}

/** Sums that are reduced one by one and added then. */
function lateReductions(graph: Graph, verbs: readonly Verb[]): Advice[] {
  const reduced = new Map(
    verbs.filter(({ op }) => op === 'all_reduce').map((verb) => [verb.node.name, verb]),
  );
  const { userStart, position } = indexGraph(graph);
  const usedOnce = (name: string): boolean => {
    const at = position.get(name) ?? -1;
    return (
      at >= 0 &&
      userStart[at + 1] - userStart[at] === 1 &&
      graph.outputs.every(({ value }) => value !== name)
    );
  };
  return graph.nodes.flatMap((node): Advice[] => {
    if (node.target !== 'aten.add.Tensor') return [];
    const [a, b] = node.args
      .slice(0, 2)
      .map((arg) => (isRef(arg) ? reduced.get(arg.name) : undefined));
    if (a === undefined || b === undefined || a === b || a.axis !== b.axis || a.dst !== b.dst)
      return [];
    if (!usedOnce(a.node.name) || !usedOnce(b.node.name)) return [];
    return [
      {
        nodes: [a.node.name, b.node.name, node.name],
        meshDim: a.axis,
        advice:
          `add ${a.x} and ${b.x} while they are addends and reduce their sum: 1 all_reduce ` +
          'instead of 2',
      },
    ];
  });
}

/** Whole sums of which every use keeps a piece. */
function scattered(graph: Graph, verbs: readonly Verb[]): Advice[] {
  const byOperand = new Map<string, Verb[]>();
  for (const verb of verbs) byOperand.set(verb.x, [...(byOperand.get(verb.x) ?? []), verb]);
  const { userStart, position } = indexGraph(graph);
  return verbs.flatMap((verb): Advice[] => {
    const { name } = verb.node;
    const at = position.get(name) ?? -1;
    const uses = byOperand.get(name) ?? [];
    if (
      verb.op !== 'all_reduce' ||
      uses.length === 0 ||
      uses.length !== userStart[at + 1] - userStart[at]
    )
      return [];
    if (graph.outputs.some(({ value }) => value === name)) return [];
    const [{ dst }] = uses;
    if (cutOf(dst) === undefined || uses.some((use) => use.axis !== verb.axis || use.dst !== dst))
      return [];
    return [
      {
        nodes: [name, ...uses.map(({ node }) => node.name)],
        meshDim: verb.axis,
        advice:
          `every use of the sum keeps a piece: reduce_scatter(${verb.x}, "${verb.axis}", ` +
          `P→${dst}) moves half the bytes of the all_reduce`,
      },
    ];
  });
}

/**
 * Inputs of a region that are I outside and that its body makes R: R in the spec leaves their
 * gradient to the caller.
 */
function reducedInputs(graph: Graph): Advice[] {
  const { position } = indexGraph(graph);
  const isMade = (name: string): boolean => graph.nodes[position.get(name) ?? -1]?.kind === 'call';
  return graph.nodes.flatMap((node) => {
    if (node.target !== LOCAL_MAP) return [];
    const call = localMapCall(node);
    const body = getOwn(graph.subgraphs, call.body);
    if (body === undefined) return [];
    const verbs = body.nodes.flatMap((inner) => verbOf(inner) ?? []);
    const inside = indexGraph(body);
    return placeholdersOf(body).flatMap((input, i): Advice[] => {
      const operand = call.operands[i];
      if (operand === undefined || !isRef(operand) || !isMade(operand.name)) return [];
      const at = inside.position.get(input.name) ?? -1;
      const uses = inside.userStart[at + 1] - inside.userStart[at];
      return call.axes.flatMap(({ name, size }, a): Advice[] => {
        const casts = verbs.filter(
          ({ x, axis, src, dst }) =>
            x === input.name && axis === name && src === 'I' && dst === 'R',
        );
        if (size === 1 || call.inSpecs[i][a] !== 'I' || casts.length === 0 || casts.length !== uses)
          return [];
        return [
          {
            nodes: [node.name],
            meshDim: name,
            advice:
              `input ${i}, %${operand.name}, is I and only cast to R inside: with R in its ` +
              'spec the caller reduces its gradient, as a reduce_scatter where a piece is ' +
              'wanted',
          },
        ];
      });
    });
  });
}
